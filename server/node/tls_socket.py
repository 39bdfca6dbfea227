"""Wrap a socket in TLS, with the same calls: clear bytes on this side and records on the other.

    recv ─> incoming ─> SSLObject ─> bytes           bytes ─> SSLObject ─> outgoing ─> send

It never blocks: it raises what a non-blocking socket would raise. `send` counts clear bytes, and only those whose
records the operating system has accepted: after BlockingIOError it has to be called with the same piece again.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from typing import Final

from leveret.server.node.tls_records import decrypted

# Bytes encrypted at once: eight records; a connection holds as many besides its outbox.
SLICE: Final = 131_072
ANSWERS_MAX: Final = 16_384  # bytes of TLS's own answers that a peer may leave unread


class TlsSocket:
    """One side of a connection's TLS: the server's, unless it knows the server's name."""

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

    def __init__(self, connected: socket.socket, context: ssl.SSLContext, server: str | None = None) -> None:
        self._socket = connected
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self.tls = context.wrap_bio(
            self._incoming, self._outgoing, server_side=server is None, server_hostname=server
        )
        self._unsent = memoryview(b"")  # records that the system has not accepted yet
        self._owed = 0  # clear bytes that are encrypted and not yet reported as sent
        self._ended = False  # the peer has said that nothing follows, or hung up
        self._failure: ssl.SSLError | None = None
        self._closing = False

    def handshake(self, octets: bytes) -> bool:
        """Continue the handshake; True when it is complete. `flush` sends our side of it. Raises ssl.SSLError."""
        self._incoming.write(octets)
        try:
            self.tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        return True

    @property
    def plain(self) -> socket.socket:
        """The socket that the records go through."""
        return self._socket

    @property
    def has_more(self) -> bool:
        """Return whether `recv` can return bytes, or detect the end, without reading the socket."""
        if self._ended or self._failure is not None:
            return not self._closing
        return bool(self._incoming.pending or self.tls.pending())

    def recv(self, size: int) -> bytes:
        """Return clear bytes, at most `size`; empty at the end of the connection, with or without close_notify."""
        if self._closing:
            return self._socket.recv(size)  # only the end of the stream matters
        octets = b""
        if self._failure is None and not self._ended and self.has_more:
            octets = self._decrypted(size)
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
        """Return the bytes of all whole records."""
        octets, self._failure, self._ended = decrypted(self.tls, self._incoming, size)
        if self._outgoing.pending and not self.flush() and self._outgoing.pending > ANSWERS_MAX:
            raise ConnectionAbortedError("it does not read what TLS answers")
        return octets

    def send(self, piece: memoryview) -> int:
        """Send the piece as records, and return how many of its bytes the system has accepted."""
        if not self._owed and piece:
            self._owed = self.tls.write(piece[:SLICE])
        if not self.flush():
            raise BlockingIOError
        sent, self._owed = self._owed, 0
        return sent

    def flush(self) -> bool:
        """Hand records to the system; False if it does not accept all of them."""
        while self._unsent or self._outgoing.pending:
            if not self._unsent:
                self._unsent = memoryview(self._outgoing.read())
            try:
                self._unsent = self._unsent[self._socket.send(self._unsent) :]
            except (BlockingIOError, InterruptedError):
                return False
        return True

    def shutdown(self, how: int) -> None:
        """Send close_notify, then close this half of the connection."""
        self._closing = True
        with contextlib.suppress(ssl.SSLError, ValueError):  # the peer's own close_notify is not waited for
            self.tls.unwrap()
        self.flush()
        self._socket.shutdown(how)

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        self._socket.close()
