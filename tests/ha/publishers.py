"""Clients that publish durable messages one by one, each in its own way, and remember which of them were confirmed.

A client connects to any node of the cluster, and to the next one after a failure. A message without an answer is never
sent again: it may be found, or not.
"""

from __future__ import annotations

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence

import attrs
import pika
from proton import Message
from proton.utils import BlockingConnection

from leveret.protocols.amqp010.codec import commands as c
from tests.amqp010.client import ClientSession
from tests.amqp010.over_socket import SocketClient

AGAIN_S = 0.02
ANSWER_S = 60  # longer than Patroni takes to promote a standby


@attrs.frozen
class Place:
    """Where a node accepts clients."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class Publisher(ABC):
    """One client in a thread of its own."""

    def __init__(self, places: Sequence[Place], kind: str, queue: str, pause_s: float = 0.0) -> None:
        """`pause_s` is between two messages."""
        self.kind = kind
        self.queue = queue
        self.confirmed: dict[str, float] = {}  # by name, when
        self.failures: list[str] = []
        self.opened = 0  # connections
        self._places = places
        self._pause_s = pause_s
        self._number = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._over.set()

    def join(self) -> None:
        self._thread.join(ANSWER_S + 10)
        assert not self._thread.is_alive(), f"{self.queue}: waits for ever"

    def _run(self) -> None:
        at = 0
        while not self._over.is_set():
            try:
                self.open(self._places[at % len(self._places)])
                self.opened += 1
                while not self._over.is_set():
                    self._number += 1
                    names = self.publish(f"{self.queue}-{self._number}")
                    now = time.monotonic()
                    self.confirmed.update(dict.fromkeys(names, now))
                    if self._pause_s:
                        self._over.wait(self._pause_s)
                self.close()
            except Exception as failure:  # whatever a library makes of a lost connection
                self.failures.append(str(failure) or type(failure).__name__)
                self.abandon()
                at += 1
                time.sleep(AGAIN_S)

    @abstractmethod
    def open(self, place: Place) -> None:
        """Connect."""

    @abstractmethod
    def publish(self, name: str) -> list[str]:
        """Publish a message of this name, or some with names that begin so; return what was confirmed."""

    @abstractmethod
    def close(self) -> None:
        """Disconnect properly."""

    def abandon(self) -> None:
        """Let go of a connection that has failed, perhaps while it was opened."""


def connected(place: Place, **more: object) -> pika.BlockingConnection:
    where = pika.ConnectionParameters(
        place.host, place.port, socket_timeout=3, stack_timeout=8, blocked_connection_timeout=ANSWER_S, **more
    )
    return pika.BlockingConnection(where)


DURABLE = pika.BasicProperties(delivery_mode=2)


class Confirming(Publisher):
    """AMQP 0-9-1 with publisher confirms; of a queue, or of a stream."""

    def open(self, place: Place) -> None:
        self._connection = connected(place)
        self._channel = self._connection.channel()
        self._channel.confirm_delivery()

    def publish(self, name: str) -> list[str]:
        self._channel.basic_publish("", self.queue, name.encode(), DURABLE, mandatory=True)
        return [name]

    def close(self) -> None:
        self._connection.close()


class Transacting(Confirming):
    """AMQP 0-9-1 with transactions of two messages."""

    def open(self, place: Place) -> None:
        self._connection = connected(place)
        self._channel = self._connection.channel()
        self._channel.tx_select()

    def publish(self, name: str) -> list[str]:
        names = [f"{name}.1", f"{name}.2"]
        for each in names:
            self._channel.basic_publish("", self.queue, each.encode(), DURABLE)
        self._channel.tx_commit()
        return names


class Sending(Publisher):
    """AMQP 1.0, each transfer settled by its disposition."""

    def open(self, place: Place) -> None:
        url = f"amqp://guest:guest@{place}"
        self._connection = BlockingConnection(url, timeout=ANSWER_S, allowed_mechs="PLAIN", sasl_enabled=True)
        self._sender = self._connection.create_sender(f"/queues/{self.queue}")

    def publish(self, name: str) -> list[str]:
        self._sender.send(Message(body=name.encode(), durable=True, inferred=True))
        return [name]

    def close(self) -> None:
        self._connection.close()


class Transferring(Publisher):
    """AMQP 0-10, each transfer completed."""

    _client: SocketClient | None = None

    def open(self, place: Place) -> None:
        self._client = SocketClient(str(place), ANSWER_S)
        self._client.open()
        self._session: ClientSession = self._client.attach()

    def publish(self, name: str) -> list[str]:
        lasting = c.DeliveryProperties(routing_key=self.queue, delivery_mode=c.DELIVERY_MODE_PERSISTENT)
        self._session.publish(self.queue, name.encode(), delivery=lasting)
        self._session.sync()
        if self._session.is_over or self._client.is_over or self._client.at_end:
            raise ConnectionError("the session has ended")
        return [name]

    def close(self) -> None:
        self._client.close()
        self.abandon()

    def abandon(self) -> None:
        if self._client is not None:
            self._client.socket.close()
            self._client = None


KINDS: dict[str, type[Publisher]] = {
    "confirms": Confirming,
    "stream": Confirming,
    "tx": Transacting,
    "amqp10": Sending,
    "amqp010": Transferring,
}
