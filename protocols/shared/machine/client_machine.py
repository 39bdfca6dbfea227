"""The client's side of a connection of any version of AMQP: it speaks first, and can be told to close."""

from __future__ import annotations

from abc import abstractmethod

import attrs

from leveret.protocols.shared.machine.connection_machine import ConnectionMachine
from leveret.protocols.shared.machine.states import State


@attrs.frozen
class Credentials:
    """The name and password that a client logs in with."""

    mechanism: str  # PLAIN, EXTERNAL or ANONYMOUS
    user: str
    password: str = attrs.field(repr=False)

    @property
    def response(self) -> bytes:
        """Return what the client says first: by PLAIN its name and password (RFC 4616), else nothing."""
        return f"\0{self.user}\0{self.password}".encode() if self.mechanism == "PLAIN" else b""


class ClientMachine(ConnectionMachine):
    """The end of a connection that the node has opened to another broker."""

    _reason = ""  # why the connection has ended, in words that are better than those of the machine

    @abstractmethod
    def begin(self) -> None:
        """Send what the client sends first."""

    @abstractmethod
    def close(self, reason: str) -> None:
        """Close the connection; the broker's answer is waited for as long as the handshake may take."""

    @abstractmethod
    def _hear_end(self, reason: str) -> None:
        """Tell the owner, once, that the connection has ended in any way."""

    def _end_now(self, reason: str) -> None:
        self.state = State.CLOSED
        self._end(reason)

    def _end(self, reason: str) -> None:
        self._reason = self._reason or reason
        self._finish(reason)

    def _on_end(self) -> None:
        self._tail.clear()
        self._hear_end(self._reason or self.ended_because)

    def _give_up(self) -> None:
        self._end_now(f"it was silent for more than {2 * self.heartbeat_s} s")

    def _drop(self, because: str, last: bytes = b"") -> None:
        self._end_now(because)

    def _check(self) -> None:
        """Do nothing: nothing is checked by others."""
