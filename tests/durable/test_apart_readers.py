"""What is settled in a merged chunk that the store has left apart is never counted for another entry."""

from __future__ import annotations

from pathlib import Path

from leveret.durable.chunk_state import ChunkState
from leveret.durable.store import chunk
from leveret.durable.store.contract import Entries
from tests.durable.store.shelf import entries
from tests.durable.store.test_writer import Disk


def state_of(first: int, count: int) -> ChunkState:
    return ChunkState(first, range(first, first + count), 1)


def test_bits_of_a_merged_chunk_are_not_taken_for_those_of_its_first_part(tmp_path: Path):
    disk = Disk(tmp_path / "data")
    parts: list[Entries] = [entries(1, *[b"x"] * 8), entries(9, b"y")]
    packed = [chunk.pack(each) for each in parts]
    assert disk.shelf.commit(chunks=parts) == 1
    first = state_of(1, 8)
    first.settle([1, 2, 3])
    assert disk.shelf.commit(settled={1: bytes(first.bits)}) == 2
    needed = [4, 5, 6, 7, 8], [9]
    merged = chunk.rewritten(
        [(each.entries, each.messages, some) for each, some in zip(packed, needed, strict=True)]
    )
    disk.broken = {1}
    assert disk.shelf.commit(replaced=[([1, 9], merged)]) == 3
    settled = ChunkState(1, chunk.read(merged.entries).numbers, len(merged.messages))
    settled.settle([9])  # the journal settles the last entry of the merged chunk
    assert disk.shelf.commit(settled={1: bytes(settled.bits)}) == 4
    found = disk.shelf.closed().found().chunks
    columns, octets, bits = found[1]
    assert columns is not None
    after = ChunkState(1, chunk.read(columns).numbers, octets)
    after.restore_bits(bits or b"")
    assert [number for number in (4, 5, 6, 7, 8) if not after.needs(number)] == []
