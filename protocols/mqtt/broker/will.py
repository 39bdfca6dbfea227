"""The will of a session: the message that is published for a client that has not said goodbye (section 3.1.2.5)."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import attrs

from leveret.errors import Failure
from leveret.protocols.mqtt.broker.publishing import Publishing
from leveret.protocols.mqtt.codec import properties as p
from leveret.protocols.mqtt.codec.errors import MqttError
from leveret.protocols.mqtt.codec.packets import Will

if TYPE_CHECKING:
    from leveret.client import Client
    from leveret.protocols.mqtt.broker.settings import MqttSettings
    from leveret.values import Table

log: Final = logging.getLogger("leveret.protocols")


def delay_of(will: Will) -> int:
    """Return the will delay interval in seconds."""
    return will.properties.will_delay_interval or 0


def publish_will(will: Will, client: Client, client_id: str, settings: MqttSettings) -> None:
    """Publish a will with the permissions that its user has now. A refusal is logged."""
    publishing = Publishing(client, client_id, settings, len(will.payload))
    properties = attrs.evolve(will.properties, will_delay_interval=None)
    if properties == p.NONE:
        properties = p.NONE
    try:
        publishing.publish(will.topic, will.payload, will.qos, will.retain, properties)
    except (Failure, MqttError) as error:
        log.warning("the will of client '%s' was not published: %s", client_id, error)


def table_of(will: Will) -> Table:
    """Return what is kept of a will in its session's record."""
    return {
        "topic": will.topic,
        "payload": will.payload,
        "qos": will.qos,
        "retain": will.retain,
        "properties": p.encode_properties(will.properties),
    }


def will_from(table: object) -> Will | None:
    """Return a will from a record. Raises ValueError if it is damaged, or MqttError."""
    if table is None:
        return None
    if not isinstance(table, dict):
        raise ValueError("the will is no table")
    topic, payload, qos, octets = (table.get(name) for name in ("topic", "payload", "qos", "properties"))
    if not isinstance(topic, str) or not isinstance(payload, bytes) or not isinstance(octets, bytes):
        raise ValueError("the will has no topic, payload or properties")
    if not isinstance(qos, int):
        raise ValueError("the will has no QoS")
    properties, _ = p.properties_at(octets, 0, len(octets), p.WILL)
    return Will(topic, payload, qos, table.get("retain") is True, properties)
