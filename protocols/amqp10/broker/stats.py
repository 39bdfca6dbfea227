"""What operators are told of a 1.0 connection and its sessions, from what their machines know anyway."""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.observability.connection_stats import ChannelFacts, ConnectionFacts
from protocols.amqp10.broker.core_values import table

if TYPE_CHECKING:
    from broker_core.security.sasl import Mechanism
    from protocols.amqp10.broker.adapter import Connection10
    from protocols.amqp10.broker.session import ServedSession


def connection_facts(connection: Connection10, mechanism: Mechanism | None) -> ConnectionFacts:
    """Of a connection that is open. What the peer calls itself stands for a name that it gives the connection."""
    client, wire = connection.client, connection.wire
    properties = {} if wire.peer is None else table(wire.peer.properties or {})
    return ConnectionFacts(
        protocol="AMQP 1.0",
        user=client.user.name,
        virtual_host=client.host.name,
        mechanism="" if mechanism is None else mechanism.name,
        client_properties={"connection_name": connection.container, **properties},
        channel_max=wire.tuning.channel_max,
        frame_max=wire.frame_size_max,
        heartbeat_s=wire.tuning.idle_timeout_s,
        channels=len(connection.sessions),
    )


def session_facts(session: ServedSession) -> ChannelFacts:
    """Delivery ids count what was delivered, and delivery-counts what has come."""
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
