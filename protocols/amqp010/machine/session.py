"""One AMQP 0-10 session: which command or control is allowed when, command ids both ways, and what outlives the
connection.

A session is attached to a channel (`line`), told where the peer's counting begins (`session.command-point`), and then
commands are counted. `execution` keeps the ids and which commands are complete; this module decides what is sent when.

    DETACHED ──attach──> ATTACHED ──command-point──> OPEN
        ^                   │                          │      detach, detached, loss of the transport:
        └───────────────────┴──────────────────────────┤      kept for `timeout_s`, or ENDED if that is 0
                                                        │      an exception, ours or the peer's:
                                                        └──> FAILED ──detach, detached, loss──> ENDED

`settle` reports completed commands to the peer, all that it is not known to know of: as soon as there is news of a
command with sync, whenever no command is left incomplete, and every `complete_every` commands. A flush is answered at
once.

**Resuming.** Once the peer has asked for a timeout, everything that is sent is kept until the peer has it (`replay`).
When attached again, we ask what the peer expects; until it has answered, commands are kept and not sent. The answer
says where to begin: command-point, and everything from there again. Commands that the peer repeats are counted and
passed over. If the peer expects nothing (the empty set), or something that is not kept any more, one side has lost the
session: it is detached with unknown-ids and has ended, so that the next attach of its name begins afresh.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from enum import Enum, auto
from typing import Final

from mypy_extensions import mypyc_attr

from leveret.protocols.amqp010.codec import commands as c
from leveret.protocols.amqp010.codec.commands import Command, Control, MessageTransfer, Struct
from leveret.protocols.amqp010.codec.sequences import MASK, RANGES_MAX, Id, SequenceSet, following
from leveret.protocols.amqp010.machine.contract import Line, SessionError, SessionLimits, SessionOwner
from leveret.protocols.amqp010.machine.execution import REACH, Execution, Sending, SequenceError
from leveret.protocols.amqp010.machine.replay import Replay

DESCRIPTION_MAX: Final = 1024  # characters of the description of an exception
ONE_RANGE: Final = struct.Struct(">BBHHII")  # class, code, flags and a set of one range: its size, from, to
COMPLETED: Final = (c.SessionCompleted.CLASS_CODE, c.SessionCompleted.CODE, 0x0100, 8)
FLUSH_ALL: Final = c.SessionFlush(expected=True, confirmed=True, completed=True).encode()
FLUSH_DONE: Final = c.SessionFlush(confirmed=True, completed=True).encode()


class SessionState(Enum):
    DETACHED = auto()
    ATTACHED = auto()  # but the peer has not said where its ids begin
    OPEN = auto()
    FAILED = auto()  # over, but the channel is not free yet
    ENDED = auto()


SESSION_STATE_ATTACHED: Final = SessionState.ATTACHED
SESSION_STATE_DETACHED: Final = SessionState.DETACHED
SESSION_STATE_ENDED: Final = SessionState.ENDED
SESSION_STATE_FAILED: Final = SessionState.FAILED


OPEN: Final = SessionState.OPEN  # 30 ns less than through the class
CONTROLS: Final = frozenset(
    control for control in c.CONTROLS.values() if control.CLASS_CODE == c.SessionAttach.CLASS_CODE
)
# The controls allowed in a state. Any other one is illegal, or passed over when the session has failed.
HEARD: Final[dict[SessionState, frozenset[type[Control]]]] = {
    SessionState.ATTACHED: CONTROLS - {c.SessionAttached, c.SessionGap},
    SessionState.OPEN: CONTROLS - {c.SessionAttached},
    SessionState.FAILED: frozenset({c.SessionDetach, c.SessionDetached}),
}


@mypyc_attr(allow_interpreted_subclasses=True)
class Session:
    """One session; see the top of the module. The owner completes the commands it is given, now or later, in any order.

    `timeout_s` is how long the session is to be kept without a line; the keeper of the session has the clock.
    """

    __slots__ = (
        "_attachments",
        "_out",
        "_replay",
        "_resuming",
        "_state",
        "channel",
        "ended",
        "execution",
        "limits",
        "line",
        "name",
        "owner",
        "sending",
        "timeout_s",
    )

    def __init__(self, name: bytes, owner: SessionOwner, limits: SessionLimits) -> None:
        self.name = name
        self.owner = owner
        self.limits = limits
        self.timeout_s = 0
        self.line: Line | None = None
        self.channel = 0
        self.ended = False
        self.execution = Execution()
        self.sending = Sending()
        self._state = SESSION_STATE_DETACHED
        self._attachments = 0
        self._resuming = False  # until the peer has said what it expects
        self._replay: Replay | None = None
        self._out: Line | None = None  # the line, if commands are sent on it and not kept for replay

    @property
    def attached(self) -> bool:
        return self.line is not None

    @property
    def next_id(self) -> Id:
        """The id of the next command that is sent."""
        return self.sending.next_id

    # Attached and detached.

    def attach(self, line: Line, channel: int) -> None:
        """Put the session on a channel and tell the peer."""
        assert self._state is SESSION_STATE_DETACHED, "a session has one channel at a time"
        self.line = line
        self.channel = channel
        self._state = SESSION_STATE_ATTACHED
        self._attachments += 1
        line.control(c.SessionAttached(self.name).encode())
        if self._attachments > 1:
            self._resuming = True
            self.execution.retell()
            line.control(FLUSH_ALL)
        else:
            self._begin_sending(line, self.next_id)
            self.owner.on_attached()

    def detached(self, code: int | None = None) -> None:
        """Take the session off its channel: the transport is lost or, with a DETACH_CODE, the peer is told why."""
        line = self.line
        if line is None:
            return
        if code is not None:
            line.control(c.SessionDetached(self.name, code).encode())
        self._leave(line)
        if code is not None:
            line.released()

    def end(self, why: str) -> None:
        """End the session for good, whatever its timeout; do nothing if it has ended."""
        self.fail(SessionError(c.ERROR_CODE_RESOURCE_DELETED, why))

    def _leave(self, line: Line) -> None:
        """Drop the line. The peer has been told, or cannot be."""
        self.line = self._out = None
        self._resuming = False
        if self.ended or not self.timeout_s:
            self._state = SESSION_STATE_ENDED
            self._over(line)
        else:
            self._state = SESSION_STATE_DETACHED
            self.owner.on_detached()

    def _over(self, line: Line | None) -> None:
        self._out = self._replay = None
        if self.ended:
            return
        self.ended = True
        if line is None:
            self.owner.in_portions(self._release)
        else:
            line.in_portions(self._release)

    def _release(self) -> bool:
        if self.owner.release_some():
            return True
        self.owner.on_ended()
        return False

    def fail(
        self, error: SessionError, id: Id | None = None, command: Command | Control | None = None
    ) -> None:
        """End the session with an exception; after that only detach and detached are accepted."""
        if self.ended:
            return
        if id is not None:
            self.execution.abnormal(id)
        line = self.line
        self._state = SESSION_STATE_ENDED if line is None else SESSION_STATE_FAILED
        if line is not None:
            if self.execution.untold:
                self._tell(line)
            if self._resuming:  # an exception is a command, and needs an id
                self._begin_sending(line, self.next_id)
            line.frames(exception_of(error, id, command).encode(), None, None)
            self.sending.send()
            line.control(c.SessionDetach(self.name).encode())
        self._over(line)

    def _begin_sending(self, line: Line, point: Id) -> None:
        self._resuming = False
        line.control(c.SessionCommandPoint(point, 0).encode())
        if self._replay is None:
            self._out = line

    # Input from the peer.

    def on_command(self, command: Command, sync: bool, header: bytes | None, body: bytes | None) -> None:
        """Called with a whole command, of any class but connection and session."""
        if self._state is not OPEN:
            too_early(self, command)
            return
        id = self.execution.receive()
        if id is None:
            if sync:
                self.execution.sync(self.execution.repeated)
            return
        if sync:
            self.execution.sync(id)
        try:
            if type(command) is MessageTransfer:
                self.owner.on_transfer(id, command, header, body, sync)
            elif (header is not None or body is not None) and not command.HAS_CONTENT:
                raise SessionError(c.ERROR_CODE_COMMAND_INVALID, f"{command.NAME} has no content")
            elif command.CLASS_CODE == c.ExecutionSync.CLASS_CODE:
                self._on_execution(id, command)
            else:
                self.owner.on_command(id, command, sync)
        except SessionError as error:
            self.fail(error, id, command)

    def on_run(self, transfer: MessageTransfer, headers: list[bytes], bodies: list[bytes]) -> int:
        """Called with whole messages, each in a transfer like this one, without sync. Return how many were taken."""
        if self._state is not OPEN or not self.execution.is_plain:
            return 0
        taken = self.owner.on_run(self.execution.next_id, transfer, headers, bodies)
        self.execution.receive_run(taken)
        return taken

    def _on_execution(self, id: Id, command: Command) -> None:
        match command:
            case c.ExecutionSync():
                self.execution.barrier(id)
            case c.ExecutionResult():
                self._on_result(command)
                self.execution.complete(id)
            case c.ExecutionException():
                self.owner.on_exception(command)
                self._state = SESSION_STATE_FAILED
                self._over(self.line)

    def _on_result(self, result: c.ExecutionResult) -> None:
        id = result.command_id or 0
        try:
            self.sending.dup(SequenceSet.of_range(id, id))
        except SequenceError as error:
            raise SessionError(c.ERROR_CODE_ILLEGAL_STATE, str(error)) from None
        if isinstance(result.value, Struct):
            self.owner.on_result(id, result.value)

    def on_control(self, control: Control) -> None:
        """Called with a control of class session that came on the session's channel."""
        if self.line is None:
            return
        if type(control) not in HEARD[self._state]:
            if self._state is not SESSION_STATE_FAILED:
                error = SessionError(c.ERROR_CODE_ILLEGAL_STATE, f"{control.NAME} at this time")
                self.fail(error, None, control)
            return
        try:
            self._hear(self.line, control)
        except SessionError as refused:
            self.fail(refused, None, control)
        except SequenceError as wrong:
            self.fail(SessionError(c.ERROR_CODE_ILLEGAL_STATE, str(wrong)), None, control)

    def _hear(self, line: Line, control: Control) -> None:
        match control:
            case c.SessionCompleted():
                self._on_completed(line, control)
            case c.SessionKnownCompleted():
                self.execution.known(control.commands or SequenceSet())
            case c.SessionFlush():
                self._on_flush(line, control)
            case c.SessionConfirmed():
                self._on_confirmed(control.commands or SequenceSet())
            case c.SessionExpected():
                self._on_expected(line, control.commands or SequenceSet())
            case c.SessionCommandPoint():
                self._on_command_point(control)
            case c.SessionGap():
                self._on_gap(line, control.commands or SequenceSet())
            case c.SessionRequestTimeout():
                self._on_request_timeout(line, control)
            case c.SessionAttach():
                if control.name != self.name:
                    line.control(c.SessionDetached(control.name, c.DETACH_CODE_TRANSPORT_BUSY).encode())
            case c.SessionDetach():
                self._on_detach(line, control)
            case c.SessionDetached():
                self._leave(line)
                line.released()

    def _on_detach(self, line: Line, detach: c.SessionDetach) -> None:
        if detach.name != self.name:
            line.control(c.SessionDetached(detach.name, c.DETACH_CODE_NOT_ATTACHED).encode())
            return
        line.control(c.SessionDetached(self.name, c.DETACH_CODE_NORMAL).encode())
        self._leave(line)
        line.released()

    def _on_request_timeout(self, line: Line, command: c.SessionRequestTimeout) -> None:
        """Grant the timeout, up to the owner's maximum. An absent timeout means for ever and gets that maximum."""
        longest = self.owner.timeout_max_s
        self.timeout_s = longest if command.timeout is None else min(command.timeout, longest)
        line.control(c.SessionTimeout(self.timeout_s).encode())
        if not self.timeout_s:
            self._keep_no_more(line)
        elif self._replay is None:
            self._replay = Replay(self.next_id, self.limits.replay_soft_bytes, self.limits.replay_max_bytes)
            self._out = None

    def _keep_no_more(self, line: Line) -> None:
        if not self._resuming:
            self._replay = None
            self._out = line

    def _on_command_point(self, point: c.SessionCommandPoint) -> None:
        if point.command_offset:
            raise SessionError(c.ERROR_CODE_NOT_IMPLEMENTED, "a command cannot begin in its middle")
        self.execution.expect(point.command_id or 0)
        self._state = OPEN

    def _on_gap(self, line: Line, ids: SequenceSet) -> None:
        if self.execution.coming in ids:
            line.abandon()
        if self.execution.interrupts(ids):
            self._state = SESSION_STATE_ATTACHED  # until the peer says where it goes on
        self.execution.gap(ids)

    def _on_completed(self, line: Line, completed: c.SessionCompleted) -> None:
        ids = completed.commands or SequenceSet()
        ended, _ = self.sending.rem(ids)
        if completed.timely_reply:
            line.control(c.SessionKnownCompleted(ids).encode())
        self._trim(self.sending.first_incomplete)
        if ended:
            self.owner.on_completed(ended)

    def _on_confirmed(self, ids: SequenceSet) -> None:
        self.sending.require_sent(ids)
        replay = self._replay
        if replay is not None and replay.first_id in ids:
            self._trim(following(ids.within(replay.first_id, ids.last).first_range[1]))

    def _on_flush(self, line: Line, flush: c.SessionFlush) -> None:
        execution = self.execution
        if flush.expected:
            line.control(c.SessionExpected(self._expected()).encode())
        if flush.confirmed:
            line.control(c.SessionConfirmed(execution.received).encode())
        if flush.completed:
            execution.told()
            line.control(c.SessionCompleted(execution.completed_first(RANGES_MAX), True).encode())

    def _expected(self) -> SequenceSet:
        """Return the next command's id. A new session expects nothing, which tells it from a known one."""
        if self._attachments == 1 and not self.execution.begun:
            return SequenceSet()
        return SequenceSet.of_range(self.execution.next_id, self.execution.next_id)

    # Sending again.

    def _on_expected(self, line: Line, ids: SequenceSet) -> None:
        """Resume from the command that the peer needs next. Only a session that is being resumed has asked for it."""
        if not self._resuming:
            return
        replay = self._replay
        if not ids and not self.execution.begun and not self.next_id:
            ids = SequenceSet.of_range(0, 0)  # neither end has lost anything, as nothing was sent
        if replay is None or not ids or not replay.holds_from(ids.first):
            line.control(c.SessionDetached(self.name, c.DETACH_CODE_UNKNOWN_IDS).encode())
            self.timeout_s = 0
            self._leave(line)
            line.released()
            return
        replay.trim(ids.first)
        self._begin_sending(line, replay.first_id)
        for command, header, body in replay:
            line.frames(command, header, body)
        if not self.timeout_s:
            self._keep_no_more(line)
        self.owner.on_attached()

    def _trim(self, point: Id) -> None:
        replay = self._replay
        if replay is None:
            return
        was_crowded = replay.crowded()
        replay.trim(point)
        if was_crowded and not replay.crowded():
            self.owner.on_room()

    # Calls of the owner.

    def complete(self, id: Id) -> None:
        self.execution.complete(id)

    def complete_through(self, id: Id) -> None:
        self.execution.complete_through(id)

    def result(self, id: Id, value: Struct) -> None:
        """Send the result of a command, which may be completed then. Raises ValueError if it is complete already."""
        self.execution.dup(SequenceSet.of_range(id, id))
        self.send(c.ExecutionResult(id, value))

    def send(self, command: Command, sync: bool = False) -> Id:
        return self.send_transfer(command.encode(sync), None, None)

    def send_transfer(self, command: bytes, header: bytes | None, body: bytes | None) -> Id:
        """Send an encoded command of any kind and return its id. Without a line it is kept if the session may
        resume."""
        sending = self.sending
        id = sending.next_id
        sending.next_id = (id + 1) & MASK
        out = self._out
        if out is None:
            self._keep(command, header, body)
        else:
            out.frames(command, header, body)
        return id

    def send_transfers(self, command: bytes, contents: Sequence[tuple[bytes, bytes | None]]) -> Id:
        """Send several messages, each a header and a body, behind the same command; return the id of the first."""
        sending = self.sending
        first = sending.next_id
        out = self._out
        if out is None:
            for header, body in contents:
                self.send_transfer(command, header, body)
        else:
            sending.next_id = (first + len(contents)) & MASK
            out.transfers(command, contents)
        return first

    def _keep(self, command: bytes, header: bytes | None, body: bytes | None) -> None:
        replay = self._replay
        if replay is None:
            return
        replay.keep(command, header, body)
        line = self.line
        if line is not None and not self._resuming:
            line.frames(command, header, body)
            if replay.unasked > replay.soft:
                replay.unasked = 0
                line.control(FLUSH_DONE)

    def room(self) -> int:
        """Return how many bytes may be sent before deliveries ought to wait; `on_room` tells when there is room
        again."""
        if self._out is not None:
            return self._out.room()
        if self.line is None or self._replay is None or self._resuming or self._replay.crowded():
            return 0
        return self.line.room()

    def settle(self) -> None:
        """End a batch of input: report what is due to the peer, and enforce the limits on memory."""
        line = self.line
        if line is None or self.ended:
            return
        execution = self.execution
        if execution.due(self.limits.complete_every):
            self._tell(line)
        if execution.range_count or self.sending.range_count or self._replay is not None:
            self._check_bounds()
        if (execution.next_id - execution.floor) & MASK > REACH:
            self._forget()
        if (self.sending.next_id - self.sending.first_incomplete) & MASK > REACH:
            self.sending.forget()

    def _tell(self, line: Line) -> None:
        execution = self.execution
        execution.told()
        if execution.one_range:
            last = (execution.first_incomplete - 1) & MASK
            line.control(ONE_RANGE.pack(*COMPLETED, execution.unknown_from, last))
        else:
            line.control(c.SessionCompleted(execution.completed_first(RANGES_MAX)).encode())

    def _check_bounds(self) -> None:
        ranges = max(self.execution.range_count, self.sending.range_count)
        if ranges > self.limits.incomplete_max:
            self.fail(exceeded("too many commands are complete out of order"))
        elif self._replay is not None and self._replay.overfull:
            self.fail(exceeded("too much waits to be confirmed"))

    def _forget(self) -> None:
        try:
            self.execution.forget()
        except SequenceError as error:
            self.fail(exceeded(str(error)))


def too_early(session: Session, command: Command) -> None:
    """Refuse a command that comes before session.command-point; one on a session that has ended is passed over."""
    if session._state is SESSION_STATE_ATTACHED:
        error = SessionError(c.ERROR_CODE_ILLEGAL_STATE, f"{command.NAME} before session.command-point")
        session.fail(error, None, command)


def transfer_begun(session: Session, transfer: MessageTransfer) -> None:
    """Ask the owner of a session whether a transfer may be published of whose content a part has come."""
    execution = session.execution
    if session._state is not OPEN or execution.coming != execution.next_id:
        return
    try:
        session.owner.on_begun(transfer)
    except SessionError as error:
        session.fail(error, execution.receive(), transfer)


def exceeded(why: str) -> SessionError:
    """Return the error for a session that is to remember more than it may."""
    return SessionError(c.ERROR_CODE_RESOURCE_LIMIT_EXCEEDED, why)


def exception_of(
    error: SessionError, id: Id | None, command: Command | Control | None
) -> c.ExecutionException:
    return c.ExecutionException(
        error_code=error.code,
        command_id=id,
        class_code=None if command is None else command.CLASS_CODE,
        command_code=None if command is None else command.CODE,
        field_index=error.field_index or None,
        description=error.description[:DESCRIPTION_MAX],
    )
