"""The client's side of an AMQP 0-9-1 connection with one channel: bytes from a broker to events, and methods to bytes.

    header ─> start ─> start-ok ─> tune ─> tune-ok, open ─> open-ok ─> channel.open ─> open-ok: `on_open`

After that the owner sends methods and contents with `send` and `publish`, and hears of everything that comes. What the
broker sends is bounded before it is kept: frames by the negotiated size, bodies by `body_size_max`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar, Final

import attrs

from leveret.protocols.amqp091.codec import methods as m
from leveret.protocols.amqp091.codec import wire
from leveret.protocols.amqp091.codec.wire import AmqpError, FieldTable, MalformedError, Method
from leveret.protocols.shared.machine.client_machine import ClientMachine, Credentials
from leveret.protocols.shared.machine.contract import Writer
from leveret.protocols.shared.machine.states import State

HEADER: Final = b"AMQP\x00\x00\x09\x01"
CHANNEL: Final = 1
FRAME_MAX: Final = 131_072
FRAME_MIN: Final = 4096
FIRST_FRAME_MAX: Final = 65_536  # until the sizes are negotiated
CAPABILITIES: Final[FieldTable] = {
    "authentication_failure_close": True,
    "basic.nack": True,
    "connection.blocked": True,
    "consumer_cancel_notify": True,
    "publisher_confirms": True,
}


@attrs.frozen
class Login(Credentials):
    """The name and password that a client logs in with, and the limits that it asks for."""

    virtual_host: str
    heartbeat_s: int
    timeout_s: float
    body_size_max: int
    properties: FieldTable = attrs.field(factory=dict)


class Owner(ABC):
    """Hears of what a broker sends. None of these may raise."""

    @abstractmethod
    def on_open(self) -> None:
        """Called when the channel is open."""

    @abstractmethod
    def on_method(self, method: Method) -> None:
        """Called with a method on the channel that has no content and is no close."""

    @abstractmethod
    def on_content(self, method: Method, properties: bytes, body: bytes) -> None:
        """Called with a delivery or a returned message."""

    @abstractmethod
    def on_refused(self, code: int, reason: str) -> bool:
        """Called when the broker has closed the channel. Return whether to open it again; else the connection ends."""

    @abstractmethod
    def on_end(self, reason: str) -> None:
        """Called once, when the connection has ended in any way."""


class Client(ClientMachine):
    """A connection to a broker."""

    HEARTBEAT: ClassVar[bytes] = wire.heartbeat_frame()

    def __init__(self, owner: Owner, login: Login, outbox: Writer, now: float) -> None:
        super().__init__(State.STARTING, outbox, now, login.timeout_s)
        self.frame_max = FIRST_FRAME_MAX
        self._owner = owner
        self._login = login
        self._needed = wire.FRAME_OVERHEAD
        self._content: Method | None = None  # whose header and body are to come
        self._properties: bytes | None = None  # None: the header is still to come
        self._body: list[bytes] = []
        self._body_left = 0
        self.server_properties: FieldTable = {}  # what the broker has told about itself

    def begin(self) -> None:
        """Send the protocol header, which the client does first."""
        self.outbox.write(HEADER)

    # What the owner sends.

    def send(self, method: Method) -> None:
        if self.state is State.OPEN:
            self._send(CHANNEL, method)

    def publish(self, method: m.BasicPublish, properties: bytes, body: bytes) -> None:
        if self.state is State.OPEN:
            pieces = self.outbox.open()
            self.outbox.wrote(
                wire.append_content(pieces, CHANNEL, method.encode(), properties, body, self.frame_max)
            )

    def close(self, reason: str) -> None:
        """Close the connection; the broker's answer is waited for as long as the handshake may take."""
        if self.state is State.OPEN:
            self._send(0, m.ConnectionClose(m.REPLY_SUCCESS, reason[:200]))
            self.state = State.CLOSING
            self._end(reason)
        elif self.state is not State.CLOSING:
            self._end_now(reason)

    def _send(self, channel: int, method: Method) -> None:
        self.outbox.write(wire.method_frame(channel, method.encode()))

    # What the broker sends.

    def _take(self, data: bytes) -> None:
        octets = self._joined(data)
        if not octets:
            return
        self._tail.clear()
        self._tail_size = 0
        if octets.startswith(b"AMQP"):
            self._end_now("it is no AMQP 0-9-1 broker")
            return
        try:
            at = self._take_frames(octets)
        except MalformedError as error:
            self._end_now(f"it sent what cannot be read: {error}")
            return
        except AmqpError as error:
            self._end_now(f"it sent what is not expected: {error.text}")
            return
        if self.state is not State.CLOSED:
            self._keep(octets[at:])

    def _take_frames(self, octets: bytes) -> int:
        """Handle whole frames, and return how many bytes they were. Raises AmqpError."""
        at, end = 0, len(octets)
        while self.state is not State.CLOSED:
            self._needed = wire.FRAME_OVERHEAD
            if end - at < wire.FRAME_OVERHEAD:
                break
            kind, channel, size = wire.FRAME_START.unpack_from(octets, at)
            if size > self.frame_max - wire.FRAME_OVERHEAD:
                raise MalformedError(f"a frame of {size} bytes")
            if end - at < size + wire.FRAME_OVERHEAD:
                self._needed = size + wire.FRAME_OVERHEAD
                break
            start, at = at + 7, at + size + wire.FRAME_OVERHEAD
            if octets[at - 1] != m.FRAME_END:
                raise MalformedError("a frame without its end")
            self._take_frame(kind, channel, octets, start, at - 1)
        return at

    def _take_frame(self, kind: int, channel: int, octets: bytes, at: int, end: int) -> None:
        if kind == m.FRAME_HEARTBEAT:
            return
        if channel not in (0, CHANNEL):
            raise MalformedError(f"a frame on channel {channel}")
        if kind == m.FRAME_METHOD:
            self._take_method(channel, wire.method_at(octets, at, end))
        elif self.state is State.OPEN and kind == m.FRAME_HEADER:
            self._take_header(octets, at, end)
        elif self.state is State.OPEN and kind == m.FRAME_BODY:
            self._take_body(octets[at:end])
        elif self.state is not State.CLOSING:
            raise MalformedError(f"a frame of kind {kind}")

    def _take_method(self, channel: int, method: Method) -> None:
        if isinstance(method, m.ConnectionClose):
            self._send(0, m.ConnectionCloseOk())
            self._end_now(f"{method.reply_code} {method.reply_text}")
            return
        if self.state is State.CLOSING:
            if isinstance(method, m.ConnectionCloseOk):
                self.state = State.CLOSED
            return
        if self.state is State.OPEN and channel == CHANNEL:
            self._take_on_channel(method)
            return
        step = STEPS.get((self.state, type(method)))
        if step is not None:
            step(self, method)
        elif self.state is not State.OPEN:
            raise MalformedError(f"{type(method).__name__} {self._stage()}")

    def _take_on_channel(self, method: Method) -> None:
        if self._content is not None:
            raise MalformedError(f"{type(method).__name__} in place of a content")
        if isinstance(method, m.ChannelClose):
            self._take_refusal(method)
        elif isinstance(method, m.BasicDeliver | m.BasicReturn):
            self._content, self._properties = method, None
        else:
            self._owner.on_method(method)

    def _take_refusal(self, method: m.ChannelClose) -> None:
        if self._owner.on_refused(method.reply_code, method.reply_text):
            self._send(CHANNEL, m.ChannelCloseOk())
            self._send(CHANNEL, m.ChannelOpen())
            self.state = State.OPENING
        else:
            self.close(f"{method.reply_code} {method.reply_text}")

    def _take_header(self, octets: bytes, at: int, end: int) -> None:
        if self._content is None or self._properties is not None or end - at < wire.CONTENT_HEADER_SIZE + 2:
            raise MalformedError("a content header in the wrong place")
        size = int.from_bytes(octets[at + 4 : at + 12], "big")
        if size > self._login.body_size_max:
            raise MalformedError(f"a message of {size} bytes, which is larger than those of this node")
        self._properties, self._body_left = octets[at + wire.CONTENT_HEADER_SIZE : end], size
        if not size:
            self._deliver()

    def _take_body(self, piece: bytes) -> None:
        if self._properties is None or not 0 < len(piece) <= self._body_left:
            raise MalformedError("a content body in the wrong place")
        self._body.append(piece)
        self._body_left -= len(piece)
        if not self._body_left:
            self._deliver()

    def _deliver(self) -> None:
        method, properties, body = self._content, self._properties, b"".join(self._body)
        self._content = self._properties = None
        self._body.clear()
        assert method is not None
        assert properties is not None
        self._owner.on_content(method, properties, body)

    # The handshake.

    def _on_start(self, method: Method) -> None:
        assert isinstance(method, m.ConnectionStart)
        login = self._login
        self.server_properties = method.server_properties
        offered = method.mechanisms.decode("utf-8", "replace").split()
        if login.mechanism not in offered:
            self._end_now(f"it offers no login by {login.mechanism}")
            return
        about: FieldTable = {**login.properties, "capabilities": CAPABILITIES}
        self._send(0, m.ConnectionStartOk(about, login.mechanism, login.response, "en_US"))
        self.state = State.TUNING

    def _on_tune(self, method: Method) -> None:
        assert isinstance(method, m.ConnectionTune)
        self.frame_max = min(method.frame_max or FRAME_MAX, FRAME_MAX)
        if self.frame_max < FRAME_MIN:
            raise MalformedError(f"frames of at most {self.frame_max} bytes")
        heartbeat_s = min(method.heartbeat, self._login.heartbeat_s) or max(
            method.heartbeat, self._login.heartbeat_s
        )
        self._send(0, m.ConnectionTuneOk(method.channel_max, self.frame_max, heartbeat_s))
        self._send(0, m.ConnectionOpen(self._login.virtual_host))
        self._agree(heartbeat_s)
        self.state = State.OPENING

    def _on_open_ok(self, method: Method) -> None:
        self._send(CHANNEL, m.ChannelOpen())

    def _on_channel_open_ok(self, method: Method) -> None:
        self.state = State.OPEN
        self._owner.on_open()

    def _hear_end(self, reason: str) -> None:
        self._body.clear()
        self._owner.on_end(reason)


STEPS: Final[dict[tuple[State, type[Method]], Callable[[Client, Method], None]]] = {
    (State.STARTING, m.ConnectionStart): Client._on_start,
    (State.TUNING, m.ConnectionTune): Client._on_tune,
    (State.OPENING, m.ConnectionOpenOk): Client._on_open_ok,
    (State.OPENING, m.ChannelOpenOk): Client._on_channel_open_ok,
}
