"""Test a program that publishes and consumes, with a separate broker for each test.

Run `pytest examples/07_pytest_fixture.py`; Leveret brings the fixture, nothing else has to run.
"""

import json
from collections.abc import Iterator

import pika
import pytest


class Shop:
    """The program under test."""

    def __init__(self, url: str) -> None:
        self.connection = pika.BlockingConnection(pika.URLParameters(url))
        self.channel = self.connection.channel()
        self.channel.exchange_declare("orders", "topic")
        self.channel.queue_declare("parcels")
        self.channel.queue_bind("parcels", "orders", "order.paid")

    def sell(self, article: str) -> None:
        for event in ("created", "paid"):
            self.channel.basic_publish("orders", f"order.{event}", json.dumps({"article": article}).encode())

    def pack(self) -> str:
        method, _, body = self.channel.basic_get("parcels")
        self.channel.basic_ack(method.delivery_tag)
        return str(json.loads(body)["article"])


@pytest.fixture
def shop(leveret_broker) -> Iterator[Shop]:
    shop = Shop(leveret_broker.url)
    yield shop
    shop.connection.close()


def test_what_is_sold_is_published(leveret_broker, shop: Shop) -> None:
    shop.sell("carrot")
    created, paid = leveret_broker.published("orders", count=2)
    assert (created.key, paid.key) == ("order.created", "order.paid")
    assert paid.json() == {"article": "carrot"}


def test_what_is_paid_is_packed_once(leveret_broker, shop: Shop) -> None:
    shop.sell("carrot")
    assert len(leveret_broker.queue("parcels", count=1)) == 1
    assert shop.pack() == "carrot"
    assert leveret_broker.queue("parcels", count=0) == []
    assert leveret_broker.unacked("parcels", count=0) == 0
