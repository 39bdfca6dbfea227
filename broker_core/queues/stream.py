"""Streams: a log that many readers go through at their own pace.

    push ──> Log ──dispatch──> one reader at offset 7
              │ └────────────> another at offset 1000000
              └─retention──> gone

Every message gets the next offset, from 0 on. Consuming takes nothing out, so an answer only gives credit back and
there is nothing to give back: whoever wants a message again reads from its offset. The oldest go when retention says.

A reader stands in one of two lines: `behind`, who may have something to read, and `caught_up`, who has read to the end.
What is committed moves all of the second into the first, once a batch. Whoever cannot take more stands in neither,
and costs nothing until `wake`; whoever wants what is on disk only is `fetching` meanwhile. So the price is one look and
one delivery for each reader and message, wherever readers are.

A selector lets its reader pass over what it does not want, a portion at a time. To browse is what every reader does
here; who says so is not expected to answer.

Who publishes may number its messages (headers `x-producer` and `x-sequence`): what is not above the last number taken
of that producer is a repetition, and is dropped as if it had been taken.

Where the messages lie is the `Log`'s business (`log.py`): in memory, or, with a store, in segments on disk.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final

from broker_core.clock import NEVER
from broker_core.delivery import UNLIMITED, Consumer, Delivery
from broker_core.errors import PreconditionFailed, Unsupported
from broker_core.limits import QueueLimits, QueueType, age_ms, text, whole
from broker_core.message import Message
from broker_core.queues.queue import REJECTED, Queue
from broker_core.queues.search import Portions, takes_now
from broker_core.queues.stream_log import Log, MemoryLog
from broker_core.values import Table, Timestamp, Value, printed

if TYPE_CHECKING:
    from broker_core.client import Client
    from broker_core.clock import Timer
    from broker_core.durability.contract import Durability
    from broker_core.selectors.parser import Selector
    from broker_core.store.contract import Packed
    from broker_core.virtual_host import VirtualHost

OFFSET: Final = "x-stream-offset"  # the consumer's argument that says where to begin
PRODUCER: Final = "x-producer"  # headers of a message: who numbers its messages,
SEQUENCE: Final = "x-sequence"  # and the number
NAMED: Final = PRODUCER.encode()  # looked for in the properties, before they are decoded
PRODUCER_MAX: Final = 255  # octets of a producer's name
SEQUENCE_MAX: Final = (1 << 63) - 1
INCARNATION: Final = "incarnation"  # note
AGE_STEP_S: Final = 1.0  # ages are whole seconds; looking more often would be a timer for each message


class StreamQueue(Queue):
    """A queue of type `stream`."""

    __slots__ = ("age_timer", "behind", "caught_up", "cursors", "fetching", "log", "lookouts", "portions")
    has_entries: ClassVar[bool] = False

    def __init__(
        self,
        virtual_host: VirtualHost,
        name: str,
        limits: QueueLimits,
        type_: QueueType = QueueType.STREAM,
        durable: bool = True,
        exclusive: bool = False,
        auto_delete: bool = False,
        owner: Client | None = None,
        arguments: Table | None = None,
    ) -> None:
        super().__init__(virtual_host, name, limits, type_, durable, exclusive, auto_delete, owner, arguments)
        self.log: Log = MemoryLog()
        self.notes: Table = {INCARNATION: secrets.token_hex(8)}
        self.cursors: dict[Consumer, int] = {}  # the next offset each reader gets
        self.behind: dict[Consumer, None] = {}
        self.caught_up: dict[Consumer, None] = {}
        self.fetching: dict[Consumer, None] = {}  # those whose next message is being read from the disk
        self.lookouts: dict[Callable[[], None], None] = {}  # who wants to know when there is more
        self.age_timer: Timer | None = None
        self.portions = Portions(self)  # of a search with a selector
        self.apply(limits)

    @property
    def incarnation(self) -> str:
        """Another one when the stream is deleted and made again: its offsets mean other messages then."""
        return text(self.notes.get(INCARNATION)) or ""

    def keep_in(self, journal: Durability, number: int) -> None:
        super().keep_in(journal, number)
        self.log = journal.open_log(number, self.described, self._committed)
        self.log.obey(self.limits)

    # Arrival and retention.

    def push(self, message: Message) -> bool:
        """A stream takes everything, and lets the oldest go for it."""
        log, limits = self.log, self.limits
        if message.facts.has_headers and NAMED in message.properties and self._is_repeated(message):
            return True
        log.append(message, self.virtual_host.broker.clock.wall())
        self.ready += 1
        self.ready_bytes += message.size
        self.published += 1
        if log.committed < log.next:
            return True  # `_committed` does the rest
        if self.caught_up or self.lookouts:
            self._tell_readers()
        if limits.max_bytes is not None and self.ready_bytes > limits.max_bytes:
            self._retain(None)
        if limits.max_age_ms is not None and self.age_timer is None:
            self._watch_age(limits.max_age_ms)
        return True

    def push_block(self, packed: Packed) -> None:
        """As `push`, of all messages in a block which the log takes. They have no sequence numbers."""
        self.log.append_block(packed)
        self.ready += packed.count
        self.ready_bytes += packed.bodies
        self.published += packed.count  # `_committed` does the rest

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
        """The log has more for readers."""
        self._tell_readers()
        self._let_go()

    def apply(self, limits: QueueLimits) -> None:
        self.limits = limits
        self.log.obey(limits)
        self.virtual_host.broker.timers.cancel(self.age_timer)
        self.age_timer = None
        self._let_go()

    def _let_go(self) -> None:
        """Of what is too much, and of what is too old."""
        if (max_age_ms := self.limits.max_age_ms) is None:
            self._retain(None)
            return
        self._retain(self.virtual_host.broker.clock.wall() - max_age_ms / 1000)
        if self.age_timer is None:
            self._watch_age(max_age_ms)

    def _retain(self, latest: float | None) -> None:
        log = self.log
        log.retain(self.limits.max_bytes, latest)
        self.ready, self.ready_bytes = log.messages, log.octets

    def _watch_age(self, max_age_ms: int) -> None:
        """Keep one timer on the oldest message."""
        oldest_at = self.log.oldest_at
        if oldest_at is not None:
            broker = self.virtual_host.broker
            left_s = oldest_at + max_age_ms / 1000 - broker.clock.wall()
            self.age_timer = broker.timers.at(broker.now + max(left_s, AGE_STEP_S), self._grow_old)

    def _grow_old(self, now: float) -> None:
        self.age_timer = None
        self._let_go()

    # Reading.

    def dispatch(self) -> None:
        if self.lookouts:
            lookouts, self.lookouts = self.lookouts, {}
            for tell in lookouts:
                tell()
        for consumer in list(self.behind):
            del self.behind[consumer]
            self._serve(consumer)

    def _serve(self, consumer: Consumer) -> None:
        """Give one reader what it can take. What retention has dropped before it came there, it does not see."""
        log = self.log
        at = max(self.cursors[consumer], log.first)
        give = self.show if consumer.browses else self.give
        while (room := consumer.room()) > 0 and (quota := min(consumer.credit, consumer.window.credit)) > 0:
            found = log.read(at, quota, room)
            if found is None:
                consumer.searching = False
                self.fetching[consumer] = None
                log.fetch(at, partial(self._fetched, consumer))
                break
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
                give(consumer, wanted)
            if tested < len(deliveries):
                at = offsets[tested]
                consumer.searching = True
                self.behind[consumer] = None
                self.portions.go_on_later()
                break
        else:
            consumer.able = False
        self.cursors[consumer] = at

    def _fetched(self, consumer: Consumer) -> None:
        """What it wants is in memory now."""
        if consumer in self.fetching:
            del self.fetching[consumer]
            self.behind[consumer] = None
            self.touch()

    def look_out(self, tell: Callable[[], None]) -> None:
        """Have it called once, when there is something more to read, or when the stream is deleted."""
        self.lookouts[tell] = None

    def look_away(self, tell: Callable[[], None]) -> None:
        """It is not called any more."""
        self.lookouts.pop(tell, None)

    def _sift(self, selector: Selector, deliveries: list[Delivery]) -> tuple[list[Delivery], int]:
        """Those that a selector wants, and how many there was time to test."""
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
        return consumer.searching or consumer in self.fetching

    def can_deliver_now(self, message: Message) -> bool:
        self.dispatch()
        return any(takes_now(consumer, message) for consumer in self.caught_up)

    def take_one(self, settled: bool) -> Delivery | None:
        raise Unsupported(f"basic.get not supported by stream queues {self.described}")

    def release(self, delivery: Delivery, failed: bool = True, redelivered: bool = True) -> None:
        """It has never left its place."""
        self.lost(1)

    def reject(self, delivery: Delivery) -> None:
        """It stays for the other readers."""
        self.lost(1)

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
        asked = consumer.arguments.get(OFFSET)
        start = starting_offset(asked, self.log)
        since = starting_time(asked, self.virtual_host.broker.clock.wall()) if start is None else None
        if start is None and since is None:
            raise PreconditionFailed(
                f"invalid arg '{OFFSET}' for {self.described}: '{printed(asked)}' is not first, last, next, "
                "an offset, a timestamp or an age such as 7D (units Y M D h m s)"
            )
        self.cursors[consumer] = self.log.first if start is None else start
        self.consumers[consumer] = None
        consumer.attached = True
        self.consumer_came(consumer)
        if since is None:
            self.offer(consumer)
        else:
            consumer.able = True  # or it would be offered when it has credit
            self.fetching[consumer] = None
            self.log.offset_since(since, partial(self._placed, consumer))

    def _placed(self, consumer: Consumer, offset: int) -> None:
        """Where it begins has been found."""
        if consumer in self.fetching:
            self.cursors[consumer] = offset
            self._fetched(consumer)

    def remove_consumer(self, consumer: Consumer) -> None:
        if self.cursors.pop(consumer, None) is None:
            return
        del self.consumers[consumer]
        consumer.attached = consumer.able = False
        self.consumer_left(consumer)
        self.behind.pop(consumer, None)
        self.caught_up.pop(consumer, None)
        self.fetching.pop(consumer, None)

    def offer(self, consumer: Consumer) -> None:
        if not consumer.able:
            consumer.able = True
            self.behind[consumer] = None
            self.touch()

    # The end.

    def bury_all(self, reason: str = REJECTED) -> None:
        """There are no dead letters of a stream."""

    def closed(self) -> None:
        """The messages go with it, and the readers are told."""
        self.virtual_host.broker.timers.cancel(self.age_timer)
        self.portions.end()
        super().closed()
        broker = self.virtual_host.broker
        broker.discarded.add(self.log.end(), broker.now)
        self.log = MemoryLog()
        self.ready = self.ready_bytes = 0
        for line in (self.cursors, self.behind, self.caught_up, self.fetching):
            line.clear()
        lookouts, self.lookouts = self.lookouts, {}
        for tell in lookouts:
            tell()


WORDS: Final[dict[str | None, Callable[[Log], int]]] = {
    "first": lambda log: log.first,
    "last": lambda log: max(log.first, log.next - 1),
    "next": lambda log: log.next,
}


def starting_offset(asked: Value, log: Log) -> int | None:
    """Where a reader begins; None if that is not a place. Offsets beyond the log's ends mean its ends.

    Source: RabbitMQ, Streams, "Consuming": first, last, next, an offset, a timestamp, an interval.
    """
    if asked is None:
        return log.next
    if isinstance(asked, Timestamp):
        return None
    if (offset := whole(asked)) is not None:
        return min(max(offset, log.first), log.next) if offset >= 0 else None
    found = WORDS.get(text(asked))
    return None if found is None else found(log)


def starting_time(asked: Value, wall: float) -> float | None:
    """When that arrived where a reader begins, in seconds since 1970-01-01 UTC; None if that is not a time."""
    if isinstance(asked, Timestamp):
        return asked
    age = age_ms(asked)
    return None if age is None else wall - age / 1000
