"""What a staging has: pieces of parts of batches, and how the notes of its log name them.

note                                    number
BATCH/PARTITION/ATTEMPT/PIECE/END       the offset of its next row to be published; END is that behind its last row
committed                               the last batch that was committed
used                                    when somebody last did something, in seconds since 1970-01-01 UTC
used/BATCH                              the same of a batch that is not committed
published/BATCH, unroutable/BATCH       how many rows of a committed batch went to queues, and how many nowhere
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final

import attrs

if TYPE_CHECKING:
    from broker_core.queues.stream_log import Log

COMMITTED: Final = "committed"
USED: Final = "used"
PUBLISHED: Final = "published"
UNROUTABLE: Final = "unroutable"
NUMBER_MAX: Final = 1 << 62  # of a batch, a partition, an attempt


@attrs.frozen(order=True)
class Part:
    """What one attempt at one partition of a batch has staged."""

    batch: int
    partition: int
    attempt: int


class Piece:
    """Rows that came in one request: they follow each other in the log."""

    __slots__ = ("end", "next", "number", "part")

    def __init__(self, part: Part, number: int, first: int, end: int) -> None:
        self.part = part
        self.number = number  # in its part
        self.next = first  # offset of the first row that is not published
        self.end = end  # offset behind the last row

    @property
    def rows(self) -> int:
        """How many are left."""
        return self.end - self.next

    @property
    def note(self) -> str:
        part = self.part
        return f"{part.batch}/{part.partition}/{part.attempt}/{self.number}/{self.end}"


def pieces_in(notes: Mapping[str, int]) -> list[Piece]:
    """The pieces that a log's notes tell of, in the order in which they are to be published."""
    found: list[Piece] = []
    for name, following in notes.items():
        batch, *rest = name.split("/")
        if len(rest) == 4:
            partition, attempt, number, end = map(int, rest)
            found.append(Piece(Part(int(batch), partition, attempt), number, following, end))
    return in_order(found)


def in_order(pieces: Iterable[Piece]) -> list[Piece]:
    """By batch, partition and piece."""
    return sorted(pieces, key=lambda piece: (piece.part, piece.number))


def used_note(batch: int) -> str:
    return f"{USED}/{batch}"


class Batch:
    """A committed batch: what is left of it to publish, and how many rows went where."""

    __slots__ = ("_log", "number", "pieces", "published", "rows", "unroutable", "waiting")

    def __init__(self, number: int, pieces: list[Piece], log: Log) -> None:
        """`pieces` are in the order in which they are to be published."""
        self.number = number
        self.pieces = pieces[::-1]  # the next one is the last of the list
        self.rows = sum(piece.rows for piece in pieces)  # that are left
        self.published = log.sequences.get(f"{PUBLISHED}/{number}", 0)
        self.unroutable = log.sequences.get(f"{UNROUTABLE}/{number}", 0)
        self.waiting: list[Callable[[], None]] = []  # told when it is published
        self._log = log

    @property
    def is_published(self) -> bool:
        return not self.pieces

    def move(self, rows: int) -> None:
        """So many rows of its next piece are dealt with: that is kept in one commit with what was done with them."""
        piece = self.pieces[-1]
        if rows == piece.rows:
            self._log.unnote(piece.note)
            self.pieces.pop()
        else:
            piece.next += rows
            self._log.note(piece.note, piece.next)
        self.rows -= rows

    def keep_counts(self) -> None:
        self._log.note(f"{PUBLISHED}/{self.number}", self.published)
        self._log.note(f"{UNROUTABLE}/{self.number}", self.unroutable)

    def forget_counts(self) -> None:
        """Nobody asks for them any more."""
        self._log.unnote(f"{PUBLISHED}/{self.number}")
        self._log.unnote(f"{UNROUTABLE}/{self.number}")
