"""What went wrong on a connection, and how much that ends.

Not compiled: what handles an error of a compiled class takes no subclass of it that is plain Python.
"""

from __future__ import annotations

from enum import IntEnum
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from protocols.amqp10.codec.types import Value

Condition: TypeAlias = str  # "amqp:not-found"; the symbols of part 2, section 2.8, and part 4, section 4.5.8


class Ends(IntEnum):
    """What an error ends."""

    LINK = 1  # detach, closed, with the error; an attach that is refused is answered first (S177)
    SESSION = 2  # end with the error
    CONNECTION = 3  # close with the error


class AmqpError(Exception):
    """What went wrong, as the peer is told: a condition, a sentence, and perhaps a map of details."""

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
        self.info = info  # keys go out as symbols
