"""The contract of a queue, which every kind of queue implements: publishing, consuming, answering and deletion.

    WorkQueue    work_queue.py   each message goes to one consumer and is gone once it is answered
    StreamQueue  stream.py       a log that every consumer reads at its own pace; nothing is taken out

Its parts are what each of its callers needs, each built on the one before:

    Sink           sink.py           publishers and routing
    StoredQueue    stored_queue.py   the journal, recovery, the cluster
    CountedQueue   counted_queue.py  deliveries and their answers, and the counts of both
    Queue          here              consumers, access, deletion

`factory.py` holds the table of kinds. Callers do not test the kind of a queue first: a kind that does not support an
operation raises `Unsupported`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, Protocol

from mypy_extensions import mypyc_attr

from leveret.delivery import Consumer, Delivery, consumer_fields
from leveret.durability import Holder
from leveret.errors import Locked
from leveret.limits import QueueLimits
from leveret.queues.contract import NO_TERMS, Owner, QueueHost, QueueTerms
from leveret.queues.counted_queue import CountedQueue
from leveret.queues.observer import QueueObserver, joined
from leveret.queues.scheduled import NOTHING_SCHEDULED, ScheduledMessages
from leveret.queues.stored_queue import ALL
from leveret.values import Table

if TYPE_CHECKING:
    from leveret.durability import Durability
    from leveret.exchanges.duplicates import Duplicates
    from leveret.message import Message

# Reasons of death, as every protocol shows them (X030).
REJECTED: Final = "rejected"
EXPIRED: Final = "expired"
MAXLEN: Final = "maxlen"
DELIVERY_LIMIT: Final = "delivery_limit"
DELETED: Final = "deleted"  # not shown as a death: a deleted queue's message for the alternate exchange

# When a message is ready again that a consumer gives back, besides a time in monotonic seconds.
AT_ONCE: Final = 0.0
BY_BACKOFF: Final = -1.0  # as the queue's back-off says

PAUSED: Final = "paused"  # a key of a queue's notes
NONE: Final[Table] = {}  # shared by all queues without arguments or notes; never changed


@mypyc_attr(allow_interpreted_subclasses=True)
class Watcher:
    """A dependent of a queue that does not consume from it, such as a link that publishes to it."""

    __slots__ = ()

    def queue_deleted(self) -> None:
        """Called once, when the virtual host has deleted the queue."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Demand:
    """An observer of whether consumers want messages that a queue does not have."""

    __slots__ = ()

    def look(self) -> None:
        """Called when the queue has delivered what it could; it must not call the queue."""


class DeadLetters(Holder, Protocol):
    """The dead letters of a queue that not all of their targets have taken (`held_dead_letters.py`)."""

    ready: int  # of them, those that are not in hand
    in_hand: int
    confirmed: int  # dead letters that all their targets have taken

    @property
    def count(self) -> int:
        """Return how many are held."""

    @property
    def octets(self) -> int:
        """Return the bytes of their bodies."""

    @property
    def why(self) -> str:
        """Return why the first of them is held; empty if it has not been refused."""

    @property
    def unreadable(self) -> int:
        """Return how many cannot be read from the store."""

    def keep_in(self, journal: Durability, number: int) -> None:
        """Keep them in the store, under this number."""

    def push(self, message: Message) -> bool:
        """Take one more."""

    def dispatch(self) -> None:
        """Give dead letters to their targets, as far as these take them."""

    def route_again(self) -> None:
        """Route those in hand anew in the next settle."""

    def asks_for_first(self, count: int = ALL) -> bool:
        """Return whether some of the first have to come from another machine first. They are brought then."""

    def give_up(self) -> None:
        """Give all of them to the targets that take them now, and drop the others: their queue is deleted."""

    def let_go(self) -> None:
        """Forget them without settling them. Called when the node has ended."""

    def closed(self) -> None:
        """Drop all of them, as their queue is deleted."""


class ConsumerWatch(Protocol):
    """The watch over the consumers of a queue that may be slow (`slow_consumers.py`)."""

    slow: dict[Consumer, None]  # those that the last check found
    found: int  # how often a consumer became slow, since the queue was declared

    def obey(self) -> None:
        """Begin anew with the queue's present limits, if they have changed."""

    def watch(self) -> None:
        """Look at the consumers after the next period, unless that is planned, or there is no need."""

    def forget(self) -> None:
        """Judge no consumer by what it has taken so far, as the queue gave out nothing for a while."""

    def stop(self) -> None:
        """Judge no consumer any more, as the queue is deleted, or its limits are others."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Queue(CountedQueue):
    """One queue. Its `VirtualHost` declares, binds and deletes it; the data path calls the methods here."""

    __slots__ = (
        "arguments",
        "auto_delete",
        "consumers",
        "dead_letters",
        "declared_limits",
        "deduplication",
        "deleted",
        "demand",
        "durable",
        "entering",
        "exclusive",
        "limits",
        "notes",
        "observer",
        "owner",
        "paused",
        "selector",
        "slow_consumers",
        "touched",
        "type",
        "used_at",
        "warned_cycle",
        "watchers",
    )
    is_exchange = False

    def __init__(
        self, virtual_host: QueueHost, name: str, limits: QueueLimits, terms: QueueTerms = NO_TERMS
    ) -> None:
        """Create a queue that obeys `limits`. Every kind takes the same arguments."""
        # The attributes that every message needs come first, so that they are adjacent in memory.
        super().__init__(virtual_host, name)
        self.limits = limits  # arguments merged with policies
        self.touched = False  # on the broker's list for the next settle
        self.deleted = False
        self.paused = False  # consumers get nothing (`pause`)
        self.entering: QueueObserver | None = None  # told of messages that come in
        # The following attributes are seldom read.
        self.type = terms.type
        self.durable = terms.durable
        self.exclusive = terms.exclusive
        self.auto_delete = terms.auto_delete
        self.owner = terms.owner  # the client that alone may use it, if exclusive
        self.arguments: Table = terms.arguments
        self.declared_limits = limits  # of the arguments alone
        self.consumers: dict[Consumer, None] = {}  # in order of arrival; without browsers of a work queue
        self.notes: Table = NONE  # kept with it for its kind or a front-end (`VirtualHost.note`)
        self.dead_letters: DeadLetters | None = None  # created when the queue first holds one
        self.warned_cycle = False  # it has been logged that its dead letters come back
        self.used_at = self.settling.now
        self.deduplication: Duplicates | None = None  # the ids that it knows, if it drops duplicates
        self.observer: QueueObserver | None = None  # of a guest that follows all messages
        self.selector = terms.selector  # only messages that match it are kept (`filtered.py`)
        self.slow_consumers: ConsumerWatch | None = None  # the watch over them, once it has been asked for
        self.demand: Demand | None = None  # told after each dispatch; work queues only
        self.watchers: dict[Watcher, None] | None = None  # told of the queue's deletion

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} ready={self.ready} unsettled={self.unsettled}>"

    # The operations, which depend on the kind.

    @abstractmethod
    def apply(self, limits: QueueLimits) -> None:
        """Obey these limits (arguments and policies merged) from now on."""

    @abstractmethod
    def dispatch(self) -> None:
        """Deliver waiting messages to the consumers that can take them. Called when the broker settles."""

    @abstractmethod
    def take_one(self, settled: bool) -> Delivery | None:
        """Fetch the next message without a consumer; None if there is none.

        `settled`: no answer is expected. Raises NotAtHand if the message is on its way here, and Unsupported if this
        kind of queue can only be consumed from.
        """

    def acquire(self, position: int) -> Delivery | None:
        """Deliver the message at a position that a browser was shown, to be answered. None if it is not waiting."""
        return None

    @abstractmethod
    def release(
        self, delivery: Delivery, failed: bool = True, redelivered: bool = True, until: float = BY_BACKOFF
    ) -> None:
        """Let a delivery that the consumer gave back wait again; `failed`: it counts towards the delivery limit.

        `redelivered`: mark it as redelivered for the next consumer; False leaves the mark as it was, and has the
        message wait for no time. `until`: when it is ready again, in monotonic seconds; by default at once, unless
        the queue has a back-off for such messages.
        """

    def hand_back(self, delivery: Delivery) -> None:
        """Release a delivery that its consumer returned of its own will (basic.nack).

        It counts as failed, but for the back-off as returned, as RabbitMQ's documentation of delayed retry says.
        """
        self.release(delivery)

    def avoid(self, delivery: Delivery, consumer: Consumer) -> None:
        """Never give a delivery to this attached consumer again. Called before its `release`."""

    def unsend(self, delivery: Delivery, settled: bool) -> None:
        """Let a delivery wait again that its consumer could not send; `settled`: it was to have no answer."""
        if not settled:
            self.release(delivery, failed=False, redelivered=False)

    @abstractmethod
    def reject(self, delivery: Delivery) -> None:
        """Dead-letter or drop a delivery that the consumer rejected. It is not redelivered."""

    @abstractmethod
    def waiting(self) -> Iterable[Delivery]:
        """Return the waiting messages in the order of their delivery. They stay where they are."""

    @abstractmethod
    def purge(self) -> int:
        """Drop all waiting messages, not those with consumers (S074); return how many. Streams raise Unsupported."""

    @abstractmethod
    def add_consumer(self, consumer: Consumer) -> None:
        """Attach a consumer, which may have a selector, or browse. Its first messages come with the next settle.

        Raises AccessRefused if another consumer is exclusive (S099), Unsupported, or PreconditionFailed for arguments.
        """

    @abstractmethod
    def remove_consumer(self, consumer: Consumer) -> None:
        """Detach a consumer. Deliveries that it has not answered stay with it."""

    def timed_out(self, consumer: Consumer) -> None:
        """Called before the `release` of deliveries that a consumer, which may have left, has not answered in time."""
        consumer.late_at = self.settling.now

    @abstractmethod
    def offer(self, consumer: Consumer) -> None:
        """Serve a consumer that can take messages (again). Called by `Consumer.wake`."""

    @abstractmethod
    def bury_all(self, reason: str = REJECTED) -> None:
        """Dead-letter all waiting messages, when a queue is deleted whose profile or alternate exchange asks for it."""

    def taken_up(self) -> None:
        """Called after a consumer was attached or the queue got an owner."""

    def left_alone(self) -> None:
        """Called after a consumer or the owner left: an auto-delete queue without any is deleted, sooner or later."""

    # What is the same for all kinds.

    def deduplicate(self, known: Duplicates | None) -> None:
        """Drop duplicates by the ids that `known` knows from now on, or drop none."""
        self.deduplication = known
        _tell_observers(self)

    def observe(self, observer: QueueObserver | None) -> None:
        """Tell this observer, or none, of messages that come and go from now on."""
        self.observer = observer
        _tell_observers(self)

    @property
    def later(self) -> ScheduledMessages:
        """Return the messages that wait for a time before they are ready."""
        return NOTHING_SCHEDULED

    @property
    def delayed(self) -> int:
        """Return how many messages wait for a time."""
        return len(self.later)

    @property
    def repeated(self) -> int:
        """Return how many duplicates it has dropped."""
        return 0 if self.deduplication is None else self.deduplication.repeated

    def touch(self) -> None:
        """Have the queue dispatch in the next settle, because something changed."""
        if not self.touched and not self.deleted:
            self.touched = True
            self.settling.touched.append(self)

    def pause(self, paused: bool) -> None:
        """Deliver nothing to consumers, or go on where they were. `VirtualHost.pause_queue` remembers it."""
        self.paused = paused
        if self.slow_consumers is not None:
            self.slow_consumers.forget()
        self.touch()

    def seeks_for(self, consumer: Consumer) -> bool:
        """Return whether the queue is still looking for messages for an attached consumer, and will go on by itself."""
        return consumer.searching

    def alternates(self, consumer: Consumer) -> bool:
        """Return whether one at a time is active of this consumer and others."""
        return self.limits.single_active

    def serves(self, consumer: Consumer) -> bool:
        """Return whether an attached consumer gets messages, rather than waiting to be the single active one."""
        return True

    def available_to(self, consumer: Consumer) -> int:
        """Return how many messages wait for an attached consumer, before its selector is applied."""
        return self.ready

    @property
    def in_use(self) -> bool:
        """Return whether the queue has consumers, or messages that a guest has reserved."""
        return bool(self.consumers) or self.virtual_host.reserved(self) > 0

    def consumer_came(self, consumer: Consumer) -> None:
        """Announce an attached consumer as an event. Called once for each."""
        fields = consumer_fields(consumer, self.name)
        self.settling.events.happened("consumer.created", self.virtual_host.name, fields)
        if self.slow_consumers is not None:
            self.slow_consumers.watch()

    def consumer_left(self, consumer: Consumer) -> None:
        fields = consumer_fields(consumer, self.name)
        self.settling.events.happened("consumer.deleted", self.virtual_host.name, fields)
        if self.demand is not None:
            self.touch()
        if self.slow_consumers is not None:
            self.slow_consumers.slow.pop(consumer, None)

    def closed(self) -> None:
        """Cancel the consumers. Called when the virtual host has deleted the queue (S077, X040)."""
        self.deleted = True
        if self.slow_consumers is not None:
            self.slow_consumers.stop()
        self.settling.retired.add_queue(self)
        for consumer in list(self.consumers):
            consumer.attached = consumer.able = False
            self.consumer_left(consumer)
            consumer.cancelled()
        self.consumers.clear()
        if self.watchers is not None:
            watchers, self.watchers = self.watchers, None
            for watcher in watchers:
                watcher.queue_deleted()


def _tell_observers(queue: Queue) -> None:
    known = queue.deduplication
    queue.entering = joined(known, queue.observer)
    queue.present = joined(known if known is not None and known.of_present else None, queue.observer)


def locked(queue: Queue) -> Locked:
    """Return the error for a client that may not use an exclusive queue, or takes another one for exclusive (S066)."""
    return Locked(
        f"cannot obtain exclusive access to locked {queue.described}. "
        "It could be originally declared on another connection or the exclusive property value does not "
        "match that of the original declaration."
    )


def require_access(queue: Queue, client: Owner | None) -> None:
    """Raise Locked if a queue is exclusive and `client` does not own it (S066)."""
    if queue.owner is not None and queue.owner is not client:
        raise locked(queue)


def watch(queue: Queue, watcher: Watcher) -> None:
    """Tell `watcher` when a queue is deleted, unless `unwatch` comes first."""
    if queue.watchers is None:
        queue.watchers = {}
    queue.watchers[watcher] = None


def unwatch(queue: Queue, watcher: Watcher) -> None:
    if queue.watchers is not None:
        queue.watchers.pop(watcher, None)


def event_fields(queue: Queue) -> Table:
    """Return the fields of a queue in events."""
    return {
        "name": queue.name,
        "type": queue.type.value,
        "durable": queue.durable,
        "auto_delete": queue.auto_delete,
        "exclusive": queue.exclusive,
        "arguments": queue.arguments,
    }
