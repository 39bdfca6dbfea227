"""The client of client.py in memory: against a real broker and no socket."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from leveret.front_end import Peer as Address
from leveret.protocols.amqp010.broker.adapter import Adapter010
from leveret.protocols.amqp010.codec import commands as c
from tests.harness.bench import ClientBench
from tests.harness.peer import LOOPBACK, JoinedPeer

from .client import Client, ClientSession, SessionEnded


class Peer(JoinedPeer, Client):
    """One connection to the broker of a bench."""

    adapter = Adapter010
    hear = Client.hear

    def __init__(self, bench: ClientBench | None = None, address: Address = LOOPBACK) -> None:
        Client.__init__(self)
        JoinedPeer.__init__(self, bench, address)

    def until(self, condition: Callable[[], bool], what: str) -> None:
        """In memory everything that will come without time passing has come."""
        self.read()
        assert condition() or self.is_over, f"there is no {what}; last came {self.heard[-3:]}"


def session_of(bench: ClientBench, name: str = "session", user: str = "guest") -> ClientSession:
    """A session on a connection of its own; everybody's password is the name."""
    return Peer(bench).open(user, user).attach(name)


def waiting(bench: ClientBench, queue: str = "q") -> list[bytes]:
    """The bodies that wait in a queue."""
    return [delivery.message.body for delivery in bench.queue(queue).waiting()]


def refused(session: ClientSession, command: c.Command) -> int | None:
    """The error code with which a command ends the session."""
    with pytest.raises(SessionEnded) as caught:
        session.call(command)
    found = caught.value.exception
    assert found is not None
    assert (found.class_code, found.command_code) == (command.CLASS_CODE, command.CODE)
    return caught.value.code
