"""The registration of MQTT with a node: its first byte, its settings, and the factory of its connections.

A CONNECT begins with the byte 0x10, with which no other protocol begins. The front-end itself is imported with the
first connection, or once a node that serves it has been up for a while.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Final

from leveret.front_end import FrontEnd, Peer, Protocol
from leveret.protocols.mqtt.broker.settings import MqttSettings

if TYPE_CHECKING:
    from leveret.broker import Broker
    from leveret.config.config import Config
    from leveret.message import Encoding
    from leveret.observability.listing import Listing
    from leveret.outbox import Outbox

NAME: Final = "mqtt"
SHARED: Final = "mqtt.shared"  # the key of a queue's notes that says that it serves a shared subscription


def connection(broker: Broker, config: Config, outbox: Outbox, peer: Peer, now: float) -> FrontEnd:
    """Return the front-end for one connection."""
    from leveret.protocols.mqtt.broker.adapter import AdapterMqtt

    return AdapterMqtt(broker, config, outbox, peer, now)


def encoding() -> Encoding:
    """Return the encoding of its messages."""
    from leveret.protocols.mqtt.broker.encoding import ENCODING

    return ENCODING


def restored(broker: Broker) -> None:
    """Restore sessions and retained messages that have outlived a restart."""
    from leveret.features.protocol_records.protocol_records import ProtocolRecords

    kept = [host.guests.find(ProtocolRecords) for host in broker.hosts()]
    queues = (queue for host in broker.hosts() for queue in host.queues.values())
    if any(each is not None and each.has_any(NAME) for each in kept) or any(
        SHARED in queue.notes for queue in queues
    ):
        from leveret.protocols.mqtt.broker.restoration import restore

        restore(broker)


def listings() -> Sequence[Listing]:
    """Return what operators may list: sessions and retained messages."""
    from leveret.protocols.mqtt.broker.listings import LISTINGS

    return LISTINGS


def addressed(config: Config, topic: str) -> tuple[str, str]:
    """Return the exchange and the routing key of a topic. Raises ValueError if nothing can be published to it."""
    from leveret.protocols.mqtt.broker.topics import can_be_topic, fits, key_of

    if not can_be_topic(topic):
        raise ValueError("a topic to publish to is not empty, and has no + and no #, which are for filters")
    if not fits(topic):
        raise ValueError("a topic has at most 255 bytes")
    return config.protocols.of(NAME, MqttSettings).exchange, key_of(topic)


PROTOCOL: Final = Protocol(
    name=NAME,
    first_bytes=(b"\x10",),
    factory=connection,
    shared=False,
    title="MQTT",
    encoding=encoding,
    restored=restored,
    settings=MqttSettings,
    subprotocols=("mqtt",),
    listings=listings,
    addressed=addressed,
    prepare=partial(import_module, "leveret.protocols.mqtt.broker.adapter"),
)
