"""What is to be published, drawn out of a staging's log: messages, or, where a store has blocks, whole blocks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from broker_core.message import Message
    from broker_core.queues.stream_log import Found, Log
    from broker_core.store.contract import Packed

Whole: TypeAlias = "tuple[Packed, list[Message]]"
"""A block, and one message of each kind that is in it, without body."""


class Drawing(ABC):
    """Where rows are taken from. They have no offsets noted on them."""

    __slots__ = ()

    @abstractmethod
    def read(self, offset: int, until: int, quota: int, room: int) -> Found | None:
        """As `Log.read`, up to an offset. None: they have to be fetched."""

    @abstractmethod
    def fetch(self, offset: int, until: int, then: Callable[[], None]) -> None:
        """As `Log.fetch`. `then` is called once, even if this is asked again meanwhile."""

    @abstractmethod
    def whole(self, offset: int, until: int) -> Whole | None:
        """What begins there, if that is a block at hand that ends at `until` or before, all of it with one set of
        properties."""


class MemoryDrawing(Drawing):
    """From a log in memory."""

    __slots__ = ("_log",)

    def __init__(self, log: Log) -> None:
        self._log = log

    def read(self, offset: int, until: int, quota: int, room: int) -> Found | None:
        return self._log.read(offset, min(quota, until - offset), room, noted=False)

    def fetch(self, offset: int, until: int, then: Callable[[], None]) -> None:
        self._log.fetch(offset, then)

    def whole(self, offset: int, until: int) -> Whole | None:
        return None
