"""The server's side of one AMQP 0-9-1 connection: bytes in, calls to a handler and bytes for an outbox out.

A connection is awaited (its eight octets), introduces itself (start, secure, tune, open, each answered before
the next), is open, and ends: by a close and its close-ok, by silence, or because the transport is gone. The
table STEPS holds every connection method that is welcome in a state; what is not in it is a violation. However
it ends, every channel ends first and then, once, the handler is told; only after that the peer reads close-ok.

Inside an open connection a channel expects one of four things: a method, the header of a content, the rest of
its body, or, after an error, the close-ok that frees its number; CHANNEL_STEPS says what each means. A number
that is no channel expects channel.open. Errors are raised as AmqpError and end what the code of the error says:
a soft one the channel, a hard one the connection. While a side is closing, whatever the peer had under way is
dropped without a word.

There are two speeds. Nearly all traffic is publishes whose three frames lie whole in one read, and acks:
`_take_frames` handles them in straight code, with one call of the handler each. Everything else goes frame by
frame through the tables, also the publish that a read cuts in two, so the quick way never has to wait.

Time is passed in. The machine knows no clock, no socket and no broker: `deadline` says when it wants to be
called again, `closed` that the outbox is to be flushed and the transport closed.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from enum import Enum
from struct import Struct
from typing import Final

from protocols.amqp091.methods import (
    ACCESS_REFUSED,
    CHANNEL_ERROR,
    COMMAND_INVALID,
    FRAME_BODY,
    FRAME_END,
    FRAME_ERROR,
    FRAME_HEADER,
    FRAME_HEARTBEAT,
    FRAME_METHOD,
    NOT_ALLOWED,
    PRECONDITION_FAILED,
    REPLY_NAMES,
    SOFT_ERRORS,
    UNEXPECTED_FRAME,
    ChannelClose,
    ChannelCloseOk,
    ChannelOpen,
    ChannelOpenOk,
    ConnectionBlocked,
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionOpen,
    ConnectionOpenOk,
    ConnectionSecure,
    ConnectionSecureOk,
    ConnectionStart,
    ConnectionStartOk,
    ConnectionTune,
    ConnectionTuneOk,
    ConnectionUnblocked,
    ConnectionUpdateSecret,
    ConnectionUpdateSecretOk,
)
from protocols.amqp091.wire import (
    CLASS_BASIC,
    CONTENT_HEADER_SIZE,
    CONTENT_START,
    FRAME_OVERHEAD,
    FRAME_START,
    AmqpError,
    FieldTable,
    MalformedError,
    Method,
    append_content,
    heartbeat_frame,
    method_at,
    method_frame,
)

__all__ = ["AmqpError", "Connection", "Handler", "State", "Tuning", "Writer"]


class Writer(ABC):
    """Where a connection puts what it sends. Nothing is sent before `write` returns, and the order is kept."""

    __slots__ = ()

    @abstractmethod
    def write(self, data: bytes) -> None:
        """Take one or more whole frames, or a part of one; must not call the connection."""

    @abstractmethod
    def written(self) -> int:
        """A number that rises with everything written here: two equal answers mean an idle line."""


class Handler(ABC):
    """What a connection tells the broker's side. Every call may raise AmqpError but on_channel_closed and on_closed.

    An error ends the channel or the connection, as its code says; on channel 0 always the connection. A handler
    may call `send`, `fail` and `fail_channel` from inside any of these.
    """

    __slots__ = ()

    @abstractmethod
    def on_start_ok(self, mechanism: str, response: bytes, client_properties: FieldTable) -> bytes | None:
        """The client chose an offered mechanism: answer the next challenge, or None, who it is being settled.

        A refusal is AmqpError 403.
        """

    @abstractmethod
    def on_secure_ok(self, response: bytes) -> bytes | None:
        """The client answered the challenge. As on_start_ok."""

    @abstractmethod
    def on_open(self, virtual_host: str) -> None:
        """The client wants this virtual host. The limits have been agreed; open-ok is sent after the call."""

    @abstractmethod
    def on_update_secret(self, secret: bytes, reason: str) -> None:
        """The client has a fresh secret; update-secret-ok is sent after the call."""

    @abstractmethod
    def on_channel_open(self, channel: int) -> None:
        """A channel begins; open-ok is sent after the call. An error ends the connection."""

    @abstractmethod
    def on_channel_closed(self, channel: int) -> None:
        """The channel ended, whatever ended it; once per channel, before the peer is told."""

    @abstractmethod
    def on_method(self, channel: int, method: Method) -> None:
        """Any other method a client may send, on an open channel."""

    @abstractmethod
    def on_publish(self, channel: int, publish: bytes, properties: bytes, body: bytes) -> None:
        """A whole message. `publish` are the undecoded arguments of basic.publish, unchecked.

        It is the same object for as long as a channel repeats itself. `properties` are the content header from
        its flags on, unchecked as well.
        """

    @abstractmethod
    def on_ack(self, channel: int, delivery_tag: int, multiple: bool) -> None:
        """basic.ack."""

    @abstractmethod
    def on_closed(self) -> None:
        """The connection ended, whatever ended it; once, after its channels and before the peer is told."""


class Tuning:
    """What the server offers and insists on. A frame_max or channel_max of 0 is no limit, a heartbeat of 0 none."""

    __slots__ = (
        "body_size_max",
        "channel_max",
        "frame_max",
        "frame_min",
        "handshake_timeout_s",
        "heartbeat_s",
        "initial_frame_max",
        "mechanisms",
        "server_properties",
    )

    def __init__(
        self,
        channel_max: int = 2047,
        frame_max: int = 131_072,
        heartbeat_s: int = 60,
        frame_min: int = 4096,
        initial_frame_max: int = 8192,
        body_size_max: int = 16_777_216,
        handshake_timeout_s: float = 10.0,
        mechanisms: tuple[str, ...] = ("PLAIN",),
        server_properties: FieldTable | None = None,
    ) -> None:
        self.channel_max = channel_max
        self.frame_max = frame_max
        self.heartbeat_s = heartbeat_s
        self.frame_min = frame_min
        self.initial_frame_max = initial_frame_max  # until tune-ok
        self.body_size_max = body_size_max
        self.handshake_timeout_s = handshake_timeout_s  # for a close-ok as well
        self.mechanisms = mechanisms
        self.server_properties: FieldTable = {} if server_properties is None else server_properties


class State(Enum):
    """Where a connection is; the value is how error texts call it."""

    AWAITING_HEADER = "awaiting the protocol header"
    STARTING = "starting"
    SECURING = "securing"
    TUNING = "tuning"
    OPENING = "opening"
    OPEN = "running"
    CLOSING = "closing"
    CLOSED = "closed"


class Expects(Enum):
    """What a channel takes next."""

    OPEN = "channel.open"
    METHOD = "a method"
    HEADER = "a content header"
    BODY = "a content body"
    CLOSE_OK = "channel.close-ok"


class Channel:
    """One channel: what it expects, the last publish, and as much of its content as came."""

    __slots__ = ("body", "expects", "number", "properties", "publish", "publish_frame", "remaining")

    def __init__(self, number: int) -> None:
        self.number = number
        self.expects = Expects.OPEN
        self.publish_frame = b""
        self.publish = b""
        self.properties = b""
        # One growing array, not a list of parts: a million tiny body frames must not cost more than their octets.
        self.body = bytearray()
        self.remaining = 0


HEADERS: Final = frozenset(
    (b"AMQP\x00\x00\x09\x01", b"AMQP\x01\x01\x00\x09")
)  # the second is how 0-9 spelt it
HEADER_0_9_1: Final = b"AMQP\x00\x00\x09\x01"
HEADER_OTHERWISE: Final = b"AMQP\x03\x01\x00\x00"  # AMQP 1.0 with SASL
OTHER_AMQP: Final = {
    b"\x00\x01\x00\x00": "AMQP 1.0",
    b"\x03\x01\x00\x00": "AMQP 1.0 with SASL",
    b"\x02\x01\x00\x00": "AMQP 1.0 with TLS",
    b"\x01\x01\x00\x0a": "AMQP 0-10",
}
HTTP_METHODS: Final = frozenset(
    ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "CONNECT", "PATCH", "PRI")
)
HTTP_ANSWER: Final = (
    b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nContent-Length: 25\r\n"
    b"Connection: close\r\n\r\nThis port speaks AMQP.\r\n\r\n"
)
TLS_ALERT: Final = b"\x15\x03\x01\x00\x02\x02\x46"  # fatal, protocol version


def recognise(header: bytes) -> tuple[str, bytes]:
    """What a peer speaks whose first eight octets are not ours, and what it is answered."""
    verb = header.split(b" ")[0].decode("latin-1")
    if verb in HTTP_METHODS:
        return f"HTTP {verb}", HTTP_ANSWER
    if header[:2] == b"\x16\x03":
        return "TLS", TLS_ALERT
    if header[:4] != b"AMQP":
        return "an unknown protocol", HEADER_OTHERWISE
    spoke = OTHER_AMQP.get(header[4:], "an unknown version of AMQP")
    return spoke, HEADER_0_9_1 if header[4:6] == b"\x00\x00" and header[6] >= 9 else HEADER_OTHERWISE


def reply_text(error: AmqpError) -> str:
    """`NAME - explanation`, at most 255 octets and valid UTF-8, for a short string that any client can read."""
    text = f"{REPLY_NAMES.get(error.code, 'INTERNAL_ERROR')} - {error.text}"
    readable = text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return readable.encode()[:255].decode("utf-8", "ignore")


def check_tuned(name: str, lowest: int, highest: int, chosen: int) -> None:
    """Refuse what a client made of our offer if it is out of bounds; 0 is no limit on either side."""
    if chosen and chosen < lowest:
        bound = f"lower than the minimum allowed value ({lowest})"
    elif highest and (chosen == 0 or chosen > highest):
        bound = f"higher than the maximum allowed value ({highest})"
    else:
        return
    raise AmqpError(NOT_ALLOWED, f"negotiated {name} = {chosen}{'' if chosen else ' (no limit)'} is {bound}")


KINDS: Final = frozenset((FRAME_METHOD, FRAME_HEADER, FRAME_BODY, FRAME_HEARTBEAT))
BASIC_PUBLISH: Final = b"\x00\x3c\x00\x28"
BASIC_ACK: Final = b"\x00\x3c\x00\x50"
ACK_SIZE: Final = 13
TAG_AND_BITS: Final = Struct(">QB")
CHANNEL_OPEN: Final = b"\x00\x14\x00\x0a"
CHANNEL_CLOSE: Final = b"\x00\x14\x00\x28"
CHANNEL_CLOSE_OK: Final = b"\x00\x14\x00\x29"
CLOSES: Final = (b"\x00\x0a\x00\x32", b"\x00\x0a\x00\x33")  # connection.close and close-ok
CLASS_CONNECTION: Final = 10
QUICK_CONTENT: Final = Struct(">BHIIQ")  # CONTENT_START with class and weight in one
CONTENT_HEADER: Final = Struct(">HHQ")
NUMBERS: Final = Struct(">HH")
FLAGS_SIZE: Final = 2
HEARTBEAT: Final = heartbeat_frame()
ENDING: Final = (State.CLOSING, State.CLOSED)
AUTHENTICATING: Final = (State.STARTING, State.SECURING)


class Connection:
    """One connection, from its first octet to its last. See the top of the module."""

    __slots__ = (
        "_blocked",
        "_channels",
        "_closing_until",
        "_finished",
        "_handshake_until",
        "_monitoring",
        "_needed",
        "_payload_max",
        "_publishing",
        "_received_at",
        "_tail",
        "_tail_size",
        "_tick_at",
        "_whole_body_max",
        "_written",
        "channel_max",
        "client_properties",
        "ended_because",
        "frame_max",
        "handler",
        "heartbeat_s",
        "outbox",
        "peer_spoke",
        "state",
        "tuning",
    )

    def __init__(self, handler: Handler, tuning: Tuning, outbox: Writer, now: float) -> None:
        self.handler = handler
        self.tuning = tuning
        self.outbox = outbox
        self.state = State.AWAITING_HEADER
        self.peer_spoke = ""  # "AMQP 0-9-1", "HTTP GET", "TLS", ...
        self.ended_because = ""
        self.client_properties: FieldTable = {}
        self.frame_max = tuning.initial_frame_max  # as agreed; 0 is no limit
        self.channel_max = tuning.channel_max
        self.heartbeat_s = 0
        self._channels: dict[int, Channel] = {}
        self._publishing: Channel | None = None  # the channel of the last publish, if it expects a method
        self._payload_max = tuning.initial_frame_max
        self._whole_body_max = 0
        self._tail: list[bytes] = []  # the beginning of a frame of `_needed` octets, in the pieces that came
        self._tail_size = 0
        self._needed = len(HEADER_0_9_1)
        self._blocked: str | None = None
        self._finished = False
        self._handshake_until = now + tuning.handshake_timeout_s
        self._closing_until: float | None = None
        self._received_at = now
        self._monitoring = True
        self._tick_at = now
        self._written = 0

    @property
    def closed(self) -> bool:
        """Nothing more will be said or heard: flush the outbox and close the transport."""
        return self.state is State.CLOSED

    # Bytes in.

    def receive(self, data: bytes, now: float) -> None:
        """Take what the peer sent. Whatever it is, this raises nothing but what a handler raised besides AmqpError."""
        self._received_at = now
        if self.closed:
            return
        if self._tail:
            self._tail.append(data)
            self._tail_size += len(data)
            if self._tail_size < self._needed:
                return
            data = b"".join(self._tail)
        at = self._greet(data) if self.state is State.AWAITING_HEADER else 0
        at = self._take_frames(data, at)
        rest = b"" if self.closed else data[at:]
        self._tail = [rest] if rest else []
        self._tail_size = len(rest)

    def _greet(self, data: bytes) -> int:
        """Read the protocol header, if it is there; answer the offset after it."""
        header = data[: len(HEADER_0_9_1)]
        if len(header) < len(HEADER_0_9_1):
            return 0
        if header not in HEADERS:
            self.peer_spoke, answer = recognise(header)
            self.outbox.write(answer)
            self._drop(f"the peer speaks {self.peer_spoke}")
            return len(data)
        self.peer_spoke = "AMQP 0-9-1"
        self.state = State.STARTING
        mechanisms = " ".join(self.tuning.mechanisms).encode()
        self._say(0, ConnectionStart(0, 9, self.tuning.server_properties, mechanisms, b"en_US"))
        return len(header)

    def _take_frames(self, data: bytes, at: int) -> int:
        """Handle every whole frame from `at` on; answer where the first incomplete one begins."""
        end = len(data)
        handler = self.handler
        while at + FRAME_OVERHEAD <= end:
            channel = self._publishing
            if channel is not None and data.startswith(channel.publish_frame, at):
                at += len(channel.publish_frame)
            else:
                kind, number, size = FRAME_START.unpack_from(data, at)
                start, after = at, at + FRAME_OVERHEAD + size
                if (
                    size > self._payload_max
                    or kind not in KINDS
                    or (after <= end and data[after - 1] != FRAME_END)
                ):
                    return self._lose_framing(kind, number, size, end)
                if after > end:
                    self._needed = FRAME_OVERHEAD + size
                    return at
                at = after
                channel = self._channels.get(number)
                if channel is None or kind != FRAME_METHOD or channel.expects is not Expects.METHOD:
                    self._take_frame(kind, number, data, start + 7, after - 1)
                    continue
                if size == ACK_SIZE and data.startswith(BASIC_ACK, start + 7):
                    tag, bits = TAG_AND_BITS.unpack_from(data, start + 11)
                    try:
                        handler.on_ack(number, tag, bits & 1 == 1)
                    except AmqpError as error:
                        self._refuse(number, error, BASIC_ACK)
                    continue
                if not data.startswith(BASIC_PUBLISH, start + 7):
                    self._take_frame(kind, number, data, start + 7, after - 1)
                    continue
                if not data.startswith(channel.publish_frame, start) or not channel.publish_frame:
                    channel.publish_frame = data[start:after]
                    channel.publish = data[start + 11 : after - 1]
                self._publishing = channel
            # A publish on `channel`. If its content lies here in one header and one body, hand it on at once.
            if at + CONTENT_START.size < end:
                kind, number, size, class_and_weight, body_size = QUICK_CONTENT.unpack_from(data, at)
                body_at = at + FRAME_OVERHEAD + size + 7
                body_end = body_at + body_size
                if (
                    (
                        kind == FRAME_HEADER
                        and number == channel.number
                        and class_and_weight == CLASS_BASIC << 16
                    )
                    and (CONTENT_HEADER_SIZE + FLAGS_SIZE <= size <= self._payload_max)
                    and (0 < body_size <= self._whole_body_max and body_end < end)
                    and (data[body_at - 8] == FRAME_END and data[body_end] == FRAME_END)
                    and FRAME_START.unpack_from(data, body_at - 7) == (FRAME_BODY, number, body_size)
                ):
                    properties_at, at = at + CONTENT_START.size, body_end + 1
                    try:
                        handler.on_publish(
                            number, channel.publish, data[properties_at : body_at - 8], data[body_at:body_end]
                        )
                    except AmqpError as error:
                        self._refuse(number, error, BASIC_PUBLISH)
                    continue
            channel.expects = Expects.HEADER
            self._publishing = None
        return at

    def _lose_framing(self, kind: int, number: int, size: int, end: int) -> int:
        """Say what is wrong with a frame and be done: where the next one begins is not known any more."""
        if kind not in KINDS:
            text = f"type {kind}, channel {number}: unknown frame type"
        elif size > self._payload_max:
            text = f"type {kind}, channel {number}: frame too large, {size} octets of at most {self._payload_max}"
        else:
            text = f"type {kind}, channel {number}: the frame does not end with {FRAME_END:#x}"
        self.fail(AmqpError(FRAME_ERROR, text))
        self.state = State.CLOSED
        return end

    def _take_frame(self, kind: int, number: int, data: bytes, at: int, end: int) -> None:
        """Handle one frame, whose payload is `data[at:end]`, at whatever state we are in."""
        try:
            if number == 0:
                self._take_connection_frame(kind, data, at, end)
            elif self.state is State.OPEN:
                self._take_channel_frame(kind, number, data, at, end)
            elif self.state not in ENDING:
                raise AmqpError(
                    UNEXPECTED_FRAME, f"a frame on channel {number} in connection state {self.state.value}"
                )
        except AmqpError as error:
            self._refuse(
                number, error, data[at : min(at + 4, end)] if kind == FRAME_METHOD else BASIC_PUBLISH
            )

    def _refuse(self, number: int, error: AmqpError, method: bytes) -> None:
        """End what the error ends, naming the method that failed by its encoded numbers."""
        if not error.class_id and len(method) == NUMBERS.size:
            error.class_id, error.method_id = NUMBERS.unpack(method)
        if number:
            self.fail_channel(number, error)
        else:
            self.fail(error)

    # The connection itself.

    def _take_connection_frame(self, kind: int, data: bytes, at: int, end: int) -> None:
        if self.state is State.CLOSED or (self.state is State.CLOSING and not data.startswith(CLOSES, at)):
            return
        if kind == FRAME_HEARTBEAT and at == end:
            return
        if kind != FRAME_METHOD:
            raise AmqpError(UNEXPECTED_FRAME, "expected method frame, got non method frame instead")
        method = method_at(data, at, end)
        step = STEPS.get((self.state, type(method)))
        if step is None:
            raise AmqpError(CHANNEL_ERROR, f"unexpected method in connection state {self.state.value}")
        step(self, method)

    def _start_ok(self, method: Method) -> None:
        assert isinstance(method, ConnectionStartOk)
        self.client_properties = method.client_properties
        if method.mechanism not in self.tuning.mechanisms:
            raise AmqpError(COMMAND_INVALID, f"unknown authentication mechanism '{method.mechanism}'")
        self._proceed(self.handler.on_start_ok(method.mechanism, method.response, method.client_properties))

    def _secure_ok(self, method: Method) -> None:
        assert isinstance(method, ConnectionSecureOk)
        self._proceed(self.handler.on_secure_ok(method.response))

    def _proceed(self, challenge: bytes | None) -> None:
        """Go on with the next challenge or, there being none, with the limits."""
        if self.state in ENDING:
            return
        if challenge is not None:
            self.state = State.SECURING
            self._say(0, ConnectionSecure(challenge))
            return
        self.state = State.TUNING
        tuning = self.tuning
        self._say(0, ConnectionTune(tuning.channel_max, tuning.frame_max, tuning.heartbeat_s))

    def _tune_ok(self, method: Method) -> None:
        assert isinstance(method, ConnectionTuneOk)
        tuning = self.tuning
        check_tuned("frame_max", tuning.frame_min, tuning.frame_max, method.frame_max)
        check_tuned("channel_max", 1, tuning.channel_max, method.channel_max)
        self.frame_max = method.frame_max
        self.channel_max = method.channel_max
        self.heartbeat_s = method.heartbeat
        # No limit on frames is still one: nothing larger than a body is ever welcome.
        self._payload_max = self.frame_max or max(tuning.body_size_max, tuning.frame_min)
        self._whole_body_max = min(self._payload_max, tuning.body_size_max)
        self.state = State.OPENING

    def _open(self, method: Method) -> None:
        assert isinstance(method, ConnectionOpen)
        self.handler.on_open(method.virtual_host)
        if self.state in ENDING:
            return
        self.state = State.OPEN
        self._tick_at = self._received_at + self.heartbeat_s / 2
        self._say(0, ConnectionOpenOk())
        if self._blocked is not None:
            self.blocked(self._blocked)

    def _update_secret(self, method: Method) -> None:
        assert isinstance(method, ConnectionUpdateSecret)
        self.handler.on_update_secret(method.new_secret, method.reason)
        self.send(0, ConnectionUpdateSecretOk())

    def _close_asked(self, method: Method) -> None:
        assert isinstance(method, ConnectionClose)
        self._drop(f"the client closed it: {method.reply_code} {method.reply_text}")
        self._say(0, ConnectionCloseOk())

    def _close_crossed(self, method: Method) -> None:
        self._say(0, ConnectionCloseOk())

    def _close_agreed(self, method: Method) -> None:
        self.state = State.CLOSED

    def fail(self, error: AmqpError) -> None:
        """End the connection for this reason, whatever the code; nothing happens if it is ending already."""
        if self.state in ENDING:
            return
        text = reply_text(error)
        if self._must_close_silently(error):
            self._drop(text)
            return
        self.state = State.CLOSING
        self._end(text)
        self._say(0, ConnectionClose(error.code, text, error.class_id, error.method_id))

    def _must_close_silently(self, error: AmqpError) -> bool:
        """Nobody to talk to yet; or a login failed and the client has not said that it can be told."""
        if self.state is State.AWAITING_HEADER:
            return True
        refused = error.code == ACCESS_REFUSED and self.state in AUTHENTICATING
        return refused and not self.has_capability("authentication_failure_close")

    def lost(self) -> None:
        """The transport ended."""
        self._drop("the transport ended")

    def _drop(self, because: str) -> None:
        self.state = State.CLOSED
        self._end(because)

    def _end(self, because: str) -> None:
        """End what belongs to the connection, once. The state has been changed before: nothing is sent meanwhile."""
        if self._finished:
            return
        self._finished = True
        self.ended_because = because
        self._publishing = None
        while self._channels:
            number, channel = self._channels.popitem()
            if channel.expects is not Expects.CLOSE_OK:
                self.handler.on_channel_closed(number)
        self.handler.on_closed()

    # Channels.

    def _take_channel_frame(self, kind: int, number: int, data: bytes, at: int, end: int) -> None:
        channel = self._channels.get(number)
        if channel is None:
            channel = Channel(number)
        step = CHANNEL_STEPS.get((channel.expects, kind))
        if step is None or kind == FRAME_HEARTBEAT:
            raise AmqpError(*UNEXPECTED[channel.expects])
        step(self, channel, data, at, end)

    def _open_channel(self, channel: Channel, data: bytes, at: int, end: int) -> None:
        if not data.startswith(CHANNEL_OPEN, at):
            raise AmqpError(*UNEXPECTED[channel.expects])
        method_at(data, at, end)
        opened = len(self._channels)
        if self.channel_max and opened >= self.channel_max:
            text = f"number of channels opened ({opened}) has reached the negotiated channel_max ({self.channel_max})"
            raise AmqpError(NOT_ALLOWED, text)
        channel.expects = Expects.METHOD
        self._channels[channel.number] = channel
        try:
            self.handler.on_channel_open(channel.number)
        except AmqpError as error:
            self._channels.pop(channel.number, None)
            self._refuse(0, error, CHANNEL_OPEN)
        self.send(channel.number, ChannelOpenOk())

    def _take_method(self, channel: Channel, data: bytes, at: int, end: int) -> None:
        method = method_at(data, at, end)
        step = METHOD_STEPS.get(type(method))
        if step is not None:
            step(self, channel)
        elif method.to_server and method.class_id != CLASS_CONNECTION:
            self.handler.on_method(channel.number, method)
        else:
            raise AmqpError(COMMAND_INVALID, "unimplemented method")

    def _second_open(self, channel: Channel) -> None:
        raise AmqpError(CHANNEL_ERROR, "second 'channel.open' seen")

    def _stray_close_ok(self, channel: Channel) -> None:
        raise AmqpError(CHANNEL_ERROR, "unexpected 'channel.close-ok'")

    def _close_channel(self, channel: Channel) -> None:
        del self._channels[channel.number]
        self._end_channel(channel)
        if self.state is State.OPEN:
            self._say(channel.number, ChannelCloseOk())

    def _end_channel(self, channel: Channel) -> None:
        channel.expects = Expects.CLOSE_OK
        channel.body = bytearray()
        if self._publishing is channel:
            self._publishing = None
        self.handler.on_channel_closed(channel.number)

    def _while_closing(self, channel: Channel, data: bytes, at: int, end: int) -> None:
        if data.startswith(CHANNEL_CLOSE_OK, at):
            del self._channels[channel.number]
        elif data.startswith(CHANNEL_CLOSE, at):
            self._say(channel.number, ChannelCloseOk())

    def _pass_over(self, channel: Channel, data: bytes, at: int, end: int) -> None:
        """What was under way when the channel failed."""

    def fail_channel(self, number: int, error: AmqpError) -> None:
        """End the channel for this reason, or the connection if the code is a hard one."""
        if error.code not in SOFT_ERRORS:
            self.fail(error)
            return
        channel = self._channels.get(number)
        if channel is None or channel.expects is Expects.CLOSE_OK:
            return
        self._end_channel(channel)
        if number in self._channels:
            self._say(number, ChannelClose(error.code, reply_text(error), error.class_id, error.method_id))

    # Contents, frame by frame.

    def _take_header(self, channel: Channel, data: bytes, at: int, end: int) -> None:
        if end - at < CONTENT_HEADER_SIZE + FLAGS_SIZE:
            raise MalformedError("a content header is cut short")
        class_id, weight, body_size = CONTENT_HEADER.unpack_from(data, at)
        if class_id != CLASS_BASIC:
            text = f"expected content header for class {CLASS_BASIC}, got one for class {class_id} instead"
            raise AmqpError(UNEXPECTED_FRAME, text)
        if weight != 0:
            raise MalformedError("the weight of a content header must be zero")
        size_max = self.tuning.body_size_max
        if body_size > size_max:
            text = f"message size {body_size} is larger than configured max size {size_max}"
            raise AmqpError(PRECONDITION_FAILED, text)
        channel.properties = data[at + CONTENT_HEADER_SIZE : end]
        channel.remaining = body_size
        channel.expects = Expects.BODY
        if body_size == 0:
            self._hand_on(channel, b"")

    def _take_body(self, channel: Channel, data: bytes, at: int, end: int) -> None:
        size = end - at
        if size > channel.remaining:
            raise AmqpError(FRAME_ERROR, "content body frame exceeds remaining content size")
        channel.remaining -= size
        if channel.remaining:
            channel.body += data[at:end]
        elif channel.body:
            channel.body += data[at:end]
            self._hand_on(channel, bytes(channel.body))
        else:
            self._hand_on(channel, data[at:end])

    def _hand_on(self, channel: Channel, body: bytes) -> None:
        properties = channel.properties
        channel.properties, channel.body = b"", bytearray()
        channel.expects = Expects.METHOD
        self._publishing = channel
        self.handler.on_publish(channel.number, channel.publish, properties, body)

    # Bytes out.

    def send(self, channel: int, method: Method) -> None:
        """Send a method; dropped without a word if the channel or the connection is not open any more."""
        if self.is_open(channel):
            self._say(channel, method)

    def send_content(self, channel: int, method: bytes, properties: bytes, body: bytes) -> int:
        """Send a message, `method` being the payload of its method frame; answer the octets written, 0 if dropped."""
        if not self.is_open(channel):
            return 0
        frames: list[bytes] = []
        size = append_content(frames, channel, method, properties, body, self.frame_max)
        for frame in frames:
            self.outbox.write(frame)
        return size

    def is_open(self, channel: int) -> bool:
        """May something be sent there? Channel 0 is the connection."""
        if self.state is not State.OPEN:
            return False
        found = self._channels.get(channel)
        return channel == 0 or (found is not None and found.expects is not Expects.CLOSE_OK)

    def _say(self, channel: int, method: Method) -> None:
        self.outbox.write(method_frame(channel, method.encode()))

    def blocked(self, reason: str) -> None:
        """Tell the client, if it wants to know, that it is not read from; before open it is told after open-ok."""
        self._blocked = reason
        if self.has_capability("connection.blocked"):
            self.send(0, ConnectionBlocked(reason))

    def unblocked(self) -> None:
        """Take back `blocked`."""
        if self._blocked is not None and self.has_capability("connection.blocked"):
            self.send(0, ConnectionUnblocked())
        self._blocked = None

    def has_capability(self, name: str) -> bool:
        capabilities = self.client_properties.get("capabilities")
        return isinstance(capabilities, dict) and capabilities.get(name) is True

    # Time.

    def deadline(self) -> float | None:
        """When `on_deadline` wants to be called, whatever happens until then; None if never."""
        if self.state is State.CLOSED:
            return None
        if self.state is State.CLOSING:
            return self._received_at if self._closing_until is None else self._closing_until
        if self.state is not State.OPEN:
            return self._handshake_until
        if not self.heartbeat_s:
            return None
        return min(self._tick_at, self._silent_until()) if self._monitoring else self._tick_at

    def _silent_until(self) -> float:
        return self._received_at + 2 * self.heartbeat_s

    def on_deadline(self, now: float) -> None:
        """Do what is due; calling it early does no harm."""
        if self.state is State.OPEN:
            if self.heartbeat_s:
                self._watch(now)
        elif self.state is State.CLOSING:
            self._await_close_ok(now)
        elif self.state is not State.CLOSED and now >= self._handshake_until:
            self._drop(f"the handshake took too long (in state {self.state.value})")

    def _watch(self, now: float) -> None:
        """Give up a peer that was silent for two intervals; send a heartbeat if we were for half of one."""
        if self._monitoring and now >= self._silent_until():
            self._drop(f"missed heartbeats from client, timeout: {self.heartbeat_s}s")
            return
        if now < self._tick_at:
            return
        if self.outbox.written() == self._written:
            self.outbox.write(HEARTBEAT)
        self._written = self.outbox.written()
        self._tick_at = now + self.heartbeat_s / 2

    def _await_close_ok(self, now: float) -> None:
        """The first call after the close was sent only starts the clock: `fail` is not told the time."""
        if self._closing_until is None:
            self._closing_until = now + self.tuning.handshake_timeout_s
        elif now >= self._closing_until:
            self.state = State.CLOSED

    def pause_monitor(self) -> None:
        """The peer is not read from: its silence means nothing."""
        self._monitoring = False

    def resume_monitor(self, now: float) -> None:
        """The peer is read from again, and has two intervals from now."""
        self._monitoring = True
        self._received_at = now


STEPS: Final[dict[tuple[State, type[Method]], Callable[[Connection, Method], None]]] = {
    (State.STARTING, ConnectionStartOk): Connection._start_ok,
    (State.STARTING, ConnectionClose): Connection._close_asked,
    (State.SECURING, ConnectionSecureOk): Connection._secure_ok,
    (State.SECURING, ConnectionClose): Connection._close_asked,
    (State.TUNING, ConnectionTuneOk): Connection._tune_ok,
    (State.TUNING, ConnectionClose): Connection._close_asked,
    (State.OPENING, ConnectionOpen): Connection._open,
    (State.OPENING, ConnectionClose): Connection._close_asked,
    (State.OPEN, ConnectionUpdateSecret): Connection._update_secret,
    (State.OPEN, ConnectionClose): Connection._close_asked,
    (State.CLOSING, ConnectionClose): Connection._close_crossed,
    (State.CLOSING, ConnectionCloseOk): Connection._close_agreed,
}

CHANNEL_STEPS: Final[dict[tuple[Expects, int], Callable[[Connection, Channel, bytes, int, int], None]]] = {
    (Expects.OPEN, FRAME_METHOD): Connection._open_channel,
    (Expects.METHOD, FRAME_METHOD): Connection._take_method,
    (Expects.HEADER, FRAME_HEADER): Connection._take_header,
    (Expects.BODY, FRAME_BODY): Connection._take_body,
    (Expects.CLOSE_OK, FRAME_METHOD): Connection._while_closing,
    (Expects.CLOSE_OK, FRAME_HEADER): Connection._pass_over,
    (Expects.CLOSE_OK, FRAME_BODY): Connection._pass_over,
}
UNEXPECTED: Final[dict[Expects, tuple[int, str]]] = {
    Expects.OPEN: (CHANNEL_ERROR, "expected 'channel.open'"),
    Expects.METHOD: (UNEXPECTED_FRAME, "expected method frame, got non method frame instead"),
    Expects.HEADER: (
        UNEXPECTED_FRAME,
        f"expected content header for class {CLASS_BASIC}, got non content header frame instead",
    ),
    Expects.BODY: (UNEXPECTED_FRAME, "expected content body, got non content body frame instead"),
    Expects.CLOSE_OK: (UNEXPECTED_FRAME, "heartbeat on a channel"),
}

# What an open channel does not pass on to the handler.
METHOD_STEPS: Final[dict[type[Method], Callable[[Connection, Channel], None]]] = {
    ChannelOpen: Connection._second_open,
    ChannelClose: Connection._close_channel,
    ChannelCloseOk: Connection._stray_close_ok,
}
