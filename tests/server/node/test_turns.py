"""Whose turn it is: a connection that asks for much work gets it done in portions, with others between them."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from leveret.server.node.socket_io import READ_SIZE_MIN
from leveret.server.node.transport import READ_SIZE
from tests.server.node.scripted import Script, Scripted, run

pytestmark = pytest.mark.system


def test_a_front_end_that_halts_is_told_to_go_on_before_more_is_read():
    async def test(node: Scripted) -> None:
        async with await node.connect() as stream:
            await node.tell(stream, b"t")
            assert Script.last.sizes == [6, 1, 0]
            await node.tell(stream, b"e")
            assert Script.last.sizes == [6, 1, 0, 1]

    run(test)


def test_a_front_end_that_halts_after_its_peer_has_gone_is_told_to_go_on_and_ends():
    async def test(node: Scripted) -> None:
        stream = await node.connect(b"SCRIPTt")
        last = Script.last
        await stream.aclose()
        with trio.fail_after(10):
            while "lost" not in last.calls:
                await trio.lowlevel.checkpoint()
        assert last.sizes == [7, 0]

    run(test)


def test_one_that_takes_long_is_read_from_in_small_bites_until_it_is_quick_again():
    async def test() -> None:
        async with Scripted() as node, await node.connect(b"SCRIPTd") as stream:
            sizes = Script.last.sizes
            await node.tell(stream, b"-" * 7 * READ_SIZE_MIN)
            assert sizes == [7, READ_SIZE_MIN, 2 * READ_SIZE_MIN, 4 * READ_SIZE_MIN]
            await node.tell(stream, b"-" * 4 * READ_SIZE)
            assert max(sizes) > 4 * READ_SIZE_MIN
            await node.tell(stream, b"d" + b"-" * 9999)
            del sizes[:]
            await node.tell(stream, b"-" * 3 * READ_SIZE_MIN)
            assert sizes == [READ_SIZE_MIN, 2 * READ_SIZE_MIN]

    trio.run(test, clock=trio.testing.MockClock())


def test_memory_is_looked_at_after_so_many_octets_whatever_the_time(monkeypatch: pytest.MonkeyPatch):
    """In the second between two looks a publisher can bring half a gigabyte."""

    async def test(node: Scripted) -> None:
        node.unchecked_max = 1000
        checks = []
        monkeypatch.setattr(node.broker.alarms, "check", lambda now: checks.append(now) or now)
        async with await node.connect() as stream:
            await node.tell(stream, b"-" * 900)
            assert not checks
            await node.tell(stream, b"-" * 100)
            assert len(checks) == 1
            await node.tell(stream, b"-" * 900)
            assert len(checks) == 1

    run(test)
