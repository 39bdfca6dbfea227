"""Byte strings built from pieces: none of them tiny, and none so large that copying it delays other connections."""

from __future__ import annotations

from typing import Final

# Bytes that small pieces are gathered up to: a list takes at least eight bytes for each item.
PIECE: Final = 4096


def keep(pieces: list[bytes], piece: bytes) -> None:
    """Append a piece. Gathering small pieces copies at most 4 KiB each time, however long the whole becomes."""
    if pieces and len(pieces[-1]) + len(piece) <= PIECE:
        pieces[-1] += piece
    else:
        pieces.append(piece)


LARGE: Final = 1 << 18  # bytes, which take 20 us to join, and are sent in one go


class Pieces:
    """Bytes that are gathered in large pieces from the beginning, because the whole may be long."""

    __slots__ = ("_parts", "_pieces", "_size", "octets")

    def __init__(self) -> None:
        self.octets = 0
        self._pieces: list[bytes] = []
        self._parts: list[bytes] = []  # of the piece that is being gathered
        self._size = 0

    def add(self, part: bytes) -> None:
        self._parts.append(part)
        self._size += len(part)
        self.octets += len(part)
        if self._size >= LARGE:
            self._join()

    def pieces(self) -> list[bytes]:
        """Return all of it. Nothing may be added afterwards."""
        self._join()
        return self._pieces

    def _join(self) -> None:
        if self._parts:
            self._pieces.append(b"".join(self._parts))
            self._parts, self._size = [], 0
