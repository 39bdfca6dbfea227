"""aio-pika: asyncio, robust connections that come back by themselves, and its RPC pattern."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from tests.interop.conftest import TIMEOUT_S, RunningNode, Start, need_module

aio_pika = need_module("aio_pika")
patterns = need_module("aio_pika.patterns")

pytestmark = pytest.mark.interop
Result = TypeVar("Result")


def run(story: Callable[[], Awaitable[Result]]) -> Result:
    """Run a coroutine with a time limit."""

    async def limited() -> Result:
        async with asyncio.timeout(TIMEOUT_S):
            return await story()

    return asyncio.run(limited())


async def until(condition: Callable[[], object]) -> None:
    while not condition():  # noqa: ASYNC110 - what is waited for happens in the broker's thread
        await asyncio.sleep(0.005)


def test_publish_with_confirms_and_iterate_over_a_queue(node: RunningNode):
    async def story() -> list[bytes]:
        async with await aio_pika.connect(node.url) as connection:
            channel = await connection.channel(publisher_confirms=True)
            await channel.set_qos(prefetch_count=10)
            exchange = await channel.declare_exchange("orders", aio_pika.ExchangeType.TOPIC)
            queue = await channel.declare_queue("q", auto_delete=True)
            await queue.bind(exchange, "eu.#")
            for number in range(100):
                confirmed = await exchange.publish(aio_pika.Message(str(number).encode()), f"eu.{number}")
                assert type(confirmed).__name__ == "Ack"
            bodies = []
            async with queue.iterator() as messages:
                async for message in messages:
                    async with message.process():
                        bodies.append(message.body)
                    if len(bodies) == 100:
                        break
            return bodies

    assert run(story) == [str(number).encode() for number in range(100)]
    assert node.find("q") is None


def test_an_unroutable_and_a_refused_message_are_told(node: RunningNode):
    async def story() -> None:
        async with await aio_pika.connect(node.url) as connection:
            channel = await connection.channel(publisher_confirms=True, on_return_raises=True)
            with pytest.raises(aio_pika.exceptions.PublishError, match="NO_ROUTE"):
                await channel.default_exchange.publish(aio_pika.Message(b""), "nowhere", mandatory=True)
            arguments = {"x-max-length": 0, "x-overflow": "reject-publish"}
            await channel.declare_queue("full", arguments=arguments)
            with pytest.raises(aio_pika.exceptions.DeliveryError):
                await channel.default_exchange.publish(aio_pika.Message(b""), "full")

    run(story)


HEADERS = {
    "text": "héllo",
    "octets": bytearray(b"\x00\xff"),
    "yes": True,
    "whole": -5,
    "large": 1 << 40,
    "float": 0.5,
    "nothing": None,
    "list": [1, "two", [True, {"four": 4}]],
    "table": {"deep": {"deeper": ["deepest"]}},
}


def test_properties_and_headers_come_back(node: RunningNode):
    async def story() -> None:
        async with await aio_pika.connect(node.url) as connection:
            channel = await connection.channel()
            queue = await channel.declare_queue("q", exclusive=True)
            sent = aio_pika.Message(
                b"{}",
                headers=HEADERS,
                content_type="application/json",
                content_encoding="utf-8",
                delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
                priority=3,
                correlation_id="c",
                reply_to="r",
                expiration=60,
                message_id="m",
                timestamp=1_700_000_000,
                type="t",
                user_id="guest",
                app_id="a",
            )
            await channel.default_exchange.publish(sent, "q")
            got = await queue.get(no_ack=True)
            assert got.body == sent.body
            assert {name: getattr(got, name) for name in COMPARED} == {
                name: getattr(sent, name) for name in COMPARED
            }

    run(story)


COMPARED = (
    "headers",
    "content_type",
    "content_encoding",
    "delivery_mode",
    "priority",
    "correlation_id",
    "reply_to",
    "expiration",
    "message_id",
    "timestamp",
    "type",
    "user_id",
    "app_id",
)


def test_a_robust_connection_comes_back_with_its_queues_and_consumers(node: RunningNode):
    """The broker closes it; exchange, exclusive queue, binding and consumer are restored by the client."""

    async def story() -> list[bytes]:
        async with await aio_pika.connect_robust(node.url, reconnect_interval=0.05) as connection:
            back = asyncio.Event()
            connection.reconnect_callbacks.add(lambda *_: back.set())
            channel = await connection.channel()
            exchange = await channel.declare_exchange("x", aio_pika.ExchangeType.FANOUT, auto_delete=True)
            queue = await channel.declare_queue("q", exclusive=True)
            await queue.bind(exchange)
            bodies: list[bytes] = []

            async def on_message(message: aio_pika.abc.AbstractIncomingMessage) -> None:
                async with message.process():
                    bodies.append(message.body)

            await queue.consume(on_message)
            await exchange.publish(aio_pika.Message(b"before"), "")
            await until(lambda: bodies)
            assert await asyncio.to_thread(node.close_connections) == 1
            await back.wait()
            await exchange.publish(aio_pika.Message(b"after"), "")
            await until(lambda: len(bodies) == 2)
            return bodies

    assert run(story) == [b"before", b"after"]


def test_a_robust_connection_waits_for_a_broker_that_restarts(node_with: Start):
    first = node_with()

    async def story() -> None:
        async with await aio_pika.connect_robust(first.url, reconnect_interval=0.05) as connection:
            channel = await connection.channel()
            await channel.declare_queue("q")
            port = first.port
            await asyncio.to_thread(first.stop)
            second = await asyncio.to_thread(node_with, port=port)
            await until(lambda: second.ready("q") == 0)
            await channel.default_exchange.publish(aio_pika.Message(b"again"), "q")
            await until(lambda: second.ready("q") == 1)

    run(story)


def test_rpc_over_a_reply_queue_and_its_dead_letters(node: RunningNode):
    """The answer that never comes tells so: the request is returned as unroutable, or expires into a dead letter."""

    async def multiply(*, x: int, y: int) -> int:
        return x * y

    async def story() -> int:
        async with (
            await aio_pika.connect_robust(node.url) as server,
            await aio_pika.connect_robust(node.url) as client,
        ):
            serving = await patterns.RPC.create(await server.channel())
            asking = await patterns.RPC.create(await client.channel())
            await serving.register("multiply", multiply, auto_delete=True)
            product: int = await asking.proxy.multiply(x=6, y=9)
            with pytest.raises(aio_pika.exceptions.MessageProcessError):
                await asking.call("missing")
            idle = await server.channel()
            await idle.declare_queue("idle", arguments={"x-dead-letter-exchange": patterns.RPC.DLX_NAME})
            with pytest.raises(TimeoutError):
                await asking.call("idle", expiration=0.01)
            await asking.close()
            await serving.close()
            return product

    assert run(story) == 54


def test_a_transaction_shows_at_commit(node: RunningNode):
    async def story() -> None:
        async with await aio_pika.connect(node.url) as connection:
            channel = await connection.channel(publisher_confirms=False)
            queue = await channel.declare_queue("q")
            async with channel.transaction():
                await channel.default_exchange.publish(aio_pika.Message(b"1"), "q")
                assert await queue.get(fail=False) is None
            message = await queue.get()
            assert message.body == b"1"
            await message.ack()

    run(story)


def test_a_wrong_password_is_told(node: RunningNode):
    async def story() -> None:
        with pytest.raises(aio_pika.exceptions.ProbableAuthenticationError, match="ACCESS_REFUSED"):
            await aio_pika.connect(node.url_with("wrong"))

    run(story)
