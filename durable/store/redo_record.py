"""Encode a commit as a record of the redo log, and read it back, with checksums that tell a torn or damaged one.

    head     magic number, size, round, place in it, counts, checksums
    numbers  dropped chunks; of each chunk its first number and sizes; of bits the chunk and size; marks
    entries, bits, messages
    tail     round, place

A record is good if its head, its tail and all checksums fit. Records begin at multiples of a sector.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from struct import Struct
from typing import Final
from zlib import crc32

from leveret.durable.store import chunk
from leveret.durable.store.contract import Chunk, Commit, DamagedError

SECTOR: Final = 512  # bytes that a disk writes whole, or not at all
# Magic number, bytes of the record, round, its place in the round; how many chunks, dropped chunks, chunks with bits,
# and marks; checksum of the numbers, entries and bits; checksum of the head up to here.
HEAD: Final = Struct("<4sI8sIIIIIII")
HEAD_MAGIC: Final = b"LvrR"
NUMBERS_OF_CHUNK: Final = 24  # bytes
NUMBERS_OF_BITS: Final = 16
TAIL: Final = Struct("<8sI")  # round, place in the round
FRAME: Final = HEAD.size + TAIL.size


def sealed(octets: bytes) -> bytes:
    """Return bytes that end with room for a checksum, with the checksum of the others there."""
    begun = octets[:-4]
    return begun + crc32(begun).to_bytes(4, "little")


def whole(octets: int) -> int:
    """Return the bytes of the sectors that a record takes."""
    return (octets + SECTOR - 1) // SECTOR * SECTOR


def octets_of(commit: Commit, made: Sequence[Chunk]) -> int:
    """Return the bytes of the record of a commit, whose packed chunks are `made`."""
    octets = FRAME + 8 * len(commit.dropped) + 16 * len(commit.marks)
    for each in made:
        octets += NUMBERS_OF_CHUNK + len(each.entries) + len(each.messages)
    for bits in commit.settled.values():
        octets += NUMBERS_OF_BITS + len(bits)
    return octets


def record(round_: bytes, place: int, commit: Commit, made: Sequence[Chunk]) -> bytes:
    """Return the record of a commit, whose packed chunks are `made`, for a place in a round."""
    numbers = array("Q", commit.dropped)
    entries: list[bytes] = []
    messages: list[bytes] = []
    size = FRAME
    for each in made:
        numbers.extend((each.first, len(each.entries), len(each.messages)))
        entries.append(each.entries)
        messages.append(each.messages)
        size += len(each.messages)
    for first, bits in commit.settled.items():
        numbers.extend((first, len(bits)))
        entries.append(bits)
    for mark in commit.marks.items():
        numbers.extend(mark)
    checked = b"".join([chunk.octets_of(numbers), *entries])
    size += len(checked)
    head = HEAD.pack(
        HEAD_MAGIC,
        size,
        round_,
        place,
        len(made),
        len(commit.dropped),
        len(commit.settled),
        len(commit.marks),
        chunk.checksum_of(checked),
        0,
    )
    return b"".join([sealed(head), checked, *messages, TAIL.pack(round_, place)])


def commit_at(octets: bytes, at: int, round_: bytes, place: int) -> tuple[Commit, list[Chunk], int] | None:
    """Return a commit, its chunks, and the size of its record; None if there is no good one for this place."""
    if _is_whole(octets, at, round_) != place:
        return None
    _, size, _, _, chunks, dropped, settled, marks, checksum, _ = HEAD.unpack_from(octets, at)
    taker = chunk.Taker(octets, at + HEAD.size, at + size - TAIL.size)
    commit, made = Commit(0), []
    try:
        numbers_of = iter(taker.column("Q", dropped + 3 * chunks + 2 * settled + 2 * marks))
        commit.dropped = [next(numbers_of) for _ in range(dropped)]
        sizes = [(next(numbers_of), next(numbers_of), next(numbers_of)) for _ in range(chunks)]
        bits = [(next(numbers_of), next(numbers_of)) for _ in range(settled)]
        commit.marks = {next(numbers_of): next(numbers_of) for _ in range(marks)}
        entries = [taker.take(length) for _, length, _ in sizes]
        commit.settled = {first: taker.take(length) for first, length in bits}
        if crc32(octets[at + HEAD.size : taker.at]) != checksum:
            return None
        for (first, _, length), value in zip(sizes, entries, strict=True):
            made.append(Chunk(first, value, taker.take(length)))
            if not _is_good(made[-1]):
                return None
    except DamagedError:
        return None
    return commit, made, size


def _is_good(made: Chunk) -> bool:
    """Return whether all checksums within a chunk fit."""
    try:
        columns = chunk.read(made.entries)
    except DamagedError:
        return False
    end = columns.ends[-1] if columns.ends else 0
    return (
        columns.first == made.first
        and end == len(made.messages)
        and not chunk.damaged_records(columns, made.messages)
    )


def _is_whole(octets: bytes, at: int, round_: bytes) -> int:
    """Return the place of the record that begins here, if its head and its tail are those of the round; else -1."""
    if at + HEAD.size > len(octets):
        return -1
    head = HEAD.unpack_from(octets, at)
    magic, size, of_round, place = head[:4]
    if magic != HEAD_MAGIC or of_round != round_ or head[-1] != crc32(octets[at : at + HEAD.size - 4]):
        return -1
    tail_at = at + size - TAIL.size
    if tail_at < at + HEAD.size or at + size > len(octets):
        return -1
    return int(place) if TAIL.unpack_from(octets, tail_at) == (round_, place) else -1


def count_behind(octets: bytes, at: int, round_: bytes, place: int) -> int:
    """Return how many commits are lost from this place on: the last whole record of the round tells."""
    places = (_is_whole(octets, begin, round_) for begin in range(at, len(octets), SECTOR))
    return max((found - place + 1 for found in places if found >= place), default=0)
