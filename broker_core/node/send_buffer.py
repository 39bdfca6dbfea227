"""What the operating system has not taken yet of one connection's bytes."""

from __future__ import annotations

from collections import deque
from socket import socket as Socket  # noqa: N812
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from broker_core.node.tls_socket import SecuredSocket

SEND_SIZE: Final = 262_144  # octets that go with one call
APART: Final = 16_384  # octets of a piece that is sent from where it is; smaller ones are joined
PIECES_MAX: Final = 256  # in one call; Linux takes 1024

Line: TypeAlias = "Socket | SecuredSocket"


class Unsent:
    """What the operating system has not taken yet, in the order in which it goes.

    Over a plain socket several pieces go with one call; what encrypts takes one at a time.
    """

    __slots__ = ("_pieces",)

    def __init__(self) -> None:
        self._pieces: deque[memoryview] = deque()

    def __len__(self) -> int:
        return len(self._pieces)

    def add(self, pieces: list[memoryview]) -> None:
        self._pieces.extend(pieces)

    def clear(self) -> None:
        self._pieces.clear()

    def send(self, socket: Line) -> int:
        """Hand over as much as fits into one call. Answers the octets that were taken; raises OSError."""
        pieces = self._pieces
        if len(pieces) > 1 and isinstance(socket, Socket):
            count = socket.sendmsg(self._first())
        else:
            count = socket.send(pieces[0])
        left = count
        while pieces and left >= len(pieces[0]):
            left -= len(pieces.popleft())
        if left:
            pieces[0] = pieces[0][left:]
        return count

    def _first(self) -> list[memoryview]:
        size, first = 0, []
        for piece in self._pieces:
            first.append(piece)
            size += len(piece)
            if size >= SEND_SIZE or len(first) == PIECES_MAX:
                break
        return first


def joined(pieces: list[bytes], socket: Line) -> list[memoryview]:
    """Small pieces joined up to `SEND_SIZE`, large ones as they are: no copy of a large body.

    What encrypts makes records of each piece, so that for it only those are large that fill a call.
    """
    apart = APART if isinstance(socket, Socket) else SEND_SIZE
    joined: list[memoryview] = []
    gathered: list[bytes] = []
    size = 0
    for piece in pieces:
        is_apart = len(piece) >= apart
        if gathered and (is_apart or size + len(piece) > SEND_SIZE):
            joined.append(memoryview(b"".join(gathered)))
            gathered, size = [], 0
        if is_apart:
            joined.append(memoryview(piece))
        else:
            gathered.append(piece)
            size += len(piece)
    if gathered:
        joined.append(memoryview(b"".join(gathered)))
    return joined
