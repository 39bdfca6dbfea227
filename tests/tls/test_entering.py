"""Real loopback connections through TLS and behind proxies: who comes in, who does not, and what the log says."""

from __future__ import annotations

import logging
import socket
import ssl
import struct
from collections.abc import Callable

import pytest
import trio
import trio.testing

from leveret.config.config import Config, parse
from leveret.server.node.tls_socket import TlsSocket
from tests.server.node.scripted import MIB, Script, Scripted, read_all, run, until

from .pki import Pki
from .test_proxied import LOCAL, binary

pytestmark = pytest.mark.system

LINE = b"PROXY TCP4 192.0.2.7 198.51.100.1 40000 5671\r\n"
ELSEWHERE = "192.0.2.7:40000 -> 198.51.100.1:5671"


def settings(**listener: object) -> Config:
    entry = {"address": "127.0.0.1:0", "protocols": ["broken", "script"], **listener}
    return parse({"listeners": [entry], "http": {"enabled": False}})


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    """What was worth a warning so far, without who it was."""
    caplog.set_level(logging.WARNING, "leveret")
    return lambda: [record.getMessage().partition(": ")[2] for record in caplog.records]


@pytest.fixture
def autojump_clock() -> trio.testing.MockClock:
    return trio.testing.MockClock(autojump_threshold=0.05)


async def secured(
    node: Scripted, context: ssl.SSLContext, before: bytes = b""
) -> trio.SSLStream[trio.SocketStream]:
    """A client that has shaken hands; `before` is what its proxy says."""
    plain = await node.connect(before)
    stream = trio.SSLStream(plain, context, server_hostname="localhost", https_compatible=True)
    await stream.do_handshake()
    return stream


async def exactly(stream: trio.abc.ReceiveStream, size: int) -> bytes:
    found = bytearray()
    while len(found) < size:
        found += await stream.receive_some(size - len(found))
    return bytes(found)


async def talked(stream: trio.abc.Stream) -> bytes:
    """The answer to the shortest conversation."""
    await stream.send_all(b"SCRIPTe")
    return await exactly(stream, 4)


# TLS.


def test_bytes_go_in_and_out_and_the_front_end_knows_how(pki: Pki):
    async def test(node: Scripted) -> None:
        async with await secured(node, pki.trusting()) as stream:
            assert await talked(stream) == b"echo"
            facts = Script.last.peer.tls
            assert facts is not None
            assert (facts.version, facts.login) == ("TLSv1.3", None)

    run(test, settings(tls=pki.settings()))


def test_the_front_end_knows_who_the_client_is(pki: Pki):
    async def test(node: Scripted) -> None:
        async with await secured(node, pki.trusting(pki.client())) as stream:
            assert await talked(stream) == b"echo"
            assert Script.last.peer.certified == "shop"

    run(test, settings(tls=pki.asking(login_from="common_name")))


def test_much_is_sent_to_a_peer_that_reads_late_and_counted_in_clear(pki: Pki):
    async def test(node: Scripted) -> None:
        async with await secured(node, pki.trusting()) as stream:
            await stream.send_all(b"SCRIPTss")
            await until(lambda: Script.last.received == b"SCRIPTss")
            outbox = Script.last.outbox
            assert 0 < outbox.size < 32 * MIB
            assert outbox.size + outbox.gone == 32 * MIB
            assert await exactly(stream, 32 * MIB) == b"x" * (32 * MIB)
            assert (outbox.size, outbox.gone) == (0, 32 * MIB)

    run(test, settings(tls=pki.settings()))


def test_much_is_received(pki: Pki):
    async def test(node: Scripted) -> None:
        async with await secured(node, pki.trusting()) as stream:
            await stream.send_all(b"SCRIPT" + b"-" * (8 * MIB) + b"e")
            assert await exactly(stream, 4) == b"echo"
            assert len(Script.last.received) == 8 * MIB + 7
            assert max(Script.last.sizes) > 16_384  # several records: how many, depends on a turn

    run(test, settings(tls=pki.settings()))


def test_last_words_are_read_and_followed_by_a_goodbye(pki: Pki):
    async def test(node: Scripted) -> None:
        plain = await node.connect(b"")
        stream = trio.SSLStream(plain, pki.trusting(), server_hostname="localhost")
        await stream.do_handshake()
        await stream.send_all(b"SCRIPTsf" + b"-" * 100_000)
        assert await read_all(stream) == b"x" * (16 * MIB) + b"bye"  # an end without a goodbye would raise
        assert Script.last.calls == ["lost"]
        await trio.aclose_forcefully(stream)

    run(test, settings(tls=pki.settings()))


def test_a_peer_that_hangs_up_without_a_goodbye_is_forgotten(pki: Pki, log: Callable[[], list[str]]):
    async def test(node: Scripted) -> None:
        stream = await secured(node, pki.trusting())
        assert await talked(stream) == b"echo"
        await trio.aclose_forcefully(stream)
        await until(lambda: Script.last.calls == ["lost"])
        await until(lambda: not node.transports)

    run(test, settings(tls=pki.settings()))
    assert log() == []


def test_octets_that_are_no_records_break_off(pki: Pki, log: Callable[[], list[str]]):
    async def test(node: Scripted) -> None:
        stream = await secured(node, pki.trusting())
        assert await talked(stream) == b"echo"
        await stream.transport_stream.send_all(b"\x17\x03\x03\x00\x20" + b"?" * 32)
        await until(lambda: Script.last.calls == ["lost"])
        await trio.aclose_forcefully(stream)

    run(test, settings(tls=pki.settings()))
    assert log() == ["broken off, TLS: decryption failed or bad record mac"]


SPOKEN = {
    "AMQP": (b"SCRIPT", "script without TLS"),
    "nothing known": (b"?", "an unknown protocol without TLS"),
    "a proxy": (LINE, "a PROXY header"),
}


@pytest.mark.parametrize(("first", "detected"), SPOKEN.values(), ids=SPOKEN)
def test_a_plain_client_on_a_tls_port_is_named_and_left(
    pki: Pki, log: Callable[[], list[str]], first: bytes, detected: str
):
    async def test(node: Scripted) -> None:
        async with await secured(node, pki.trusting()) as other, await node.connect(first) as stream:
            assert await read_all(stream) == b""
            assert await talked(other) == b"echo"

    run(test, settings(tls=pki.settings()))
    assert log() == [f"refused, TLS is spoken here, detected {detected}"]


def test_a_tls_client_on_a_plain_port_is_named(pki: Pki, log: Callable[[], list[str]]):
    async def test(node: Scripted) -> None:
        stream = await node.connect(b"\x16\x03\x01\x02\x00")
        await stream.aclose()

    entry = {"address": "127.0.0.1:0", "protocols": ["http"]}
    run(test, parse({"listeners": [entry], "http": {"enabled": False}}))
    assert log() == ["detected TLS, which is not spoken here"]


REFUSED = {
    "no certificate": (None, "peer did not return a certificate"),
    "another CA": (
        {"trusted": False},
        "certificate verification failed: unable to get local issuer certificate",
    ),
    "expired": ({"expired": True}, "certificate verification failed: certificate has expired"),
}


@pytest.mark.parametrize(("client", "why"), REFUSED.values(), ids=REFUSED)
def test_who_has_no_certificate_in_order_is_told_and_does_not_come_in(
    pki: Pki, log: Callable[[], list[str]], client: dict[str, bool] | None, why: str
):
    certificate = None if client is None else pki.client(**client)

    async def test(node: Scripted) -> None:
        # in TLS 1.3 the client is done before the server
        stream = await secured(node, pki.trusting(certificate))
        with pytest.raises(trio.BrokenResourceError) as raised:
            await stream.receive_some(1)
        assert "alert" in str(raised.value.__cause__).lower()
        await trio.aclose_forcefully(stream)

    run(test, settings(tls=pki.asking()))
    assert log() == [f"refused, no TLS: {why}"]


HELLO = b"\x16\x03\x01"


@pytest.mark.parametrize("said", [b"", HELLO, HELLO + b"\x02\x00\x01\x00\x01\xfc"])
def test_who_does_not_finish_a_handshake_in_time_is_left(
    pki: Pki, autojump_clock: trio.testing.MockClock, log: Callable[[], list[str]], said: bytes
):
    async def test() -> None:
        async with Scripted(settings(tls=pki.settings())) as node, await node.connect(said) as stream:
            began = trio.current_time()
            assert await read_all(stream) == b""
            assert 10 <= trio.current_time() - began < 13

    trio.run(test, clock=autojump_clock)
    assert log() == ["gave up, it said too little in 10 s"]


def test_a_handshake_of_too_many_octets_is_left(pki: Pki, log: Callable[[], list[str]]):
    """A message that says it is long, in records: nothing of it is believed before it is whole."""
    record = HELLO + struct.pack("!H", 1000)

    async def test(node: Scripted) -> None:
        async with await node.connect(b"") as stream:
            await stream.send_all(record + b"\x01\x00\x3f\xff" + bytes(996))
            for _ in range(9):
                await stream.send_all(record + bytes(1000))
            assert await read_all(stream) == b""

    run(test, settings(tls=pki.settings()))
    assert log() == ["refused, a TLS handshake of more than 8192 octets"]


def test_a_peer_that_leaves_during_the_handshake_is_forgotten(pki: Pki, log: Callable[[], list[str]]):
    async def test(node: Scripted) -> None:
        async with await node.connect(HELLO):
            pass
        await until(lambda: not node.transports)

    run(test, settings(tls=pki.settings()))
    assert log() == ["refused, it hung up during the TLS handshake"]


GONE = [
    (0, "it hung up during the TLS handshake"),
    (1, "no TLS: certificate verification failed: unable to get local issuer certificate"),
]


@pytest.mark.parametrize(("answers", "why"), GONE)
def test_a_peer_that_is_gone_before_it_is_answered_is_no_mistake_of_ours(
    pki: Pki, log: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch, answers: int, why: str
):
    """Between its last octets and our answer nothing else runs: the system's word for it comes from here."""
    flush, flushed = TlsSocket.flush, []

    def flush_or_fail(secured: TlsSocket) -> bool:
        flushed.append(secured)
        if len(flushed) > answers:
            raise ConnectionResetError
        return flush(secured)

    async def test(node: Scripted) -> None:
        monkeypatch.setattr(TlsSocket, "flush", flush_or_fail)
        plain = await node.connect(b"")
        stream = trio.SSLStream(plain, pki.trusting(pki.client(trusted=False)), server_hostname="localhost")
        with pytest.raises(trio.BrokenResourceError):
            await talked(stream)
        await trio.aclose_forcefully(stream)
        await until(lambda: not node.transports)

    run(test, settings(tls=pki.asking()))
    assert log() == [f"refused, {why}"]


def test_a_node_ends_though_a_handshake_has_not(pki: Pki):
    async def test(node: Scripted) -> None:
        host, port = node.addresses[0].split(":")
        client.connect((host, int(port)))
        client.send(HELLO)
        await until(lambda: bool(node.transports))

    with socket.socket() as client:
        run(test, settings(tls=pki.settings()))


def test_a_reload_is_for_connections_to_come(pki: Pki, log: Callable[[], list[str]]):
    config = settings(tls=pki.settings())

    async def test(node: Scripted) -> None:
        node.admin._reread = lambda: config
        context = pki.trusting()
        before = await secured(node, context)
        assert node.admin.reload().changed == ()
        pki.serve("localhost", "new.example")
        report = node.admin.reload()
        assert (report.changed, report.refused) == (("listeners[0].tls (new certificate)",), ())
        async with await secured(node, context) as after:
            names = str(after.getpeercert()["subjectAltName"])
            assert "new.example" in names
        (pki.folder / "server.key").unlink()
        assert node.admin.reload().refused == ("listeners[0].tls",)
        async with await secured(node, context) as after:
            assert await talked(after) == b"echo"
        assert await talked(before) == b"echo"
        await trio.aclose_forcefully(before)

    run(test, config)
    assert len(log()) == 1


def test_a_url_and_the_status_say_that_there_is_tls(pki: Pki):
    async def test(node: Scripted) -> None:
        assert node.url.startswith("amqps://guest:guest@127.0.0.1:")
        assert [each["tls"] for each in node.admin.status()["listeners"]] == [True]

    run(test, settings(tls=pki.settings()))


# TLS or not, on one port.


@pytest.mark.parametrize("before", [b"", LINE], ids=["direct", "behind a proxy"])
def test_the_first_byte_says_whether_there_is_tls(pki: Pki, log: Callable[[], list[str]], before: bytes):
    async def test(node: Scripted) -> None:
        async with await secured(node, pki.trusting(pki.client()), before) as stream:
            assert await talked(stream) == b"echo"
            assert Script.last.peer.certified == "shop"
        async with await node.connect(before) as stream:
            assert await talked(stream) == b"echo"
            assert (Script.last.peer.tls, Script.last.peer.certified) == (None, None)
        async with await node.connect(before) as stream:
            for byte in b"SCRIPTe":
                await node.tell(stream, bytes([byte]))
            assert await exactly(stream, 4) == b"echo"
        (listener,) = node.admin.status()["listeners"]
        assert (listener["tls"], listener["plain"]) == (True, True)

    either = pki.asking("optional", required=False, login_from="common_name")
    run(test, settings(tls=either, proxy_protocol=bool(before)))
    assert log() == []


@pytest.mark.parametrize("said", [b"", HELLO, b"SCRIP"], ids=["nothing", "a hello", "half a greeting"])
def test_a_slow_first_byte_counts_for_the_time_to_log_in(
    pki: Pki, autojump_clock: trio.testing.MockClock, said: bytes
):
    async def test() -> None:
        config = settings(tls=pki.settings(required=False))
        async with Scripted(config) as node, await node.connect(said) as stream:
            assert len(node.admission.strangers) == 1
            began = trio.current_time()
            assert await read_all(stream) == b""
            assert 10 <= trio.current_time() - began < 13

    trio.run(test, clock=autojump_clock)


# Proxies.


@pytest.mark.parametrize("header", [LINE, binary("192.0.2.7", "198.51.100.1", 40000, 5671)])
@pytest.mark.parametrize("step", [1, 5, 1000])
def test_the_peer_is_who_the_proxy_says(header: bytes, step: int):
    async def test(node: Scripted) -> None:
        async with await node.connect(b"") as stream:
            octets = header + b"SCRIPT"
            for at in range(0, len(octets), step):
                await node.tell(stream, octets[at : at + step])
            await node.tell(stream, b"e")
            assert (Script.last.received, Script.last.peer.name) == (b"SCRIPTe", ELSEWHERE)
            assert not Script.last.peer.loopback

    run(test, settings(proxy_protocol=True))


def test_a_header_may_be_followed_by_tls(pki: Pki):
    async def test(node: Scripted) -> None:
        async with await secured(node, pki.trusting(), LINE) as stream:
            assert await talked(stream) == b"echo"
            assert Script.last.peer.name == ELSEWHERE
            assert Script.last.peer.tls is not None

    run(test, settings(proxy_protocol=True, tls=pki.settings()))


def test_the_handshake_may_come_together_with_the_header(pki: Pki):
    async def test(node: Scripted) -> None:
        client, server = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = pki.trusting().wrap_bio(client, server, server_hostname="localhost")
        with pytest.raises(ssl.SSLWantReadError):
            tls.do_handshake()
        async with await node.connect(b"") as stream:
            await stream.send_all(LINE + server.read())
            client.write(await stream.receive_some(MIB))
            tls.do_handshake()

    run(test, settings(proxy_protocol=True, tls=pki.settings()))


LOOPBACK = {
    "on the proxy's machine, which is this one": (binary("127.0.0.1", "127.0.0.1", 1, 2), True),
    "elsewhere": (LINE, False),
    "unknown": (b"PROXY UNKNOWN\r\n", False),
    "the proxy itself": (LOCAL, False),
}


@pytest.mark.parametrize(("header", "loopback"), LOOPBACK.values(), ids=LOOPBACK)
def test_nobody_comes_from_this_machine_because_his_proxy_does(header: bytes, loopback: bool):
    async def test(node: Scripted) -> None:
        async with await node.connect(b"") as stream:
            await node.tell(stream, header + b"SCRIPT")
            assert Script.last.peer.loopback is loopback

    run(test, settings(proxy_protocol=True))


WITHOUT = {
    "none": (b"SCRIPT", "no PROXY header"),
    "a malformed one": (b"PROXY TCP4 here there 1 2\r\n", "a PROXY line that is malformed"),
}


@pytest.mark.parametrize(("said", "why"), WITHOUT.values(), ids=WITHOUT)
def test_who_comes_without_a_header_is_left(log: Callable[[], list[str]], said: bytes, why: str):
    async def test(node: Scripted) -> None:
        async with await node.connect(said) as stream:
            assert await read_all(stream) == b""

    run(test, settings(proxy_protocol=True))
    assert log() == [f"refused, {why}"]


def test_half_a_header_is_not_waited_for_without_end(
    autojump_clock: trio.testing.MockClock, log: Callable[[], list[str]]
):
    async def test() -> None:
        async with Scripted(settings(proxy_protocol=True)) as node, await node.connect(LINE[:20]) as stream:
            assert await read_all(stream) == b""

    trio.run(test, clock=autojump_clock)
    assert log() == ["gave up, it said too little in 10 s"]


def test_not_everybody_is_a_proxy(log: Callable[[], list[str]]):
    async def test(node: Scripted) -> None:
        async with await node.connect(b"") as stream:
            assert await read_all(stream) == b""

    run(test, settings(proxy_protocol=True, proxy_from=["192.0.2.0/24", "::1"]))
    assert log() == ["refused, only proxies that proxy_from names may connect here"]


def test_a_header_where_none_is_expected_is_the_protocol_s_affair():
    async def test(node: Scripted) -> None:
        async with await node.connect(LINE):
            assert (Script.last.received, Script.last.peer.host) == (LINE, "127.0.0.1")

    run(test, settings())
