"""Sources of rows for publication: a staging's log as messages or, if the store has blocks, as whole blocks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from leveret.durable.store.contract import Packed
    from leveret.message import Message
    from leveret.queues.stream_log import Found, Log

Whole: TypeAlias = "tuple[Packed, list[Message]]"
"""A block, and one message of each kind in it, without body."""


class RowSource(ABC):
    """Contract for a source of rows. Their messages carry no offsets."""

    __slots__ = ()

    @abstractmethod
    def read(self, offset: int, until: int, quota: int, room: int) -> Found | None:
        """Read as `Log.read` does, up to an offset. None: the rows have to be fetched first."""

    @abstractmethod
    def fetch(self, offset: int, until: int, then: Callable[[], None]) -> None:
        """Fetch as `Log.fetch` does. `then` is called once, even if this is called again meanwhile."""

    @abstractmethod
    def whole(self, offset: int, until: int) -> Whole | None:
        """Return the block at `offset` if it is at hand, ends by `until`, and has one set of properties; else None."""


class MemoryRowSource(RowSource):
    """A source of rows from a log in memory."""

    __slots__ = ("_log",)

    def __init__(self, log: Log) -> None:
        self._log = log

    def read(self, offset: int, until: int, quota: int, room: int) -> Found | None:
        return self._log.read(offset, min(quota, until - offset), room, noted=False)

    def fetch(self, offset: int, until: int, then: Callable[[], None]) -> None:
        self._log.fetch(offset, then)

    def whole(self, offset: int, until: int) -> Whole | None:
        return None
