"""Sessions and retained messages from their records, at a start with a store.

What cannot be read is logged, and forgotten: its client begins anew. Messages that were on their way with QoS 2 go
back to their sessions with their packet identifiers; others wait in their queues, and are sent again as redelivered
ones.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

import attrs

from leveret.client import Client
from leveret.protocols.mqtt.broker import notes
from leveret.protocols.mqtt.broker.listings import Measures
from leveret.protocols.mqtt.broker.notes import Noted
from leveret.protocols.mqtt.broker.records import (
    RETAINED,
    SESSIONS,
    ProtocolRecord,
    records_in,
    records_taken,
)
from leveret.protocols.mqtt.broker.registration import SHARED
from leveret.protocols.mqtt.broker.retained import retained_of
from leveret.protocols.mqtt.broker.session import Session, flights_of
from leveret.protocols.mqtt.broker.sessions import sessions_of
from leveret.protocols.mqtt.broker.settings import MqttSettings
from leveret.protocols.mqtt.broker.subscriptions import Group, subscribed_from
from leveret.protocols.mqtt.broker.will import will_from
from leveret.protocols.mqtt.codec.errors import MqttError
from leveret.protocols.mqtt.machine.flights import RELEASED, Flight

if TYPE_CHECKING:
    from leveret.broker import Broker
    from leveret.delivery import Delivery
    from leveret.virtual_host import VirtualHost

log: Final = logging.getLogger("leveret.protocols")


def restore(broker: Broker) -> None:
    """Restore what all virtual hosts have."""
    broker.guest(Measures)
    for host in list(broker.hosts()):
        _restore_retained(host)
        for record in records_in(host, SESSIONS):
            try:
                _restore_session(host, record)
            except (MqttError, ValueError) as error:
                log.error("the %s cannot be read, and is forgotten: %s", record.described, error)
                record.end()
        _delete_unshared(host)


def _restore_retained(host: VirtualHost) -> None:
    retained = retained_of(host)
    for record in records_taken(host, RETAINED):
        try:
            retained.restore(record)
        except ValueError as error:
            log.error("the %s cannot be read, and is forgotten: %s", record.described, error)
            record.end()


def _restore_session(host: VirtualHost, record: ProtocolRecord) -> None:
    """Put a session back. Raises ValueError or MqttError if its record is damaged."""
    table, noted = record.table, Noted(record.notes)
    user_name, exchange, expiry_s = table.get("user"), table.get("exchange"), table.get("expiry_s")
    subscriptions, left_ms = table.get("subscriptions"), table.get("left_ms")
    if not isinstance(user_name, str) or not isinstance(exchange, str) or not isinstance(expiry_s, int):
        raise ValueError("user, exchange or expiry are missing")
    if not isinstance(subscriptions, list):
        raise ValueError("its subscriptions are missing")
    will = will_from(table.get("will"))
    user = host.broker.access.user(user_name)
    settings = attrs.evolve(MqttSettings(), exchange=exchange)
    session = Session(sessions_of(host), record.names[2], user_name, settings, max(1, expiry_s))
    session.record, session.will = record, will
    for each in subscriptions:
        subscribed = subscribed_from(each)
        name = session.queue_name(subscribed)
        group = session.groups.setdefault(name, Group(name, subscribed.share is not None))
        group.put(subscribed)
        if subscribed.share is not None:
            sessions_of(host).join(name, session)
    session.received = dict.fromkeys(sorted(noted.received))
    _restore_flights(host, session, noted)
    sessions_of(host).restore(session)
    if user is not None:
        session.client = Client(host.broker, user)
        session.client.host = host
        session.client.client_id = session.client_id
    elif not host.broker.access.may_know(user_name):
        session.will = None
        session.end()
        return
    wall_ms = host.broker.clock.wall() * 1000
    if not isinstance(left_ms, int):  # it had a connection, until the node ended
        session.left_ms = round(wall_ms)
        session.keep()
        left_ms = session.left_ms
    session.left_ms = left_ms
    session.wait(max(0.0, expiry_s - (wall_ms - left_ms) / 1000))


def _restore_flights(host: VirtualHost, session: Session, noted: Noted) -> None:
    """Take the messages off their queues again that were sent with QoS 2, and not received for certain."""
    assert session.record is not None
    if noted.released or noted.sent:
        flights_of(session)
    for packet_id in sorted(noted.released):
        session.flights.restore(Flight(packet_id, 2, None, RELEASED))
    for name, by_position in noted.sent.items():
        queue = host.queues.get(name)
        taken: list[Delivery] = [] if queue is None else queue.take_stored(sorted(by_position))
        found = {delivery.position: delivery for delivery in taken}
        for position, packet_id in sorted(by_position.items()):
            delivery = found.get(position)
            if delivery is None:  # damaged, or deleted
                session.record.unnote(notes.sent(packet_id, name))
            else:
                session.flights.restore(Flight(packet_id, 2, delivery))


def _delete_unshared(host: VirtualHost) -> None:
    """Delete the queues of shared subscriptions of which every session has ended with the node."""
    sessions = sessions_of(host)
    for queue in list(host.queues.values()):
        if queue.notes.get(SHARED) is True and not sessions.is_shared(queue.name):
            host.delete_queue(queue)
