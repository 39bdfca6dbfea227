"""What a start leaves out is imported with the first connection that needs it, or by a node that stands by."""

from __future__ import annotations

import logging
import subprocess
import sys
import threading
from collections.abc import Callable

import attrs
import pytest
import trio
import trio.testing

from leveret.front_end import Protocol
from leveret.protocols.amqp010.broker.registration import PROTOCOL as AMQP010
from leveret.protocols.amqp091.broker.registration import PROTOCOL as AMQP091
from leveret.protocols.amqp10.broker.registration import PROTOCOL as AMQP10
from leveret.protocols.http.registration import PROMETHEUS
from leveret.protocols.http.registration import PROTOCOL as HTTP
from leveret.server.cluster.process import SETTLED_S, prepare
from leveret.server.node.node import Node
from tests.server.node.scripted import BROKEN, SCRIPT, Scripted

pytestmark = pytest.mark.system

PREPARED = """
import sys
from {module} import {name} as protocol
before = set(sys.modules)
protocol.prepare()
assert set(sys.modules) - before
before = set(sys.modules)
try:
    protocol.factory(None, None, None, None, None)
except Exception:
    pass
print(sorted(set(sys.modules) - before))
"""


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("leveret.protocols.amqp091.broker.registration", "PROTOCOL"),
        ("leveret.protocols.amqp10.broker.registration", "PROTOCOL"),
        ("leveret.protocols.amqp010.broker.registration", "PROTOCOL"),
        ("leveret.protocols.http.registration", "PROTOCOL"),
        ("leveret.protocols.http.registration", "PROMETHEUS"),
    ],
)
def test_who_comes_first_finds_everything_imported(module: str, name: str) -> None:
    command = [sys.executable, "-c", PREPARED.format(module=module, name=name)]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "[]\n"


def test_these_are_all_protocols_that_are_imported_later() -> None:
    assert all(each.prepare is not None for each in (AMQP091, AMQP10, AMQP010, HTTP, PROMETHEUS))


def made(owns_loop: bool, fails: bool = False) -> tuple[list[bool], list[bytes]]:
    """Return whether each import was made in the main thread, and what two clients were answered.

    Both clients are those of a protocol whose front-end is imported late; `fails`: that cannot be done.
    """
    calls: list[bool] = []
    answers: list[bytes] = []

    def load() -> None:
        calls.append(threading.current_thread() is threading.main_thread())
        if fails:
            raise ImportError("no such library")

    class Late(Scripted):
        def _bind(self) -> None:
            late = attrs.evolve(SCRIPT, prepare=load)
            self._plugins.protocols.update({"broken": BROKEN, "script": late})
            Node._bind(self)

    async def main() -> None:
        async with Late(owns_loop=owns_loop) as node:
            for _ in range(2):
                async with await node.connect(b"") as stream:
                    await stream.send_all(b"SCRIPTef")
                    answers.append(b"".join([each async for each in stream]))

    trio.run(main)
    return calls, answers


def test_the_first_connection_has_its_front_end_imported_in_a_thread() -> None:
    assert made(owns_loop=True) == ([False], [b"echobye"] * 2)


def test_in_the_loop_of_a_program_nothing_is_imported_aside() -> None:
    assert made(owns_loop=False) == ([], [b"echobye"] * 2)


def test_an_import_that_fails_ends_its_connection_and_is_tried_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert made(owns_loop=True, fails=True) == ([False, False], [b"", b""])
    assert "closed because of a mistake of ours" in caplog.text
    assert "no such library" in caplog.text


def prepared(*prepares: Callable[[], None] | None) -> None:
    """After as long as it takes, and not before, two listeners' protocols, with these, are prepared."""
    clock = trio.testing.MockClock()

    async def main() -> None:
        protocols = [
            Protocol(f"p{number}", (b"P",), None, prepare=each)  # type: ignore[arg-type]
            for number, each in enumerate(prepares)
        ]
        done = trio.Event()

        async def first() -> None:
            await prepare(protocols * 2)
            done.set()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(first)
            await trio.testing.wait_all_tasks_blocked()
            clock.jump(SETTLED_S / 2)
            await trio.testing.wait_all_tasks_blocked()
            assert not done.is_set()
            clock.jump(SETTLED_S / 2)

    trio.run(main, clock=clock)


def test_each_is_prepared_once_and_in_a_thread() -> None:
    calls: list[tuple[str, bool]] = []

    def of(name: str) -> Callable[[], None]:
        return lambda: calls.append((name, threading.current_thread() is threading.main_thread()))

    prepared(of("a"), None, of("b"))
    assert calls == [("a", False), ("b", False)]


def test_one_that_cannot_be_prepared_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    calls: list[str] = []

    def broken() -> None:
        raise ImportError("no such library")

    with caplog.at_level(logging.ERROR):
        prepared(broken, lambda: calls.append("next"))
    assert calls == ["next"]
    assert "the protocol 'p0'" in caplog.text
    assert "no such library" in caplog.text
