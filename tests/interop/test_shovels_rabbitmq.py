"""Shovels over AMQP 1.0 from and to a RabbitMQ, whose addresses are those of its plug-in: what it refuses stays."""

from __future__ import annotations

from collections.abc import Iterator

import pika
import pytest

from tests.interop.conftest import RunningNode, Start, wait_until
from tests.interop.rabbitmq import IS_THERE, RabbitMq
from tests.interop.test_shovels import COUNT, HTTP, Sent, publish, taken

# Not marked as `interop`: there it would have to run wherever CI does.
pytestmark = pytest.mark.skipif(
    not IS_THERE, reason="`make rabbitmq` runs this, where rabbitmq-server is installed"
)


@pytest.fixture
def leveret(node_with: Start) -> RunningNode:
    return node_with(HTTP)


@pytest.fixture(scope="module")
def rabbit(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RabbitMq]:
    queues = [
        {"name": name, "vhost": "/", "durable": True, "auto_delete": False, "arguments": arguments}
        for name, arguments in (
            ("from", {}),
            ("to", {}),
            ("full", {"x-max-length": 1, "x-overflow": "reject-publish"}),
        )
    ]
    rabbit = RabbitMq(tmp_path_factory.mktemp("rabbit"), ["rabbitmq_amqp1_0"], {"queues": queues})
    try:
        rabbit.wait()
        yield rabbit
    finally:
        rabbit.stop()


def count(rabbit: RabbitMq, queue: str) -> int:
    with pika.BlockingConnection(pika.URLParameters(rabbit.url)) as connection:
        return int(connection.channel().queue_declare(queue, passive=True).method.message_count)


@pytest.mark.parametrize("mode", ["on-confirm", "on-publish", "no-ack"])
def test_messages_go_there_and_come_back(leveret: RunningNode, rabbit: RabbitMq, mode: str) -> None:
    sent = Sent(leveret)
    publish(leveret, "from", 0, COUNT)
    there = {"dest_protocol": "amqp10", "dest_uri": rabbit.url, "dest_address": "/amq/queue/to"}
    sent.shovel(src_uri="amqp://", src_queue="from", ack_mode=mode, dest_add_forward_headers=True, **there)
    wait_until(lambda: count(rabbit, "to") == COUNT, "all of them there")
    assert leveret.ready("from") + leveret.unsettled("from") == 0
    sent.ask("DELETE", "shovels/vhost/%2F/s")
    back = {"src_protocol": "amqp10", "src_uri": rabbit.url, "src_address": "/amq/queue/to"}
    sent.shovel(dest_uri="amqp://", dest_queue="back", ack_mode=mode, src_prefetch_count=50, **back)
    wait_until(lambda: leveret.ready("back") == COUNT, "all of them here")
    assert taken(leveret, "back") == [b"%d" % number for number in range(COUNT)]
    wait_until(lambda: count(rabbit, "to") == 0, "the source to be empty")


def test_what_it_refuses_stays(leveret: RunningNode, rabbit: RabbitMq) -> None:
    sent = Sent(leveret)
    publish(leveret, "from", 0, 3)
    there = {"dest_protocol": "amqp10", "dest_uri": rabbit.url, "dest_address": "/amq/queue/full"}
    sent.shovel(src_uri="amqp://", src_queue="from", reconnect_delay=100, **there)
    wait_until(lambda: sent.state()["state"] == "terminated", "a refusal")
    assert leveret.ready("from") == 2


def test_a_wrong_password_is_told(leveret: RunningNode, rabbit: RabbitMq) -> None:
    sent = Sent(leveret)
    wrong = rabbit.url.replace("guest:guest", "guest:wrong")
    there = {"dest_protocol": "amqp10", "dest_uri": wrong, "dest_address": "/amq/queue/to"}
    sent.shovel(src_uri="amqp://", src_queue="from", reconnect_delay=100, **there)
    wait_until(lambda: sent.state()["state"] == "terminated", "a refusal")
    assert "refuses the login of user 'guest'" in str(sent.state()["reason"])
