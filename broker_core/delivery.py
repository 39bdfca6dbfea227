"""Deliveries and consumers: how queues and consumers see each other.

A `Delivery` is a message's place in one queue, from arrival to settlement: waiting (no consumer), unsettled (given to
a consumer that has not answered), settled (gone). A `Consumer` is the queue's view of a client that takes messages;
each protocol has its own subclass. All kinds of credit - prefetch, link credit, message credit - become one number on
the consumer and one on the window that consumers of a channel may share.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, Protocol

from mypy_extensions import mypyc_attr

from leveret.clock import NEVER
from leveret.durability import Entry
from leveret.observability.connection_stats import ConsumerFacts
from leveret.values import Table

if TYPE_CHECKING:
    from leveret.durability import Page, Stored
    from leveret.message import Message
    from leveret.queues.queue import Queue
    from leveret.selectors.parser import Selector

UNLIMITED: Final = 1 << 62  # credit that does not run out
FIRST: Final = 1 << 62  # the priority of browsers: they should see a message before another takes it


class Held(Protocol):
    """A table of what a client has to answer, such as a dict."""

    def __len__(self) -> int: ...

    def values(self) -> Iterable[object]:
        """Return the entries in the order in which the client got them; `reversed` can walk over them."""


NOTHING_UNANSWERED: Final[Held] = dict[int, object]()


@mypyc_attr(allow_interpreted_subclasses=True, acyclic=True)
class Delivery(Entry):
    """A delivery is a message's place in one queue. The queue alone changes it.

    The garbage collector does not track the compiled class: waiting deliveries are dropped when their queue is deleted
    or the node ends (`Broker.let_go`).
    """

    __slots__ = ("consumer", "given_at", "queue", "redelivered", "seen_by")

    def __init__(self, message: Message, queue: Queue, position: int, expires_at: float) -> None:
        self.message = message  # what `Entry.__init__` does, without a call
        self.position = position
        self.expires_at = expires_at
        self.attempts = self.stored = 0
        self.queue = queue
        self.redelivered = False
        self.consumer: Consumer | None = None  # the one that has it, if it is unsettled and was not fetched
        self.given_at = 0.0  # monotonic seconds
        self.seen_by: tuple[object, ...] = ()  # marks of consumers that browsed it, or must not have it again

    def holder(self) -> Queue:
        return self.queue

    @property
    def counted_attempts(self) -> int:
        """The number of failed deliveries that consumers are told: 0 if the queue has no delivery limit or back-off."""
        limits = self.queue.limits
        return 0 if limits.delivery_limit is None and limits.retry_min_ms is None else self.attempts

    def __lt__(self, other: Delivery) -> bool:
        return self.position < other.position

    def __hash__(self) -> int:
        return id(self) >> 4  # by identity; a compiled class that can be ordered has no hash by default

    @property
    def allowed_s(self) -> float | None:
        """The seconds in which it has to be answered: its consumer's, else its queue's; None if there is no limit."""
        consumer = self.consumer
        if consumer is not None and consumer.timeout_s is not None:
            return consumer.timeout_s or None
        timeout_ms = self.queue.limits.consumer_timeout_ms
        return None if timeout_ms is None else timeout_ms / 1000

    # The outcomes, for callers that keep a delivery and settle it later; the queue decides what they mean.

    def accept(self) -> None:
        self.queue.accept(self)

    def release(self) -> None:
        self.queue.release(self)

    def hand_back(self) -> None:
        self.queue.hand_back(self)

    def reject(self) -> None:
        self.queue.reject(self)


def copy_of(delivery: Delivery) -> Delivery:
    """Return a delivery of the same message, without a consumer, that is not in the store."""
    found = Delivery(delivery.message, delivery.queue, delivery.position, NEVER)
    found.redelivered, found.attempts = delivery.redelivered, delivery.attempts
    return found


def read_back(queue: Queue, page: Page, stored: list[Stored]) -> list[Delivery]:
    """Return deliveries for the messages of one page that were read back from the store."""
    deliveries: list[Delivery] = []
    for number, position, expires_at, message in stored:
        delivery = Delivery(message, queue, position, expires_at)
        delivery.stored = number
        if page.redelivered or number in page.marks:
            delivery.redelivered = True
            delivery.attempts = page.marks.get(number, 0)
        deliveries.append(delivery)
    return deliveries


@mypyc_attr(allow_interpreted_subclasses=True)
class Window:
    """Credit shared by several consumers (a channel's prefetch across its consumers). Each consumer is in one window.

    When credit comes back, the protocol wakes all of them, the one served longest ago first, so that none starves.
    """

    __slots__ = ("credit",)

    def __init__(self, credit: int = UNLIMITED) -> None:
        self.credit = credit


class Unanswered:
    """The bytes of deliveries that consumers have not answered yet, and the most that there may be of them.

    The limits of the node make one for a consumer, and one for all consumers of a connection. A queue counts what it
    gives to these consumers and what they settle; a consumer asks before it takes more (`Consumer.may_take_more`).
    """

    __slots__ = ("_turned_away", "octets", "octets_max")

    def __init__(self, octets_max: int) -> None:
        self.octets_max = octets_max
        self.octets = 0
        self._turned_away: dict[Consumer, None] = {}  # they are woken when bytes have been answered

    def admits(self, consumer: Consumer, octets: int) -> bool:
        """Return whether a message of so many bytes may be sent. One always may, if all others are answered.

        If not, the consumer is woken after the next answer.
        """
        if not self.octets or self.octets + octets <= self.octets_max:
            return True
        self._turned_away[consumer] = None
        return False

    def answered(self, octets: int) -> None:
        """Subtract the bytes of deliveries that were settled, and wake the consumers that these were in the way of."""
        self.octets -= octets
        if self._turned_away:
            waiting, self._turned_away = self._turned_away, {}
            for consumer in waiting:
                consumer.wake()


def weight(message: Message) -> int:
    """Return the bytes that a message counts where deliveries are limited by bytes; an empty one is a message, too."""
    return message.size or 1


@mypyc_attr(allow_interpreted_subclasses=True)
class Consumer(ABC):
    """A consumer takes messages from one queue, or reads them there.

    The queue takes `credit` off consumer and window before `deliver`, whether or not the consumer answers; the protocol
    puts it back as its own rules say and then calls `wake`. A consumer that needs no credit has UNLIMITED.

        settled     it does not answer: the queue accepts messages as it delivers them
        selector    it wants only messages that match; the others stay for other consumers. None: it wants all
        browses     it reads without taking: every waiting message once, in order, and later those that arrive or come
                    back. It and other consumers do not affect each other: neither exclusivity nor a single active
                    consumer concerns it. The deliveries it is shown remain the queue's: never accept, release or
                    reject them, and keep only their positions, with which they can be taken (`Queue.acquire`).
                    `settled`, `priority` and `exclusive` have no meaning
        searching   set by the queue while its search through a long backlog for this consumer is not finished: it
                    searches in portions, and goes on by itself

    All of these but the last are fixed when the consumer is attached (`Queue.add_consumer`).

    To drain: give credit, `wake`, and look again when the broker has settled (`Publisher.taken`). A consumer that then
    has credit and room left has got all there is for it now, unless the queue `seeks_for` more: then look again later.
    """

    __slots__ = (
        "able",
        "arguments",
        "attached",
        "before",
        "behind",
        "bounds",
        "browses",
        "credit",
        "exclusive",
        "given",
        "late_at",
        "peer",
        "priority",
        "queue",
        "searching",
        "selector",
        "settled",
        "timeout_s",
        "warnings",
        "window",
    )

    def __init__(
        self,
        queue: Queue,
        settled: bool,
        credit: int,
        window: Window,
        priority: int = 0,
        exclusive: bool = False,
        arguments: Table | None = None,
        selector: Selector | None = None,
        browses: bool = False,
    ) -> None:
        self.queue = queue
        self.settled = settled
        self.credit = credit
        self.window = window
        self.priority = FIRST if browses else priority
        self.exclusive = exclusive
        self.arguments: Table = arguments or {}
        self.selector = selector
        self.browses = browses
        self.searching = False
        self.given = 0  # messages that it was given, as a consumer
        # on the bytes that it may have unanswered, set by `Client.consume`
        self.bounds: list[Unanswered] = []
        self.late_at = 0.0  # when its queue heard last that it had not answered in time; 0: never
        self.timeout_s: float | None = None  # its own limit for answers, 0 for none; None: its queue's
        self.warnings: tuple[str, ...] = ()  # of what its client asked for and has no effect
        self.attached = False  # to the queue, by `Queue.add_consumer`
        # The other end of its connection (`Client.peer`), where the protocol sets it.
        self.peer: object = None
        self.behind: Consumer | None = None  # the next in the queue's ring, while `able`,
        self.before: Consumer | None = None  # and the one before it
        self.able = False  # it is in the queue's ring of consumers believed able to take messages

    @property
    def suspended(self) -> bool:
        """True while its client has asked for a pause: it stays attached, but does not count as active (S071)."""
        return False

    def facts(self) -> ConsumerFacts:
        """Return what operators see of this consumer."""
        return ConsumerFacts()

    def unanswered(self) -> Held:
        """Return what the client has to answer: deliveries to this consumer, and to others with it.

        Some of the values may be other things. To be overridden where a client decides how much it takes.
        """
        return NOTHING_UNANSWERED

    @abstractmethod
    def room(self) -> int:
        """Return how many bytes it can take now; at 0 or less the queue passes it over until `wake`.

        Called before its credit is looked at.
        """

    @abstractmethod
    def deliver(self, deliveries: list[Delivery]) -> None:
        """Send deliveries to the client, in order. Called only from `Queue.dispatch`; must not call the queue."""

    @abstractmethod
    def cancelled(self) -> None:
        """Called when the broker has ended this consumer: its queue is deleted, or its user lost the permission."""

    def end_as_slow(self, why: str) -> None:
        """Called when the queue has found it too slow: detach it from the queue, and tell its client `why`.

        Messages that it has not answered go back to the queue. By default nothing happens: it goes on.
        """

    def elected(self) -> None:
        """Called when the consumer has become the single active one of its queue; must not call the queue."""

    def passed_over(self) -> None:
        """Called when another consumer becomes the active one in its place; must not call the queue."""

    def may_take_more(self) -> bool:
        """Return whether its bounds on unanswered bytes admit the queue's next message; if not, it is woken later.

        For `room`, of consumers that have bounds: then it asks for one message at a time.
        """
        head = self.queue.head_message()
        octets = 1 if head is None else head.size or 1
        return all(bound.admits(self, octets) for bound in self.bounds)

    def wake(self) -> None:
        """Join the queue's ring again. Call it when credit or room has come back."""
        if not self.able and self.attached:
            self.queue.offer(self)


def consumer_fields(consumer: Consumer, queue: str) -> Table:
    """Return the fields of a consumer in events."""
    facts = consumer.facts()
    return {
        "consumer_tag": facts.tag,
        "connection_name": facts.connection,
        "queue": queue,
        "ack_required": not consumer.settled,
        "exclusive": consumer.exclusive,
        "prefetch_count": facts.prefetch,
        "arguments": consumer.arguments,
    }


def answered(deliveries: Iterable[Delivery]) -> None:
    """Subtract settled deliveries from what their consumers have not answered, where that is bounded."""
    octets: dict[Unanswered, int] = {}
    for delivery in deliveries:
        if delivery.consumer is not None:
            for bound in delivery.consumer.bounds:
                octets[bound] = octets.get(bound, 0) + weight(delivery.message)
    for bound, answered in octets.items():
        bound.answered(answered)
