"""One message given to one consumer: how queues and consumers see each other.

A `Delivery` is a message's place in one queue, from arrival to settlement: waiting (no consumer), unsettled (given to
a consumer that has not answered), settled (gone). A `Consumer` is the queue's view of whoever takes messages; each
protocol has its own. All credit there is - prefetch, link credit, message credit - is one number on the consumer and
one on the window that consumers of a channel may share.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Final

from mypy_extensions import mypyc_attr

from broker_core.durability.contract import Entry
from broker_core.observability.connection_stats import ConsumerFacts
from broker_core.values import Table

if TYPE_CHECKING:
    from broker_core.durability.contract import Stored
    from broker_core.message import Message
    from broker_core.queues.queue import Queue
    from broker_core.selectors.parser import Selector
    from broker_core.store.contract import Page

UNLIMITED: Final = 1 << 62  # credit that does not run out
FIRST: Final = 1 << 62  # the priority of those who only look: they should see what others take


@mypyc_attr(allow_interpreted_subclasses=True, acyclic=True)
class Delivery(Entry):
    """A message's place in one queue. The queue alone changes it.

    Where it is compiled the garbage collector does not look at it: what waits is let go when its queue is deleted, or
    the node ends (`Broker.let_go`).
    """

    __slots__ = ("consumer", "given_at", "queue", "redelivered", "seen_by")

    def __init__(self, message: Message, queue: Queue, position: int, expires_at: float) -> None:
        self.message = message  # as an entry does it, without a call
        self.position = position
        self.expires_at = expires_at
        self.attempts = self.stored = 0
        self.queue = queue
        self.redelivered = False
        self.consumer: Consumer | None = None  # who has it, if it is unsettled and was not fetched
        self.given_at = 0.0  # monotonic seconds
        self.seen_by: tuple[object, ...] = ()  # marks of those who browsed it

    def holder(self) -> Queue:
        return self.queue

    @property
    def counted_attempts(self) -> int:
        """The failed deliveries as consumers are told them: only where there is a limit to them."""
        return 0 if self.queue.limits.delivery_limit is None else self.attempts

    def __lt__(self, other: Delivery) -> bool:
        return self.position < other.position

    def __hash__(self) -> int:
        return (
            id(self) >> 4
        )  # each is itself alone; compiled, a class that can be ordered has no hash of its own

    # The outcomes, for those who keep one to come back to it; what it means is the queue's business.

    def accept(self) -> None:
        self.queue.accept(self)

    def release(self) -> None:
        self.queue.release(self)

    def reject(self) -> None:
        self.queue.reject(self)


def read_back(queue: Queue, page: Page, stored: list[Stored]) -> list[Delivery]:
    """Make deliveries of what the store has of a page."""
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
    """Credit shared by several consumers (a channel's prefetch across its consumers). One consumer is in one window.

    When credit comes back, all of them are woken, who was served longest ago first, or he may never have a turn.
    """

    __slots__ = ("credit",)

    def __init__(self, credit: int = UNLIMITED) -> None:
        self.credit = credit


@mypyc_attr(allow_interpreted_subclasses=True)
class Consumer(ABC):
    """Somebody who takes messages from one queue, or reads them there.

    The queue takes `credit` off consumer and window before `deliver`, whether or not the consumer answers; the protocol
    puts it back as its own rules say and then calls `wake`. Who should never want for credit has UNLIMITED.

        settled     it does not answer: what it gets is accepted
        selector    it wants only messages that match; the others stay for others. None: it wants all
        browses     it reads without taking: every waiting message once, in order, and later what arrives or comes back.
                    Others are served as if it were not there, and it as if there were no others: neither exclusivity
                    nor a single active consumer concerns it. What it is shown stays the queue's: never accept,
                    release or reject that, and keep nothing of it but its position, with which it may be had
                    (`Queue.acquire`). `settled`, `priority` and `exclusive` say nothing
        searching   set by the queue: the way through a long backlog is gone in portions, and this one has not come to
                    its end; the queue goes on by itself

    All of these but the last are fixed when the consumer is attached (`Queue.add_consumer`).

    To drain: give credit, `wake`, and look again when the broker has settled (`Publisher.taken`). Whoever then has
    credit and room left has all there is for it now, unless the queue `seeks_for` more: then it looks again next time.
    """

    __slots__ = (
        "able",
        "arguments",
        "attached",
        "behind",
        "browses",
        "credit",
        "exclusive",
        "peer",
        "priority",
        "queue",
        "searching",
        "selector",
        "settled",
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
        self.attached = False  # the queue knows it
        self.peer: object = (
            None  # the other end of its connection (`Client.peer`), where the protocol says that
        )
        self.behind: Consumer | None = None  # who has a turn after it, as long as it is able
        self.able = False  # it stands in the queue's ring of those believed to take messages

    @property
    def suspended(self) -> bool:
        """Its client has asked for a pause: it stays attached, but does not count as active (S071)."""
        return False

    def facts(self) -> ConsumerFacts:
        """Who it is, for operators."""
        return ConsumerFacts()

    @abstractmethod
    def room(self) -> int:
        """How many octets it takes now; 0 or less: pass it over until `wake`. Asked before its credit is looked at."""

    @abstractmethod
    def deliver(self, deliveries: list[Delivery]) -> None:
        """Take these, in order. Called only from `Queue.dispatch`; must not call back into the queue."""

    @abstractmethod
    def cancelled(self) -> None:
        """The broker has ended this consumer: its queue is gone, or the user may no longer read it."""

    def wake(self) -> None:
        """Credit or room came back: stand in line again."""
        if not self.able and self.attached:
            self.queue.offer(self)
