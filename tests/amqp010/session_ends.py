"""A session without a connection: a line that writes down what is sent, an owner that writes down what it is told.

end = End()                            # attached, and the peer has said where it begins
end.say(c.SessionFlush(completed=True))
end.heard() == [c.SessionCompleted(SequenceSet(), True)]

`Joined()` has two sessions face to face, and a transport between them that can be lost with what is under way.
"""

from __future__ import annotations

from collections import deque
from typing import Final

from leveret.protocols.amqp010.codec import commands as c
from leveret.protocols.amqp010.codec.commands import Command, Control, Struct
from leveret.protocols.amqp010.codec.fields import command_at, control_at
from leveret.protocols.amqp010.codec.sequences import MASK, Id, SequenceSet, is_before
from leveret.protocols.amqp010.machine.contract import Line, SessionError, SessionLimits, SessionOwner
from leveret.protocols.amqp010.machine.execution import Execution, Sending, SequenceError
from leveret.protocols.amqp010.machine.session import Session

NAME = b"s"


class Recorder(SessionOwner):
    """Completes what it is given at once, unless told to hold; refuses what it is told to refuse."""

    def __init__(self, timeout_max_s: int = 0) -> None:
        self.timeout_max_s = timeout_max_s
        self.session: Session
        self.told: list[str] = []
        # transfers, and the bodies; other commands with their names
        self.had: list[tuple[Id, bytes | None]] = []
        self.completed: list[Id] = []  # commands of ours
        self.hold = False
        self.refuse: SessionError | None = None

    def on_transfer(
        self, id: Id, transfer: c.MessageTransfer, header: bytes | None, body: bytes | None, sync: bool
    ) -> None:
        self._had(id, body)

    def on_command(self, id: Id, command: Command, sync: bool) -> None:
        self._had(id, command.NAME.encode())

    def _had(self, id: Id, what: bytes | None) -> None:
        if self.refuse is not None:
            raise self.refuse
        self.had.append((id, what))
        if not self.hold:
            self.session.complete(id)

    def on_completed(self, ids: SequenceSet) -> None:
        self.completed.extend(ids)

    def on_attached(self) -> None:
        self.told.append("attached")

    def on_detached(self) -> None:
        self.told.append("detached")

    def on_ended(self) -> None:
        self.told.append("ended")

    def on_room(self) -> None:
        self.told.append("room")

    def on_result(self, id: Id, value: Struct) -> None:
        self.told.append(f"result {id} {value.NAME}")

    def on_exception(self, exception: c.ExecutionException) -> None:
        self.told.append(f"exception {exception.error_code}")


class Wire(Line):
    """What a session sends, decoded again: controls, and commands with their bodies."""

    def __init__(self) -> None:
        self.sent: list[Control | Command] = []
        self.sync: list[bool] = []
        self.bodies: list[bytes] = []
        self.free = False
        self.abandoned = 0
        self.left = 1000

    def control(self, payload: bytes) -> None:
        assert not self.free
        self.sent.append(control_at(payload, 0, len(payload)))

    def frames(self, command: bytes, header: bytes | None, body: bytes | None) -> int:
        assert not self.free
        decoded, sync = command_at(command, 0, len(command))
        self.sent.append(decoded)
        self.sync.append(sync)
        if body is not None:
            self.bodies.append(body)
        return len(command) + len(header or b"") + len(body or b"")

    def released(self) -> None:
        assert not self.free
        self.free = True

    def abandon(self) -> None:
        self.abandoned += 1

    def room(self) -> int:
        return self.left


class End:
    """One session, and the peer's side of its channel."""

    def __init__(
        self, timeout_max_s: int = 0, limits: SessionLimits | None = None, point: Id | None = 0
    ) -> None:
        self.owner = Recorder(timeout_max_s)
        self.session = Session(NAME, self.owner, limits or SessionLimits())
        self.owner.session = self.session
        self.attach()
        self.greeting = self.heard()
        if point is not None:
            self.say(c.SessionCommandPoint(point, 0))

    def attach(self) -> None:
        self.wire = Wire()
        self.session.attach(self.wire, 1)

    def say(self, *controls: Control) -> None:
        for control in controls:
            self.session.on_control(control)

    def command(self, command: Command | None = None, sync: bool = False) -> None:
        self.session.on_command(command or c.TxSelect(), sync, None, None)

    def transfer(self, body: bytes = b"m", sync: bool = False) -> None:
        self.session.on_command(c.MessageTransfer("x"), sync, None, body)

    def heard(self) -> list[Control | Command]:
        """What the session sent since the last time."""
        sent = self.wire.sent
        self.wire.sent = []
        return sent

    def settled(self) -> list[Control | Command]:
        self.session.settle()
        return self.heard()


def ids(*ranges: tuple[Id, Id]) -> SequenceSet:
    return SequenceSet.of(*ranges)


NOTHING: Final = ids()


def names(sent: list[Control | Command]) -> str:
    """'completed exception detach'"""
    return " ".join(packet.NAME.partition(".")[2] for packet in sent)


def transfer_octets() -> bytes:
    return c.MessageTransfer("d").encode()


def kept(limits: SessionLimits | None = None) -> End:
    """A session that is kept when its transport is lost."""
    end = End(timeout_max_s=60, limits=limits)
    end.say(c.SessionRequestTimeout(60))
    end.heard()
    return end


def send(end: End, *bodies: bytes) -> None:
    for body in bodies:
        end.session.send_transfer(transfer_octets(), None, body)


def resumed(end: End) -> list[Control | Command]:
    end.session.detached()
    end.attach()
    return end.heard()


def received(count: int, point: Id = 0) -> Execution:
    execution = Execution(point)
    for _ in range(count):
        execution.receive()
    return execution


def sent(count: int, point: Id = 0) -> Sending:
    sending = Sending(point)
    for _ in range(count):
        sending.send()
    return sending


Packet = Control | tuple[Command, bool, bytes | None]


class Cable(Line):
    """From one session to the other. What still lies in it when the transport is lost never arrives."""

    def __init__(self) -> None:
        self.packets: deque[Packet] = deque()

    def control(self, payload: bytes) -> None:
        control = control_at(payload, 0, len(payload))
        if not isinstance(control, c.SessionAttached):  # both ends answer here, and nobody has asked
            self.packets.append(control)

    def frames(self, command: bytes, header: bytes | None, body: bytes | None) -> int:
        decoded, sync = command_at(command, 0, len(command))
        self.packets.append((decoded, sync, body))
        return len(command) + len(body or b"")

    def released(self) -> None:
        raise AssertionError("neither end leaves")

    def abandon(self) -> None:
        raise AssertionError("nobody sends gaps here")

    def room(self) -> int:
        return 1 << 20


class Joined:
    """Two sessions face to face, 0 and 1, and a transport that can be lost; both are kept for a minute."""

    def __init__(self, start: Id = 0, limits: SessionLimits | None = None) -> None:
        self.owners = [Recorder(60), Recorder(60)]
        self.sessions = [Session(NAME, owner, limits or SessionLimits()) for owner in self.owners]
        self.sent: list[list[bytes]] = [[], []]
        for owner, session in zip(self.owners, self.sessions, strict=True):
            owner.session = session
            session.sending, session.execution = Sending(start), Execution(start)
        self.connect()
        for session in self.sessions:
            session.on_control(c.SessionRequestTimeout(60))
        self.carried = 0

    def connect(self) -> None:
        self.cables = [Cable(), Cable()]
        for session, cable in zip(self.sessions, self.cables, strict=True):
            session.attach(cable, 1)

    def cut(self) -> None:
        for session in self.sessions:
            session.detached()

    def send(self, end: int, sync: bool = False) -> None:
        body = b"%d.%d" % (end, len(self.sent[end]))
        self.sent[end].append(body)
        self.sessions[end].send_transfer(c.MessageTransfer("d").encode(sync), None, body)

    def carry(self, end: int) -> bool:
        """One packet that this end has sent."""
        packets = self.cables[end].packets
        if not packets:
            return False
        self.carried += 1
        packet = packets.popleft()
        other = self.sessions[1 - end]
        if isinstance(packet, tuple):
            command, sync, body = packet
            other.on_command(command, sync, None, body)
        else:
            other.on_control(packet)
        return True

    def settle(self) -> None:
        for session in self.sessions:
            session.settle()

    def drain(self) -> None:
        """Carry everything, until nobody has anything to say."""
        for _ in range(10_000):
            self.settle()
            if not (self.carry(0) or self.carry(1)):
                return
        raise AssertionError("they never stop talking")

    def check(self) -> None:
        """Each command took effect exactly once, and each sender knows so, exactly once."""
        for end in (0, 1):
            assert [body for _, body in self.owners[1 - end].had] == self.sent[end]
            completed = self.owners[end].completed
            assert sorted(completed) == sorted(id for id, _ in self.owners[1 - end].had)
            assert not self.sessions[end].ended


# What only the draft has.


def correlated(*named: Id | tuple[Id, int]) -> SequenceSet:
    """Return the commands that a correlation context of the draft names: ids, or pairs of an id and how many follow."""
    ids = SequenceSet()
    for one in named:
        id, offset = one if isinstance(one, tuple) else (one, 0)
        ids.add_range(id, (id + offset) & MASK)
    return ids


def cem(sending: Sending, mark: Id) -> tuple[SequenceSet, SequenceSet]:
    """Mark all commands up to this one complete (CEM(m)). Returns as `rem` does."""
    if is_before(mark, sending.first_incomplete):
        return SequenceSet(), SequenceSet()
    if not is_before(mark, sending.next_id):
        raise SequenceError(f"command {mark} was never sent")
    return sending.rem(SequenceSet.of_range(sending.first_incomplete, mark))
