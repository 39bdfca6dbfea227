"""Sessions and retained messages, as operators list, delete and measure them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from leveret.clock import NEVER
from leveret.front_end import Listing
from leveret.guests import GAUGE, Guest, Metric
from leveret.protocols.mqtt.broker.encoding import QOS, publisher_of
from leveret.protocols.mqtt.broker.retained import RetainedMessages
from leveret.protocols.mqtt.broker.session import Session
from leveret.protocols.mqtt.broker.sessions import ClientSessions
from leveret.protocols.mqtt.codec.reason_codes import ADMINISTRATIVE_ACTION

if TYPE_CHECKING:
    from leveret.broker import Broker
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


def sessions_in(host: VirtualHost) -> Iterator[Table]:
    """Return the rows of the sessions of a virtual host."""
    for session in host.guests.find(ClientSessions) or ():
        yield row_of(session)


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
    sessions = host.guests.find(ClientSessions)
    session = None if sessions is None else sessions.find(name)
    if session is None:
        return False
    session.disconnect(ADMINISTRATIVE_ACTION, ENDED)
    session.end()
    return True


def retained_in(host: VirtualHost) -> Iterator[Table]:
    """Return the rows of the retained messages of a virtual host, without their payloads."""
    wall = host.broker.clock.wall()
    for each in host.guests.find(RetainedMessages) or ():
        yield {
            "name": each.topic,
            "vhost": host.name,
            "qos": each.octets[0] & QOS,
            "payload_bytes": len(each.payload),
            "publisher": publisher_of(each.octets).decode("utf-8", "replace"),
            "expires_in": None if each.expires_at == NEVER else max(0, round(each.expires_at - wall)),
        }


def delete_retained(host: VirtualHost, name: str) -> bool:
    """Delete the retained message of a topic, and return whether there was one."""
    retained = host.guests.find(RetainedMessages)
    return retained is not None and retained.delete(name)


LISTINGS: Final = (
    Listing("sessions", sessions_in, end_session),
    Listing("retained", retained_in, delete_retained),
)
