"""Set up an AMQP 1.0 connection, step by step: login, sessions, links. Raises PerfError."""

from __future__ import annotations

import os
from itertools import count
from typing import Final, TypeVar

from leveret.perf.dial import connected, heard
from leveret.perf.errors import REFUSED, UNREACHABLE, PerfError
from leveret.perf.plan import Url
from leveret.protocols.amqp10.codec import performatives as p
from leveret.protocols.amqp10.codec import wire
from leveret.protocols.amqp10.codec.errors import AmqpError
from leveret.protocols.amqp10.codec.types import DecodeError, Symbol

FRAME_MAX: Final = 1 << 20  # bytes that we accept
WINDOW: Final = 0x7FFF_FFFF  # transfers
NUMBERS: Final = count()

Answer = TypeVar("Answer", bound=p.Record)


class Setup10:
    """A connection that is being set up.

    `buffer` holds what came and was not read; `peer_frame_max` and `idle_ms` are what the broker asks for.
    """

    def __init__(self, url: Url) -> None:
        self.socket = connected(url)
        self.buffer = b""
        self.channels = 0
        self.theirs: dict[int, int] = {}  # our channel, by the broker's
        try:
            self._log_in(url)
            self._open(url)
        except BaseException:
            self.socket.close()
            raise

    def _log_in(self, url: Url) -> None:
        self.socket.sendall(wire.HEADER_SASL)
        self._expect_header(wire.HEADER_SASL)
        self.expect(p.SaslMechanisms)
        login = f"\0{url.user}\0{url.password}".encode()
        init = p.SaslInit(mechanism=Symbol("PLAIN"), initial_response=login)
        self.socket.sendall(wire.frame(0, init.encode(), wire.FRAME_SASL))
        _, outcome = self.expect(p.SaslOutcome)
        if outcome.code != p.SASL_CODE_OK:
            raise PerfError(f"{url} does not let us in: wrong user or password", UNREACHABLE)

    def _open(self, url: Url) -> None:
        self.socket.sendall(wire.HEADER_AMQP)
        self._expect_header(wire.HEADER_AMQP)
        container = f"leveret-perf-{os.getpid()}-{next(NUMBERS)}"
        opening = p.Open(container_id=container, hostname=f"vhost:{url.vhost}", max_frame_size=FRAME_MAX)
        self.send(0, opening)
        try:
            _, opened = self.expect(p.Open)
            self.peer_frame_max = opened.max_frame_size
            self.idle_ms = opened.idle_time_out or 0
            if self._is_closing():
                self.expect(p.Begin)
        except PerfError as refused:
            raise PerfError(f"{url} does not open '{url.vhost}': {refused.text}", UNREACHABLE) from None

    def _is_closing(self) -> bool:
        """Return whether a close follows the open: so the broker refuses an open."""
        return self.buffer[8:11] == b"\x00\x53\x18"

    def begin(self) -> int:
        """Begin a session and return its channel."""
        channel = self.channels
        self.channels += 1
        self.send(channel, p.Begin(next_outgoing_id=0, incoming_window=WINDOW, outgoing_window=WINDOW))
        theirs, _ = self.expect(p.Begin)
        self.theirs[theirs] = channel
        return channel

    def attach(self, channel: int, attach: p.Attach) -> None:
        self.send(channel, attach)
        _, answer = self.expect(p.Attach)
        if (answer.target if attach.role == p.ROLE_SENDER else answer.source) is None:
            self.expect(p.End)  # the link is refused: a detach with the reason follows

    def send(self, channel: int, performative: p.Record) -> None:
        self.socket.sendall(wire.frame(channel, performative.encode()))

    def expect(self, kind: type[Answer]) -> tuple[int, Answer]:
        """Return the next performative of this kind, with its channel; flows before it are left in the buffer."""
        passed = b""
        while True:
            channel, frame, performative = self._next()
            if isinstance(performative, kind):
                self.buffer = passed + self.buffer
                return channel, performative
            refuse(performative)
            if isinstance(performative, p.Flow):
                passed += frame

    def _next(self) -> tuple[int, bytes, p.Record | None]:
        while len(self.buffer) < 8 or len(self.buffer) < int.from_bytes(self.buffer[:4]):
            self.buffer += heard(self.socket)
        size, offset, _, channel = wire.FRAME_START.unpack_from(self.buffer)
        frame, self.buffer = self.buffer[:size], self.buffer[size:]
        try:
            return channel, frame, wire.performative_at(frame, 4 * offset, size)[0] if size > 8 else None
        except (AmqpError, DecodeError) as wrong:
            raise PerfError(f"the broker's frames cannot be understood: {wrong}") from None

    def _expect_header(self, header: bytes) -> None:
        while len(self.buffer) < len(header):
            self.buffer += heard(self.socket)
        if not self.buffer.startswith(header):
            raise PerfError("this is no AMQP 1.0 broker, or it asks for no login", UNREACHABLE)
        self.buffer = self.buffer[len(header) :]


def refuse(record: p.Record | None) -> None:
    """Raise PerfError if the broker has ended a link, a session or the connection."""
    if isinstance(record, p.Detach | p.End | p.Close):
        error = record.error
        why = f": {error.condition}: {error.description}" if error is not None else ""
        raise PerfError(f"the broker has ended the {type(record).__name__.lower()}{why}", REFUSED)
