"""Segment files: what is in them, what goes, and what failures and crashes leave of it."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from leveret.durable.store.block import pack
from leveret.durable.store.contract import NoSpaceError, StoreError
from leveret.durable.store.folder import STREAMS
from leveret.durable.store.housekeeping import Housekeeping
from leveret.durable.store.sqlite import SqliteStore
from tests.durable.store.shelf import Shelf, append, content_of, quick_folder


@pytest.fixture
def place() -> Iterator[Path]:
    made = Path(quick_folder())
    yield made
    shutil.rmtree(made)


@pytest.fixture
def shelf(tmp_path: Path) -> Iterator[Shelf]:
    made = Shelf.of(tmp_path / "data").start()
    yield made
    made.store.close(None)


def file(shelf: Shelf, stream: int = 1, first: int = 0) -> Path:
    assert shelf.folder is not None
    return shelf.folder / STREAMS / str(stream) / f"{first:020}.segment"


def names(shelf: Shelf) -> list[str]:
    """Of all segment files."""
    assert shelf.folder is not None
    found = (shelf.folder / STREAMS).glob("*/*")
    return sorted(str(path.relative_to(shelf.folder / STREAMS)) for path in found)


def all_in(shelf: Shelf) -> list[tuple[int, bytes]]:
    with shelf.store.reader() as reader:
        found, errors = content_of(reader, list(shelf.store.spans()))
    assert errors == []
    return found


# Files.


def test_a_segment_is_a_file_of_blocks_and_goes_with_its_row(shelf: Shelf):
    first, second = append(1, 0, b"a", b"b"), append(1, 2, b"c")
    shelf.commit(appends=[first, second, append(1, 3, b"d", segment=3), append(22, 7, b"e", segment=7)])
    assert file(shelf).read_bytes() == pack(first) + pack(second)
    assert names(shelf) == [f"1/{0:020}.segment", f"1/{3:020}.segment", f"22/{7:020}.segment"]
    assert file(shelf).stat().st_mode & 0o077 == 0
    shelf.commit(cut=[(1, 0)], ended=[22])
    shelf.commit(objects={"a": "1"})  # files go once their commit was told
    assert names(shelf) == [f"1/{3:020}.segment"]
    assert not file(shelf, 22).parent.exists()


def test_what_is_in_the_folder_of_a_stream_and_is_not_ours_is_left_there(shelf: Shelf):
    shelf.commit(appends=[append(1, 0, b"a")])
    (file(shelf).parent / "notes.txt").write_text("precious")
    shelf.commit(ended=[1])
    shelf = shelf.given_up()
    assert names(shelf) == ["1/notes.txt"]
    shelf.start()
    assert names(shelf) == ["1/notes.txt"]
    shelf.store.close(None)


def test_what_is_behind_the_end_that_the_row_says_is_cut_off_before_more_is_appended(shelf: Shelf):
    """A crash came between the write and the commit."""
    shelf.commit(appends=[append(1, 0, b"a")])
    shelf = shelf.given_up()
    with file(shelf).open("ab") as torn:
        torn.write(pack(append(1, 1, b"never committed", b"x" * 5000)) + b"torn")
    assert shelf.store.damage == []
    shelf = shelf.given_up()
    assert shelf.store.damage == []
    shelf.start()
    assert all_in(shelf) == [(0, b"a")]
    shelf.commit(appends=[append(1, 1, b"b")])
    assert all_in(shelf) == [(0, b"a"), (1, b"b")]
    assert file(shelf).read_bytes() == pack(append(1, 0, b"a")) + pack(append(1, 1, b"b"))
    shelf.store.close(None)


def test_files_without_a_row_go_at_a_start(shelf: Shelf):
    shelf.commit(appends=[append(1, 0, b"a")])
    for path in (file(shelf, 1, 1), file(shelf, 9, 0)):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"never committed")
    shelf = shelf.given_up().start()
    assert names(shelf) == [f"1/{0:020}.segment"]
    assert not file(shelf, 9).parent.exists()
    shelf.store.close(None)


def test_what_a_damaged_row_said_is_taken_from_the_file(shelf: Shelf):
    shelf.commit(appends=[append(1, 0, b"a"), append(1, 1, b"b", b"cd", segment=1)])
    shelf.commit(appends=[append(1, 3, b"e", segment=1, arrived=1500)])
    expected = list(shelf.store.spans())
    with file(shelf, 1, 1).open("ab") as torn:
        torn.write(pack(append(1, 4, b"torn"))[:-8])
    shelf = shelf.given_up()
    spoil_row(shelf, "update segments set octets = octets + 8 where first = 1")
    shelf = shelf.given_up()
    assert [text.partition(": ")[2] for text in shelf.store.damage] == [
        "segment 2 of stream 1: its row is damaged"
    ]
    assert list(shelf.store.spans()) == expected
    shelf.start()
    assert names(shelf) == [f"1/{0:020}.segment", f"1/{1:020}.segment"]
    shelf.commit(appends=[append(1, 4, b"f", segment=1)])
    shelf = shelf.closed()
    assert all_in(shelf) == [(0, b"a"), (1, b"b"), (2, b"cd"), (3, b"e"), (4, b"f")]
    assert shelf.store.damage == [], "the row is written again"
    shelf.store.close(None)


def test_what_is_taken_from_a_file_ends_where_the_next_segment_begins(shelf: Shelf):
    shelf.commit(appends=[append(1, 0, b"a"), append(1, 1, b"b", segment=1)])
    with file(shelf).open("ab") as torn:
        torn.write(pack(append(1, 1, b"never committed")))
    shelf = shelf.given_up()
    spoil_row(shelf, "update segments set checksum = 0 where first = 0")
    shelf = shelf.given_up()
    assert all_in(shelf) == [(0, b"a"), (1, b"b")]
    shelf = shelf.start().closed().start()
    assert shelf.store.damage == []
    assert all_in(shelf) == [(0, b"a"), (1, b"b")], "though nothing was appended to it"
    shelf.store.close(None)


def test_files_without_a_row_stay_if_something_is_damaged(shelf: Shelf):
    """They may be all that is left."""
    shelf.commit(appends=[append(1, 0, b"a"), append(2, 0, b"b")])
    shelf = shelf.closed()
    spoil_row(shelf, "delete from segments where stream = 1")
    shelf = shelf.given_up().start()
    assert names(shelf) == [f"1/{0:020}.segment", f"2/{0:020}.segment"]
    shelf.store.close(None)


def spoil_row(shelf: Shelf, statement: str) -> None:
    assert isinstance(shelf.store, SqliteStore)
    shelf.store._looked_at.execute(statement)


def test_a_row_of_a_producer_that_is_damaged_is_said(shelf: Shelf):
    shelf.commit(producers={(3, "p"): 1, (3, "q"): 2})
    shelf = shelf.given_up()
    spoil_row(shelf, "update producers set sequence = 5 where producer = x'70'")
    shelf = shelf.given_up()
    assert [text.partition(": ")[2] for text in shelf.store.damage] == [
        "producer 1 of stream 3: its last sequence number is lost"
    ]
    assert list(shelf.store.producers()) == [(3, "q", 2)]
    shelf.store.close(None)


@pytest.mark.parametrize("table", ["segments", "producers"])
def test_a_row_that_is_gone_without_a_trace_is_missed(shelf: Shelf, table: str):
    shelf.commit(appends=[append(1, 0, b"a")], producers={(1, "p"): 1})
    shelf = shelf.closed()
    spoil_row(shelf, f"delete from {table}")
    shelf = shelf.given_up()
    assert "it does not hold what it held when it was closed" in shelf.store.damage[0]
    shelf.store.close(None)


def test_a_file_that_is_missing_or_short_is_said_and_the_rest_is_served(shelf: Shelf):
    for stream in (1, 2, 3):
        shelf.commit(appends=[append(stream, 0, b"a"), append(stream, 1, b"b")])
    shelf = shelf.closed()
    file(shelf, 1).unlink()
    os.truncate(file(shelf, 2), file(shelf, 2).stat().st_size - 1)
    shelf = shelf.given_up()
    assert len(shelf.store.damage) == 2
    assert "stream 1: " in shelf.store.damage[0]
    assert "is missing, with the messages from 0 to 1" in shelf.store.damage[0]
    assert "stream 2: " in shelf.store.damage[1]
    assert "is cut off" in shelf.store.damage[1]
    assert not shelf.store.was_clean
    assert [span.next for span in shelf.store.spans()] == [2, 2, 2], "offsets are not given again"
    with shelf.store.reader() as reader:
        found, errors = content_of(reader, list(shelf.store.spans()))
    assert found == [(0, b"a"), (0, b"a"), (1, b"b")]
    assert [error.next for error in errors] == [2, 2]
    shelf.store.close(None)


def test_what_is_appended_behind_what_is_lost_can_be_read(shelf: Shelf):
    for stream in (1, 2):
        shelf.commit(appends=[append(stream, 0, b"a"), append(stream, 1, b"b")])
    file(shelf, 1).unlink()
    os.truncate(file(shelf, 2), file(shelf, 2).stat().st_size - 9)
    shelf.commit(appends=[append(1, 2, b"c"), append(2, 2, b"c"), append(1, 3, b"d")])
    with shelf.store.reader() as reader:
        found, errors = content_of(reader, list(shelf.store.spans()))
    assert found == [(2, b"c"), (3, b"d"), (0, b"a"), (2, b"c")]
    assert [error.next for error in errors] == [2, 2]


# No space, failures, crashes.


class Faults:
    """System calls that change files, counted; one of them may fail, or be the last: a crash."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.at = self.count = 0
        self.error = errno.ENOSPC
        self.halves = False  # the write before the one that fails ends in the middle
        self.crashed: tuple[Path, Path] | None = None  # a folder, and where to copy it before the call
        for name in ("pwrite", "ftruncate", "fdatasync", "fsync", "unlink", "rmdir"):
            monkeypatch.setattr(os, name, self._counted(name, getattr(os, name)))

    def _counted(self, name: str, call: Callable[..., object]) -> Callable[..., object]:
        def counted(*arguments: object) -> object:
            self.count += 1
            if self.count == self.at and self.crashed is not None:
                shutil.copytree(*self.crashed)
            elif self.count == self.at:
                if name == "pwrite":
                    descriptor, octets, at = arguments
                    assert isinstance(octets, memoryview)
                    call(descriptor, octets[: len(octets) // 2], at)
                raise OSError(self.error, os.strerror(self.error))
            if name == "pwrite" and self.halves:
                descriptor, octets, at = arguments
                assert isinstance(octets, bytes | memoryview)
                return call(descriptor, octets[: len(octets) // 2 + 1], at)
            return call(*arguments)

        return counted

    def strike(self, at: int, error: int = errno.ENOSPC) -> None:
        self.count, self.at, self.error = 0, at, error


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> Faults:
    return Faults(monkeypatch)


def changes() -> dict[str, object]:
    """A commit that grows a segment by two blocks, begins two, and lets one go, and a stream."""
    return {
        "appends": [
            append(1, 1, b"b", b"c"),
            append(2, 0, b"new"),
            append(1, 3, b"d"),
            append(1, 4, b"e", segment=4),
        ],
        "cut": [(3, 0)],
        "ended": [4],
        "producers": {(1, "p"): 2},
    }


BEFORE = [(0, b"a"), (0, b"old"), (1, b"older"), (0, b"ending")]
AFTER = [(0, b"a"), (1, b"b"), (2, b"c"), (3, b"d"), (4, b"e"), (0, b"new"), (1, b"older")]


def prepared(folder: Path) -> Shelf:
    shelf = Shelf.of(folder).start()
    appends = [
        append(1, 0, b"a"),
        append(3, 0, b"old"),
        append(3, 1, b"older", segment=1),
        append(4, 0, b"ending"),
    ]
    shelf.commit(appends=appends)
    return shelf


def calls_of_a_commit(folder: Path, faults: Faults) -> tuple[int, int]:
    """How many it takes, and how many of them are after the rows were written."""
    shelf = prepared(folder)
    faults.strike(0)
    shelf.commit(**changes())
    assert all_in(shelf) == AFTER
    shelf.commit(objects={"a": "1"})
    shelf.store.close(None)
    removals = 3  # a segment, and a stream: a file and its folder
    return faults.count, removals


def test_wherever_there_is_no_space_nothing_is_kept_and_the_same_commit_can_come_again(
    place: Path, faults: Faults, monkeypatch: pytest.MonkeyPatch
):
    """And nothing is left to make room of: else the commit would be written after all."""
    monkeypatch.setattr(Housekeeping, "copy_logs", lambda self: False)
    calls, removals = calls_of_a_commit(place / "first", faults)
    assert calls > 8
    for at in range(1, calls - removals + 1):
        shelf = prepared(place / f"{at}")
        before = {name: (file(shelf).parents[1] / name).read_bytes() for name in names(shelf)}
        faults.strike(at)
        commit = shelf.new_commit(**changes())
        shelf.store.append(commit)
        shelf.hear()
        assert isinstance(shelf.told[-1], NoSpaceError), at
        assert all_in(shelf) == BEFORE
        there = {name: (file(shelf).parents[1] / name).read_bytes() for name in names(shelf)}
        assert there == before, "what it took is given back"
        shelf.store.append(commit)
        shelf.hear()
        assert shelf.told[-1] == commit.number
        assert all_in(shelf) == AFTER
        shelf = shelf.closed()
        assert (all_in(shelf), shelf.store.damage) == (AFTER, [])
        shelf.store.close(None)


def test_a_disk_that_fails_ends_the_store_and_what_was_committed_is_there(place: Path, faults: Faults):
    calls, removals = calls_of_a_commit(place / "first", faults)
    for at in range(1, calls + 1):
        is_committed = at > calls - removals
        shelf = prepared(place / f"{at}")
        faults.strike(at, errno.EIO)
        shelf.commit(**changes())
        if is_committed:
            assert shelf.told[-1] == 2, "it failed when files were to be deleted: that is heard next"
            shelf.hear()
        assert isinstance(shelf.told[-1], StoreError), at
        with pytest.raises(StoreError):
            shelf.store.close(shelf.new_commit(appends=[append(1, 1, b"more")]))
        shelf = Shelf.of(place / f"{at}")
        assert shelf.store.damage == []
        assert not shelf.store.was_clean
        shelf.start()
        assert all_in(shelf) == (AFTER if is_committed else BEFORE)
        shelf.store.close(None)


def test_wherever_a_crash_comes_a_commit_is_whole_or_nothing(place: Path, faults: Faults):
    """The files are copied as they are before each call, and opened as after a crash."""
    calls, removals = calls_of_a_commit(place / "first", faults)
    for at in range(1, calls + 1):
        shelf = prepared(place / f"{at}")
        faults.strike(at)
        faults.crashed = place / f"{at}", place / f"{at} crashed"
        shelf.commit(**changes())
        shelf.store.close(shelf.new_commit())
        faults.crashed = None
        shelf = Shelf.of(place / f"{at} crashed")
        assert shelf.store.damage == [], at
        shelf.start()
        is_committed = at > calls - removals
        assert all_in(shelf) == (AFTER if is_committed else BEFORE)
        assert len(names(shelf)) == len(list(shelf.store.spans())), "what has no row is gone"
        if not is_committed:
            shelf.commit(**changes())
            assert all_in(shelf) == AFTER
        shelf = shelf.closed()
        assert (all_in(shelf), shelf.store.damage) == (AFTER, [])
        shelf.store.close(None)


def test_a_write_that_the_system_does_by_halves_is_done(place: Path, faults: Faults):
    faults.halves = True
    shelf = prepared(place / "data")
    shelf.commit(**changes())
    shelf = shelf.closed()
    assert (all_in(shelf), shelf.store.damage) == (AFTER, [])
    shelf.store.close(None)


def test_a_node_that_was_overtaken_leaves_the_files_alone(shelf: Shelf):
    """Somebody has deleted the lock, and another node has started."""
    assert shelf.folder is not None
    shelf.commit(appends=[append(1, 0, b"a")])
    (shelf.folder / "lock").unlink()
    other = Shelf.of(shelf.folder).start()
    other.commit(appends=[append(1, 1, b"theirs")])
    assert "another node" in str(shelf.commit(appends=[append(1, 1, b"ours, and longer")]))
    after = other.closed()
    assert after.store.damage == []
    assert all_in(after) == [(0, b"a"), (1, b"theirs")]
    after.store.close(None)
