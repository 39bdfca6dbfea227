"""The poller reads from TLS connections as from plain ones, also what the operating system no longer knows of."""

from __future__ import annotations

import contextlib
import logging
import ssl
import sys
from collections.abc import AsyncIterator

import pytest
import trio

from leveret.server.node import transport as reading
from leveret.server.node.transport import Transport
from tests.server.node.scripted import Script, Scripted, run, until

from .pki import Pki
from .test_entering import secured, settings

pytestmark = [pytest.mark.system, pytest.mark.skipif(sys.platform != "linux", reason="no epoll here")]

READ_SIZE = 4096


@pytest.fixture(autouse=True)
def small_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "READ_SIZE", READ_SIZE)
    monkeypatch.setattr(reading, "TURN_S", 3600.0)  # a slow machine reads less at a time


@contextlib.asynccontextmanager
async def attending(
    node: Scripted, pki: Pki
) -> AsyncIterator[tuple[trio.SSLStream[trio.SocketStream], Transport]]:
    """A client whose connection the poller reads from, and the connection."""
    stream = await secured(node, pki.trusting())
    await stream.send_all(b"SCRIPT")
    (transport,) = node.transports.values()
    await until(lambda: transport.number in node.poller._attending)
    Script.last.sizes.clear()
    try:
        yield stream, transport
    finally:
        await trio.aclose_forcefully(stream)


def test_a_small_request_is_read_by_the_poller(pki: Pki, monkeypatch: pytest.MonkeyPatch):
    async def test(node: Scripted) -> None:
        async with attending(node, pki) as (stream, _):
            monkeypatch.delattr(Transport, "_read")  # what the connection's own task would call
            for _ in range(3):
                await stream.send_all(b"e")
                assert await stream.receive_some(4) == b"echo"
            assert Script.last.sizes == [1, 1, 1]
        monkeypatch.undo()

    run(test, settings(tls=pki.settings()))


def test_the_rest_of_a_record_is_read_without_more_input(pki: Pki):
    async def test(node: Scripted) -> None:
        async with attending(node, pki) as (stream, transport):
            await stream.send_all(b"-" * (3 * READ_SIZE) + b"e")  # one record
            assert await stream.receive_some(4) == b"echo"
            assert Script.last.sizes == [READ_SIZE] * 3 + [1]
            assert transport.number in node.poller._attending

    run(test, settings(tls=pki.settings()))


def test_the_rest_of_a_record_waits_while_the_connection_is_not_read_from(pki: Pki):
    async def test(node: Scripted) -> None:
        async with attending(node, pki) as (stream, transport):
            await stream.send_all(b"h" + b"-" * (2 * READ_SIZE) + b"e")  # held after the first read
            await until(lambda: transport.number not in node.poller._attending)
            assert Script.last.sizes == [READ_SIZE]
            Script.last.blocked = False
            transport.keep_reading()
            assert await stream.receive_some(4) == b"echo"
            assert sum(Script.last.sizes) == 2 * READ_SIZE + 2

    run(test, settings(tls=pki.settings()))


@pytest.mark.parametrize("also_hangs_up", [False, True])
def test_the_end_that_comes_with_the_last_record_ends_the_connection(pki: Pki, also_hangs_up: bool):
    async def test(node: Scripted) -> None:
        async with attending(node, pki) as (stream, _):
            front = Script.last
            records = ssl_output(stream, b"e")
            await stream.transport_stream.send_all(records)
            if also_hangs_up:
                await stream.transport_stream.aclose()
            await until(lambda: "lost" in front.calls)
            assert front.sizes == [1]

    run(test, settings(tls=pki.settings()))


def ssl_output(stream: trio.SSLStream[trio.SocketStream], data: bytes) -> bytes:
    """Return what the client would send for this data, with close_notify behind it."""
    stream._ssl_object.write(data)
    with contextlib.suppress(ssl.SSLWantReadError):
        stream._ssl_object.unwrap()
    return stream._outgoing.read()


def test_a_record_that_is_broken_is_told_and_ends_only_its_connection(
    pki: Pki, caplog: pytest.LogCaptureFixture
):
    caplog.set_level(logging.WARNING, "leveret")

    async def test(node: Scripted) -> None:
        async with attending(node, pki) as (stream, _):
            front = Script.last
            await stream.transport_stream.send_all(b"\x17\x03\x03\x00\x20" + b"!" * 32)
            await until(lambda: "lost" in front.calls)
            assert "broken off, TLS: " in caplog.text

    run(test, settings(tls=pki.settings()))


def test_the_node_does_not_wait_in_its_poll_while_tls_has_more(pki: Pki):
    async def test(node: Scripted) -> None:
        async with attending(node, pki) as (stream, transport):
            node.broker.clock.now = lambda: 0.0  # type: ignore[method-assign]
            await stream.send_all(b"-" * (2 * READ_SIZE))
            await until(lambda: bool(Script.last.sizes))
            node.poller._talkers[transport.number] = None
            assert not node.poller._stays()
            node.poller._talkers.clear()
            assert node.poller._stays()

    run(test, settings(tls=pki.settings()), owns_loop=True)
