"""A client of MQTT for tests: Eclipse paho in a thread of its own, in versions 3.1.1 and 5."""

from __future__ import annotations

import threading
from queue import Queue
from typing import Protocol

from paho.mqtt.client import (
    CallbackAPIVersion,
    Client,
    MQTTMessage,
    MQTTv5,
    MQTTv311,
    SubscribeOptions,
)
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

TIMEOUT_S = 60  # for anything that should happen soon, on a busy machine
VERSIONS = {"3.1.1": MQTTv311, "5": MQTTv5}


class Place(Protocol):
    """Where a broker listens."""

    @property
    def host(self) -> str: ...
    @property
    def port(self) -> int: ...


class Paho:
    """A client with a thread of its own."""

    def __init__(self, node: Place, name: str, version: str, password: str = "guest") -> None:
        self.client = Client(CallbackAPIVersion.VERSION2, name, protocol=VERSIONS[version])
        self.client.username_pw_set("guest", password)
        self.version = version
        self.node = node
        self.heard: Queue[MQTTMessage] = Queue()
        self.connected: Queue[tuple[object, object]] = Queue()
        self.ended = threading.Event()
        self.ended_because: object = None
        self.subscribed: Queue[list[int]] = Queue()
        self.client.on_message = lambda client, data, message: self.heard.put(message)
        self.client.on_connect = lambda client, data, flags, reason, properties: self.connected.put(
            (flags, reason)
        )
        self.client.on_subscribe = lambda client, data, mid, reasons, properties: self.subscribed.put(
            [reason.value for reason in reasons]
        )
        self.client.on_disconnect = self._on_disconnect

    def _on_disconnect(self, client, data, flags, reason, properties) -> None:
        self.ended_because = reason
        self.ended.set()

    def start(self, clean: bool = True, expiry: int = 0, **said: int) -> Paho:
        self.ended.clear()
        if self.version == "5":
            properties = Properties(PacketTypes.CONNECT)
            properties.SessionExpiryInterval = expiry
            for name, value in said.items():
                setattr(properties, name, value)
            self.client.connect(self.node.host, self.node.port, clean_start=clean, properties=properties)
        else:
            self.client._clean_session = clean
            self.client.connect(self.node.host, self.node.port)
        self.client.loop_start()
        self.flags, self.reason = self.connected.get(timeout=TIMEOUT_S)
        return self

    def stop(self) -> None:
        self.client.disconnect()
        self.client.loop_stop()
        self.client._reset_sockets()  # the one by which its thread is woken stays open else

    def lose(self) -> None:
        """Lose the connection without a word, and do not come back."""
        self.client.loop_stop()
        self.client._reset_sockets()

    def subscribe(self, topic: str, qos: int = 1, **options: object) -> list[int]:
        if self.version == "5":
            self.client.subscribe(topic, options=SubscribeOptions(qos, **options))  # type: ignore[arg-type]
        else:
            self.client.subscribe(topic, qos)
        return self.subscribed.get(timeout=TIMEOUT_S)

    def publish(self, topic: str, payload: bytes, qos: int = 1, retain: bool = False, **said: object) -> None:
        """Publish, and wait for the acknowledgement."""
        properties = None
        if said:
            properties = Properties(PacketTypes.PUBLISH)
            for name, value in said.items():
                setattr(properties, name, value)
        self.client.publish(topic, payload, qos, retain, properties).wait_for_publish(TIMEOUT_S)

    def take(self) -> MQTTMessage:
        return self.heard.get(timeout=TIMEOUT_S)

    def take_all(self, count: int) -> list[tuple[str, bytes, int]]:
        return [
            (message.topic, message.payload, message.qos) for message in (self.take() for _ in range(count))
        ]
