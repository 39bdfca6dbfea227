"""Add rates to counts, and samples of the past if a request asks for them.

    publish: 5, publish_details: {rate: 0.2}
    ?msg_rates_age=60&msg_rates_incr=5    {rate: 0.2, samples: [{sample: 5, timestamp: ...}, ...], avg_rate, avg}

Parameters begin with `lengths_`, `msg_rates_`, `data_rates_` or `node_stats_`; `age` is how far the samples go back,
and `incr` how far they are apart, in seconds. A rate is that of the last interval between samples.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from math import ceil
from typing import Final, TypeVar

import attrs

from leveret.errors import PreconditionFailed
from leveret.exchanges.exchange_type import Exchange
from leveret.observability.connection_stats import ChannelFacts
from leveret.observability.counts import (
    CHANNEL,
    CONNECTION,
    DELIVERIES,
    EXCHANGE,
    LENGTHS,
    NODE,
    QUEUE,
    channel_counts,
    exchange_counts,
    queue_counts,
)
from leveret.observability.history import History, Layers, Series
from leveret.operations import Connected
from leveret.protocols.http.management.lists import Fields
from leveret.protocols.http.server.request import Request
from leveret.queues.queue import Queue
from leveret.values import Json
from leveret.virtual_host import VirtualHost

T = TypeVar("T")

FIRST_TICK: Final = 1  # of a history
POINTS_MAX: Final = 250  # of each of some twenty curves of a row: 10 ms
SECONDS_MAX: Final = 10 * 365 * 86_400
STILL: Final[dict[str, Json]] = {"rate": 0.0}
DEDUP: Final = ("dedup",)  # in the words of LavinMQ: duplicates that were dropped
SUMS: Final[Mapping[str, Sequence[str]]] = {
    "messages": LENGTHS,
    "deliver_get": DELIVERIES,
    "dedup": ("dedup_queue", "dedup_exchange"),
}
LENGTH_NAMES: Final = (*LENGTHS, "messages")
IDLE: Final = Series(())
TOLD_QUEUE: Final = (*QUEUE[len(LENGTHS) : -1], "deliver_get")
TOLD_CHANNEL: Final = (*CHANNEL, "deliver_get")
TOLD_EXCHANGE: Final = EXCHANGE[:2]


@attrs.frozen
class Curve:
    """The samples that a request asks for: how far back and how far apart, in seconds."""

    age: int
    apart: int

    @classmethod
    def of(cls, request: Request, name: str) -> Curve | None:
        """Read the parameters that begin with `name`; None if they are absent. Raises PreconditionFailed if wrong."""
        if f"{name}_age" not in request.query or f"{name}_incr" not in request.query:
            return None
        age = request.number(f"{name}_age", None, 0, SECONDS_MAX)
        apart = request.number(f"{name}_incr", None, 1, SECONDS_MAX)
        if age // apart >= POINTS_MAX:
            raise PreconditionFailed(f"{name}_age / {name}_incr: that is more than {POINTS_MAX} points")
        return cls(age, apart)


class Rates:
    """The rates and samples for the answer to one request."""

    def __init__(self, request: Request) -> None:
        """Read the request's parameters. Raises PreconditionFailed if they are wrong."""
        self._history = request.broker.guests.find(History)
        self._wall = request.broker.clock.wall()
        self._points_of: dict[Curve, tuple[list[int], list[int]]] = {}  # times and ticks
        self._last: tuple[Series, Curve, list[Sequence[int]]] | None = None  # the last rows found
        self._messages = Curve.of(request, "msg_rates")
        self._others: dict[str, Curve | None] = {
            **dict.fromkeys(LENGTH_NAMES, Curve.of(request, "lengths")),
            **dict.fromkeys(CONNECTION, Curve.of(request, "data_rates")),
            **dict.fromkeys(NODE, Curve.of(request, "node_stats")),
        }
        self._curved = {name for name, curve in self._others.items() if curve is not None}

    def of_queue(self, queue: Queue) -> dict[str, Json]:
        """Return a queue's message_stats."""
        names = TOLD_QUEUE if queue.deduplication is None else TOLD_QUEUE + DEDUP
        return self._counted(self._series(queue), names, QUEUE, queue_counts(queue))

    def of_exchange(self, exchange: Exchange) -> dict[str, Json]:
        names = TOLD_EXCHANGE if exchange.deduplication is None else TOLD_EXCHANGE + DEDUP
        return self._counted(self._series(exchange), names, EXCHANGE, exchange_counts(exchange))

    def of_channel(self, connected: Connected, facts: ChannelFacts) -> dict[str, Json]:
        series = self._series((connected, facts.number))
        return self._counted(series, TOLD_CHANNEL, CHANNEL, channel_counts(facts))

    def of_host(self, host: VirtualHost, names: Sequence[str]) -> dict[str, Json]:
        """Return counts of a virtual host as they were last sampled, with details."""
        series = self._series(host) or IDLE
        return self._counted(series, names, series.columns, series.last)

    def of_total(self, names: Sequence[str]) -> dict[str, Json]:
        """Return counts of the whole broker as they were last sampled, with details."""
        return self._layered(None if self._history is None else self._history.total, names)

    def of_node(self, names: Sequence[str] = NODE) -> dict[str, Json]:
        """Return readings of the node with details; `names` are columns of `counts.NODE`."""
        return self._layered(None if self._history is None else self._history.node, names)

    def details(self, thing: object, name: str) -> dict[str, Json]:
        """Return the details of one count or length of a queue or connection."""
        return self._details(self._series(thing), name)

    def keys(
        self,
        names: Sequence[str],
        columns: Sequence[str],
        counts: Callable[[T], Sequence[int]],
        thing: Callable[[T], object],
    ) -> Fields[T]:
        """Return the columns of message_stats to sort by, each at a tenth of the time that all of them take.

        `counts` returns the values of the columns, and `thing` the object that is sampled.
        """
        found: dict[str, Callable[[T], Json]] = {}
        for name in names:
            found[f"message_stats.{name}"] = partial(counted, counts, places_of(columns, name))
            found.update(self.details_keys((name,), thing, "message_stats."))
        return found

    def details_keys(self, names: Sequence[str], thing: Callable[[T], object], prefix: str = "") -> Fields[T]:
        """Return the parts of details to sort by."""
        return {
            f"{prefix}{name}_details.{part}": partial(self._detail, thing, name, part)
            for name in names
            for part in ("rate", "avg_rate", "avg")
        }

    # Series and samples.

    def _detail(self, thing: Callable[[T], object], name: str, part: str, each: T) -> Json:
        series = self._series(thing(each))
        if part == "rate":
            return 0.0 if self._history is None or series is None else self._rate(self._history, series, name)
        return self._details(series, name).get(part)

    def _series(self, thing: object) -> Series | None:
        return None if self._history is None else self._history.series(thing)

    def _counted(
        self, series: Series | None, names: Sequence[str], columns: Sequence[str], counts: Sequence[int]
    ) -> dict[str, Json]:
        told: dict[str, Json] = dict.fromkeys(names, 0)
        if counts:
            for name, places in plan(columns, names):
                told[name] = counts[places[0]] if len(places) == 1 else sum([counts[at] for at in places])
        is_plain = self._messages is None and self._curved.isdisjoint(names)  # no curves
        if is_plain and (series is None or not self._has_changed(series)):
            told.update(still(names))  # as most
        else:
            told.update({f"{name}_details": self._details(series, name) for name in names})
        return told

    def _has_changed(self, series: Series) -> bool:
        """Return whether the last sample differs from the one before."""
        return self._history is not None and series.changed_at == self._history.tick

    def _layered(self, layers: Layers | None, names: Sequence[str]) -> dict[str, Json]:
        told: dict[str, Json] = {}
        for name in names:
            series = IDLE if layers is None else layers.back(1)
            told[name] = amount(series.last, series.columns, name)
            told[f"{name}_details"] = self._details(series, name, layers)
        return told

    def _details(self, series: Series | None, name: str, layers: Layers | None = None) -> dict[str, Json]:
        """Return rate and samples of a count. Older samples are in `layers`."""
        history, curve = self._history, self._others.get(name, self._messages)
        if history is None or (series is None and curve is None):
            return STILL
        series = series or IDLE
        details: dict[str, Json] = {"rate": self._rate(history, series, name)}
        if curve is not None:
            source = series if layers is None else layers.back(ceil(curve.age / history.interval_s))
            details.update(self._points(history, source, name, curve))
        return details

    def _rate(self, history: History, series: Series, name: str) -> float:
        if not self._has_changed(series):
            return 0.0
        now, before = series.last, series.at(history.tick - 1)
        rise = sum([now[at] - before[at] for at in places_of(series.columns, name)])
        return (rise if name in self._others else max(0, rise)) / history.interval_s  # counts may begin anew

    def _points(self, history: History, series: Series, name: str, curve: Curve) -> dict[str, Json]:
        """Return the samples of a curve, the newest first, with averages; none from before the node started."""
        times_ms, rows = self._rows(history, series, curve)
        places = places_of(series.columns, name)
        values = [sum([counts[at] for at in places]) if counts else 0 for counts in rows]
        spread_ms = times_ms[0] - times_ms[-1] if times_ms else 0
        return {
            "samples": [
                {"sample": value, "timestamp": time_ms}
                for value, time_ms in zip(values, times_ms, strict=True)
            ],
            "avg_rate": (values[0] - values[-1]) * 1000 / spread_ms if spread_ms else 0.0,
            "avg": sum(values) / max(1, len(values)),
        }

    def _rows(self, history: History, series: Series, curve: Curve) -> tuple[list[int], list[Sequence[int]]]:
        """Return the times of a curve's points, and the samples of then; the same for all columns of a series."""
        if curve not in self._points_of:
            last_at = self._wall - history.ago_s(history.tick)  # of the last sample, seconds since the epoch
            newest = last_at // curve.apart * curve.apart
            times = [newest - curve.apart * back for back in range(curve.age // curve.apart + 1)]
            ticks = [history.tick - ceil((last_at - time) / history.interval_s) for time in times]
            since = sum(tick >= FIRST_TICK for tick in ticks)  # the newest come first
            self._points_of[curve] = [round(time * 1000) for time in times[:since]], ticks[:since]
        times_ms, ticks = self._points_of[curve]
        if self._last is None or self._last[:2] != (series, curve):
            self._last = series, curve, [series.at(tick) for tick in ticks]
        return times_ms, self._last[2]


def counted(counts: Callable[[T], Sequence[int]], places: Sequence[int], each: T) -> int:
    found = counts(each)
    return sum([found[at] for at in places]) if found else 0


def amount(counts: Sequence[int], columns: Sequence[str], name: str) -> int:
    """Return a count, or a sum of counts, or 0 if the thing does not count it."""
    return sum([counts[at] for at in places_of(columns, name)]) if counts else 0


@cache
def places_of(columns: Sequence[str], name: str) -> Sequence[int]:
    """Return the index of a count, or those of the counts that it sums up."""
    return [columns.index(each) for each in SUMS.get(name, (name,)) if each in columns]


@cache
def plan(columns: Sequence[str], names: Sequence[str]) -> Sequence[tuple[str, Sequence[int]]]:
    """Return the indexes of many counts, at a third of the time."""
    return [(name, places_of(columns, name)) for name in names]


@cache
def still(names: Sequence[str]) -> Mapping[str, Json]:
    """Return the details of counts that do not change."""
    return {f"{name}_details": STILL for name in names}
