"""What every kind of queue is, for those who declare, route to, consume from and delete one.

    WorkQueue    work_queue.py   each message goes to one consumer and is gone once it is answered
    StreamQueue  stream.py       a log that every consumer reads at its own pace; nothing is taken out

`made.py` holds the table of kinds. Nobody asks a queue for its kind before asking something of it: a kind that
does not do what it is asked for raises `Unsupported`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar, Final

from mypy_extensions import mypyc_attr

from broker_core.delivery import Consumer, Delivery
from broker_core.errors import Locked, Unsupported
from broker_core.exchanges.exchange import Destination
from broker_core.limits import QueueLimits, QueueType
from broker_core.values import Table

if TYPE_CHECKING:
    from broker_core.client import Client
    from broker_core.durability.contract import Durability
    from broker_core.message import Message
    from broker_core.store.contract import Page
    from broker_core.virtual_host import VirtualHost

# Reasons of death, as every protocol shows them (X030).
REJECTED: Final = "rejected"
EXPIRED: Final = "expired"
MAXLEN: Final = "maxlen"
DELIVERY_LIMIT: Final = "delivery_limit"
DELETED: Final = (
    "deleted"  # no death: it waited when the queue was deleted, and the alternate exchange gets it
)

NONE: Final[Table] = {}  # one for all that have none; never changed


@mypyc_attr(allow_interpreted_subclasses=True)
class Queue(Destination):
    """One queue. Declared, bound and deleted by its `VirtualHost`; the data path runs through the verbs here."""

    __slots__ = (
        "accepted",
        "arguments",
        "auto_delete",
        "came_back",
        "consumers",
        "declared_limits",
        "deleted",
        "delivered",
        "delivered_settled",
        "durable",
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
        "owner",
        "published",
        "ready",
        "ready_bytes",
        "redelivered",
        "refused",
        "touched",
        "type",
        "unsettled",
        "used_at",
        "virtual_host",
        "warned_cycle",
    )
    is_exchange = False
    ranked: ClassVar[bool] = True  # its messages may go by priority
    has_entries: ClassVar[bool] = (
        True  # the store knows each of its messages by a number; else it knows those of a log
    )

    def __init__(
        self,
        virtual_host: VirtualHost,
        name: str,
        limits: QueueLimits,
        type_: QueueType = QueueType.CLASSIC,
        durable: bool = False,
        exclusive: bool = False,
        auto_delete: bool = False,
        owner: Client | None = None,
        arguments: Table | None = None,
    ) -> None:
        """Every kind is made with the same arguments, and obeys `limits` before it is used."""
        # First what every message needs: it stands together in memory.
        self.virtual_host = virtual_host
        self.limits = limits  # with policies
        self.journal: Durability | None = None  # of what outlives the node; set when it is declared
        self.number = 0  # in the store
        self.ready = 0  # messages waiting
        self.ready_bytes = 0  # octets of their bodies
        self.unsettled = 0  # messages given and not answered
        self.touched = False  # on the broker's list for the next settle
        self.deleted = False
        self.came_back = False  # something has, and may wait here to be redelivered
        # Counts since it was declared, in messages.
        self.published = self.delivered = self.accepted = 0
        self.delivered_settled = 0  # of those delivered to consumers: no answer is expected
        # What follows is seldom looked at.
        self.refused = self.redelivered = 0
        self.fetched = self.fetched_settled = 0  # of those delivered: by somebody who is no consumer
        self.fetched_none = 0  # somebody wanted to, and nothing was there
        self.name = name
        self.type = type_
        self.durable = durable
        self.exclusive = exclusive
        self.auto_delete = auto_delete
        self.owner = owner  # the client that alone may use it, if exclusive
        self.arguments: Table = arguments or NONE
        self.declared_limits = limits  # from the arguments alone
        self.consumers: dict[Consumer, None] = {}  # as they arrived; without those who browse a work queue
        self.notes: Table = NONE  # what its kind or a front-end knows of it (`VirtualHost.note`)
        self.hidden = False  # not listed: serves the broker's own purposes
        self.warned_cycle = False  # that its dead letters come back has been logged
        self.used_at = virtual_host.broker.now

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r} ready={self.ready} unsettled={self.unsettled}>"

    @property
    def described(self) -> str:
        """The queue as error texts name it."""
        return f"queue '{self.name}' in vhost '{self.virtual_host.name}'"

    def keep_in(self, journal: Durability, number: int) -> None:
        """It outlives the node, and what is in it, known to the store by this number. Said before it is used."""
        self.journal, self.number = journal, number

    # What it is asked for.

    @abstractmethod
    def apply(self, limits: QueueLimits) -> None:
        """Obey these limits from now on (arguments and policies merged)."""

    def restore(self, priority: int, pages: Sequence[Page]) -> None:
        """These waited here when the node ended, oldest first. Called once for each priority, before anything else.

        Raises Unsupported if this kind of queue keeps nothing.
        """
        raise Unsupported(f"{self.described} keeps no messages")

    def marked(self) -> Iterable[tuple[int, int]]:
        """Numbers in the store of what was delivered before, and how often that failed."""
        return ()

    @abstractmethod
    def push(self, message: Message) -> bool:
        """Take a message in. False: the queue is full and refuses (S082)."""

    def takes_of(self, messages: list[Message]) -> int:
        """How many of a run of messages, from its first on, `push_run` would take now: as many as are taken for sure.

        A run: messages with the same key and facts, from the same exchange, that differ in their bodies only.
        """
        return 0

    def push_run(self, messages: list[Message]) -> int:
        """As `push` of each in a run, as far as nothing stands in the way: returns how many were taken, perhaps none.

        The others have not been touched: the next is for `push`, which knows what to do with it.
        """
        return 0

    def admit(self, message: Message) -> None:
        """Take a message in that there once was room for, however full it is now."""
        self.push(message)

    def take_back(self, delivery: Delivery) -> None:
        """It was taken out of the queue, and out of what the store has of it, and is to wait here again."""
        raise Unsupported(f"{self.described} gives nothing away")

    def has_room(self, messages: int, octets: int) -> bool:
        """Whether so many messages more, with bodies of so many octets, would wait here without one being refused."""
        return True

    @abstractmethod
    def dispatch(self) -> None:
        """Give consumers what there is for them and what they can take. Called when the broker settles."""

    @abstractmethod
    def can_deliver_now(self, message: Message) -> bool:
        """Whether `message` would reach a consumer at once if it arrived now (S086)."""

    @abstractmethod
    def take_one(self, settled: bool) -> Delivery | None:
        """Fetch the next message without being a consumer; `settled`: it is not expected to be answered.

        Raises Unsupported.
        """

    def acquire(self, position: int) -> Delivery | None:
        """What somebody who browses was shown there becomes his, to be answered. None: it waits no more."""
        return None

    @abstractmethod
    def release(self, delivery: Delivery, failed: bool = True, redelivered: bool = True) -> None:
        """The consumer gives it back; `failed`: this counts towards the delivery limit.

        Who gets it next is told that it was `redelivered`; False: only if it was before.
        """

    @abstractmethod
    def reject(self, delivery: Delivery) -> None:
        """The consumer does not want it, and nobody else should get it."""

    @abstractmethod
    def waiting(self) -> Iterable[Delivery]:
        """The messages in the order in which they would be delivered. For looking only."""

    @abstractmethod
    def purge(self) -> int:
        """Drop every waiting message; those with consumers stay (S074). Returns how many went. Raises Unsupported."""

    @abstractmethod
    def add_consumer(self, consumer: Consumer) -> None:
        """Attach a consumer, which may have a selector, or browse. What waits and suits it comes in the next settle.

        Raises AccessRefused (S099), Unsupported, or PreconditionFailed for its arguments.
        """

    @abstractmethod
    def remove_consumer(self, consumer: Consumer) -> None:
        """Detach a consumer. What it has not answered stays with it."""

    @abstractmethod
    def offer(self, consumer: Consumer) -> None:
        """A consumer can take messages (again). Called by `Consumer.wake`."""

    @abstractmethod
    def bury_all(self, reason: str = REJECTED) -> None:
        """Let every waiting message die, where a profile or an alternate exchange wants that for a queue's deletion."""

    def let_go(self) -> None:
        """Forget what waits, as it is: the node has ended."""

    def taken_up(self) -> None:
        """Somebody consumes from it, or owns it."""

    def left_alone(self) -> None:
        """Nobody consumes from it, or nobody owns it, any more: an auto-delete queue goes, sooner or later."""

    # What is the same for all.

    def rank(self, priority: int) -> int:
        """In which line a message of this priority stands; those of the highest one come first."""
        return 0

    def is_local(self, message: Message) -> bool:
        """Whether it came over the connection of the queue's owner, or of its only, exclusive consumer."""
        if message.peer is None:
            return False
        sole = next(iter(self.consumers), None)
        return (self.owner is not None and self.owner.peer is message.peer) or (
            sole is not None and sole.exclusive and sole.peer is message.peer
        )

    def touch(self) -> None:
        """Something changed: look at this queue in the next settle."""
        if not self.touched and not self.deleted:
            self.touched = True
            self.virtual_host.broker.touched.append(self)

    def accept(self, delivery: Delivery) -> None:
        """The consumer has dealt with it."""
        self.unsettled -= 1
        self.accepted += 1
        if delivery.stored and self.journal is not None:
            self.journal.settled.append(delivery)

    def accept_run(self, deliveries: list[Delivery]) -> None:
        """As `accept` of each; all of them are this queue's."""
        self.unsettled -= len(deliveries)
        self.accepted += len(deliveries)
        self.forget(deliveries)

    def accepted_elsewhere(self, count: int) -> None:
        """Count so many as accepted that were unsettled, and that the store keeps apart from the queue."""
        self.unsettled -= count
        self.accepted += count

    def lost(self, count: int) -> None:
        """Count off so many that were unsettled, and that neither are accepted nor come back."""
        self.unsettled -= count

    def count_refused(self) -> None:
        """Count a message that was not taken in."""
        self.refused += 1

    def count_fetched_none(self) -> None:
        """Count a fetch that found nothing."""
        self.fetched_none += 1

    def seeks_for(self, consumer: Consumer) -> bool:
        """Whether there may be more for an attached consumer than it was given: the queue goes on by itself."""
        return consumer.searching

    def available_to(self, consumer: Consumer) -> int:
        """How many messages wait for an attached consumer, whatever its selector thinks of them."""
        return self.ready

    def revise(self, delivery: Delivery, message: Message) -> None:
        """The consumer has added something to the message's properties, and releases or rejects it next."""
        delivery.message = message
        if delivery.stored and self.journal is not None:
            self.journal.revised(delivery)

    def forget(self, deliveries: Iterable[Delivery]) -> None:
        """These are settled: the store need not keep them."""
        if self.journal is not None:
            self.journal.settled += [delivery for delivery in deliveries if delivery.stored]

    def give(self, consumer: Consumer, deliveries: list[Delivery]) -> None:
        """Let a consumer have these, to be answered unless it is settled."""
        count = len(deliveries)
        self.delivered += count
        consumer.credit -= count
        consumer.window.credit -= count
        if self.came_back:
            self._count_redelivered(deliveries)
        if consumer.settled:
            self.accepted += count
            self.delivered_settled += count
            self.forget(deliveries)
        else:
            now = self.virtual_host.broker.now
            for delivery in deliveries:
                delivery.consumer = consumer
                delivery.given_at = now
            self.unsettled += count
        consumer.deliver(deliveries)
        if (tracer := self.virtual_host.tracer) is not None:
            tracer.delivered(self, consumer.facts(), deliveries)

    def hand_out(self, delivery: Delivery, settled: bool) -> Delivery:
        """Let somebody have it who is no consumer, to be answered unless it is `settled`."""
        self.delivered += 1
        self.fetched += 1
        if self.came_back:
            self._count_redelivered((delivery,))
        if settled:
            self.accepted += 1
            self.fetched_settled += 1
            self.forget((delivery,))
        else:
            delivery.given_at = self.virtual_host.broker.now
            self.unsettled += 1
        if (tracer := self.virtual_host.tracer) is not None:
            tracer.delivered(self, tracer.asking(), (delivery,))
        self.touch()
        return delivery

    def _count_redelivered(self, deliveries: Iterable[Delivery]) -> None:
        self.redelivered += sum(delivery.redelivered for delivery in deliveries)
        self.came_back = self.ready > 0

    def show(self, consumer: Consumer, deliveries: list[Delivery]) -> None:
        """Let a consumer that browses see these, for its credit."""
        count = len(deliveries)
        consumer.credit -= count
        consumer.window.credit -= count
        consumer.deliver(deliveries)

    @property
    def active_consumers(self) -> int:
        """How many consumers have not been suspended by their clients (S071)."""
        return sum(not consumer.suspended for consumer in self.consumers)

    @property
    def in_use(self) -> bool:
        """Whether it has consumers, or some of its messages are reserved for somebody (`lease.py`)."""
        leases = self.virtual_host.leases.values()
        return bool(self.consumers) or any(lease.messages for lease in leases if lease.queue is self)

    def require_access(self, client: Client | None) -> None:
        """Exclusive queues are for their owner alone (S066). Raises Locked."""
        if self.owner is not None and self.owner is not client:
            raise Locked(
                f"cannot obtain exclusive access to locked {self.described}. "
                "It could be originally declared on another connection or the exclusive property value does not "
                "match that of the original declaration."
            )

    def require_shared_credit(self) -> None:
        """Consumers want to share their credit (global qos); only classic queues know that (X027).

        Raises Unsupported.
        """
        if self.type is not QueueType.CLASSIC:
            raise Unsupported(f"{self.described} does not support global qos")

    def told(self) -> Table:
        """The queue as events name it."""
        return {
            "name": self.name,
            "type": self.type.value,
            "durable": self.durable,
            "auto_delete": self.auto_delete,
            "exclusive": self.exclusive,
            "arguments": self.arguments,
        }

    def consumer_came(self, consumer: Consumer) -> None:
        """Events know of it. Called once for each that was attached."""
        self._tell_of("consumer.created", consumer)

    def consumer_left(self, consumer: Consumer) -> None:
        self._tell_of("consumer.deleted", consumer)

    def _tell_of(self, event: str, consumer: Consumer) -> None:
        facts = consumer.facts()
        self.virtual_host.broker.events.happened(
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
            },
        )

    def closed(self) -> None:
        """The virtual host has deleted it: consumers are told (S077, X040)."""
        self.deleted = True
        self.virtual_host.broker.bygone.add_queue(self)
        for consumer in list(self.consumers):
            consumer.attached = consumer.able = False
            self.consumer_left(consumer)
            consumer.cancelled()
        self.consumers.clear()
