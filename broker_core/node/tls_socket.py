"""A socket with TLS: the same calls, octets in clear on this side and records on the other.

    recv ─> incoming ─> SSLObject ─> octets          octets ─> SSLObject ─> outgoing ─> send

It waits for nothing: what a socket would raise to say that it has to, it raises. `send` counts octets in clear, and
only those whose records the operating system has: after BlockingIOError it wants the same piece again.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from typing import Final

SLICE: Final = (
    131_072  # octets encrypted at once: eight records, and what a connection holds besides its outbox
)
ANSWERS_MAX: Final = 16_384  # octets of TLS's own answers that a peer may leave unread


class SecuredSocket:
    """One connection's TLS, as the server."""

    __slots__ = (
        "_closing",
        "_ended",
        "_failure",
        "_incoming",
        "_outgoing",
        "_owed",
        "_socket",
        "_unsent",
        "tls",
    )

    def __init__(self, connected: socket.socket, context: ssl.SSLContext) -> None:
        self._socket = connected
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self.tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._unsent = memoryview(b"")  # records that the system has not taken yet
        self._owed = 0  # octets in clear, encrypted and not yet reported as sent
        self._ended = False  # the peer has said that nothing follows, or hung up
        self._failure: ssl.SSLError | None = None
        self._closing = False

    def handshake(self, octets: bytes) -> bool:
        """Go on with what has come. True: done. Raises ssl.SSLError; what there is to say goes out with `flush`."""
        self._incoming.write(octets)
        try:
            self.tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    @property
    def has_more(self) -> bool:
        """Whether `recv` can give something, or find something out, without the socket."""
        return bool(self._incoming.pending or self.tls.pending())

    def recv(self, size: int) -> bytes:
        """Octets in clear, at most `size`; empty at the end, with a goodbye or without."""
        if self._closing:
            return self._socket.recv(size)  # only its end matters
        octets = self._decrypted(size) if self.has_more else b""
        while not octets:
            if self._failure is not None:
                raise self._failure
            if self._ended:
                break
            records = self._socket.recv(size)
            if records:
                self._incoming.write(records)
            else:
                self._incoming.write_eof()
            octets = self._decrypted(size)
        return octets

    def _decrypted(self, size: int) -> bytes:
        """What is there in whole records. A read gives one record, however many there are."""
        pieces: list[bytes] = []
        more = True
        while more and size and not self._ended and self._failure is None:
            try:
                piece = self.tls.read(size)
            except ssl.SSLWantReadError:
                break
            except (ssl.SSLEOFError, ssl.SSLZeroReturnError):
                self._ended = True
            except ssl.SSLError as failure:
                self._failure = failure
            else:
                self._ended = not piece
                size -= len(piece)
                pieces.append(piece)
                more = self.has_more  # to be told by an exception that there is not costs 2 us
        if self._outgoing.pending and not self.flush() and self._outgoing.pending > ANSWERS_MAX:
            raise ConnectionAbortedError("it does not read what it asks for")
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def send(self, piece: memoryview) -> int:
        """How many octets of the piece are with the system now, as records."""
        if not self._owed and piece:
            self._owed = self.tls.write(piece[:SLICE])
        if not self.flush():
            raise BlockingIOError
        sent, self._owed = self._owed, 0
        return sent

    def flush(self) -> bool:
        """Hand records to the system; False if it does not take all of them."""
        while self._unsent or self._outgoing.pending:
            if not self._unsent:
                self._unsent = memoryview(self._outgoing.read())
            try:
                self._unsent = self._unsent[self._socket.send(self._unsent) :]
            except (BlockingIOError, InterruptedError):
                return False
        return True

    def shutdown(self, how: int) -> None:
        """Say goodbye (close_notify), then close this half."""
        self._closing = True
        with contextlib.suppress(ssl.SSLError, ValueError):  # the peer's own goodbye is not waited for
            self.tls.unwrap()
        self.flush()
        self._socket.shutdown(how)

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()
