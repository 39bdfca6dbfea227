"""Read blocks of a segment, and the messages in them, in a reading thread."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from leveret.durable.store import block
from leveret.durable.store.contract import DamagedError

if TYPE_CHECKING:
    from leveret.durable.store.contract import Reader
    from leveret.durable.store.origin import EncodingOf
    from leveret.message import Message
    from leveret.selectors.bloom import BloomQuery

FETCH_OCTETS: Final = 256 << 10  # of blocks read at once, plus one block

Part: TypeAlias = "tuple[int, list[Message]]"  # an offset, and consecutive messages from there


def some_blocks(reader: Reader, stream: int, segment: int, offset: int, until: int, octets: int) -> bytes:
    """Read blocks like `Reader.blocks`, but return those before the damage if it is after the first block."""
    try:
        found = reader.blocks(stream, segment, offset, until, octets)
    except DamagedError:
        found = reader.blocks(stream, segment, offset, until, 0)
    if not found:
        raise DamagedError(f"segment {segment} ends before message {offset}", until)
    return found


def read_wanted(
    reader: Reader,
    stream: int,
    segment: int,
    offset: int,
    until: int,
    wanted: BloomQuery,
    encoding_of: EncodingOf,
    noted: bool,
) -> tuple[int, Part]:
    """Return messages of the next blocks that may have wanted ones, and the offset to go on from.

    There are none if the search, which goes on there, has found no such block yet. Raises DamagedError, StoreError.
    """
    place = reader.wanted(stream, segment, offset, until, wanted)
    if not place.octets:
        return place.first, (place.first, [])
    octets = min(place.octets, FETCH_OCTETS)
    try:
        part = read_part(reader, stream, segment, place.first, place.next, encoding_of, noted, octets)
    except DamagedError:
        if place.first == offset:
            raise
        return place.first, (place.first, [])  # only what follows is damaged: the next search will say so
    return place.first, part


def read_part(
    reader: Reader,
    stream: int,
    segment: int,
    offset: int,
    until: int,
    encoding_of: EncodingOf,
    noted: bool,
    octets_max: int = FETCH_OCTETS,
) -> Part:
    """Return the messages from an offset on, as far as one read goes; `noted` adds their offsets to their notes.

    Raises DamagedError, StoreError.
    """
    octets = some_blocks(reader, stream, segment, offset, until, octets_max)
    messages: list[Message] = []
    at = 0
    first = -1
    while at < len(octets):
        each = block.Block(octets, at)
        head = each.header
        if first < 0:
            first = head.first
            if not first <= offset < head.next:
                raise DamagedError(f"message {offset} is not where it should be", max(first, offset + 1))
        elif head.first != first + len(messages):
            break
        try:
            messages += block.messages_of(each, encoding_of, noted)
        except DamagedError as damage:
            if messages:
                break
            damage.next = head.next
            raise
        at += head.octets
    return first, messages
