"""Test a program that speaks AMQP 1.0, with Proton, against a broker of each test's own.

Run `pytest examples/27_pytest_amqp_1_0.py`; it needs the package python-qpid-proton.
"""

from collections.abc import Iterator

import pika
import pytest
from proton import Message
from proton.utils import BlockingConnection


@pytest.fixture
def connection(leveret_broker) -> Iterator[BlockingConnection]:
    connection = BlockingConnection(leveret_broker.url, virtual_host=leveret_broker.amqp10_hostname)
    yield connection
    connection.close()


def test_what_is_sent_over_1_0_waits_in_the_queue(leveret_broker, connection: BlockingConnection) -> None:
    with pika.BlockingConnection(leveret_broker.parameters) as other:
        other.channel().queue_declare("parcels")
    connection.create_sender("/queues/parcels").send(Message(body="carrot"))
    receiver = connection.create_receiver("/queues/parcels")
    assert receiver.receive().body == "carrot"
    assert leveret_broker.unacked("parcels", count=1) == 1
    receiver.accept()
    assert leveret_broker.queue("parcels", count=0) == []
