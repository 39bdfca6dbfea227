"""Messages become the raw bytes of records, without what must not be written, and back.

A raw message is a record of the store (`store/chunk.py`: `record_of`): exchange, key, properties, body and facts. What
is redacted is replaced before anything is written: a body by zeros of the same length, a header by the text "redacted",
a property by its absence. Digests are of what is written, so that they tell nothing about what is not.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from fnmatch import fnmatchcase
from functools import cache
from hashlib import blake2b
from typing import Final
from zlib import crc32

import attrs

from leveret.durable.store.chunk import message_of
from leveret.durable.store.origin import EncodingOf
from leveret.message import PARTICULAR, Encoding, Facts, Message
from leveret.values import Json, Properties

REDACTED: Final = "redacted"
DIGEST_OCTETS: Final = 8
WILD: Final = re.compile(r"\*|\?|\[.*?\]")
NAMES: Final = (
    *(each.name for each in attrs.fields(Properties) if each.name not in ("headers", "durable")),
    *sorted(PARTICULAR),
)
OF_FACTS: Final = ("user_id", "reply_to")


@attrs.frozen
class Redaction:
    """The parts of messages that are not written. Patterns are as for files (`*token*`); capitals do not matter."""

    bodies: bool = False
    headers: tuple[str, ...] = ()
    properties: tuple[str, ...] = ()
    _named: tuple[str, ...] = attrs.field(init=False, eq=False, repr=False)

    @_named.default
    def _properties_named(self) -> tuple[str, ...]:
        return tuple(matching(NAMES, self.properties))

    def to_json(self) -> dict[str, Json]:
        return {"bodies": self.bodies, "headers": list(self.headers), "properties": list(self.properties)}

    def applied(self, message: Message) -> Message:
        """Return a message without what must not be written; the same one if there is nothing of it."""
        if not (self.bodies or self.headers or self.properties):
            return message
        encoding, facts, body = message.encoding, message.facts, message.body
        named = self._named
        try:
            properties = self._properties(encoding, message.properties, named)
            if self.bodies:
                body = encoding.body(bytes(len(encoding.octets(body))))
        except Exception:  # what cannot be read cannot be told to be harmless
            properties, body, named = encoding.write(Properties()), b"", OF_FACTS
        if named:
            facts = _without(facts, named)
        return Message(encoding, message.exchange, message.key, properties, body, facts, message.notes)

    def _properties(self, encoding: Encoding, properties: bytes, named: tuple[str, ...]) -> bytes:
        """Return property bytes without these properties, and without the values of headers that a pattern names.

        Bytes in which no such name can be are kept. Others are written anew from what all protocols have: whatever else
        was in them is left out, since nobody could tell what it is.
        """
        may_name = self._may_name(properties)
        if not (named or may_name):
            return properties
        converted = encoding.read(properties)
        if not may_name and all(
            name not in PARTICULAR and getattr(converted, name) is None for name in named
        ):
            return properties
        secret = matching(converted.headers or (), self.headers)
        headers = {**converted.headers, **dict.fromkeys(secret, REDACTED)} if converted.headers else None
        kept = attrs.asdict(converted, recurse=False)
        kept["headers"] = headers
        for name in kept.keys() & set(named):
            kept[name] = None
        return encoding.write(Properties(**kept))

    def _may_name(self, properties: bytes) -> bool:
        """Return whether the name of a header that is to be redacted may be in these bytes."""
        lowered = properties.lower()
        return any(part in lowered for part in map(literal, self.headers))


def _without(facts: Facts, names: Collection[str]) -> Facts:
    """Return facts that do not tell properties of these names."""
    left = facts.copy()
    if "user_id" in names:
        left.user_id = None
    if "reply_to" in names:
        left.reply_to = None
    return left


def matching(names: Iterable[str], patterns: Iterable[str]) -> list[str]:
    """Return the names that one of the patterns matches, whatever the capitals."""
    lowered = [pattern.lower() for pattern in patterns]
    return [name for name in names if any(fnmatchcase(name.lower(), pattern) for pattern in lowered)]


@cache
def literal(pattern: str) -> bytes:
    """Return the longest part of a pattern that stands in each name that it matches; empty if there is none."""
    parts = [part.encode() for part in WILD.split(pattern.lower()) if part.isascii()]
    return max(parts, key=len, default=b"")


def read(raw: bytes, encoding_of: EncodingOf) -> Message:
    """Return the message in raw bytes. Raises DamagedError if its protocol is not installed."""
    return message_of(raw, crc32(raw), encoding_of)


def digest(message: Message) -> str:
    """Return the digest of a message's properties and body, in hexadecimal digits."""
    summed = blake2b(len(message.properties).to_bytes(8, "big"), digest_size=DIGEST_OCTETS)
    summed.update(message.properties)
    summed.update(message.body)
    return summed.hexdigest()
