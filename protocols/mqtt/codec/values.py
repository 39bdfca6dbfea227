"""The data types of MQTT, section 1.5: bytes to values and back. Pure functions, no state.

`x_at(data, at, end)` reads an x and returns it with the offset after it; it reads nothing from `end` on, and raises
MalformedError. `encode_x` raises ValueError for a value that the wire format cannot express.
"""

from __future__ import annotations

from typing import Final

from leveret.protocols.mqtt.codec.errors import MalformedError

TWO_BYTES_MAX: Final = 0xFFFF
VARIABLE_MAX: Final = 268_435_455  # of a variable byte integer, which has four bytes at most


def byte_at(data: bytes, at: int, end: int) -> tuple[int, int]:
    if at >= end:
        raise MalformedError("a byte is missing")
    return data[at], at + 1


def two_bytes_at(data: bytes, at: int, end: int) -> tuple[int, int]:
    if at + 2 > end:
        raise MalformedError("a number is cut short")
    return data[at] << 8 | data[at + 1], at + 2


def four_bytes_at(data: bytes, at: int, end: int) -> tuple[int, int]:
    if at + 4 > end:
        raise MalformedError("a number is cut short")
    return int.from_bytes(data[at : at + 4], "big"), at + 4


def variable_at(data: bytes, at: int, end: int) -> tuple[int, int]:
    """Read a variable byte integer (section 1.5.5). One that is longer than necessary is malformed."""
    value = 0
    for shift in (0, 7, 14, 21):
        if at >= end:
            raise MalformedError("a variable byte integer is cut short")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if shift and not byte:
                raise MalformedError("a variable byte integer is longer than necessary")
            return value, at
    raise MalformedError("a variable byte integer has more than four bytes")


def binary_at(data: bytes, at: int, end: int) -> tuple[bytes, int]:
    size, at = two_bytes_at(data, at, end)
    after = at + size
    if after > end:
        raise MalformedError("binary data is cut short")
    return data[at:after], after


def string_at(data: bytes, at: int, end: int) -> tuple[str, int]:
    """Read a UTF-8 encoded string (section 1.5.4): no surrogates, no U+0000; U+FEFF is a character like others."""
    octets, after = binary_at(data, at, end)
    return text_of(octets), after


def text_of(octets: bytes) -> str:
    """Return what a string's bytes say. Raises MalformedError."""
    try:
        text = octets.decode()
    except UnicodeDecodeError:
        raise MalformedError("a string is not UTF-8") from None
    if "\0" in text:
        raise MalformedError("a string contains U+0000")
    return text


def encode_two_bytes(number: int) -> bytes:
    if not 0 <= number <= TWO_BYTES_MAX:
        raise ValueError(f"{number} does not fit two bytes")
    return number.to_bytes(2, "big")


def encode_variable(number: int) -> bytes:
    if not 0 <= number <= VARIABLE_MAX:
        raise ValueError(f"{number} does not fit a variable byte integer")
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def encode_binary(octets: bytes) -> bytes:
    if len(octets) > TWO_BYTES_MAX:
        raise ValueError(f"{len(octets)} bytes do not fit a field")
    return len(octets).to_bytes(2, "big") + octets


def encode_string(text: str) -> bytes:
    """Return a string with its size in front. Raises ValueError for U+0000 and surrogates, too."""
    if "\0" in text:
        raise ValueError("a string contains U+0000")
    return encode_binary(text.encode())
