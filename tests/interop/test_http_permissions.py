"""Real clients whose permissions an HTTP server decides about, and what goes on while it is asked."""

from __future__ import annotations

import base64
import json
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from http import HTTPStatus
from typing import Final

import pika
import pika.exceptions
import pytest
from proton import Message
from proton.utils import BlockingConnection, LinkDetached

from tests.amqp010.client import SessionEnded
from tests.amqp010.over_socket import SocketClient
from tests.harness.web import Seen, WebServer
from tests.interop.conftest import TIMEOUT_S, RunningNode, Start, wait_until

pytestmark = pytest.mark.interop

MINE: Final = ("mine", "amq.default", "amq.topic", "amq.fanout")


class Server(WebServer):
    """It lets everybody in who knows the password, to `/` only, and there to what is in MINE, and to keys `eu.*`."""

    def __init__(self) -> None:
        super().__init__(
            {
                "/user": lambda seen: (
                    b"allow administrator" if seen.fields["password"] == "hush" else b"deny"
                ),
                "/vhost": lambda seen: self.answer(seen, seen.fields["vhost"] == "/"),
                "/resource": lambda seen: self.answer(seen, seen.fields["name"] in MINE),
                "/topic": lambda seen: self.answer(seen, seen.fields["routing_key"].startswith("eu.")),
            }
        )
        self.answers = threading.Event()  # set: it answers
        self.answers.set()
        self.away = False

    def answer(self, seen: Seen, allowed: bool) -> bytes | int:
        self.answers.wait(TIMEOUT_S)
        if self.away:
            return int(HTTPStatus.SERVICE_UNAVAILABLE)
        return b"allow" if allowed else b"deny"

    def asked_about(self, name: str) -> list[tuple[str, str]]:
        found = [each.fields for each in self.asked_for("/resource") if each.fields["name"] == name]
        return [(fields["resource"], fields["permission"]) for fields in found]


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as found:
        yield found
        found.answers.set()


def settings(server: Server, more: str = "") -> str:
    paths = "\n".join(
        f'{each}_path = "{server.url}/{each}"' for each in ("user", "vhost", "resource", "topic")
    )
    return (
        f'[security]\nbackends = ["internal", "http"]\n[auth_http]\n{paths}\n{more}\n'
        '[http]\nenabled = true\naddress = "127.0.0.1:0"\n'
        '[[virtual_hosts]]\nname = "/"\n[[virtual_hosts]]\nname = "other"\n'
        '[[users]]\nname = "guest"\npassword = "guest"\ntags = ["administrator"]\n'
        'permissions = { "/" = { configure = ".*", write = ".*", read = ".*" } }\n'
    )


@pytest.fixture
def node(server: Server, node_with: Start) -> RunningNode:
    return node_with(settings(server))


def over_pika(node: RunningNode, name: str = "shop", host: str = "/") -> pika.BlockingConnection:
    parameters = pika.URLParameters(node.url)
    parameters.credentials = pika.PlainCredentials(name, "guest" if name == "guest" else "hush")
    parameters.virtual_host = host
    return pika.BlockingConnection(parameters)


def over_proton(node: RunningNode) -> BlockingConnection:
    url = node.url.replace("guest:guest@", "").removesuffix("/%2F")
    return BlockingConnection(url, user="shop", password="hush", allowed_mechs="PLAIN", timeout=60)


def over_http(node: RunningNode, path: str, method: str = "GET", body: object = None) -> tuple[int, object]:
    asked = urllib.request.Request(f"http://{node.node.addresses[-1]}{path}", method=method)
    asked.add_header("Authorization", "Basic " + base64.b64encode(b"shop:hush").decode())
    asked.data = None if body is None else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(asked) as found:
            octets = found.read()
            return found.status, json.loads(octets) if octets else None
    except urllib.error.HTTPError as refused:
        return refused.code, None


def refusal(connection: pika.BlockingConnection, *step: object) -> str:
    name, *arguments = step
    with pytest.raises(pika.exceptions.ChannelClosedByBroker) as refused:
        getattr(connection.channel(), str(name))(*arguments)
    return refused.value.reply_text


def test_the_server_decides_what_pika_may_do(node: RunningNode, server: Server):
    connection = over_pika(node)
    [entered] = server.asked_for("/vhost")
    assert entered.fields == {"username": "shop", "vhost": "/", "ip": "127.0.0.1"}
    channel = connection.channel()
    channel.confirm_delivery()
    channel.queue_declare("mine")
    channel.queue_bind("mine", "amq.topic", "eu.#")
    for number in range(100):
        channel.basic_publish("amq.topic", "eu.fr", str(number).encode())
    assert sum(1 for _ in zip(range(100), channel.consume("mine", auto_ack=True), strict=False)) == 100
    channel.cancel()
    assert server.asked_about("mine") == [("queue", "configure"), ("queue", "write"), ("queue", "read")]
    assert server.asked_about("amq.topic") == [("exchange", "read"), ("exchange", "write")]
    topics = [(each.fields["permission"], each.fields["routing_key"]) for each in server.asked_for("/topic")]
    assert topics == [("read", "eu.#"), ("write", "eu.fr")], "one question for a hundred messages"

    assert refusal(connection, "queue_declare", "theirs").startswith("ACCESS_REFUSED - configure access")
    assert refusal(connection, "queue_bind", "mine", "amq.topic", "us.#").startswith("ACCESS_REFUSED")
    assert refusal(connection, "queue_declare", "").startswith("ACCESS_REFUSED - configure access")
    connection.close()
    with pytest.raises(pika.exceptions.ProbableAccessDeniedError):
        over_pika(node, host="other")


def test_the_server_decides_what_proton_may_do(node: RunningNode, server: Server):
    node.declare("mine")
    node.declare("theirs")
    connection = over_proton(node)
    sender = connection.create_sender("/queues/mine")
    for number in range(3):
        sender.send(Message(body=number))
    receiver = connection.create_receiver("/queues/mine")
    assert [receiver.receive().body for _ in range(3)] == [0, 1, 2]
    assert server.asked_about("mine") == [("queue", "read")]
    bound = over_pika(node, "guest")
    bound.channel().queue_bind("mine", "amq.topic", "#")
    bound.close()
    anonymous = connection.create_sender(None)
    anonymous.send(Message(address="/exchanges/amq.topic/eu.fr", body="1"))
    with pytest.raises(LinkDetached, match="read access to queue 'theirs'"):
        connection.create_receiver("/queues/theirs")
    connection.close()


def test_the_server_decides_what_is_done_over_0_10(node_with: Start, server: Server):
    node = node_with(settings(server) + "[protocols.amqp010]\nenabled = true\n")
    with SocketClient(f"{node.host}:{node.port}") as client:
        session = client.open("shop", "hush").attach()
        session.declare("mine")
        for number in range(3):
            session.publish("mine", b"%d" % number)
        inbox = session.subscribe("mine")
        assert [inbox.get().body for _ in range(3)] == [b"0", b"1", b"2"]
        assert server.asked_about("mine") == [("queue", "configure"), ("queue", "read")]
        assert server.asked_about("amq.default") == [("exchange", "write")]
        with pytest.raises(SessionEnded, match="configure access to queue 'theirs'"):
            session.declare("theirs")


def test_what_comes_behind_a_question_is_kept_in_order(node: RunningNode, server: Server):
    """Publishes to three exchanges: the input stands still at each, and what comes meanwhile is kept."""
    connection = over_pika(node)
    channel = connection.channel()
    channel.queue_declare("mine")
    channel.queue_bind("mine", "amq.fanout")
    server.answers.clear()
    for number in range(300):
        exchange, key = (("", "mine"), ("amq.fanout", ""), ("amq.topic", "eu.x"))[number % 3]
        channel.basic_publish(exchange, key, b"%d" % number)
    server.answers.set()
    taken = zip(range(200), channel.consume("mine", auto_ack=True), strict=False)
    assert [body for _, (_, _, body) in taken] == [b"%d" % each for each in range(300) if each % 3 < 2]
    connection.close()


def test_the_server_decides_what_is_done_over_http(node: RunningNode, server: Server):
    assert over_http(node, "/api/queues/%2F/mine", "PUT", {})[0] == HTTPStatus.CREATED
    assert over_http(node, "/api/queues/%2F/theirs", "PUT", {})[0] == HTTPStatus.UNAUTHORIZED
    sent = {"properties": {}, "routing_key": "mine", "payload": "x", "payload_encoding": "string"}
    published = over_http(node, "/api/exchanges/%2F/amq.default/publish", "POST", sent)
    assert published == (HTTPStatus.OK, {"routed": True})
    assert server.asked_about("amq.default") == [("exchange", "write")]


def test_while_the_server_thinks_others_go_on(node: RunningNode, server: Server):
    connection = over_pika(node)
    channel = connection.channel()
    channel.queue_declare("mine")
    server.answers.clear()
    declaring = threading.Thread(target=channel.exchange_declare, args=("mine", "fanout"))
    declaring.start()
    wait_until(lambda: ("exchange", "configure") in server.asked_about("mine"), "the server is asked")
    others = over_pika(node, "guest")
    other = others.channel()
    other.confirm_delivery()
    other.basic_publish("", "mine", b"meanwhile")
    assert other.basic_get("mine", auto_ack=True)[2] == b"meanwhile"
    assert declaring.is_alive()
    server.answers.set()
    declaring.join(TIMEOUT_S)
    assert "mine" in node.call(lambda: node.node.broker.virtual_hosts["/"].exchanges)
    connection.close()
    others.close()


def test_a_client_that_goes_while_the_server_thinks_leaves_nothing(node: RunningNode, server: Server):
    connection = over_pika(node)
    channel = connection.channel()
    server.answers.clear()
    channel.basic_publish("amq.fanout", "", b"x")
    channel._impl._send_method(pika.spec.Queue.Declare(queue="mine"))
    connection._flush_output()
    wait_until(lambda: server.asked_about("amq.fanout") != [], "the server is asked")
    connection._impl._transport._sock.shutdown(socket.SHUT_RDWR)
    wait_until(lambda: node.clients() == 0, "the connection has ended")
    server.answers.set()
    with pytest.raises(pika.exceptions.AMQPError):
        connection.process_data_events(1)
    over_pika(node, "guest").close()
    assert node.queue_names() == []


def test_an_operator_closes_a_connection_that_waits_for_the_server(node: RunningNode, server: Server):
    connection = over_pika(node)
    server.answers.clear()
    channel = connection.channel()
    closing = threading.Timer(
        0, lambda: wait_until(lambda: server.asked_about("mine") != [], "") or closes(node)
    )
    closing.start()
    with pytest.raises(pika.exceptions.AMQPError):
        channel.queue_declare("mine")
    closing.join(TIMEOUT_S)
    wait_until(lambda: node.clients() == 0, "the connection has ended")
    server.answers.set()
    assert node.queue_names() == []


def closes(node: RunningNode) -> None:
    node.close_connections()


def test_without_an_answer_nothing_is_allowed(
    node: RunningNode, server: Server, caplog: pytest.LogCaptureFixture
):
    connection = over_pika(node)
    server.away = True
    assert refusal(connection, "queue_declare", "mine").startswith("ACCESS_REFUSED - configure access")
    server.away = False
    connection.channel().queue_declare("mine")
    connection.close()
    assert (
        "refused, as there is no answer from the server: has user 'shop' configure access to queue 'mine' "
        "in vhost '/': the status is 503"
    ) in caplog.text
    assert "hush" not in caplog.text


def test_answers_are_remembered_until_an_operator_has_them_forgotten(node: RunningNode, server: Server):
    declares(node)
    declares(node)
    assert len(server.asked_about("mine")) == 1
    status, forgotten = over_http(node, "/api/leveret/logins", "DELETE")
    assert (status, forgotten) == (HTTPStatus.OK, {"passwords": 0, "http_users": 1, "http_permissions": 2})
    declares(node)
    assert len(server.asked_about("mine")) == 2


def test_of_the_accounts_here_the_server_is_not_asked(node: RunningNode, server: Server):
    connection = over_pika(node, "guest")
    connection.channel().queue_declare("theirs")
    connection.close()
    assert server.asked == []


def declares(node: RunningNode) -> None:
    connection = over_pika(node)
    connection.channel().queue_declare("mine")
    connection.close()
