"""Deliveries that are late, and that are renewed, with clients over real sockets (X028)."""

from __future__ import annotations

import base64
import json
import urllib.request
from urllib.parse import quote

import pika
import pytest
from proton import Delivery, Timeout
from proton.utils import BlockingConnection

from tests.harness.seldom import elsewhere
from tests.interop.conftest import RunningNode, Start, wait_until
from tests.interop.proton_peer import connect, data

pytestmark = pytest.mark.interop

BASIC = {"Authorization": "Basic " + base64.b64encode(b"guest:guest").decode()}
SHORT = {"x-consumer-timeout": 1000}


def opened(node: RunningNode) -> pika.BlockingConnection:
    return pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", node.port))


def held(
    node: RunningNode,
) -> tuple[pika.BlockingConnection, pika.adapters.blocking_connection.BlockingChannel]:
    connection = opened(node)
    channel = connection.channel()
    channel.queue_declare("jobs", arguments=SHORT)
    channel.basic_publish("", "jobs", b"work")
    channel.basic_qos(prefetch_count=1)
    return connection, channel


def test_pika_a_crashed_workers_message_returns_and_its_late_ack_harms_nobody(node: RunningNode) -> None:
    connection, channel = held(node)
    method, _, body = next(channel.consume("jobs"))
    wait_until(lambda: node.ready("jobs") == 1, "the late message is back")
    other = opened(node)
    again, _, same = other.channel().basic_get("jobs", auto_ack=True)
    assert (body, same, again.redelivered) == (b"work", b"work", True)
    channel.basic_ack(method.delivery_tag)
    channel.basic_publish("", "jobs", b"more")  # the channel works, and has its prefetch back
    assert next(channel.consume("jobs"))[2] == b"more"
    other.close()
    connection.close()


def test_pika_a_job_longer_than_its_timeout_survives_with_renewals(node: RunningNode) -> None:
    connection, channel = held(node)
    channel.confirm_delivery()
    method, _, _ = next(channel.consume("jobs"))
    for _ in range(10):
        connection.sleep(0.3)
        channel.basic_publish("amq.leveret.renew", str(method.delivery_tag), b"", mandatory=True)
    assert (node.ready("jobs"), node.unsettled("jobs")) == (0, 1)
    channel.basic_ack(method.delivery_tag)
    with pytest.raises(pika.exceptions.UnroutableError):
        channel.basic_publish("amq.leveret.renew", str(method.delivery_tag), b"", mandatory=True)
    wait_until(lambda: node.unsettled("jobs") == node.ready("jobs") == 0, "the job is done")
    connection.close()


def test_pika_a_job_is_renewed_over_http(node_with: Start) -> None:
    node = node_with('[http]\nenabled = true\naddress = "127.0.0.1:0"\n')
    address = node.call(lambda: node.node.addresses[-1])
    connection, channel = held(node)
    method, _, _ = next(channel.consume("jobs"))
    host, port = connection._impl._transport._sock.getsockname()[:2]
    name = f"{host}:{port} -> 127.0.0.1:{node.port} (1)"
    path = f"/api/leveret/channels/{quote(name, safe='')}/deliveries/{method.delivery_tag}/renew"
    for _ in range(6):
        connection.sleep(0.4)
        request = urllib.request.Request(f"http://{address}{path}", method="PUT", headers=BASIC)
        with urllib.request.urlopen(request) as answer:
            assert json.load(answer) == {"renewed": 1}
    assert node.unsettled("jobs") == 1
    channel.basic_ack(method.delivery_tag)
    wait_until(lambda: node.unsettled("jobs") == node.ready("jobs") == 0, "the job is done")
    connection.close()


@elsewhere
def test_proton_received_renews_and_without_it_the_message_goes_back(node: RunningNode) -> None:
    node.declare("jobs", arguments=dict(SHORT))
    connection: BlockingConnection = connect(node)
    connection.create_sender("/queues/jobs").send(data(b"work"))
    receiver = connection.create_receiver("/queues/jobs", credit=1)
    receiver.receive()
    delivery = receiver.fetcher.unsettled[-1]
    for _ in range(10):
        with pytest.raises(Timeout):
            connection.wait(lambda: False, timeout=0.3)
        delivery.update(Delivery.RECEIVED)
    assert node.unsettled("jobs") == 1
    connection.wait(lambda: node.ready("jobs") == 1, timeout=60)
    connection.wait(lambda: delivery.settled, timeout=60)  # the broker says that it has taken it back
    assert delivery.remote_state == Delivery.MODIFIED
    connection.close()


@pytest.mark.parametrize("type_", ["classic", "quorum"])
def test_pika_a_worker_that_waits_takes_over_from_one_that_hangs(node: RunningNode, type_: str) -> None:
    connections = [opened(node), opened(node)]
    hangs, waits = (each.channel() for each in connections)
    single = {**SHORT, "x-single-active-consumer": True, "x-queue-type": type_}
    hangs.queue_declare("jobs", durable=True, arguments=single)
    for channel in (hangs, waits):
        channel.basic_qos(prefetch_count=1)
    hangs.basic_publish("", "jobs", b"work")
    assert next(hangs.consume("jobs"))[2] == b"work"
    method, _, body = next(waits.consume("jobs", inactivity_timeout=10))
    assert (body, method.redelivered) == (b"work", True)
    waits.basic_ack(method.delivery_tag)
    for each in connections:
        each.close()


def test_pika_an_exclusive_worker_that_hangs_is_cancelled(node: RunningNode) -> None:
    connection, channel = held(node)
    cancelled: list[object] = []
    channel.add_on_cancel_callback(cancelled.append)
    channel.basic_consume("jobs", lambda *_: None, exclusive=True)
    while not cancelled:
        connection.process_data_events(time_limit=1)
    other = opened(node)
    assert next(other.channel().consume("jobs", exclusive=True))[2] == b"work"
    other.close()
    connection.close()


def test_proton_what_is_undeliverable_here_goes_to_the_other_receiver(node: RunningNode) -> None:
    node.declare("q")
    first, second = connect(node), connect(node)
    first.create_sender("/queues/q").send(data(b"work"))
    here = first.create_receiver("/queues/q", credit=5)
    message = here.receive(timeout=10)
    here.fetcher.unsettled[-1].local.undeliverable = True
    here.settle(Delivery.MODIFIED)
    first.create_sender("/queues/q", name="next")  # the outcome, to which there is no answer, is written too
    wait_until(lambda: node.ready("q") == 1, "the message is back")
    there = second.create_receiver("/queues/q", credit=1)
    assert bytes(there.receive(timeout=10).body) == bytes(message.body) == b"work"
    there.accept()
    for each in (first, second):
        each.close()
