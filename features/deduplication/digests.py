"""Turn the id in a message's header into 16 bytes: BLAKE2b, keyed, so that equal ids of any protocol are equal here.

A cache holds these bytes instead of ids, which may be long. Two different ids have the same digest with a probability
of 2^-128: a new id is taken for one of a million known ones once in 3 * 10^32 messages. The key is random and belongs
to one cache, so that nobody can look for two ids that collide.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from decimal import Decimal
from hashlib import blake2b
from typing import Final
from uuid import UUID

from leveret.values import Value

DIGEST_OCTETS: Final = 16
KEY_OCTETS: Final = 16
DEPTH_MAX: Final = 8  # of lists and maps in an id; what is deeper counts as equal


def new_key() -> bytes:
    """Return a random key for a new cache."""
    return os.urandom(KEY_OCTETS)


def digest_of(key: bytes, value: Value) -> bytes:
    """Return the digest of an id. Numbers are compared by value whatever their width; 1, '1' and true differ."""
    return blake2b(octets_of(value), digest_size=DIGEST_OCTETS, key=key).digest()


def octets_of(value: Value, depth: int = 0) -> bytes:
    """Return bytes that are equal for equal ids only. Text is equal to bytes that are its UTF-8."""
    if isinstance(value, str):
        return b"s" + value.encode("utf-8", "surrogatepass")
    if isinstance(value, bytes | bytearray):
        return b"s" + bytes(value)
    if isinstance(value, bool):
        return b"t" if value else b"f"
    if isinstance(value, int):
        return b"i%d" % value
    if isinstance(value, float):
        return b"d" + value.hex().encode()
    if isinstance(value, Decimal):
        return b"n" + str(value.normalize()).encode()
    if isinstance(value, UUID):
        return b"u" + value.bytes
    if depth < DEPTH_MAX and isinstance(value, Mapping):
        items = sorted((octets_of(name), octets_of(item, depth + 1)) for name, item in value.items())
        return b"m" + b"".join(measured(part) for item in items for part in item)
    if depth < DEPTH_MAX and isinstance(value, Sequence):
        return b"l" + b"".join(measured(octets_of(item, depth + 1)) for item in value)
    return b"v"


def measured(octets: bytes) -> bytes:
    """Return bytes with their length before them."""
    return b"%d:%b" % (len(octets), octets)
