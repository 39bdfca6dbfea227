"""The format of a recording: what is written is read, and what is torn off or damaged at the end is left out."""

from __future__ import annotations

import zlib
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.features.recording.records import (
    BLOCK,
    MAGIC,
    RECORD,
    SIGN,
    Damaged,
    RecordKind,
    SessionRecord,
    block,
    unpacked,
    whole,
    written,
)

from .recorded import read_from

VALUES: Final = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 60), 1 << 60) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
RECORDS: Final = st.lists(
    st.builds(
        SessionRecord,
        st.sampled_from(RecordKind),
        st.integers(0, (1 << 64) - 1),
        st.dictionaries(st.text(max_size=4), VALUES, max_size=3),
        st.binary(max_size=40),
    ),
    max_size=6,
)
THREE: Final = [[SessionRecord(RecordKind.PURGED, n, {"queue": "q"}, b"\0" * n)] * n for n in (1, 2, 3)]


def blocks(parts: list[list[SessionRecord]]) -> list[bytes]:
    return [block(b"".join(map(written, part))) for part in parts]


@given(st.lists(RECORDS, max_size=4))
def test_what_is_written_is_read(parts: list[list[SessionRecord]]) -> None:
    records, reading = read_from(MAGIC + b"".join(blocks(parts)))
    assert records == [record for part in parts for record in part]
    assert (reading.torn, reading.blocks) == (0, len(parts))


@given(RECORDS)
def test_a_block_of_any_records_makes_a_file(records: list[SessionRecord]) -> None:
    assert read_from(whole(records))[0] == records


def test_a_file_that_ends_anywhere_yields_its_whole_blocks() -> None:
    octets = MAGIC + b"".join(blocks(THREE))
    ends = [len(MAGIC) + len(b"".join(blocks(THREE[:n]))) for n in range(4)]
    for end in range(len(MAGIC), len(octets) + 1):
        there = sum(each <= end for each in ends) - 1
        records, reading = read_from(octets[:end])
        assert records == [record for part in THREE[:there] for record in part]
        assert (reading.blocks, reading.torn) == (there, end - ends[there])


def test_a_bit_that_has_flipped_ends_the_recording_before_its_block() -> None:
    octets = MAGIC + b"".join(blocks(THREE))
    second = len(MAGIC) + len(blocks(THREE)[0])
    for at in range(second, len(octets)):
        damaged = bytearray(octets)
        damaged[at] ^= 1
        records, reading = read_from(bytes(damaged))
        assert len(records) in (1, 3), "of the first block alone, or of the first two"
        assert records == (THREE[0] + THREE[1])[: len(records)]
        assert reading.torn


@given(st.binary(max_size=60))
def test_bytes_behind_the_last_block_are_told_as_torn(garbage: bytes) -> None:
    first = MAGIC + blocks(THREE)[0]
    records, reading = read_from(first + garbage)
    assert (records, reading.torn) == (THREE[0], len(garbage))


@pytest.mark.parametrize(
    ("octets", "why"),
    [
        (b"", "this is no recording"),
        (b"LVRREC\0", "this is no recording"),
        (b"something else", "this is no recording"),
        (MAGIC[:-1] + b"\x07", "format 7, and the one that is known is 1"),
    ],
)
def test_other_files_are_refused(octets: bytes, why: str) -> None:
    with pytest.raises(Damaged, match=why):
        read_from(octets)


@pytest.mark.parametrize(
    "payload",
    [
        b"\1",
        RECORD.pack(99, 0, 2, 0) + b"{}",
        RECORD.pack(RecordKind.END, 0, 2, 0) + b"[]",
        RECORD.pack(RecordKind.END, 0, 2, 0) + b"{",
        RECORD.pack(RecordKind.END, 0, 2, 9) + b"{}",
    ],
)
def test_a_block_of_something_else_is_refused(payload: bytes) -> None:
    with pytest.raises(Damaged):
        list(unpacked(payload))
    with pytest.raises(Damaged):
        read_from(MAGIC + block(payload))


def test_a_block_that_does_not_inflate_is_torn() -> None:
    packed = b"not deflated"
    octets = MAGIC + BLOCK.pack(SIGN, len(packed), zlib.crc32(packed)) + packed
    records, reading = read_from(octets)
    assert (records, reading.torn) == ([], len(octets) - len(MAGIC))
