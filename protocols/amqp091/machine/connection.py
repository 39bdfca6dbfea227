"""The server's side of an AMQP 0-9-1 connection, which turns bytes into calls of a handler and bytes for an outbox.

A connection waits for the protocol header, goes through the handshake (start, secure, tune, open, each answered before
the next), is open, and ends: by a close and its close-ok, by silence, or with the transport. The table STEPS holds
every connection method that is allowed in a state; any other is a violation. While the handler checks a password, input
is kept for later. However a connection ends, every channel ends first and then, once, the handler is called; only after
that close-ok is sent.

Inside an open connection a channel expects one of four things: a method, the header of a content, the rest of its body,
or, after an error, the close-ok that frees its number; CHANNEL_STEPS has a step for each. A number without a channel
expects channel.open. Errors are raised as AmqpError, and their code decides what they end: a soft error the channel, a
hard one the connection. While a side is closing, whatever the peer had sent already is dropped silently.

Input is handled at two speeds: `reader` handles publishes and acks, and passes all else on to this module frame by
frame.

Time is passed in, because the machine knows no clock, no socket and no broker: `deadline` returns when to call it next,
and once `closed` is true the outbox is to be flushed and the transport closed.
"""

from collections.abc import Callable, Iterable
from functools import partial
from struct import Struct
from typing import ClassVar, Final

from mypy_extensions import mypyc_attr

from leveret.protocols.amqp091.codec import methods as m
from leveret.protocols.amqp091.codec.methods import (
    FRAME_BODY,
    FRAME_END,
    FRAME_HEADER,
    FRAME_HEARTBEAT,
    FRAME_METHOD,
)
from leveret.protocols.amqp091.codec.wire import (
    AmqpError,
    FieldTable,
    Method,
    heartbeat_frame,
    method_at,
    method_frame,
    reply_text,
)
from leveret.protocols.amqp091.machine.channel_input import UNEXPECTED, ChannelInput, Expects
from leveret.protocols.amqp091.machine.contract import Handler, Traffic, Tuning
from leveret.protocols.amqp091.machine.greeting import HEADER_0_9_1, HEADERS, recognise
from leveret.protocols.amqp091.machine.reader import BASIC_PUBLISH, KINDS, Reader
from leveret.protocols.shared.machine.contract import Wait, Writer
from leveret.protocols.shared.machine.states import (
    AWAITING_HEADER,
    CHECKING,
    CLOSED,
    CLOSING,
    ENDING,
    OPEN,
    OPENING,
    SECURING,
    STARTING,
    TUNING,
    State,
)
from leveret.protocols.shared.machine.unfinished import STALLED_S

CLOSE_OK: Final = Expects.CLOSE_OK
METHOD: Final = Expects.METHOD
BODY: Final = Expects.BODY

__all__ = ["AmqpError", "Connection", "Handler", "State", "Traffic", "Tuning"]

CHANNEL_OPEN: Final = b"\x00\x14\x00\x0a"
CHANNEL_CLOSE: Final = b"\x00\x14\x00\x28"
CHANNEL_CLOSE_OK: Final = b"\x00\x14\x00\x29"
CLOSES: Final = (b"\x00\x0a\x00\x32", b"\x00\x0a\x00\x33")  # connection.close and close-ok
CLASS_CONNECTION: Final = 10
START_OK: Final = b"\x00\x0a\x00\x0b"
SECURE_OK: Final = b"\x00\x0a\x00\x15"
NUMBERS: Final = Struct(">HH")
AUTHENTICATING: Final = (State.STARTING, State.SECURING, State.CHECKING)


@mypyc_attr(allow_interpreted_subclasses=True)
class Connection(Reader):
    """A connection from its first byte to its last. See the top of the module."""

    __slots__ = (
        "_asked",
        "_blocked",
        "channel_max",
        "client_properties",
        "frame_max",
        "tuning",
    )

    HEARTBEAT: ClassVar[bytes] = heartbeat_frame()

    def __init__(
        self, handler: Handler, traffic: Traffic, tuning: Tuning, outbox: Writer, now: float
    ) -> None:
        super().__init__(handler, traffic, tuning.initial_frame_max, outbox, now, tuning.handshake_timeout_s)
        self.tuning = tuning
        self.unfinished.bound(tuning.body_size_max)
        self.client_properties: FieldTable = {}
        self.frame_max = tuning.initial_frame_max  # as negotiated; 0 is no limit
        self.channel_max = tuning.channel_max
        self._asked = START_OK  # the method that the password was sent with
        self._blocked: str | None = None

    def _check(self) -> None:
        """Continue with the kept input, if the handler has finished the check of the password."""
        try:
            self._proceed(self.handler.on_checked())
        except AmqpError as error:
            self._refuse(0, error, self._asked)
        if self.state is not CHECKING:
            self._take(b"")

    def _take_greeting(self, data: bytes) -> int:
        header = data[: len(HEADER_0_9_1)]
        if self.state is not AWAITING_HEADER or len(header) < len(HEADER_0_9_1):
            return 0
        if header not in HEADERS:
            self.peer_spoke, answer = recognise(header, self.tuning.serves_1_0)
            self.outbox.write(answer)
            self._drop(f"the peer speaks {self.peer_spoke}")
            return len(data)
        self.peer_spoke = "AMQP 0-9-1"
        self.state = STARTING
        mechanisms = " ".join(self.tuning.mechanisms).encode()
        self._say(0, m.ConnectionStart(0, 9, self.tuning.server_properties, mechanisms, b"en_US"))
        return len(header)

    def _lose_framing(self, kind: int, number: int, size: int) -> None:
        text = f"type {kind}, channel {number}: "
        if kind not in KINDS:
            text += "unknown frame type"
        elif size > self._payload_max:
            text += f"frame too large, {size} octets of at most {self._payload_max}"
        else:
            text += f"the frame does not end with {FRAME_END:#x}"
        self.fail(AmqpError(m.FRAME_ERROR, text))
        self.state = CLOSED

    def _take_frame(self, kind: int, number: int, data: bytes, at: int, end: int) -> None:
        try:
            if number == 0:
                self._take_connection_frame(kind, data, at, end)
            elif self.state is OPEN:
                self._take_channel_frame(kind, number, data, at, end)
            elif self.state not in ENDING:
                text = f"a frame on channel {number} in connection state {self.state.value}"
                raise AmqpError(m.UNEXPECTED_FRAME, text)
        except AmqpError as error:
            method = data[at : min(at + 4, end)] if kind == FRAME_METHOD else BASIC_PUBLISH
            self._refuse(number, error, method)

    def _refuse(self, number: int, error: AmqpError, method: bytes) -> None:
        if not error.class_id and len(method) == NUMBERS.size:
            error.class_id, error.method_id = NUMBERS.unpack(method)
        if number:
            self.fail_channel(number, error)
        else:
            self.fail(error)

    def _take_connection_frame(self, kind: int, data: bytes, at: int, end: int) -> None:
        if self.state is CLOSED or (self.state is CLOSING and not data.startswith(CLOSES, at)):
            return
        if kind == FRAME_HEARTBEAT and at == end:
            return
        if kind != FRAME_METHOD:
            raise AmqpError(m.UNEXPECTED_FRAME, "expected method frame, got non method frame instead")
        method = method_at(data, at, end)
        step = STEPS.get((self.state, type(method)))
        if step is None:
            raise AmqpError(m.CHANNEL_ERROR, f"unexpected method in connection state {self.state.value}")
        step(self, method)

    def _start_ok(self, method: Method) -> None:
        assert isinstance(method, m.ConnectionStartOk)
        self.client_properties = method.client_properties
        if method.mechanism not in self.tuning.mechanisms:
            raise AmqpError(m.COMMAND_INVALID, f"unknown authentication mechanism '{method.mechanism}'")
        self._asked = START_OK
        self._proceed(self.handler.on_start_ok(method.mechanism, method.response, method.client_properties))

    def _secure_ok(self, method: Method) -> None:
        assert isinstance(method, m.ConnectionSecureOk)
        self._asked = SECURE_OK
        self._proceed(self.handler.on_secure_ok(method.response))

    def _proceed(self, challenge: bytes | Wait | None) -> None:
        """Send the next challenge or, if there is none, the limits in connection.tune."""
        if self.state in ENDING:
            return
        if isinstance(challenge, Wait):
            self.state = CHECKING
            self.halted = True  # the rest of this read is kept
            return
        if challenge is not None:
            self.state = SECURING
            self._say(0, m.ConnectionSecure(challenge))
            return
        self.state = TUNING
        tuning = self.tuning
        self._say(0, m.ConnectionTune(tuning.channel_max, tuning.frame_max, tuning.heartbeat_s))

    def _tune_ok(self, method: Method) -> None:
        assert isinstance(method, m.ConnectionTuneOk)
        tuning = self.tuning
        tuning.check(method.channel_max, method.frame_max)
        self.frame_max = method.frame_max
        self.channel_max = method.channel_max
        self._agree(method.heartbeat)
        # Without a negotiated limit frames are still limited: nothing larger than a body is ever accepted.
        self._payload_max = self.frame_max or max(tuning.body_size_max, tuning.frame_min)
        self._whole_body_max = min(self._payload_max, tuning.body_size_max)
        self.state = OPENING

    def _open(self, method: Method) -> None:
        assert isinstance(method, m.ConnectionOpen)
        self.handler.on_open(method.virtual_host)
        if self.state in ENDING:
            return
        self.state = OPEN
        self._say(0, m.ConnectionOpenOk())
        if self._blocked is not None:
            self.blocked(self._blocked)

    def _update_secret(self, method: Method) -> None:
        assert isinstance(method, m.ConnectionUpdateSecret)
        if self.handler.on_update_secret(method.new_secret, method.reason) is None:
            self.secret_updated()

    def secret_updated(self) -> None:
        """Confirm the new secret: at once, or when the handler has checked it."""
        self.send(0, m.ConnectionUpdateSecretOk())

    def _close_asked(self, method: Method) -> None:
        assert isinstance(method, m.ConnectionClose)
        because = f"the client closed it: {method.reply_code} {method.reply_text}"
        self._drop(because, method_frame(0, m.ConnectionCloseOk().encode()))

    def fail(self, error: AmqpError) -> None:
        """End the connection for this error, whatever its code. Do nothing if it is ending already."""
        if self.state in ENDING:
            return
        text = reply_text(error)
        if self._must_close_silently(error):
            self._drop(text)
            return
        self.state = CLOSING
        close = m.ConnectionClose(error.code, text, error.class_id, error.method_id)
        self._finish(text, method_frame(0, close.encode()))

    def _must_close_silently(self, error: AmqpError) -> bool:
        """Return whether to end without connection.close: before the protocol header, or after a failed login of a
        client without the capability authentication_failure_close."""
        if self.state is AWAITING_HEADER:
            return True
        refused = error.code == m.ACCESS_REFUSED and self.state in AUTHENTICATING
        return refused and not self.has_capability("authentication_failure_close")

    def _numbers(self) -> Iterable[int]:
        return self._channels

    def _end_one(self, number: int) -> None:
        channel = self._channels.pop(number, None)
        if channel is not None and channel.expects is not CLOSE_OK:
            self._end_channel(channel, None)

    def _release_some(self) -> bool:
        return self.handler.release_some()

    def _on_end(self) -> None:
        self.handler.on_closed()

    def _take_channel_frame(self, kind: int, number: int, data: bytes, at: int, end: int) -> None:
        channel = self._channels.get(number)
        if channel is None:
            channel = ChannelInput(number)
        step = CHANNEL_STEPS.get((channel.expects, kind))
        if step is None or kind == FRAME_HEARTBEAT:
            raise AmqpError(*UNEXPECTED[channel.expects])
        step(self, channel, data, at, end)

    def _open_channel(self, channel: ChannelInput, data: bytes, at: int, end: int) -> None:
        if not data.startswith(CHANNEL_OPEN, at):
            raise AmqpError(*UNEXPECTED[channel.expects])
        method_at(data, at, end)
        opened = len(self._channels)
        if self.channel_max and opened >= self.channel_max:
            text = f"number of channels opened ({opened}) has reached the negotiated channel_max ({self.channel_max})"
            raise AmqpError(m.NOT_ALLOWED, text)
        channel.expects = METHOD
        self._channels[channel.number] = channel
        try:
            self.handler.on_channel_open(channel.number)
        except AmqpError as error:
            self._channels.pop(channel.number, None)
            self._refuse(0, error, CHANNEL_OPEN)
        self.send(channel.number, m.ChannelOpenOk())

    def _take_method(self, channel: ChannelInput, data: bytes, at: int, end: int) -> None:
        method = method_at(data, at, end)
        step = METHOD_STEPS.get(type(method))
        if step is not None:
            step(self, channel)
        elif method.to_server and method.class_id != CLASS_CONNECTION:
            self.handler.on_method(channel.number, method)
        else:
            raise AmqpError(m.COMMAND_INVALID, "unimplemented method")

    def _close_channel(self, channel: ChannelInput) -> None:
        del self._channels[channel.number]
        self._end_channel(channel, m.ChannelCloseOk())

    def _end_channel(self, channel: ChannelInput, last: Method | None) -> None:
        """End a channel, and then send the last method, if the connection is still open."""
        channel.expects = CLOSE_OK
        channel.forget_content()
        self.unfinished.remove(channel.number)
        if self._publishing is channel:
            self._publishing = None
        self.ends(partial(self._release, channel.number, last))

    def _release(self, number: int, last: Method | None) -> bool:
        if self.handler.release_some_of(number):
            return True
        self.handler.on_channel_closed(number)
        if last is not None and self.state is OPEN:
            self._say(number, last)
        return False

    def _while_closing(self, channel: ChannelInput, data: bytes, at: int, end: int) -> None:
        if data.startswith(CHANNEL_CLOSE_OK, at):
            del self._channels[channel.number]
        elif data.startswith(CHANNEL_CLOSE, at):
            self._say(channel.number, m.ChannelCloseOk())

    def fail_channel(self, number: int, error: AmqpError) -> None:
        """End the channel for this error, or the connection if its code is a hard one."""
        if error.code not in m.SOFT_ERRORS:
            self.fail(error)
            return
        channel = self._channels.get(number)
        if channel is None or channel.expects is CLOSE_OK:
            return
        text = reply_text(error)
        self._end_channel(channel, m.ChannelClose(error.code, text, error.class_id, error.method_id))

    def _take_header(self, channel: ChannelInput, data: bytes, at: int, end: int) -> None:
        body = channel.take_header(data, at, end, self.tuning.body_size_max)
        if body is None:
            self.traffic.on_begun(channel.number, channel.publish)
            _keep_content(self, channel, end - at)
        else:
            self._hand_on(channel, body)

    def _take_body(self, channel: ChannelInput, data: bytes, at: int, end: int) -> None:
        body = channel.take_body(data, at, end)
        if body is None:
            _keep_content(self, channel, end - at)
        else:
            self.unfinished.remove(channel.number)
            self._hand_on(channel, body)

    def _give_up_content(self, owner: object) -> None:
        assert isinstance(owner, int)
        text = f"no part of a content has come for {STALLED_S:.0f} s"
        self._refuse(owner, AmqpError(m.PRECONDITION_FAILED, text), BASIC_PUBLISH)

    def _hand_on(self, channel: ChannelInput, body: bytes) -> None:
        """Pass a whole message on to the handler."""
        properties = channel.properties
        channel.forget_content()
        channel.expects = METHOD
        self._publishing = channel
        self.published += 1
        self.traffic.on_publish(channel.number, channel.publish, properties, body)

    def send(self, channel: int, method: Method) -> None:
        """Send a method. It is dropped silently if the channel or the connection is not open any more."""
        if self.is_open(channel):
            self._say(channel, method)

    def is_receiving(self) -> bool:
        """Return whether a content has been received in part, on any channel."""
        return any(channel.expects is BODY for channel in self._channels.values())

    def is_open(self, channel: int) -> bool:
        """Return whether something may be sent on this channel. Channel 0 is the connection."""
        if self.state is not OPEN:
            return False
        found = self._channels.get(channel)
        return channel == 0 or (found is not None and found.expects is not CLOSE_OK)

    def _say(self, channel: int, method: Method) -> None:
        self.outbox.write(method_frame(channel, method.encode()))

    def blocked(self, reason: str) -> None:
        """Send connection.blocked, if the client has that capability, because nothing is read from it; before the
        connection is open, it is sent after open-ok."""
        self._blocked = reason
        if self.has_capability("connection.blocked"):
            self.send(0, m.ConnectionBlocked(reason))

    def unblocked(self) -> None:
        """Send connection.unblocked after `blocked`."""
        if self._blocked is not None and self.has_capability("connection.blocked"):
            self.send(0, m.ConnectionUnblocked())
        self._blocked = None

    def has_capability(self, name: str) -> bool:
        capabilities = self.client_properties.get("capabilities")
        return isinstance(capabilities, dict) and capabilities.get(name) is True


def _pass_over(connection: Connection, channel: ChannelInput, data: bytes, at: int, end: int) -> None:
    """Drop a content frame that the client sent before it learned that the channel had failed."""


def _keep_content(connection: Connection, channel: ChannelInput, octets: int) -> None:
    """Count what a channel keeps of a content. Raises AmqpError if all channels together keep too much."""
    if not connection.unfinished.add(channel.number, octets, connection.heard_at):
        text = f"unfinished messages of the connection exceed {connection.unfinished.size_max} octets"
        raise AmqpError(m.CONTENT_TOO_LARGE, text)


def _second_open(connection: Connection, channel: ChannelInput) -> None:
    raise AmqpError(m.CHANNEL_ERROR, "second 'channel.open' seen")


def _stray_close_ok(connection: Connection, channel: ChannelInput) -> None:
    raise AmqpError(m.CHANNEL_ERROR, "unexpected 'channel.close-ok'")


def _close_crossed(connection: Connection, method: Method) -> None:
    connection._say(0, m.ConnectionCloseOk())


def _close_agreed(connection: Connection, method: Method) -> None:
    connection.state = CLOSED


STEPS: Final[dict[tuple[State, type[Method]], Callable[[Connection, Method], None]]] = {
    (State.STARTING, m.ConnectionStartOk): Connection._start_ok,
    (State.STARTING, m.ConnectionClose): Connection._close_asked,
    (State.SECURING, m.ConnectionSecureOk): Connection._secure_ok,
    (State.SECURING, m.ConnectionClose): Connection._close_asked,
    (State.TUNING, m.ConnectionTuneOk): Connection._tune_ok,
    (State.TUNING, m.ConnectionClose): Connection._close_asked,
    (State.OPENING, m.ConnectionOpen): Connection._open,
    (State.OPENING, m.ConnectionClose): Connection._close_asked,
    (State.OPEN, m.ConnectionUpdateSecret): Connection._update_secret,
    (State.OPEN, m.ConnectionClose): Connection._close_asked,
    (State.CLOSING, m.ConnectionClose): _close_crossed,
    (State.CLOSING, m.ConnectionCloseOk): _close_agreed,
}

CHANNEL_STEPS: Final[
    dict[tuple[Expects, int], Callable[[Connection, ChannelInput, bytes, int, int], None]]
] = {
    (Expects.OPEN, FRAME_METHOD): Connection._open_channel,
    (Expects.METHOD, FRAME_METHOD): Connection._take_method,
    (Expects.HEADER, FRAME_HEADER): Connection._take_header,
    (Expects.BODY, FRAME_BODY): Connection._take_body,
    (Expects.CLOSE_OK, FRAME_METHOD): Connection._while_closing,
    (Expects.CLOSE_OK, FRAME_HEADER): _pass_over,
    (Expects.CLOSE_OK, FRAME_BODY): _pass_over,
}

# The methods of an open channel that are not passed on to the handler.
METHOD_STEPS: Final[dict[type[Method], Callable[[Connection, ChannelInput], None]]] = {
    m.ChannelOpen: _second_open,
    m.ChannelClose: Connection._close_channel,
    m.ChannelCloseOk: _stray_close_ok,
}
