"""The typed values that protocols and the core share: what may stand in headers and arguments.

Every protocol decodes its own wire types into these Python values and encodes them back. Two subclasses carry the
one distinction that Python's own types lack; everything else is a plain value.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import TypeAlias

import attrs

Value: TypeAlias = (
    "bool | int | float | Decimal | str | bytes | bytearray | Sequence[Value] | Mapping[str, Value] | None"
)
Table: TypeAlias = Mapping[str, Value]


class Timestamp(int):
    """Whole seconds since 1970-01-01 UTC, where a wire format has a type of its own for them."""

    __slots__ = ()


@attrs.frozen
class Properties:
    """A message's properties in neutral names: what encodings convert through. None: absent."""

    content_type: str | None = None
    content_encoding: str | None = None
    headers: Table | None = None
    durable: bool = False
    priority: int | None = None
    correlation_id: str | None = None
    reply_to: str | None = None
    ttl_ms: int | None = None
    message_id: str | None = None
    timestamp: int | None = None  # seconds since 1970-01-01 UTC
    type: str | None = None
    user_id: str | None = None
    app_id: str | None = None


def type_name(value: Value) -> str:
    """The field's name for a value's type, as error texts print it (`signedint`, `longstr`, ...)."""
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, Timestamp):
        return "timestamp"
    if isinstance(value, int):
        return "signedint" if -(2**31) <= value < 2**31 else "long"
    for kind, name in _NAMES:
        if isinstance(value, kind):
            return name
    return "void"


_NAMES: tuple[tuple[type, str], ...] = (
    (float, "double"),
    (Decimal, "decimal"),
    (str, "longstr"),
    (bytearray, "binary"),
    (bytes, "longstr"),
    (Mapping, "table"),
    (Sequence, "array"),
)


def printed(value: Value) -> str:
    """A value as error texts show it: strings bare, truth in lower case."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode("utf-8", "backslashreplace")
    return str(value)
