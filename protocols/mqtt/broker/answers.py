"""Answers wait until the broker has what they are about: acknowledgements, and messages of QoS 2 that are to be sent.

They go out in the order of what they answer (MQTT-4.6.0-2 to 4.6.0-4), at the end of the batch or, if something has to
be on disk first, with the commit that has it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from leveret.broker import Publisher

if TYPE_CHECKING:
    from leveret.broker import Broker
    from leveret.outbox import Outbox

Item: TypeAlias = "bytes | Callable[[], None]"
"""A packet, or what sends one."""


class Answers(Publisher):
    """The answers of one connection."""

    __slots__ = ("_added", "_broker", "_ended", "_items", "_joined", "_outbox", "_sent", "persistent")

    def __init__(self, broker: Broker, outbox: Outbox) -> None:
        self._broker = broker
        self._outbox = outbox
        self._items: list[Item] = []
        self._added = self._sent = 0
        self.persistent = False
        self._joined = False  # it is on the broker's list of publishers
        self._ended = False

    def __len__(self) -> int:
        return len(self._items)

    def add(self, item: Item, persistent: bool) -> None:
        """Send this after all before it. `persistent`: something of this batch must be on disk first."""
        self._items.append(item)
        self._added += 1
        if persistent:
            self.persistent = True
        if not self._joined:
            self._joined = True
            self._broker.publishers.append(self)

    def mark(self) -> int:
        self._joined = self.persistent = False
        return self._added

    def taken(self, mark: int) -> None:
        ready, self._items = self._items[: mark - self._sent], self._items[mark - self._sent :]
        self._sent += len(ready)
        pieces: list[bytes] = []
        for item in ready:
            if isinstance(item, bytes):
                pieces.append(item)
                continue
            self._write(pieces)
            pieces = []
            item()
        self._write(pieces)

    def _write(self, pieces: list[bytes]) -> None:
        if pieces and not self._ended:
            self._outbox.write(b"".join(pieces))

    def end(self) -> None:
        """Send nothing more."""
        self._ended = True
        self._items.clear()
        self._sent = self._added
