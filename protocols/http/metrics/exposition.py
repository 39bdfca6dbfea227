"""Write metrics as text in Prometheus' format 0.0.4 or in OpenMetrics 1.0.

    # HELP rabbitmq_queues Queues.
    # TYPE rabbitmq_queues gauge
    rabbitmq_queues 3

The two differ in the names of counters, in the word for a metric without a type, and in the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

import attrs

from leveret.observability.metric import COUNTER, UNTYPED
from leveret.protocols.shared.machine.pieces import Pieces

PLAIN: Final = "text/plain; version=0.0.4; charset=utf-8"
OPEN_METRICS: Final = "application/openmetrics-text; version=1.0.0; charset=utf-8"

TOTAL: Final = "_total"


@attrs.frozen
class Family:
    """A metric, which has a sample for each set of labels. Names of counters end in `_total`."""

    name: str
    kind: str
    help: str

    @property
    def detailed(self) -> Family:
        """Return the family under its name at `/metrics/detailed`, so that both can be scraped."""
        first, _, rest = self.name.partition("_")
        if first == "process" or rest.startswith("cluster_"):
            return self
        return attrs.evolve(self, name=f"{first}_detailed_{rest}")


class Exposition:
    """The text of an answer, family by family."""

    __slots__ = ("_made", "_open_metrics")

    def __init__(self, open_metrics: bool) -> None:
        self._open_metrics = open_metrics
        self._made = Pieces()

    @property
    def content_type(self) -> str:
        return OPEN_METRICS if self._open_metrics else PLAIN

    def family(self, family: Family, samples: Iterable[str]) -> None:
        """Add a family with all its samples, which are lines of `sample`. To be called once for each family."""
        name, kind = family.name, family.kind
        if self._open_metrics:
            name, kind = name.removesuffix(TOTAL) if kind == COUNTER else name, OPEN_KINDS.get(kind, kind)
        head = f"# HELP {name} {escaped_help(family.help)}\n# TYPE {name} {kind}\n"
        self._made.add((head + "".join(samples)).encode())

    def pieces(self) -> list[bytes]:
        """Return the whole text as pieces. Nothing may be added afterwards."""
        if self._open_metrics:
            self._made.add(b"# EOF\n")
        return self._made.pieces()


OPEN_KINDS: Final = {UNTYPED: "unknown"}


def sample(name: str, labels: str, value: float) -> str:
    """Return a line. `labels` is what `labelled` returned."""
    return f"{name}{labels} {value}\n"


def labelled(labels: Mapping[str, str]) -> str:
    """Return labels as they stand behind a name, with quotes in values escaped."""
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{escaped(value)}"' for name, value in labels.items()) + "}"


def escaped(value: str) -> str:
    """Escape a label's value, and the lone surrogates of names from the wire, which UTF-8 cannot encode."""
    if not value.isascii():
        value = value.encode("utf-8", "backslashreplace").decode()
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def escaped_help(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def wants_open_metrics(accept: str) -> bool:
    """Return whether a header Accept (RFC 9110, 12.5.1) prefers OpenMetrics; of equals, the first counts."""
    ranked: dict[bool, float] = {}
    for each in accept.split(","):
        kind, *parameters = (part.strip().lower() for part in each.split(";"))
        if kind in ("application/openmetrics-text", "text/plain", "text/*", "*/*"):
            ranked.setdefault(kind == "application/openmetrics-text", quality(parameters))
    return max(ranked, key=lambda is_open: ranked[is_open], default=False) and ranked[True] > 0


def quality(parameters: Iterable[str]) -> float:
    """Return the weight `q` among a range's parameters, 0 if it is not a number."""
    for each in parameters:
        name, _, value = each.partition("=")
        if name.strip() == "q":
            try:
                return min(max(float(value), 0.0), 1.0)
            except ValueError:
                return 0.0
    return 1.0
