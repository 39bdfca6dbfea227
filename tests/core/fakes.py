"""Stand-ins around a real broker: consumers that remember what they got.

bench = CoreBench()
queue = bench.queue("q")
consumer = FakeConsumer(queue, credit=1)
bench.publish("q", b"a", b"b")
assert consumer.bodies() == "a"
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from leveret.clock import NEVER
from leveret.delivery import UNLIMITED, Consumer, Delivery, Window
from leveret.exchanges.exchange_type import HANDLED, Exchange, ExchangeType, Handled
from leveret.message import Message
from leveret.outbox import OVERHEAD
from leveret.queues.queue import AT_ONCE, Queue
from leveret.selectors.parser import Selector
from leveret.values import Table
from tests.harness.bench import CoreBench

PLENTY = 1 << 40  # octets of room


class SharedWindow(Window):
    """A window that knows whose it is, as a channel does."""

    __slots__ = ("consumers", "served")

    def __init__(self, credit: int = UNLIMITED) -> None:
        super().__init__(credit)
        self.consumers: list[FakeConsumer] = []
        self.served = 0  # batches


class FakeConsumer(Consumer):
    """A consumer by the book: it answers, puts credit back, and wakes whoever can use it."""

    def __init__(
        self,
        queue: Queue,
        settled: bool = False,
        credit: int = UNLIMITED,
        window: SharedWindow | None = None,
        priority: int = 0,
        exclusive: bool = False,
        limit: int = PLENTY,
        log: list[tuple[FakeConsumer, Delivery]] | None = None,
        arguments: Table | None = None,
        selector: Selector | None = None,
        browses: bool = False,
    ) -> None:
        """Attaches itself to the queue. `limit` is its room in octets; `log` may be shared with others."""
        self.shared = window or SharedWindow()
        self.searched = False  # the queue had no time to look everywhere for it
        super().__init__(
            queue, settled, credit, self.shared, priority, exclusive, arguments, selector, browses
        )
        self.limit = limit
        self.filled = 0  # octets delivered since `drain`
        self.paused = False
        self.served_at = 0  # in the order of its window
        self.looks = 0  # how often the queue asked for room
        self.got: list[Delivery] = []
        self.held: list[Delivery] = []  # not answered
        self.batches: list[int] = []  # how many deliveries each call brought
        self.log = [] if log is None else log
        self.ended = 0
        queue.add_consumer(self)
        self.shared.consumers.append(self)

    @property
    def searching(self) -> bool:
        return Consumer.searching.__get__(self)  # type: ignore[attr-defined]

    @searching.setter
    def searching(self, searching: bool) -> None:
        """It is remembered that it was; whoever wants to know of the next time forgets it."""
        Consumer.searching.__set__(self, searching)  # type: ignore[attr-defined]
        self.searched = self.searched or searching

    def unanswered(self) -> Mapping[int, object]:
        return dict(enumerate(self.held))

    def room(self) -> int:
        self.looks += 1
        room = 0 if self.paused else self.limit - self.filled
        return room if room <= 0 or not self.bounds else int(self.may_take_more())

    def deliver(self, deliveries: list[Delivery]) -> None:
        self.batches.append(len(deliveries))
        self.shared.served += 1
        self.served_at = self.shared.served
        self.got += deliveries
        self.log += [(self, delivery) for delivery in deliveries]
        self.filled += sum(delivery.message.size + OVERHEAD for delivery in deliveries)
        if not (self.settled or self.browses):
            self.held += deliveries

    def cancelled(self) -> None:
        self.ended += 1

    def bodies(self) -> str:
        """Everything it ever got, in order."""
        return b" ".join(delivery.message.body for delivery in self.got).decode()

    def accept(self, delivery: Delivery) -> None:
        self.queue.accept(self._answered(delivery))

    def release(self, delivery: Delivery, failed: bool = True) -> None:
        self.queue.release(self._answered(delivery), failed)

    def send_elsewhere(self, delivery: Delivery, until: float = AT_ONCE) -> None:
        """Give a delivery back that it must not have again."""
        self.queue.avoid(self._answered(delivery), self)
        self.queue.release(delivery, failed=False, until=until)

    def reject(self, delivery: Delivery) -> None:
        self.queue.reject(self._answered(delivery))

    def accept_all(self) -> None:
        for delivery in list(self.held):
            self.accept(delivery)

    def _answered(self, delivery: Delivery) -> Delivery:
        self.held.remove(delivery)
        self.credit += 1
        self.shared.credit += 1
        for consumer in sorted(self.shared.consumers, key=lambda consumer: consumer.served_at):
            consumer.wake()
        return delivery

    def grant(self, credit: int) -> None:
        self.credit += credit
        self.wake()

    def drain(self) -> None:
        """All that was delivered has gone over the wire."""
        self.filled = 0
        self.wake()

    def pause(self) -> None:
        self.paused = True

    def resume(self) -> None:
        self.paused = False
        self.wake()

    def leave(self) -> None:
        """Stop consuming; what it holds stays with it."""
        self.queue.remove_consumer(self)
        self.shared.consumers.remove(self)


class Only(Selector):
    """Wants messages whose bodies begin with one of these octets, and counts how often it looked at each body."""

    __slots__ = ("firsts", "looks")

    def __init__(self, firsts: bytes) -> None:
        self.wanted = None
        self.firsts = firsts
        self.looks: Counter[bytes] = Counter()

    def matches(self, message: Message) -> bool:
        self.looks[message.body] += 1
        return bool(message.body) and message.body[0] in self.firsts


class Holding(ExchangeType):
    """Takes every message itself."""

    name = "x-holding"

    def __init__(self, exchange: Exchange) -> None:
        super().__init__(exchange)
        self.held: list[bytes] = []

    def route(self, message: Message) -> Handled:
        return HANDLED

    def keep(self, message: Message) -> None:
        self.held.append(message.body)


NOWHERE = CoreBench().queue("nowhere")


def lone(message: Message) -> Delivery:
    """Of a message for which it does not matter where it was."""
    return Delivery(message, NOWHERE, 0, NEVER)


def waiting(queue: Queue) -> str:
    """The bodies of the waiting messages, in order of delivery."""
    return b" ".join(delivery.message.body for delivery in queue.waiting()).decode()


def fetched(queue: Queue, settled: bool) -> Delivery:
    delivery = queue.take_one(settled)
    assert delivery is not None
    return delivery


def morgue(bench: CoreBench) -> Queue:
    """Where the dead of a queue declared with `**DEAD` go."""
    return bench.queue("dead")


DEAD = {"x_dead_letter_exchange": "", "x_dead_letter_routing_key": "dead"}


def reasons(dead: Queue) -> list[str]:
    """Body and latest reason of death of everything in a morgue."""
    found = []
    for delivery in dead.waiting():
        assert delivery.message.notes is not None
        found.append(f"{delivery.message.body.decode()} {delivery.message.notes.deaths[0].reason}")
    return found


def letters(count: int) -> list[bytes]:
    """As many bodies: a, b, c ..."""
    return [bytes([octet]) for octet in range(ord("a"), ord("a") + count)]
