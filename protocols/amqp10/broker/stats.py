"""The facts for management about a 1.0 connection and its sessions, from the counts that they keep anyway."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leveret.observability.connection_stats import ChannelFacts, ConnectionFacts
from leveret.protocols.amqp10.broker.core_values import table

if TYPE_CHECKING:
    from leveret.protocols.amqp10.broker.adapter import Adapter10
    from leveret.protocols.amqp10.broker.session import ServedSession


def connection_facts(connection: Adapter10) -> ConnectionFacts:
    """Return the facts of an open connection. The container-id serves as its name, if the peer sends none."""
    wire = connection.wire
    properties = {} if wire.peer is None else table(wire.peer.properties or {})
    return connection.facts_with(
        {"connection_name": connection.container, **properties},
        wire.tuning.channel_max,
        wire.frame_size_max,
        len(connection.sessions),
        connection.container,
    )


def session_facts(session: ServedSession) -> ChannelFacts:
    """Return the facts of a session. Delivery ids count the sent messages, delivery-counts the received ones."""
    wire = session.wire
    links, unconfirmed = wire.unanswered
    return ChannelFacts(
        number=wire.channel,
        confirming=links > 0,
        consumers=len(session.consumers),
        unsettled=len(wire.sending.unsettled),
        unconfirmed=unconfirmed,
        published=wire.received,
        confirmed=session.confirmed,
        returned=session.returned,
        delivered=wire.sending.next_delivery_id,
        delivered_settled=session.delivered_settled,
        accepted=session.accepted,
    )
