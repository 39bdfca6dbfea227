"""Print rows of a table: the same done by several brokers in turn, with median, spread, and the ratio by round."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence

from benchmarks.brokers import Running

BREATH_S = 0.3  # so that a broker's remaining work does not fall into the next measurement


def head(title: str, brokers: Sequence[Running]) -> None:
    names = [broker.name for broker in brokers]
    print(f"| {title} | {' | '.join(names)} | {'ratio |' if len(names) > 1 else ''}")
    print(f"|---|{'---:|' * (len(names) + (len(names) > 1))}")


def row(title: str, brokers: Sequence[Running], rounds: int, measure: Callable[[Running], float]) -> None:
    rates: dict[str, list[float]] = {broker.name: [] for broker in brokers}
    for each in range(rounds + 1):
        for broker in brokers if each % 2 else reversed(brokers):
            rate = measure(broker)
            if each:  # the first round warms up
                rates[broker.name].append(rate)
            time.sleep(BREATH_S)
    cells = [spread(found) for found in rates.values()]
    if len(rates) > 1:
        ours, theirs = rates.values()
        cells.append(f"{statistics.median(a / b for a, b in zip(ours, theirs, strict=True)):.2f}")
    print(f"| {title} | {' | '.join(cells)} |", flush=True)


def spread(found: Sequence[float], digits: int = 0) -> str:
    """Format median, lowest and highest."""
    return f"{statistics.median(found):,.{digits}f} ({min(found):,.{digits}f} to {max(found):,.{digits}f})"
