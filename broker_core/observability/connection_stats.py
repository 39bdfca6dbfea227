"""Records that describe a connection, its channels and its consumers to operators, for every protocol alike.

Front-ends make these records on request (`FrontEnd.facts`, `FrontEnd.channel_facts`, `Consumer.facts`), never for a
message. A field for which a protocol has no concept keeps its default.
"""

from __future__ import annotations

import attrs

from leveret.values import Table

NOTHING: Table = {}


@attrs.frozen(kw_only=True)
class ConnectionFacts:
    """A connection whose user has logged in and opened a virtual host."""

    protocol: str  # the usual spelling: `AMQP 0-9-1`
    user: str
    virtual_host: str
    mechanism: str = ""  # of SASL
    client_properties: Table = NOTHING  # as the client gave them
    blocked: bool = False  # it published during an alarm and is not read from
    throttled: bool = False  # it published faster than a rate allows, and is not read from for now
    channel_max: int = 0
    frame_max: int = 0  # bytes
    heartbeat_s: float = 0.0  # 0: none
    channels: int = 0  # that are open
    unfinished_bytes: int = 0  # held of messages that have come in part
    container_id: str | None = None  # of the client, in AMQP 1.0


@attrs.frozen(kw_only=True)
class ChannelFacts:
    """A channel of 0-9-1, a session of 1.0 or 0-10. Counts are of messages, over its whole life."""

    number: int
    confirming: bool = False  # publishes are confirmed
    transactional: bool = False
    flowing: bool = True  # False: the client has asked for a pause
    prefetch: int = 0  # of future consumers; 0: no limit
    shared_prefetch: int = 0  # of all consumers together; 0: no limit
    consumers: int = 0
    unsettled: int = 0  # deliveries not acknowledged
    unconfirmed: int = 0  # publishes not confirmed
    uncommitted: int = 0  # publishes in the open transaction
    uncommitted_outcomes: int = 0  # acknowledgements in it
    published: int = 0
    confirmed: int = 0
    returned: int = 0  # unroutable publishes that were returned
    delivered: int = 0  # to consumers
    delivered_settled: int = 0  # of these, those that need no acknowledgement
    fetched: int = 0  # without a consumer (basic.get)
    fetched_settled: int = 0  # of these, those that need no acknowledgement
    accepted: int = 0  # acknowledged by the client


@attrs.frozen(kw_only=True)
class ConsumerFacts:
    """A consumer as its connection knows it."""

    tag: str = ""  # consumer tag, link name, destination
    connection: str = ""  # the connection's name; empty: none is there (a session without a connection)
    channel: int = 0
    prefetch: int = 0  # the most unsettled deliveries; 0: no limit
