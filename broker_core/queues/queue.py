"""The contract of a queue, which every kind of queue implements: publishing, consuming, answering and deletion.

    WorkQueue    work_queue.py   each message goes to one consumer and is gone once it is answered
    StreamQueue  stream.py       a log that every consumer reads at its own pace; nothing is taken out

`factory.py` holds the table of kinds. Callers do not test the kind of a queue first: a kind that does not support an
operation raises `Unsupported`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar, Final, Protocol

from mypy_extensions import mypyc_attr

from leveret.catalogue import QUEUE
from leveret.clock import NEVER
from leveret.delivery import Consumer, Delivery, Unanswered, weight
from leveret.durability import Holder
from leveret.errors import Locked, Unsupported
from leveret.exchanges.exchange_type import Destination
from leveret.limits import QueueLimits, QueueType
from leveret.queues.observer import QueueObserver, joined
from leveret.queues.slow_consumers import SlowConsumers
from leveret.values import Table

if TYPE_CHECKING:
    from leveret.durability import Durability, Page, WaitingRow
    from leveret.exchanges.duplicates import Duplicates
    from leveret.message import Message
    from leveret.queues.contract import Owner, QueueHost
    from leveret.queues.scheduled import Scheduled

# Reasons of death, as every protocol shows them (X030).
REJECTED: Final = "rejected"
EXPIRED: Final = "expired"
MAXLEN: Final = "maxlen"
DELIVERY_LIMIT: Final = "delivery_limit"
DELETED: Final = "deleted"  # not shown as a death: a deleted queue's message for the alternate exchange

# When a message is ready again that a consumer gives back, besides a time in monotonic seconds.
ALL: Final = 1 << 62  # messages
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


@mypyc_attr(allow_interpreted_subclasses=True)
class Queue(Destination):
    """One queue. Its `VirtualHost` declares, binds and deletes it; the data path calls the methods here."""

    __slots__ = (
        "accepted",
        "arguments",
        "auto_delete",
        "bounded",
        "came_back",
        "consumers",
        "dead_letters",
        "declared_limits",
        "deduplication",
        "deleted",
        "delivered",
        "delivered_settled",
        "demand",
        "durable",
        "entering",
        "exclusive",
        "fetched",
        "fetched_none",
        "fetched_settled",
        "hidden",
        "journal",
        "limits",
        "name",
        "notes",
        "number",
        "observer",
        "owner",
        "paused",
        "present",
        "published",
        "ready",
        "ready_bytes",
        "redelivered",
        "refused",
        "settling",
        "slow_consumers",
        "touched",
        "type",
        "unsettled",
        "used_at",
        "virtual_host",
        "warned_cycle",
        "watchers",
    )
    is_exchange = False
    ranked: ClassVar[bool] = True  # messages may be ordered by priority
    has_entries: ClassVar[bool] = True  # each message has a number in the store; False: they are in a log

    def __init__(
        self,
        virtual_host: QueueHost,
        name: str,
        limits: QueueLimits,
        type_: QueueType = QueueType.CLASSIC,
        durable: bool = False,
        exclusive: bool = False,
        auto_delete: bool = False,
        owner: Owner | None = None,
        arguments: Table | None = None,
    ) -> None:
        """Create a queue that obeys `limits`. Every kind takes the same arguments."""
        # The attributes that every message needs come first, so that they are adjacent in memory.
        self.virtual_host = virtual_host
        self.settling = virtual_host.settling
        self.limits = limits  # arguments merged with policies
        self.journal: Durability | None = None  # set at the declaration, if the queue outlives the node
        self.number = 0  # its number in the store; 0: it is not stored
        self.ready = 0  # messages waiting
        self.ready_bytes = 0  # of their bodies
        self.unsettled = 0  # messages delivered and not answered
        self.touched = False  # on the broker's list for the next settle
        self.deleted = False
        self.paused = False  # consumers get nothing (`pause`)
        self.entering: QueueObserver | None = None  # told of messages that come in
        self.present: QueueObserver | None = None  # told of those that come back and leave
        self.came_back = False  # a message has come back, and may wait here to be redelivered
        self.bounded = False  # it has given messages to consumers with bounds on what they have not answered
        # Counts since it was declared, in messages.
        self.published = self.delivered = self.accepted = 0
        self.delivered_settled = 0  # of those delivered to consumers: without an answer expected
        # The following attributes are seldom read.
        self.refused = self.redelivered = 0
        self.fetched = self.fetched_settled = 0  # of those delivered: by fetching, without a consumer
        self.fetched_none = 0  # fetches that found nothing
        self.name = name
        self.type = type_
        self.durable = durable
        self.exclusive = exclusive
        self.auto_delete = auto_delete
        self.owner = owner  # the client that alone may use it, if exclusive
        self.arguments: Table = arguments or NONE
        self.declared_limits = limits  # of the arguments alone
        self.consumers: dict[Consumer, None] = {}  # in order of arrival; without browsers of a work queue
        self.notes: Table = NONE  # kept with it for its kind or a front-end (`VirtualHost.note`)
        self.dead_letters: DeadLetters | None = None  # created when the queue first holds one
        self.hidden = False  # not listed: it serves the broker's own purposes
        self.warned_cycle = False  # it has been logged that its dead letters come back
        self.used_at = self.settling.now
        self.deduplication: Duplicates | None = None  # the ids that it knows, if it drops duplicates
        self.observer: QueueObserver | None = None  # a recording
        self.slow_consumers: SlowConsumers | None = None  # the watch over them, once it has been asked for
        self.demand: Demand | None = None  # told after each dispatch; work queues only
        self.watchers: dict[Watcher, None] | None = None  # told of the queue's deletion

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} ready={self.ready} unsettled={self.unsettled}>"

    @property
    def described(self) -> str:
        """Return the queue's name as it stands in error texts."""
        return f"queue '{self.name}' in vhost '{self.virtual_host.name}'"

    @property
    def stored_as(self) -> tuple[str, ...]:
        return QUEUE, self.virtual_host.name, self.name

    def keep_in(self, journal: Durability, number: int) -> None:
        """Keep the queue and its messages in the store, under this number. Called before the queue is used."""
        self.journal, self.number = journal, number

    # The operations, which depend on the kind.

    @abstractmethod
    def apply(self, limits: QueueLimits) -> None:
        """Obey these limits (arguments and policies merged) from now on."""

    def restore(self, priority: int, pages: Sequence[Page]) -> None:
        """Take back what waited when the node ended, oldest first. Called once per priority, before anything else.

        Raises Unsupported if this kind of queue keeps no messages.
        """
        raise Unsupported(f"{self.described} keeps no messages")

    def restore_schedule(self, rows: Sequence[WaitingRow]) -> None:
        """Take back messages that waited for a time when the node ended. Called before anything else.

        Raises Unsupported if none can wait here.
        """
        raise Unsupported(f"{self.described} keeps no messages for later")

    def marked(self) -> Iterable[tuple[int, int]]:
        """Yield store number and mark of each message that waits for a time, or waits and was delivered before."""
        return ()

    @abstractmethod
    def push(self, message: Message) -> bool:
        """Take a message in. Return False if the queue is full and refuses it (S082)."""

    def takes_of(self, messages: list[Message]) -> int:
        """Return how many messages of a run, from its first on, `push_run` is sure to take now.

        A run is a list of messages from one exchange whose facts are alike.
        """
        return 0

    def push_run(self, messages: list[Message]) -> int:
        """Push the messages of a run, as many as `takes_of` says. Return how many were taken, perhaps none.

        The others are untouched: the next one has to be given to `push`, which may refuse it.
        """
        return 0

    def takes_runs(self, first: Message) -> bool:
        """Return whether `push_run` takes every message like the first, with any key, until the next settle."""
        return False

    def admit(self, message: Message) -> None:
        """Take in a message that was accepted before, however full the queue is now."""
        self.push(message)

    def take_back(self, delivery: Delivery) -> None:
        """Let a message wait again that was removed from the queue and from the store's record of it."""
        raise Unsupported(f"{self.described} does not take messages back")

    def head_size(self) -> int:
        """Return the bytes of the next message's body, 0 if that is not known without reading it."""
        return 0

    def has_room(self, messages: int, octets: int) -> bool:
        """Return whether so many more messages, with bodies of `octets` bytes in all, would be taken, none refused."""
        return True

    def would_take(self, message: Message) -> bool:
        """Return whether `push` would take this message now, without refusing it."""
        return True

    @abstractmethod
    def dispatch(self) -> None:
        """Deliver waiting messages to the consumers that can take them. Called when the broker settles."""

    @abstractmethod
    def can_deliver_now(self, message: Message) -> bool:
        """Return whether `message` would reach a consumer at once if it arrived now (S086)."""

    def asks_for_head(self) -> bool:
        """Return whether the next message has to come from another machine first, from which it is on its way then."""
        return False

    def asks_for_first(self, count: int = ALL) -> bool:
        """Return whether some of the first messages have to come from another machine first. They are brought then.

        `ALL` are those that wait for a time, and dead letters that are held, too. A caller asks again in a moment:
        once it is False nothing that looks at these messages, or takes them, waits for the network.
        """
        return False

    @abstractmethod
    def take_one(self, settled: bool) -> Delivery | None:
        """Fetch the next message without a consumer; None if there is none, or none without waiting (`asks_for_head`).

        `settled`: no answer is expected. Called only where `asks_for_head` is False. Raises Unsupported if this kind of
        queue can only be consumed from.
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

    @abstractmethod
    def offer(self, consumer: Consumer) -> None:
        """Serve a consumer that can take messages (again). Called by `Consumer.wake`."""

    @abstractmethod
    def bury_all(self, reason: str = REJECTED) -> None:
        """Dead-letter all waiting messages, when a queue is deleted whose profile or alternate exchange asks for it."""

    def let_go(self) -> None:
        """Forget the waiting messages without settling them. Called when the node has ended."""

    def taken_up(self) -> None:
        """Called after a consumer was attached or the queue got an owner."""

    def left_alone(self) -> None:
        """Called after a consumer or the owner left: an auto-delete queue without any is deleted, sooner or later."""

    # What is the same for all kinds.

    @property
    def unreadable(self) -> int:
        """Return how many of its messages cannot be read from the store, in which they stay."""
        return 0 if self.journal is None else self.journal.unreadable_of(self)

    def reread(self) -> int:
        """Have messages and dead letters that could not be read be read again, and return how many."""
        return 0

    @property
    def delayed(self) -> int:
        """Return how many messages wait for a time before they are ready."""
        return 0

    @property
    def delayed_bytes(self) -> int:
        """Return the bytes of the bodies of messages that wait for a time."""
        return 0

    @property
    def next_due(self) -> float:
        """Return when the first of them is due or expires, in monotonic seconds; NEVER if there is none."""
        return NEVER

    def first_due(self, count: int) -> list[Scheduled]:
        """Return up to `count` messages that wait for a time, those that are due first."""
        return []

    def drop_delayed(self, positions: Iterable[int] | None = None) -> int:
        """Drop messages that wait for a time, by their positions, or all; return how many there were."""
        return 0

    def delayed_positions(self) -> list[int]:
        """Return the positions of all messages that wait for a time, in no order."""
        return []

    def hasten(self, positions: Iterable[int]) -> int:
        """Make messages that wait for a time ready now, by their positions; return how many there were."""
        return 0

    def rank(self, priority: int) -> int:
        """Return the level at which messages of this priority wait; the highest level is served first."""
        return 0

    def is_local(self, message: Message) -> bool:
        """Return whether a message came over the connection of the queue's owner, or of its exclusive consumer."""
        if message.peer is None:
            return False
        sole = next(iter(self.consumers), None)
        return (self.owner is not None and self.owner.peer is message.peer) or (
            sole is not None and sole.exclusive and sole.peer is message.peer
        )

    @property
    def repeated(self) -> int:
        """Return how many duplicates it has dropped."""
        return 0 if self.deduplication is None else self.deduplication.repeated

    def deduplicate(self, known: Duplicates | None) -> None:
        """Drop duplicates by the ids that `known` knows from now on, or drop none."""
        self.deduplication = known
        self._tell_observers()

    def observe(self, observer: QueueObserver | None) -> None:
        """Tell this observer, or none, of messages that come and go from now on."""
        self.observer = observer
        self._tell_observers()

    def _tell_observers(self) -> None:
        known = self.deduplication
        self.entering = joined(known, self.observer)
        self.present = joined(known if known is not None and known.of_present else None, self.observer)

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

    def accept(self, delivery: Delivery) -> None:
        """Settle a delivery that the consumer has processed."""
        if self.bounded:
            self.answered((delivery,))
        self.unsettled -= 1
        self.accepted += 1
        if delivery.stored and self.journal is not None:
            self.journal.settled.append(delivery)
        if self.present is not None:
            self.present.left(delivery)

    def accept_run(self, deliveries: list[Delivery]) -> None:
        """Accept several deliveries, all of this queue."""
        if self.bounded:
            self.answered(deliveries)
        self.unsettled -= len(deliveries)
        self.accepted += len(deliveries)
        self.forget(deliveries)

    def answered(self, deliveries: Iterable[Delivery]) -> None:
        """Subtract settled deliveries from what their consumers have not answered, where that is bounded."""
        octets: dict[Unanswered, int] = {}
        for delivery in deliveries:
            if delivery.consumer is not None:
                for bound in delivery.consumer.bounds:
                    octets[bound] = octets.get(bound, 0) + weight(delivery.message)
        for bound, answered in octets.items():
            bound.answered(answered)

    def accepted_elsewhere(self, count: int) -> None:
        """Count unsettled messages as accepted that the store records apart from the queue."""
        self.unsettled -= count
        self.accepted += count

    def lost(self, count: int) -> None:
        """Subtract unsettled messages that are neither accepted nor come back."""
        self.unsettled -= count

    def count_refused(self) -> None:
        """Count a message that was refused."""
        self.refused += 1

    def count_fetched_none(self) -> None:
        """Count a fetch that found nothing."""
        self.fetched_none += 1

    def seeks_for(self, consumer: Consumer) -> bool:
        """Return whether the queue is still looking for messages for an attached consumer, and will go on by itself."""
        return consumer.searching

    def serves(self, consumer: Consumer) -> bool:
        """Return whether an attached consumer gets messages, rather than waiting to be the single active one."""
        return True

    def available_to(self, consumer: Consumer) -> int:
        """Return how many messages wait for an attached consumer, before its selector is applied."""
        return self.ready

    def revise(self, delivery: Delivery, message: Message) -> None:
        """Replace the message of a delivery whose properties the consumer changed before it releases or rejects it."""
        delivery.message = message
        if delivery.stored and self.journal is not None:
            self.journal.revised(delivery)

    def renew(self, delivery: Delivery) -> None:
        """Begin the time anew in which a delivery has to be answered."""
        delivery.given_at = self.settling.now

    def forget(self, deliveries: Iterable[Delivery]) -> None:
        """Settle these deliveries in the store, which need not keep them."""
        if self.present is not None:
            deliveries = list(deliveries)
            for delivery in deliveries:
                self.present.left(delivery)
        if self.journal is not None:
            self.journal.settled += [delivery for delivery in deliveries if delivery.stored]

    def give(self, consumer: Consumer, deliveries: list[Delivery]) -> None:
        """Deliver these to a consumer, which has to answer them unless it is `settled`."""
        count = len(deliveries)
        self.delivered += count
        consumer.credit -= count
        consumer.window.credit -= count
        consumer.given += count
        if self.came_back:
            self._count_redelivered(deliveries)
        if consumer.settled:
            self.accepted += count
            self.delivered_settled += count
            self.forget(deliveries)
        else:
            now = self.settling.now
            for delivery in deliveries:
                delivery.consumer = consumer
                delivery.given_at = now
            self.unsettled += count
            if consumer.bounds:
                self.bounded = True
                octets = sum([weight(delivery.message) for delivery in deliveries])
                for bound in consumer.bounds:
                    bound.octets += octets
        consumer.deliver(deliveries)
        if (tracer := self.virtual_host.tracer) is not None:
            tracer.delivered(self, consumer.facts(), deliveries)

    def hand_out(self, delivery: Delivery, settled: bool) -> Delivery:
        """Count a fetched message as delivered, to be answered unless it is `settled`, and return it."""
        self.delivered += 1
        self.fetched += 1
        if self.came_back:
            self._count_redelivered((delivery,))
        if settled:
            self.accepted += 1
            self.fetched_settled += 1
            self.forget((delivery,))
        else:
            delivery.given_at = self.settling.now
            self.unsettled += 1
        if (tracer := self.virtual_host.tracer) is not None:
            tracer.delivered(self, tracer.asking(), (delivery,))
        self.touch()
        return delivery

    def _count_redelivered(self, deliveries: Iterable[Delivery]) -> None:
        self.redelivered += sum(delivery.redelivered for delivery in deliveries)
        self.came_back = self.ready > 0

    def show(self, consumer: Consumer, deliveries: list[Delivery]) -> None:
        """Show these to a consumer that browses, and take them off its credit."""
        count = len(deliveries)
        consumer.credit -= count
        consumer.window.credit -= count
        consumer.deliver(deliveries)

    @property
    def active_consumers(self) -> int:
        """Return how many consumers are not suspended by their clients (S071)."""
        return sum(not consumer.suspended for consumer in self.consumers)

    @property
    def in_use(self) -> bool:
        """Return whether the queue has consumers, or messages reserved by a feature (leases)."""
        return bool(self.consumers) or self.virtual_host.reserved(self) > 0

    def require_access(self, client: Owner | None) -> None:
        """Raise Locked if the queue is exclusive and `client` does not own it (S066)."""
        if self.owner is not None and self.owner is not client:
            raise locked(self)

    def require_shared_credit(self) -> None:
        """Raise Unsupported unless consumers may share their credit here (global qos): classic queues only (X027)."""
        if self.type is not QueueType.CLASSIC:
            raise Unsupported(f"{self.described} does not support global qos")

    def told(self) -> Table:
        """Return the queue's fields in events."""
        return {
            "name": self.name,
            "type": self.type.value,
            "durable": self.durable,
            "auto_delete": self.auto_delete,
            "exclusive": self.exclusive,
            "arguments": self.arguments,
        }

    def consumer_came(self, consumer: Consumer) -> None:
        """Announce an attached consumer as an event. Called once for each."""
        self.tell_of("consumer.created", consumer)
        if self.slow_consumers is not None:
            self.slow_consumers.watch()

    def consumer_left(self, consumer: Consumer) -> None:
        self.tell_of("consumer.deleted", consumer)
        if self.demand is not None:
            self.touch()
        if self.slow_consumers is not None:
            self.slow_consumers.slow.pop(consumer, None)

    def tell_of(self, event: str, consumer: Consumer, more: Table = NONE) -> None:
        """Announce an event about a consumer, with its facts and some more."""
        facts = consumer.facts()
        self.settling.events.happened(
            event,
            self.virtual_host.name,
            {
                "consumer_tag": facts.tag,
                "connection_name": facts.connection,
                "queue": self.name,
                "ack_required": not consumer.settled,
                "exclusive": consumer.exclusive,
                "prefetch_count": facts.prefetch,
                "arguments": consumer.arguments,
                **more,
            },
        )

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

    def is_slow(self, consumer: Consumer) -> bool:
        """Return whether the last check has found that a consumer takes too little."""
        return self.slow_consumers is not None and consumer in self.slow_consumers.slow

    def watch_consumers(self) -> None:
        """Watch for slow consumers as the limits say. Called after `apply`."""
        if self.slow_consumers is None and self.limits.slow_threshold is not None:
            self.slow_consumers = SlowConsumers(self)
        if self.slow_consumers is not None:
            self.slow_consumers.obey()

    def watch(self, watcher: Watcher) -> None:
        """Tell `watcher` when the queue is deleted, unless `unwatch` comes first."""
        if self.watchers is None:
            self.watchers = {}
        self.watchers[watcher] = None

    def unwatch(self, watcher: Watcher) -> None:
        if self.watchers is not None:
            self.watchers.pop(watcher, None)


def locked(queue: Queue) -> Locked:
    """Return the error for a client that may not use an exclusive queue, or takes another one for exclusive (S066)."""
    return Locked(
        f"cannot obtain exclusive access to locked {queue.described}. "
        "It could be originally declared on another connection or the exclusive property value does not "
        "match that of the original declaration."
    )
