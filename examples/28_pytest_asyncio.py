"""Test a program of asyncio, with aio-pika, against a broker of each test's own.

Run `pytest examples/28_pytest_asyncio.py`; it needs the package aio-pika, and no plugin of pytest.
"""

import asyncio

import aio_pika

from leveret.testing.leveret_broker import LeveretBroker


async def sell(url: str, article: str) -> None:
    """The program under test."""
    async with await aio_pika.connect(url) as connection:
        channel = await connection.channel()
        queue = await channel.declare_queue("parcels")
        await channel.default_exchange.publish(aio_pika.Message(article.encode()), queue.name)


def test_what_is_sold_waits(leveret_broker: LeveretBroker) -> None:
    asyncio.run(sell(leveret_broker.url, "carrot"))
    assert [message.text for message in leveret_broker.queue("parcels")] == ["carrot"]
