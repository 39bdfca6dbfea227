"""Skip a header table: from where it begins to where it ends, without building a value.

A table of five headers takes 6 us to decode in Python, and most messages have one that nobody on the way asks for.
What is skipped here can be decoded: every size, type and depth is checked as `fields.table_at` checks it.
"""

from typing import Final

from mypy_extensions import i64

from protocols.amqp091.codec.fields import DEPTH_MAX, FIXED_SIZES

UNKNOWN: Final = -1
SIZED: Final = -2  # four bytes of size in front
NESTED: Final = -3  # the same, with values inside
KINDS: Final[list[int]] = [
    NESTED if kind in b"AF" else SIZED if kind in b"Sx" else FIXED_SIZES.get(kind, UNKNOWN)
    for kind in range(256)
]
TABLE: Final = ord("F")


def plain_table_after(data: bytes, at: i64, end: i64, depth: i64 = 0, named: bool = True) -> i64:
    """Return the offset after the table at `at`; -1 if it is malformed, or has a field CC or BCC.

    Only the outermost table (`depth` 0) is searched for these: they are further routing keys. An array is a table whose
    values have no names (not `named`).
    """
    if depth > DEPTH_MAX or at + 4 > end:
        return -1
    after: i64 = at + 4 + _size_at(data, at)
    at += 4
    if after > end:
        return -1
    while at < after:
        if named:
            name: i64 = data[at]
            if depth == 0 and 2 <= name <= 3 and data[at + 1 : at + 1 + name] in (b"CC", b"BCC"):
                return -1
            at += 1 + name
        if at >= after:
            return -1
        kind: i64 = data[at]
        size: i64 = KINDS[kind]
        at += 1
        if size >= 0:
            at += size
        elif size == UNKNOWN:
            return -1
        elif size == SIZED:
            if at + 4 > after:
                return -1
            at += 4 + _size_at(data, at)
        else:
            at = plain_table_after(data, at, after, depth + 1, kind == TABLE)
            if at < 0:
                return -1
        if at > after:
            return -1
    return after


def _size_at(data: bytes, at: i64) -> i64:
    high: i64 = data[at] << 24 | data[at + 1] << 16
    low: i64 = data[at + 2] << 8 | data[at + 3]
    return high | low
