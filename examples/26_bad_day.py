"""Test how programs bear a bad day: refused messages, lost confirms, cut connections, and hours that pass at once.

Run `pytest examples/26_bad_day.py`; Leveret brings the fixture. pika, aio-pika and Celery are the clients.
"""

import asyncio

import aio_pika
import celery
import pika
import pytest
from aio_pika.exceptions import DeliveryError


def sell(url: str, article: str, tries: int = 3) -> int:
    """Publish an order with pika until it is confirmed, and return how many tries that took."""
    for attempt in range(1, tries + 1):
        try:
            with pika.BlockingConnection(pika.URLParameters(url)) as connection:
                channel = connection.channel()
                channel.confirm_delivery()
                channel.queue_declare("orders")
                channel.basic_publish("", "orders", article.encode())
                return attempt
        except pika.exceptions.AMQPError:
            pass
    raise TimeoutError(f"{article} was not confirmed")


def test_an_order_is_sold_twice_when_the_confirm_is_lost(leveret_broker) -> None:
    leveret_broker.faults.disconnect(queue="orders", count=1)
    assert sell(leveret_broker.url, "carrot") == 2
    assert [order.text for order in leveret_broker.queue("orders")] == ["carrot", "carrot"]


def test_the_shop_gives_up_when_nobody_lets_it_in(leveret_broker) -> None:
    refused = leveret_broker.faults.refuse()
    with pytest.raises(TimeoutError):
        sell(leveret_broker.url, "carrot")
    assert refused.hits == 3


async def ship(url: str, parcels: list[str]) -> list[str]:
    """Publish parcels with aio-pika, and return those that were refused."""
    refused = []
    async with await aio_pika.connect(url) as connection:
        channel = await connection.channel()
        await channel.declare_queue("parcels")
        for parcel in parcels:
            try:
                await channel.default_exchange.publish(aio_pika.Message(parcel.encode()), "parcels")
            except DeliveryError:
                refused.append(parcel)
    return refused


def test_what_is_refused_is_told(leveret_broker) -> None:
    leveret_broker.faults.nack(queue="parcels", after=1, count=1)
    assert asyncio.run(ship(leveret_broker.url, ["1", "2", "3"])) == ["2"]
    assert [parcel.text for parcel in leveret_broker.queue("parcels", count=2)] == ["1", "3"]


def test_a_task_that_celery_sends_arrives_although_the_connection_is_cut(leveret_broker) -> None:
    app = celery.Celery("shop", broker=leveret_broker.url)
    app.conf.broker_transport_options = {"confirm_publish": True}
    cut = leveret_broker.faults.disconnect(exchange="", count=1)
    app.send_task("pack", ["carrot"], retry=True, retry_policy={"max_retries": 3, "interval_start": 0})
    tasks = leveret_broker.queue("celery", count=2)
    assert cut.hits == 1
    assert tasks[0].headers["id"] == tasks[1].headers["id"], "a worker sees it twice: tasks have to bear that"
    app.close()


def test_an_order_that_is_not_paid_within_a_day_is_cancelled(leveret_broker) -> None:
    with pika.BlockingConnection(pika.URLParameters(leveret_broker.url)) as connection:
        channel = connection.channel()
        channel.queue_declare("cancelled")
        day = {
            "x-message-ttl": 24 * 3600 * 1000,
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": "cancelled",
        }
        channel.queue_declare("unpaid", arguments=day)
        channel.basic_publish("", "unpaid", b"carrot")
        leveret_broker.clock.advance(23 * 3600)
        assert leveret_broker.queue("cancelled") == []
        leveret_broker.clock.advance(2 * 3600)
        assert [order.text for order in leveret_broker.queue("cancelled")] == ["carrot"]
