"""Real clients whose passwords an HTTP server checks."""

from __future__ import annotations

import base64
import urllib.error
import urllib.request
from collections.abc import Iterator
from http import HTTPStatus

import pika
import pika.exceptions
import pytest
from proton import ConnectionException
from proton.utils import BlockingConnection

from tests.harness.web import Seen, WebServer
from tests.interop.conftest import RunningNode, Start

pytestmark = pytest.mark.interop

PASSWORDS = {"shop": ("hush-shop", b"allow management"), "stranger": ("hush-stranger", b"allow")}


def answer(seen: Seen) -> bytes | int:
    if seen.fields["username"] == "broken":
        return int(HTTPStatus.INTERNAL_SERVER_ERROR)
    password, allowed = PASSWORDS.get(seen.fields["username"], ("", b""))
    return allowed if password and seen.fields["password"] == password else b"deny"


@pytest.fixture
def server() -> Iterator[WebServer]:
    with WebServer({"/user": answer}) as found:
        yield found


@pytest.fixture
def node(server: WebServer, node_with: Start) -> RunningNode:
    return node_with(
        f'[security]\nbackends = ["internal", "http"]\n[auth_http]\nuser_path = "{server.url}/user"\n'
        '[http]\nenabled = true\naddress = "127.0.0.1:0"\n'
        '[[users]]\nname = "guest"\npassword = "guest"\ntags = ["administrator"]\n'
        'permissions = { "/" = { configure = ".*", write = ".*", read = ".*" } }\n'
        '[[users]]\nname = "shop"\npermissions = { "/" = { configure = "^mine$", write = "", read = "" } }\n'
    )


def over_pika(node: RunningNode, name: str, password: str) -> pika.BlockingConnection:
    parameters = pika.URLParameters(node.url)
    parameters.credentials = pika.PlainCredentials(name, password)
    return pika.BlockingConnection(parameters)


def over_proton(node: RunningNode, name: str, password: str) -> BlockingConnection:
    url = node.url.replace("guest:guest@", "").removesuffix("/%2F")
    return BlockingConnection(url, user=name, password=password, allowed_mechs="PLAIN", timeout=60)


def test_the_server_says_whose_password_is_right_and_the_node_what_they_may(
    node: RunningNode, server: WebServer, caplog: pytest.LogCaptureFixture
):
    over_pika(node, "guest", "guest").close()
    assert server.asked == []
    connection = over_pika(node, "shop", "hush-shop")
    channel = connection.channel()
    channel.queue_declare("mine")
    with pytest.raises(pika.exceptions.ChannelClosedByBroker, match="refused for user 'shop'"):
        channel.queue_declare("theirs")
    connection.close()
    over_proton(node, "shop", "hush-shop").close()
    assert len(server.asked) == 1, "the answer is remembered"
    for name in ("shop", "broken"):
        with pytest.raises(pika.exceptions.ProbableAuthenticationError):
            over_pika(node, name, "hush-wrong")
        with pytest.raises(ConnectionException):
            over_proton(node, name, "hush-wrong")
    with pytest.raises(pika.exceptions.ProbableAccessDeniedError):
        over_pika(node, "stranger", "hush-stranger")
    assert "no answer from the server: the status is 500" in caplog.text
    assert "hush-" not in caplog.text


def test_over_http_the_tags_are_those_that_the_server_says(node: RunningNode):
    def status(name: str, password: str, path: str) -> int:
        encoded = base64.b64encode(f"{name}:{password}".encode()).decode()
        url = f"http://{node.node.addresses[-1]}{path}"
        asked = urllib.request.Request(url, headers={"Authorization": f"Basic {encoded}"})
        try:
            with urllib.request.urlopen(asked) as found:
                return int(found.status)
        except urllib.error.HTTPError as refused:
            return refused.code

    assert status("shop", "hush-shop", "/api/overview") == HTTPStatus.OK
    assert status("shop", "hush-shop", "/api/users") == HTTPStatus.UNAUTHORIZED
    assert status("shop", "hush-wrong", "/api/overview") == HTTPStatus.UNAUTHORIZED
