"""How a store is gone through: what is read for it, what is found around a damaged page, and of which moment it is."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from leveret.durable.store import chunk
from leveret.durable.store.contract import DamagedError
from leveret.durable.store.database import PAGE_OCTETS
from leveret.durable.store.folder import MESSAGES, META, BadFolder
from leveret.durable.store.sqlite import SqliteStore
from tests.durable.store.shelf import Shelf, entries


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
    shelf.commit()  # once this is told, the thread has copied the log of the first
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


def test_nothing_is_left_of_what_was_dropped(tmp_path: Path):
    shelf = Shelf.of(tmp_path / "data").start()
    shelf.commit(
        chunks=[entries(1, b"x"), entries(2, b"y")], settled={1: b"\1", 2: b"\1"}, marks={1: 1, 2: 2}
    )
    shelf.commit(dropped=[1, 2])
    shelf.store.close(shelf.new_commit())
    with sqlite3.connect(tmp_path / "data" / MESSAGES) as connection:
        for table in ("chunks", "settled", "marks", "aside"):
            assert connection.execute(f"select count(*) from {table}").fetchone() == (0,), table
    connection.close()


BEHIND_OUR_BACK = [
    ("update chunks set first = 9 where first = 2", "chunk 9: it says that it is chunk 2"),
    (
        "update chunks set entries = zeroblob(99) where first = 2",
        "chunk 2: the checksum of a chunk's entries",
    ),
    ("update chunks set entries = 'text' where first = 2", "chunk 2: a chunk's entries are cut off"),
    ("update settled set bits = x'03'", "chunk 1: it is not known which of its entries are settled"),
    ("update settled set bits = 3", "chunk 1: it is not known which of its entries are settled"),
    ("update settled set chunk = 2", "chunk 2: it is not known which of its entries are settled"),
    ("update marks set tries = 5", "it is not known how often entry 2 was delivered"),
    ("update marks set entry = 3", "it is not known how often entry 3 was delivered"),
    ("update state set ended = 2", "the checksum of the state does not fit"),
    ("update state set tally = x''", "the checksum of the state does not fit"),
    ("update state set epoch = 'many'", "the checksum of the state does not fit"),
    ("delete from state", "the state is missing"),
    ("delete from chunks where first = 3", "it does not hold what it held when it was closed"),
    ("delete from settled", "it does not hold what it held when it was closed"),
    ("delete from marks", "it does not hold what it held when it was closed"),
]


@pytest.mark.parametrize(("change", "said"), BEHIND_OUR_BACK)
def test_a_row_that_was_changed_behind_our_back_is_not_believed(tmp_path: Path, change: str, said: str):
    shelf = Shelf.of(tmp_path / "data").start()
    shelf.commit(chunks=[entries(1, b"x", b"y"), entries(3, b"z")], settled={1: b"\1"}, marks={2: 7})
    shelf.commit(chunks=[entries(4, b"x")], replaced=[([3], chunk.pack(entries(2, b"z")))])
    shelf.commit(chunks=[entries(5, b"x")], replaced=[([4], chunk.pack(entries(3, b"z")))])
    shelf.store.close(shelf.new_commit())
    changed(tmp_path / "data" / MESSAGES, change)
    shelf = Shelf.of(tmp_path / "data")
    found = shelf.found()
    assert any(said in text for text in shelf.store.damage)
    assert not shelf.store.was_clean
    assert found.chunks.get(1, (None, 0, None))[2] in ({b"", None} if "settled" in change else {b"\1"})
    assert found.marks in ([{2: 7}, {}] if "marks" in change else [{2: 7}])
    shelf.store.close(None)


@pytest.mark.parametrize(
    "change",
    ["update objects set value = 'two'", "update objects set key = 'b'", "update objects set value = x'ff'"],
)
def test_an_object_that_was_changed_behind_our_back_is_refused(tmp_path: Path, change: str):
    shelf = Shelf.of(tmp_path / "data").start()
    shelf.commit(objects={"a": "1"})
    shelf.store.close(shelf.new_commit())
    changed(tmp_path / "data" / META, change)
    with pytest.raises(BadFolder, match="the object at 1 is damaged"):
        SqliteStore(tmp_path / "data")


def changed(database: Path, change: str) -> None:
    with sqlite3.connect(database) as connection:
        connection.execute(change)
    connection.close()
