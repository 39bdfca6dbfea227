"""The interfaces and limits of the AMQP 0-10 machine. A connection needs a handler; a session needs a line to the peer
and an owner, which executes its commands.

    Connection ──Handler──> the front-end              Session ──SessionOwner──> the broker's side
                                                       Session ──Line──> a channel of a Connection
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from leveret.protocols.amqp010.codec.commands import Command, ExecutionException, MessageTransfer, Struct
    from leveret.protocols.amqp010.codec.sequences import Id, SequenceSet
    from leveret.protocols.amqp010.codec.types import Value
    from leveret.protocols.amqp010.machine.session import Session
    from leveret.protocols.shared.machine.contract import Wait


class AmqpError(Exception):
    """An error that ends a connection. `code` is a CLOSE_CODE, `text` is sent to the peer."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


class AttachRefused(Exception):  # noqa: N818 - not an error of ours
    """Raised for a session that cannot be attached. `code` is a DETACH_CODE."""

    def __init__(self, code: int) -> None:
        super().__init__(f"attach refused with detach code {code}")
        self.code = code


class SessionError(Exception):
    """An error that ends a session. `code` is an ERROR_CODE; `field_index` is the command's field, from 1, or 0."""

    def __init__(self, code: int, description: str, field_index: int = 0) -> None:
        super().__init__(description)
        self.code = code
        self.description = description
        self.field_index = field_index


class Line(ABC):
    """The channel that an attached session writes to. It must not be written to after the session's `detached`."""

    __slots__ = ()

    @abstractmethod
    def control(self, payload: bytes) -> None:
        """Send an encoded control on the session's channel."""

    @abstractmethod
    def frames(self, command: bytes, header: bytes | None, body: bytes | None) -> int:
        """Send an encoded command with its header and body segments; return the number of bytes written."""

    def transfers(self, command: bytes, contents: Sequence[tuple[bytes, bytes | None]]) -> int:
        """Send the same encoded command with each of these headers and bodies; return the number of bytes written."""
        return sum(self.frames(command, header, body) for header, body in contents)

    @abstractmethod
    def released(self) -> None:
        """Called after the session left the channel by itself (detach, detached): the channel is free again."""

    @abstractmethod
    def abandon(self) -> None:
        """Called when the peer will not send the rest of a command that has begun: what has come is dropped."""

    @abstractmethod
    def room(self) -> int:
        """Return how many bytes may still be written before deliveries ought to wait."""

    def in_portions(self, step: Callable[[], bool]) -> None:
        """Take steps until one returns False, at once or in turn with other work, and handle no input before that."""
        while step():
            pass


class SessionOwner(ABC):
    """Executes the commands of one session. Outlives connections, as its session does.

    Every on_x before on_completed may raise SessionError, which ends the session with execution.exception.
    """

    __slots__ = ()

    timeout_max_s: int  # the most that session.request-timeout is granted

    def on_begun(self, transfer: MessageTransfer) -> None:
        """Called once a part of a message has come, and the whole has not: may it be published? A SessionError refuses
        it before more of it is kept."""

    @abstractmethod
    def on_transfer(
        self, id: Id, transfer: MessageTransfer, header: bytes | None, body: bytes | None, sync: bool
    ) -> None:
        """Called with a whole message. The owner calls the session's `complete` or `complete_through`, now or later.

        The same bytes give the same `transfer` object again, so it must not be changed. `header` holds the structs of
        the header segment, unchecked. It is None if there was no such segment, which differs from an empty one.
        """

    def on_run(self, first: Id, transfer: MessageTransfer, headers: list[bytes], bodies: list[bytes]) -> int:
        """Take whole messages with ids from `first` on, each in a transfer like this one. Return how many were taken.

        The effect is that of `on_transfer` for each, in order, as long as each is simply taken. The others are left
        untouched. It raises nothing, and sends nothing to the peer.
        """
        return 0

    @abstractmethod
    def on_command(self, id: Id, command: Command, sync: bool) -> None:
        """Called with any other command except those of class execution. The owner completes it, now or later."""

    @abstractmethod
    def on_completed(self, ids: SequenceSet) -> None:
        """Called when the peer has completed these commands, which were sent and incomplete."""

    @abstractmethod
    def on_attached(self) -> None:
        """Called when the session has a line, for the first time or again: waiting messages may be delivered."""

    @abstractmethod
    def on_detached(self) -> None:
        """Called when the line is gone and the session is kept: deliveries pause."""

    def release_some(self) -> bool:
        """Release a part of what the session holds; return whether there was any. It is over, apart from that.

        Called until it returns False, before `on_ended`.
        """
        return False

    def in_portions(self, step: Callable[[], bool]) -> None:
        """Take steps until one returns False, at once or in turn with other work. For a session without a line."""
        while step():
            pass

    @abstractmethod
    def on_ended(self) -> None:
        """Called once when the session is over, whatever ended it: everything it holds is to be given back."""

    def wake_all(self) -> None:
        """Called when the line has room again: deliveries that waited for it may go on."""

    def on_room(self) -> None:
        """Called when `room` may be above 0 again, after too many commands waited to be confirmed."""

    def on_result(self, id: Id, value: Struct) -> None:
        """Called with the peer's result of a command of ours."""

    def on_exception(self, exception: ExecutionException) -> None:
        """Called when the peer could not execute a command of ours; the session ends after the call."""


@attrs.frozen
class SessionLimits:
    """Limits of what a session remembers, and how often it reports completion."""

    replay_soft_bytes: int = 1_048_576  # of sent commands not known to have arrived; beyond, flush asks
    replay_max_bytes: int = 16_777_216  # beyond, the session cannot be resumed
    complete_every: int = 256  # commands that may complete before the peer is told, while it sends
    incomplete_max: int = 32_768  # ranges of ids in the sets that are kept


class Handler(ABC):
    """The broker's side of a connection. The first four methods may raise AmqpError, which closes the connection."""

    __slots__ = ()

    @abstractmethod
    def on_start_ok(
        self, mechanism: str, response: bytes | None, client_properties: Mapping[str, Value]
    ) -> bytes | Wait | None:
        """Called when the client has chosen a mechanism: return the next challenge, None once the user is known, or
        `Wait`.

        `response` is None if the client sent none, which differs from an empty one. After `Wait` the connection calls
        `on_checked` each time it receives something, which may be no bytes at all, and processes nothing until there is
        another answer.
        """

    @abstractmethod
    def on_secure_ok(self, response: bytes) -> bytes | Wait | None:
        """Called when the client has answered the challenge. Returns as on_start_ok does."""

    def on_checked(self) -> bytes | Wait | None:
        """Return the outcome of the check that `Wait` announced, as on_start_ok does."""
        raise NotImplementedError

    @abstractmethod
    def on_open(self, virtual_host: str) -> None:
        """Called when the client opens this virtual host ("" is the default one); open-ok is sent after the call."""

    @abstractmethod
    def on_attach(self, name: bytes, force: bool) -> Session:
        """Called when the client attaches the session of that name, which is on no channel of this connection.

        Returns a detached session: a new one, one that was kept, or, with `force`, one that was taken from its channel
        elsewhere. Raises AttachRefused.
        """

    @abstractmethod
    def on_detached(self, session: Session) -> None:
        """Called when the session has left its channel, for whatever reason: it is kept for its timeout, or over."""

    def is_enough(self) -> bool:
        """Return whether to interrupt this read so that other connections have a turn; called after each command."""
        return False

    def release_some(self) -> bool:
        """Release a part of what the connection holds; return whether there was any. It has ended, apart from that.

        Called until it returns False, after all sessions and before `on_closed`, which releases everything else.
        """
        return False

    @abstractmethod
    def on_closed(self) -> None:
        """Called once when the connection has ended, however: after its sessions and before the peer are told."""


@attrs.frozen
class Tuning:
    """The limits that the server offers and enforces. A heartbeat of 0 means none."""

    session_max: int = 1024  # sessions at a time, whatever the numbers of their channels
    frame_max: int = 65_535  # of sent frames; received ones may have 65535 bytes whatever was agreed
    heartbeat_s: int = 120
    body_size_max: int = 16_777_216
    handshake_timeout_s: float = 10.0  # for a close-ok as well
    mechanisms: tuple[str, ...] = ("PLAIN",)
    server_properties: Mapping[str, Value] = attrs.Factory(dict)
