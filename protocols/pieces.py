"""What comes in pieces, kept until it is whole: a list of them, none of them tiny."""

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
