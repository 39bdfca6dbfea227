"""Bloom filters say of a block which filter values its messages may have, without a look at the messages.

    values of a block's messages ──filter_of──> bits, kept beside the block's header
    values that a reader wants ──BloomQuery──> is the block worth reading?   no: certainly not; yes: perhaps

A filter has from 16 to 255 bytes. Each value sets four bits; a block has none of the values of which a bit is missing.
Messages without a filter value together count as one more value. With 16 bytes, one of 200 blocks of ten values each is
read in vain, and one of 20 if they have twenty.

Source: B. H. Bloom, 1970; the bits are chosen as by A. Kirsch and M. Mitzenmacher, 2006. RabbitMQ's documentation of
stream filtering has the behaviour.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from struct import Struct
from typing import Final

FILTER_OCTETS: Final = 16  # bytes of a filter, unless its stream asks for more
FILTER_MAX: Final = 255  # bytes
HASHES: Final = 4  # bits of a value
DIGEST: Final = Struct("<QQ")


def filter_of(values: Iterable[str | None], octets: int) -> bytes:
    """Return the filter of a block with so many bytes. `values`: of its messages, None for those without one."""
    bits = 0
    for value in set(values):
        bits |= mask_of(value, octets)
    return bits.to_bytes(octets, "little")


def mask_of(value: str | None, octets: int) -> int:
    """Return the bits of one value in a filter of so many bytes."""
    # No message has the empty text as its value, so it can stand for none.
    digest = blake2b((value or "").encode("utf-8", "surrogatepass"), digest_size=DIGEST.size).digest()
    begin, step = DIGEST.unpack(digest)
    mask = 0
    for number in range(HASHES):
        mask |= 1 << (begin + number * step) % (8 * octets)
    return mask


class BloomQuery:
    """The filter values that a reader wants. None among them stands for messages without a value."""

    __slots__ = ("_masks", "values")

    def __init__(self, values: Iterable[str | None]) -> None:
        self.values = tuple(values)
        self._masks: dict[int, list[int]] = {}  # by bytes of a filter

    def may_be_in(self, bits: bytes) -> bool:
        """Return whether a block with this filter may have a wanted message; True for a block without a filter."""
        if not bits:
            return True
        masks = self._masks.get(len(bits))
        if masks is None:
            masks = self._masks[len(bits)] = [mask_of(value, len(bits)) for value in self.values]
        number = int.from_bytes(bits, "little")
        return any(number & mask == mask for mask in masks)
