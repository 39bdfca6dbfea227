"""The settings of answers that are remembered, in the sections about servers that are asked about logins."""

from __future__ import annotations

from leveret.config.records import key
from leveret.config.types import Flag, Whole


def cache_s() -> int:
    """Return the field that says how long an answer is remembered, in seconds."""
    return key(
        Whole(0, 86_400),
        "Seconds that an answer is remembered; 0: it is not. Fewer where changes have to hold sooner, more to ask "
        "less often.",
        60,
        reload=True,
    )


def cache_refusals() -> bool:
    """Return the field that says whether refusals are remembered, too."""
    return key(
        Flag(),
        "Whether refusals are remembered, too. True where clients that are refused keep asking.",
        False,
        reload=True,
    )
