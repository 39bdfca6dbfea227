"""Records of a recording become bytes, and bytes records: blocks with checksums, one after the other.

    file   = MAGIC block*
    block  = "LVRB" | size of the payload, 4 bytes | its CRC-32, 4 bytes | payload, deflated (zlib)
    record = kind, 1 byte | time, 8 bytes | size of the fields, 4 bytes | size of the raw bytes, 4 bytes | both

Numbers are little-endian; times are microseconds since 1970-01-01 UTC; fields are a JSON object. Most raw bytes are a
message (`redaction.py`). A file ends where a block does not fit its checksum or is cut off: what is before it holds, so
that a recording is readable after the node was killed. docs/time-travel.md describes each kind.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterable, Iterator
from enum import IntEnum
from struct import Struct
from typing import IO, Final

import attrs

from leveret.values import Json

MAGIC: Final = b"LVRREC\x00\x01"  # the last byte is the version of the format
SIGN: Final = b"LVRB"
BLOCK: Final = Struct("<4sII")
RECORD: Final = Struct("<BQII")
LEVEL: Final = 1  # of compression: what counts is that the thread keeps up
PAYLOAD_MAX: Final = 1 << 30  # bytes; a block that claims more is damaged


class RecordKind(IntEnum):
    """The kinds of records. Numbers are part of the format."""

    BEGIN = 1  # of a file: the virtual host, the node, what is redacted
    TOPOLOGY = 2  # exchanges, queues, bindings and policies at the start, and at the end
    CONTENT = 3  # a message that was in a queue when the recording began
    READY = 4  # all of TOPOLOGY and CONTENT has been told
    EVENT = 5  # a declaration, binding, deletion, policy; a connection or consumer that comes or goes
    PUBLISHED = 6  # a message, and the queues that it is routed to
    ENTERED = 7  # a queue has taken a message
    DELIVERED = 8  # messages went to a consumer, or were fetched
    RETURNED = 9  # a message came back from a consumer
    LEFT = 10  # a message has left a queue for good, and why
    PURGED = 11  # all waiting messages of a queue are dropped
    GAP = 12  # records are missing here; TOPOLOGY and CONTENT follow anew
    LISTING = 13  # what is in a queue at the end: positions and digests
    END = 14  # the recording was stopped in good order


@attrs.frozen
class SessionRecord:
    """One record. `at` is its time in microseconds since 1970-01-01 UTC."""

    kind: RecordKind
    at: int
    fields: dict[str, Json] = attrs.field(factory=dict)
    raw: bytes = b""


class Damaged(ValueError):  # noqa: N818 - reads well as `raise Damaged`
    """Bytes that are no recording, or one of another version of the format. The text says what is wrong."""


def written(record: SessionRecord) -> bytes:
    """Return the bytes of one record."""
    fields = json.dumps(record.fields, separators=(",", ":")).encode()
    return RECORD.pack(record.kind, record.at, len(fields), len(record.raw)) + fields + record.raw


def block(payload: bytes) -> bytes:
    """Return the block with these records."""
    packed = zlib.compress(payload, LEVEL)
    return BLOCK.pack(SIGN, len(packed), zlib.crc32(packed)) + packed


def unpacked(payload: bytes) -> Iterator[SessionRecord]:
    """Yield the records of a block's payload. Raises Damaged."""
    at, end = 0, len(payload)
    while at < end:
        if end - at < RECORD.size:
            raise Damaged("a record is cut off")
        number, time, fields_size, raw_size = RECORD.unpack_from(payload, at)
        fields_at = at + RECORD.size
        raw_at = fields_at + fields_size
        at = raw_at + raw_size
        if at > end:
            raise Damaged("a record is longer than its block")
        try:
            kind, fields = RecordKind(number), json.loads(payload[fields_at:raw_at])
        except (ValueError, RecursionError):
            raise Damaged("a record is of no kind that is known, or its fields are not JSON") from None
        if not isinstance(fields, dict):
            raise Damaged("the fields of a record are no object")
        yield SessionRecord(kind, time, fields, payload[raw_at:at])


@attrs.define
class RecordReader:
    """A recording that is being read. `torn` is the number of bytes at its end that are no whole block."""

    torn: int = 0
    blocks: int = 0
    octets: int = 0  # of whole blocks

    def payloads(self, file: IO[bytes]) -> Iterator[bytes]:
        """Yield the payload of each whole block. Raises Damaged if the file is no recording."""
        magic = file.read(len(MAGIC))
        if magic != MAGIC:
            known = magic[:-1] == MAGIC[:-1]
            raise Damaged(
                f"this is a recording of format {magic[-1]}, and the one that is known is {MAGIC[-1]}"
                if known
                else "this is no recording"
            )
        while head := file.read(BLOCK.size):
            payload = _payload(head, file)
            if payload is None:
                self.torn = len(head) + _rest(file)
                return
            self.blocks += 1
            self.octets = file.tell()
            yield payload

    def records(self, file: IO[bytes]) -> Iterator[SessionRecord]:
        """Yield the records of a file. Raises Damaged."""
        for payload in self.payloads(file):
            yield from unpacked(payload)


def _payload(head: bytes, file: IO[bytes]) -> bytes | None:
    """Return what a block holds; None if it is cut off or damaged, and the file is where its bytes begin."""
    begin = file.tell()
    if len(head) == BLOCK.size:
        sign, size, checksum = BLOCK.unpack(head)
        if sign == SIGN and size <= PAYLOAD_MAX:
            packed = file.read(size)
            if len(packed) == size and zlib.crc32(packed) == checksum:
                try:
                    return zlib.decompress(packed)
                except zlib.error:
                    pass  # our own checksum over bytes that are not ours
    file.seek(begin)
    return None


def _rest(file: IO[bytes]) -> int:
    begin = file.tell()
    return file.seek(0, 2) - begin


def whole(records: Iterable[SessionRecord]) -> bytes:
    """Return a file of one block with these records."""
    return MAGIC + block(b"".join(map(written, records)))
