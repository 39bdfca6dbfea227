"""The interfaces that a connection's machine of any version of AMQP needs from outside."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from enum import Enum
from typing import Final

from mypy_extensions import mypyc_attr

SIZE_SETTING: Final = " (limits.message_size_max)"  # where the limit is set, for those that read an error


@mypyc_attr(allow_interpreted_subclasses=True)
class Writer(ABC):
    """The output of a connection. Nothing is sent before the call returns, and the order is kept."""

    __slots__ = ()

    @abstractmethod
    def write(self, data: bytes) -> None:
        """Take one or more whole frames, or a part of one. It must not call the connection."""

    @abstractmethod
    def open(self) -> list[bytes]:
        """Return the list to append pieces to, each as if written; a call of `wrote` must follow."""

    @abstractmethod
    def wrote(self, count: int) -> None:
        """Account for `count` bytes that were appended to the list from `open`."""

    @abstractmethod
    def written(self) -> int:
        """Return a number that rises with everything written here: two equal numbers mean an idle line."""

    def is_enough(self) -> bool:
        """Return whether the connection halts after its current frame: too many bytes wait for the peer, or it is the
        turn of other connections."""
        return False

    def room(self) -> int:
        """Return how many bytes may still be written before deliveries ought to wait."""
        return 1 << 20

    def shut(self) -> None:
        """Called when the connection ends: from now on there is no room for deliveries."""

    def in_portions(self, step: Callable[[], bool]) -> None:
        """Take steps until one returns False: at once or, if there are many, in turn with the work of others.

        The connection handles no input meanwhile; when it may go on, it receives something, which may be no bytes.
        """
        while step():
            pass


class Wait(Enum):
    """The answer while a password is being checked elsewhere; the real answer comes later."""

    WAIT = "wait"
