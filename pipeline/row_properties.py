"""Encode properties and headers of rows as AMQP 0-9-1. A value that it cannot represent is an error naming the
column."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import date, datetime
from typing import Final, TypeAlias, cast

from pyspark.sql.types import VariantVal

from leveret.limits import TTL_MAX_MS
from leveret.pipeline.errors import BadRow
from leveret.pipeline.sink_options import SHORT_MAX
from leveret.protocols.amqp091.broker.encoding import ENCODING, WRITTEN_MAX
from leveret.values import Properties, Table, Timestamp, Value

LEAST_AND_MOST: Final = {"priority": (0, 255), "ttl_ms": (0, TTL_MAX_MS)}
MICROSECONDS: Final = 1_000_000  # in a second
IDS: Final = ("correlation_id", "message_id")  # may be of any length: a header takes one that is too long
KEY_LISTS: Final = frozenset(("CC", "BCC"))  # headers with further routing keys, which must be lists
HEADERS_FLAG: Final = 0x20  # in the first byte of properties

Fields: TypeAlias = tuple[tuple[str, object], ...]
Pairs: TypeAlias = tuple[tuple[object, object], ...]


def written(fields: Fields, headers: Table | None, persistent: bool) -> bytes:
    """Return encoded properties. Times are in microseconds since 1970. Raises BadRow."""
    given = {name: value for name, value in fields if value is not None}
    for name, value in given.items():
        if isinstance(value, str):
            if name not in IDS:
                _require_short(f"column 'properties.{name}'", value)
        elif name in LEAST_AND_MOST:
            _require_within(name, cast(int, value))
    given.setdefault("durable", persistent)
    if "timestamp" in given:
        given["timestamp"] = seconds = cast(int, given["timestamp"]) // MICROSECONDS
        if seconds < 0:
            raise BadRow("column 'properties.timestamp' is before 1970 in a row")
    octets = ENCODING.write(Properties(**given, headers=headers))  # type: ignore[arg-type]
    # the encoding leaves headers out if properties do not fit a frame
    if headers and not octets[0] & HEADERS_FLAG:
        raise BadRow(f"column 'headers' and properties have more than {WRITTEN_MAX} bytes in a row")
    return octets


def _require_within(name: str, value: int) -> None:
    least, most = LEAST_AND_MOST[name]
    if not least <= value <= most:
        raise BadRow(f"column 'properties.{name}' is {value} in a row; it must be from {least} to {most}")


def _require_short(what: str, text: str) -> None:
    if len(text.encode()) > SHORT_MAX:
        raise BadRow(f"{what} has more than {SHORT_MAX} bytes in a row: it begins with '{text[:50]}'")


# Headers.


def from_pairs(pairs: Pairs) -> Table:
    """Return the headers of a map, or of a list as Kafka has it. Raises BadRow."""
    return {_header_name(name): _text(name, value) for name, value in pairs}


def _header_name(name: object) -> str:
    if not isinstance(name, str):
        raise BadRow("column 'headers' has a header without a name in a row")
    _require_short("the name of a header in column 'headers'", name)
    return name


def _text(name: object, value: object) -> Value:
    text = value.decode("utf-8", "surrogateescape") if isinstance(value, bytes) else cast("str | None", value)
    return _keys(name, text) if name in KEY_LISTS and text is not None else text


def _keys(name: object, text: str) -> list[str]:
    """Return routing keys, which a column holds as JSON."""
    try:
        keys = json.loads(text)
    except (ValueError, RecursionError):
        keys = None
    if not isinstance(keys, list) or not all(isinstance(each, str) for each in keys):
        raise BadRow(
            f"header '{name}' in column 'headers' is {text[:50]!r} in a row; it must be JSON such as [\"a\"]"
        )
    return keys


def from_variant(pairs: Pairs) -> Table | None:
    """Return headers with their types. `pairs` holds the bytes of a variant, and of its names. Raises BadRow."""
    octets = cast("dict[object, bytes | None]", dict(pairs))
    value, names = octets["value"], octets["metadata"]
    if value is None or names is None:
        return None
    try:
        text = _neutral(VariantVal(value, names).toPython())
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise BadRow(f"column 'headers' is a variant that cannot be read in a row: {error}") from None
    if not isinstance(text, Mapping):
        raise BadRow("column 'headers' holds a variant that is no object in a row")
    for name, each in text.items():
        _header_name(name)
        if not _can_be_said({name: each}):
            raise BadRow(
                f"header '{name}' in column 'headers' is {each!r:.50} in a row, which AMQP cannot represent"
            )
    return text


def _neutral(value: object) -> Value:
    if isinstance(value, dict):
        return {str(name): _neutral(each) for name, each in value.items()}
    if isinstance(value, list):
        return list(map(_neutral, value))
    if isinstance(value, datetime):
        return Timestamp(int(value.timestamp()))
    if isinstance(value, date):
        return value.isoformat()
    return bytearray(value) if isinstance(value, bytes) else cast(Value, value)


def _can_be_said(headers: Table) -> bool:
    """Return whether headers survive encoding, which leaves out values that it has no type for."""
    return ENCODING.headers(ENCODING.write(Properties(headers=headers))) == headers
