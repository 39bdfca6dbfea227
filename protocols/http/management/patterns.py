"""Names that are looked for: a text to find in them, or a regular expression, which is quick whatever it says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from broker_core.errors import PreconditionFailed
from broker_core.selectors.expressions import Expression

LENGTH_MAX: Final = 200


def name_filter(wanted: str, is_expression: bool) -> Callable[[str], bool]:
    """Whether a name has the wanted text in it, or the expression matches a part of it. Capitals do not matter.

    Raises PreconditionFailed.
    """
    if not wanted:
        return lambda name: True
    if len(wanted) > LENGTH_MAX:
        raise PreconditionFailed(f"the name to look for has more than {LENGTH_MAX} characters")
    if not is_expression:
        folded = wanted.casefold()
        return lambda name: folded in name.casefold()
    try:
        return Expression(wanted, ignore_case=True).found_in
    except ValueError as error:
        raise PreconditionFailed(f"the expression '{wanted}' cannot be looked for: {error}") from None
