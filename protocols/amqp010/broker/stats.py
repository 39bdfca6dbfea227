"""Statistics of a 0-10 connection and its sessions for operators, read from state that their machines have anyway."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from leveret.observability.connection_stats import ChannelFacts, ConnectionFacts
from leveret.protocols.amqp010.broker.core_values import table
from leveret.protocols.amqp010.broker.session import ServedSession

if TYPE_CHECKING:
    from collections.abc import Mapping

    from leveret.protocols.amqp010.broker.adapter import Adapter010
    from leveret.protocols.amqp010.codec.types import Value
    from leveret.protocols.amqp010.machine.session import Session
    from leveret.values import Table

PROPERTIES_MAX: Final = 16
TEXT_MAX: Final = 128  # characters


def few_of(properties: Mapping[str, Value]) -> Table:
    """Return the client properties that are kept: a few short ones, as a frame from any peer may hold many."""
    short = {
        name: value
        for name, value in islice(properties.items(), PROPERTIES_MAX)
        if len(name) <= TEXT_MAX and (isinstance(value, bool | int) or is_short(value))
    }
    return table(short)


def is_short(value: Value) -> bool:
    return isinstance(value, str) and len(value) <= TEXT_MAX


def connection_facts(connection: Adapter010) -> ConnectionFacts:
    """Return the facts of a connection that has opened its virtual host."""
    wire = connection.wire
    properties = connection.client_properties
    return connection.facts_with(properties, wire.tuning.session_max, wire.frame_max, len(wire.sessions))


def session_facts(session: Session) -> ChannelFacts:
    """Return a session's facts, counted over all its connections. Every completed transfer counts as a confirm."""
    owner = session.owner
    assert isinstance(owner, ServedSession)
    return ChannelFacts(
        number=session.channel,
        confirming=True,
        transactional=owner.tx is not None,
        consumers=len(owner.subscriptions),
        unsettled=len(owner.unsettled.table),
        unconfirmed=owner.published - owner.confirmed,
        published=owner.published,
        confirmed=owner.confirmed,
        delivered=owner.delivered,
        delivered_settled=owner.delivered_settled,
        accepted=owner.accepted,
    )
