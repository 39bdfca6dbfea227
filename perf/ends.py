"""Publishers and consumers of any protocol: what they may send or acknowledge, and what they have seen. No sockets."""

from __future__ import annotations

from array import array
from collections import Counter, deque
from collections.abc import Sequence
from typing import Final

from leveret.perf.block import Block
from leveret.perf.deliveries import Run
from leveret.perf.histogram import Histogram
from leveret.perf.pace import Pace
from leveret.perf.sequence_check import SequenceCheck

ENDLESS: Final = 1 << 62


class Tally:
    """The counts and times of all ends of a worker; times are those of the monotonic clock."""

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
        self.since_ns = since_ns  # older stamps are of another load
        self.delivery_times = Histogram()
        self.confirm_times = Histogram()


class PublisherEnd:
    """A publisher: messages 0, 1, 2 ... as its window, its pace, its limit and (in 1.0) the broker's credit allow.

    With a pace, the clock of a message begins when it was due, whatever kept it: when a broker stalls, all messages
    that were due meanwhile count as waiting.
    """

    __slots__ = (
        "_apart",
        "_at_once",
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

    def __init__(
        self,
        block: Block,
        tally: Tally,
        limit: int,
        window: int,
        pacing: Pace | None,
        at_once: int = ENDLESS,
    ) -> None:
        self._block = block
        self._tally = tally
        self._window = window  # 0: no confirms
        self._pacing = pacing
        self._at_once = at_once  # messages in one write
        self._started_ns = 0
        self.limit = limit
        # Messages that may be sent in total: the lesser of what the link and the session of 1.0 allow.
        self.credit = self.link_credit = self.window_credit = ENDLESS
        self.sent = 0
        self.settled = 0  # confirmed or refused
        self.low = 0  # all messages below are settled
        self._apart: set[int] = set()  # and these above it
        self._under_way: deque[tuple[int, Sequence[int]]] = deque()  # end of a block, its stamps

    def start(self, now: int) -> None:
        self._started_ns = now

    @property
    def done(self) -> bool:
        return self.sent >= self.limit and (not self._window or self.settled >= self.sent)

    def may_send(self, now: int) -> int:
        """Return how many messages may be sent now."""
        most = min(self.limit, self.credit)
        if self._window:
            most = min(most, self.settled + self._window)
        if self._pacing is not None and most > self.sent:
            most = min(most, self._pacing.due(now - self._started_ns))
        return most - self.sent

    def due_ns(self) -> int | None:
        """Return when the next message is due, if it waits for nothing else."""
        most = min(self.limit, self.credit)
        if self._pacing is None or self.sent >= most or self._is_full():
            return None
        return self._started_ns + self._pacing.time_of(self.sent)

    def _is_full(self) -> bool:
        return self._window != 0 and self.sent >= self.settled + self._window

    def next(self, now: int) -> memoryview | None:
        """Return the next bytes to send. To be called again only after they have been sent."""
        count = min(self.may_send(now), self._block.room(self.sent), self._at_once)
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
        """Count message `tag - 1`, or all up to it, as confirmed."""
        self._tally.confirmed += self._settle(tag, multiple, now)

    def settle_range(self, first: int, last: int, accepted: bool, now: int) -> None:
        """Count messages `first` to `last` as confirmed or refused."""
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
        """Settle all messages below `to`; return how many of these had been settled before."""
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


class ConsumerEnd:
    """A consumer of one queue: what it has received, handled and acknowledged.

    With a time to think, it handles one message after another, and each takes that time.
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

    def __init__(
        self, queue: str, tally: Tally, every: int, think_ns: int, seen: SequenceCheck | None
    ) -> None:
        self.queue = queue
        self._tally = tally
        self._every = every  # 0: no acknowledgements
        self._think_ns = think_ns
        self._seen = seen
        self.timed = False  # a timer is set for it
        self._busy_ns = 0  # when its present message is handled, if there is one
        self.received = self.handled = self.acknowledged = 0

    def receive(self, count: int, now: int) -> None:
        if self._think_ns and self.handled == self.received:
            self._busy_ns = now + self._think_ns
        self.received += count
        if not self._think_ns:
            self.handled = self.received

    def think(self, now: int) -> int | None:
        """Handle the messages that there was time for; return when to call again, or None if there are no more."""
        if not self._think_ns or self.handled == self.received:
            return None
        if now >= self._busy_ns:
            count = min((now - self._busy_ns) // self._think_ns + 1, self.received - self.handled)
            self.handled += count
            self._busy_ns += count * self._think_ns
        return self._busy_ns if self.handled < self.received else None

    def to_acknowledge(self, at_least: int = 0) -> int:
        """Return how many messages to acknowledge, all up to `handled`; 0 if they are too few."""
        count = self.handled - self.acknowledged if self._every else 0
        if count < (at_least or self._every):
            return 0
        self.acknowledged = self.handled
        return count

    def look_at(self, run: Run) -> None:
        """Remember the numbers of a run, all of it from this queue, if messages are verified."""
        numbers = run.numbers() if self._seen is not None else None
        if self._seen is not None and numbers is not None:
            self._seen.add_run(run.publishers(), numbers)

    def look_at_one(self, publisher: int, number: int) -> None:
        if self._seen is not None:
            self._seen.add(publisher, number)


def count_run(run: Run, subscriptions: dict[int, ConsumerEnd], tally: Tally, now: int) -> None:
    """Count a run for the subscriptions (by channel) that it belongs to."""
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
    """Add the latencies of stamps, but not of those older than the load: other bodies may have anything there."""
    first = stamps[0]
    if stamps[-1] == first and stamps.count(first) == len(stamps):
        if tally.since_ns <= first <= now:
            tally.delivery_times.add(now - first, len(stamps))
        return
    for stamp, count in Counter(stamps).items():
        if tally.since_ns <= stamp <= now:
            tally.delivery_times.add(now - stamp, count)
