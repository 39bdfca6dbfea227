"""Metrics that a guest of the broker has (`Guest.metrics`), neutral of the format in which they are shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import attrs

COUNTER: Final = "counter"  # never decreases; its name ends in `_total`
GAUGE: Final = "gauge"
UNTYPED: Final = "untyped"


@attrs.frozen
class Metric:
    """A metric, with a value for each set of labels."""

    name: str
    kind: str
    help: str
    samples: Sequence[tuple[Mapping[str, str], float]]
