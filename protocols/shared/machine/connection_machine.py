"""The deadlines of a connection of any version of AMQP, and how it ends.

A connection has limited time for its handshake. While it is open, each side sends heartbeats; and when we close it, the
peer has as long as for the handshake to answer. A connection ends once, whatever ends it: the state is changed first,
so that nothing is sent meanwhile, then the channels or sessions on it end, then the handler is called, and last the
peer is told. A connection, a channel or a session may hold much that ends with it: it ends in steps (`ends`), after
some of which other connections have a turn.

Input is kept until it is whole, and all of it while a password is checked, or something ends.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from typing import ClassVar, Final

from mypy_extensions import mypyc_attr

from leveret.protocols.shared.machine.contract import Writer
from leveret.protocols.shared.machine.heartbeat import Heartbeat
from leveret.protocols.shared.machine.pieces import keep
from leveret.protocols.shared.machine.states import CHECKING, CLOSED, CLOSING, OPEN, State
from leveret.protocols.shared.machine.unfinished import UnfinishedContents

KEPT_MAX: Final = 256 << 10  # bytes that are accepted while a password is checked


@mypyc_attr(allow_interpreted_subclasses=True)
class ConnectionMachine(ABC):
    """The behaviour of a connection that all versions of AMQP share. See the top of the module."""

    __slots__ = (
        "_closing_until",
        "_finished",
        "_finishing",
        "_handshake_timeout_s",
        "_handshake_until",
        "_heartbeat",
        "_held",
        "_last",
        "_left",
        "_needed",
        "_steps",
        "_tail",
        "_tail_size",
        "ended_because",
        "gathers",
        "gave_up",
        "halted",
        "heartbeat_s",
        "outbox",
        "peer_spoke",
        "published",
        "state",
        "unfinished",
    )

    HEARTBEAT: ClassVar[bytes]  # the frame that is sent as a sign of life

    def __init__(self, state: State, outbox: Writer, now: float, handshake_timeout_s: float) -> None:
        self.state = state
        self.outbox = outbox
        self.peer_spoke = ""  # "AMQP 0-9-1", "HTTP GET", "TLS", ... once the first bytes have been read
        self.ended_because = ""
        self.halted = False  # input is left over, to be handled after the turns of other connections
        self.heartbeat_s = 0  # as negotiated; 0 is none
        self.gave_up = False  # the peer was silent for too long
        self.gathers = False  # it does something once for all input of a read, in `flush`
        self.published = 0  # messages that have come, ever, where that is counted
        self.unfinished = UnfinishedContents()
        self._needed = 0
        self._tail: list[bytes] = []  # the beginning of `_needed` bytes, in the pieces that were received
        self._tail_size = 0
        self._finished = False
        self._finishing = False  # the connection ends, and has not ended yet
        # the channels or sessions that have to end before that, the first one last
        self._left: list[int] = []
        self._last = b""  # what the peer is sent after that
        self._steps: list[Callable[[], bool]] = []  # the steps of what else ends; the last comes first
        self._held: list[bytes] = []  # what has come meanwhile
        self._heartbeat = Heartbeat(now)
        self._handshake_timeout_s = handshake_timeout_s  # for the answer to a close as well
        self._handshake_until = now + handshake_timeout_s
        self._closing_until: float | None = None

    @abstractmethod
    def _take(self, data: bytes) -> None:
        """Handle input, all of it or until halted; b"" continues with what is left."""

    @abstractmethod
    def _check(self) -> None:
        """Continue with the kept input, if the handler has finished the check of the password."""

    def _numbers(self) -> Iterable[int]:
        """Return the numbers of the channels or sessions that end with the connection; nothing is sent on them now."""
        return ()

    def _end_one(self, number: int) -> None:
        """End the channel or session with this number, if there still is one."""

    def _release_some(self) -> bool:
        """Have the handler release a part of what the connection itself holds; return whether there was any."""
        return False

    @abstractmethod
    def _on_end(self) -> None:
        """Notify the handler that the connection has ended, with all that was on it."""

    @property
    def closed(self) -> bool:
        """True once nothing more is sent or read: flush the outbox and close the transport."""
        return self.state is CLOSED and not self._last

    @property
    def heard_at(self) -> float:
        """The time of the last input, in monotonic seconds."""
        return self._heartbeat.received_at

    def receive(self, data: bytes, now: float) -> None:
        """Handle bytes from the peer. Whatever they are, this raises only what a handler raised besides AmqpError."""
        self._heartbeat.received_at = now
        if self._is_checking():
            self._keep(data)
            self._check()
            if self._tail_size > KEPT_MAX and self._is_checking():
                self._drop("too much came while its password was checked")
        elif self.state is CLOSED:
            pass
        elif self._steps or self._finishing:
            if data:
                self._held.append(data)
        else:
            if self._held:
                data = b"".join((*self._held, data))
                self._held.clear()
            self._take(data)

    def flush(self) -> None:
        """Do what is done once for all input of a read. Called after `receive` if it `gathers`."""

    def _is_checking(self) -> bool:
        return self.state is CHECKING

    def _is_enough(self) -> bool:
        """Return whether to halt after this frame: too much waits for the peer, or it is the turn of others."""
        return self.outbox.is_enough()

    def _keep(self, data: bytes) -> None:
        """Keep input for later; `_take(b"")` continues with it."""
        if data:
            keep(self._tail, data)
            self._tail_size += len(data)

    def _joined(self, data: bytes) -> bytes:
        """Return the kept input with `data` at its end; empty while that is less than `_needed` bytes."""
        self._keep(data)
        return b"".join(self._tail) if self._tail_size >= self._needed else b""

    def lost(self) -> None:
        """Called when the transport has ended."""
        self._drop("the transport ended")

    def _drop(self, because: str, last: bytes = b"") -> None:
        self.state = CLOSED
        self._finish(because, last)

    def _finish(self, because: str, last: bytes = b"") -> None:
        """End the connection, once, and then send the last bytes. The caller has changed the state already."""
        if self._finished:
            return
        self._finished = self._finishing = True
        self.ended_because = because
        self._last = last
        self._left = list(self._numbers())
        self._left.reverse()
        self.outbox.shut()
        if not self._steps:
            self._take_steps()

    def ends(self, step: Callable[[], bool]) -> None:
        """End something by steps, until one returns False; nothing else is handled before that."""
        self._steps.append(step)
        if len(self._steps) == 1 and not self._finishing:
            self._take_steps()

    def _take_steps(self) -> None:
        self.outbox.in_portions(self._step)
        if self._steps or self._finishing:
            self.halted = True

    def _step(self) -> bool:
        """Take one step of what ends. Return whether there are more."""
        try:
            return self._end_some()
        except BaseException:  # a mistake of ours; the rest is not ended
            self._steps.clear()
            self._left.clear()
            self._finishing, self._last = False, b""
            raise

    def _end_some(self) -> bool:
        steps = self._steps
        if steps:
            at = len(steps) - 1  # the step may have others begin to end, which come first then
            if not steps[at]():
                del steps[at]
        elif self._left:
            self._end_one(self._left.pop())
        elif not self._release_some():
            self._finishing = False
            self._on_end()
            if self._last:
                self.outbox.write(self._last)
                self._last = b""
        return bool(steps) or self._finishing

    def _agree(self, heartbeat_s: int) -> None:
        """Set the negotiated heartbeat: ours is due after half of this interval without other output, and the peer may
        be silent for two to three intervals (S013)."""
        self.heartbeat_s = heartbeat_s
        self._heartbeat.start(heartbeat_s / 2, heartbeat_s)

    def deadline(self) -> float | None:
        """Return when to call `on_deadline`, whatever happens until then, or None for never."""
        if self.state is CLOSED:
            return None
        if self.state is CLOSING:
            return self._heartbeat.received_at if self._closing_until is None else self._closing_until
        if self.state is not OPEN:
            return self._handshake_until
        until = self._heartbeat.deadline()
        look_at = self.unfinished.deadline() if self._heartbeat.watching else None
        return until if look_at is None or (until is not None and until < look_at) else look_at

    def on_deadline(self, now: float) -> None:
        """Do what is due; an early call does no harm."""
        if self.state is OPEN:
            self._keep_alive(now)
            self._look_at_contents(now)
        elif self.state is CLOSING:
            self._await_close(now)
        elif now >= self._handshake_until:
            self._drop(f"the handshake took too long ({self._stage()})")

    def _stage(self) -> str:
        return f"in state {self.state.value}"

    def _keep_alive(self, now: float) -> None:
        if self._heartbeat.is_missed(now):
            self.gave_up = True
            self._give_up()
        elif self._heartbeat.is_due(now, self.outbox.written()):
            self.outbox.write(self.HEARTBEAT)
            self._heartbeat.beaten(self.outbox.written())

    def _look_at_contents(self, now: float) -> None:
        if self._heartbeat.watching:
            owner = self.unfinished.stalled(now, self.heard_at if self._tail_size else 0.0)
            if owner is not None:
                self._give_up_content(owner)

    def _give_up_content(self, owner: object) -> None:
        """End the channel, link or session on which a content comes that does not go on."""
        raise NotImplementedError

    def _give_up(self) -> None:
        """End the connection, because the peer was silent for too long."""
        self._drop(f"missed heartbeats from client, timeout: {self.heartbeat_s}s")

    def _await_close(self, now: float) -> None:
        """Check the deadline of the peer's answer. The first call after the close was sent only starts the clock,
        because `fail` does not know the time."""
        if self._closing_until is None:
            self._closing_until = now + self._handshake_timeout_s
        elif now >= self._closing_until:
            self.state = CLOSED

    def pause_monitor(self) -> None:
        """Stop watching for silence, because the peer is not read from (X045)."""
        self._heartbeat.watching = False

    def resume_monitor(self, now: float) -> None:
        """Watch for silence again, with the whole time from now, because the peer is read from again."""
        self._heartbeat.watching = True
        self._heartbeat.received_at = now
        self.unfinished.restart(now)
