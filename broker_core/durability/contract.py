"""What has messages in the store, and what is known there of each of them.

Holder   a queue, or what an exchange holds: it has a number in the store
Entry    one of its messages, which has a number there, too, once it is written
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar, Protocol, TypeAlias

from mypy_extensions import mypyc_attr

if TYPE_CHECKING:
    from broker_core.message import Message
    from broker_core.store.contract import Page


class Holder(Protocol):
    """What keeps messages in the store. Its restored ones come back before anything else is asked of it."""

    number: int  # in the store
    ranked: ClassVar[bool]  # priorities may matter; else everything is one priority

    @property
    def described(self) -> str:
        """The holder as error texts name it."""

    def rank(self, priority: int) -> int:
        """In which line messages of this priority stand; what stands in one comes back as one."""

    def restore(self, priority: int, pages: Sequence[Page]) -> None:
        """These waited when the node ended, oldest first. Called once for each line that has some, or, without
        priorities, once in any case.
        """

    def marked(self) -> Iterable[tuple[int, int]]:
        """Entries that were delivered before, and how often that failed. Asked when everything has come back."""


@mypyc_attr(allow_interpreted_subclasses=True, acyclic=True)
class Entry:
    """A message in its place with a holder, which the store may have. Compiled, the garbage collector passes it by."""

    __slots__ = ("expires_at", "message", "position", "stored")

    def __init__(self, message: Message, position: int, expires_at: float) -> None:
        self.message = message
        self.position = position  # order of arrival with its holder; kept when the message comes back
        self.expires_at = expires_at  # monotonic seconds
        self.stored = 0  # its number in the store, or PENDING; 0: it is not there

    def holder(self) -> Holder:
        """Return what has it."""
        raise NotImplementedError


Stored: TypeAlias = "tuple[int, int, float, Message]"
"""What is read back of an entry: its number in the store, position, expiry (monotonic seconds), and message."""
