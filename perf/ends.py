"""A publisher and a consumer, whatever the protocol: what they may do now, and what they have seen. No sockets."""

from __future__ import annotations

from array import array
from collections import Counter, deque
from collections.abc import Sequence
from typing import Final

from perf.block import Block
from perf.deliveries import Run
from perf.histogram import Histogram
from perf.pace import Pacing
from perf.sequence_check import Seen

ENDLESS: Final = 1 << 62


class Tally:
    """What all ends of a worker have seen together; times are those of the monotonic clock."""

    __slots__ = (
        "confirm_times",
        "confirmed",
        "delivery_times",
        "first_ns",
        "last_ns",
        "received",
        "refused",
        "returned",
        "sent",
        "since_ns",
    )

    def __init__(self, since_ns: int) -> None:
        self.sent = self.received = self.confirmed = self.refused = self.returned = 0
        self.first_ns = self.last_ns = 0
        self.since_ns = since_ns  # stamps older than this are not ours
        self.delivery_times = Histogram()
        self.confirm_times = Histogram()


class Source:
    """A publisher: messages 0, 1, 2 ... as its window, its pace, its limit and (in 1.0) the broker's credit allow.

    With a pace, the clock of a message begins when it was due, whatever kept it: a broker that stands still makes all
    wait that were due meanwhile.
    """

    __slots__ = (
        "_apart",
        "_block",
        "_pacing",
        "_started_ns",
        "_tally",
        "_under_way",
        "_window",
        "credit",
        "limit",
        "link_credit",
        "low",
        "sent",
        "settled",
        "window_credit",
    )

    def __init__(self, block: Block, tally: Tally, limit: int, window: int, pacing: Pacing | None) -> None:
        self._block = block
        self._tally = tally
        self._window = window  # 0: nothing is confirmed
        self._pacing = pacing
        self._started_ns = 0
        self.limit = limit
        # Messages that may be sent in all: the lesser of what the link and the session of 1.0 allow.
        self.credit = self.link_credit = self.window_credit = ENDLESS
        self.sent = 0
        self.settled = 0  # confirmed or refused
        self.low = 0  # all below are
        self._apart: set[int] = set()  # and these
        self._under_way: deque[tuple[int, Sequence[int]]] = deque()  # end of a block, its stamps

    def start(self, now: int) -> None:
        self._started_ns = now

    @property
    def done(self) -> bool:
        return self.sent >= self.limit and (not self._window or self.settled >= self.sent)

    def may_send(self, now: int) -> int:
        """How many messages."""
        most = min(self.limit, self.credit)
        if self._window:
            most = min(most, self.settled + self._window)
        if self._pacing is not None and most > self.sent:
            most = min(most, self._pacing.due(now - self._started_ns))
        return most - self.sent

    def due_ns(self) -> int | None:
        """When the next one is, if that is all it waits for."""
        most = min(self.limit, self.credit)
        if self._pacing is None or self.sent >= most or self._is_full():
            return None
        return self._started_ns + self._pacing.time_of(self.sent)

    def _is_full(self) -> bool:
        return self._window != 0 and self.sent >= self.settled + self._window

    def next(self, now: int) -> memoryview | None:
        """The next octets to send, until which are sent it must not be asked again."""
        count = min(self.may_send(now), self._block.room(self.sent))
        if count <= 0:
            return None
        stamps: Sequence[int] = (now,)
        if self._pacing is not None:
            stamps = [self._started_ns + self._pacing.time_of(self.sent + each) for each in range(count)]
        octets = self._block.write(self.sent, count, stamps)
        self.sent += count
        self._tally.sent += count
        self._tally.first_ns = self._tally.first_ns or now
        if self._window:
            self._under_way.append((self.sent, stamps))
        return octets

    def confirm(self, tag: int, multiple: bool, now: int) -> None:
        """Message `tag - 1`, or all up to it."""
        self._tally.confirmed += self._settle(tag, multiple, now)

    def settle_range(self, first: int, last: int, accepted: bool, now: int) -> None:
        """Messages `first` to `last`."""
        settle = self.confirm if accepted else self.refuse
        if first <= self.low:
            settle(last + 1, True, now)
        else:
            for number in range(first, last + 1):
                settle(number + 1, False, now)

    def refuse(self, tag: int, multiple: bool, now: int) -> None:
        self._tally.refused += self._settle(tag, multiple, now)

    def _settle(self, tag: int, multiple: bool, now: int) -> int:
        if not self.low < tag <= self.sent or tag - 1 in self._apart:
            return 0
        self._tally.last_ns = now
        before = self.settled
        if multiple or tag - 1 == self.low:
            self.settled += tag - self.low - self._passed(tag, now)
            self._catch_up(now)
        else:
            self._apart.add(tag - 1)
            self.settled += 1
            self._tally.confirm_times.add(now - self._stamp_of(tag - 1))
        return self.settled - before

    def _catch_up(self, now: int) -> None:
        while self.low in self._apart:
            self._passed(self.low + 1, now)

    def _passed(self, to: int, now: int) -> int:
        """All below `to` are settled; how many of these had been before."""
        before = 0
        times = self._tally.confirm_times
        while self.low < to:
            end, stamps = self._under_way[0]
            upto = min(end, to)
            if not self._apart and len(stamps) == 1:
                times.add(now - stamps[0], upto - self.low)
            else:
                for number in range(self.low, upto):
                    if number in self._apart:
                        self._apart.remove(number)
                        before += 1
                    else:
                        times.add(now - stamps[number - end if len(stamps) > 1 else 0])
            self.low = upto
            if upto == end:
                self._under_way.popleft()
        return before

    def _stamp_of(self, number: int) -> int:
        end, stamps = next(each for each in self._under_way if number < each[0])
        return stamps[number - end if len(stamps) > 1 else 0]


class Subscription:
    """A consumer of one queue: what came, and what of it is handled and acknowledged.

    With a time to think, it handles one message after another, and each takes so long.
    """

    __slots__ = (
        "_busy_ns",
        "_every",
        "_seen",
        "_tally",
        "_think_ns",
        "acknowledged",
        "handled",
        "queue",
        "received",
        "timed",
    )

    def __init__(self, queue: str, tally: Tally, every: int, think_ns: int, seen: Seen | None) -> None:
        self.queue = queue
        self._tally = tally
        self._every = every  # 0: nothing is acknowledged
        self._think_ns = think_ns
        self._seen = seen
        self.timed = False  # somebody knows when to come again
        self._busy_ns = 0  # until when, if more has come than is handled
        self.received = self.handled = self.acknowledged = 0

    def receive(self, count: int, now: int) -> None:
        if self._think_ns and self.handled == self.received:
            self._busy_ns = now + self._think_ns
        self.received += count
        if not self._think_ns:
            self.handled = self.received

    def think(self, now: int) -> int | None:
        """Handle what there was time for; when to come again."""
        if not self._think_ns or self.handled == self.received:
            return None
        if now >= self._busy_ns:
            count = min((now - self._busy_ns) // self._think_ns + 1, self.received - self.handled)
            self.handled += count
            self._busy_ns += count * self._think_ns
        return self._busy_ns if self.handled < self.received else None

    def to_acknowledge(self, at_least: int = 0) -> int:
        """How many messages, all up to `handled`; 0 if there are not enough to be worth it."""
        count = self.handled - self.acknowledged if self._every else 0
        if count < (at_least or self._every):
            return 0
        self.acknowledged = self.handled
        return count

    def look_at(self, run: Run) -> None:
        """Remember which ones they are, all of them its own."""
        numbers = run.numbers() if self._seen is not None else None
        if self._seen is not None and numbers is not None:
            self._seen.add_run(run.publishers(), numbers)

    def look_at_one(self, publisher: int, number: int) -> None:
        if self._seen is not None:
            self._seen.add(publisher, number)


def count_run(run: Run, subscriptions: dict[int, Subscription], tally: Tally, now: int) -> None:
    """To each subscription (by channel) what is its own."""
    if run.shape.ends:
        tally.received += run.count
    tally.last_ns = now
    stamps = run.stamps()
    if stamps is not None:
        _measure(stamps, tally, now)
    if len(subscriptions) == 1:
        (only,) = subscriptions.values()
        if run.shape.ends:
            only.receive(run.count, now)
        only.look_at(run)
        return
    channels = run.channels()
    if run.shape.ends:
        for channel, count in Counter(channels).items():
            subscriptions[channel].receive(count, now)
    numbers = run.numbers()
    if numbers is not None:
        for channel, publisher, number in zip(channels, run.publishers(), numbers, strict=True):
            subscriptions[channel].look_at_one(publisher, number)


def _measure(stamps: array[int], tally: Tally, now: int) -> None:
    """Whatever is no time since the start is somebody else's body."""
    first = stamps[0]
    if stamps[-1] == first and stamps.count(first) == len(stamps):
        if tally.since_ns <= first <= now:
            tally.delivery_times.add(now - first, len(stamps))
        return
    for stamp, count in Counter(stamps).items():
        if tally.since_ns <= stamp <= now:
            tally.delivery_times.add(now - stamp, count)
