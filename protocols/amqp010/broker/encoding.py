"""The encoding of AMQP 0-10 messages: read facts for the core, and render messages for consumers.

    header ── envelope_of ──> facts, routing key       header segment: the publisher's bytes, kept as `properties`
    message ── rendered ───> header, body              delivery-properties made anew, the rest as it came

Message-properties, fragment-properties and unknown structs are sent unchanged. Only messages with a history (deaths, a
position in a stream) or from another protocol get new headers, which are kept with the message.
"""

from __future__ import annotations

from typing import Final

import attrs

from leveret import values
from leveret.errors import PreconditionFailed
from leveret.message import PARTICULAR, Death, Encoding, Facts, Message, Notes
from leveret.protocols.amqp010.broker import conversion
from leveret.protocols.amqp010.broker import envelope as e
from leveret.protocols.amqp010.broker.conversion import edited, entries_of
from leveret.protocols.amqp010.broker.envelope import (
    REMEMBERED_MAX,
    REMEMBERED_SIZE_MAX,
    Envelope,
    envelope_of,
)
from leveret.protocols.amqp010.codec.types import MalformedError
from leveret.values import Int64, Properties, Table, Timestamp, Value

__all__ = ["ENCODING", "Encoding010", "Envelope", "envelope_of", "rendered"]

HEADER_MAX: Final = 1 << 20  # bytes of a header segment
# An unknown struct: the publisher sent no body, not an empty one.
NO_BODY: Final = b"\x00\x00\x00\x02\xff\xff"
OFFSET: Final = "x-stream-offset"  # the position of a delivery in its stream


class Encoding010(Encoding):
    name = "amqp010"

    def headers(self, properties: bytes) -> Table:
        return conversion.headers(properties)

    def read(self, properties: bytes) -> Properties:
        return conversion.read(properties)

    def write(self, properties: Properties) -> bytes:
        return conversion.write(properties)

    def value(self, message: Message) -> Value:
        return conversion.body_value(message.properties, message.body)

    def published(self, properties: bytes) -> tuple[Facts, bytes]:
        """Return the facts and properties. An expiration and a routing key have an effect in transfers only."""
        if len(properties) > HEADER_MAX:
            raise PreconditionFailed(
                f"the properties have {len(properties)} octets, {HEADER_MAX} are the most"
            )
        try:
            return envelope_of(properties).facts, properties
        except MalformedError as error:
            raise PreconditionFailed(f"the properties cannot be read: {error}") from None

    def property(self, properties: bytes, name: str) -> Value:
        if name == "subject":
            return conversion.headers(properties).get(conversion.SUBJECT)
        if name in PARTICULAR:
            return None
        return super().property(properties, name)

    def with_headers(self, properties: bytes, headers: Table) -> bytes:
        shown = edited(properties, entries_of(headers))
        return shown if len(shown) <= HEADER_MAX else properties


ENCODING: Final = Encoding010()


# Rendering for consumers.

# Delivery-properties as they are sent, in front of the timestamp and behind it, by those of the publisher without it,
# exchange, key, and whether they are redelivered.
remembered: Final[dict[tuple[bytes, str, str, bool], tuple[bytes, bytes]]] = {}


def rendered(
    message: Message, redelivered: bool = False, ttl_left_ms: int | None = None
) -> tuple[bytes, bytes | None]:
    """Return header segment and body for a consumer. The body is None if the publisher sent none, which Python clients
    tell from an empty one. Raises what another protocol's encoding raises.

    `ttl_left_ms` is how long the message has to live, if its publisher limited that (`facts.ttl_ms` is not None). Takes
    1.5 us for a message without a history.
    """
    header, body = given(message)
    if message.notes is not None or message.encoding is not ENCODING:
        shown = message.converted
        if not isinstance(shown, Shown):
            shown = message.converted = Shown(message)
        header, body = shown.header, shown.body
    begin, end = e.delivery_at(header)
    rest = header[:begin] + header[end:]
    if ttl_left_ms is not None:
        delivery = header[begin:end]
        return rest + _delivery(delivery, message.exchange, message.key, redelivered, ttl_left_ms), body
    time_at = e.TIME_AT[header[begin + e.FIELDS_AT]] if begin < end else 0
    looks = (e.timeless(header, begin, end, time_at), message.exchange, message.key, redelivered)
    halves = remembered.get(looks) or _halves(header[begin:end], looks)
    if not time_at:
        return rest + halves[0], body
    begin += time_at
    return b"".join((rest, halves[0], header[begin : begin + e.TIME_SIZE], halves[1])), body


def given(message: Message) -> tuple[bytes, bytes | None]:
    """Return header segment and body as a publisher of 0-10 sent them."""
    header, body = message.properties, message.body
    if not body and header.endswith(NO_BODY):
        return header[: -len(NO_BODY)], None
    return header, body


def _halves(given: bytes, looks: tuple[bytes, str, str, bool]) -> tuple[bytes, bytes]:
    """Return what stands before and behind the timestamp in delivery-properties for a consumer, and remember it.

    Without a timestamp all is before it.
    """
    _, exchange, key, redelivered = looks
    delivery = _delivery(given, exchange, key, redelivered, None)
    time_at = e.TIME_AT[delivery[e.FIELDS_AT]]
    halves = (delivery[:time_at], delivery[time_at + e.TIME_SIZE :]) if time_at else (delivery, b"")
    if max(len(delivery), len(given)) <= 2 * REMEMBERED_SIZE_MAX:
        if len(remembered) >= REMEMBERED_MAX:
            remembered.clear()
        remembered[looks] = halves
    return halves


def _delivery(given: bytes, exchange: str, key: str, redelivered: bool, ttl_left_ms: int | None) -> bytes:
    """Return delivery-properties for a consumer: exchange, routing key, redelivered, and what is left of the TTL."""
    fields = e.delivery_fields(given)
    fields[e.REDELIVERED] = b"" if redelivered else None
    fields[e.EXCHANGE] = _cut(exchange)
    fields[e.ROUTING_KEY] = _cut(key)
    if ttl_left_ms is None:
        fields[e.TTL] = fields[e.EXPIRATION] = None
    else:
        fields[e.TTL] = max(0, ttl_left_ms).to_bytes(8, "big")
    return e.struct_of(e.DELIVERY, fields, e.DELIVERY_WIDTHS)


def _cut(name: str) -> bytes:
    """Return a name as a str8, cut at 255 bytes: other protocols have longer names."""
    return name.encode("utf-8", "surrogateescape")[: e.SHORT_MAX]


class Shown:
    """A message rendered for 0-10 except for its delivery-properties, kept with the message."""

    __slots__ = ("body", "header")
    body: bytes | None

    def __init__(self, message: Message) -> None:
        encoding, notes = message.encoding, message.notes
        if encoding is ENCODING:
            header, self.body = given(message)
        else:
            properties, self.body = encoding.convert(message)
            if (value := encoding.value(message)) is not None and (body := conversion.body_of(value)):
                content_type, self.body = body
                if isinstance(value, str):
                    content_type = properties.content_type or content_type
                # its type `amqp-1.0` does not apply here
                properties = attrs.evolve(properties, content_type=content_type, type=None)
            header = conversion.write(properties, encoding.property(message.properties, "subject"))
        if notes is not None:
            header = _noted(header, message, notes)
        self.header = header


DEATH_HEADERS: Final = frozenset(
    {
        "x-death",
        *(
            f"x-{which}-death-{what}"
            for which in ("first", "last")
            for what in ("reason", "queue", "exchange")
        ),
    }
)


def _noted(header: bytes, message: Message, notes: Notes) -> bytes:
    """Add the headers of X031-X036: x-death newest first, first and last death, offset; remove a replaced CC."""
    added: dict[str, values.Value] = {}
    removed: frozenset[str] = frozenset()
    if notes.deaths:
        # in 0-10 CC is an ordinary header
        replaced = message.encoding is not ENCODING and not message.facts.cc
        removed = DEATH_HEADERS | {"CC"} if replaced else DEATH_HEADERS
        added["x-death"] = [_death(death) for death in notes.deaths]
        for which, death in (("first", notes.first_death), ("last", notes.last_death)):
            if death is not None:
                for what, text in zip(("reason", "queue", "exchange"), death, strict=True):
                    added[f"x-{which}-death-{what}"] = text
    if notes.offset is not None:
        added[OFFSET] = Int64(notes.offset)
    return edited(header, entries_of(added), removed)


def _death(death: Death) -> Table:
    fields: dict[str, values.Value] = {
        "count": Int64(death.count),
        "reason": death.reason,
        "queue": death.queue,
        "time": Timestamp(death.first_time),
        "exchange": death.exchange,
        "routing-keys": list(death.keys),
    }
    if death.ttl_ms is not None:
        fields["original-expiration"] = str(death.ttl_ms)
    return fields
