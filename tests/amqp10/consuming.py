"""Queues of numbered messages for AMQP 1.0 receivers, published over 0-9-1: both protocols on one broker.

world = filled(3)                       # the queue q with the messages 0, 1, 2
taken(receiver(world, credit=2)) == [0, 1]
"""

from __future__ import annotations

from protocols.amqp10.codec import performatives as p
from tests.amqp10.peer import Delivery, Receiver, World, declare, session_of

QUEUE = "/queues/q"
DEAD = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
STREAM = {"x-queue-type": "stream"}


def filled(count: int, world: World | None = None, queue: str = "q", **properties: object) -> World:
    """A world, and a queue with the messages 0, 1, 2, ..."""
    world = world or World()
    declare(world, queue, **properties)
    fill(world, range(count), queue)
    return world


def fill(world: World, numbers: range, queue: str = "q") -> None:
    channel = world.channel()
    for number in numbers:
        channel.publish("", queue, str(number).encode())


def stream(count: int, world: World | None = None) -> World:
    """A world, and a stream with the messages 0, 1, 2, ..."""
    return filled(count, world, durable=True, arguments=STREAM)


def mourned(count: int) -> World:
    """As `filled`; its dead go to the queue dead."""
    world = World()
    declare(world, "dead")
    return filled(count, world, arguments=DEAD)


def receiver(world: World, credit: int = 0, **fields: object) -> Receiver:
    """A receiver from the queue q, on a connection of its own."""
    return session_of(world).receiver(QUEUE, credit, **fields)


def numbers(deliveries: list[Delivery]) -> list[int]:
    return [int(delivery.body) for delivery in deliveries]


def taken(receiver: Receiver) -> list[int]:
    """The numbers delivered since the last look."""
    return numbers(receiver.all())


def left(world: World, queue: str = "q") -> list[int]:
    """The numbers that wait in a queue."""
    messages = [delivery.message for delivery in world.queue(queue).waiting()]
    return [int(message.encoding.convert(message)[1]) for message in messages]


def source(address: str | None = QUEUE, **fields: object) -> p.Source:
    return p.Source(address=address, **fields)
