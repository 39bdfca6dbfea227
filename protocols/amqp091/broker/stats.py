"""The facts for management about a 0-9-1 connection and its channels, from the counts that they keep anyway."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leveret.observability.connection_stats import ChannelFacts, ConnectionFacts
from leveret.protocols.amqp091.broker.core_values import table

if TYPE_CHECKING:
    from leveret.protocols.amqp091.broker.adapter import Adapter091
    from leveret.protocols.amqp091.broker.channel import Channel


def connection_facts(connection: Adapter091) -> ConnectionFacts:
    """Return the facts of a connection that has opened its virtual host."""
    wire = connection.wire
    properties = table(wire.client_properties)
    return connection.facts_with(properties, wire.channel_max, wire.frame_max, len(connection.channels))


def counts(channel: Channel) -> ChannelFacts | None:
    """Return the facts of a channel that a message has gone through; None: none has."""
    publishing = channel.publishing
    if channel.last_tag or publishing.published or publishing.published_before:
        return channel_facts(channel)
    return None


def channel_facts(channel: Channel) -> ChannelFacts:
    """Return the facts of a channel. Delivery tags count deliveries and gets, sequence numbers the publishes."""
    publishing, tx = channel.publishing, channel.publishing.tx
    held = (0, 0) if tx is None else tx.held
    not_answered = channel.delivered_settled + channel.fetched_settled
    waiting = len(channel.unsettled) + channel.answered_in_tx
    return ChannelFacts(
        number=channel.number,
        confirming=publishing.confirming,
        transactional=tx is not None,
        flowing=channel.flowing,
        prefetch=channel.prefetch,
        shared_prefetch=channel.shared_prefetch,
        consumers=len(channel.consumers),
        unsettled=len(channel.unsettled),
        unconfirmed=publishing.published - publishing.confirmed if publishing.confirming else 0,
        uncommitted=held[0],
        uncommitted_outcomes=held[1],
        published=publishing.published_before + publishing.published,
        confirmed=publishing.confirmed - publishing.refused,
        returned=publishing.returned,
        delivered=channel.last_tag - channel.fetched,
        delivered_settled=channel.delivered_settled,
        fetched=channel.fetched,
        fetched_settled=channel.fetched_settled,
        accepted=channel.last_tag - not_answered - waiting - channel.given_back,
    )
