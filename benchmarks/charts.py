"""Draw rates: a group of bars for each line, a bar for each broker, with the spread, on a logarithmic axis."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path

COLOURS = ("#2a78b8", "#d97b29", "#5f9e5f", "#8a6bb0")
HEIGHT = 0.8  # of a group, of the room it has


def bars(path: Path, titles: Mapping[str, str], results: Mapping[str, Mapping[str, Sequence[float]]]) -> None:
    """Draw bars of messages per second. Needs the extra `charts`."""
    from matplotlib import rcParams
    from matplotlib.figure import Figure

    rcParams["svg.hashsalt"] = "leveret"
    names = list(next(iter(results.values())))
    figure = Figure(figsize=(9, 0.9 + 0.75 * len(results)), layout="constrained")
    axes = figure.subplots()
    height = HEIGHT / len(names)
    for place, name in enumerate(names):
        rates = [results[line][name] for line in results]
        medians = [statistics.median(each) for each in rates]
        below = [median - min(each) for median, each in zip(medians, rates, strict=True)]
        above = [max(each) - median for median, each in zip(medians, rates, strict=True)]
        at = [line + (place - (len(names) - 1) / 2) * height for line in range(len(results))]
        drawn = axes.barh(
            at,
            medians,
            height,
            label=name,
            color=COLOURS[place % len(COLOURS)],
            xerr=(below, above),
            ecolor="#555555",
        )
        axes.bar_label(drawn, [f"{median:,.0f}" for median in medians], padding=4, fontsize=8)
    axes.set_yticks(range(len(results)), [titles[line] for line in results])
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.set_xlabel("messages per second (logarithmic)")
    axes.margins(x=0.12)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="lower right")
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
