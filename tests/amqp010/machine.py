"""A connection between a client made of bytes and a handler that writes down what it is told. No broker, no session.

machine = Machine()
machine.receive(HEADER)               -> what the connection answers: [c.ConnectionStart(...)]
machine.open()                        # to where sessions are
machine.say(c.SessionAttach(b"s"), 1)
machine.told == ["attach b's' False", ...]
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import unpack_from
from typing import cast

from leveret.protocols.amqp010.codec import commands as c
from leveret.protocols.amqp010.codec.commands import Command, Control
from leveret.protocols.amqp010.codec.frames import append_frames, control_frame
from leveret.protocols.amqp010.codec.sequences import Id
from leveret.protocols.amqp010.codec.types import Value
from leveret.protocols.amqp010.machine.connection import Connection
from leveret.protocols.amqp010.machine.contract import (
    AttachRefused,
    Handler,
    Line,
    SessionError,
    SessionLimits,
    SessionOwner,
    Tuning,
)
from leveret.protocols.amqp010.machine.session import Session
from leveret.protocols.shared.machine.contract import Wait
from tests.harness.machine import Logins, Pieces

from .client import HEADER

START_OK = c.ConnectionStartOk({"product": "test"}, "PLAIN", b"\0ann\0secret", "en_US")


class Noted(Session):
    """A session that does nothing but say what it was told."""

    def __init__(self, handler: Notes, name: bytes) -> None:
        super().__init__(name, cast(SessionOwner, None), SessionLimits())  # it is not asked
        self._handler = handler

    def _note(self, what: str) -> None:
        self._handler.told.append(f"{self.name.decode()}: {what}")

    def attach(self, line: Line, channel: int) -> None:
        self.line = line
        self._note(f"attach {channel}")
        line.control(c.SessionAttached(self.name).encode())

    def on_control(self, control: Control) -> None:
        self._note(control.NAME)
        if isinstance(control, c.SessionDetach) and self.line is not None:
            self.line.control(c.SessionDetached(self.name, 0).encode())
            self.line.released()

    def on_command(self, command: Command, sync: bool, header: bytes | None, body: bytes | None) -> None:
        self._note(f"{command.NAME} {body!r}" if isinstance(command, c.MessageTransfer) else command.NAME)

    def settle(self) -> None:
        self._note("settle")

    def fail(
        self, error: SessionError, id: Id | None = None, command: Command | Control | None = None
    ) -> None:
        self._note(f"fail {error.code}")

    def detached(self, code: int | None = None) -> None:
        self.line = None
        self._note(f"detached {code}")


class Notes(Logins, Handler):
    """Says yes to everything, unless told otherwise."""

    wait = Wait.WAIT

    def __init__(self) -> None:
        super().__init__()
        self.told: list[str] = []
        self.error: Exception | None = None  # to raise the next time
        self.enough = False

    def _answer(self, what: str) -> None:
        self.told.append(what)
        if self.error is not None:
            error, self.error = self.error, None
            raise error

    def on_start_ok(
        self, mechanism: str, response: bytes | None, client_properties: Mapping[str, Value]
    ) -> bytes | Wait | None:
        self._answer(f"start-ok {mechanism} {response!r}")
        return self.next_answer()

    def on_secure_ok(self, response: bytes) -> bytes | Wait | None:
        self._answer(f"secure-ok {response!r}")
        return self.next_answer()

    def on_checked(self) -> bytes | Wait | None:
        if self.checking:
            return Wait.WAIT
        self._answer("checked")
        return self.next_answer()

    def on_open(self, virtual_host: str) -> None:
        self._answer(f"open {virtual_host!r}")

    def on_attach(self, name: bytes, force: bool) -> Session:
        self._answer(f"attach {name!r}" + " by force" * force)
        return Noted(self, name)

    def on_detached(self, session: Session) -> None:
        self.told.append(f"detached {session.name!r}")

    def is_enough(self) -> bool:
        return self.enough

    def on_closed(self) -> None:
        self.told.append("closed")


class Machine:
    def __init__(self, **tuning: object) -> None:
        self.handler = Notes()
        self.outbox = Pieces()
        self.now = 0.0
        self.wire = Connection(self.handler, Tuning(mechanisms=("PLAIN", "DEMO"), **tuning), self.outbox, 0.0)

    @property
    def told(self) -> list[str]:
        """What the handler and the sessions were told since the last look."""
        told, self.handler.told = self.handler.told, []
        return told

    def receive(self, octets: bytes, flush: bool = True) -> list:
        self.wire.receive(octets, self.now)
        if flush:
            self.wire.flush()
        return self.heard()

    def say(self, control: Control, channel: int = 0) -> list:
        return self.receive(control_frame(channel, control.encode()))

    def command(
        self, command: Command, channel: int = 1, header: bytes | None = None, body: bytes | None = None
    ) -> list:
        pieces: list[bytes] = []
        append_frames(pieces, channel, command.encode(), header, body, 65535)
        return self.receive(b"".join(pieces))

    def heard(self) -> list:
        """What the connection has written since the last look: the header, and (channel, control) or controls."""
        octets = self.outbox.take()
        found: list = []
        at = 0
        while at < len(octets):
            if octets.startswith(b"AMQP", at):
                found.append(octets[at : at + 8])
                at += 8
                continue
            size, channel = unpack_from(">H2xH", octets, at + 2)
            control = c.control_at(octets, at + 12, at + size)
            found.append((channel, control) if channel else control)
            at += size
        return found

    def start(self) -> Machine:
        self.receive(HEADER)
        return self

    def log_in(self) -> Machine:
        self.start().say(START_OK)
        return self

    def tune(self, heartbeat: int | None = None) -> Machine:
        self.log_in().say(c.ConnectionTuneOk(heartbeat=heartbeat))
        return self

    def open(self, heartbeat: int | None = None) -> Machine:
        self.tune(heartbeat).say(c.ConnectionOpen("/"))
        self.handler.told.clear()
        return self

    def attach(self, name: bytes = b"s", channel: int = 1) -> Machine:
        self.say(c.SessionAttach(name), channel)
        self.handler.told.clear()
        return self

    def advance(self, seconds: float) -> list:
        """Let time pass; what is due is done, each time at its time."""
        until = self.now + seconds
        while (deadline := self.wire.deadline()) is not None and deadline <= until:
            self.now = max(self.now, deadline)
            before = deadline
            self.wire.on_deadline(self.now)
            assert self.wire.deadline() != before, "it wants to be called for ever"
        self.now = until
        return self.heard()


def refused(code: int) -> AttachRefused:
    return AttachRefused(code)


def kinds(answer: list) -> list[type]:
    return [type(each[1] if isinstance(each, tuple) else each) for each in answer]
