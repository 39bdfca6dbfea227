"""Looking through the sections in front of a body without building values: whether they can be decoded, and four texts.

Decoding application-properties takes 1 us a property in Python, and nobody on the way asks for them. What is found
plain here can be decoded: every size, and the content of every text, is checked as `reading` checks it. What is not
plain is read in the ordinary way, which also finds the error.
"""

from typing import Final

from mypy_extensions import i64

NOT_PLAIN: Final = -1
SMALL: Final = -2  # a size of one byte in front
LARGE: Final = -3  # a size of four bytes in front
NAMES_MAX: Final = 32  # of a plain map; they are compared with each other
# By format code, the bytes that follow, if these may be any. Those of a char, a decimal or a boolean in its own byte
# may not, and what holds other values is not plain.
FIXED: Final[dict[int, int]] = {
    **dict.fromkeys((0x40, 0x41, 0x42, 0x43, 0x44), 0),
    **dict.fromkeys((0x50, 0x51, 0x52, 0x53, 0x54, 0x55), 1),
    **dict.fromkeys((0x60, 0x61), 2),
    **dict.fromkeys((0x70, 0x71, 0x72), 4),
    **dict.fromkeys((0x80, 0x81, 0x82, 0x83), 8),
    0x98: 16,
}
BINARY_8: Final = 0xA0
STRING_8: Final = 0xA1
SYMBOL_8: Final = 0xA3
BINARY_32: Final = 0xB0
STRING_32: Final = 0xB1
SYMBOL_32: Final = 0xB3
SIZED: Final[dict[int, int]] = {
    **dict.fromkeys((BINARY_8, STRING_8, SYMBOL_8), SMALL),
    **dict.fromkeys((BINARY_32, STRING_32, SYMBOL_32), LARGE),
}
WIDTHS: Final[list[int]] = [FIXED.get(code, SIZED.get(code, NOT_PLAIN)) for code in range(256)]
MAP_BEGIN: Final = b"\x00\x53\x74\xc1"  # of nearly all application-properties
LIST_BEGIN: Final = b"\x00\x53\x73\xc0"  # of nearly all properties

# Fields of properties, and the format codes that each may have, besides null.
USER_ID: Final = 1
TO: Final = 2
SUBJECT: Final = 3
REPLY_TO: Final = 4
STRINGS: Final = frozenset((STRING_8, STRING_32))
BINARIES: Final = frozenset((BINARY_8, BINARY_32))
SYMBOLS: Final = frozenset((SYMBOL_8, SYMBOL_32))
# the last two are ids of some clients
IDS: Final = STRINGS | BINARIES | {0x44, 0x53, 0x80, 0x98} | {0x55, 0x81}
TIMES: Final = frozenset((0x83,))
NUMBERS: Final = frozenset((0x43, 0x52, 0x70))
FIELDS: Final = (
    *(IDS, BINARIES, STRINGS, STRINGS, STRINGS, IDS, SYMBOLS, SYMBOLS),
    *(TIMES, TIMES, STRINGS, NUMBERS, STRINGS),
)
# The same, as one number for each format code: bit n is set if field n may have it.
PLACES: Final[list[int]] = [
    sum(1 << place for place, codes in enumerate(FIELDS) if code == 0x40 or code in codes)
    for code in range(256)
]
ALL: Final = b"\xff"  # the bits of a byte that messages of one form have in common
IS_ASCII: Final = b"\x80"
NOTHING: Final = b"\x00"
NONE: Final[tuple[str | None, str | None, str | None, str | None]] = (None, None, None, None)


def is_plain_map(data: bytes, at: i64, end: i64) -> bool:
    """Return whether the section of application-properties from `at` to `end` is plain, and can be decoded."""
    if end - at < 6 or data[at : at + 4] != MAP_BEGIN:
        return False
    size: i64 = data[at + 4]
    count: i64 = data[at + 5]
    if at + 5 + size != end or count & 1 or count > 2 * NAMES_MAX:
        return False
    at += 6
    names: list[bytes] = []
    left: i64 = count
    while left:
        if at + 2 > end or data[at] != STRING_8:
            return False
        begin: i64 = at + 2
        at = begin + data[at + 1]
        if at >= end:
            return False
        name = data[begin:at]
        if name in names or not name.isascii():
            return False
        names.append(name)
        code: i64 = data[at]
        width: i64 = WIDTHS[code]
        at += 1
        if width >= 0:
            at += width
        elif width == NOT_PLAIN:
            return False
        else:
            content: i64 = at + 1 if width == SMALL else at + 4
            if content > end:
                return False
            at = content + (data[at] if width == SMALL else size_at(data, at))
            if code & 3 and content < at <= end and not data[content:at].isascii():
                return False  # a text that needs to be decoded
        if at > end:
            return False
        left -= 2
    return at == end


def texts_at(data: bytes, at: i64, end: i64) -> tuple[str | None, str | None, str | None, str | None] | None:
    """Return user-id, to, subject and reply-to of the properties from `at` to `end`, or None if they are not plain."""
    if end - at < 6 or data[at : at + 4] != LIST_BEGIN:
        return None
    size: i64 = data[at + 4]
    count: i64 = data[at + 5]
    if at + 5 + size != end or count > 13:
        return None
    at += 6
    place: i64 = 0
    found: list[str | None] | None = None
    while place < count:
        if at >= end:
            return None
        code: i64 = data[at]
        places: i64 = PLACES[code]
        if not places >> place & 1:
            return None
        if code == 0x40:
            at += 1
            place += 1
            continue
        width: i64 = WIDTHS[code]
        at += 1
        if width >= 0:
            at += width
        elif width == NOT_PLAIN:
            return None
        else:
            content: i64 = at + 1 if width == SMALL else at + 4
            if content > end:
                return None
            at = content + (data[at] if width == SMALL else size_at(data, at))
            if at > end:
                return None
            octets = data[content:at]
            if code & 3 and not octets.isascii():
                return None  # a text that needs to be decoded
            if USER_ID <= place <= REPLY_TO:
                if found is None:
                    found = [None, None, None, None]
                found[place - 1] = octets.decode("utf-8", "surrogateescape")
        place += 1
    if at != end:
        return None
    return NONE if found is None else (found[0], found[1], found[2], found[3])


def mask_of(data: bytes, properties_at: int, application_at: int, body_at: int) -> bytes | None:
    """Return the bits of `data` that another message must have in common with this one, so that it is plain, too, and
    the same texts are found in its properties; None if this one is not plain.

    These are all bits but those of values that nobody looks at; of texts, that each byte is ASCII.
    """
    mask = bytearray(ALL * len(data))
    has_properties, has_application = properties_at < application_at, application_at < body_at
    if has_properties:
        if texts_at(data, properties_at, application_at) is None:
            return None
        _leave_values_out(mask, data, properties_at, application_at, False)
    if has_application:
        if not is_plain_map(data, application_at, body_at):
            return None
        _leave_values_out(mask, data, application_at, body_at, True)
    return bytes(mask) if has_properties or has_application else None


def _leave_values_out(mask: bytearray, data: bytes, at: i64, end: i64, is_map: bool) -> None:
    """Take what may differ of a plain section out of a mask: the values of a map, the unread fields of properties."""
    at += 6
    place: i64 = 0
    while at < end:
        code: i64 = data[at]
        width: i64 = WIDTHS[code]
        begin: i64 = at + 1
        if width >= 0:
            at = begin + width
        else:
            begin += 1 if width == SMALL else 4
            at = begin + (data[begin - 1] if width == SMALL else size_at(data, begin - 4))
        if place & 1 if is_map else not USER_ID <= place <= REPLY_TO:
            kept = IS_ASCII if width < 0 and code & 3 else NOTHING
            mask[begin:at] = kept * int(at - begin)
        place += 1


def size_at(data: bytes, at: i64) -> i64:
    """Return the four bytes at an offset as a number."""
    high: i64 = data[at] << 24 | data[at + 1] << 16
    low: i64 = data[at + 2] << 8 | data[at + 3]
    return high | low
