"""A stream is a log that many readers go through at their own pace.

    push ──> Log ──dispatch──> one reader at offset 7
              │ └────────────> another at offset 1000000
              └─retention──> gone

Every message gets the next offset, from 0 on. Consuming removes nothing, so an answer only restores credit, and a
release puts nothing back: a client that wants a message again reads from its offset. Retention drops the oldest.

A reader stands in one of two lines: `behind`, if there may be messages for it, or `caught_up`, if it has read to the
end. A commit moves all of the second into the first, once a batch. A reader that cannot take more stands in neither,
and costs nothing until `wake`; a reader whose next message is on disk only is `fetching` meanwhile. So the cost is one
look and one delivery for each reader and message, wherever readers are.

A reader's selector passes over messages, a portion at a time; its stream filter (`stream_filter.py`) also over blocks
on disk, which are not read then. Every reader browses here; one that asks for browsing is not expected to answer.

Producers may number their messages (headers `x-producer` and `x-sequence`): a message whose number is not above the
last one taken from its producer is a repetition, and is dropped as if it had been taken.

Readers may form groups, of which one member at a time is active (`reader_groups.py`).

The `Log` keeps the messages (`stream_log.py`): in memory, or, with a store, in segments on disk.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final

from leveret.arguments.checks import age_ms, text, whole
from leveret.clock import NEVER
from leveret.delivery import UNLIMITED, Consumer, Delivery
from leveret.errors import PreconditionFailed, Unsupported
from leveret.limits import QueueLimits
from leveret.message import Message
from leveret.queues.contract import QueueHost, QueueTerms
from leveret.queues.queue import BY_BACKOFF, REJECTED, Queue
from leveret.queues.reader_groups import ReaderGroups, group_name
from leveret.queues.search import Portions, takes_now
from leveret.queues.stream_filter import stream_filter
from leveret.queues.stream_log import Log, MemoryLog
from leveret.values import Table, Timestamp, Value, printed

if TYPE_CHECKING:
    from leveret.clock import Timer
    from leveret.durability import Durability
    from leveret.durable.store.contract import Packed
    from leveret.selectors.parser import Selector

OFFSET: Final = "x-stream-offset"  # consumer argument: where to begin
PRODUCER: Final = "x-producer"  # message headers: the name of a producer that numbers its messages,
SEQUENCE: Final = "x-sequence"  # and the number
NAMED: Final = PRODUCER.encode()  # searched for in the encoded properties, before they are decoded
PRODUCER_MAX: Final = 255  # bytes of a producer's name
SEQUENCE_MAX: Final = (1 << 63) - 1
INCARNATION: Final = "incarnation"  # a key of the queue's notes
AGE_STEP_S: Final = 1.0  # least time between checks of age; checking at once would need a timer per message


class StreamQueue(Queue):
    """A queue of type `stream`."""

    __slots__ = (
        "age_timer",
        "behind",
        "caught_up",
        "cursors",
        "fetching",
        "groups",
        "log",
        "lookouts",
        "portions",
    )
    has_entries: ClassVar[bool] = False

    def __init__(self, virtual_host: QueueHost, name: str, limits: QueueLimits, terms: QueueTerms) -> None:
        super().__init__(virtual_host, name, limits, terms)
        self.log: Log = MemoryLog()
        self.log.begin_at(limits.initial_offset)
        self.notes: Table = {INCARNATION: secrets.token_hex(8)}
        self.cursors: dict[Consumer, int] = {}  # the next offset each reader gets
        self.behind: dict[Consumer, None] = {}
        self.caught_up: dict[Consumer, None] = {}
        self.fetching: dict[Consumer, None] = {}  # readers whose next message is being read from disk
        self.groups: ReaderGroups | None = None  # created with the first group of readers
        self.lookouts: dict[Callable[[], None], None] = {}  # callbacks to call when there is more to read
        self.age_timer: Timer | None = None
        self.portions = Portions(self)  # limits tests by selectors
        self.apply(limits)

    @property
    def incarnation(self) -> str:
        """Return the stream's unique token: a stream recreated under the name has another, as its offsets differ."""
        return text(self.notes.get(INCARNATION)) or ""

    def keep_in(self, journal: Durability, number: int) -> None:
        super().keep_in(journal, number)
        self.log = journal.open_log(number, self.described, self._committed)
        self.log.begin_at(self.declared_limits.initial_offset)
        self.log.obey(self.limits)

    # Arrival and retention.

    def push(self, message: Message) -> bool:
        """Append a message, unless its producer repeats it, and drop the oldest if the limits say so. Always True."""
        log, limits = self.log, self.limits
        if message.facts.has_headers and NAMED in message.properties and self._is_repeated(message):
            return True
        if self.entering is not None:
            self.entering.appended(log.next, message)
        log.append(message, self.settling.clock.wall())
        self.ready += 1
        self.ready_bytes += message.size
        self.published += 1
        if log.committed < log.next:
            return True  # the rest is done in `_committed`
        if self.caught_up or self.lookouts:
            self._tell_readers()
        if limits.max_bytes is not None and self.ready_bytes > limits.max_bytes:
            self._retain(None)
        if limits.max_age_ms is not None and self.age_timer is None:
            self._watch_age(limits.max_age_ms)
        return True

    def push_block(self, packed: Packed) -> None:
        """Push all messages of a block that the log takes. They have no sequence numbers."""
        self.log.append_block(packed)
        self.ready += packed.count
        self.ready_bytes += packed.bodies
        self.published += packed.count  # the rest is done in `_committed`

    def _is_repeated(self, message: Message) -> bool:
        headers = message.headers
        producer, sequence = text(headers.get(PRODUCER)), whole(headers.get(SEQUENCE))
        if not producer or sequence is None or not 0 <= sequence <= SEQUENCE_MAX:
            return False
        if len(producer.encode("utf-8", "surrogateescape")) > PRODUCER_MAX:
            return False
        return self.log.is_repeated(producer, sequence)

    def _tell_readers(self) -> None:
        self.behind.update(self.caught_up)
        self.caught_up.clear()
        self.touch()

    def _committed(self) -> None:
        """Called by the log after more messages were committed."""
        self._tell_readers()
        self._let_go()

    def apply(self, limits: QueueLimits) -> None:
        self.limits = limits
        self.log.obey(limits)
        self.settling.timers.cancel(self.age_timer)
        self.age_timer = None
        self._let_go()

    def _let_go(self) -> None:
        """Drop messages beyond the limits of size and age."""
        if (max_age_ms := self.limits.max_age_ms) is None:
            self._retain(None)
            return
        self._retain(self.settling.clock.wall() - max_age_ms / 1000)
        if self.age_timer is None:
            self._watch_age(max_age_ms)

    def _retain(self, latest: float | None) -> None:
        log = self.log
        log.retain(self.limits.max_bytes, latest)
        self.ready, self.ready_bytes = log.messages, log.octets

    def _watch_age(self, max_age_ms: int) -> None:
        """Set the timer to the time when the oldest messages become too old."""
        oldest_at = self.log.oldest_at
        if oldest_at is not None:
            left_s = oldest_at + max_age_ms / 1000 - self.settling.clock.wall()
            self.age_timer = self.settling.later(max(left_s, AGE_STEP_S), self._grow_old)

    def _grow_old(self, now: float) -> None:
        self.age_timer = None
        self._let_go()

    # Reading.

    def dispatch(self) -> None:
        if self.lookouts:
            lookouts, self.lookouts = self.lookouts, {}
            for tell in lookouts:
                tell()
        if self.paused:
            return
        for consumer in list(self.behind):
            del self.behind[consumer]
            self._serve(consumer)

    def _serve(self, consumer: Consumer) -> None:
        """Deliver to one reader what it can take. It skips messages that retention dropped before it reached them."""
        log = self.log
        at = max(self.cursors[consumer], log.first)
        while (room := consumer.room()) > 0 and (quota := min(consumer.credit, consumer.window.credit)) > 0:
            found = log.read(at, quota, room)
            if found is None:
                consumer.searching = False
                self.fetching[consumer] = None
                self.cursors[consumer] = at
                self._fetch(consumer, at)
                return
            offsets, messages = found
            if not messages:
                consumer.searching = False
                self.caught_up[consumer] = None
                break
            deliveries = [Delivery(each, self, n, NEVER) for n, each in zip(offsets, messages, strict=True)]
            at = offsets[-1] + 1
            wanted, tested = deliveries, len(deliveries)
            if consumer.selector is not None:
                wanted, tested = self._sift(consumer.selector, deliveries)
            if wanted:
                if self.groups is not None and not (consumer.settled or consumer.browses):
                    self.groups.note_given(consumer, wanted)
                if consumer.browses:
                    self.show(consumer, wanted)
                else:
                    self.give(consumer, wanted)
            if tested < len(deliveries):
                at = offsets[tested]
                consumer.searching = True
                self.behind[consumer] = None
                self.portions.go_on_later()
                break
        else:
            consumer.able = False
        self.cursors[consumer] = at

    def _fetch(self, consumer: Consumer, at: int) -> None:
        """Have the messages loaded that a reader needs next; by its stream filter, these may begin later."""
        wanted = None if consumer.selector is None else consumer.selector.wanted
        if wanted is None:
            self.log.fetch(at, partial(self._fetched, consumer))
        else:
            self.log.seek(at, wanted, partial(self._placed, consumer, at))

    def _fetched(self, consumer: Consumer) -> None:
        """Called when the messages that a reader waits for are in memory."""
        if consumer in self.fetching:
            del self.fetching[consumer]
            self.behind[consumer] = None
            self.touch()

    def look_out(self, tell: Callable[[], None]) -> None:
        """Have `tell` called once, when there is more to read, or when the stream is deleted."""
        self.lookouts[tell] = None

    def look_away(self, tell: Callable[[], None]) -> None:
        """Take back `look_out`."""
        self.lookouts.pop(tell, None)

    def _sift(self, selector: Selector, deliveries: list[Delivery]) -> tuple[list[Delivery], int]:
        """Return the deliveries that a selector matches, and how many there was time to test."""
        wanted: list[Delivery] = []
        for tested, delivery in enumerate(deliveries):
            if not self.portions.may_test(delivery.message):
                return wanted, tested
            if selector.matches(delivery.message):
                wanted.append(delivery)
        return wanted, len(deliveries)

    def available_to(self, consumer: Consumer) -> int:
        return max(0, self.log.committed - max(self.cursors[consumer], self.log.first))

    def seeks_for(self, consumer: Consumer) -> bool:
        return not self.paused and (consumer.searching or consumer in self.fetching)

    def can_deliver_now(self, message: Message) -> bool:
        self.dispatch()
        return not self.paused and any(takes_now(consumer, message) for consumer in self.caught_up)

    def take_one(self, settled: bool) -> Delivery | None:
        raise Unsupported(f"basic.get not supported by stream queues {self.described}")

    def release(
        self, delivery: Delivery, failed: bool = True, redelivered: bool = True, until: float = BY_BACKOFF
    ) -> None:
        """Count off a delivery; the message is still in the log."""
        self.answered((delivery,))
        self.lost(1, delivery.message.size)
        if self.groups is not None:
            self.groups.answered(delivery, comes_back=True)

    def reject(self, delivery: Delivery) -> None:
        """Count off a delivery; the message stays in the log for other readers."""
        self.answered((delivery,))
        self.lost(1, delivery.message.size)
        if self.groups is not None:
            self.groups.answered(delivery)

    def accept(self, delivery: Delivery) -> None:
        self.answered((delivery,))
        self.accepted_elsewhere(1, delivery.message.size)
        if self.groups is not None:
            self.groups.answered(delivery)

    def accept_run(self, deliveries: list[Delivery]) -> None:
        if self.bounded:
            self.answered(deliveries)
        octets = 0
        for delivery in deliveries:
            octets += delivery.message.size
        self.accepted_elsewhere(len(deliveries), octets)
        if self.groups is not None:
            for delivery in deliveries:
                self.groups.answered(delivery)

    def waiting(self) -> Iterable[Delivery]:
        return (Delivery(message, self, offset, NEVER) for offset, message in self.log.look())

    def purge(self) -> int:
        raise Unsupported(f"queue.purge not supported by stream queues {self.described}")

    # Readers.

    def add_consumer(self, consumer: Consumer) -> None:
        """Attach a reader at the offset it asks for. It must limit what it gets (X026).

        Readers do not disturb each other, so `exclusive` has no meaning here. Raises Unsupported or
        PreconditionFailed.
        """
        if min(consumer.credit, consumer.window.credit) > UNLIMITED // 2:
            if consumer.settled:
                raise Unsupported(f"automatic acknowledgement not supported by stream {self.described}")
            raise PreconditionFailed(f"consumer prefetch count is not set for stream {self.described}")
        offset = consumer.arguments.get(OFFSET)
        start = starting_offset(offset, self.log)
        since = starting_time(offset, self.settling.clock.wall()) if start is None else None
        if start is None and since is None:
            raise PreconditionFailed(
                f"invalid arg '{OFFSET}' for {self.described}: '{printed(offset)}' is not first, last, next, "
                "an offset, a timestamp or an age such as 7D (units Y M D h m s)"
            )
        asked_filter = stream_filter(consumer.arguments, self.described)
        if asked_filter is not None:
            consumer.selector = asked_filter.also(consumer.selector)
        name = group_name(consumer.arguments, self.described)
        self.cursors[consumer] = begin = self.log.first if start is None else start
        self.consumers[consumer] = None
        consumer.attached = True
        self.consumer_came(consumer)
        if name is not None:
            if self.groups is None:
                self.groups = ReaderGroups(self)
            self.groups.join(consumer, name, start, since)
        elif since is None:
            self.offer(consumer)
        else:
            consumer.able = True  # else `wake` would offer it before its place is found
            self.fetching[consumer] = None
            self.log.offset_since(since, partial(self._placed, consumer, begin))

    def _placed(self, consumer: Consumer, since: int, offset: int) -> None:
        """Called when the offset has been found at which a reader begins, or goes on that was at `since`."""
        if consumer in self.fetching:
            if self.cursors[consumer] == since:
                self.cursors[consumer] = offset
            self._fetched(consumer)

    def remove_consumer(self, consumer: Consumer) -> None:
        if (cursor := self.cursors.pop(consumer, None)) is None:
            return
        del self.consumers[consumer]
        consumer.attached = consumer.able = False
        self.consumer_left(consumer)
        self.out_of_line(consumer)
        if self.groups is not None:
            self.groups.leave(consumer, cursor)

    def out_of_line(self, consumer: Consumer) -> None:
        """Let a reader wait until it is offered again."""
        self.behind.pop(consumer, None)
        self.caught_up.pop(consumer, None)
        self.fetching.pop(consumer, None)

    def offer(self, consumer: Consumer) -> None:
        if self.groups is not None and not self.groups.serves(consumer):
            return
        if not consumer.able:
            consumer.able = True
            self.behind[consumer] = None
            self.touch()

    def alternates(self, consumer: Consumer) -> bool:
        return self.groups is not None and consumer in self.groups.group_of

    def timed_out(self, consumer: Consumer) -> None:
        super().timed_out(consumer)
        if self.groups is not None:
            self.groups.timed_out(consumer)

    def serves(self, consumer: Consumer) -> bool:
        return self.groups is None or self.groups.is_active(consumer)

    # The end.

    def bury_all(self, reason: str = REJECTED) -> None:
        """Do nothing: messages of streams are never dead-lettered."""

    def closed(self) -> None:
        """Drop the messages, and cancel the readers."""
        self.settling.timers.cancel(self.age_timer)
        self.portions.end()
        super().closed()
        self.settling.discarded.add(self.log.end(), self.settling.now)
        self.log = MemoryLog()
        self.ready = self.ready_bytes = 0
        for line in (self.cursors, self.behind, self.caught_up, self.fetching):
            line.clear()
        self.groups = None
        lookouts, self.lookouts = self.lookouts, {}
        for tell in lookouts:
            tell()


WORDS: Final[dict[str | None, Callable[[Log], int]]] = {
    "first": lambda log: log.first,
    "last": lambda log: max(log.first, log.next - 1),
    "next": lambda log: log.next,
}


def starting_offset(value: Value, log: Log) -> int | None:
    """Return the offset that an argument asks for, moved into the log's bounds; None if it does not name an offset.

    Source: RabbitMQ, Streams, "Consuming": first, last, next, an offset, a timestamp, an interval.
    """
    if value is None:
        return log.next
    if isinstance(value, Timestamp):
        return None
    if (offset := whole(value)) is not None:
        return min(max(offset, log.first), log.next) if offset >= 0 else None
    found = WORDS.get(text(value))
    return None if found is None else found(log)


def starting_time(value: Value, wall: float) -> float | None:
    """Return the time of arrival that an argument asks for (seconds since 1970-01-01 UTC); None if it is no time."""
    if isinstance(value, Timestamp):
        return value
    age = age_ms(value)
    return None if age is None else wall - age / 1000
