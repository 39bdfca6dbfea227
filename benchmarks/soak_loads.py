"""Use everything that a node has, again and again, until standard input ends: the clients of benchmarks/soak.py.

    python -m benchmarks.soak_loads PORT HTTP_PORT

Each load is a thread that takes turns. A turn checks what it gets: everything confirmed comes once, what was rolled
back never, what was rejected as a dead letter. For each turn a line says which load it was; a load that fails says why,
and ends.
"""

from __future__ import annotations

import json
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Final

import pika
from pika.adapters.blocking_connection import BlockingChannel
from proton import Message
from proton.reactor import Selector
from proton.utils import BlockingConnection

from benchmarks import amqp010, crowd
from benchmarks.flood import READ, Consumer, Publisher, Wire, declare_afresh, fill, turn
from benchmarks.proofs import PAGE, ask
from benchmarks.scale import post
from leveret.protocols.amqp091.codec import methods as m

PATIENCE_S: Final = 120.0
DURABLE: Final = pika.BasicProperties(delivery_mode=2)
TYPES: Final = (
    "direct",
    "fanout",
    "topic",
    "headers",
    "x-consistent-hash",
    "x-random",
    "x-recent-history",
    "x-modulus-hash",
)
BURST: Final = 60_000  # messages of a KiB that come back at once
BREAK_S: Final = 0.5  # between two turns of a load


@contextmanager
def channel_on(port: int) -> Iterator[BlockingChannel]:
    parameters = pika.ConnectionParameters("127.0.0.1", port, heartbeat=0, socket_timeout=PATIENCE_S)
    with closing(pika.BlockingConnection(parameters)) as connection:
        yield connection.channel()


def taken(channel: BlockingChannel, queue: str, count: int, ack: bool = True) -> list[bytes]:
    """Consume so many messages. Raises TimeoutError if they do not come."""
    found: list[bytes] = []
    channel.basic_qos(prefetch_count=100)
    for method, _, body in channel.consume(queue, inactivity_timeout=PATIENCE_S):
        if method is None:
            raise TimeoutError(f"{len(found)} of {count} messages came from '{queue}'")
        found.append(body)
        if ack:
            channel.basic_ack(method.delivery_tag)
        if len(found) == count:
            break
    channel.cancel()
    return found


def expect(found: object, wanted: object, what: str) -> None:
    if found != wanted:
        raise AssertionError(f"{what}: {found!r} instead of {wanted!r}")


# The loads. Each is given the ports, and takes one turn.


def work(port: int, web: int) -> None:
    """Route through every type of exchange, and reject some: they come back as dead letters."""
    kind = random.choice(TYPES)
    with channel_on(port) as channel:
        arguments = {"x-dead-letter-exchange": "soak.dead"}
        channel.exchange_declare("soak.dead", "fanout", durable=True)
        channel.queue_declare("soak.dead", durable=True)
        channel.queue_bind("soak.dead", "soak.dead")
        channel.queue_declare("soak.work", durable=True, arguments=arguments)
        channel.exchange_declare(f"soak.{kind}", kind, durable=True)
        key = "1" if kind == "x-consistent-hash" else "k"
        channel.queue_bind("soak.work", f"soak.{kind}", key)
        channel.confirm_delivery()
        sent = [b"%d" % number for number in range(50)]
        for body in sent:
            channel.basic_publish(f"soak.{kind}", key, body, DURABLE, mandatory=True)
        channel.basic_qos(prefetch_count=10)
        requeued, accepted = set[bytes](), list[bytes]()
        for method, _, body in channel.consume("soak.work", inactivity_timeout=PATIENCE_S):
            if method is None:
                raise TimeoutError(f"{len(accepted)} messages came from 'soak.work'")
            if body.endswith(b"7"):
                channel.basic_reject(method.delivery_tag, requeue=False)
            elif body.endswith(b"3") and body not in requeued:
                requeued.add(body)
                channel.basic_nack(method.delivery_tag, requeue=True)
            else:
                channel.basic_ack(method.delivery_tag)
                accepted.append(body)
            if len(accepted) == 45:
                break
        channel.cancel()
        expect(sorted(accepted), sorted(body for body in sent if not body.endswith(b"7")), "accepted")
        expect(len(taken(channel, "soak.dead", 5)), 5, "dead letters")
        channel.exchange_delete(f"soak.{kind}")


def expiry(port: int, web: int) -> None:
    """Let messages expire into a queue, and others be dropped by a limit."""
    with channel_on(port) as channel:
        channel.queue_declare("soak.late", durable=True)
        arguments = {
            "x-message-ttl": 200,
            "x-dead-letter-exchange": "",
            "x-dead-letter-routing-key": "soak.late",
        }
        channel.queue_declare("soak.brief", durable=True, arguments=arguments)
        channel.queue_declare("soak.short", arguments={"x-max-length": 10})
        channel.confirm_delivery()
        for number in range(30):
            channel.basic_publish("", "soak.brief", b"%d" % number, DURABLE)
            channel.basic_publish("", "soak.short", b"%d" % number)
        expect(len(taken(channel, "soak.late", 30)), 30, "expired")
        expect(channel.queue_purge("soak.short").method.message_count, 10, "within the limit")


def transactions(port: int, web: int) -> None:
    """Commit some, roll others back."""
    with channel_on(port) as channel:
        channel.queue_declare("soak.tx", durable=True)
        channel.tx_select()
        for body in (b"kept", b"dropped"):
            for _ in range(20):
                channel.basic_publish("", "soak.tx", body, DURABLE)
            channel.tx_commit() if body == b"kept" else channel.tx_rollback()
        for _ in range(20):
            method, _, body = channel.basic_get("soak.tx")
            expect(body, b"kept", "committed")
            channel.basic_ack(method.delivery_tag)
        channel.tx_commit()
        expect(channel.basic_get("soak.tx")[0], None, "rolled back")


def delayed(port: int, web: int) -> None:
    """Publish for later, with the exchange and with a queue's own schedule."""
    with channel_on(port) as channel:
        channel.queue_declare("soak.delayed", durable=True)
        channel.exchange_declare(
            "soak.delay", "x-delayed-message", durable=True, arguments={"x-delayed-type": "direct"}
        )
        channel.queue_bind("soak.delayed", "soak.delay", "k")
        channel.confirm_delivery()
        for number in range(40):
            headers = {"x-delay": random.randrange(1, 1500)}
            channel.basic_publish(
                "soak.delay", "k", b"%d" % number, pika.BasicProperties(headers=headers, delivery_mode=2)
            )
        expect(len({*taken(channel, "soak.delayed", 40)}), 40, "delayed")


def streams(port: int, web: int) -> None:
    """Append to a stream that drops its oldest, and read what was appended, over 0-9-1 and in bulk."""
    arguments = {
        "x-queue-type": "stream",
        "x-max-length-bytes": 8 << 20,
        "x-stream-max-segment-size-bytes": 1 << 20,
    }
    with channel_on(port) as channel:
        channel.queue_declare("soak.stream", durable=True, arguments=arguments)
        channel.confirm_delivery()
        mark = b"%d " % time.monotonic_ns()
        begun = json.loads(ask(web, "/api/leveret/streams/%2F/soak.stream"))["next"]
        for number in range(200):
            channel.basic_publish("", "soak.stream", mark + b"%d" % number + bytes(500), DURABLE)
        channel.basic_qos(prefetch_count=50)
        found = 0
        for method, _, body in channel.consume(
            "soak.stream", arguments={"x-stream-offset": begun}, inactivity_timeout=PATIENCE_S
        ):
            if method is None:
                raise TimeoutError(f"{found} of 200 messages came from the stream")
            channel.basic_ack(method.delivery_tag)
            found += body.startswith(mark)
            if found == 200:
                break
        channel.cancel()
        ask(web, f"/api/leveret/streams/%2F/soak.stream/blocks?from={begun}")


def amqp_1_0(port: int, web: int) -> None:
    """Send, filter, release and accept over AMQP 1.0."""
    with channel_on(port) as channel:
        channel.queue_declare("soak.ten", durable=True)
    connection = BlockingConnection(
        f"amqp://127.0.0.1:{port}", user="guest", password="guest", timeout=PATIENCE_S
    )
    sender = connection.create_sender("/queues/soak.ten")
    for number in range(40):
        sender.send(Message(id=str(number), body="x" * 100, durable=True, properties={"odd": number % 2}))
    odd = connection.create_receiver("/queues/soak.ten", credit=5, options=Selector("odd = 1"))
    for _ in range(20):
        expect(odd.receive(PATIENCE_S).properties["odd"], 1, "filtered")
        odd.accept()
    odd.close()
    rest = connection.create_receiver("/queues/soak.ten", credit=5)
    rest.receive(PATIENCE_S)
    rest.release()
    for _ in range(20):
        rest.receive(PATIENCE_S)
        rest.accept()
    connection.close()


def amqp_0_10(port: int, web: int) -> None:
    amqp010.flood(port, 500)


def management(port: int, web: int) -> None:
    """Ask what the page asks, scrape, export and import, and change a policy, a binding and a user."""
    for path in (
        *PAGE,
        "/metrics",
        "/api/definitions",
        "/api/queues",
        "/api/channels",
        "/api/leveret/status",
    ):
        ask(web, path)
    changes = {
        "users": [{"name": "soak", "password": "soak", "tags": ""}],
        "permissions": [
            {"user": "soak", "vhost": "/", "configure": "", "write": "", "read": f"^{time.time_ns()}$"}
        ],
        "policies": [
            {
                "vhost": "/",
                "name": "soak",
                "pattern": "^soak.none",
                "definition": {"max-length": random.randrange(99)},
            }
        ],
        "queues": [{"name": f"soak.many.{number}", "vhost": "/", "durable": True} for number in range(20)],
    }
    post(web, "/api/definitions", json.dumps(changes).encode())
    with channel_on(port) as channel:
        for number in range(20):
            channel.queue_bind(f"soak.many.{number}", "amq.topic", f"a.{number}.#")
            channel.queue_delete(f"soak.many.{number}")


def comings_and_goings(port: int, web: int) -> None:
    crowd.churn(port, 30)


def bursts(port: int, web: int) -> None:
    """Give a client without a prefetch a large batch, which comes back when it goes; then drain it."""
    queue, size = "soak.burst", 1024
    fill(port, BURST, size, queue=queue)
    greedy = Wire(port)
    greedy.call(m.BasicConsume(queue, "greedy"), m.BasicConsumeOk)
    octets = len(greedy.buffer)
    while octets < BURST * size:
        octets += len(greedy.socket.recv(READ))
    greedy.socket.close()
    idle = Publisher(port, queue, 0, size, durable=True)
    drained = Consumer(port, queue, BURST, size, durable=True)
    deadline = time.monotonic() + 2 * PATIENCE_S
    while drained.received < BURST:
        turn(idle, drained, 0, 1.0)
        if time.monotonic() > deadline:
            raise TimeoutError(f"{drained.received} of {BURST} messages came back")
    for end in (idle, drained):
        end.wire.socket.close()
    declare_afresh(port, queue, durable=True)
    time.sleep(20.0)


LOADS: Final[tuple[Callable[[int, int], None], ...]] = (
    work,
    expiry,
    transactions,
    delayed,
    streams,
    amqp_1_0,
    amqp_0_10,
    management,
    comings_and_goings,
    bursts,
)


def run(load: Callable[[int, int], None], port: int, web: int, over: threading.Event) -> None:
    while not over.is_set():
        try:
            load(port, web)
        except BaseException as error:
            crowd.tell(load=load.__name__, failure=f"{type(error).__name__}: {error}")
            return
        crowd.tell(load=load.__name__, failure=None)
        over.wait(BREAK_S)


def main() -> None:
    port, web = map(int, sys.argv[1:])
    over = threading.Event()
    threads = [threading.Thread(target=run, args=(load, port, web, over)) for load in LOADS]
    for thread in threads:
        thread.start()
    sys.stdin.read()
    over.set()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    crowd.all_descriptors()
    main()
