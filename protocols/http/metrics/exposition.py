"""Metrics as text: families, labels and values in Prometheus' format 0.0.4, or in OpenMetrics 1.0.

    # HELP rabbitmq_queues Queues that there are.
    # TYPE rabbitmq_queues gauge
    rabbitmq_queues 3

The two differ in how they call counters, in the word for what has no type, and in the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import attrs

from protocols.shared.pieces import Gathered

PLAIN: Final = "text/plain; version=0.0.4; charset=utf-8"
OPEN_METRICS: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"

COUNTER, GAUGE, UNTYPED = "counter", "gauge", "untyped"
TOTAL: Final = "_total"


@attrs.frozen
class Family:
    """One metric, of which there is a sample for each set of labels. Counters' names end in `_total`."""

    name: str
    kind: str
    help: str

    @property
    def detailed(self) -> Family:
        """The same under the name that it has at `/metrics/detailed`, so that both can be scraped."""
        first, _, rest = self.name.partition("_")
        if first == "process" or rest.startswith("cluster_"):
            return self
        return attrs.evolve(self, name=f"{first}_detailed_{rest}")


class Exposition:
    """An answer in the making."""

    __slots__ = ("_made", "_open_metrics")

    def __init__(self, open_metrics: bool) -> None:
        self._open_metrics = open_metrics
        self._made = Gathered()

    @property
    def content_type(self) -> str:
        return OPEN_METRICS if self._open_metrics else PLAIN

    def family(self, family: Family, samples: Iterable[str]) -> None:
        """A whole family. Samples are `sample` lines; a family stands in one place, so this is said once for each."""
        name, kind = family.name, family.kind
        if self._open_metrics:
            name, kind = name.removesuffix(TOTAL) if kind == COUNTER else name, OPEN_KINDS.get(kind, kind)
        head = f"# HELP {name} {escaped_help(family.help)}\n# TYPE {name} {kind}\n"
        self._made.add((head + "".join(samples)).encode())

    def pieces(self) -> list[bytes]:
        """All of it; nothing is added any more."""
        if self._open_metrics:
            self._made.add(b"# EOF\n")
        return self._made.pieces()


OPEN_KINDS: Final = {UNTYPED: "unknown"}


def sample(name: str, labels: str, value: float) -> str:
    """A line. `labels` as `labelled` wrote them."""
    return f"{name}{labels} {value}\n"


def labelled(labels: Mapping[str, str]) -> str:
    """Labels as they stand behind a name; whatever is in a value, it stays in its quotes."""
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{escaped(value)}"' for name, value in labels.items()) + "}"


def escaped(value: str) -> str:
    """Halves of characters, which names from the wire may have, are written as escapes: UTF-8 cannot say them."""
    if not value.isascii():
        value = value.encode("utf-8", "backslashreplace").decode()
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def escaped_help(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def wants_open_metrics(accept: str) -> bool:
    """Whether a header Accept (RFC 9110, 12.5.1) prefers OpenMetrics; of equals, the one that is said first."""
    ranked: dict[bool, float] = {}
    for each in accept.split(","):
        kind, *parameters = (part.strip().lower() for part in each.split(";"))
        if kind in ("application/openmetrics-text", "text/plain", "text/*", "*/*"):
            ranked.setdefault(kind == "application/openmetrics-text", quality(parameters))
    return max(ranked, key=lambda is_open: ranked[is_open], default=False) and ranked[True] > 0


def quality(parameters: Iterable[str]) -> float:
    """The weight `q` among a range's parameters, 0 for one that is no number."""
    for each in parameters:
        name, _, value = each.partition("=")
        if name.strip() == "q":
            try:
                return min(max(float(value), 0.0), 1.0)
            except ValueError:
                return 0.0
    return 1.0
