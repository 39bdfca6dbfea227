"""The writing thread when the disk is full, or fails, or is damaged; and how it keeps the files small."""

from __future__ import annotations

import errno
import os
import re
import shutil
import sqlite3
import subprocess
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from leveret.durable.store import chunk, commit_statement, housekeeping, quota
from leveret.durable.store import folder as folder_module
from leveret.durable.store.contract import Chunk, DamagedError, NoSpaceError, StoreError
from leveret.durable.store.database import PAGE_OCTETS
from leveret.durable.store.folder import LOCK, MESSAGES, META
from leveret.durable.store.housekeeping import FREE_PAGES, TRICKLE_PAGES
from leveret.durable.store.sqlite import SqliteStore
from tests.durable.store.shelf import Shelf, entries

FULL = (sqlite3.SQLITE_FULL, "database or disk is full")
CORRUPT = (sqlite3.SQLITE_CORRUPT, "database disk image is malformed")
NO_SYNC = (sqlite3.SQLITE_IOERR_FSYNC, "disk I/O error")


class Faulty:
    """A connection whose statements fail when a test says so, instead of being run."""

    def __init__(self, connection: sqlite3.Connection, fails: Callable[..., tuple[int, str] | None]) -> None:
        self._connection = connection
        self._fails = fails

    def execute(self, sql: str, *arguments: object) -> sqlite3.Cursor:
        self._may_fail(sql, *arguments)
        return self._connection.execute(sql, *arguments)  # type: ignore[arg-type]

    def executemany(self, sql: str, rows: object) -> sqlite3.Cursor:
        self._may_fail(sql, rows)
        return self._connection.executemany(sql, rows)  # type: ignore[arg-type]

    def executescript(self, sql: str) -> sqlite3.Cursor:
        self._may_fail(sql)
        return self._connection.executescript(sql)

    def __getattr__(self, name: str) -> object:
        return getattr(self._connection, name)

    def _may_fail(self, sql: str, *arguments: object) -> None:
        fault = self._fails(sql, *arguments)
        if fault is not None:
            error = sqlite3.OperationalError(fault[1])
            error.sqlite_errorcode, error.sqlite_errorname = fault[0], "SQLITE_SOMETHING"
            raise error


def make_faulty(store: SqliteStore, fails: Callable[..., tuple[int, str] | None]) -> None:
    """Have the connections that write fail when a test says so."""
    writer = store._writer
    for name in ("_messages", "_meta"):
        faulty = Faulty(getattr(writer, name), fails)
        setattr(writer, name, faulty)
        setattr(writer._files, name, faulty)


class Disk:
    """A store with faulty connections: a fault strikes at one statement, by its number, or at those with a word."""

    def __init__(self, folder: Path) -> None:
        self.shelf = Shelf.of(folder)
        self.fault: tuple[int, str] | None = None
        self.at = 0
        self.word = ""
        self.broken: set[int] = set()  # chunks that cannot be deleted
        self.statements: list[str] = []
        assert isinstance(self.shelf.store, SqliteStore)
        make_faulty(self.shelf.store, self._fails)
        self.shelf.start()

    def _fails(self, sql: str, *arguments: object) -> tuple[int, str] | None:
        self.statements.append(sql)
        if "delete" in sql or sql == commit_statement.DO:
            listed = re.findall(r"'\[([\d, ]+)\]'|\((\d+),\)", repr(arguments))
            if self.broken.intersection(
                int(each) for pair in listed for text in pair for each in re.findall(r"\d+", text)
            ):
                return CORRUPT
        self.at -= 1
        return self.fault if self.at == 0 or (self.word and self.word in sql) else None

    def strike(self, fault: tuple[int, str], at: int = 0, word: str = "") -> None:
        self.fault, self.at, self.word = fault, at, word


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    made = Disk(tmp_path / "data")
    made.shelf.commit(
        objects={"a": "1"}, chunks=[entries(1, b"x"), entries(2, b"y"), entries(3, b"z")], marks={2: 1}
    )
    yield made
    made.shelf.store.close(None)


@pytest.mark.parametrize(
    ("pragma", "value"),
    [
        ("synchronous", 2),  # full: the log is synced with each commit
        ("journal_mode", b"wal"),
        ("auto_vacuum", 2),  # incremental
        ("wal_autocheckpoint", 0),  # nobody would hear of its errors
        ("secure_delete", 0),  # to delete a chunk would write all of it once more
    ],
)
def test_the_databases_are_as_promises_and_speed_need_them(disk: Disk, pragma: str, value: object):
    thread = disk.shelf.store._writer  # type: ignore[attr-defined]
    for connection in (thread._messages, thread._meta):
        assert connection.execute(f"pragma {pragma}").fetchone() == (value,)


COLUMNS: dict[str, object] = {
    "objects": {"a": "2", "b": None, "c": "3"},
    "chunks": [entries(4, b"new"), entries(5, b"newer")],
    "settled": {2: b"\1"},
    "marks": {3: 4},
    "dropped": [1],
}


# A quota.

NO_WRITE = (sqlite3.SQLITE_IOERR_WRITE, "disk I/O error")


@pytest.mark.parametrize("word", ["insert", "wal_checkpoint"])
@pytest.mark.parametrize("is_used_up", [True, False])
def test_a_write_that_a_quota_forbids_is_one_without_room_and_another_ends_the_store(
    disk: Disk, word: str, is_used_up: bool, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(quota, "is_used_up", lambda folder: is_used_up)
    disk.strike(NO_WRITE, word=word)
    if word == "insert":
        told = disk.shelf.commit(objects={"a": "2"}, chunks=[entries(4, b"new")])
        assert isinstance(told, NoSpaceError if is_used_up else StoreError)
    else:
        files = disk.shelf.store._writer._files  # type: ignore[attr-defined]
        with pytest.raises(StoreError) if not is_used_up else nullcontext():
            files.copy_logs()
    disk.strike(NO_WRITE)
    if is_used_up:
        assert disk.shelf.commit(chunks=[entries(5, b"newer")]) == disk.shelf.told[-1]
        assert isinstance(disk.shelf.told[-1], int)


def test_a_folder_that_can_be_written_has_no_used_up_quota(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    assert not quota.is_used_up(tmp_path)
    assert not quota.is_used_up(tmp_path / "missing")

    def refuse(*given: object) -> int:
        raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))

    monkeypatch.setattr(quota.os, "pwrite", refuse)
    assert quota.is_used_up(tmp_path)
    assert [*tmp_path.iterdir()] == []


# Files that somebody deletes.


@pytest.mark.parametrize("name", [LOCK, META, MESSAGES])
@pytest.mark.parametrize("redo_octets", [0, 1 << 20])
@pytest.mark.parametrize("how", ["deleted", "replaced", "moved with its folder"])
def test_nothing_is_durable_in_files_that_somebody_has_taken_away(
    tmp_path: Path, name: str, redo_octets: int, how: str
):
    folder = tmp_path / "data"
    shelf = Shelf.of(folder, redo_octets).start()
    shelf.commit(chunks=[entries(1, b"x")])
    if how == "moved with its folder":
        folder.rename(tmp_path / "elsewhere")
    else:
        (folder / name).unlink()
    if how == "replaced":
        (folder / name).touch()
    told = shelf.commit(chunks=[entries(2, b"y")])
    assert isinstance(told, StoreError)
    assert str(told).endswith("has been deleted, moved or replaced while the node ran")
    shelf.store.close(None)


def test_a_store_whose_files_were_taken_away_does_not_end_as_if_all_were_well(tmp_path: Path):
    shelf = Shelf.of(tmp_path / "data").start()
    shelf.commit(chunks=[entries(1, b"x")])
    shutil.rmtree(tmp_path / "data")
    with pytest.raises(StoreError, match=r"could not be closed properly: .* has been deleted"):
        shelf.store.close(shelf.new_commit())


def test_a_folder_that_cannot_be_looked_into_is_not_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    shelf = Shelf.of(tmp_path / "data").start()

    def refuse(file: Path) -> os.stat_result:
        raise PermissionError(errno.EACCES, "Permission denied", str(file))

    with monkeypatch.context() as patched:
        patched.setattr(folder_module.os, "stat", refuse)
        shelf.commit(chunks=[entries(1, b"x")])
    shelf.store.close(shelf.new_commit())


def statements_of_a_commit(folder: Path) -> int:
    disk = Disk(folder)
    disk.shelf.commit(chunks=[entries(1, b"x"), entries(2, b"y"), entries(3, b"z")])
    disk.statements.clear()
    disk.shelf.commit(**COLUMNS)
    disk.shelf.store.close(None)
    return len(disk.statements)


# No space.


def test_wherever_it_is_found_that_there_is_no_space_the_same_commit_can_come_again(tmp_path: Path):
    count = statements_of_a_commit(tmp_path / "first")
    assert count > 5
    for at in range(1, count + 1):
        disk = Disk(tmp_path / f"{at}")
        disk.shelf.commit(objects={"a": "1"}, chunks=[entries(1, b"x"), entries(2, b"y"), entries(3, b"z")])
        disk.strike(FULL, at)
        commit = disk.shelf.new_commit(**COLUMNS)
        disk.shelf.store.append(commit)
        disk.shelf.hear()
        if isinstance(disk.shelf.told[-1], NoSpaceError):
            with disk.shelf.store.reader() as reader:
                assert reader.find(1000)[0] == 3, "nothing of it is kept"
            disk.shelf.store.append(commit)
            disk.shelf.hear()
        assert disk.shelf.told[-1] == commit.number
        after = disk.shelf.killed()
        found = after.found()
        assert found.objects == [("a", "2"), ("c", "3")]
        assert {first: bits for first, (_, _, bits) in found.chunks.items()} == {
            2: b"\1",
            3: b"",
            4: b"",
            5: b"",
        }
        assert found.marks == {3: 4}
        after.store.close(None)


def test_want_of_space_for_the_log_to_be_copied_is_no_failure(disk: Disk, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(housekeeping, "LOG_OCTETS", 0)
    disk.strike(FULL, word="wal_checkpoint")
    for number in range(4, 9):
        assert disk.shelf.commit(chunks=[entries(number, b"x")]) == disk.shelf._commits
    assert any("wal_checkpoint" in sql for sql in disk.statements)


def test_no_space_for_the_last_commit_is_a_failure(disk: Disk):
    disk.strike(FULL, word="insert")
    with pytest.raises(StoreError, match="could not be closed properly"):
        disk.shelf.store.close(disk.shelf.new_commit(chunks=[entries(4, b"x")]))
    after = Shelf.of(disk.shelf.folder)  # type: ignore[arg-type]
    assert not after.store.was_clean
    assert list(after.found().chunks) == [1, 2, 3]
    after.store.close(None)


def test_a_full_file_system_can_be_emptied(tmp_path: Path):
    """A real one of 8 MiB: commits go on until there is no room, wait, and go on."""
    place = tmp_path / "small"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(place)], capture_output=True, text=True
    )
    if mounted.returncode:
        pytest.skip(f"a small file system cannot be mounted here: {mounted.stderr.strip()}")
    try:
        ballast = [place / "one", place / "two"]
        ballast[0].write_bytes(bytes(1 << 20))
        ballast[1].write_bytes(bytes(4 << 20))
        shelf = Shelf.of(place / "data").start()
        number = 1
        while isinstance(shelf.commit(chunks=[entries(number, b"x" * 50_000)]), int):
            number += 1
        assert isinstance(shelf.told[-1], NoSpaceError)
        assert isinstance(shelf.commit(objects={"a": "x" * 2_000_000}), NoSpaceError)
        ballast[0].unlink()
        assert isinstance(shelf.commit(chunks=[entries(number, b"x" * 50_000)]), int)
        ballast[1].unlink()
        shelf = shelf.given_up()
        assert list(shelf.found().chunks) == list(range(1, number + 1))
        assert shelf.found().objects == []
        shelf.store.close(None)
    finally:
        subprocess.run(["umount", "-l", str(place)], check=True)


# Failing.


def test_wherever_the_disk_fails_nothing_is_written_after_it(tmp_path: Path):
    for at in range(1, statements_of_a_commit(tmp_path / "first") + 1):
        disk = Disk(tmp_path / f"{at}")
        disk.shelf.commit(objects={"a": "1"}, chunks=[entries(1, b"x"), entries(2, b"y"), entries(3, b"z")])
        disk.strike(NO_SYNC, at)
        disk.shelf.commit(**COLUMNS)
        if isinstance(disk.shelf.told[-1], int):  # it was struck when it looked after the files
            disk.shelf.hear()
        said = disk.shelf.told[-1]
        assert isinstance(said, StoreError)
        assert "disk I/O error" in str(said)
        disk.statements.clear()
        disk.shelf.store.append(disk.shelf.new_commit(chunks=[entries(9, b"x")]))
        with pytest.raises(StoreError):
            disk.shelf.store.close(disk.shelf.new_commit(chunks=[entries(10, b"x")]))
        assert disk.statements == []
        after = Shelf.of(disk.shelf.folder)  # type: ignore[arg-type]
        assert not after.store.was_clean
        found = after.found()
        assert list(found.chunks) in ([1, 2, 3], [2, 3, 4, 5])
        assert 4 not in found.chunks or ("c", "3") in found.objects, "there is no message without its queue"
        after.store.close(None)


@pytest.mark.parametrize("key", [None, "2"])
def test_what_is_removed_is_there_until_its_messages_are_elsewhere(tmp_path: Path, key: str | None):
    """A queue is deleted, and what was in it goes elsewhere: it must not be lost if the node ends in between.

    The same holds where another queue of that name is declared in the same commit.
    """
    seen = set()
    for at in range(1, 16):
        disk = Disk(tmp_path / f"{at}")
        disk.shelf.commit(objects={"queue": "1"}, chunks=[entries(1, b"x")])
        disk.strike(NO_SYNC, at)
        disk.shelf.commit(
            objects={"other": "1", "queue": key}, renewed={"queue"}, dropped=[1], chunks=[entries(4, b"x")]
        )
        after = disk.shelf.given_up()
        found = after.found()
        seen.add((dict(found.objects).get("queue"), *found.chunks))
        assert 4 not in found.chunks or ("other", "1") in found.objects
        after.store.close(None)
    assert seen == {("1", 1), ("1", 4), (key, 4)}


def test_a_mistake_of_ours_is_a_failure(disk: Disk):
    broken = entries(4, b"x")
    broken.messages[0] = None  # type: ignore[call-overload]
    assert isinstance(disk.shelf.commit(chunks=[broken]), StoreError)


def test_the_number_of_an_entry_cannot_be_used_twice(disk: Disk):
    assert isinstance(disk.shelf.commit(chunks=[entries(2, b"other")]), StoreError)


def test_a_node_that_was_overtaken_writes_no_more(disk: Disk):
    """Somebody has deleted the lock, and another node has started."""
    assert disk.shelf.folder is not None
    (disk.shelf.folder / "lock").unlink()
    other = Shelf.of(disk.shelf.folder).start()
    assert "another node" in str(disk.shelf.commit(objects={"b": "1"}))
    assert other.commit(chunks=[entries(4, b"x")]) == 1
    after = other.given_up()
    assert after.found().objects == [("a", "1")]
    after.store.close(None)


# Damage.


def test_a_chunk_that_is_too_damaged_to_be_deleted_is_set_aside(disk: Disk):
    disk.broken = {2}
    assert disk.shelf.commit(dropped=[2], chunks=[entries(4, b"new")]) == 2
    with disk.shelf.store.reader() as reader:
        assert [reader.find(number)[0] for number in (1, 2, 3, 4)] == [1, 1, 3, 4]
    shelf = disk.shelf.closed()
    assert [first for first, (columns, _, _) in shelf.found().chunks.items() if columns is None] == [2]
    assert [text.partition(": ")[2] for text in shelf.store.damage] == ["chunk 2: it cannot be read"]
    assert not shelf.store.was_clean
    shelf.start().commit(dropped=[1, 3])
    with shelf.store.reader() as reader:
        assert reader.find(4)[0] == 4
        with pytest.raises(DamagedError, match="no chunk has entry 3"):
            reader.find(3)
    shelf.store.close(None)


@pytest.mark.parametrize("broken", [1, 2])
def test_a_merged_chunk_does_not_take_the_number_of_one_that_is_too_damaged_to_be_deleted(
    disk: Disk, broken: int
):
    """Then all of them stay as they are: an ignored number would hide the merged one."""
    parts = [chunk.pack(entries(1, b"x")), chunk.pack(entries(2, b"y"))]
    merged = chunk.rewritten([(each.entries, each.messages, [each.first]) for each in parts])
    disk.broken = {broken}
    made = Chunk(merged.first, merged.entries, merged.messages)
    assert disk.shelf.commit(replaced=[([1, 2], made)], settled={1: b"\0"}) == 2
    with disk.shelf.store.reader() as reader:
        for part in parts:
            first, columns = reader.find(part.first)
            messages = reader.messages(first, 0, chunk.read(columns).ends[-1])
            assert (first, messages) == ((1, merged.messages) if broken == 2 else (part.first, part.messages))
    assert disk.shelf.store.damage == []


# Keeping the files small.


def test_what_became_free_is_given_back_when_nothing_comes(tmp_path: Path):
    shelf = Shelf.of(tmp_path / "data").start()
    shelf.commit(chunks=[entries(number, b"x" * 200_000) for number in range(1, 101)])
    shelf.commit(dropped=list(range(1, 101)))
    shelf.store.close(shelf.new_commit())
    assert (tmp_path / "data" / MESSAGES).stat().st_size > 20_000_000
    store = SqliteStore(tmp_path / "data")
    steps = 1
    while store._writer.look_after():
        steps += 1
    assert steps > 10, "each of them is short"
    assert store.stats().free_octets == FREE_PAGES * PAGE_OCTETS
    assert (tmp_path / "data" / MESSAGES).stat().st_size < FREE_PAGES * PAGE_OCTETS + 300_000
    store.close(None)


def test_under_load_a_little_is_given_back_as_long_as_half_of_the_file_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(housekeeping, "TRICKLE_S", -1.0)
    monkeypatch.setattr(housekeeping, "FREE_PAGES", 16)  # and 16 times as many, before it is worth while
    disk = Disk(tmp_path / "data")
    disk.shelf.commit(chunks=[entries(number, b"x" * 50_000) for number in range(1, 101)])
    disk.shelf.commit(dropped=list(range(45, 101)))
    for number in range(20):
        disk.shelf.commit(objects={f"{number}": "x"})
    shelf = disk.shelf.closed()
    given_back = [sql for sql in disk.statements if "vacuum" in sql]
    assert 3 < len(given_back) < 20
    assert set(given_back) == {f"pragma incremental_vacuum({TRICKLE_PAGES})"}
    pages = (tmp_path / "data" / MESSAGES).stat().st_size // PAGE_OCTETS
    free = shelf.store.stats().free_octets // PAGE_OCTETS
    assert pages // 2 - TRICKLE_PAGES <= free <= pages // 2, "it ends with half of the file"
    shelf.store.close(None)


def test_pages_of_a_damaged_store_are_left_where_they_are(disk: Disk):
    disk.strike(CORRUPT, word="freelist_count")
    thread = disk.shelf.store._writer  # type: ignore[attr-defined]
    assert not thread.look_after()
    disk.strike((0, ""))
    assert not thread._files.shrinks


def test_the_log_is_copied_when_it_has_grown(tmp_path: Path):
    shelf = Shelf.of(tmp_path / "data").start()
    for number in range(1, 101):
        shelf.commit(chunks=[entries(number, b"x" * 400_000)])
    assert (tmp_path / "data" / f"{MESSAGES}-wal").stat().st_size < 2 * housekeeping.LOG_OCTETS
    shelf.store.close(None)
