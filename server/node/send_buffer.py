"""Buffer the bytes of one connection that the operating system has not accepted yet."""

from __future__ import annotations

from socket import socket as Socket  # noqa: N812
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from leveret.server.node.tls_socket import TlsSocket
    from leveret.server.node.websocket import WebSocketStream

SEND_SIZE: Final = 262_144  # bytes sent with one call
APART: Final = 16_384  # a piece of this many bytes is sent without a copy; smaller ones are joined
PIECES_MAX: Final = 256  # in one call; Linux takes 1024

Line: TypeAlias = "Socket | TlsSocket | WebSocketStream"


class SendBuffer:
    """A queue of the bytes that the operating system has not accepted yet.

    A plain socket takes several pieces with one call; TLS and a WebSocket take one at a time.
    """

    __slots__ = ("_pieces",)

    def __init__(self) -> None:
        self._pieces: list[memoryview] = []  # most are empty, and an empty deque has 760 bytes

    def __len__(self) -> int:
        return len(self._pieces)

    def add(self, pieces: list[memoryview]) -> None:
        self._pieces.extend(pieces)

    def clear(self) -> None:
        self._pieces.clear()

    def send(self, socket: Line) -> int:
        """Send as much as fits into one call. Returns the number of bytes that were accepted; raises OSError."""
        pieces = self._pieces
        if len(pieces) > 1 and isinstance(socket, Socket):
            count = socket.sendmsg(self._first())
        else:
            count = socket.send(pieces[0])
        left, gone = count, 0
        while gone < len(pieces) and left >= len(pieces[gone]):
            left -= len(pieces[gone])
            gone += 1
        del pieces[:gone]
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
    """Join small pieces up to `SEND_SIZE` and leave large ones as they are: a large body is not copied.

    TLS makes records of each piece, and a WebSocket a frame; for them a piece is large only if it fills a call.
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
