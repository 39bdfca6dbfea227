"""How a store is gone through: what is read for it, what is found around a damaged page, and of which moment it is."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from broker_core.store import chunk
from broker_core.store.contract import DamagedError
from broker_core.store.database import PAGE_OCTETS
from broker_core.store.folder import MESSAGES
from tests.store.shelf import Shelf, entries


def filled(folder: Path, chunks: int, octets: int) -> None:
    shelf = Shelf.of(folder).start()
    for first in range(1, chunks, 500):
        shelf.commit(
            chunks=[
                entries(number, b"%d " % number * octets)
                for number in range(first, min(first + 500, chunks + 1))
            ]
        )
    shelf.store.close(shelf.new_commit())


def read_so_far() -> int:
    """Octets that this process has read from files."""
    try:
        counts = Path("/proc/self/io").read_text()
    except OSError:
        pytest.skip("the system does not tell how much was read")
    return int(counts.partition("rchar: ")[2].split()[0])


def test_a_start_reads_no_messages(tmp_path: Path):
    filled(tmp_path / "data", 200, 200_000)
    size = (tmp_path / "data" / MESSAGES).stat().st_size
    assert size > 100_000_000
    shelf = Shelf.of(tmp_path / "data")
    before = read_so_far()
    assert len(shelf.found().chunks) == 200
    assert read_so_far() - before < size // 50
    shelf.store.close(None)


def test_a_slice_of_a_large_chunk_is_read_without_the_rest(tmp_path: Path):
    shelf = Shelf.of(tmp_path / "data").start()
    shelf.commit(chunks=[entries(1, bytes(50_000_000), b"x" * 1000)])
    columns = chunk.read(chunk.pack(entries(1, bytes(50_000_000), b"x" * 1000)).entries)
    before = read_so_far()
    with shelf.store.reader() as reader:
        assert reader.messages(1, columns.ends[1] - 1000, 1000) == b"x" * 1000
    assert read_so_far() - before < 5_000_000
    shelf.store.close(None)


def test_what_is_around_a_damaged_page_is_found(tmp_path: Path):
    """Of 3000 small chunks, a page's worth is lost, and said to be; all others are there and can be read."""
    filled(tmp_path / "data", 3000, 5)
    file = tmp_path / "data" / MESSAGES
    octets = bytearray(file.read_bytes())
    for number in (1200, 2100):
        at = octets.rindex(b"%d " % number * 5) // PAGE_OCTETS * PAGE_OCTETS
        octets[at : at + PAGE_OCTETS] = bytes(PAGE_OCTETS)
    file.write_bytes(octets)
    shelf = Shelf.of(tmp_path / "data")
    found = shelf.found()
    lost = [number for number in range(1, 3001) if number not in found.chunks]
    assert 1200 in lost
    assert 2100 in lost
    assert len(lost) < 60
    assert all(columns is not None for columns, _, _ in found.chunks.values())
    gaps = [text for text in shelf.store.damage if "cannot be read" in text]
    assert [f"{MESSAGES}: chunks: what there is from" in text for text in gaps] == [True, True]
    assert not shelf.store.was_clean
    with shelf.store.reader() as reader:
        for number in range(1, 3001):
            if number in lost:
                with pytest.raises(DamagedError):
                    reader.find(number)
            else:
                first, columns = reader.find(number)
                assert first == number
                record = reader.messages(first, 0, chunk.read(columns).ends[0])
                assert record.endswith(b"%d " % number * 5)
    shelf.start()
    assert shelf.commit(chunks=[entries(3001, b"new")], dropped=[1, 3000]) == 1
    shelf.store.close(None)


def test_what_is_read_within_one_moment_is_of_one_moment(tmp_path: Path):
    shelf = Shelf.of(tmp_path / "data").start()
    shelf.commit(chunks=[entries(1, b"x")])
    with shelf.store.reader() as reader:
        first, columns = reader.find(1)
        shelf.commit(dropped=[1], chunks=[entries(2, b"y")])
        assert reader.messages(first, 0, chunk.read(columns).ends[0]).endswith(b"x")
        assert reader.find(2)[0] == 1
    with shelf.store.reader() as reader:
        assert reader.find(2)[0] == 2
    shelf.store.close(None)


def test_what_is_gone_without_a_trace_is_missed(tmp_path: Path):
    """Whole rows are taken out, as a damaged page might lose them: what is left looks perfect."""
    filled(tmp_path / "data", 10, 5)
    with sqlite3.connect(tmp_path / "data" / MESSAGES) as connection:
        connection.execute("delete from chunks where first = 7")
    connection.close()
    shelf = Shelf.of(tmp_path / "data")
    assert len(shelf.found().chunks) == 9
    assert "it does not hold what it held when it was closed" in shelf.store.damage[0]
    shelf.store.close(None)


def test_a_chunk_under_another_number_is_damaged(tmp_path: Path):
    filled(tmp_path / "data", 3, 5)
    with sqlite3.connect(tmp_path / "data" / MESSAGES) as connection:
        connection.execute("update chunks set first = 9 where first = 2")
    connection.close()
    shelf = Shelf.of(tmp_path / "data")
    assert [first for first, (columns, _, _) in shelf.found().chunks.items() if columns is None] == [9]
    assert any("chunk 9: it says that it is chunk 2" in text for text in shelf.store.damage)
    shelf.store.close(None)
