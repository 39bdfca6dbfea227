"""Look through a header table without building values: where it ends, and where one field is.

A table of five headers takes 6 us to decode in Python, and most messages have one that nobody on the way asks for.
What is skipped here can be decoded: every size, type and depth is checked as `fields.table_at` checks it.
"""

from typing import Final

from mypy_extensions import i64

from leveret.protocols.amqp091.codec.fields import DEPTH_MAX, FIXED_SIZES

UNKNOWN: Final = -1
SIZED: Final = -2  # four bytes of size in front
NESTED: Final = -3  # the same, with values inside
KINDS: Final[list[int]] = [
    NESTED if kind in b"AF" else SIZED if kind in b"Sx" else FIXED_SIZES.get(kind, UNKNOWN)
    for kind in range(256)
]
TABLE: Final = ord("F")
ABSENT: Final = -1
MALFORMED: Final = -2


def plain_table_after(data: bytes, at: i64, end: i64, depth: i64 = 0, named: bool = True) -> i64:
    """Return the offset after the table at `at`; -1 if it is malformed, or has a field CC or BCC.

    Only the outermost table (`depth` 0) is searched for these: they are further routing keys. An array is a table whose
    values have no names (not `named`).
    """
    if depth > DEPTH_MAX or at + 4 > end:
        return -1
    after: i64 = at + 4 + size_at(data, at)
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
            at += 4 + size_at(data, at)
        else:
            at = plain_table_after(data, at, after, depth + 1, kind == TABLE)
            if at < 0:
                return -1
        if at > after:
            return -1
    return after


def table_at(properties: bytes) -> i64:
    """Return the offset of the first header in the bytes of properties, behind the size of their table, which is all
    there: `ABSENT` if there is no table, `MALFORMED` if that cannot be told."""
    end: i64 = len(properties)
    if end < 2:
        return MALFORMED
    flags: i64 = properties[0] << 8 | properties[1]
    at: i64 = 2
    if not flags & 0x2000:
        return ABSENT
    for flag in (0x8000, 0x4000):  # content type and encoding are in front
        if flags & flag:
            if at >= end:
                return MALFORMED
            at += 1 + properties[at]
    if at + 4 > end:
        return MALFORMED
    if at + 4 + size_at(properties, at) > end:
        return MALFORMED
    return at + 4


def value_of(properties: bytes, name: bytes) -> i64:
    """Return the offset of a header's value, with its type, in the bytes of properties: `ABSENT` if there is no such
    header, `MALFORMED` if that cannot be told. Of several headers with one name the last counts."""
    at: i64 = table_at(properties)
    if at < 0:
        return at
    after: i64 = at + size_at(properties, at - 4)
    found: i64 = ABSENT
    while at < after:
        value: i64 = at + 1 + properties[at]
        if value >= after:
            return MALFORMED
        if properties[at + 1 : value] == name:
            found = value
        size: i64 = KINDS[properties[value]]
        at = value + 1
        if size >= 0:
            at += size
        elif size == UNKNOWN or at + 4 > after:
            return MALFORMED
        else:
            at += 4 + size_at(properties, at)
    return found if at == after else MALFORMED


def octets_of(properties: bytes, names: dict[bytes, int], size_max: i64) -> bytes | None:
    """Return the octets of the headers with these names: names with their lengths, types and values, as they came. None
    if they are more than `size_max`, or the table is malformed."""
    at: i64 = table_at(properties)
    if at < 0:
        return b"" if at == ABSENT else None
    after: i64 = at + size_at(properties, at - 4)
    found = b""
    while at < after:
        start: i64 = at
        value: i64 = at + 1 + properties[at]
        if value >= after:
            return None
        size: i64 = KINDS[properties[value]]
        at = value + 1
        if size >= 0:
            at += size
        elif size == UNKNOWN or at + 4 > after:
            return None
        else:
            at += 4 + size_at(properties, at)
        if properties[start + 1 : value] in names:
            if len(found) + at - start > size_max:
                return None
            found += properties[start:at]
    return found if at == after else None


def size_at(data: bytes, at: i64) -> i64:
    """Return the four bytes at an offset as a number."""
    first: i64 = data[at]
    second: i64 = data[at + 1]
    third: i64 = data[at + 2]
    fourth: i64 = data[at + 3]
    return first << 24 | second << 16 | third << 8 | fourth
