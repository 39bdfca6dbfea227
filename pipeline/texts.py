"""Convert properties and headers to Spark's values: texts, numbers that fit, and JSON for nested values."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final
from uuid import UUID

from leveret.values import Table, Value, printed

if TYPE_CHECKING:
    from pyspark.sql.types import VariantVal

SECONDS_MAX: Final = 253_402_300_799  # the end of the year 9999: Python cannot represent a later time
PRIORITY_MAX: Final = (1 << 31) - 1
TTL_MAX: Final = (1 << 63) - 1


def said(value: Value) -> str | None:
    """Return a header as text: nested values become JSON, bytes are decoded as UTF-8 as far as possible."""
    kind = type(value)
    if value is None or kind is str:  # most are texts: an eighth of the time of what follows
        return value if value is None else readable(value)  # type: ignore[arg-type]
    if kind is int:
        return str(value)
    if isinstance(value, Mapping) or (
        isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray)
    ):
        return json.dumps(plain(value), ensure_ascii=False)
    return readable(printed(value))


def plain(value: Value) -> object:
    if isinstance(value, Mapping):
        return {readable(name): plain(each) for name, each in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray):
        return list(map(plain, value))
    if value is None or isinstance(value, bool | int) or (isinstance(value, float) and math.isfinite(value)):
        return value
    return readable(printed(value))


def variant(headers: Table) -> VariantVal:
    """Return headers with their types, as a variant, which is Spark's own form of JSON."""
    from pyspark.sql.types import VariantVal

    return VariantVal.parseJson(json.dumps(plain(headers), ensure_ascii=False))


def readable(text: str) -> str:
    """Escape surrogates, which stand for bytes that are not UTF-8, because Arrow does not accept them."""
    if text.isascii():
        return text
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def _text(value: str | bytes | int | UUID) -> str:
    return readable(value if type(value) is str else printed(value))


def _within(value: int | None, most: int) -> int | None:
    return value if value is not None and 0 <= value <= most else None


def _microseconds(seconds: int | None) -> int | None:
    whole = _within(seconds, SECONDS_MAX)
    return None if whole is None else whole * 1_000_000


# How the values of properties are shown that have another form here. Absent ones are null.
CONVERTED: Final[Mapping[str, Callable[..., object]]] = {
    "content_type": _text,
    "content_encoding": _text,
    "durable": bool,
    "priority": lambda value: _within(value, PRIORITY_MAX),
    "correlation_id": _text,
    "reply_to": _text,
    "ttl_ms": lambda value: _within(value, TTL_MAX),
    "message_id": _text,
    "timestamp": _microseconds,
    "type": _text,
    "user_id": _text,
    "app_id": _text,
}
