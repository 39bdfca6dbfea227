"""Names that are looked for: a text to find in them, or a regular expression, which must not take long.

Python's `re` goes back and tries again, which in nested repetitions takes exponential time; and it runs to its end
while nobody else has a turn. So an expression is weighed before it is tried: each choice in it doubles the ways to go,
each repetition takes as many ways as a name is long, and what could take too many is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from broker_core.errors import PreconditionFailed

LENGTH_MAX: Final = 200
REPETITION: Final = 7  # a name has at most 255 octets; as a power of two
WEIGHT_MAX: Final = (
    2 * REPETITION
)  # 255 beginnings, two repetitions: 3 million steps, 20 ms, for the worst of names
PARTS: Final = re.compile(
    r"""
    (?P<literal> \\[^0-9] | \[\^?\]?(?:\\.|[^\]\\])*\] )
  | (?P<group>   \)(?:[*+?]|\{)  )
  | (?P<special> \\[0-9] | \(\?(?!:) )
  | (?P<repeat>  [*+]\??\+? | \{[0-9,]*\}\?? )
  | (?P<choice>  [|?] )
    """,
    re.VERBOSE,
)


def name_filter(wanted: str, is_expression: bool) -> Callable[[str], bool]:
    """Whether a name has the wanted text in it, or the expression matches a part of it. Capitals do not matter.

    Raises PreconditionFailed.
    """
    if not wanted:
        return lambda name: True
    if len(wanted) > LENGTH_MAX:
        raise PreconditionFailed(f"the name to look for has more than {LENGTH_MAX} characters")
    if is_expression:
        search = expression(wanted).search
        return lambda name: search(name) is not None
    folded = wanted.casefold()
    return lambda name: folded in name.casefold()


def expression(wanted: str) -> re.Pattern[str]:
    """A regular expression that is quick on every name. Raises PreconditionFailed."""
    if weight(trimmed(wanted)) > WEIGHT_MAX:
        raise PreconditionFailed(
            f"the expression '{wanted}' could take too long: at most two repetitions, none of a group"
        )
    try:
        return re.compile(wanted, re.IGNORECASE)
    except (re.error, OverflowError) as error:
        raise PreconditionFailed(f"'{wanted}' is no regular expression: {error}") from None


def trimmed(wanted: str) -> str:
    """Without what matches anything at either end, which takes no time."""
    return wanted.removeprefix("^").removeprefix(".*").removesuffix("$").removesuffix(".*")


def weight(wanted: str) -> int:
    """How many ways there may be to go through it, as a power of two."""
    total = 0
    for part in PARTS.finditer(wanted):
        match part.lastgroup:
            case "group" | "special":
                return WEIGHT_MAX + 1
            case "repeat":
                total += REPETITION
            case "choice":
                total += 1
    return total
