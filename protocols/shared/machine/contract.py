"""What the machine of a connection needs from outside, whatever version of AMQP it speaks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from enum import Enum

from mypy_extensions import mypyc_attr


@mypyc_attr(allow_interpreted_subclasses=True)
class Writer(ABC):
    """Where a connection puts what it sends. Nothing is sent before the call returns, and the order is kept."""

    __slots__ = ()

    @abstractmethod
    def write(self, data: bytes) -> None:
        """Take one or more whole frames, or a part of one; must not call the connection."""

    @abstractmethod
    def open(self) -> list[bytes]:
        """Return the list to append pieces to, each as if written; `wrote` must follow."""

    @abstractmethod
    def wrote(self, count: int) -> None:
        """`count` bytes were appended to the list that `open` gave."""

    @abstractmethod
    def written(self) -> int:
        """Return a number that rises with everything written here: two equal ones mean an idle line."""

    def full(self) -> bool:
        """Return whether more waits for the peer than it can be owed: the connection halts after the current frame."""
        return False

    def room(self) -> int:
        """Return how many bytes may still be written before deliveries ought to wait."""
        return 1 << 20


class Wait(Enum):
    """An answer that is still to come: a password is being checked elsewhere."""

    WAIT = "wait"
