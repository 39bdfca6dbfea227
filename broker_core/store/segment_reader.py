"""Blocks of a segment, and the messages in them, as a reading thread gets them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

from broker_core.store import block
from broker_core.store.contract import DamagedError

if TYPE_CHECKING:
    from broker_core.message import Message
    from broker_core.store.contract import Reader
    from broker_core.store.origin import EncodingOf

FETCH_OCTETS: Final = 256 << 10  # of blocks that are read at once, and one block

Part: TypeAlias = "tuple[int, list[Message]]"  # an offset, and the messages that follow each other from there


def some_blocks(reader: Reader, stream: int, segment: int, offset: int, until: int, octets: int) -> bytes:
    """As `Reader.blocks`; damage behind the first block shortens them only."""
    try:
        found = reader.blocks(stream, segment, offset, until, octets)
    except DamagedError:
        found = reader.blocks(stream, segment, offset, until, 0)
    if not found:
        raise DamagedError(f"segment {segment} ends before message {offset}", until)
    return found


def read_part(
    reader: Reader, stream: int, segment: int, offset: int, until: int, encoding_of: EncodingOf, noted: bool
) -> Part:
    """The messages at an offset, and what follows, as far as it goes; `noted`: with their offsets noted on them.

    Raises DamagedError, StoreError.
    """
    octets = some_blocks(reader, stream, segment, offset, until, FETCH_OCTETS)
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
            raise DamagedError(str(damage), head.next) from None
        at += head.octets
    return first, messages
