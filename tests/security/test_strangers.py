"""What peers that have not logged in can have of a node, over real sockets: ten seconds, whatever they do.

Time is a clock that jumps when nobody can go on.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Awaitable, Callable

import pytest
import trio
import trio.testing

from leveret.config.config import Config, parse
from leveret.protocols.amqp010.codec import commands as c
from leveret.protocols.amqp091.codec import methods as m
from leveret.protocols.amqp091.codec.wire import method_frame
from leveret.protocols.amqp10.codec import performatives as p
from leveret.server.node.node import Node
from tests.amqp010.client import frame as frame_010
from tests.amqp10.parts import SASL
from tests.amqp10.parts import frame as frame_10
from tests.tls.conftest import pki
from tests.tls.pki import Pki

__all__ = ["pki"]
pytestmark = pytest.mark.system

HEADER_091, HEADER_010 = b"AMQP\x00\x00\x09\x01", b"AMQP\x01\x01\x00\x0a"
SASL_10, HEADER_10 = b"AMQP\x03\x01\x00\x00", b"AMQP\x00\x01\x00\x00"
LIMIT_S, SLACK_S = 10.0, 0.5
PROXIED = b"PROXY TCP4 %s 198.51.100.1 40000 5671\r\n"


def node(more: str = "", listener: str = "") -> Node:
    config = f"""
    listeners = [{{ address = "127.0.0.1:0"{listener} }}]
    [protocols.amqp010]
    enabled = true
    [http]
    address = "127.0.0.1:0"
    {more}
    """
    return Node(parse(config), closing_s=0)


def run(test: Callable[[Node], Awaitable[None]], more: str = "", listener: str = "") -> None:
    async def main() -> None:
        async with node(more, listener) as running:
            await test(running)

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0.05))


async def connect(running: Node, http: bool = False) -> trio.SocketStream:
    host, _, port = running.addresses[-1 if http else 0].rpartition(":")
    return await trio.open_tcp_stream(host, int(port))


async def ended(stream: trio.abc.ReceiveStream) -> bytes:
    """What came until the node hung up."""
    found = bytearray()
    try:
        while more := await stream.receive_some():
            found += more
    except trio.BrokenResourceError:
        pass
    return bytes(found)


async def lasts(running: Node, stream: trio.SocketStream, sends: Callable[[], Awaitable[None]]) -> float:
    """For how long the node bears with a peer, in seconds."""
    began = trio.current_time()
    async with trio.open_nursery() as nursery:

        async def send() -> None:
            try:
                await sends()
                await trio.sleep_forever()
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                pass

        nursery.start_soon(send)
        await gone(running)
        nursery.cancel_scope.cancel()
    await trio.aclose_forcefully(stream)
    return trio.current_time() - began


async def gone(running: Node) -> None:
    """Wait until the node has no connection."""
    if running.transports:
        await running._empty.wait()


START_OK = method_frame(0, m.ConnectionStartOk({}, "PLAIN", b"\0guest\0guest", "en_US").encode())
WRONG_091 = method_frame(
    0,
    m.ConnectionStartOk(
        {"capabilities": {"authentication_failure_close": True}}, "PLAIN", b"\0guest\0wrong", "en_US"
    ).encode(),
)
INIT_10 = frame_10(0, p.SaslInit(mechanism="PLAIN", initial_response=b"\0guest\0guest"), kind=SASL)
START_OK_010 = frame_010(c.ConnectionStartOk({}, "PLAIN", b"\0guest\0guest", "en_US").encode())
WRONG_010 = frame_010(c.ConnectionStartOk({}, "PLAIN", b"\0guest\0wrong", "en_US").encode())
HEALTH = b"GET /api/leveret/health HTTP/1.1\r\nHost: localhost\r\n\r\n"
LONG_091 = b"\x01\x00\x00\x00\x00\x1f\x00\x00\x0a\x00\x0b" + b"x" * 4000
LONG_10 = SASL_10 + b"\x00\x00\x1f\x00\x02\x01\x00\x00" + b"x" * 4000

SAID = {
    "nothing": (False, b""),
    "a beginning": (False, b"AM"),
    "0-9-1, header": (False, HEADER_091),
    "0-9-1, half a frame": (False, HEADER_091 + LONG_091),
    "0-9-1, logged in, not opened": (False, HEADER_091 + START_OK),
    "0-9-1, wrong password": (False, HEADER_091 + WRONG_091),
    "1.0, header": (False, SASL_10),
    "1.0, half a frame": (False, LONG_10),
    "1.0, logged in, not opened": (False, SASL_10 + INIT_10 + HEADER_10),
    "0-10, header": (False, HEADER_010),
    "0-10, half a control": (False, HEADER_010 + b"\x0b\x00\x0f\x00" + bytes(8) + b"x" * 2000),
    "0-10, logged in, not opened": (False, HEADER_010 + START_OK_010),
    "0-10, wrong password": (False, HEADER_010 + WRONG_010),
    "http, nothing": (True, b""),
    "http, half a head": (True, b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 4000),
    "http, half a body": (True, b"PUT /api/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nx"),
    "http, answered": (True, HEALTH),
}


@pytest.mark.parametrize("how", SAID)
def test_whoever_has_not_logged_in_is_hung_up_on_ten_seconds_after_the_accept(how: str):
    http, said = SAID[how]

    async def test(running: Node) -> None:
        stream = await connect(running, http)
        took_s = await lasts(running, stream, lambda: stream.send_all(said))
        assert LIMIT_S <= took_s < LIMIT_S + SLACK_S
        assert not len(running.admission.strangers)

    run(test)


DRIPPED = {
    "0-9-1": (False, HEADER_091 + LONG_091),
    "1.0": (False, LONG_10),
    "0-10": (False, HEADER_010 + b"\x0b\x00\x0f\x00" + bytes(8) + b"x" * 2000),
    "http": (True, b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 4000),
}


@pytest.mark.parametrize("how", DRIPPED)
@pytest.mark.parametrize("first", [0.0, 9.0])
def test_octet_by_octet_is_no_way_to_have_more_time(how: str, first: float):
    """Nor is it to begin late."""
    http, said = DRIPPED[how]

    async def test(running: Node) -> None:
        stream = await connect(running, http)

        async def drip() -> None:
            await trio.sleep(first)
            for octet in said:
                await stream.send_all(bytes((octet,)))
                await trio.sleep(0.4)

        assert LIMIT_S <= await lasts(running, stream, drip) < LIMIT_S + SLACK_S

    run(test)


def test_requests_that_need_no_name_are_no_way_to_have_more_time():
    async def test(running: Node) -> None:
        stream = await connect(running, http=True)

        async def ask() -> None:
            while True:
                await stream.send_all(HEALTH)
                await trio.sleep(1)

        assert LIMIT_S <= await lasts(running, stream, ask) < LIMIT_S + SLACK_S

    run(test)


@pytest.mark.parametrize("first", [b"", b"\x16", b"\x16\x03\x01\x02\x00\x01\x00"])
def test_before_and_during_tls_it_is_the_same(pki: Pki, first: bytes):
    from tests.tls.pki import toml

    async def test(running: Node) -> None:
        stream = await connect(running)
        assert LIMIT_S <= await lasts(running, stream, lambda: stream.send_all(first)) < LIMIT_S + SLACK_S

    run(test, listener=f", tls = {toml(pki.settings())}")


def test_time_that_tls_took_is_not_given_again(pki: Pki):
    from tests.tls.pki import toml

    async def test(running: Node) -> None:
        plain = await connect(running)
        secured = trio.SSLStream(plain, pki.trusting(), server_hostname="localhost")

        async def late() -> None:
            await trio.sleep(6)
            await secured.do_handshake()
            await trio.sleep(3)
            await secured.send_all(HEADER_091)

        assert LIMIT_S <= await lasts(running, plain, late) < LIMIT_S + SLACK_S

    run(test, listener=f", tls = {toml(pki.settings())}")


@pytest.mark.parametrize(
    "first", [b"", b"PROXY TCP4 ", PROXIED % b"192.0.2.7", PROXIED % b"192.0.2.7" + HEADER_091]
)
def test_behind_a_proxy_it_is_the_same(first: bytes):
    async def test(running: Node) -> None:
        stream = await connect(running)
        assert LIMIT_S <= await lasts(running, stream, lambda: stream.send_all(first)) < LIMIT_S + SLACK_S

    run(test, listener=", proxy_protocol = true")


def test_whoever_has_logged_in_stays():
    opened = method_frame(0, m.ConnectionTuneOk(2047, 131072, 0).encode()) + method_frame(
        0, m.ConnectionOpen("/").encode()
    )

    async def test(running: Node) -> None:
        amqp, http = await connect(running), await connect(running, http=True)
        await amqp.send_all(HEADER_091 + START_OK + opened)
        basic = base64.b64encode(b"guest:guest")
        await http.send_all(
            b"GET /api/whoami HTTP/1.1\r\nHost: localhost\r\nAuthorization: Basic " + basic + b"\r\n\r\n"
        )
        await trio.sleep(LIMIT_S + 5)
        assert len(running.transports) == 2
        assert not len(running.admission.strangers)
        await amqp.aclose()
        await http.aclose()

    run(test)


def test_a_stranger_that_does_not_read_is_answered_no_further():
    async def test(running: Node) -> None:
        stream = await connect(running, http=True)

        async def ask() -> None:
            await stream.send_all(HEALTH * 100_000)

        assert await lasts(running, stream, ask) < LIMIT_S + SLACK_S

    run(test)


def test_a_body_is_not_read_before_it_is_known_who_sends_it():
    head = b"PUT /api/queues/%2F/q HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n"

    async def test(running: Node) -> None:
        async with await connect(running, http=True) as stream:
            await stream.send_all(head)
            assert (await ended(stream)).startswith(b"HTTP/1.1 401 ")

    run(test)


def test_one_stranger_too_many_ends_the_oldest(caplog: pytest.LogCaptureFixture):
    async def test(running: Node) -> None:
        streams = [await connect(running) for _ in range(3)]
        async with streams[0], streams[1], streams[2]:
            began = trio.current_time()
            assert await ended(streams[0]) == b""
            assert trio.current_time() - began < 1
            await streams[2].send_all(HEADER_091)
            assert await streams[2].receive_some()
            assert len(running.admission.strangers) == 2

    with caplog.at_level(logging.WARNING):
        run(test, "[limits]\nstrangers_max = 2")
    assert "too many connections whose users have not logged in" in caplog.text


def test_too_many_in_a_second_are_hung_up_on():
    async def test(running: Node) -> None:
        streams = [await connect(running) for _ in range(5)]
        assert [await ended(stream) for stream in streams[4:]] == [b""]
        assert running.admission.refused == 1
        await trio.sleep(1)
        last = await connect(running)
        await last.send_all(HEADER_091)
        assert await last.receive_some()
        for stream in (*streams, last):
            await trio.aclose_forcefully(stream)

    run(test, "[limits]\nconnection_rate = 2")


@pytest.mark.parametrize("limit", ["connection_rate_per_address = 1", "strangers_per_address_max = 2"])
def test_addresses_behind_a_proxy_are_counted_by_what_it_says(limit: str):
    async def test(running: Node) -> None:
        streams = [await connect(running) for _ in range(4)]
        for stream, address in zip(streams, (b"192.0.2.7",) * 3 + (b"192.0.2.8",), strict=True):
            await stream.send_all(PROXIED % address + HEADER_091)
            await trio.testing.wait_all_tasks_blocked(0.02)
        assert await ended(streams[2]) == b""
        for stream in (streams[0], streams[1], streams[3]):
            assert await stream.receive_some()
        for stream in streams:
            await trio.aclose_forcefully(stream)

    run(test, f"[limits]\n{limit}", ", proxy_protocol = true")


def test_the_defaults_are_what_the_documentation_says():
    limits = Config().limits
    assert (limits.handshake_timeout_s, limits.strangers_max, limits.strangers_per_address_max) == (
        10,
        4096,
        1024,
    )
    assert (limits.connection_rate, limits.connection_rate_per_address) == (None, 1000)
    assert (limits.login_failures_per_address, limits.login_failures_per_user) == (20, 20)
