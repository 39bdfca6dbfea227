"""kill -9 while branches are prepared and committed: each message is in one queue, where its coordinator wants it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import zip_longest
from pathlib import Path
from typing import TypeAlias

import attrs
import pytest

from leveret.protocols.amqp010.codec import commands as c
from tests.amqp010.client import ClientSession, ids
from tests.amqp010.over_socket import SocketClient
from tests.harness.seldom import elsewhere, one_feature

from .node import Node, damage_in
from .tracing import WRITING, injecting, why_not

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

BRANCHES = 150
BEHIND = 40  # so many are prepared and not committed at a time
RESULTS = 4 * BRANCHES - BEHIND  # of start, end, prepare and commit
SETTINGS = {"LEVERET_PROTOCOLS__AMQP010__ENABLED": "true"}
OK = c.XaResult(c.XA_STATUS_XA_OK)
Connect: TypeAlias = Callable[[Node, str], ClientSession]


def xid(number: int) -> c.Xid:
    return c.Xid(7, b"%d" % number, b"")


@attrs.frozen
class Asked:
    """The ids of the commands that ask for the two phases of a branch."""

    prepare: int
    commit: int | None  # None: it is not decided about


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Opens connections, with a session each, that end with the test."""
    with ExitStack() as clients:

        def connected(node: Node, name: str) -> ClientSession:
            client = clients.enter_context(SocketClient(f"127.0.0.1:{node.port}"))
            session: ClientSession = client.open().attach(name)
            return session

        yield connected


def sent(session: ClientSession, queue: str, body: bytes) -> None:
    about = c.DeliveryProperties(delivery_mode=c.DELIVERY_MODE_PERSISTENT, routing_key=queue)
    session.publish(queue, body, delivery=about)


def fill(node: Node, connect: Connect) -> None:
    session = connect(node, "fill")
    for queue in ("q", "r"):
        session.declare(queue, durable=True)
    for number in range(BRANCHES):
        sent(session, "q", b"%d" % number)
    session.sync()
    session.client.close()


def work(node: Node, connect: Connect) -> tuple[ClientSession, list[Asked]]:
    """Take every message out of `q` and put it into `r`, each in a branch, without waiting for any answer."""
    session = connect(node, "work")
    session.call(c.DtxSelect())
    inbox = session.subscribe("q")
    prepares, commits = [], []
    for number, message in enumerate([inbox.get() for _ in range(BRANCHES)]):
        assert message.body == b"%d" % number
        session.send(c.DtxStart(xid(number)))
        session.send(c.MessageAccept(ids(message.id)))
        sent(session, "r", message.body)
        session.send(c.DtxEnd(xid(number)))
        prepares.append(session.send(c.DtxPrepare(xid(number))))
        if number >= BEHIND:
            commits.append(session.send(c.DtxCommit(xid(number - BEHIND))))
    return session, [Asked(*both) for both in zip_longest(prepares, commits)]


def answered(session: ClientSession, results: int) -> None:
    """Read until there are so many answers, or the node is gone."""
    assert isinstance(session.client, SocketClient)
    client = session.client
    while len(session.results) < results and client._receive():
        pass


def bodies(session: ClientSession, queue: str) -> list[int]:
    found = session.call(c.QueueQuery(queue))
    assert isinstance(found, c.QueueQueryResult)
    inbox = session.subscribe(queue)
    return [int(inbox.get().body) for _ in range(found.message_count or 0)]


def check(folder: Path, connect: Connect, session: ClientSession, asked: list[Asked]) -> None:
    """Decide about what is in doubt, by its number, and look where everything is."""
    told = {id for id, result in session.results.items() if result == OK}
    node = Node(folder, settings=SETTINGS)
    try:
        coordinator = connect(node, "coordinator")
        found = coordinator.call(c.DtxRecover())
        assert isinstance(found, c.RecoverResult)
        in_doubt = {int(each.global_id or b"") for each in found.in_doubt or []}
        for number in in_doubt:
            decided = c.DtxCommit(xid(number)) if number % 2 else c.DtxRollback(xid(number))
            assert coordinator.call(decided) == OK
    finally:
        node.kill()
    assert not damage_in(folder)
    node = Node(folder, settings=SETTINGS)
    try:
        reader = connect(node, "reader")
        assert reader.call(c.DtxRecover()) == c.RecoverResult([])
        there, here = bodies(reader, "r"), bodies(reader, "q")
        reader.client.close()
    finally:
        node.kill()
    assert sorted(here + there) == list(range(BRANCHES)), "each is in one of them, once"
    for number, each in enumerate(asked):
        if each.commit in told:
            assert number in there
            assert number not in in_doubt
        elif number in in_doubt:
            assert number in (there if number % 2 else here)
        elif each.prepare in told:
            assert each.commit is not None, "it was prepared, is not any more, and nobody has decided that"
            assert number in there


@pytest.mark.parametrize(
    "results", [pytest.param(100, marks=elsewhere), pytest.param(400, marks=elsewhere), RESULTS]
)
@one_feature
def test_a_node_that_is_killed_between_answers(tmp_path: Path, connect: Connect, results: int) -> None:
    folder = tmp_path / "data"
    node = Node(folder, settings=SETTINGS)
    try:
        fill(node, connect)
        session, asked = work(node, connect)
        answered(session, results)
    finally:
        node.kill()
    check(folder, connect, session, asked)


@pytest.mark.parametrize("call", [pytest.param(1, marks=elsewhere), 4, pytest.param(9, marks=elsewhere)])
def test_a_node_that_is_killed_at_a_system_call(tmp_path: Path, connect: Connect, call: int) -> None:
    if reason := why_not():
        pytest.skip(reason)
    folder = tmp_path / "data"
    node = Node(folder, settings=SETTINGS)
    try:
        fill(node, connect)
        tracer = injecting(node, WRITING, "signal=KILL", str(call))
        session, asked = work(node, connect)
        answered(session, RESULTS)
        node.ended()
        tracer.close()
    finally:
        node.kill()
    check(folder, connect, session, asked)
