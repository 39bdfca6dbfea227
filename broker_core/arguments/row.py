"""The row of one thing that can be asked for by name: its check, what it does here, and a sentence for people."""

from __future__ import annotations

from enum import Enum
from typing import TypeVar

import attrs

from leveret.arguments.checks import Check, anything
from leveret.values import Value


class Effect(Enum):
    """The effect that asking for something has here."""

    IMPLEMENTED = "implemented"
    REFUSED = "refused"  # with an error that names it
    NO_EFFECT = "no effect"  # it is accepted and kept, and whoever asks for it is warned


@attrs.frozen(kw_only=True)
class Row:
    """One argument, policy key, parameter or record.

    `about` is one sentence for the documentation. `instead` says what to use where it has no effect or is refused.
    `inert` are values that ask for what happens anyway.
    """

    name: str
    about: str
    check: Check = anything
    effect: Effect = Effect.IMPLEMENTED
    instead: str = ""
    inert: tuple[Value, ...] = ()


R = TypeVar("R", bound=Row)


def by_name(*rows: R) -> dict[str, R]:
    """Return a table of rows by their names. Raises ValueError if two have one name."""
    table = {row.name: row for row in rows}
    if len(table) < len(rows):
        raise ValueError("two rows have one name")
    return table


@attrs.frozen
class Section:
    """The rows of one kind of thing, with a heading and a sentence for the documentation."""

    title: str
    about: str
    rows: tuple[Row, ...]
