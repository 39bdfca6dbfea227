"""Report a load: a line each second, a summary for people, and the same as JSON (docs/perf.md)."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import IO, Final

from leveret.perf.conductor import Outcome, Second
from leveret.perf.histogram import Histogram
from leveret.perf.plan import Plan
from leveret.perf.sequence_check import Account
from leveret.perf.worker import Sight

Told = Mapping[str, object]
PERCENTILES: Final = (50, 75, 95, 99, 99.9)
NAMES: Final = ("p50", "p75", "p95", "p99", "p99.9")
SCHEMA: Final = 1  # changes when a field goes, or means something else


class Lines:
    """Prints a line for each second."""

    def __init__(self, plan: Plan, out: IO[str]) -> None:
        self._plan = plan
        self._out = out

    def second(self, second: Second) -> None:
        parts = [f"{second.elapsed_s:5.0f} s{' (warming up)' if second.warming else ''}"]
        if self._plan.publishers:
            parts.append(f"sent {second.rate('sent'):,.0f}/s")
        if self._plan.confirms:
            parts.append(f"confirmed {second.rate('confirmed'):,.0f}/s {_short(second.confirm_times)}")
        if self._plan.consumers:
            parts.append(f"received {second.rate('received'):,.0f}/s {_short(second.delivery_times)}")
        for what in ("refused", "returned"):
            if second.counts[what]:
                parts.append(f"{what} {second.rate(what):,.0f}/s")
        print("  ".join(parts), file=self._out, flush=True)


def _short(times: Histogram) -> str:
    if not times.count:
        return ""
    p50, p99 = times.percentiles((50, 99))
    return f"(p50 {_ms(p50)}, p99 {_ms(p99)})"


def _ms(ns: float) -> str:
    """Format a time with three significant digits."""
    ms = ns / 1e6
    return f"{ms:,.0f} ms" if ms >= 100 else f"{ms:.1f} ms" if ms >= 10 else f"{ms:.3g} ms"


def verdict(plan: Plan, outcome: Outcome, sights: Sequence[Sight]) -> dict[str, int]:
    """Return how many messages were lost, duplicated and reordered, over all queues."""
    accounts: dict[str, Account] = {}
    sent: dict[int, int] = {}
    for sight in sights:
        sent.update(sight.sent)
        for queue, packed in sight.seen:
            accounts.setdefault(queue, Account()).add(packed)
    counts = outcome.counts
    lost = 0
    if plan.copies:
        excused = counts["refused"] + counts["returned"]
        lost = sum(max(0, account.lost(sent) - excused) for account in accounts.values())
    return {
        "lost": lost,
        "duplicated": sum(account.doubled for account in accounts.values()),
        "reordered": sum(account.reordered for account in accounts.values()),
    }


def told(plan: Plan, outcome: Outcome, verdict: Mapping[str, int] | None) -> Told:
    """Return the report as content for JSON. Times are microseconds, rates messages per second."""
    seconds = [each for each in outcome.seconds if not each.warming]
    return {
        "schema": SCHEMA,
        "plan": plan_told(plan),
        "whole": outcome.whole,
        "seconds": round(outcome.seconds_s, 6),
        "messages": outcome.counts,
        "rates": {
            what: {
                "mean": round(outcome.measured[what] / outcome.seconds_s, 1),
                "median": round(statistics.median([each.rate(what) for each in seconds]), 1)
                if seconds
                else None,
            }
            for what in ("sent", "received", "confirmed")
        },
        "delivery_us": percentiles(outcome.delivery_times),
        "confirm_us": percentiles(outcome.confirm_times),
        "verified": None if verdict is None else dict(verdict),
        "each_second": [
            {
                "elapsed": round(each.elapsed_s, 3),
                "warming_up": each.warming,
                **{what: round(each.rate(what), 1) for what in ("sent", "received", "confirmed")},
            }
            for each in outcome.seconds
        ],
    }


def plan_told(plan: Plan) -> dict[str, object]:
    """Return the options that tell loads apart, without the password."""
    return {
        "url": str(plan.url),
        "protocol": plan.protocol,
        "publishers": plan.publishers,
        "consumers": plan.consumers,
        "queues": plan.queues,
        "exchange": plan.exchange,
        "sizes": sorted(set(plan.sizes.octets)),
        "persistent": plan.persistent,
        "rate": [list(each) for each in plan.rate],
        "confirms": plan.confirms,
        "prefetch": plan.prefetch,
        "ack_every": plan.ack_every,
        "real": plan.real,
        "single_acks": plan.single_acks,
        "single_writes": plan.single_writes,
        "processes": plan.processes,
    }


def percentiles(times: Histogram) -> dict[str, float] | None:
    if not times.count:
        return None
    found = dict(zip(NAMES, times.percentiles(PERCENTILES), strict=True))
    all_ns = {"min": times.lowest, **found, "max": times.highest}
    return {"count": times.count, **{name: round(ns / 1000, 1) for name, ns in all_ns.items()}}


def text(told: Told) -> str:
    """Return the report as text for people."""
    head = f"{told['seconds']:.1f} s" + ("" if told["whole"] else " (interrupted)")
    if "churn" in told:
        lines = [head, f"{told['churn']}  {told['count']:,}  {told['rate']:,.0f}/s"]
        return "\n".join(lines + _times(told, opened="open_us", closed="close_us"))
    lines = [head, *_counts(told), *_times(told, delivery="delivery_us", confirm="confirm_us")]
    if isinstance(told["verified"], dict):
        found = ", ".join(f"{count:,} {what}" for what, count in told["verified"].items())
        lines.append(f"verified  {found}")
    return "\n".join(lines)


def _counts(told: Told) -> list[str]:
    rates, messages = told["rates"], told["messages"]
    assert isinstance(rates, dict)
    assert isinstance(messages, dict)
    lines = []
    for what in ("sent", "confirmed", "received"):
        if messages[what]:
            median = rates[what]["median"]
            behind = "" if median is None else f", median of the seconds {median:,.0f}/s"
            lines.append(f"{what:<10}{messages[what]:>14,}  {rates[what]['mean']:>12,.0f}/s{behind}")
    return lines + [f"{what:<10}{messages[what]:>14,}" for what in ("refused", "returned") if messages[what]]


def _times(told: Told, **keys: str) -> list[str]:
    lines = []
    for title, key in keys.items():
        times = told[key]
        if isinstance(times, dict):
            shown = ", ".join(f"{name} {_ms(us * 1000)}" for name, us in times.items() if name != "count")
            lines.append(f"{title:<10}{shown}")
    return lines
