"""WebSockets: from a request that opens one to a socket that carries a protocol's bytes in binary frames.

    request ─> opening: Host, Origin, subprotocol ─> 101, and a `WebSocketStream`   or a refusal, and the end

The stream has the calls of a socket, as TLS has: clear bytes on this side, frames on the other. What is received is
handed on as it comes, in whatever frames: nothing gathers here, however large a frame says that it is. What is sent at
once is one frame. No extension is accepted, so nothing is compressed. Frames and the handshake are wsproto's; the
sources are RFC 6455 and the WebSocket binding of AMQP 1.0 (OASIS, section 2: the subprotocol `amqp`, binary frames).
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Final

import attrs
from wsproto.connection import Connection, ConnectionState, ConnectionType
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Event,
    Ping,
    Pong,
    RejectConnection,
    RejectData,
    Request,
    TextMessage,
)
from wsproto.frame_protocol import CloseReason
from wsproto.handshake import H11Handshake
from wsproto.utilities import RemoteProtocolError

from leveret.security.web_origin import host_name, is_local, is_own_origin

if TYPE_CHECKING:
    from leveret.server.node.tls_socket import TlsSocket

PATH: Final = b"/ws"  # beside HTTP; what is below it counts, too
HEAD_END: Final = b"\r\n\r\n"
HEAD_MAX: Final = 8192  # bytes of the request that opens a WebSocket
SLICE: Final = 262_144  # bytes in one frame: as many as the node sends at once
ANSWERS_MAX: Final = 16_384  # bytes of pongs that a peer may leave unread
READ_MAX: Final = 262_144  # bytes of frames read at once; fewer from a peer whose frames are tiny
READ_FIRST: Final = 8192
READ_MIN: Final = 1024
FRAMES_MAX: Final = 256  # in one read, of about a millisecond
SHOWN_MAX: Final = 100  # characters of what a peer says, in the log


@attrs.frozen
class Opening:
    """The answer to a request that opens a WebSocket."""

    answer: bytes
    connection: Connection | None  # None: it is refused
    reason: str = ""  # why it is refused, for the log


def is_opening(data: bytes) -> bool | None:
    """Return whether a request on a port with HTTP is for the path of WebSockets; None if that is not known yet."""
    start = b"GET " + PATH
    if len(data) <= len(start):
        return None if start.startswith(data) else False
    return data.startswith(start) and data[len(start)] in b" /?"


def opened(head: bytes, origins: Sequence[str], own_name: str | None, subprotocols: Sequence[str]) -> Opening:
    """Answer the head of a request. `origins` are sites whose pages may connect besides those of the same host.

    `subprotocols` are the names of what is served, in the order in which they are preferred; a client may name none.

    `own_name`, for a peer on this machine, is the configured name of the address: any other name that is not local is
    refused then, as a page may have made up a name for this machine (DNS rebinding).
    """
    handshake = H11Handshake(ConnectionType.SERVER)
    try:
        handshake.receive_data(head)
        request = next((each for each in handshake.events() if isinstance(each, Request)), None)
    except RemoteProtocolError as error:
        hint = error.event_hint
        status, headers = (
            (hint.status_code, hint.headers) if isinstance(hint, RejectConnection) else (400, [])
        )
        return _refused(handshake, status, str(error), list(headers))
    except UnicodeError:
        request = None
    if request is None:
        return _refused(handshake, HTTPStatus.BAD_REQUEST, "the request cannot be read")
    if own_name is not None and not is_local(host_name(request.host), own_name):
        return _refused(handshake, HTTPStatus.MISDIRECTED_REQUEST, "the Host is not a name of this machine")
    named = [value.decode("latin-1") for name, value in request.extra_headers if name == b"origin"]
    for origin in named:
        if origin.lower() not in origins and not is_own_origin(origin, request.host):
            return _refused(
                handshake, HTTPStatus.FORBIDDEN, f"pages of {origin[:SHOWN_MAX]!r} may not connect"
            )
    subprotocol = next((each for each in subprotocols if each in request.subprotocols), None)
    if request.subprotocols and subprotocol is None:
        return _refused(
            handshake, HTTPStatus.BAD_REQUEST, f"the subprotocol here is {' or '.join(subprotocols)}"
        )
    answer = handshake.send(AcceptConnection(subprotocol=subprotocol))
    return Opening(answer, handshake.connection)


def _refused(
    handshake: H11Handshake, status: int, reason: str, headers: Sequence[tuple[bytes, bytes]] = ()
) -> Opening:
    body = f"{reason}\n".encode()
    told = [
        *headers,
        (b"content-type", b"text/plain; charset=utf-8"),
        (b"content-length", b"%d" % len(body)),
        (b"connection", b"close"),
    ]
    answer = handshake.send(RejectConnection(headers=told, status_code=status, has_body=True))
    return Opening(answer + handshake.send(RejectData(data=body)), None, reason)


class WebSocketStream:
    """The server's side of one WebSocket, with the calls of a socket."""

    __slots__ = (
        "_answers", "_closing", "_connection", "_ended", "_line", "_owed", "_pending", "_read_size", "_unsent",
    )  # fmt: skip

    def __init__(self, line: socket.socket | TlsSocket, connection: Connection, behind: bytes) -> None:
        """`line` is the socket below, and `behind` are bytes that came with the request that opened it."""
        self._line = line
        self._connection = connection
        self._pending = bool(behind)
        self._unsent = memoryview(b"")  # frames that the line has not accepted yet
        self._answers = bytearray()  # frames that follow them
        self._owed = 0  # bytes that are in them and not yet reported as sent
        self._read_size = READ_FIRST
        self._ended = False  # the peer has closed, or is not listened to any more
        self._closing = False
        connection.receive_data(behind)

    @property
    def has_more(self) -> bool:
        """Return whether `recv` can return bytes, or detect the end, without reading the operating system's socket."""
        if self._closing:
            return False
        if self._pending or self._ended:
            return True
        return not isinstance(self._line, socket.socket) and self._line.has_more

    def recv(self, size: int) -> bytes:
        """Return the bytes of frames, at most `size` or what came with the request; empty at the end.

        Raises what the line raises, and ConnectionAbortedError if the peer does not read the answers to its pings.
        """
        if self._closing:
            return self._line.recv(size)  # only the end of the stream matters
        octets = self._received() if self._pending else b""
        while not octets and not self._ended:
            data = self._line.recv(min(size, self._read_size))
            if not data:
                self._ended = True
                break
            self._connection.receive_data(data)
            octets = self._received()
        return octets

    def _received(self) -> bytes:
        """Return the bytes in the frames that have come, and obey those that control the connection."""
        self._pending = False
        pieces: list[bytes] = []
        frames = 0
        for event in self._connection.events():
            frames += 1
            if isinstance(event, BytesMessage):
                pieces.append(bytes(event.data))
            else:
                self._obey(event)
            if self._ended:
                break
        self._read_size = (
            max(READ_MIN, self._read_size // 2) if frames > FRAMES_MAX else min(READ_MAX, self._read_size * 2)
        )
        if self._unsent and not self.flush() and len(self._answers) > ANSWERS_MAX + self._owed:
            raise ConnectionAbortedError("it does not read the answers to its pings")
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def _obey(self, event: Event) -> None:
        if isinstance(event, Ping):
            self._write(self._connection.send(event.response()))
        elif isinstance(event, TextMessage):
            self._end(CloseReason.UNSUPPORTED_DATA, "AMQP is in binary frames")
        elif isinstance(event, CloseConnection):
            self._end(event.code, event.reason)
        else:
            assert isinstance(event, Pong)

    def _end(self, code: int, reason: str | None) -> None:
        """Answer the peer's close, or close because of what it sent; nothing more is read from it."""
        self._ended = True
        self._write(self._connection.send(CloseConnection(code, reason)))

    def _write(self, octets: bytes) -> None:
        if self._unsent:
            self._answers += octets
        else:
            self._unsent = memoryview(octets)

    def send(self, piece: memoryview) -> int:
        """Send the piece as a frame, and return how many of its bytes the line has accepted.

        After BlockingIOError it has to be called with the same piece again. Raises BrokenPipeError after a close.
        """
        if not self._owed and piece:
            if self._connection.state is not ConnectionState.OPEN:
                raise BrokenPipeError
            octets = bytes(piece[:SLICE])
            self._write(self._connection.send(BytesMessage(octets)))
            self._owed = len(octets)
        if not self.flush():
            raise BlockingIOError
        sent, self._owed = self._owed, 0
        return sent

    def flush(self) -> bool:
        """Hand frames to the line; False if it does not accept all of them. Raises OSError."""
        while self._unsent:
            try:
                self._unsent = self._unsent[self._line.send(self._unsent) :]
            except (BlockingIOError, InterruptedError):
                return False
            if self._answers and not self._unsent:
                self._unsent, self._answers = memoryview(bytes(self._answers)), bytearray()
        return True

    def shutdown(self, how: int) -> None:
        """Send a close frame unless the peer has closed, then close this half of the connection."""
        self._closing = True
        if self._connection.state is ConnectionState.OPEN:
            self._write(self._connection.send(CloseConnection(CloseReason.NORMAL_CLOSURE)))
        with contextlib.suppress(BlockingIOError):
            self.flush()
        self._line.shutdown(how)

    def fileno(self) -> int:
        return self._line.fileno()

    def close(self) -> None:
        self._line.close()
