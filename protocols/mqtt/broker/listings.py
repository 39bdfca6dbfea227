"""Sessions and retained messages, as operators list, delete and measure them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from leveret.clock import NEVER
from leveret.guests import GAUGE, Guest, Metric
from leveret.observability.listing import Column, Listing, Shape
from leveret.protocols.mqtt.broker.encoding import QOS, publisher_of
from leveret.protocols.mqtt.broker.retained import RetainedMessage, RetainedMessages, retained_of
from leveret.protocols.mqtt.broker.session import Session
from leveret.protocols.mqtt.broker.sessions import ClientSessions
from leveret.protocols.mqtt.codec.reason_codes import ADMINISTRATIVE_ACTION

if TYPE_CHECKING:
    from leveret.broker import Broker
    from leveret.message import Message
    from leveret.values import Table
    from leveret.virtual_host import VirtualHost

ENDED: Final = "an operator has ended the session"


class Measures(Guest):
    """The metrics of MQTT. A guest of the broker, since the first session of the node."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def metrics(self) -> Iterable[Metric]:
        """Return the numbers of sessions and of retained messages, by virtual host."""
        sessions, retained = [], []
        for host in self._broker.hosts():
            label = {"vhost": host.name}
            if (found := host.guests.find(ClientSessions)) is not None:
                sessions.append((label, float(len(found))))
            if (kept := host.guests.find(RetainedMessages)) is not None:
                retained.append((label, float(kept.count)))
        yield Metric("leveret_mqtt_sessions", GAUGE, "Sessions of MQTT, connected or kept", sessions)
        yield Metric("leveret_mqtt_retained_messages", GAUGE, "Retained messages of MQTT", retained)


def session_names(host: VirtualHost) -> Iterator[str]:
    """Return the client ids of the sessions of a virtual host."""
    return (session.client_id for session in host.guests.find(ClientSessions) or ())


def session_row(host: VirtualHost, name: str) -> Table | None:
    """Return the row of the session of a client, or None if it has ended."""
    session = _session(host, name)
    return None if session is None else row_of(session)


def _session(host: VirtualHost, name: str) -> Session | None:
    sessions = host.guests.find(ClientSessions)
    return None if sessions is None else sessions.find(name)


def row_of(session: Session) -> Table:
    """Return the row of one session."""
    served = session.served
    subscribed = [each for group in session.groups.values() for each in group.by_filter.values()]
    return {
        "name": session.client_id,
        "vhost": session.host.name,
        "user": session.user,
        "connection": None if served is None else served.peer.name,
        "session_expiry_interval": session.expiry_s,
        "expires_in": session.expires_in(),
        "will": session.will is not None,
        "subscriptions": [each.as_table() for each in subscribed],
        "queues": list(session.groups),
        "messages_unacknowledged": len(session.flights),
        "messages_unreleased": len(session.received),
    }


def end_session(host: VirtualHost, name: str) -> bool:
    """End a session, and return whether it was there."""
    session = _session(host, name)
    if session is None:
        return False
    session.disconnect(ADMINISTRATIVE_ACTION, ENDED)
    session.end()
    return True


def retained_names(host: VirtualHost) -> Iterator[str]:
    """Return the topics of the retained messages of a virtual host."""
    return (each.topic for each in host.guests.find(RetainedMessages) or ())


def retained_row(host: VirtualHost, name: str) -> Table | None:
    """Return the row of the retained message of a topic, without its payload, or None if it is gone."""
    found = _retained(host, name)
    if found is None:
        return None
    left_s = found.expires_at - host.broker.clock.wall()
    return {
        "name": found.topic,
        "vhost": host.name,
        "qos": found.octets[0] & QOS,
        "payload_bytes": len(found.payload),
        "publisher": publisher_of(found.octets).decode("utf-8", "replace"),
        "expires_in": None if found.expires_at == NEVER else max(0, round(left_s)),
    }


def retained_message(host: VirtualHost, name: str) -> Message | None:
    """Return the retained message of a topic, which is in no exchange."""
    found = _retained(host, name)
    return None if found is None else retained_of(host).message_of(found, "")


def _retained(host: VirtualHost, name: str) -> RetainedMessage | None:
    retained = host.guests.find(RetainedMessages)
    return None if retained is None else retained.get(name)


def delete_retained(host: VirtualHost, name: str) -> bool:
    """Delete the retained message of a topic, and return whether there was one."""
    retained = host.guests.find(RetainedMessages)
    return retained is not None and retained.delete(name)


OF_SESSIONS: Final = (
    Column("user", "User"),
    Column("connection", "Connection", Shape.CONNECTION),
    Column("expires_in", "Expires in", Shape.SECONDS),
    Column("queues", "Queues", Shape.QUEUES),
    Column("messages_unacknowledged", "On their way", Shape.COUNT),
    Column("messages_unreleased", "Not released", Shape.COUNT),
    Column("will", "Will"),
)
OF_RETAINED: Final = (
    Column("qos", "QoS", Shape.COUNT),
    Column("payload_bytes", "Size", Shape.BYTES),
    Column("publisher", "Published by"),
    Column("expires_in", "Expires in", Shape.SECONDS),
)
LISTINGS: Final = (
    Listing("sessions", "MQTT sessions", session_names, session_row, OF_SESSIONS, end_session),
    Listing(
        "retained",
        "MQTT retained messages",
        retained_names,
        retained_row,
        OF_RETAINED,
        delete_retained,
        retained_message,
    ),
)
