"""A history of counts and lengths, for rates and curves: sampled at an interval, at no cost for messages.

    queues, exchanges, connections, channels ──every 5 s, a few at a time──> Series ──> rate, samples, average
    their sums, the node ──────────────────────────────────────────────────> Layers: a day of them, ever coarser

An unchanged object gets no new sample: the last one holds until the next. The 4000 objects that changed last keep
samples of ten minutes; that is 42 MB at most. An object that has always been idle has no series; the rate of an object
without a series is 0. For each object beyond the 4000, only a hash and a tick are kept.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections import Counter
from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from operator import add
from typing import TYPE_CHECKING, Final

from leveret.clock import Turn
from leveret.guests import Guest
from leveret.observability.counts import (
    CHANNEL,
    CHURN,
    CONNECTION,
    EXCHANGE,
    HOST,
    NODE,
    QUEUE,
    TOTAL,
    channel_counts,
    connection_counts,
    exchange_counts,
    queue_counts,
)
from leveret.observability.resource_usage import measured

if TYPE_CHECKING:
    from leveret.broker import Broker
    from leveret.clock import Timer
    from leveret.operations import Connected
    from leveret.virtual_host import VirtualHost

INTERVAL_S: Final = 5.0
SERIES_MAX: Final = 4000
KEPT: Final = 121  # samples of one object: ten minutes
LAYERS: Final = (
    (1, 121),
    (12, 61),
    (120, 49),
    (360, 49),
)  # intervals between samples, and how many: 10 min to 24 h
TURN_S: Final = 0.001  # spent sampling before the loop's other work has a turn
PAUSE_S: Final = 0.001
END: Final = "end"


class Series:
    """The samples of one object, at most `kept` of them. Ticks count intervals."""

    __slots__ = ("_kept", "_rows", "_ticks", "changed_at", "columns", "last", "seen")

    def __init__(self, columns: Sequence[str], kept: int = KEPT) -> None:
        self.columns = columns
        self.last: tuple[int, ...] = ()
        self.changed_at = 0  # the tick of the last sample
        self.seen = 0  # the last tick at which the object existed
        self._kept = kept
        self._ticks = array("q")
        self._rows = array("q")

    def add(self, tick: int, values: tuple[int, ...]) -> None:
        """Append a sample; its tick is later than all before."""
        self.last, self.changed_at = values, tick
        self._ticks.append(tick)
        self._rows.extend(values)
        if len(self._ticks) > self._kept:
            del self._ticks[0]
            del self._rows[: len(values)]

    def __len__(self) -> int:
        return len(self._ticks)

    def at(self, tick: int) -> Sequence[int]:
        """Return the values at a tick; before the first sample, those of the first."""
        row = max(0, bisect_right(self._ticks, tick) - 1) * len(self.columns)
        return self._rows[row : row + len(self.columns)]


class Layers:
    """Samples of something permanent, such as the node, in ever coarser intervals the older they are."""

    def __init__(self, columns: Sequence[str]) -> None:
        self.columns = columns
        self._layers = tuple((every, kept, Series(columns, kept)) for every, kept in LAYERS)

    def add(self, tick: int, values: tuple[int, ...]) -> None:
        for every, _, series in self._layers:
            if tick % every == 0 or not len(series):
                series.add(tick, values)

    def back(self, ticks: int) -> Series:
        """Return the finest samples that go back `ticks` intervals, or the coarsest there are."""
        return next(
            (series for every, kept, series in self._layers if ticks < every * kept), self._layers[-1][2]
        )


class HostObjects:
    """The objects of a virtual host at the beginning of a round, and the counts of those deleted before."""

    __slots__ = ("_listed_at", "exchanges", "host", "queues", "retired")

    def __init__(self, host: VirtualHost) -> None:
        self.host = host
        self._listed_at = -1, -1  # what differs once some have come or gone
        self.retired: dict[str, int] = {}

    def look(self, retired: Mapping[str, int]) -> None:
        """List the objects, unless they are those of the round before: to touch 100,000 queues takes 50 ms."""
        host = self.host
        now = host.revision, len(host.exchanges)  # a new exchange alone is no new revision
        if now != self._listed_at:
            self._listed_at = now
            self.queues = list(host.queues.values())
            self.exchanges = list(host.exchanges.values())
        self.retired = dict(retired)


class History(Guest):
    """Samples the broker and all its objects at an interval. It begins with `start`."""

    def __init__(self, broker: Broker, interval_s: float = INTERVAL_S, series_max: int = SERIES_MAX) -> None:
        self.interval_s = interval_s
        self.tick = 0  # of the last round that has ended; 0: none has
        self.total = Layers(TOTAL)
        self.node = Layers(NODE)
        self._broker = broker
        self._series_max = series_max
        self._series: dict[object, Series] = {}  # the one that changed longest ago comes first
        # objects without a series for want of room: the hash of their counts, and the tick
        self._idle: dict[object, tuple[int, int]] = {}
        self._there: dict[VirtualHost, HostObjects] = {}  # of the last round
        self._started_at = 0.0
        self._round: Generator[None, None, None]
        self._timer: Timer | None = None

    def start(self) -> None:
        """Begin to take samples."""
        self._started_at = self._broker.now
        self._begin(self._broker.now)

    def stop(self) -> None:
        """Take no more samples."""
        self._broker.timers.cancel(self._timer)

    def series(self, thing: object) -> Series | None:
        """Return the samples of a queue, exchange, virtual host or connection, or of a (connection, channel number).

        Returns None if it has always been idle, or for so long that its series was dropped.
        """
        return self._series.get(thing)

    def ago_s(self, tick: int) -> float:
        """Return how many seconds ago a tick was."""
        return self._broker.now - self._started_at - (tick - 1) * self.interval_s

    def __len__(self) -> int:
        return len(self._series)

    def _begin(self, now: float) -> None:
        self._round = self._look_at_all(self.tick + 1)
        self._go_on(now)

    def _go_on(self, now: float) -> None:
        timers = self._broker.timers
        if next(self._round, END) is None:
            self._timer = timers.at(now + PAUSE_S, self._go_on)
            return
        missed = int((now - self._started_at) / self.interval_s) - self.tick  # the machine may have slept
        self.tick += 1 + max(0, missed)
        self._timer = timers.at(self._started_at + self.tick * self.interval_s, self._begin)

    def _look_at_all(self, tick: int) -> Generator[None, None, None]:
        """Take one round of samples; at each yield the loop's other work has a turn."""
        broker = self._broker
        total = Counter(broker.retired_counters.total)
        # Objects deleted during the round are sampled all the same: the total has the counts of those deleted before
        # the round, and not theirs.
        self._there = {host: self._there.get(host) or HostObjects(host) for host in broker.hosts()}
        for things in self._there.values():
            things.look(broker.retired_counters.of(things.host.name))
        total += Counter({name: broker.events.counts[name.replace("_", ".")] for name in CHURN})
        total["confirm"], total["return_unroutable"] = broker.confirmed, broker.returned
        turn = Turn(broker.clock, TURN_S, PAUSE_S)
        for things in self._there.values():
            sums: Counter[str] = Counter()
            yield from self._look_at_host(tick, things, sums, turn)
            total.update(sums)
            sums.update(things.retired)
            self._note(tick, things.host, HOST, row(sums, HOST))
        yield from self._look_at_connections(tick, turn)
        total["drop_unroutable"] -= total["return_unroutable"]
        self.total.add(tick, row(total, TOTAL))
        if broker.operations is not None:
            self.node.add(tick, measured(broker.operations).counts)
        for thing in [thing for thing, series in self._series.items() if series.seen != tick]:
            del self._series[thing]
        for thing in [thing for thing, (_, seen) in self._idle.items() if seen != tick]:
            del self._idle[thing]

    def _look_at_host(
        self, tick: int, things: HostObjects, sums: Counter[str], turn: Turn
    ) -> Generator[None, None, None]:
        of_queues, of_exchanges = [0] * len(QUEUE), [0] * len(EXCHANGE)
        for queue in things.queues:
            counts = queue_counts(queue)
            if any(counts) or queue in self._series:
                self._note(tick, queue, QUEUE, counts)
                of_queues = list(map(add, of_queues, counts))
            if turn.is_over():
                yield
        for exchange in things.exchanges:
            counts = exchange_counts(exchange)
            if any(counts) or exchange in self._series:
                self._note(tick, exchange, EXCHANGE, counts)
                of_exchanges = list(map(add, of_exchanges, counts))
            if turn.is_over():
                yield
        sums.update(dict(zip(QUEUE, of_queues, strict=True)))
        sums.update(dict(zip(EXCHANGE, of_exchanges, strict=True)))

    def _look_at_connections(self, tick: int, turn: Turn) -> Generator[None, None, None]:
        operations = self._broker.operations
        connections: Collection[Connected] = () if operations is None else list(operations.connections())
        for connected in connections:
            front = connected.front
            if front is None or front.facts() is None:
                continue
            self._note(tick, connected, CONNECTION, connection_counts(connected))
            for facts in front.counted_channels():
                if facts is not None:
                    self._note(tick, (connected, facts.number), CHANNEL, channel_counts(facts))
                if turn.is_over():
                    yield
            if turn.is_over():
                yield

    def _note(self, tick: int, thing: object, columns: Sequence[str], values: tuple[int, ...]) -> None:
        """Add a sample of an object if its counts have changed."""
        series = self._series.get(thing)
        if series is None:
            series = self._begun(tick, thing, columns, values)
            if series is None:
                return
        elif series.last == values:
            series.seen = tick
            return
        else:
            del self._series[thing]
        series.add(tick, values)
        series.seen = tick
        self._series[thing] = series
        if len(self._series) > self._series_max:
            oldest = next(iter(self._series))
            gone = self._series.pop(oldest)
            self._idle[oldest] = hash(gone.last), gone.seen

    def _begun(
        self, tick: int, thing: object, columns: Sequence[str], values: tuple[int, ...]
    ) -> Series | None:
        """Return a new series for an object that has none, unless it is idle.

        The counts of a new object began at 0. But once a series had to be dropped, an object without one may be old:
        then it gets one only after a change, or idle objects would drive out active ones, round after round.
        """
        if not any(values):
            return None
        known, now = self._idle.pop(thing, None), hash(values)
        if known is None and len(self._series) < self._series_max:
            series = Series(columns)
            if tick > 1:
                series.add(tick - 1, (0,) * len(values))
            return series
        if known is None or known[0] == now:
            self._idle[thing] = now, tick
            return None
        return Series(columns)


def row(sums: Counter[str], columns: Iterable[str]) -> tuple[int, ...]:
    """Return the sums as a row; `publish` is what exchanges took in, not the sum over the queues that got a copy."""
    return tuple(sums["publish_in" if name == "publish" else name] for name in columns)
