"""Streams: a log that many readers go through at their own pace.

    push ──> Log ──dispatch──> one reader at offset 7
              │ └────────────> another at offset 1000000
              └─retention──> gone

Every message gets the next offset, from 0 on. Consuming takes nothing out, so an answer only gives credit back and
there is nothing to give back: whoever wants a message again reads from its offset. The oldest go when retention says.

A reader stands in one of two lines: `behind`, who may have something to read, and `caught_up`, who has read to the end.
An append moves all of the second into the first, once a batch. Whoever cannot take more stands in neither, and costs
nothing until `wake`. So the price is one look and one delivery for each reader and message, wherever readers are.

A selector lets its reader pass over what it does not want, a portion at a time. To browse is what every reader does
here; who says so is not expected to answer.

A durable stream keeps every message in the store, durable or not, under its offset; retention settles it there. At a
start all of it is read into memory. What the store cannot give back leaves a gap, which readers pass over.

`Log` is the seam to files of its own: it knows offsets, times and messages, and nothing of readers or limits.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from broker_core.delivery import NEVER, PENDING, UNLIMITED, Consumer, Delivery
from broker_core.errors import PreconditionFailed, Unsupported
from broker_core.limits import QueueLimits, QueueType, age_ms, text, whole
from broker_core.message import Message, Notes
from broker_core.queue import OVERHEAD, Queue
from broker_core.search import Portions, takes_now
from broker_core.values import Table, Timestamp, Value, printed

if TYPE_CHECKING:
    from broker_core.client import Client
    from broker_core.clock import Timer
    from broker_core.selector import Selector
    from broker_core.store.contract import Page
    from broker_core.topology import VirtualHost

OFFSET: Final = "x-stream-offset"  # the consumer's argument that says where to begin
NEXT: Final = "next-offset"  # note: offsets below it have been given
LEAP: Final = 10_000_000  # offsets: more than readers can have seen of messages that did not get to the disk
AGE_STEP_S: Final = 1.0  # ages are whole seconds; looking more often would be a timer for each message


class Log:
    """Messages by offset. In memory: lists, whose dropped front is cut off when it is an eighth of them."""

    __slots__ = ("_entries", "_gone", "_messages", "_offsets", "_times", "first", "next")

    def __init__(self) -> None:
        self.first = 0  # offset of the oldest message that is left; the next one if there is none
        self.next = 0  # offset of the next message to arrive
        self._gone = 0  # elements of the lists that are dropped
        self._offsets = array("Q")  # rising; there may be gaps
        self._messages: list[Message] = []
        self._times: list[float] = []  # of arrival, seconds since 1970-01-01 UTC; never falling
        self._entries: list[
            Delivery
        ] = []  # what the store knows of them; none at all if they are not in the store

    @property
    def oldest_at(self) -> float:
        """When the oldest message arrived; there must be one."""
        return self._times[self._gone]

    def pass_over(self, offset: int) -> None:
        """The next message gets this offset."""
        if self.first == self.next:
            self.first = offset
        self.next = offset

    def append(self, message: Message, wall: float, entry: Delivery | None = None) -> None:
        """`wall`: seconds since 1970-01-01 UTC. A clock that was set back does not count."""
        self._offsets.append(self.next)
        self._messages.append(message)
        self._times.append(max(wall, self._times[-1]) if self._times else wall)
        if entry is not None:
            self._entries.append(entry)
        self.next += 1

    def read(self, offset: int, quota: int, room: int) -> tuple[Sequence[int], list[Message]]:
        """Up to `quota` offsets and messages from `offset` on, of no more than `room` octets and one message."""
        start = end = bisect_left(self._offsets, offset, self._gone)
        stop = min(start + quota, len(self._messages))
        while end < stop and room > 0:
            room -= self._messages[end].size + len(self._messages[end].properties) + OVERHEAD
            end += 1
        return self._offsets[start:end], self._messages[start:end]

    def offset_since(self, wall: float) -> int:
        """The first offset that arrived at `wall` or later; the next one if there is none."""
        return self._offset_at(bisect_left(self._times, wall, self._gone))

    def _offset_at(self, at: int) -> int:
        return self._offsets[at] if at < len(self._offsets) else self.next

    def entries(self) -> list[Delivery]:
        """What the store knows of the messages that are left."""
        return self._entries[self._gone :]

    def emptied(self) -> list[Message]:
        """What was in it, for whoever frees it; the log is not used any more."""
        return self._messages

    def drop(self) -> tuple[Message, Delivery | None]:
        """Forget the oldest message; there must be one. Returns what the store knows of it, too."""
        gone = self._gone
        dropped = self._messages[gone], self._entries[gone] if self._entries else None
        self._gone = gone = gone + 1
        self.first = self._offset_at(gone)
        if gone * 8 > len(self._messages):
            del self._offsets[:gone], self._messages[:gone], self._times[:gone], self._entries[:gone]
            self._gone = 0
        return dropped


class StreamQueue(Queue):
    """A queue of type `stream`."""

    __slots__ = ("age_timer", "behind", "caught_up", "cursors", "log", "portions")
    ranked = False

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
        self.log = Log()
        self.cursors: dict[Consumer, int] = {}  # the next offset each reader gets
        self.behind: dict[Consumer, None] = {}
        self.caught_up: dict[Consumer, None] = {}
        self.age_timer: Timer | None = None
        self.portions = Portions(self)  # of a search with a selector
        self.apply(limits)

    # Arrival and retention.

    def push(self, message: Message) -> bool:
        """A stream takes everything, and lets the oldest go for it."""
        log, limits, journal, entry = self.log, self.limits, self.journal, None
        if journal is not None:
            entry = Delivery(message, self, log.next, NEVER)  # as published: other queues may have it, too
            entry.stored = PENDING
            journal.arrivals.append(entry)
        log.append(numbered(message, log.next), self.virtual_host.broker.clock.wall(), entry)
        self.ready += 1
        self.ready_bytes += message.size
        self.published += 1
        if self.caught_up:
            self.behind.update(self.caught_up)
            self.caught_up.clear()
            self.touch()
        if limits.max_bytes is not None and self.ready_bytes > limits.max_bytes:
            self._drop_surplus(limits.max_bytes)
        if limits.max_age_ms is not None and self.age_timer is None:
            self._watch_age(limits.max_age_ms)
        return True

    def restore(self, priority: int, pages: Sequence[Page]) -> None:
        """All of it is read into memory, where it was before."""
        assert self.journal is not None, "only what was kept can be restored"
        for page in pages:
            for number, offset, _, arrived_ms, message in self.journal.rows(self, page):
                self._take_back(number, offset, arrived_ms / 1000, message)
        self.log.pass_over(max(self.log.next, whole(self.notes.get(NEXT)) or 0))
        if not self.journal.store.was_clean:
            self.log.pass_over(
                self.log.next + LEAP
            )  # what readers saw of what is lost, they will not see again
            self._note_next()
        self.apply(self.limits)

    def _note_next(self) -> None:
        self.virtual_host.note(self, {**self.notes, NEXT: self.log.next})

    def _take_back(self, number: int, offset: int, wall: float, message: Message) -> None:
        self.log.pass_over(offset)
        message = numbered(message, offset)
        entry = Delivery(message, self, offset, NEVER)
        entry.stored = number
        self.log.append(message, wall, entry)
        self.ready += 1
        self.ready_bytes += message.size

    def apply(self, limits: QueueLimits) -> None:
        self.limits = limits
        self.virtual_host.broker.timers.cancel(self.age_timer)
        self.age_timer = None
        if limits.max_bytes is not None:
            self._drop_surplus(limits.max_bytes)
        if limits.max_age_ms is not None:
            self._drop_aged(limits.max_age_ms)
            self._watch_age(limits.max_age_ms)

    def _drop_surplus(self, max_bytes: int) -> None:
        """The newest message stays, however large."""
        while self.ready_bytes > max_bytes and self.ready > 1:
            self._drop()

    def _drop_aged(self, max_age_ms: int) -> None:
        latest = self.virtual_host.broker.clock.wall() - max_age_ms / 1000
        while self.ready and self.log.oldest_at <= latest:
            self._drop()

    def _drop(self) -> None:
        message, entry = self.log.drop()
        self.ready -= 1
        self.ready_bytes -= message.size
        if entry is not None and self.journal is not None:
            self.journal.settled.append(entry)
            if not self.ready:
                self._note_next()

    def _watch_age(self, max_age_ms: int) -> None:
        """Keep one timer on the oldest message."""
        if self.ready:
            broker = self.virtual_host.broker
            left_s = self.log.oldest_at + max_age_ms / 1000 - broker.clock.wall()
            self.age_timer = broker.timers.at(broker.now + max(left_s, AGE_STEP_S), self._grow_old)

    def _grow_old(self, now: float) -> None:
        self.apply(self.limits)

    # Reading.

    def dispatch(self) -> None:
        for consumer in list(self.behind):
            del self.behind[consumer]
            self._serve(consumer)

    def _serve(self, consumer: Consumer) -> None:
        """Give one reader what it can take. What retention has dropped before it came there, it does not see."""
        log = self.log
        at = max(self.cursors[consumer], log.first)
        give = self.show if consumer.browses else self.give
        while (room := consumer.room()) > 0 and (quota := min(consumer.credit, consumer.window.credit)) > 0:
            offsets, messages = log.read(at, quota, room)
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
        return self.log.next - max(self.cursors[consumer], self.log.first)

    def can_deliver_now(self, message: Message) -> bool:
        self.dispatch()
        return any(takes_now(consumer, message) for consumer in self.caught_up)

    def take_one(self, settled: bool) -> Delivery | None:
        raise Unsupported(f"basic.get not supported by stream queues {self.described}")

    def release(self, delivery: Delivery, failed: bool = True) -> None:
        """It has never left its place."""
        self.unsettled -= 1

    def reject(self, delivery: Delivery) -> None:
        """It stays for the other readers."""
        self.unsettled -= 1

    def waiting(self) -> Iterable[Delivery]:
        offsets, messages = self.log.read(self.log.first, self.ready, UNLIMITED)
        return (Delivery(each, self, n, NEVER) for n, each in zip(offsets, messages, strict=True))

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
        self.cursors[consumer] = self._start(consumer.arguments.get(OFFSET))
        self.consumers[consumer] = None
        consumer.attached = True
        self.offer(consumer)

    def _start(self, asked: Value) -> int:
        found = starting_offset(asked, self.log, self.virtual_host.broker.clock.wall())
        if found is None:
            raise PreconditionFailed(
                f"invalid arg '{OFFSET}' for {self.described}: '{printed(asked)}' is not first, last, next, "
                "an offset, a timestamp or an age such as 7D (units Y M D h m s)"
            )
        return found

    def remove_consumer(self, consumer: Consumer) -> None:
        if self.cursors.pop(consumer, None) is None:
            return
        del self.consumers[consumer]
        consumer.attached = consumer.able = False
        self.behind.pop(consumer, None)
        self.caught_up.pop(consumer, None)

    def offer(self, consumer: Consumer) -> None:
        if not consumer.able:
            consumer.able = True
            self.behind[consumer] = None
            self.touch()

    # The end.

    def bury_all(self) -> None:
        """There are no dead letters of a stream."""

    def closed(self) -> None:
        """The messages go with it, and the readers are told."""
        self.virtual_host.broker.timers.cancel(self.age_timer)
        self.portions.end()
        super().closed()
        broker = self.virtual_host.broker
        if self.journal is not None:
            self.journal.settled += self.log.entries()
        broker.discarded.add(self.log.emptied(), broker.now)
        self.log = Log()
        self.ready = self.ready_bytes = 0
        for line in (self.cursors, self.behind, self.caught_up):
            line.clear()


def numbered(message: Message, offset: int) -> Message:
    """The message with its offset noted on it, so that it is rendered once for all readers."""
    notes, before = Notes(), message.notes
    if before is not None:
        notes.deaths, notes.first_death, notes.last_death = (
            before.deaths,
            before.first_death,
            before.last_death,
        )
    notes.offset = offset
    return Message(
        message.encoding,
        message.exchange,
        message.key,
        message.properties,
        message.body,
        message.facts,
        notes,
    )


WORDS: Final[dict[str | None, Callable[[Log], int]]] = {
    "first": lambda log: log.first,
    "last": lambda log: max(log.first, log.next - 1),
    "next": lambda log: log.next,
}


def starting_offset(asked: Value, log: Log, wall: float) -> int | None:
    """Where a reader begins; None if that is not a place. Offsets beyond the log's ends mean its ends.

    Source: RabbitMQ, Streams, "Consuming": first, last, next, an offset, a timestamp, an interval.
    """
    if asked is None:
        return log.next
    if isinstance(asked, Timestamp):
        return log.offset_since(asked)
    if (offset := whole(asked)) is not None:
        return min(max(offset, log.first), log.next) if offset >= 0 else None
    if (found := WORDS.get(text(asked))) is not None:
        return found(log)
    age = age_ms(asked)
    return None if age is None else log.offset_since(wall - age / 1000)
