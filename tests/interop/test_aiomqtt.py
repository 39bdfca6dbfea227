"""aiomqtt: MQTT for asyncio."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest

from tests.interop.conftest import TIMEOUT_S, RunningNode, Start, need_module

aiomqtt = need_module("aiomqtt")

pytestmark = pytest.mark.interop
Result = TypeVar("Result")

SERVED = 'listeners = [{ address = "127.0.0.1:0", protocols = ["amqp091", "mqtt"] }]'


def run(story: Callable[[], Awaitable[Result]]) -> Result:
    """Run a coroutine with a time limit."""

    async def limited() -> Result:
        async with asyncio.timeout(TIMEOUT_S):
            return await story()

    return asyncio.run(limited())


@pytest.fixture(params=[4, 5], ids=["3.1.1", "5"])
def client(request: pytest.FixtureRequest, node_with: Start) -> Callable[..., object]:
    """A function that makes a client with this identifier."""
    node: RunningNode = node_with(SERVED)

    def made(name: str, password: str = "guest", **said: object) -> object:
        return aiomqtt.Client(
            node.host,
            node.port,
            username="guest",
            password=password,
            identifier=name,
            protocol=aiomqtt.ProtocolVersion(request.param),
            **said,
        )

    return made


def test_publish_and_iterate_over_messages(client):
    async def story() -> list[tuple[str, bytes, int]]:
        async with client("reader") as reader, client("writer") as writer:
            await reader.subscribe("a/#", qos=2)
            for number in range(200):
                await writer.publish(f"a/{number}", str(number), qos=number % 2)
            found = []
            async for message in reader.messages:
                found.append((str(message.topic), message.payload, message.qos))
                if len(found) == 200:
                    return found
        return []

    assert run(story) == [(f"a/{number}", b"%d" % number, number % 2) for number in range(200)]


def test_a_will_and_a_retained_message(client):
    async def story() -> list[tuple[str, bytes, bool]]:
        found = []
        will = aiomqtt.Will("state", b"off", 1, True)
        async with client("reader") as reader:
            with contextlib.suppress(aiomqtt.MqttError):  # the device cannot say that it leaves
                async with client("device", will=will) as device:
                    await device.publish("state", b"on", qos=1, retain=True)
                    await reader.subscribe("state", qos=1)
                    async for message in reader.messages:
                        found.append((str(message.topic), message.payload, message.retain))
                        if len(found) == 2:
                            break
                        device._client._sock_close()
        return found

    assert run(story) == [("state", b"on", True), ("state", b"off", False)]


def test_a_wrong_password_is_refused(client):
    async def story() -> None:
        async with client("c", password="wrong"):
            pass

    with pytest.raises(aiomqtt.MqttError, match=r"(?i)bad user name or password|not authori"):
        run(story)
