"""Match names by a text within them, or by a regular expression that is quick whatever it says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from leveret.errors import PreconditionFailed
from leveret.selectors.expressions import Expression

LENGTH_MAX: Final = 200


def name_filter(wanted: str, is_expression: bool) -> Callable[[str], bool]:
    """Return a function that tells whether a name contains the text or a match of the expression. Case does not matter.

    Raises PreconditionFailed if the text is too long, or the expression is not supported.
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
