"""What has messages in the store, what is known there of each of them, and what the journal does for both.

Holder       a queue, or what an exchange holds: it has a number in the store
Entry        one of its messages, which has a number there, too, once it is written
Durability   the journal, as holders see it: told of what comes and goes, asked for what is on disk only
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar, Final, Protocol, TypeAlias

from mypy_extensions import mypyc_attr

if TYPE_CHECKING:
    from broker_core.message import Message
    from broker_core.queues.stream_log import Log
    from broker_core.store.contract import Page

PENDING: Final = -1  # the number of an entry that is on its way to the store


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

    __slots__ = ("attempts", "expires_at", "message", "position", "stored")

    def __init__(self, message: Message, position: int, expires_at: float) -> None:
        self.message = message
        self.position = position  # order of arrival with its holder; kept when the message comes back
        self.expires_at = expires_at  # monotonic seconds
        self.attempts = 0  # how often a consumer had it and failed
        self.stored = 0  # its number in the store, or PENDING; 0: it is not there

    def holder(self) -> Holder:
        """Return what has it."""
        raise NotImplementedError


Stored: TypeAlias = "tuple[int, int, float, Message]"
"""What is read back of an entry: its number in the store, position, expiry (monotonic seconds), and message."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Durability(ABC):
    """What holders tell of their entries, and ask for. What is told in one batch is on disk whole, or not at all."""

    arrivals: list[Entry]  # holders append what is to be written, with PENDING as its number
    settled: list[Entry]  # holders append what need not be kept any more
    written: int  # entries up to this number are on disk

    @abstractmethod
    def settle_numbers(self, numbers: Sequence[int]) -> None:
        """Settle entries that are in pages only."""

    @abstractmethod
    def attempted(self, entry: Entry) -> None:
        """Remember how often a consumer had it and failed."""

    @abstractmethod
    def revised(self, entry: Entry) -> None:
        """Write it anew: its message has been replaced by another."""

    @abstractmethod
    def page_out(self, entries: Sequence[Entry]) -> None:
        """Write these, which are not to outlive the node, so that they need not be in memory."""

    @abstractmethod
    def fetch(self, holder: Holder, page: Page) -> list[Stored]:
        """Return what the store has of a page, read at once. Damaged entries are logged and left out."""

    @abstractmethod
    def fetch_soon(self, holder: Holder, page: Page, then: Callable[[list[Stored]], None]) -> None:
        """As `fetch`, read by a thread; `then` is called in the broker's."""

    @abstractmethod
    def open_log(self, number: int, described: str, changed: Callable[[], None]) -> Log:
        """Return the log of a stream. `changed` is called when more of it is committed."""
