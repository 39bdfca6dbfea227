"""Messages as they are published at another broker over AMQP 1.0: what a consumer of this node gets, without the words
of the broker itself, and with what a shovel overwrites."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from leveret.message import Message
from leveret.protocols.amqp10.broker.encoding import Shown
from leveret.protocols.amqp10.broker.envelope import annotations_section, entries_at, entry
from leveret.protocols.amqp10.codec import performatives as p
from leveret.protocols.amqp10.codec.fields import BINARY
from leveret.protocols.amqp10.codec.sections import APPLICATION, BODY, PROPERTIES, bounds, value_of
from leveret.protocols.amqp10.codec.types import Value, encode, value_at

if TYPE_CHECKING:
    from leveret.features.transfers.definition import Overwrites

APPLICATION_BEGIN: Final = b"\x00\x53\x74"
# The annotations that tell where a message was, and which each broker sets anew.
PLACES: Final = ("x-exchange", "x-routing-key", "x-stream-offset")


def republished(message: Message, overwrites: Overwrites | None) -> tuple[bytes, bytes]:
    """Return a message in two pieces. Raises AmqpError, ValueError, or any error of another protocol's encoding."""
    shown = message.converted
    if not isinstance(shown, Shown):
        shown = message.converted = Shown(message)
    entries = entries_at(shown.annotations, 0) if shown.annotations else {}
    for name in PLACES:
        entries.pop(name, None)
    bare, body = shown.bare, shown.body
    if overwrites is not None:
        entries.update({name: entry(name, value) for name, value in overwrites.annotations.items()})
        if overwrites.properties or overwrites.application:
            bare, body = _overwritten(bare + body, overwrites)
    envelope = shown.envelope
    header = p.Header(durable=envelope.durable or None, priority=envelope.priority, ttl=shown.ttl_ms)
    begin = b"" if header == p.Header() else header.encode()
    return begin + annotations_section(entries.values()) + bare, body


def _overwritten(bare: bytes, overwrites: Overwrites) -> tuple[bytes, bytes]:
    """Return a bare message with other properties and application-properties, and its body."""
    at = bounds(bare)
    properties = _properties(bare[at[PROPERTIES] : at[APPLICATION]], overwrites.properties)
    application = _application(bare[at[APPLICATION] : at[BODY]], overwrites.application)
    return properties + application, bare[at[BODY] :]


def _properties(section: bytes, given: Mapping[str, str | int]) -> bytes:
    if not given:
        return section
    properties = p.decode(section, 0, len(section))[0] if section else p.Properties()
    kinds = {field.name: field.kind for field in p.Properties.FIELDS}
    for name, value in given.items():
        is_binary = kinds[name] is BINARY and isinstance(value, str)
        setattr(properties, name, str(value).encode() if is_binary else value)
    return properties.encode()


def _application(section: bytes, given: Mapping[str, str | int | float | bool]) -> bytes:
    if not given:
        return section
    pairs: dict[Value, Value] = {}
    if section:
        before, _ = value_at(section, value_of(section, 0), len(section))
        assert isinstance(before, dict)
        pairs.update(before)
    pairs.update(given)
    return APPLICATION_BEGIN + encode(pairs)
