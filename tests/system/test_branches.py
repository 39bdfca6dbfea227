"""`leveret branches` and a running node: what is in doubt, and an end to it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from leveret import ThreadedNode, embedded
from leveret.protocols.amqp010.codec import commands as c
from leveret.server import cli
from tests.amqp010.client import ClientSession
from tests.amqp010.over_socket import SocketClient

pytestmark = pytest.mark.system


@pytest.fixture
def node() -> Iterator[ThreadedNode]:
    settings = {
        "http": {"enabled": True, "address": "127.0.0.1:0"},
        "protocols": {"amqp010": {"enabled": True}},
    }
    with ThreadedNode(embedded(settings)) as running:
        yield running


def worked(session: ClientSession, name: bytes) -> c.Xid:
    """An idle branch that publishes one message to `q`."""
    xid = c.Xid(7, name, b"")
    session.call(c.DtxStart(xid))
    session.publish("q", name)
    session.call(c.DtxEnd(xid))
    return xid


@pytest.mark.parametrize(("verb", "ready"), [("commit", 1), ("rollback", 0)])
def test_an_operator_looks_at_branches_and_ends_one(
    node: ThreadedNode, capsys: pytest.CaptureFixture[str], verb: str, ready: int
) -> None:
    def told(*said: str) -> tuple[int, str]:
        done = cli.main(["branches", *said, "--url", f"http://{node.node.addresses[-1]}"])
        captured = capsys.readouterr()
        return done, captured.out + captured.err

    assert told("list") == (cli.DONE, "no branches\n")
    with SocketClient(node.node.addresses[0]) as client:
        session = client.open().attach("s")
        session.declare("q")
        session.call(c.DtxSelect())
        prepared, _ = worked(session, b"a"), worked(session, b"b")
        session.call(c.DtxPrepare(prepared))
        listed = told("list")[1].splitlines()
        assert [line.split()[:3] for line in listed[1:3]] == [
            ["7-61-", "guest", "prepared"],
            ["7-62-", "guest", "idle"],
        ]
        assert told(verb, "7-62-", "--yes")[0] == cli.REFUSED
        assert told(verb, "7-61-", "--yes")[0] == cli.DONE
        found = session.call(c.QueueQuery("q"))
        assert isinstance(found, c.QueueQueryResult)
        assert found.message_count == ready
        assert told("forget", "7-61-", "--yes") == (cli.DONE, "forgotten  7-61-\n")
        assert session.call(c.DtxRecover()) == c.RecoverResult([])
