"""What the machines of AMQP 0-10 need from outside, and what they tell each other: a connection its handler and
limits; a session its line to the peer and its owner, who does what the commands say.

    Connection ──Handler──> the front-end              Session ──SessionOwner──> the broker's side
                                                       Session ──Line──> a channel of a Connection
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from protocols.amqp010.codec.commands import Command, ExecutionException, MessageTransfer, Struct
    from protocols.amqp010.codec.sequences import Id, SequenceSet
    from protocols.amqp010.codec.types import Value
    from protocols.amqp010.machine.session import Session
    from protocols.shared.machine.contract import Wait


class AmqpError(Exception):
    """What ends a connection. `code` is a CLOSE_CODE, `text` what the peer is told."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


class AttachRefused(Exception):  # noqa: N818 - not an error of ours
    """A session that cannot be attached. `code` is a DETACH_CODE."""

    def __init__(self, code: int) -> None:
        super().__init__(f"attach refused with detach code {code}")
        self.code = code


class SessionError(Exception):
    """What ends a session. `code` is an ERROR_CODE; `field_index` counts the fields of the command from 1, 0: none."""

    def __init__(self, code: int, description: str, field_index: int = 0) -> None:
        super().__init__(description)
        self.code = code
        self.description = description
        self.field_index = field_index


class Line(ABC):
    """What an attached session writes to: one channel of one connection. After the session was told `detached` it
    must not write any more."""

    __slots__ = ()

    @abstractmethod
    def control(self, payload: bytes) -> None:
        """Send an encoded control on the session's channel."""

    @abstractmethod
    def frames(self, command: bytes, header: bytes | None, body: bytes | None) -> int:
        """Send an encoded command, with its header and body segments; answers the octets it took."""

    def transfers(self, command: bytes, contents: Sequence[tuple[bytes, bytes | None]]) -> int:
        """Send the same encoded command with each of these headers and bodies; answers the octets they took."""
        return sum(self.frames(command, header, body) for header, body in contents)

    @abstractmethod
    def released(self) -> None:
        """The session left the channel by itself (detach, detached): the channel is free again."""

    @abstractmethod
    def abandon(self) -> None:
        """The peer will not send the rest of the command that it is sending, if it is: what has come is dropped."""

    @abstractmethod
    def room(self) -> int:
        """How many octets may still be written before deliveries ought to wait."""


class SessionOwner(ABC):
    """Does what the commands of one session say. Outlives connections, as its session does.

    Every on_x before on_completed may raise SessionError, which ends the session with execution.exception.
    """

    __slots__ = ()

    timeout_max_s: int  # what session.request-timeout may get

    @abstractmethod
    def on_transfer(
        self, id: Id, transfer: MessageTransfer, header: bytes | None, body: bytes | None, sync: bool
    ) -> None:
        """A whole message. The owner calls the session's `complete` or `complete_through`, now or later.

        The same octets give the same `transfer` object again: it must not be changed. `header` are the structs of
        the header segment, unchecked. None: there was no such segment, which is not the same as an empty one.
        """

    @abstractmethod
    def on_command(self, id: Id, command: Command, sync: bool) -> None:
        """Any other command but those of class execution. The owner completes it, now or later."""

    @abstractmethod
    def on_completed(self, ids: SequenceSet) -> None:
        """The peer completed these commands of ours; cut down to those that were sent and not complete yet."""

    @abstractmethod
    def on_attached(self) -> None:
        """The session has a line, for the first time or again: what waits may be delivered."""

    @abstractmethod
    def on_detached(self) -> None:
        """The line is gone and the session is kept: deliveries pause."""

    @abstractmethod
    def on_ended(self) -> None:
        """The session is over, whatever ended it; once: everything it holds is to be given back."""

    def wake_all(self) -> None:
        """The line has room again: deliveries that waited for it may go on."""

    def on_room(self) -> None:
        """The session's `room` was 0 because too much waited to be confirmed, and is no more."""

    def on_result(self, id: Id, value: Struct) -> None:
        """The peer's result of a command of ours."""

    def on_exception(self, exception: ExecutionException) -> None:
        """The peer could not execute a command of ours; the session ends after the call."""


@attrs.frozen
class SessionLimits:
    """How much a session remembers, and how often it tells what it completed."""

    replay_soft_bytes: int = 1_048_576  # of sent commands not known to have arrived: then flush asks
    replay_max_bytes: int = 16_777_216  # then the session cannot be resumed any more
    complete_every: int = 256  # commands that complete without the peer being told, while it sends
    incomplete_max: int = 32_768  # ranges of ids in the sets that are kept


class Handler(ABC):
    """What a connection tells the broker's side. The first four may raise AmqpError, which closes the connection."""

    __slots__ = ()

    @abstractmethod
    def on_start_ok(
        self, mechanism: str, response: bytes | None, client_properties: Mapping[str, Value]
    ) -> bytes | Wait | None:
        """The client chose a mechanism: answer the next challenge, or None, who it is being settled.

        `response` is None where the client sent none, which is not the same as an empty one. After `Wait` the
        connection asks `on_checked` each time it receives something, which may be no octets at all, and takes nothing
        of it before there is another answer.
        """

    @abstractmethod
    def on_secure_ok(self, response: bytes) -> bytes | Wait | None:
        """The client answered the challenge. As on_start_ok."""

    def on_checked(self) -> bytes | Wait | None:
        """What has become of the password. As on_start_ok."""
        raise NotImplementedError

    @abstractmethod
    def on_open(self, virtual_host: str) -> None:
        """The client wants this virtual host ("" is the default one); open-ok is sent after the call."""

    @abstractmethod
    def on_attach(self, name: bytes, force: bool) -> Session:
        """The client wants the session of that name, which is on no channel of this connection.

        Answers a session that is detached: a new one, one that was kept, or, with `force`, one that was taken
        from its channel elsewhere. Raises AttachRefused.
        """

    @abstractmethod
    def on_detached(self, session: Session) -> None:
        """The session has left its channel, whatever made it: it is kept for its timeout, or it has ended."""

    def is_enough(self) -> bool:
        """Whether others ought to have their turn before more of this read; asked after each command."""
        return False

    @abstractmethod
    def on_closed(self) -> None:
        """The connection ended, whatever ended it; once, after its sessions were told, before the peer is."""


@attrs.frozen
class Tuning:
    """What the server offers and insists on. A heartbeat of 0 means none."""

    session_max: int = 1024  # at a time, whatever their channels' numbers
    frame_max: int = 65_535  # of what we send; what comes may have 65535 octets whatever was agreed
    heartbeat_s: int = 120
    body_size_max: int = 16_777_216
    handshake_timeout_s: float = 10.0  # for a close-ok as well
    mechanisms: tuple[str, ...] = ("PLAIN",)
    server_properties: Mapping[str, Value] = attrs.Factory(dict)
