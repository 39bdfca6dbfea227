"""Sent commands, as bytes, that the peer is not known to have received and that may have to be sent again.

They are kept only for sessions that may be resumed. Each time the soft limit is exceeded the peer is to be asked what
it has; at the hard limit nothing more can be kept, and the session cannot be resumed. Deliveries wait from half of the
hard limit on: at most a quarter has not been asked about yet, so an answer lets them go on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final, TypeAlias

from leveret.protocols.amqp010.codec.sequences import MASK, Id

ENTRY: Final = 128  # bytes that an entry takes besides its content, roughly
Kept: TypeAlias = tuple[bytes, bytes | None, bytes | None]  # command, header, body


class Replay:
    """The commands from `first_id` on, in the order of their ids."""

    __slots__ = ("_commands", "first_id", "hard", "octets", "overfull", "soft", "unasked")

    def __init__(self, first_id: Id, soft: int, hard: int) -> None:
        self.first_id = first_id
        self.soft = min(soft, hard // 4)  # bytes
        self.hard = hard
        self.octets = 0
        self.unasked = 0  # bytes kept since the peer was asked
        self.overfull = False
        self._commands: deque[Kept] = deque()

    def __iter__(self) -> Iterator[Kept]:
        return iter(self._commands)

    @property
    def next_id(self) -> Id:
        return (self.first_id + len(self._commands)) & MASK

    def keep(self, command: bytes, header: bytes | None, body: bytes | None) -> None:
        """Keep the command that is sent next. The last one may go beyond the hard limit."""
        if self.octets >= self.hard:
            self.overfull = True
            self.trim(self.next_id)
        if self.overfull:
            self.first_id = (self.first_id + 1) & MASK
            return
        self._commands.append((command, header, body))
        size = size_of(command, header, body)
        self.octets += size
        self.unasked += size

    def trim(self, point: Id) -> None:
        """Drop the commands before `point`; do nothing if it is before the first or after the last."""
        count = (point - self.first_id) & MASK
        if not 0 < count <= len(self._commands):
            return
        for _ in range(count):
            self.octets -= size_of(*self._commands.popleft())
        self.first_id = point

    def holds_from(self, point: Id) -> bool:
        """Return whether everything from `point` on is kept here."""
        return (point - self.first_id) & MASK <= len(self._commands)

    def crowded(self) -> bool:
        """Return whether half of the room is taken: deliveries should then wait, so that answers still find some."""
        return self.octets >= self.hard // 2


def size_of(command: bytes, header: bytes | None, body: bytes | None) -> int:
    return ENTRY + len(command) + len(header or b"") + len(body or b"")
