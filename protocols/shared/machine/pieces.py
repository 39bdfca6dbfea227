"""What comes or goes in pieces: none of them tiny, and none so large that to copy it would hold others up."""

from __future__ import annotations

from typing import Final

PIECE: Final = (
    4096  # octets that small pieces are gathered up to: each single octet in a list takes eight, and more
)


def keep(pieces: list[bytes], piece: bytes) -> None:
    """One more piece. To gather small ones copies 4 KiB each time at most, however long all of it becomes."""
    if pieces and len(pieces[-1]) + len(piece) <= PIECE:
        pieces[-1] += piece
    else:
        pieces.append(piece)


LARGE: Final = 1 << 18  # octets, which take 20 us to join, and are sent in one go


class Gathered:
    """Octets in the making, in large pieces from the beginning on: the whole of it may be long."""

    __slots__ = ("_parts", "_pieces", "_size", "octets")

    def __init__(self) -> None:
        self.octets = 0
        self._pieces: list[bytes] = []
        self._parts: list[bytes] = []  # of the piece that is being made
        self._size = 0

    def add(self, part: bytes) -> None:
        self._parts.append(part)
        self._size += len(part)
        self.octets += len(part)
        if self._size >= LARGE:
            self._join()

    def pieces(self) -> list[bytes]:
        """All of it; nothing is added any more."""
        self._join()
        return self._pieces

    def _join(self) -> None:
        if self._parts:
            self._pieces.append(b"".join(self._parts))
            self._parts, self._size = [], 0
