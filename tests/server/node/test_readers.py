"""Where there is no epoll: each connection's own task reads, and what the store reports comes by way of trio."""

from __future__ import annotations

import threading

import attrs
import pytest
import trio.testing

from leveret.server.node import node as nodes
from leveret.server.node.readers import TaskReaders
from tests.server.node import scripted
from tests.server.node.scripted import SCRIPT, Script, Scripted, run, until

pytestmark = pytest.mark.system


@pytest.fixture(autouse=True)
def own_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nodes, "readers", TaskReaders)


class Halting(Script):
    """After `H` it has input left in each turn, until it is enough."""

    is_enough = False
    halts = False

    def receive(self, data: bytes, now: float) -> None:
        super().receive(data, now)
        self.halts = self.halts or b"H" in data
        if self.halts:
            self.halted = not self.is_enough
            if self.is_enough:
                self.echo()


def test_a_front_end_that_halts_goes_on_without_input_and_others_have_their_turns(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(scripted, "SCRIPT", attrs.evolve(SCRIPT, factory=Halting))

    async def test(node: Scripted) -> None:
        other = await node.connect()
        stream = await node.connect()
        front = Script.last
        assert isinstance(front, Halting)
        front.sizes.clear()
        await stream.send_all(b"H")
        await until(lambda: len(front.sizes) > 3)
        assert front.sizes[:4] == [1, 0, 0, 0]
        await other.send_all(b"e")
        assert await other.receive_some(4) == b"echo"
        assert front.halted
        front.is_enough = True
        assert await stream.receive_some(4) == b"echo"
        for each in (stream, other):
            await each.aclose()

    run(test)


def test_reports_of_another_thread_are_heard_in_order_and_none_once_the_node_has_ended(
    monkeypatch: pytest.MonkeyPatch,
):
    heard: list[str] = []

    async def test(node: Scripted) -> None:
        monkeypatch.setattr(node, "hear_report", lambda report: report())
        poller = node.poller

        def report(*names: str) -> None:
            for name in names:
                poller.report(lambda name=name: heard.append(name))  # type: ignore[misc]

        thread = threading.Thread(target=report, args="ab")
        thread.start()
        await until(lambda: len(heard) == 2)
        thread.join()
        report("c")
        poller.close()
        report("d")
        await trio.testing.wait_all_tasks_blocked()

    run(test)
    assert heard == ["a", "b"]


def test_what_is_reported_after_the_end_is_dropped() -> None:
    found: list[TaskReaders] = []

    async def test(node: Scripted) -> None:
        found.append(TaskReaders(node))

    run(test)
    found[0].report(lambda: pytest.fail("the node has ended"))
