"""MQTT over TCP and WebSocket, through a node's sockets (sections 4.2 and 6)."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest
from wsproto.events import AcceptConnection, BytesMessage, CloseConnection, TextMessage

from leveret.protocols.mqtt.codec import packets as p
from leveret.server.node.threaded import ThreadedNode, embedded
from tests.mqtt.over_socket import PATIENCE_S, SocketClient
from tests.mqtt.test_m01_packets import both_versions
from tests.system.test_websockets import Browser

SERVED = {
    "listeners": [
        {"address": "127.0.0.1:0", "protocols": ["mqtt"]},
        {"address": "127.0.0.1:0", "protocols": ["mqtt"], "websocket": True},
    ]
}


@pytest.fixture(scope="module")
def addresses() -> Iterator[list[str]]:
    with ThreadedNode(embedded(SERVED)) as node:
        yield list(node.node.addresses)


@pytest.fixture
def browser(addresses: list[str]) -> Iterator[Browser]:
    host, port = addresses[1].rsplit(":", 1)
    with socket.create_connection((host, int(port)), PATIENCE_S) as connected:
        yield Browser(connected, "/mqtt", protocol="mqtt")


def connect(version: int) -> bytes:
    return p.Connect(version, "page", user_name="guest", password=b"guest").encode()


@both_versions
def test_m114_packets_go_over_tcp_and_in_binary_frames(
    addresses: list[str], browser: Browser, version: int
) -> None:
    with SocketClient(addresses[0], version) as client:
        assert client.connect().reason_code == 0
    assert browser.greeted(connect(version))[::3][:2] == b"\x20\0"


@both_versions
def test_m114_text_ends_a_websocket(browser: Browser, version: int) -> None:
    assert browser.greeted(connect(version))[0] == 0x20
    browser.say(TextMessage("hello"))
    event = browser.hears()
    assert isinstance(event, CloseConnection)
    assert event.code == 1003


@both_versions
def test_m115_frames_have_parts_of_packets_or_several(browser: Browser, version: int) -> None:
    said = connect(version)
    for at in range(len(said) - 1):
        browser.say(BytesMessage(said[at : at + 1]))
    assert browser.greeted(said[-1:])[0] == 0x20
    pings = p.PingReq().encode(version) * 3
    found = browser.greeted(pings + p.PingReq().encode(version)[:1])
    while len(found) < 6:
        event = browser.hears()
        assert isinstance(event, BytesMessage)
        found += bytes(event.data)
    assert found == p.PingResp().encode(version) * 3


def test_m116_the_subprotocol_is_mqtt(browser: Browser) -> None:
    assert isinstance(browser.answer, AcceptConnection)
    assert browser.answer.subprotocol == "mqtt"
