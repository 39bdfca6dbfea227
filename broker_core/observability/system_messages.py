"""Messages of the broker itself, such as traces and events, whose content is in the headers.

They are AMQP 0-9-1 messages, because headers of 0-9-1 can hold lists and tables.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from leveret.errors import Failure
from leveret.message import Facts, Message
from leveret.values import Properties, Table, Value

if TYPE_CHECKING:
    from leveret.broker import Broker

SPOKEN: Final = "amqp091"
DURABLE: Final = 2  # the delivery mode
ALIKE: Final = (
    "content_type",
    "content_encoding",
    "headers",
    "priority",
    "correlation_id",
    "reply_to",
    "message_id",
    "timestamp",
    "type",
    "user_id",
    "app_id",
)


def as_message(
    broker: Broker,
    exchange: str,
    key: str,
    headers: Table,
    body: bytes,
    durable: bool = False,
    timestamp: int | None = None,
) -> Message | None:
    """Return a message with these headers, or None if the broker does not serve 0-9-1."""
    made = broker.encodings.get(SPOKEN)
    if made is None:
        return None
    encoding = made()
    octets = encoding.write(Properties(headers=headers, durable=durable, timestamp=timestamp))
    try:
        facts, octets = encoding.published(octets)
    except Failure:
        facts = Facts(durable=durable, has_headers=True)
    return Message(encoding, exchange, key, octets, body, facts)


def said_of(properties: Properties) -> Table:
    """Return properties as a table, under their names in 0-9-1; absent ones are left out."""
    fields: dict[str, Value] = {
        name: found for name in ALIKE if (found := getattr(properties, name)) is not None
    }
    if properties.durable:
        fields["delivery_mode"] = DURABLE
    if properties.ttl_ms is not None:
        fields["expiration"] = str(properties.ttl_ms)
    return fields
