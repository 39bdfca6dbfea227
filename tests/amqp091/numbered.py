"""Queues full of the messages 0, 1, 2, ..., so that a test can say who got which."""

from __future__ import annotations

from tests.harness.bench import ClientBench

from .peer import ClientChannel, Content, channel_of


def filled(
    count: int, bench: ClientBench | None = None, queue: str = "q", **properties: object
) -> ClientChannel:
    """A channel, and a queue with the messages 0, 1, 2, ..."""
    channel = channel_of(bench)
    channel.declare(queue, **properties)
    fill(channel, range(count), queue)
    return channel


def fill(channel: ClientChannel, numbers: range, queue: str = "q") -> None:
    for number in numbers:
        channel.publish("", queue, str(number).encode())


def numbers(deliveries: list[Content]) -> list[int]:
    return [int(delivery.body) for delivery in deliveries]


def taken(channel: ClientChannel) -> list[int]:
    """The numbers delivered since the last look."""
    return numbers(channel.deliveries())


def tags(deliveries: list[Content]) -> list[int]:
    return [delivery.method.delivery_tag for delivery in deliveries]
