"""An outbox for machines under test."""

from __future__ import annotations

from protocols.shared.machine.contract import Writer


class Pieces(Writer):
    """Keeps everything until it is read; full when told so."""

    def __init__(self) -> None:
        self.pieces: list[bytes] = []
        self.count = 0
        self.is_full = False

    @property
    def data(self) -> bytes:
        return b"".join(self.pieces)

    def write(self, data: bytes) -> None:
        self.pieces.append(data)
        self.count += len(data)

    def open(self) -> list[bytes]:
        return self.pieces

    def wrote(self, count: int) -> None:
        self.count += count

    def written(self) -> int:
        return self.count

    def full(self) -> bool:
        return self.is_full

    def take(self) -> bytes:
        data = self.data
        self.pieces.clear()
        return data
