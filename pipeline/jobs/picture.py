"""Draw counts of dead letters: a bar for each period, a colour for each queue and reason."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from leveret.pipeline.errors import BadOption, PipelineError
from leveret.pipeline.jobs.dead_letters import Count, by_time

SUFFIXES: Final = (".svg", ".png", ".pdf")
PERIODS: Final[Mapping[str, timedelta]] = {
    "minute": timedelta(minutes=1),
    "hour": timedelta(hours=1),
    "day": timedelta(days=1),
}
SERIES_MAX: Final = 12  # distinguishable colours; the smallest series share the last one
INCHES: Final = (10, 5)


class NoCharts(PipelineError):  # noqa: N818 - a state of affairs
    """Raised when the package is not installed."""


def require(file: Path) -> None:
    """Check the type of the file, and that matplotlib is installed. Raises NoCharts, BadOption."""
    if file.suffix.lower() not in SUFFIXES:
        raise BadOption(f"a picture is written as {', '.join(SUFFIXES)}, not as '{file.name}'")
    if find_spec("matplotlib") is None:
        raise NoCharts("matplotlib is not installed: `pip install 'leveret[charts]'`")


Series = dict[str, dict[datetime, int]]


def series(counts: Sequence[Count]) -> Series:
    """Return messages by time of each queue and reason, the largest first; those beyond the colours become `others`."""
    found: Series = {}
    for died, queue, reason, messages in by_time(counts):
        times = found.setdefault(f"{queue}: {reason}", {})
        times[died] = times.get(died, 0) + messages
    largest_first = sorted(found.items(), key=lambda item: (-sum(item[1].values()), item[0]))
    if len(largest_first) <= SERIES_MAX:
        return dict(largest_first)
    shown = dict(largest_first[: SERIES_MAX - 1])
    others = shown["others"] = {}
    for _, times in largest_first[SERIES_MAX - 1 :]:
        for died, messages in times.items():
            others[died] = others.get(died, 0) + messages
    return shown


def draw(counts: Sequence[Count], period: str, file: Path) -> None:
    """Draw the counts into a file. Raises NoCharts, BadOption, OSError."""
    require(file)
    from matplotlib import colormaps
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter, date2num
    from matplotlib.figure import Figure

    figure = Figure(INCHES, layout="constrained")
    axes = figure.subplots()
    found = series(counts)
    times = sorted({died for each in found.values() for died in each})
    days = [float(date2num(died)) for died in times]  # type: ignore[no-untyped-call]
    width = PERIODS[period] / timedelta(days=1) * 0.9
    below = [0] * len(times)
    colours = colormaps["tab20"]
    for place, (name, messages) in enumerate(found.items()):
        heights = [messages.get(died, 0) for died in times]
        axes.bar(days, heights, width, bottom=below, label=name, color=colours(place), align="edge")
        below = [a + b for a, b in zip(below, heights, strict=True)]
    axes.set_title(f"Dead letters per {period}, by queue and reason")
    axes.set_ylabel("messages")
    if found:
        ticks = AutoDateLocator()  # type: ignore[no-untyped-call]
        axes.xaxis.set_major_locator(ticks)
        axes.xaxis.set_major_formatter(ConciseDateFormatter(ticks))  # type: ignore[no-untyped-call]
        figure.legend(loc="outside right upper", reverse=True)  # in the order of the stacked bars
    figure.savefig(file)
