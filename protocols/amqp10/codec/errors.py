"""The errors of an AMQP 1.0 connection, each with the scope that it ends.

This module is not compiled, because a handler for a compiled exception class does not catch subclasses in plain Python.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from leveret.protocols.amqp10.codec.types import Value

Condition: TypeAlias = str  # "amqp:not-found"; the symbols of part 2, section 2.8, and part 4, section 4.5.8


class Ends(IntEnum):
    """The scope that an error ends."""

    LINK = 1  # detach, closed, with the error; an attach that is refused is answered first (S177)
    SESSION = 2  # end with the error
    CONNECTION = 3  # close with the error


# What compiled code names: until Python 3.12 it takes 0.3 us to look a member of an enumeration up.
LINK: Final = Ends.LINK
SESSION: Final = Ends.SESSION
CONNECTION: Final = Ends.CONNECTION


class AmqpError(Exception):
    """An error as the peer gets it: a condition, a description, and perhaps a map of details."""

    def __init__(
        self,
        condition: Condition,
        description: str,
        ends: Ends = Ends.LINK,
        info: dict[str, Value] | None = None,
    ) -> None:
        super().__init__(condition, description)
        self.condition = condition
        self.description = description
        self.ends = ends
        self.info = info  # keys are encoded as symbols
