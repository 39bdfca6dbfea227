"""Decide when a load is over, and sum up the samples of all workers. No clock: each sample has its time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import attrs

from leveret.perf.histogram import Histogram
from leveret.perf.pace import SECOND
from leveret.perf.plan import Plan
from leveret.perf.worker import Order, Sample

COUNTS: Final = ("sent", "received", "confirmed", "refused", "returned")


@attrs.frozen
class Second:
    """The counts and times of about a second, and its exact length."""

    elapsed_s: float
    length_s: float
    warming: bool
    counts: dict[str, int]
    delivery_times: Histogram
    confirm_times: Histogram

    def rate(self, what: str) -> float:
        return self.counts[what] / self.length_s


@attrs.frozen
class Outcome:
    """The result of a load.

    `counts` are totals; `measured` are those after the warm-up, in `seconds_s`. `whole` is false if it was interrupted.
    """

    counts: dict[str, int]
    measured: dict[str, int]
    seconds_s: float
    seconds: Sequence[Second]
    delivery_times: Histogram
    confirm_times: Histogram
    whole: bool


class Conductor:
    """Gathers the workers' samples and gives them orders. `on_second` is called once a second."""

    def __init__(self, plan: Plan, on_second: Callable[[Second], None]) -> None:
        self._plan = plan
        self._on_second = on_second
        self._latest: dict[int, Sample] = {}
        self._order = Order.GO
        self._started_ns = 0
        self._measured_from: tuple[int, dict[str, int]] | None = None
        self._measured_to: tuple[int, dict[str, int]] | None = None
        self._moved_ns = 0  # when a message or confirm last arrived
        self._seconds: list[Second] = []
        self._second_from: tuple[int, dict[str, int]] = (0, dict.fromkeys(COUNTS, 0))
        self._second_times = Histogram(), Histogram()
        self._times = Histogram(), Histogram()
        self._interrupted = False

    def start(self, now: int) -> None:
        self._started_ns = self._moved_ns = now
        self._second_from = now, dict.fromkeys(COUNTS, 0)
        if not self._plan.warm_up_s:
            self._measured_from = self._second_from

    def interrupt(self) -> None:
        """End the load early, with its results so far."""
        self._interrupted = True

    def take(self, sample: Sample) -> Order:
        before = self._latest.get(sample.worker)
        self._latest[sample.worker] = sample
        now = sample.now_ns
        if before is None or sample.received != before.received or sample.confirmed != before.confirmed:
            self._moved_ns = now
        for kind, times in enumerate((sample.delivery_times, sample.confirm_times)):
            self._second_times[kind].merge(times)
            if self._measured_from is not None and self._measured_to is None:
                self._times[kind].merge(times)
        self._warm_up(now)
        if now >= self._second_from[0] + SECOND:
            self._tell_second(now)
        self._order = self._next_order(now)
        return self._order

    def _counts(self) -> dict[str, int]:
        return {what: sum(getattr(each, what) for each in self._latest.values()) for what in COUNTS}

    def _warm_up(self, now: int) -> None:
        if self._measured_from is None and now >= self._started_ns + self._plan.warm_up_s * SECOND:
            self._measured_from = now, self._counts()

    def _tell_second(self, now: int) -> None:
        began, before = self._second_from
        counts = self._counts()
        told = Second(
            (now - self._started_ns) / SECOND,
            (now - began) / SECOND,
            self._measured_from is None or self._measured_from[0] > began,
            {what: counts[what] - before[what] for what in COUNTS},
            *self._second_times,
        )
        self._second_from = now, counts
        self._second_times = Histogram(), Histogram()
        if self._order is Order.GO:
            self._seconds.append(told)
        self._on_second(told)

    def _next_order(self, now: int) -> Order:
        plan = self._plan
        if self._order is Order.END:
            return Order.END
        over = plan.time_s and now >= self._started_ns + (plan.warm_up_s + plan.time_s) * SECOND
        all_here = len(self._latest) == plan.processes
        done = all_here and all(each.done for each in self._latest.values())
        if not plan.publishers:
            done = 0 < plan.messages <= self._counts()["received"]
        if self._order is Order.GO and (over or self._interrupted):
            self._measured_to = now, self._counts()
            return Order.STOP
        if not done and self._order is Order.GO:
            return Order.GO
        if done and self._has_all_come():
            return Order.END
        silent = now >= self._moved_ns + plan.drain_s * SECOND
        return Order.END if silent or (self._interrupted and not plan.verify) else Order.STOP

    def _has_all_come(self) -> bool:
        """Return whether all messages have arrived, as far as that can be known."""
        plan = self._plan
        if not plan.consumers or not plan.publishers:
            return True
        counts = self._counts()
        if not plan.copies:
            return False
        return counts["received"] >= (counts["sent"] - counts["refused"] - counts["returned"]) * plan.copies

    def outcome(self) -> Outcome:
        counts = self._counts()
        latest = self._latest.values()
        zero = min((each.first_ns for each in latest if each.first_ns), default=self._started_ns)
        began, before = self._measured_from or (self._started_ns, dict.fromkeys(COUNTS, 0))
        if began == self._started_ns:
            began = zero
        ended, after = self._measured_to or (max((each.last_ns for each in latest), default=0), counts)
        return Outcome(
            counts,
            {what: after[what] - before[what] for what in COUNTS},
            max(ended - began, 1) / SECOND,
            self._seconds,
            *self._times,
            not self._interrupted,
        )
