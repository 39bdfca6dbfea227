"""Shovels between two nodes over sockets, with pika at both sides and the management API."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import quote

import pika
import pytest

from tests.interop.conftest import RunningNode, Start, wait_until
from tests.tls.pki import Pki, toml

pytestmark = pytest.mark.interop

HTTP = 'http = { enabled = true, address = "127.0.0.1:0" }\n'
COUNT = 500


class Sent:
    """A node whose API is asked, and its clients."""

    def __init__(self, node: RunningNode) -> None:
        self.node = node
        self.http = next(
            f"{each.host}:{each.port}" for each in node.node.admin.listeners() if "http" in each.protocols
        )

    def ask(self, method: str, path: str, content: object = None) -> object:
        body = None if content is None else json.dumps(content).encode()
        request = urllib.request.Request(f"http://{self.http}/api/{path}", body, method=method)
        request.add_header("Authorization", "Basic Z3Vlc3Q6Z3Vlc3Q=")
        with urllib.request.urlopen(request) as answer:
            text = answer.read()
        return json.loads(text) if text else None

    def shovel(self, **said: object) -> None:
        value = {key.replace("_", "-"): item for key, item in said.items()}
        self.ask("PUT", "parameters/shovel/%2F/s", {"value": value})

    def state(self) -> dict[str, object]:
        found = self.ask("GET", "shovels/%2F/s")
        assert isinstance(found, dict)
        return found


def publish(node: RunningNode, queue: str, first: int, count: int) -> None:
    with pika.BlockingConnection(pika.URLParameters(node.url)) as connection:
        channel = connection.channel()
        channel.queue_declare(queue, durable=True)
        for number in range(first, first + count):
            channel.basic_publish("", queue, b"%d" % number, pika.BasicProperties(headers={"n": number}))


def taken(node: RunningNode, queue: str) -> list[bytes]:
    with pika.BlockingConnection(pika.URLParameters(node.url)) as connection:
        channel = connection.channel()
        found = []
        while (got := channel.basic_get(queue, auto_ack=True))[0] is not None:
            assert got[1].headers["n"] == int(got[2])
            found.append(got[2])
        return found


@pytest.mark.parametrize("direction", ["out", "in"])
def test_messages_move_between_nodes_over_a_break(node_with: Start, direction: str) -> None:
    here, there = node_with(HTTP), node_with()
    sent = Sent(here)
    source, target = (here, there) if direction == "out" else (there, here)
    publish(source, "from", 0, COUNT)
    far = {"dest_uri" if direction == "out" else "src_uri": there.url}
    near = {"src_uri" if direction == "out" else "dest_uri": "amqp://"}
    sent.shovel(**far, **near, src_queue="from", dest_queue="to", reconnect_delay=0.05)
    wait_until(lambda: target.ready("to") == COUNT, "all of them")
    assert sent.state()["state"] == "running"
    there.close_connections()
    publish(source, "from", COUNT, COUNT)
    wait_until(lambda: target.ready("to") >= 2 * COUNT, "the others")
    wait_until(lambda: source.ready("from") + source.unsettled("from") == 0, "the source to be empty")
    assert sorted({int(body) for body in taken(target, "to")}) == list(range(2 * COUNT))
    state = json.dumps([sent.state(), sent.ask("GET", "parameters"), sent.ask("GET", "definitions")])
    assert "guest:guest" not in state
    assert "guest:***@" in state
    asked = json.dumps(sent.ask("GET", "definitions?secrets=true"))
    assert "guest:guest@" in asked
    sent.ask("DELETE", "shovels/vhost/%2F/s")
    wait_until(lambda: there.clients() == 0, "the connection to be closed")


@pytest.mark.parametrize("mode", ["on-confirm", "on-publish", "no-ack"])
@pytest.mark.parametrize("direction", ["out", "in"])
def test_messages_move_between_nodes_over_amqp_1_0(node_with: Start, direction: str, mode: str) -> None:
    here, there = node_with(HTTP), node_with()
    sent = Sent(here)
    source, target = (here, there) if direction == "out" else (there, here)
    publish(source, "from", 0, COUNT)
    target.declare("to", durable=True)
    near, far = ("src", "dest") if direction == "out" else ("dest", "src")
    queues = {"src": "from", "dest": "to"}
    sent.shovel(
        **{f"{near}_uri": "amqp://", f"{near}_queue": queues[near]},
        **{f"{far}_protocol": "amqp10", f"{far}_uri": there.url, f"{far}_address": f"/queues/{queues[far]}"},
        reconnect_delay=0.05,
        ack_mode=mode,
    )
    wait_until(lambda: target.ready("to") == COUNT, "all of them")
    state = sent.state()
    assert (state["state"], state[f"{far}_protocol"]) == ("running", "amqp10")
    assert state[f"{far}_address"] == f"/queues/{queues[far]}"
    there.close_connections()
    publish(source, "from", COUNT, COUNT)
    wait_until(lambda: target.ready("to") >= 2 * COUNT, "the others")
    wait_until(lambda: source.ready("from") + source.unsettled("from") == 0, "the source to be empty")
    assert sorted({int(body) for body in taken(target, "to")}) == list(range(2 * COUNT))
    sent.ask("DELETE", "shovels/vhost/%2F/s")
    wait_until(lambda: there.clients() == 0, "the connection to be closed")


def test_a_shovel_of_1_0_goes_over_tls(node_with: Start, tmp_path: Path) -> None:
    pki = Pki(tmp_path)
    there = node_with(f'listeners = [{{ address = "127.0.0.1:0", tls = {toml(pki.settings())} }}]\n')
    here = node_with(HTTP)
    sent = Sent(here)
    publish(here, "from", 0, 3)
    there.declare("to", durable=True)
    port = there.node.addresses[0].rpartition(":")[2]
    known = f"amqps://guest:guest@localhost:{port}?cacertfile={quote(str(pki.ca), safe='')}"
    to = {"dest_protocol": "amqp10", "dest_uri": known, "dest_address": "/queues/to"}
    sent.shovel(src_uri="amqp://", src_queue="from", **to)
    wait_until(lambda: there.ready("to") == 3, "all of them")


def test_a_shovel_goes_over_tls_to_a_node_whose_certificate_it_knows(
    node_with: Start, tmp_path: Path
) -> None:
    pki = Pki(tmp_path)
    there = node_with(f'listeners = [{{ address = "127.0.0.1:0", tls = {toml(pki.settings())} }}]\n')
    here = node_with(HTTP)
    sent = Sent(here)
    publish(here, "from", 0, 3)
    port = there.node.addresses[0].rpartition(":")[2]
    uri = f"amqps://guest:guest@localhost:{port}"
    sent.shovel(src_uri="amqp://", src_queue="from", dest_uri=uri, dest_queue="to", reconnect_delay=0.05)
    wait_until(lambda: "certificate verification failed" in str(sent.state().get("reason")), "a refusal")
    known = f"{uri}?cacertfile={quote(str(pki.ca), safe='')}"
    sent.shovel(src_uri="amqp://", src_queue="from", dest_uri=known, dest_queue="to", reconnect_delay=0.05)
    wait_until(lambda: there.ready("to") == 3, "all of them")


def test_a_node_that_is_not_there_is_told(node_with: Start) -> None:
    sent = Sent(node_with(HTTP))
    sent.shovel(
        src_uri="amqp://", src_queue="from", dest_uri="amqp://guest:guest@127.0.0.1:1", dest_queue="to"
    )
    wait_until(lambda: sent.state()["state"] == "terminated", "a failure")
    assert sent.state()["reason"] == "amqp://guest:***@127.0.0.1:1: cannot connect: Connection refused"


def test_a_wrong_shovel_is_refused_with_the_reason(node_with: Start) -> None:
    sent = Sent(node_with(HTTP))
    with pytest.raises(urllib.error.HTTPError) as refused:
        sent.shovel(src_uri="amqp://", src_qeue="from")
    assert refused.value.code == 400
    assert b"did you mean 'src-queue'?" in refused.value.read()
