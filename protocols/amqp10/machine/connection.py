"""The server's side of an AMQP 1.0 connection, which turns bytes into calls of its owners and bytes for an outbox.

A connection begins with headers and login (greeting.py), is opened, is open, and ends: by a close of either side,
answered by the other, by silence, or with the transport. The table STEPS holds the performatives for the connection
that are allowed in a state; those for a session are passed to the channel's session. All others are violations. The
`ends` of an error decides what it ends; for an error before our open, we send the open first. However the connection
ends, every session ends first and then, once, the handler is called; only after that the peer is told.

A session is in `sessions` from its begin to the first end. If that end was ours, its channel is in `_ending` until the
peer's end, and everything else that comes on it was sent before the peer knew, and is dropped.

Time is passed in, because the machine knows no clock, no socket and no broker: `deadline` returns when to call it next,
and once `closed` is true the outbox is to be flushed and the transport closed.
"""

from collections.abc import Callable, Iterable
from typing import ClassVar, Final

from leveret.protocols.amqp10.codec import performatives as p
from leveret.protocols.amqp10.codec.errors import CONNECTION, AmqpError
from leveret.protocols.amqp10.codec.types import Value
from leveret.protocols.amqp10.codec.wire import (
    EMPTY_FRAME,
    FRAME_AMQP,
    FRAME_OVERHEAD,
    HEADER_SIZE,
    OFFSET_MIN,
    error_of,
    frame,
    performative_at,
)
from leveret.protocols.amqp10.machine.contract import FRAME_SIZE_MIN, Handler, Tuning
from leveret.protocols.amqp10.machine.greeting import Greeting
from leveret.protocols.amqp10.machine.incoming_link import IncomingLink
from leveret.protocols.amqp10.machine.reader import Reader
from leveret.protocols.amqp10.machine.session import Session
from leveret.protocols.shared.machine.contract import Writer
from leveret.protocols.shared.machine.states import CLOSED, CLOSING, ENDING, GREETING, OPEN, OPENING, State
from leveret.protocols.shared.machine.unfinished import STALLED_S

__all__ = ["Connection", "State"]

IDLE_TIME_OUT_MIN: Final = 1000  # ms (S167)
AROUND_ERROR: Final = 32  # bytes of a close besides its error
OF_SESSIONS: Final = (p.Attach, p.Flow, p.Transfer, p.Disposition, p.Detach, p.End)


# A property of an open that a close follows.
ESTABLISHMENT_FAILED: Final = "amqp:connection-establishment-failed"


class Connection(Reader):
    """A connection from its first byte to its last. See the top of the module."""

    __slots__ = (
        "_ending",
        "_greeting",
        "_open_said",
        "due",
        "frame_size_max",
        "peer",
        "tuning",
    )

    HEARTBEAT: ClassVar[bytes] = EMPTY_FRAME

    def __init__(self, handler: Handler, tuning: Tuning, outbox: Writer, now: float) -> None:
        super().__init__(handler, tuning.initial_frame_size_max, outbox, now, tuning.handshake_timeout_s)
        self.gathers = True
        self.tuning = tuning
        self.peer: p.Open | None = None
        self.frame_size_max = FRAME_SIZE_MIN  # of the frames that we send, as negotiated
        self.due: dict[Session, None] = {}  # sessions with something to flush
        self.unfinished.bound(tuning.message_size_max)
        self.heartbeat_s = tuning.idle_timeout_s
        self._greeting = Greeting(handler, tuning, outbox)
        self._ending: set[int] = set()  # channels
        self._open_said = False

    def flush(self) -> None:
        """Called after `receive`: send what sessions have gathered (`Session.flush`)."""
        for session in list(self.due):
            session.flush()

    def _check(self) -> None:
        """Continue with the kept input, if the handler has finished the check of the password."""
        self._greeting.check()
        if self._greeting.left:
            self._drop(self._greeting.left_because)
        elif not self._greeting.checking:
            self._needed = HEADER_SIZE
            self._take(b"")

    def _is_checking(self) -> bool:
        return self.state is GREETING and self._greeting.checking

    def _take_greeting(self, data: bytes) -> int:
        greeting = self._greeting
        if self.state is not GREETING:
            return 0
        at = greeting.take(data, 0)
        self.peer_spoke = greeting.peer_spoke
        self._needed = greeting.needed
        if greeting.left:
            self._drop(greeting.left_because)
            return len(data)
        if greeting.done:
            self.state = OPENING
            self._needed = FRAME_OVERHEAD
        return at

    def _take_frames(self, data: bytes, at: int) -> int:
        return at if self.state is GREETING else super()._take_frames(data, at)

    def _lose_framing(self, size: int, offset: int, kind: int) -> None:
        if size > self._frame_size_max:
            text = f"frame size ({size} bytes) > maximum frame size ({self._frame_size_max} bytes)"
        elif size < FRAME_OVERHEAD:
            text = f"frame size ({size} bytes) < minimum frame size ({FRAME_OVERHEAD} bytes)"
        elif offset < OFFSET_MIN:
            text = f"data offset ({offset}) < minimum data offset ({OFFSET_MIN})"
        elif kind != FRAME_AMQP:
            text = f"frame type ({kind}) is not that of an AMQP frame ({FRAME_AMQP})"
        else:
            text = f"data offset ({offset}) is behind the end of the frame ({size} bytes)"
        self.fail(_framing_error(text))
        self.state = CLOSED

    def _take_frame(self, channel: int, data: bytes, at: int, end: int) -> None:
        if at == end or self.state is CLOSED:
            return
        try:
            performative, payload = performative_at(data, at, end)
        except AmqpError as error:
            if channel not in self._ending:
                self.fail(error)
            return
        session = self.sessions.get(channel)
        try:
            self._take_performative(channel, session, performative, payload)
        except AmqpError as error:
            if session is None:
                self.fail(error)
            else:
                session.fail(error)

    def _take_performative(
        self, channel: int, session: Session | None, performative: p.Record, payload: bytes
    ) -> None:
        step = STEPS.get((self.state, type(performative)))
        if step is not None:
            step(self, channel, performative)
        elif self.state is OPEN and session is not None and isinstance(performative, OF_SESSIONS):
            session.take(performative, payload)
        elif self.state is OPEN and channel in self._ending:
            if isinstance(performative, p.End):
                self._ending.remove(channel)
        elif self.state is not CLOSING:
            state = "open" if self.state is OPEN else self.state.value
            text = f"unexpected {performative.NAME} on channel {channel} in connection state {state}"
            raise AmqpError(p.ILLEGAL_STATE, text, CONNECTION)

    def _open_asked(self, channel: int, open: p.Record) -> None:
        assert isinstance(open, p.Open)
        self._check_open(channel, open)
        tuning = self.tuning
        self.peer = open
        self.frame_size_max = min(int(open.max_frame_size), tuning.frame_size_max)
        try:
            properties = self.handler.on_open(open)
        except AmqpError as error:
            if not tuning.drops_refused_open:
                raise
            self._drop(f"{error.condition}: {error.description}")
            return
        if self.state in ENDING:
            return
        self._frame_size_max = tuning.frame_size_max
        self._heartbeat.start((open.idle_time_out or 0) / 4000, tuning.idle_timeout_s / 2)
        self.state = OPEN
        self._say_open(properties)

    def _check_open(self, channel: int, open: p.Open) -> None:
        if channel != 0:
            raise _framing_error(f"open on channel {channel}")
        if open.max_frame_size < FRAME_SIZE_MIN:
            text = f"max_frame_size ({open.max_frame_size}) < minimum maximum frame size ({FRAME_SIZE_MIN})"
            raise AmqpError(p.FRAME_SIZE_TOO_SMALL, text, CONNECTION)
        if 0 < (open.idle_time_out or 0) < IDLE_TIME_OUT_MIN:
            text = f"idle-time-out ({open.idle_time_out} ms) < minimum idle-time-out ({IDLE_TIME_OUT_MIN} ms)"
            raise AmqpError(p.NOT_ALLOWED, text, CONNECTION)

    def _say_open(self, properties: dict[str, Value]) -> None:
        """Send our open; without what describes us, if it is longer than the peer's frames."""
        tuning = self.tuning
        self._open_said = True
        open = p.Open(
            container_id=tuning.container_id,
            max_frame_size=tuning.frame_size_max,
            channel_max=tuning.channel_max,
            idle_time_out=tuning.idle_timeout_s * 500 or None,  # half of it, in milliseconds
            offered_capabilities=tuning.offered_capabilities,
            properties=properties or None,
        )
        if FRAME_OVERHEAD + len(open.encode()) > self.frame_size_max:
            open.properties = None
            excess = max(0, FRAME_OVERHEAD + len(open.encode()) - self.frame_size_max)
            container = tuning.container_id.encode()
            open.container_id = container[: len(container) - excess].decode(errors="ignore")
        self._write(0, open)

    def _begin(self, channel: int, begin: p.Record) -> None:
        assert isinstance(begin, p.Begin)
        if channel > self.tuning.channel_max:
            text = f"channel number ({channel}) exceeds maximum channel number ({self.tuning.channel_max})"
            raise _framing_error(text)
        if channel in self._ending:
            return
        if channel in self.sessions or begin.remote_channel is not None:
            text = (
                f"channel {channel} has a session"
                if channel in self.sessions
                else "no session of ours to answer"
            )
            raise AmqpError(p.ILLEGAL_STATE, text, CONNECTION)
        session = Session(self, channel, begin)
        self.sessions[channel] = session
        session.open()

    def forget_session(self, session: Session, ending: bool) -> None:
        """Remove a session that ends. `ending`: the peer's end is still to come."""
        del self.sessions[session.channel]
        if ending:
            self._ending.add(session.channel)

    def say(self, channel: int, performative: p.Record) -> None:
        """Send a performative. It is dropped silently if the connection is not open any more."""
        if self.state is OPEN:
            self._write(channel, performative)

    def _write(self, channel: int, performative: p.Record) -> None:
        self.outbox.write(frame(channel, performative.encode()))

    def _close_asked(self, channel: int, close: p.Record) -> None:
        assert isinstance(close, p.Close)
        error = close.error
        why = f": {error.condition} {error.description or ''}" if isinstance(error, p.Error) else ""
        self._drop(f"the client closed it{why}", frame(0, p.Close().encode()))

    def _close_agreed(self, channel: int, close: p.Record) -> None:
        self.state = CLOSED

    def fail(self, error: AmqpError) -> None:
        """End the connection for this error, whatever its `ends`. Do nothing if it is ending already."""
        if self.state in ENDING:
            return
        because = f"{error.condition}: {error.description}"
        if self.state is GREETING:
            self._greeting.leave(because)
            self._drop(because)
            return
        if not self._open_said:
            self._say_open({ESTABLISHMENT_FAILED: True})
        self.state = CLOSING
        close = p.Close(error=error_of(error, self.frame_size_max - AROUND_ERROR))
        self._finish(because, frame(0, close.encode()))

    def _numbers(self) -> Iterable[int]:
        for session in self.sessions.values():
            session.silence()
        return self.sessions

    def _end_one(self, number: int) -> None:
        session = self.sessions.pop(number, None)
        if session is not None:
            session.lost()

    def _release_some(self) -> bool:
        return self.handler.release_some()

    def _on_end(self) -> None:
        self.handler.on_closed()

    def _stage(self) -> str:
        return self._greeting.stage.value if self.state is GREETING else f"state {self.state.value}"

    def _give_up_content(self, owner: object) -> None:
        assert isinstance(owner, IncomingLink)
        text = f"no transfer of an unfinished message has come for {STALLED_S:.0f} s"
        owner.fail(AmqpError(p.RESOURCE_LIMIT_EXCEEDED, text))

    def _give_up(self) -> None:
        text = "no frame received from client within idle timeout threshold"
        self.fail(AmqpError(p.RESOURCE_LIMIT_EXCEEDED, text, CONNECTION))


def _framing_error(text: str) -> AmqpError:
    return AmqpError(p.CONNECTION_FRAMING_ERROR, text, CONNECTION)


STEPS: Final[dict[tuple[State, type[p.Record]], Callable[[Connection, int, p.Record], None]]] = {
    (State.OPENING, p.Open): Connection._open_asked,
    (State.OPEN, p.Begin): Connection._begin,
    (State.OPEN, p.Close): Connection._close_asked,
    (State.CLOSING, p.Close): Connection._close_agreed,
}
