"""Queues of numbered messages for AMQP 1.0 receivers, published over 0-9-1: both protocols on one broker.

bench = filled(3)                       # the queue q with the messages 0, 1, 2
taken(receiver(bench, credit=2)) == [0, 1]
"""

from __future__ import annotations

from leveret.protocols.amqp10.codec import performatives as p
from tests.amqp091.peer import channel_of
from tests.amqp10.client import Receiver
from tests.amqp10.parts import Delivery
from tests.amqp10.peer import declare, session_of
from tests.harness.bench import ClientBench

QUEUE = "/queues/q"
DEAD = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
STREAM = {"x-queue-type": "stream"}


def filled(
    count: int, bench: ClientBench | None = None, queue: str = "q", **properties: object
) -> ClientBench:
    """A bench, and a queue with the messages 0, 1, 2, ..."""
    bench = bench or ClientBench()
    declare(bench, queue, **properties)
    fill(bench, range(count), queue)
    return bench


def fill(bench: ClientBench, numbers: range, queue: str = "q") -> None:
    channel = channel_of(bench)
    for number in numbers:
        channel.publish("", queue, str(number).encode())


def stream(count: int, bench: ClientBench | None = None) -> ClientBench:
    """A bench, and a stream with the messages 0, 1, 2, ..."""
    return filled(count, bench, durable=True, arguments=STREAM)


def mourned(count: int, toml: str = "") -> ClientBench:
    """As `filled`; its dead go to the queue dead."""
    bench = ClientBench(toml)
    declare(bench, "dead")
    return filled(count, bench, arguments=DEAD)


def receiver(bench: ClientBench, credit: int = 0, **fields: object) -> Receiver:
    """A receiver from the queue q, on a connection of its own."""
    return session_of(bench).receiver(QUEUE, credit, **fields)


def numbers(deliveries: list[Delivery]) -> list[int]:
    return [int(delivery.body) for delivery in deliveries]


def taken(receiver: Receiver) -> list[int]:
    """The numbers delivered since the last look."""
    return numbers(receiver.all())


def left(bench: ClientBench, queue: str = "q") -> list[int]:
    """The numbers that wait in a queue."""
    messages = [delivery.message for delivery in bench.queue(queue).waiting()]
    return [int(message.encoding.convert(message)[1]) for message in messages]


def source(address: str | None = QUEUE, **fields: object) -> p.Source:
    return p.Source(address=address, **fields)
