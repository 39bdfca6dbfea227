"""Messages of AMQP 1.0: conversion to the core's facts, and rendering for consumers.

    payload ── project ──> facts, properties (header to application-properties, raw), body (body and footer, raw)
    message ── pieces ───> a new header and new annotations, and the bare message as it was published (S229)

`project` reads a published message once, and as little of it as needed. `pieces` renders a message for a consumer:
usually from a cached beginning; a message with a history (deaths, failed deliveries, a stream offset) or from another
protocol takes longer, and the result is cached on it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import attrs

from leveret import values
from leveret.clock import NEVER
from leveret.delivery import Delivery
from leveret.errors import PreconditionFailed
from leveret.message import LOWEST, Death, Encoding, Facts, Message, Notes
from leveret.protocols.amqp10.broker import conversion
from leveret.protocols.amqp10.broker.conversion import LOOKED_INTO_MAX, UINT_MAX, application_at
from leveret.protocols.amqp10.broker.core_values import printed, table, wire
from leveret.protocols.amqp10.broker.envelope import (
    COPIES,
    REMEMBERED_MAX,
    REMEMBERED_SIZE_MAX,
    SHOWN_MAX,
    Envelope,
    annotations_section,
    entry,
    envelope_of,
    require_times,
)
from leveret.protocols.amqp10.broker.envelope import remembered as remembered_envelopes
from leveret.protocols.amqp10.codec import performatives as p
from leveret.protocols.amqp10.codec.errors import SESSION, AmqpError
from leveret.protocols.amqp10.codec.section_scan import is_plain_map, texts_at
from leveret.protocols.amqp10.codec.sections import (
    ANNOTATIONS,
    APPLICATION,
    BODY,
    DELIVERY,
    FOOTER,
    PROPERTIES,
    MalformedError,
    bounds,
    data_begin,
    is_body,
    octets_of,
    value_of,
)
from leveret.protocols.amqp10.codec.types import (
    DecodeError,
    Long,
    Symbol,
    Timestamp,
    UInt,
    ULong,
    Value,
    array_of,
    list_at,
)
from leveret.values import Properties, Table

PRIORITY: Final = 4  # of a message whose header gives none (part 3, section 3.2.1)
EMPTY_SIZE: Final = 4  # bytes of properties that are an empty list
RECEIVED_TIME: Final = "x-opt-rabbitmq-received-time"  # an annotation: ms since 1970-01-01 UTC
AS_SECTIONS: Final = "amqp-1.0"  # the type of messages whose bodies are sections in every protocol (S232)


class Encoding10(Encoding):
    name = "amqp10"

    def headers(self, properties: bytes) -> Table:
        return conversion.headers(properties)

    def read(self, properties: bytes) -> Properties:
        return conversion.read(properties)

    def write(self, properties: Properties) -> bytes:
        return conversion.write(properties)

    def restored(self, facts: Facts, properties: bytes) -> Facts:
        """Return the facts as `project` had them, or `facts` if they differ, as those of dead letters do."""
        at = bounds(properties)
        envelope = envelope_of(properties[: at[PROPERTIES]], at[DELIVERY])
        value = Facts10(envelope, facts.has_headers, facts.user_id, facts.reply_to, facts.cc)
        if envelope.priority is None:
            value.priority = facts.priority
        same = (value.durable, value.priority, value.ttl_ms) == (facts.durable, facts.priority, facts.ttl_ms)
        return value if same else facts

    def property(self, properties: bytes, name: str) -> values.Value:
        if name in conversion.SELECTED:
            return conversion.selected(properties, name)
        return super().property(properties, name)

    def convert(self, message: Message) -> tuple[Properties, bytes]:
        """Join the content of data sections; any other body is kept as sections, with the type `amqp-1.0`."""
        properties = conversion.read(message.properties)
        octets = octets_of(message.body)
        if octets is None:
            return attrs.evolve(properties, type=AS_SECTIONS), message.body
        return properties, octets

    def value(self, message: Message) -> values.Value:
        return conversion.body_value(message.body)

    def octets(self, body: bytes) -> bytes:
        octets = octets_of(body)
        return body if octets is None else octets

    def body(self, octets: bytes) -> bytes:
        return data_begin(octets) + octets

    def require_body(self, body: bytes) -> None:
        if not is_body(body):
            raise PreconditionFailed("a body is not made of sections of AMQP 1.0")

    def published(self, properties: bytes) -> tuple[Facts, bytes]:
        try:
            if bounds(properties)[BODY] < len(properties):
                raise PreconditionFailed("the properties have sections of a body")
            facts, kept, _, _, _ = project(properties + data_begin(b""))
        except AmqpError as error:
            raise PreconditionFailed(f"the properties cannot be read: {error.description}") from None
        return facts, kept

    def with_headers(self, properties: bytes, headers: Table) -> bytes:
        """Add headers as annotations: only those that begin with `x-`, because the bare message is immutable."""
        fields: dict[str, Value] = {}
        for name, value in headers.items():
            if name.startswith("x-") and name.isascii():
                try:
                    fields[name] = wire(value)
                except ValueError:
                    continue
        return _with_annotations(properties, fields)

    def received_at(self, properties: bytes, now_ms: int, overwrites: bool) -> bytes:
        if not overwrites and self.header(properties, RECEIVED_TIME) is not None:
            return properties
        return self.with_headers(properties, {RECEIVED_TIME: now_ms})


ENCODING: Final = Encoding10()


class Facts10(Facts):
    """The facts of a message with the envelope that they were read from."""

    __slots__ = ("envelope",)

    def __init__(
        self,
        envelope: Envelope,
        has_headers: bool,
        user_id: str | None,
        reply_to: str | None,
        cc: tuple[str, ...],
        default_priority: int = PRIORITY,
    ) -> None:
        given = envelope.priority
        super().__init__(
            durable=envelope.durable,
            priority=default_priority if given is None else given or LOWEST,
            ttl_ms=envelope.ttl_ms,
            user_id=user_id,
            reply_to=reply_to,
            cc=cc,
            has_headers=has_headers,
            due_ms=envelope.due_ms,
        )
        self.envelope = envelope

    def due_at(self, due_ms: int) -> Facts10:
        facts = Facts10(self.envelope, self.has_headers, self.user_id, self.reply_to, self.cc, self.priority)
        facts.due_ms, facts.ttl_ms = due_ms, self.ttl_ms
        return facts

    def expiring(self, ttl_ms: int) -> Facts10:
        """Return the same facts of a message that expires, although its header does not say so."""
        facts = self.due_at(self.due_ms)
        facts.ttl_ms = ttl_ms
        return facts


# By envelope, whether there are application-properties, user-id, reply-to and the default priority.
remembered_facts: Final[dict[tuple[Envelope, bool, str | None, str | None, int], Facts10]] = {}
remembered_application: Final[set[bytes]] = set()  # sections that have been checked


def project(
    payload: bytes, at: int = 0, default_priority: int = PRIORITY
) -> tuple[Facts10, bytes, bytes, str | None, str | None]:
    """Return facts, properties, body, `to` and `subject` of a message that a client has sent.

    `default_priority`: of a message whose header gives none.

    Raises AmqpError: amqp:invalid-field for a bad x-cc (S208), amqp:decode-error for a malformed message (S209, X060),
    amqp:resource-limit-exceeded for too many annotations.
    """
    where = bounds(payload, at)
    properties_at, application, body_at = where[PROPERTIES], where[APPLICATION], where[BODY]
    if body_at == where[FOOTER]:
        raise MalformedError("missing_amqp_message_body")
    if where[DELIVERY] == where[ANNOTATIONS]:
        begin, properties = payload[at:properties_at], payload[at:body_at]
    else:  # delivery-annotations are for the broker alone
        begin = payload[at : where[DELIVERY]] + payload[where[ANNOTATIONS] : properties_at]
        properties = begin + payload[properties_at:body_at]
    if len(begin) > LOOKED_INTO_MAX:
        raise AmqpError(p.RESOURCE_LIMIT_EXCEEDED, f"more than {LOOKED_INTO_MAX} octets of annotations")
    envelope = remembered_envelopes.get(begin)  # saves a call for nearly all messages
    if envelope is None:
        envelope = envelope_of(begin, where[DELIVERY] - at)
    has_application = application < body_at
    if has_application and not is_plain_map(payload, application, body_at):
        _check_application(payload, where)
    user_id = to = subject = reply_to = None
    if application - properties_at > EMPTY_SIZE:
        texts = texts_at(payload, properties_at, application)
        user_id, to, subject, reply_to = texts or _texts_at(payload, properties_at, application)
    facts = remembered_facts.get((envelope, has_application, user_id, reply_to, default_priority))
    if facts is None:
        facts = _facts(envelope, has_application, user_id, reply_to, default_priority)
    return facts, properties, payload[body_at:], to, subject


def expiry_of(properties: bytes) -> int | None:
    """Return the absolute-expiry-time of a message, in ms since 1970-01-01 UTC; None if it has none."""
    value = conversion.selected(properties, "absolute_expiry_time")
    return value if isinstance(value, int) and value > 0 else None


def _facts(
    envelope: Envelope,
    has_application: bool,
    user_id: str | None,
    reply_to: str | None,
    default_priority: int,
) -> Facts10:
    if envelope.is_timed:
        require_times(envelope)
    has_headers = has_application or bool(envelope.entries)
    facts = Facts10(envelope, has_headers, user_id, reply_to, _copies(envelope.copies), default_priority)
    if envelope.remembered and len(user_id or "") + len(reply_to or "") <= REMEMBERED_SIZE_MAX:
        if len(remembered_facts) >= REMEMBERED_MAX:
            remembered_facts.clear()
        remembered_facts[envelope, has_application, user_id, reply_to, default_priority] = facts
    return facts


def _copies(listed: Value) -> tuple[str, ...]:
    """Return the routing keys in x-cc. Raises AmqpError (S208)."""
    if listed is None:
        return ()
    if isinstance(listed, list):
        keys = tuple(each for each in listed if type(each) is str)
        if len(keys) == len(listed):
            return keys
    text = f"bad value for 'x-cc' message-annotation: {printed(listed)[:SHOWN_MAX]}"
    raise AmqpError(p.INVALID_FIELD, text)


def _check_application(payload: bytes, where: list[int]) -> None:
    """Check that application-properties can be decoded, because they will be read later. Raises MalformedError."""
    at, end = where[APPLICATION], where[BODY]
    small = end - at <= REMEMBERED_SIZE_MAX
    if small and payload[at:end] in remembered_application:
        return
    try:
        pairs = application_at(payload, where)
    except DecodeError as error:
        raise MalformedError(error.description) from None
    if not all(type(name) is str for name in pairs):
        raise MalformedError("an application property has a name that is no string")
    if small:
        if len(remembered_application) >= REMEMBERED_MAX:
            remembered_application.clear()
        remembered_application.add(payload[at:end])


# The format codes that each field of `properties` may have, and the number of bytes that follow, or the width of their
# size.
NULL: Final = {0x40: 0}
SIZE_OCTET: Final = -1
SIZE_LONG: Final = -2
STRINGS: Final = NULL | {0xA1: SIZE_OCTET, 0xB1: SIZE_LONG}
BINARIES: Final = NULL | {0xA0: SIZE_OCTET, 0xB0: SIZE_LONG}
SYMBOLS: Final = NULL | {0xA3: SIZE_OCTET, 0xB3: SIZE_LONG}
LONGS: Final = {0x55: 1, 0x81: 8}  # not of the specification, but some clients' ids
IDS: Final = STRINGS | BINARIES | {0x44: 0, 0x53: 1, 0x80: 8, 0x98: 16} | LONGS
TIMES: Final = NULL | {0x83: 8}
NUMBERS: Final = NULL | {0x43: 0, 0x52: 1, 0x70: 4}
FIELDS: Final = (
    *(IDS, BINARIES, STRINGS, STRINGS, STRINGS, IDS, SYMBOLS, SYMBOLS),
    *(TIMES, TIMES, STRINGS, NUMBERS, STRINGS),
)
PROPERTIES_BEGIN: Final = b"\x00\x53\x73\xc0"  # of nearly all messages
USER_ID: Final = 1
REPLY_TO: Final = 4  # the last field that is read; `to` and `subject` are between


def _texts_at(payload: bytes, at: int, end: int) -> tuple[str | None, str | None, str | None, str | None]:
    """Return user-id, to, subject and reply-to, the properties that the broker reads.

    All fields are checked, because consumers will read them. Plain properties are read by `section_scan.texts_at`.
    """
    found: list[str | None] = [None, None, None, None]
    try:
        if payload[at : at + 4] == PROPERTIES_BEGIN:
            count, at = payload[at + 5], at + 6
        else:
            count, at, end = list_at(payload, value_of(payload, at), end)
        for place in range(count):
            code = payload[at]
            size = FIELDS[place][code]
            if size >= 0:
                at += 1 + size
                continue
            if size == SIZE_OCTET:
                begin = at + 2
                at = begin + payload[at + 1]
            else:
                begin = at + 5
                at = begin + int.from_bytes(payload[at + 1 : begin])
            octets = payload[begin:at]
            if code & 3 == 1:  # a string
                text = octets.decode()
                if USER_ID < place <= REPLY_TO:
                    found[place - 1] = text
            elif code & 3 == 3:  # a symbol
                octets.decode("ascii")
            elif place == USER_ID:
                found[0] = octets.decode("utf-8", "surrogateescape")
    except DecodeError as error:
        raise MalformedError(error.description) from None
    except (IndexError, KeyError, UnicodeDecodeError):
        raise MalformedError("properties have a field that is not of its type") from None
    if at != end:
        raise MalformedError("properties do not end with their last field")
    return found[0], found[1], found[2], found[3]


# The beginnings of messages without a history, by envelope, exchange and key.
remembered_beginnings: Final[dict[tuple[Envelope, str, str], bytes]] = {}
remembered_headers: Final[dict[tuple[bool, int | None, bool, int], bytes]] = {}


def is_like(message: Message, other: Message) -> bool:
    """Return whether two messages without a history have the same header and annotations in front of what was sent."""
    return (
        message.facts is other.facts
        and message.key == other.key
        and message.exchange == other.exchange
        and message.notes is None
        and other.notes is None
        and message.encoding is ENCODING
    )


def bare(message: Message) -> bytes:
    """Return the sections in front of the body, as they were sent, of a message that `is_like` another."""
    facts = message.facts
    assert isinstance(facts, Facts10)
    return message.properties[facts.envelope.size :]


def split_pieces(message: Message, delivery: Delivery) -> tuple[bytes, bytes, bytes]:
    """Render a message as `pieces` does, in three: what is the same for messages alike, what was sent in front of the
    body, and the body."""
    facts = message.facts
    if type(facts) is not Facts10 or message.notes is not None or delivery.redelivered or delivery.attempts:
        begin, body = _pieces_with_history(message, delivery)
        return begin, b"", body
    envelope = facts.envelope
    if envelope.ttl_ms is not None:
        begin = _header(envelope, _ttl_left(envelope.ttl_ms, delivery), True, 0) + _annotations(
            message, envelope
        )
        return begin, message.properties[envelope.size :], message.body
    begin_known = remembered_beginnings.get((envelope, message.exchange, message.key))
    begin = _beginning(message, envelope) if begin_known is None else begin_known
    return begin, message.properties[envelope.size :], message.body


def pieces(message: Message, delivery: Delivery) -> tuple[bytes, bytes]:
    """Render a message for a consumer: the bytes in front of the body, and the body.

    Raises any error of another protocol's encoding.
    """
    begin, middle, body = split_pieces(message, delivery)
    return begin + middle, body


def _beginning(message: Message, envelope: Envelope) -> bytes:
    begin = _header(envelope, None, True, 0) + _annotations(message, envelope)
    if envelope.remembered and len(begin) <= 8 * REMEMBERED_SIZE_MAX:
        if len(remembered_beginnings) >= REMEMBERED_MAX:
            remembered_beginnings.clear()
        remembered_beginnings[envelope, message.exchange, message.key] = begin
    return begin


def _pieces_with_history(message: Message, delivery: Delivery) -> tuple[bytes, bytes]:
    shown = message.converted
    if not isinstance(shown, Shown):
        shown = message.converted = Shown(message)
    first = not (delivery.redelivered or delivery.attempts or shown.dead)
    ttl_ms = None if shown.ttl_ms is None else _ttl_left(shown.ttl_ms, delivery)
    begin = _header(shown.envelope, ttl_ms, first, delivery.attempts) + shown.annotations
    return begin + shown.bare, shown.body


def _ttl_left(ttl_ms: int, delivery: Delivery) -> int:
    """Return what is left of a message's time to live, after its time in the queue (part 3, section 3.2.1).

    At least 1 is left: receivers take 0 for a message that does not expire.
    """
    if delivery.expires_at == NEVER:
        return ttl_ms
    limit_ms = delivery.queue.limits.message_ttl_ms
    allowed_ms = ttl_ms if limit_ms is None else min(ttl_ms, limit_ms)
    left_ms = round(1000 * (delivery.expires_at - delivery.queue.settling.now))
    return max(min(ttl_ms, 1), min(ttl_ms, ttl_ms - allowed_ms + left_ms))


class Shown:
    """A message rendered for 1.0 without its header, cached on the message."""

    __slots__ = ("annotations", "bare", "body", "dead", "envelope", "ttl_ms")

    def __init__(self, message: Message) -> None:
        if message.encoding is ENCODING:
            properties, before, self.body = message.properties, b"", message.body
        else:
            properties, before, self.body = _converted(message)
        self.dead = message.notes is not None and bool(message.notes.deaths)
        at = bounds(properties)
        self.envelope = envelope_of(properties[: at[PROPERTIES]], at[DELIVERY])
        self.ttl_ms = None if self.dead else self.envelope.ttl_ms
        self.annotations = _annotations(message, self.envelope)
        self.bare = properties[self.envelope.size :] + before


def _converted(message: Message) -> tuple[bytes, bytes, bytes]:
    """Convert a message of another protocol; return its properties, the beginning of its body, and the rest of that."""
    properties, body = message.encoding.convert(message)
    subject = message.encoding.property(message.properties, "subject")
    if properties.type == AS_SECTIONS and is_body(body):
        return conversion.write(attrs.evolve(properties, type=None), subject), b"", body
    value = message.encoding.value(message)
    section = None if value is None else conversion.value_section(value)
    if section is not None:
        return conversion.write(attrs.evolve(properties, content_type=None), subject), b"", section
    return conversion.write(properties, subject), data_begin(body), body


def _header(envelope: Envelope, ttl_ms: int | None, first: bool, attempts: int) -> bytes:
    """Encode the header section: the publisher's fields, first-acquirer, and delivery-count."""
    looks = (envelope.durable, envelope.priority, first, attempts)
    header = None if ttl_ms is not None else remembered_headers.get(looks)
    if header is None:
        header = p.Header(
            durable=envelope.durable,
            priority=envelope.priority,
            ttl=ttl_ms,
            first_acquirer=first,
            delivery_count=min(attempts, UINT_MAX) or None,
        ).encode()
        if ttl_ms is None:  # hardly two messages have as long to live
            if len(remembered_headers) >= REMEMBERED_MAX:
                remembered_headers.clear()
            remembered_headers[looks] = header
    return header


DEATH_ANNOTATIONS: Final = frozenset(
    {
        *("x-death", "x-opt-deaths"),
        *(
            f"x-{which}-death-{what}"
            for which in ("first", "last")
            for what in ("reason", "queue", "exchange")
        ),
    }
)
# The annotations that only the broker sets on a message.
BROKERS_OWN: Final = DEATH_ANNOTATIONS | {COPIES, "x-exchange", "x-routing-key"}


def _annotations(message: Message, envelope: Envelope) -> bytes:
    """Return the section of the publisher's annotations and the broker's (S230)."""
    entries = dict(envelope.entries)
    notes = message.notes
    if notes is not None:
        if notes.deaths:
            _bury(entries, notes, message.facts)
        if notes.offset is not None:
            entries["x-stream-offset"] = entry("x-stream-offset", Long(notes.offset))
    entries["x-exchange"] = entry("x-exchange", _unicode(message.exchange))
    entries["x-routing-key"] = entry("x-routing-key", _unicode(message.key))
    return annotations_section(entries.values())


def _bury(entries: dict[str, bytes], notes: Notes, facts: Facts) -> None:
    """Add the death annotations (X031-X036): deaths newest first, the first and last of them, no replaced x-cc."""
    for name in DEATH_ANNOTATIONS if facts.cc else DEATH_ANNOTATIONS | {COPIES}:
        entries.pop(name, None)
    entries["x-opt-deaths"] = entry("x-opt-deaths", array_of([_death(death) for death in notes.deaths]))
    for which, death in (("first", notes.first_death), ("last", notes.last_death)):
        if death is not None:
            for what, text in zip(("reason", "queue", "exchange"), death, strict=True):
                name = f"x-{which}-death-{what}"
                entries[name] = entry(name, _unicode(text))


def _death(death: Death) -> dict[Value, Value]:
    fields: dict[Value, Value] = {
        Symbol("queue"): _unicode(death.queue),
        Symbol("reason"): Symbol(death.reason),
        Symbol("count"): ULong(death.count),
        Symbol("first-time"): Timestamp(1000 * death.first_time),
        Symbol("last-time"): Timestamp(1000 * death.last_time),
        Symbol("exchange"): _unicode(death.exchange),
        Symbol("routing-keys"): array_of([_unicode(key) for key in death.keys]),
    }
    if death.ttl_ms is not None and death.ttl_ms <= UINT_MAX:
        return {Symbol("ttl"): UInt(death.ttl_ms), **fields}
    return fields


def _unicode(name: str) -> str:
    """Return a name as a string; invalid UTF-8 is replaced."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return name


def annotated(message: Message, annotations: Mapping[str, Value]) -> Message:
    """Return the message with annotations that a consumer adds for later deliveries (X068); it shares the body.

    The broker's own annotations (x-exchange, x-opt-deaths, ...) are not changed, and nothing is if the properties would
    be larger than LOOKED_INTO_MAX. Raises AmqpError amqp:invalid-field for a name that is reserved.
    """
    for name in annotations:
        if not (name.startswith("x-") and name.isascii()):
            text = f"message annotation key '{name[:SHOWN_MAX]}' does not begin with 'x-'"
            raise AmqpError(p.INVALID_FIELD, text, SESSION)
    added = {str(name): value for name, value in annotations.items() if name not in BROKERS_OWN}
    if message.encoding is ENCODING:
        properties = _with_annotations(message.properties, added)
    else:
        properties = message.encoding.with_headers(message.properties, table(added))
    if len(properties) > LOOKED_INTO_MAX:
        return message
    return message.headed(properties)


def _with_annotations(properties: bytes, added: Mapping[str, Value]) -> bytes:
    at = bounds(properties)
    entries = dict(envelope_of(properties[: at[PROPERTIES]], at[DELIVERY]).entries)
    for name, value in added.items():
        entries[name] = entry(name, value)
    section = annotations_section(entries.values())
    return properties[: at[DELIVERY]] + section + properties[at[PROPERTIES] :]
