"""The selector of a binding: a condition that messages have to meet, besides what the exchange's type demands.

    x-filter-jms-selector = "price > 10 AND color = 'red'"

The argument and its language are those of Apache Qpid (Broker-J, "Exchanges": JMS selectors on bindings). It is an
argument of bindings from exchanges of every type. Bindings that differ in nothing but the selector are two bindings.
"""

from __future__ import annotations

from typing import Final

from leveret.errors import PreconditionFailed
from leveret.selectors.conditions import Literal
from leveret.selectors.parser import Selector, compile_selector
from leveret.values import Table, type_name

SELECTOR: Final = "x-filter-jms-selector"
NOTHING: Final = Selector("FALSE", Literal(False))  # of a restored binding whose selector cannot be read


def selector_in(arguments: Table) -> Selector | None:
    """Return the selector in a binding's arguments, if there is one. Raises PreconditionFailed if it is wrong."""
    if SELECTOR not in arguments:
        return None
    text = arguments[SELECTOR]
    if isinstance(text, bytes):
        text = text.decode("utf-8", "replace")
    if not isinstance(text, str):
        raise PreconditionFailed(f"{SELECTOR} is of type {type_name(text)}, not a string")
    if not text.strip():
        return None  # an empty selector selects everything (Jakarta Messaging 3.1, section 3.8.1)
    try:
        return compile_selector(text)
    except PreconditionFailed as error:
        raise PreconditionFailed(f"the selector of the binding is wrong: {error}") from None
