"""Encode parameters of a statement in PostgreSQL's binary format: no text is made of bytes, and none is parsed.

An array has a header (dimensions, whether there are nulls, the type of its elements), its length and first index, and
then each element after its length; -1 is null. Source: PostgreSQL, `array_recv`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from struct import Struct
from typing import Final

BYTEA: Final = 17  # object identifiers of types (pg_type)
BIGINT: Final = 20
INTEGER: Final = 23

HEADER: Final = Struct(">iiIii")
LENGTH: Final = Struct(">i")
LONG: Final = Struct(">iq")
SHORT: Final = Struct(">ii")
INT64: Final = Struct(">q")
NULL: Final = LENGTH.pack(-1)


def bigint(value: int) -> bytes:
    return INT64.pack(value)


def boolean(value: bool) -> bytes:
    return b"\1" if value else b"\0"


def bigints(values: Collection[int]) -> bytes | None:
    """Return an array of 64-bit integers; None, which is null, if it is empty."""
    if not values:
        return None
    return b"".join([HEADER.pack(1, 0, BIGINT, len(values), 1), *[LONG.pack(8, each) for each in values]])


def integers(values: Collection[int]) -> bytes | None:
    """Return an array of 32-bit integers; None, which is null, if it is empty."""
    if not values:
        return None
    return b"".join([HEADER.pack(1, 0, INTEGER, len(values), 1), *[SHORT.pack(4, each) for each in values]])


def byteas(values: Collection[bytes | None]) -> bytes | None:
    """Return an array of bytes; None, which is null, if it is empty."""
    if not values:
        return None
    parts = [HEADER.pack(1, 1, BYTEA, len(values), 1)]
    parts += _elements(values)
    return b"".join(parts)


def _elements(values: Iterable[bytes | None]) -> Iterable[bytes]:
    for each in values:
        if each is None:
            yield NULL
        else:
            yield LENGTH.pack(len(each))
            yield each
