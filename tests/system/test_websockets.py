"""Listeners with WebSockets, on a node: beside HTTP, alone, over TLS, and what is refused before a protocol begins."""

from __future__ import annotations

import contextlib
import socket
import ssl
from pathlib import Path

import pytest
import trio.testing
from wsproto import ConnectionType, WSConnection
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Event,
    RejectConnection,
    Request,
    TextMessage,
)

from leveret.config.config import ConfigError
from leveret.server.node.threaded import ThreadedNode, embedded
from tests.server.node.scripted import Scripted, read_all
from tests.tls.pki import Pki

pytestmark = pytest.mark.system

TIMEOUT_S = 60
HEADER = b"AMQP\x00\x00\x09\x01"
START = b"\x01\x00\x00"
SASL = b"AMQP\x03\x01\x00\x00"


def node_with(**settings: object) -> ThreadedNode:
    return ThreadedNode(embedded(settings))


def listener(**settings: object) -> dict[str, object]:
    return {"listeners": [{"address": "127.0.0.1:0", "websocket": True, **settings}]}


class Browser:
    """A client of WebSockets on a connected socket."""

    def __init__(
        self, connected: socket.socket, target: str = "/ws", origin: str = "", protocol: str = "amqp"
    ) -> None:
        self.socket = connected
        self._machine = WSConnection(ConnectionType.CLIENT)
        headers = [(b"Origin", origin.encode())] if origin else []
        self.say(Request(host="localhost", target=target, subprotocols=[protocol], extra_headers=headers))
        self.answer = self.hears()

    def say(self, event: Event) -> None:
        self.socket.sendall(self._machine.send(event))

    def hears(self) -> Event:
        while True:
            for event in self._machine.events():
                return event
            self._machine.receive_data(self.socket.recv(65536) or None)

    def greeted(self, header: bytes = HEADER) -> bytes:
        """The beginning of the answer to a protocol's header."""
        self.say(BytesMessage(header))
        answer = self.hears()
        assert isinstance(answer, BytesMessage)
        return bytes(answer.data)


def dial(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), TIMEOUT_S)


def asked(port: int, target: str) -> bytes:
    with dial(port) as connected:
        connected.sendall(f"GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        return b"".join(iter(lambda: connected.recv(65536), b""))


def test_beside_http_one_path_is_for_websockets():
    with node_with(**listener(protocols=["http"])) as node, dial(node.port) as connected:
        browser = Browser(connected, origin="http://localhost")
        assert isinstance(browser.answer, AcceptConnection)
        assert browser.answer.subprotocol == "amqp"
        assert browser.greeted().startswith(START)
        assert asked(node.port, "/api/leveret/health").startswith(b"HTTP/1.1 200 ")
        assert asked(node.port, "/ws").startswith(b"HTTP/1.1 400 ")
        assert asked(node.port, "/wsx").startswith(b"HTTP/1.1 404 ")


def test_the_control_endpoint_has_them_if_it_is_told_so():
    config = {"http": {"enabled": True, "address": "127.0.0.1:0", "websocket": True}}
    with node_with(**config) as node:
        port = int(node.node.addresses[-1].rpartition(":")[2])
        with dial(port) as connected:
            assert Browser(connected, "/ws/amqp").greeted(SASL).startswith(SASL)
    config["http"]["websocket"] = False
    with node_with(**config) as node:
        assert asked(int(node.node.addresses[-1].rpartition(":")[2]), "/ws").startswith(b"HTTP/1.1 404 ")


def test_a_listener_of_its_own_takes_any_path_and_its_protocols_only():
    with node_with(**listener(protocols=["amqp10"])) as node, dial(node.port) as connected:
        browser = Browser(connected, "/")
        assert browser.greeted(HEADER) == SASL
        close = browser.hears()
        assert isinstance(close, CloseConnection)
        assert close.code == 1000


def test_peers_are_marked_in_the_listing_of_connections():
    with node_with(**listener()) as node, dial(node.port) as connected:
        Browser(connected).greeted()
        ((loopback, websocket),) = node.call(
            lambda: [(each.peer.loopback, each.peer.websocket) for each in node.node.admin.connections()]
        )
        assert (loopback, websocket) == (True, True)
        (listed,) = node.call(lambda: node.node.admin.status()["listeners"])
        assert listed["websocket"] is True


@pytest.mark.parametrize(
    ("origin", "is_let_in"),
    [("http://evil.example", False), ("null", False), ("https://App.example", True), ("", True)],
)
def test_pages_of_other_sites_are_refused_unless_they_are_named(
    origin: str, is_let_in: bool, caplog: pytest.LogCaptureFixture
):
    with (
        node_with(**listener(websocket_origins=["https://app.example"])) as node,
        dial(node.port) as connected,
    ):
        answer = Browser(connected, origin=origin).answer
        assert isinstance(answer, AcceptConnection) is is_let_in
        if not is_let_in:
            assert isinstance(answer, RejectConnection)
            assert answer.status_code == 403
    assert ("may not connect" in caplog.text) is not is_let_in


def test_text_is_refused_with_a_code():
    with node_with(**listener()) as node, dial(node.port) as connected:
        browser = Browser(connected)
        browser.say(TextMessage("AMQP"))
        close = browser.hears()
        assert isinstance(close, CloseConnection)
        assert close.code == 1003


def test_a_client_without_a_websocket_is_refused_there():
    with node_with(**listener()) as node, dial(node.port) as connected:
        connected.sendall(HEADER + b"\r\n\r\n")
        assert connected.recv(65536).startswith(b"HTTP/1.1 400 ")


def test_a_request_that_does_not_end_is_bounded(caplog: pytest.LogCaptureFixture):
    with node_with(**listener()) as node, dial(node.port) as connected:
        connected.sendall(b"GET /ws HTTP/1.1\r\nX: " + b"x" * 20_000)
        with contextlib.suppress(ConnectionResetError):
            assert connected.recv(1) == b""
    assert "more than 8192 bytes" in caplog.text


def test_who_connects_to_http_and_says_nothing_is_not_worth_a_warning(caplog: pytest.LogCaptureFixture):
    with node_with(**listener(protocols=["http"])) as node:
        for said in (b"", b"GET /w"):
            with dial(node.port) as connected:
                connected.sendall(said)
                connected.shutdown(socket.SHUT_WR)
                connected.recv(65536)
    assert not caplog.records


@pytest.mark.parametrize("said", [b"", b"GET /w", b"GET /ws HTTP/1.1\r\nHost: x\r\n"])
def test_a_slow_request_counts_for_the_time_to_log_in(said: bytes):
    async def test() -> None:
        config = embedded(listener(protocols=["script"]))
        async with Scripted(config) as node, await node.connect(said) as stream:
            began = trio.current_time()
            assert await read_all(stream) == b""
            assert 10 <= trio.current_time() - began < 13

    trio.run(test, clock=trio.testing.MockClock(autojump_threshold=0.05))


def test_tls_comes_before_and_the_frames_go_through_it(tmp_path: Path):
    pki = Pki(tmp_path)
    with node_with(**listener(tls=pki.settings())) as node, dial(node.port) as connected:
        context: ssl.SSLContext = pki.trusting()
        with context.wrap_socket(connected, server_hostname="localhost") as secured:
            browser = Browser(secured)
            assert browser.greeted().startswith(START)
            browser.say(CloseConnection(1000))
            assert isinstance(browser.hears(), CloseConnection)


def test_origins_without_websockets_are_a_contradiction():
    with pytest.raises(ConfigError, match="websocket_origins"):
        embedded({"listeners": [{"address": "127.0.0.1:0", "websocket_origins": ["https://a.example"]}]})
    with pytest.raises(ConfigError, match="a site such as"):
        embedded(listener(websocket_origins=["*"]))
