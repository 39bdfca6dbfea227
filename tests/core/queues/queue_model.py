"""A queue as one would explain it: lists, sorted anew each time, and consumers asked one by one.

The model does not choose who gets what; it is told what the queue did (`replay`) and objects if that was not
allowed: the wrong message, a consumer without credit, room or turn, somebody left without who could be
served. Everything else it predicts: what is refused, dropped, expired, dead, and how much is left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import attrs

from leveret.clock import NEVER
from leveret.delivery import Delivery
from leveret.limits import Overflow, QueueLimits
from leveret.message import AbsentMessage
from leveret.outbox import OVERHEAD
from leveret.queues.queue import DELIVERY_LIMIT, EXPIRED, MAXLEN, REJECTED
from tests.core.fakes import FakeConsumer, Only, SharedWindow

LETTERS = b"abc"
ACCEPTED, REFUSED, PURGED = "accepted", "refused", "purged"


@attrs.define(eq=False)
class Item:
    """One message that the queue has."""

    number: int
    size: int
    lane: int
    expires_at: float
    position: int
    attempts: int = 0
    redelivered: bool = False
    returned: int = 0  # how often it came back

    @property
    def letter(self) -> int:
        """What its body begins with; selectors want one or the other."""
        return LETTERS[self.number % len(LETTERS)]


@attrs.define(eq=False)
class Taker:
    """One consumer; its credit is what it was granted less what it holds."""

    consumer: FakeConsumer
    granted: int
    window: SharedWindow
    held: dict[int, Item] = attrs.Factory(dict)
    seen: set[int] = attrs.Factory(set)  # if it browses
    avoided: set[int] = attrs.Factory(set)  # what it must not have again
    filled: int = 0
    late_at: float = 0.0  # when it last had not answered in time; 0: never
    attached: bool = True

    @property
    def priority(self) -> int:
        return self.consumer.priority

    @property
    def browses(self) -> bool:
        return self.consumer.browses

    def wants(self, item: Item) -> bool:
        selector = self.consumer.selector
        return item.number not in self.seen | self.avoided and (
            selector is None or (isinstance(selector, Only) and item.letter in selector.firsts)
        )


def body(number: int, size: int) -> bytes:
    return b"%c%d" % (LETTERS[number % len(LETTERS)], number) + b"." * size


LACKING: dict[Delivery, int] = {}  # the numbers of deliveries whose bodies are on disk only


def number(delivery: Delivery) -> int:
    """Which message it is: its body says so, or whoever put that on disk only."""
    if isinstance(delivery.message, AbsentMessage):
        return LACKING[delivery]
    return int(delivery.message.body[1:].split(b".")[0])


class Model:
    def __init__(self, limits: QueueLimits) -> None:
        self.limits = limits
        self.now = 0.0
        self.position = 0
        self.items: list[Item] = []  # all that ever arrived
        self.waiting: list[Item] = []  # in any order
        self.fetched: dict[int, Item] = {}
        self.takers: list[Taker] = []  # in order of arrival, those that left included
        self.active: Taker | None = None
        self.contested = False  # another is to be the active one
        self.windows: dict[SharedWindow, int] = {}  # granted
        self.ends: dict[int, str] = {}  # what became of the messages that are gone
        self.dead: Counter[tuple[int, str]] = Counter()  # those that were dead-lettered
        # how often the first was served while the second could have been, since that was served or could not
        self.passed: Counter[tuple[Taker, Taker]] = Counter()
        # how often its window's credit went to others while it could take
        self.starved: Counter[Taker] = Counter()

    # Looking.

    def order(self) -> list[Item]:
        return sorted(self.waiting, key=lambda item: (-item.lane, item.position))

    def over(self, more: int = 0, more_octets: int = 0) -> bool:
        length, octets = self.limits.max_length, self.limits.max_bytes
        return (length is not None and len(self.waiting) + more > length) or (
            octets is not None and sum(item.size for item in self.waiting) + more_octets > octets
        )

    def attached(self) -> Sequence[Taker]:
        return [taker for taker in self.takers if taker.attached]

    def competing(self) -> Sequence[Taker]:
        """Those who are there for more than to look."""
        return [taker for taker in self.attached() if not taker.browses]

    def able(self, taker: Taker) -> bool:
        """It can be given something, and the queue has had the time to look for that everywhere."""
        return self.could_take(taker) and not taker.consumer.searched

    def somebody_searches(self) -> bool:
        return any(taker.consumer.searching and self.could_take(taker) for taker in self.takers)

    def could_take(self, taker: Taker) -> bool:
        consumer = taker.consumer
        in_window = sum(len(t.held) for t in self.takers if t.window is taker.window)
        return (
            taker.attached
            and (not self.limits.single_active or taker is self.active or taker.browses)
            and len(taker.held) < taker.granted
            and in_window < self.windows[taker.window]
            and not consumer.paused
            and taker.filled < consumer.limit
        )

    def next_for(self, taker: Taker) -> Item | None:
        return next((i for i in self.order() if i.expires_at >= self.now and taker.wants(i)), None)

    def is_due(self, taker: Taker) -> bool:
        """It can take something, and there is something for it."""
        return self.able(taker) and self.next_for(taker) is not None

    def taker(self, consumer: FakeConsumer) -> Taker:
        return next(taker for taker in self.takers if taker.consumer is consumer)

    # What happens to messages.

    def end(self, item: Item, how: str) -> None:
        assert item.number not in self.ends, "a message ends once"
        self.ends[item.number] = how
        if (
            how in (REJECTED, EXPIRED, MAXLEN, DELIVERY_LIMIT)
            and self.limits.dead_letter_exchange is not None
        ):
            self.dead[item.number, how] += 1

    def leave_waiting(self, item: Item, how: str) -> None:
        self.waiting.remove(item)
        self.end(item, how)

    def arrive(self, number: int, size: int, priority: int, ttl_ms: int | None) -> None:
        lifetimes = [ttl for ttl in (ttl_ms, self.limits.message_ttl_ms) if ttl is not None]
        expires_at = self.now + min(lifetimes) / 1000 if lifetimes else NEVER
        lane = min(priority, self.limits.max_priority or 0)
        self.waiting.append(Item(number, size, lane, expires_at, self.position))
        self.items.append(self.waiting[-1])
        self.position += 1

    def take_next(self) -> Item | None:
        """The next message that has not expired; those before it have."""
        self.expire_before_next()
        for item in self.order():
            self.waiting.remove(item)
            return item
        return None

    def expire_before_next(self) -> None:
        for item in self.order():
            if item.expires_at >= self.now:
                return
            self.leave_waiting(item, EXPIRED)

    def replay(self, log: Iterable[tuple[FakeConsumer, Delivery]]) -> None:
        """A dispatch gave these messages to these consumers, and then stopped."""
        self.serve(log)
        self.forget_turns()
        for taker in self.takers:
            assert not self.is_due(taker), "a message waits, and somebody could take it"
            if self.able(taker) and not self.seeks(taker):
                self.expire_before_next()
            taker.consumer.searched = taker.consumer.searching
        if self.limits.overflow is Overflow.DROP_HEAD:
            self.drop()

    def serve(self, log: Iterable[tuple[FakeConsumer, Delivery]]) -> None:
        """These messages were given to these consumers, and there may be more."""
        if self.active is None or self.contested:
            # However many have come and gone, or been late, its heir is found when the queue is served.
            self.active = max(self.competing(), key=lambda t: (-t.late_at, t.priority), default=None)
            self.contested = False
        for consumer, delivery in log:
            self.gave(self.taker(consumer), delivery)

    def seeks(self, taker: Taker) -> bool:
        return taker.browses or taker.consumer.selector is not None or bool(taker.avoided)

    def gave(self, taker: Taker, delivery: Delivery) -> None:
        if not self.seeks(taker):
            self.expire_before_next()
        item = self.next_for(taker)
        assert item is not None
        assert number(delivery) == item.number, "the first by priority and arrival is next"
        assert (delivery.attempts, delivery.redelivered) == (item.attempts, item.redelivered)
        assert self.could_take(taker), "it had no credit, no room, or no business here"
        self.take_turn(taker)
        taker.filled += item.size + OVERHEAD
        if taker.browses:
            taker.seen.add(item.number)
            self.spend(taker)
            return
        self.waiting.remove(item)
        if taker.consumer.settled:
            self.end(item, ACCEPTED)
            self.spend(taker)
        else:
            taker.held[item.number] = item

    def spend(self, taker: Taker) -> None:
        """Credit that no answer brings back."""
        taker.granted -= 1
        self.windows[taker.window] -= 1

    def take_turn(self, taker: Taker) -> None:
        self.forget_turns()
        self.starved[taker] = 0
        for other in self.attached():
            self.passed[other, taker] = 0
            if other is taker or not self.is_due(other):
                continue
            assert other.priority <= taker.priority, "who has a higher priority comes first"
            if other.priority == taker.priority:
                self.passed[taker, other] += 1
                self.starved[other] += other.window is taker.window
                assert self.passed[taker, other] < 2, "nobody has two turns while another waits for one"
                assert self.starved[other] < 2 * len(self.attached()), "shared credit goes round"

    def forget_turns(self) -> None:
        """Who cannot take when his turn comes steps out, and back in at the end."""
        for first, second in self.passed:
            if not self.is_due(second):
                self.passed[first, second] = 0

    def drop(self) -> None:
        while self.over():
            self.leave_waiting(self.lowest(), MAXLEN)

    def lowest(self) -> Item:
        """Which of those that wait goes first if there are too many."""
        return min(self.waiting, key=lambda item: (item.lane, item.position))

    def expire_heads(self) -> None:
        for lane in {item.lane for item in self.waiting}:
            for item in [item for item in self.order() if item.lane == lane]:
                if item.expires_at > self.now:
                    break
                self.leave_waiting(item, EXPIRED)

    def came_back(self, item: Item, failed: bool) -> None:
        item.redelivered = True
        item.returned += 1
        item.attempts += failed
        limit = self.limits.delivery_limit
        if failed and limit is not None and item.attempts > limit:
            self.end(item, DELIVERY_LIMIT)
        else:
            self.waiting.append(item)

    # Consumers.

    def joined(self, consumer: FakeConsumer, credit: int) -> None:
        taker = Taker(consumer, credit, consumer.shared)
        self.takers.append(taker)
        if not taker.browses:
            if len(self.competing()) == 1:
                self.active = taker
            elif self.active is not None and self.active.late_at:
                self.contested = True

    def timed_out(self, taker: Taker) -> None:
        taker.late_at = self.now
        self.contested |= taker is self.active

    def left(self, taker: Taker) -> None:
        taker.attached = False
        if taker is self.active:
            self.active = None
