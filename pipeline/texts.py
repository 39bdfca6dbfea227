"""Convert properties and headers to Spark's values: texts, numbers that fit, and JSON for nested values."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final
from uuid import UUID

from broker_core.values import Properties, Table, Value, printed

if TYPE_CHECKING:
    from pyspark.sql.types import VariantVal

SECONDS_MAX: Final = 253_402_300_799  # the end of the year 9999: Python cannot represent a later time
PRIORITY_MAX: Final = (1 << 31) - 1
TTL_MAX: Final = (1 << 63) - 1


def said(value: Value) -> str | None:
    """Return a header as text: nested values become JSON, bytes are decoded as UTF-8 as far as possible."""
    if value is None:
        return None
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


def _text(value: str | bytes | int | UUID | None) -> str | None:
    return None if value is None else readable(printed(value))


def _within(value: int | None, most: int) -> int | None:
    return value if value is not None and 0 <= value <= most else None


def _microseconds(seconds: int | None) -> int | None:
    whole = _within(seconds, SECONDS_MAX)
    return None if whole is None else whole * 1_000_000


PROPERTY: Final[Mapping[str, Callable[[Properties], object]]] = {
    "content_type": lambda given: _text(given.content_type),
    "content_encoding": lambda given: _text(given.content_encoding),
    "durable": lambda given: given.durable,
    "priority": lambda given: _within(given.priority, PRIORITY_MAX),
    "correlation_id": lambda given: _text(given.correlation_id),
    "reply_to": lambda given: _text(given.reply_to),
    "ttl_ms": lambda given: _within(given.ttl_ms, TTL_MAX),
    "message_id": lambda given: _text(given.message_id),
    "timestamp": lambda given: _microseconds(given.timestamp),
    "type": lambda given: _text(given.type),
    "user_id": lambda given: _text(given.user_id),
    "app_id": lambda given: _text(given.app_id),
}
