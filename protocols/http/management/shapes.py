"""Show messages of any protocol as JSON, like RabbitMQ's API, and read those to be published from JSON.

    Message ──its encoding──> neutral properties, bytes ──> JSON          JSON ──> neutral properties ──> Message

Payloads that are not UTF-8 are written in base64, as are all if the request wants it.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

import attrs

from leveret.broker import Broker
from leveret.limits import TTL_MAX_MS
from leveret.message import Death, Encoding, Message, Notes
from leveret.observability.strict_json import strict
from leveret.observability.system_messages import DURABLE, SPOKEN, said_of
from leveret.protocols.http.management.request_body import JsonObject, bad, shown, storable, table_in, text_in
from leveret.protocols.http.server.request import Refused
from leveret.values import Json, Properties, Table, Timestamp, Value, as_json

AUTO: Final = "auto"
BASE64: Final = "base64"
STRING: Final = "string"
SHORT_MAX: Final = 255  # bytes of a property that is a text
PRIORITY_MAX: Final = 255
TIMESTAMP_MAX: Final = 253_402_300_800  # the year 10000
TEXTS: Final = (
    "content_type",
    "content_encoding",
    "correlation_id",
    "reply_to",
    "message_id",
    "type",
    "user_id",
    "app_id",
)


@attrs.frozen
class PayloadView:
    """The way in which a request wants to see payloads."""

    encoding: str  # auto or base64
    truncate: int | None  # bytes; all of them if None


# Messages to JSON.


def shown_message(message: Message, redelivered: bool, look: PayloadView, more: Mapping[str, Json]) -> bytes:
    """Return one message as a JSON object."""
    properties, body = message.encoding.convert(message)
    payload, encoding = payload_of(bytes(body[: look.truncate]), look.encoding)
    row = {
        "payload_bytes": len(body),
        "redelivered": redelivered,
        "exchange": message.exchange,
        "routing_key": message.key,
        **more,
        "properties": properties_json(properties, message.notes),
        "payload_encoding": encoding,
    }
    return b'%s,"payload":%s}' % (strict(json.dumps(row)).encode()[:-1], payload)


def payload_of(octets: bytes, encoding: str) -> tuple[bytes, str]:
    """Return a payload as JSON, and the name of its encoding."""
    if encoding == AUTO:
        try:
            return json.dumps(octets.decode()).encode(), STRING
        except UnicodeDecodeError:
            pass
    return b'"%s"' % base64.b64encode(octets), BASE64


def properties_json(properties: Properties, notes: Notes | None) -> Json:
    """Return the properties as JSON; an empty list if there are none, as in RabbitMQ."""
    headers = {**(properties.headers or {}), **history(notes)}
    fields: dict[str, Value] = {**said_of(properties)}
    if headers:
        fields["headers"] = headers
    return as_json(fields) if fields else []


def history(notes: Notes | None) -> Table:
    """Return the broker's notes on a message as the headers that 0-9-1 has for them."""
    if notes is None:
        return {}
    headers: dict[str, Value] = {}
    if notes.deaths:
        headers["x-death"] = [death_json(death) for death in notes.deaths]
    for which, death in (("first", notes.first_death), ("last", notes.last_death)):
        if death is not None:
            for what, text in zip(("reason", "queue", "exchange"), death, strict=True):
                headers[f"x-{which}-death-{what}"] = text
    if notes.offset is not None:
        headers["x-stream-offset"] = notes.offset
    return headers


def death_json(death: Death) -> Table:
    ttl: Table = {} if death.ttl_ms is None else {"original-expiration": str(death.ttl_ms)}
    return {
        "count": death.count,
        "reason": death.reason,
        "queue": death.queue,
        "time": death.first_time,
        "exchange": death.exchange,
        "routing-keys": list(death.keys),
        **ttl,
    }


# JSON to messages.


def message_in(body: JsonObject, broker: Broker, exchange: str, size_max: int) -> Message:
    """Read a message of 0-9-1 from a body. Raises Refused or PreconditionFailed if something is wrong with it."""
    octets = octets_in(body)
    if len(octets) > size_max:
        raise bad(
            f"message size {len(octets)} is larger than configured max size {size_max} (limits.message_size_max)"
        )
    key = short(text_in(body, "routing_key"), "routing_key")
    encoding, properties = encoding_for(broker), properties_in(table_in(body, "properties"))
    written = encoding.write(properties)
    if properties.headers and not encoding.headers(written):
        raise bad("the headers are too large")
    facts, kept = encoding.published(written)
    return Message(encoding, exchange, key, kept, encoding.body(octets), facts)


def encoding_for(broker: Broker) -> Encoding:
    """Return the encoding of 0-9-1, or another if the node does not speak it. Raises Refused if it speaks none."""
    made = broker.encodings.get(SPOKEN) or next(iter(broker.encodings.values()), None)
    if made is None:
        raise Refused(HTTPStatus.NOT_IMPLEMENTED, "this node has no protocol to encode messages with")
    return made()


def octets_in(body: JsonObject) -> bytes:
    """Return the bytes of the payload. Raises Refused if it is not a text in a known encoding."""
    payload, encoding = body.get("payload"), body.get("payload_encoding")
    if not isinstance(payload, str):
        raise bad("payload_not_string")
    if encoding == STRING:
        return storable(payload).encode()
    if encoding != BASE64:
        raise bad(["unsupported_encoding", shown(encoding)])
    try:
        return base64.b64decode(payload, validate=True)
    except (binascii.Error, ValueError):
        raise bad(["not_base64", shown(payload)]) from None


def properties_in(fields: Table) -> Properties:
    """Read the properties that RabbitMQ's API knows, and ignore others. Raises Refused if one is wrong."""
    headers = fields.get("headers")
    if headers is not None and not isinstance(headers, Mapping) and headers != []:
        raise bad(["not_map", "headers"])
    texts = {name: short(each, name) for name in TEXTS if (each := fields.get(name)) is not None}
    timestamp = whole(fields, "timestamp", TIMESTAMP_MAX)
    return Properties(
        content_type=texts.get("content_type"),
        content_encoding=texts.get("content_encoding"),
        headers=headers if isinstance(headers, Mapping) else None,
        durable=whole(fields, "delivery_mode", DURABLE) == DURABLE,
        priority=whole(fields, "priority", PRIORITY_MAX),
        correlation_id=texts.get("correlation_id"),
        reply_to=texts.get("reply_to"),
        ttl_ms=ttl_ms(fields.get("expiration")),
        message_id=texts.get("message_id"),
        timestamp=None if timestamp is None else Timestamp(timestamp),
        type=texts.get("type"),
        user_id=texts.get("user_id"),
        app_id=texts.get("app_id"),
    )


def short(given: object, name: str) -> str:
    """Return a text that fits a property. Raises Refused."""
    if not isinstance(given, str):
        raise bad(["not_string", name])
    if len(storable(given).encode()) > SHORT_MAX:
        raise bad(f"{name} has more than {SHORT_MAX} bytes")
    return given


def whole(fields: Table, name: str, most: int) -> int | None:
    """Return a number, or None if it is absent. Raises Refused if it is not a whole number from 0 to `most`."""
    given = fields.get(name)
    if given is None:
        return None
    if not isinstance(given, int) or isinstance(given, bool):
        raise bad(["not_int", name])
    if not 0 <= given <= most:
        raise bad(f"{name} is not within 0 and {most}")
    return given


def ttl_ms(given: Value) -> int | None:
    """Return an expiration, which is a number written as a text, as in 0-9-1. Raises Refused."""
    if given is None:
        return None
    digits = str(given)
    if not (isinstance(given, str) and digits.isascii() and digits.isdigit() and len(digits) <= 12):
        raise bad(f"406 PRECONDITION_FAILED - invalid expiration '{shown(given)}': no_integer")
    if int(digits) > TTL_MAX_MS:
        raise bad(f"406 PRECONDITION_FAILED - invalid expiration '{digits}': value_too_large")
    return int(digits)
