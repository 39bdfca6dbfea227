"""The typed values of headers and arguments, which protocols and the core share.

Every protocol decodes its own wire types into these Python values and encodes them back. Subclasses carry the
distinctions that Python's own types lack: how wide a number was on the wire, and what is a time. They compare, hash
and print as the numbers they are, so most code need not know them. A plain int is 32 bits wide if it fits, else 64; a
plain float has double precision.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from math import isfinite
from typing import Final, TypeAlias
from uuid import UUID

import attrs

Value: TypeAlias = (
    "bool | int | float | Decimal | UUID | str | bytes | bytearray"
    " | Sequence[Value] | Mapping[str, Value] | None"
)
Table: TypeAlias = Mapping[str, Value]
Json: TypeAlias = "str | int | float | bool | Sequence[Json] | Mapping[str, Json] | None"
Id: TypeAlias = str | bytes | int | UUID  # a message-id or correlation-id


class Timestamp(int):
    """A time in whole seconds since 1970-01-01 UTC, where a wire format has a type for that."""

    __slots__ = ()


class Int8(int):
    """A number that was 8 bits wide on the wire. It and the types below are sent as wide as they came in."""

    __slots__ = ()


class UInt8(int):
    __slots__ = ()


class Int16(int):
    __slots__ = ()


class UInt16(int):
    __slots__ = ()


class UInt32(int):
    __slots__ = ()


class Int64(int):
    __slots__ = ()


class UInt64(int):
    __slots__ = ()


class Float32(float):
    """A number of single precision."""

    __slots__ = ()


@attrs.frozen
class Properties:
    """The properties of a message in neutral names, through which encodings convert. None: absent."""

    content_type: str | None = None
    content_encoding: str | None = None
    headers: Table | None = None
    durable: bool = False
    priority: int | None = None
    correlation_id: Id | None = None
    reply_to: str | None = None  # a queue's name, or any other address that the publisher gave
    ttl_ms: int | None = None
    message_id: Id | None = None
    timestamp: int | None = None  # seconds since 1970-01-01 UTC
    type: str | None = None
    user_id: str | None = None
    app_id: str | None = None


def type_name(value: Value) -> str:
    """Return the name of a value's type as error texts print it (`signedint`, `longstr`, ...)."""
    name = _NAMES.get(type(value))
    if name is not None:
        return name
    if isinstance(value, int):
        return "signedint" if -(2**31) <= value < 2**31 else "long"
    return next((name for kind, name in _KINDS if isinstance(value, kind)), "void")


_NAMES: dict[type, str] = {
    bool: "bool",
    Timestamp: "timestamp",
    Int8: "byte",
    UInt8: "unsignedbyte",
    Int16: "short",
    UInt16: "unsignedshort",
    UInt32: "unsignedint",
    Int64: "long",
    UInt64: "long",
    Float32: "float",
}
_KINDS: tuple[tuple[type, str], ...] = (
    (float, "double"),
    (Decimal, "decimal"),
    (str, "longstr"),
    (bytearray, "binary"),
    (bytes, "longstr"),
    (Mapping, "table"),
    (Sequence, "array"),
    (UUID, "uuid"),
)


def printed(value: Value) -> str:
    """Return a value as error texts show it: strings without quotes, booleans in lower case."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode("utf-8", "backslashreplace")
    return str(value)


NOTHING: Final[frozenset[object]] = frozenset()  # one for all bindings without arguments


def frozen(value: Value) -> object:
    """Return a hashable stand-in for a value; equal values have equal stand-ins."""
    if isinstance(value, dict):
        return frozenset((name, frozen(item)) for name, item in value.items()) if value else NOTHING
    if isinstance(value, list | tuple):
        return tuple(frozen(item) for item in value)
    if isinstance(value, bool):
        return ("bool", value)  # True is not 1 here
    return bytes(value) if isinstance(value, bytearray) else value


def described(value: Value) -> str:
    """Return an argument's value as inequivalence errors print it (S065, S149)."""
    return "none" if value is None else f"the value '{printed(value)}' of type '{type_name(value)}'"


def as_json(value: Value) -> Json:
    """Return a header or argument as JSON: bytes, decimals and numbers that JSON cannot express become strings."""
    if isinstance(value, Mapping):
        return {name: as_json(item) for name, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray):
        return [as_json(item) for item in value]
    if value is None or isinstance(value, bool | int | str) or (isinstance(value, float) and isfinite(value)):
        return value
    return printed(value)
