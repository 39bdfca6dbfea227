"""A session is resumed only by a token with which its user may still read what it reads; and commands out of range."""

from __future__ import annotations

import attrs
import pytest

from leveret.protocols.amqp010.codec import commands as c
from leveret.security.scopes import parse
from tests.amqp010.client import ClientSession
from tests.amqp010.peer import Peer, refused, session_of, waiting
from tests.harness.bench import ClientBench

READS_ALL = ("read:*/*", "write:*/*", "configure:*/*")
READS_ANOTHER = ("read:*/another", "write:*/*", "configure:*/*")


def with_token(bench: ClientBench, words: tuple[str, ...]) -> Peer:
    """Return a connection whose user has logged in with such a token."""
    peer = Peer(bench)
    peer.open()
    client = peer.front.client
    client.change_user(attrs.evolve(client.user, scopes=parse(words, "")[0]))
    return peer


def left(bench: ClientBench) -> Peer:
    """Return a connection that broke off, whose session is kept, and has a message of `q`."""
    peer = with_token(bench, READS_ALL)
    session = peer.attach("kept")
    session.control(c.SessionRequestTimeout(60))
    session.declare("q")
    session.publish("q", b"mine")
    inbox = session.subscribe("q")
    assert inbox.bodies() == [b"mine"]
    peer.drop()
    assert waiting(bench) == []
    return peer


@pytest.mark.parametrize(("words", "is_resumed"), [(READS_ALL, True), (READS_ANOTHER, False)])
def test_a_token_that_reads_less_gets_a_new_session(words: tuple[str, ...], is_resumed: bool) -> None:
    bench = ClientBench()
    left(bench)
    client = with_token(bench, words)
    assert client.attach("kept").attached
    assert len(bench.queue("q").consumers) == is_resumed
    assert waiting(bench) == [b"mine"] * (not is_resumed)
    assert bench.broker.channels_of == {"guest": 1}


@pytest.fixture
def session() -> ClientSession:
    bench = ClientBench()
    session = session_of(bench)
    session.declare("q")
    session.subscribe("q", messages=None)
    return session


@pytest.mark.parametrize("command", [c.MessageSetFlowMode("q", 7), c.MessageFlow("q", 7, 1)])
def test_modes_and_units_that_there_are_not_end_the_session(
    session: ClientSession, command: c.Command
) -> None:
    assert refused(session, command) == c.ERROR_CODE_INVALID_ARGUMENT
