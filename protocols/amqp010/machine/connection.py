"""The server's side of one AMQP 0-10 connection: bytes in, calls to a handler and to sessions, bytes for an outbox out.

A connection awaits the peer's eight-byte header, introduces itself (start, secure, tune, open, each answered before the
next), is open, and ends: by a close and its close-ok, by silence, or because the transport is gone. The table STEPS
holds every connection control that is allowed in a state; any other one is a framing error and ends the connection, as
0-10 has no milder error. Input that arrives while the handler checks a password is kept for later. However a connection
ends, first its sessions lose their channels, then the handler is told, once, and only then the peer is sent close-ok.
While we are closing, everything but a close is dropped silently.

An open connection has channels, and a channel carries at most one session. Attach says which one, and this machine
knows nothing else of sessions: it passes their controls and commands to the `Session` on the channel as they come. On a
channel without a session there is no way to report an error in a command, so the command is ignored; a detach of a
session that is not attached is answered by not-attached.

Time is passed in. The machine knows no clock, no socket and no broker: `deadline` says when it wants to be called
again, `closed` that the outbox is to be flushed and the transport closed.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar, Final

from leveret.protocols.amqp010.codec import commands as c
from leveret.protocols.amqp010.codec.commands import Command, Control
from leveret.protocols.amqp010.codec.frames import append_frames, append_transfers, control_frame
from leveret.protocols.amqp010.codec.types import MalformedError
from leveret.protocols.amqp010.machine.contract import (
    AmqpError,
    AttachRefused,
    Handler,
    Line,
    SessionError,
    Tuning,
)
from leveret.protocols.amqp010.machine.greeting import HEADER, recognise
from leveret.protocols.amqp010.machine.reader import Reader
from leveret.protocols.amqp010.machine.session import Session, transfer_begun
from leveret.protocols.shared.machine.contract import SIZE_SETTING, Wait, Writer
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

__all__ = ["AmqpError", "Connection", "State"]


CLASS_CONNECTION: Final = c.ConnectionStart.CLASS_CODE
TEXT_MAX: Final = 255  # bytes of a str8
RANGES_FEW: Final = 64  # of commands completed out of order; examining more takes as long as many commands
NAME_MAX: Final = 1024  # bytes of a session's name, which is kept as long as the session


class ChannelLine(Line):
    """The line of the session on one channel."""

    __slots__ = ("_channel", "_connection")

    def __init__(self, connection: "Connection", channel: int) -> None:
        self._connection = connection
        self._channel = channel

    def control(self, payload: bytes) -> None:
        connection = self._connection
        connection.outbox.write(control_frame(self._channel, payload, connection.frame_max))

    def frames(self, command: bytes, header: bytes | None, body: bytes | None) -> int:
        connection = self._connection
        outbox = connection.outbox
        octets = append_frames(outbox.open(), self._channel, command, header, body, connection.frame_max)
        outbox.wrote(octets)
        return octets

    def transfers(self, command: bytes, contents: Sequence[tuple[bytes, bytes | None]]) -> int:
        connection = self._connection
        outbox = connection.outbox
        octets = append_transfers(outbox.open(), self._channel, command, contents, connection.frame_max)
        outbox.wrote(octets)
        return octets

    def released(self) -> None:
        self._connection.release(self._channel)

    def abandon(self) -> None:
        self._connection._forget(self._channel)

    def room(self) -> int:
        return self._connection.outbox.room()

    def in_portions(self, step: Callable[[], bool]) -> None:
        self._connection.ends(step)


class Connection(Reader):
    """One connection, from its first byte to its last. See the top of the module."""

    __slots__ = (
        "_heard",
        "frame_max",
        "handler",
        "sessions",
        "tuning",
    )

    HEARTBEAT: ClassVar[bytes] = control_frame(0, c.ConnectionHeartbeat().encode())

    def __init__(self, handler: Handler, tuning: Tuning, outbox: Writer, now: float) -> None:
        super().__init__(tuning.body_size_max, outbox, now, tuning.handshake_timeout_s)
        self.gathers = True
        self.handler = handler
        self.tuning = tuning
        self.frame_max = tuning.frame_max  # of sent frames, as agreed
        self.sessions: dict[int, Session] = {}  # by channel
        self._heard: dict[int, None] = {}  # channels with input whose sessions have not been settled since

    def _check(self) -> None:
        """Process the input that was kept, if the handler has finished checking the password."""
        try:
            self._proceed(self.handler.on_checked())
        except AmqpError as error:
            self.fail(error)
        if self.state is not CHECKING:
            self._take(b"")

    def flush(self) -> None:
        """End a batch of input: settle the sessions that received something."""
        heard, self._heard = self._heard, {}
        for channel in heard:
            session = self.sessions.get(channel)
            if session is not None:
                session.settle()

    # Callbacks of the reader.

    def _may_assemble(self, channel: int) -> bool:
        session = self.sessions.get(channel)
        return session is not None and not session.ended

    def _on_greeting(self, octets: bytes) -> bool:
        self.outbox.write(HEADER)
        if octets != HEADER:
            self.peer_spoke = recognise(octets)
            self._drop(f"the peer speaks {self.peer_spoke}")
            return False
        self.peer_spoke = "AMQP 0-10"
        self.state = STARTING
        tuning = self.tuning
        self._say(c.ConnectionStart(dict(tuning.server_properties), list(tuning.mechanisms), ["en_US"]))
        return True

    def _on_control(self, channel: int, control: Control) -> None:
        try:
            if control.CLASS_CODE == CLASS_CONNECTION:
                self._on_connection_control(channel, control)
            elif self.state is OPEN:
                self._on_session_control(channel, control)
            else:
                self._too_early(control.NAME)
        except AmqpError as error:
            self.fail(error)

    def _on_command(
        self, channel: int, command: Command, sync: bool, header: bytes | None, body: bytes | None
    ) -> None:
        session = self.sessions.get(channel)
        if session is None:
            self._without_session(command.NAME)
            return
        self._heard[channel] = None
        session.on_command(command, sync, header, body)
        if type(command) is c.MessageTransfer:
            self.published += 1
        if self.handler.is_enough():
            self.halted = True

    def _on_run(
        self, channel: int, transfer: c.MessageTransfer, headers: list[bytes], bodies: list[bytes]
    ) -> int:
        session = self.sessions.get(channel)
        if session is None:
            return 0
        self._heard[channel] = None
        taken = session.on_run(transfer, headers, bodies)
        self.published += taken
        if self.handler.is_enough():
            self.halted = True
        return taken

    def _on_begun(self, channel: int, transfer: c.MessageTransfer) -> None:
        session = self.sessions.get(channel)
        if session is not None:
            self._heard[channel] = None
            transfer_begun(session, transfer)

    def _on_malformed(self, channel: int, track: int, error: MalformedError) -> None:
        if track == c.TRACK_CONTROL:
            self.fail(AmqpError(c.CLOSE_CODE_FRAMING_ERROR, str(error)))
            return
        unknown = isinstance(error, c.UnknownCommand)
        code = c.ERROR_CODE_NOT_IMPLEMENTED if unknown else c.ERROR_CODE_COMMAND_INVALID
        kind = c.COMMANDS.get(error.class_code << 8 | error.code)
        self._fail_session(channel, SessionError(code, str(error)), None if kind is None else kind())

    def _on_too_large(self, channel: int, of: int, size: int) -> None:
        setting = SIZE_SETTING if of == c.SEGMENT_TYPE_BODY else ""
        text = f"{size} octets or more are too many for a segment of a command{setting}"
        self._fail_session(channel, SessionError(c.ERROR_CODE_RESOURCE_LIMIT_EXCEEDED, text))

    def _on_too_many(self, channel: int) -> None:
        text = f"unfinished messages of the connection exceed {self.unfinished.size_max} octets"
        self._fail_session(channel, SessionError(c.ERROR_CODE_RESOURCE_LIMIT_EXCEEDED, text))

    def _give_up_content(self, owner: object) -> None:
        assert isinstance(owner, int)
        self._forget(owner)
        text = f"no frame of an unfinished command has come for {STALLED_S:.0f} s"
        self._fail_session(owner, SessionError(c.ERROR_CODE_RESOURCE_LIMIT_EXCEEDED, text))

    def _fail_session(self, channel: int, error: SessionError, command: Command | None = None) -> None:
        session = self.sessions.get(channel)
        if session is None:
            self._without_session("a command")
        else:
            session.fail(error, None, command)

    def _on_framing_error(self, why: str) -> None:
        """Close at once: as it is unknown where the next frame begins, no close-ok can be awaited."""
        self.fail(AmqpError(c.CLOSE_CODE_FRAMING_ERROR, why))
        self.state = CLOSED

    def _without_session(self, what: str) -> None:
        if self.state is not OPEN:
            try:
                self._too_early(what)
            except AmqpError as error:
                self.fail(error)

    def _too_early(self, what: str) -> None:
        """Raise a framing error, unless the connection is ending: then it does not matter."""
        if self.state not in ENDING:
            raise _framing_error(f"unexpected {what} in connection state {self.state.value}")

    # Controls of the connection.

    def _on_connection_control(self, channel: int, control: Control) -> None:
        step = STEPS.get((self.state, type(control)))
        if step is None or channel:
            self._too_early(f"{control.NAME} on channel {channel}")
            return
        step(self, control)

    def _start_ok(self, control: Control) -> None:
        assert isinstance(control, c.ConnectionStartOk)
        mechanism = control.mechanism or ""
        if mechanism not in self.tuning.mechanisms:
            text = f"unknown authentication mechanism '{mechanism}'"
            raise AmqpError(c.CLOSE_CODE_CONNECTION_FORCED, text)
        self._proceed(self.handler.on_start_ok(mechanism, control.response, control.client_properties or {}))

    def _secure_ok(self, control: Control) -> None:
        assert isinstance(control, c.ConnectionSecureOk)
        self._proceed(self.handler.on_secure_ok(control.response or b""))

    def _proceed(self, challenge: bytes | Wait | None) -> None:
        """Send the next challenge or, if there is none, the limits."""
        if isinstance(challenge, Wait):
            self.state = CHECKING
            self.halted = True  # what follows in this read is kept
            return
        if challenge is not None:
            self.state = SECURING
            self._say(c.ConnectionSecure(challenge))
            return
        self.state = TUNING
        tuning = self.tuning
        self._say(c.ConnectionTune(tuning.session_max, tuning.frame_max, 0, tuning.heartbeat_s))

    def _tune_ok(self, control: Control) -> None:
        """Adopt the limits; absent ones stay as offered. The client's channel-max is ignored: sessions are counted."""
        assert isinstance(control, c.ConnectionTuneOk)
        frame_max = control.max_frame_size or self.frame_max
        if frame_max < c.MIN_MAX_FRAME_SIZE:
            text = f"max-frame-size {frame_max} is lower than the minimum ({c.MIN_MAX_FRAME_SIZE})"
            raise AmqpError(c.CLOSE_CODE_CONNECTION_FORCED, text)
        self.frame_max = min(frame_max, self.frame_max)
        self._agree(control.heartbeat or 0)
        self.state = OPENING

    def _open(self, control: Control) -> None:
        assert isinstance(control, c.ConnectionOpen)
        self.handler.on_open(control.virtual_host or "")
        self._opened()
        self.state = OPEN
        self._say(c.ConnectionOpenOk([]))

    def _beat(self, control: Control) -> None:
        """Do nothing: every byte received counts as a sign of life already."""

    def _close_asked(self, control: Control) -> None:
        assert isinstance(control, c.ConnectionClose)
        because = f"the client closed it: {control.reply_code or 0} {control.reply_text or ''}"
        self._drop(because, self._framed(c.ConnectionCloseOk()))

    def _close_crossed(self, control: Control) -> None:
        self._say(c.ConnectionCloseOk())

    def _close_agreed(self, control: Control) -> None:
        self.state = CLOSED

    # Sessions.

    def _on_session_control(self, channel: int, control: Control) -> None:
        session = self.sessions.get(channel)
        if isinstance(control, c.SessionAttach):
            self._attach(channel, control.name or b"", control.force)
        elif session is not None:
            self._heard[channel] = None
            session.on_control(control)
            if type(control) is c.SessionFlush or session.execution.range_count > RANGES_FEW:
                self.halted = True  # a few bytes may ask for many, or have many ranges examined
        elif isinstance(control, c.SessionDetach):
            self._refuse(channel, control.name or b"", c.DETACH_CODE_NOT_ATTACHED)

    def _attach(self, channel: int, name: bytes, force: bool) -> None:
        here = self.sessions.get(channel)
        if here is not None:
            if here.name != name:
                self._refuse(channel, name, c.DETACH_CODE_TRANSPORT_BUSY)
            return  # the first attach has been answered
        if len(self.sessions) >= self.tuning.session_max or len(name) > NAME_MAX:
            self._refuse(channel, name, c.DETACH_CODE_TRANSPORT_BUSY)
            return
        try:
            session = self.handler.on_attach(name, force)
        except AttachRefused as refused:
            self._refuse(channel, name, refused.code)
            return
        self.sessions[channel] = session
        session.attach(ChannelLine(self, channel), channel)

    def _refuse(self, channel: int, name: bytes, code: int) -> None:
        self.outbox.write(control_frame(channel, c.SessionDetached(name, code).encode(), self.frame_max))

    def release(self, channel: int) -> None:
        """Free a channel that its session has left by itself."""
        session = self.sessions.pop(channel, None)
        if session is not None:
            self._forget(channel)
            self.handler.on_detached(session)

    # Ending.

    def fail(self, error: AmqpError) -> None:
        """End the connection for this reason; do nothing if it is ending already."""
        if self.state in ENDING:
            return
        if self.state is AWAITING_HEADER:  # the peer has not sent its header yet
            self._drop(error.text)
            return
        self.state = CLOSING
        text = error.text.encode(errors="replace")[:TEXT_MAX].decode(errors="ignore")
        self._finish(error.text, self._framed(c.ConnectionClose(error.code, text)))

    def _numbers(self) -> Iterable[int]:
        self._heard.clear()
        return self.sessions

    def _end_one(self, number: int) -> None:
        session = self.sessions.pop(number, None)
        if session is not None:
            self._forget(number)
            session.detached()
            self.handler.on_detached(session)

    def _release_some(self) -> bool:
        return self.handler.release_some()

    def _on_end(self) -> None:
        self.handler.on_closed()

    def _say(self, control: Control) -> None:
        self.outbox.write(self._framed(control))

    def _framed(self, control: Control) -> bytes:
        return control_frame(0, control.encode(), self.frame_max)


def _framing_error(text: str) -> AmqpError:
    return AmqpError(c.CLOSE_CODE_FRAMING_ERROR, text)


STEPS: Final[dict[tuple[State, type[Control]], Callable[[Connection, Control], None]]] = {
    (State.STARTING, c.ConnectionStartOk): Connection._start_ok,
    (State.STARTING, c.ConnectionHeartbeat): Connection._beat,
    (State.STARTING, c.ConnectionClose): Connection._close_asked,
    (State.SECURING, c.ConnectionSecureOk): Connection._secure_ok,
    (State.SECURING, c.ConnectionHeartbeat): Connection._beat,
    (State.SECURING, c.ConnectionClose): Connection._close_asked,
    (State.TUNING, c.ConnectionTuneOk): Connection._tune_ok,
    (State.TUNING, c.ConnectionHeartbeat): Connection._beat,
    (State.TUNING, c.ConnectionClose): Connection._close_asked,
    (State.OPENING, c.ConnectionOpen): Connection._open,
    (State.OPENING, c.ConnectionHeartbeat): Connection._beat,
    (State.OPENING, c.ConnectionClose): Connection._close_asked,
    (State.OPEN, c.ConnectionHeartbeat): Connection._beat,
    (State.OPEN, c.ConnectionClose): Connection._close_asked,
    (State.CLOSING, c.ConnectionClose): Connection._close_crossed,
    (State.CLOSING, c.ConnectionCloseOk): Connection._close_agreed,
}
