"""The redo log: what is in it counts, what becomes of it is harmless or said, and little of it reaches the database."""

from __future__ import annotations

import errno
import os
import random
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.durable.store import (
    backup,
    chunk,
    housekeeping,
    redo_log,
    redo_policy,
    redo_record,
    verification,
    writer,
)
from leveret.durable.store.contract import Commit, StoreError
from leveret.durable.store.database import FORMAT, LOGGED, WAITING
from leveret.durable.store.folder import MESSAGES
from leveret.durable.store.logged_changes import LoggedChanges
from leveret.durable.store.redo_log import RedoLog
from leveret.durable.store.redo_policy import REDO_OCTETS
from leveret.durable.store.redo_record import SECTOR
from leveret.durable.store.sqlite import SqliteStore
from leveret.mark import mark_of
from tests.durable.store.shelf import Found, Shelf, entries, quick_folder
from tests.durable.store.test_damage import BODIES, Sample, cut, flip, live, outcome, read

NAME = f"{MESSAGES}-redo"


def commits() -> Iterator[dict[str, object]]:
    """Commits that go to the log, but for the first."""
    yield {"objects": {'["queue","/","a"]': "{}"}, "chunks": [entries(1, *(BODIES[n] for n in range(1, 5)))]}
    yield {"chunks": [entries(5, *(BODIES[n] for n in range(5, 9))), entries(9, BODIES[9])]}
    yield {"settled": {1: b"\5", 5: b"\2"}, "marks": {2: 3, 9: 70_000}}
    yield {"chunks": [entries(10, BODIES[10], BODIES[11])], "settled": {5: b"\3"}, "marks": {10: 1}}
    yield {"dropped": [5, 10]}
    yield {"chunks": [entries(12, BODIES[12])], "dropped": [9]}
    yield {"settled": {12: b"\1"}}


def filled(folder: Path) -> Shelf:
    shelf = Shelf.of(folder, REDO_OCTETS).start()
    for columns in commits():
        shelf.commit(**columns)
    return shelf


def writer_of(shelf: Shelf) -> writer.Writer:
    assert isinstance(shelf.store, SqliteStore)
    return shelf.store._writer


def in_database(folder: Path) -> list[int]:
    with closing(sqlite3.connect(f"file:{folder / MESSAGES}?mode=ro", uri=True)) as database:
        return [first for (first,) in database.execute("select first from chunks order by first")]


def format_of(folder: Path) -> int:
    with closing(sqlite3.connect(f"file:{folder / MESSAGES}?mode=ro", uri=True)) as database:
        return int(database.execute("pragma user_version").fetchone()[0])


def contents() -> list[Found]:
    """What there is after each commit, according to a store without a log."""
    found = []
    place = Path(quick_folder())
    for count in range(len([*commits()]) + 1):
        shelf = Shelf.of(place / str(count)).start()
        for columns in [*commits()][:count]:
            shelf.commit(**columns)
        shelf = shelf.given_up()
        found.append(shelf.found())
        shelf.store.close(None)
    shutil.rmtree(place)
    return found


@pytest.fixture(scope="module")
def killed() -> Iterator[Sample]:
    place = Path(quick_folder())
    yield logged_in(place)
    shutil.rmtree(place)


def logged_in(place: Path) -> Sample:
    """Killed: most of it is in the redo log."""
    filled(place / "logging").kill(place / "logged")
    found = contents()
    return Sample(place / "logged", found, [([], [])] * len(found))


# What is in it counts.


def test_commits_are_in_the_log_until_it_is_written_to_the_database(tmp_path: Path):
    shelf = filled(tmp_path / "data")
    assert in_database(tmp_path / "data") == [1]
    assert read(shelf.store) == {number: BODIES[number] for number in (1, 2, 3, 4, 12)}
    while writer_of(shelf).look_after():
        pass
    assert in_database(tmp_path / "data") == [1, 12], "what was deleted before never gets there"
    assert read(shelf.store) == {number: BODIES[number] for number in (1, 2, 3, 4, 12)}
    shelf = shelf.killed()
    assert shelf.store.damage == []
    assert shelf.found() == contents()[-1]
    shelf.store.close(None)


@pytest.mark.parametrize("commit", [{"objects": {"b": "1"}}, {"appends": []}])
def test_whatever_else_is_written_comes_after_it(tmp_path: Path, commit: dict[str, object]):
    shelf = filled(tmp_path / "data")
    shelf.commit(**commit, chunks=[entries(50, b"new")])
    in_log = not commit["appends"] if "appends" in commit else False
    assert in_database(tmp_path / "data") == ([1] if in_log else [1, 12, 50])
    shelf.store.close(None)


def test_stats_count_what_is_in_the_log(tmp_path: Path):
    shelf = filled(tmp_path / "data")
    logged = shelf.store.stats()
    while writer_of(shelf).look_after():
        pass
    written = shelf.store.stats()
    assert (logged.chunks, logged.messages_octets) == (written.chunks, written.messages_octets)
    assert logged.chunks == 2
    shelf.store.close(None)


@pytest.mark.parametrize("waits", [False, True])
def test_the_format_says_that_there_is_a_log_until_the_store_is_closed(tmp_path: Path, waits: bool):
    folder, base = tmp_path / "data", FORMAT + (WAITING if waits else 0)
    shelf = filled(folder)
    if waits:
        shelf.commit(marks={12: mark_of(1, False, 1_700_000_000_000)})
    assert format_of(folder) & LOGGED
    while writer_of(shelf).look_after():
        pass
    assert format_of(folder) == base + LOGGED
    shelf.store.close(shelf.new_commit())
    assert format_of(folder) == base, "older versions can open it"
    assert not (folder / NAME).exists()


def test_a_store_without_a_log_reads_one(killed: Sample):
    shelf = Shelf.of(killed.damaged(NAME, lambda octets: None))
    assert shelf.found() == contents()[-1]
    assert shelf.store.damage == []
    assert not shelf.store.was_clean
    shelf.start()
    shelf.commit(chunks=[entries(50, BODIES[50])])
    assert 50 in read(shelf.store)
    shelf.store.close(None)


@given(
    chunks=st.lists(st.lists(st.binary(max_size=700), min_size=1, max_size=4), max_size=3),
    settled=st.dictionaries(st.integers(1, 1 << 63), st.binary(min_size=1, max_size=20), max_size=3),
    marks=st.dictionaries(st.integers(0, 1 << 63), st.integers(0, 1 << 63), max_size=3),
    dropped=st.lists(st.integers(1, 1 << 63), max_size=3, unique=True),
    torn=st.integers(0, 3000),
)
def test_what_is_read_is_what_was_written_or_what_came_before_it(
    chunks: list[list[bytes]],
    settled: dict[int, bytes],
    marks: dict[int, int],
    dropped: list[int],
    torn: int,
):
    folder = Path(quick_folder())
    log, written = RedoLog(folder / MESSAGES, bytes(16)), LoggedChanges()
    log.begin()
    made = [chunk.pack(entries(10 * at + 1, *bodies)) for at, bodies in enumerate(chunks)]
    commit = Commit(1)
    commit.settled, commit.marks, commit.dropped = settled, marks, dropped
    log.append(commit, made)
    log.append(Commit(2), [])
    log.close()
    written.add(commit, made)
    found = redo_log.read(folder / NAME, bytes(16))
    assert (found.commits, found.lost, found.is_damaged) == (2, 0, False)
    assert said(found.changes) == said(written)
    octets = (folder / NAME).read_bytes()
    (folder / NAME).write_bytes(octets[: max(SECTOR, len(octets) - torn)])
    found = redo_log.read(folder / NAME, bytes(16))
    assert (found.lost, found.is_damaged) == (0, False)
    assert said(found.changes) == (said(written) if found.commits else said(LoggedChanges()))
    shutil.rmtree(folder)


def said(changes: LoggedChanges) -> tuple[object, ...]:
    chunks = [(each.first, each.entries, each.messages) for each in changes.chunks.values()]
    return chunks, [*changes.dropped], changes.settled, changes.marks, changes.octets


# When it is not used.


def test_what_nobody_consumes_passes_it_by(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(redo_policy, "PASSED_BY_MAX", 1 << 20)
    folder, body = tmp_path / "data", bytes(100_000)
    shelf = Shelf.of(folder, 300_000).start()
    numbers = iter(range(1, 1000))
    logged = []
    for _ in range(20):
        number = next(numbers)
        shelf.commit(chunks=[entries(number, body)])
        logged.append(number not in in_database(folder))
    assert logged[:2] == [True, True]
    assert sum(logged) < 10, "few of them were written twice"
    while (number := next(numbers)) < 60:  # consumers have come
        shelf.commit(chunks=[entries(number, body)], dropped=[number - 1])
    assert len(in_database(folder)) < 30, "most of what came since never got there"
    shelf.commit(objects={"b": "1"})
    assert writer_of(shelf)._policy._pass_by == 0, "a round that was short says nothing"
    shelf.store.close(None)


def test_large_commits_pass_it_by(tmp_path: Path):
    shelf = Shelf.of(tmp_path / "data", REDO_OCTETS).start()
    shelf.commit(chunks=[entries(1, bytes(redo_policy.LARGE_OCTETS))])
    shelf.commit(chunks=[entries(2, *([b""] * (redo_policy.MANY_MESSAGES + 1)))])
    assert in_database(tmp_path / "data") == [1, 2]
    shelf.store.close(None)


def test_it_is_written_to_the_database_when_it_is_full_of_octets_or_chunks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(redo_policy, "CHUNKS_MAX", 5)
    shelf = Shelf.of(tmp_path / "data", 40_000).start()
    seen = []
    for number in range(1, 9):
        shelf.commit(chunks=[entries(number, b"x")])
        seen.append(len(in_database(tmp_path / "data")))
    assert seen == [0, 0, 0, 0, 0, 5, 5, 5]
    shelf.commit(chunks=[entries(9, bytes(20_000))])
    shelf.commit(chunks=[entries(10, bytes(20_000))])
    assert in_database(tmp_path / "data") == [*range(1, 10)]
    shelf.store.close(None)


def test_it_is_not_used_where_there_is_little_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    shelf = filled(tmp_path / "data")
    monkeypatch.setattr(housekeeping.Housekeeping, "ahead_max", housekeeping.LOG_OCTETS - 1)
    shelf.commit(chunks=[entries(50, b"new")])
    assert in_database(tmp_path / "data") == [1, 12, 50]
    shelf.store.close(None)


def test_a_log_for_which_there_is_no_room_is_made_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    folder = tmp_path / "data"
    shelf = Shelf.of(folder, REDO_OCTETS).start()
    write, calls = os.pwrite, []

    def full(file: int, octets: bytes, at: int) -> int:
        calls.append(at)
        if len(calls) == 1:
            raise OSError(errno.ENOSPC, "no space left on device")
        return write(file, octets, at)

    monkeypatch.setattr(os, "pwrite", full)
    assert shelf.commit(chunks=[entries(1, b"x")]) == 1
    assert shelf.commit(chunks=[entries(2, b"x")]) == 2
    assert in_database(folder) == []
    monkeypatch.undo()
    shelf = shelf.killed()
    assert (shelf.store.damage, [*shelf.found().chunks]) == ([], [1, 2])
    shelf.store.close(None)


@pytest.mark.parametrize("when", [1, 2])
def test_a_header_for_which_there_is_no_room_is_written_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: int
):
    """As where a file system takes new room for what is written over: it is not another node that has taken the log."""
    shelf = filled(tmp_path / "data")
    write, calls = os.pwrite, []

    def full(file: int, octets: bytes, at: int) -> int:
        calls.append(at)
        if at == 0 and calls.count(0) == when:
            raise OSError(errno.ENOSPC, "no space left on device")
        return write(file, octets, at)

    monkeypatch.setattr(os, "pwrite", full)
    numbers = iter(range(20, 30))
    assert isinstance(shelf.commit(objects={"b": "1"}), int)  # ends the round
    assert isinstance(shelf.commit(chunks=[entries(next(numbers), b"x")]), int)  # begins another
    assert isinstance(shelf.commit(objects={"b": "1"}), int)
    assert isinstance(shelf.commit(chunks=[entries(next(numbers), b"x")]), int)
    assert calls.count(0) > when, "it was tried again"
    monkeypatch.undo()
    shelf = shelf.killed()
    assert (shelf.store.damage, [*shelf.found().chunks]) == ([], [1, 12, 20, 21])
    shelf.store.close(None)


def test_nothing_is_appended_to_a_round_that_is_in_the_database_and_could_not_be_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Read as one round, a chunk that was written and then deleted would look like one that never got there."""
    shelf = filled(tmp_path / "data")
    end, calls = RedoLog.end, []

    def full(self: RedoLog) -> None:
        calls.append(1)
        self.is_over = True
        if len(calls) == 1:
            raise OSError(errno.ENOSPC, "no space left on device")
        end(self)

    monkeypatch.setattr(RedoLog, "end", full)
    writer_of(shelf).look_after()  # tries it in vain
    assert in_database(tmp_path / "data") == [1, 12]
    assert isinstance(shelf.commit(dropped=[12]), int)
    shelf = shelf.killed()
    assert (shelf.store.damage, [*shelf.found().chunks]) == ([], [1])
    shelf.store.close(None)


@pytest.mark.parametrize("octets", [b"", b"x" * 700])
def test_a_log_that_is_back_after_its_deletion_is_deleted_once_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, octets: bytes
):
    """And a start on a full disk needs no room for that. Found by simulation (disk, seed 765018)."""

    def full(file: int, octets: bytes, at: int) -> int:
        raise OSError(errno.ENOSPC, "no space left on device")

    filled(tmp_path / "data").closed().store.close(None)
    (tmp_path / "data" / NAME).write_bytes(octets)
    shelf = Shelf.of(tmp_path / "data", REDO_OCTETS)
    assert shelf.store.damage == []
    monkeypatch.setattr(os, "pwrite", full)
    shelf.start()
    monkeypatch.undo()
    assert shelf.commit(chunks=[entries(20, b"x")]) == 1
    shelf = shelf.killed()
    assert (shelf.store.damage, [*shelf.found().chunks]) == ([], [1, 12, 20])
    shelf.store.close(None)


# Ends between two steps.


def test_a_round_that_was_written_to_the_database_and_not_ended_is_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    shelf = filled(tmp_path / "data")

    def killed(self: RedoLog) -> None:
        raise OSError("killed")

    monkeypatch.setattr(RedoLog, "end", killed)
    assert isinstance(shelf.commit(objects={"b": "1"}), StoreError)
    assert in_database(tmp_path / "data") == [1, 12]
    monkeypatch.undo()
    shelf = shelf.killed()
    assert shelf.store.damage == []
    assert (shelf.found().chunks, shelf.found().marks) == (contents()[-1].chunks, contents()[-1].marks)
    shelf.start()
    shelf.commit(dropped=[12])
    shelf = shelf.closed()
    assert [*shelf.found().chunks] == [1]
    shelf.store.close(None)


def test_the_end_of_a_round_is_synced_before_more_is_written_to_the_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """It may be in the system's memory only after a kill, and then a power cut would bring the round back.

    Found by simulation (disk, seed 761471).
    """
    shelf = filled(tmp_path / "data")
    shelf.commit(objects={"b": "1"})  # ends the round
    shelf.kill(tmp_path / "killed")
    done: list[str] = []
    write, sync = os.pwrite, redo_log.sync_file

    def writing(file: int, octets: bytes, at: int) -> int:
        done.append(f"{Path(os.readlink(f'/proc/self/fd/{file}')).name} {at} {len(octets)}")
        return write(file, octets, at)

    def syncing(file: int) -> None:
        done.append("sync")
        sync(file)

    monkeypatch.setattr(os, "pwrite", writing)
    monkeypatch.setattr(redo_log, "sync_file", syncing)
    again = Shelf.of(tmp_path / "killed")
    assert [each for each in done if each == "sync" or each.startswith(NAME)] == [
        f"{NAME} 0 {SECTOR}",
        "sync",
    ]
    again.store.close(None)


def test_records_of_an_earlier_round_do_not_count(tmp_path: Path):
    shelf = filled(tmp_path / "data")
    shelf.commit(objects={"b": "1"}, dropped=[12])  # ends the round
    shelf.commit(chunks=[entries(20, b"x")])  # begins another: less than the one before
    shelf = shelf.killed()
    assert shelf.store.damage == []
    assert [*shelf.found().chunks] == [1, 20]
    shelf.store.close(None)


# Damage.


def test_a_flipped_bit_is_harmless_or_said(killed: Sample):
    found = redo_log.read(killed.folder / NAME, folder_name(killed.folder))
    assert (found.commits, found.lost) == (6, 0)
    chance = random.Random(5)
    places = {
        *range(0, 72, 3),
        *range(SECTOR, SECTOR + 60, 4),
        *chance.sample(range(killed.octets(NAME)), 40),
    }
    outcomes = {outcome(killed, killed.damaged(NAME, flip(at))) for at in places}
    assert outcomes == {"whole", "said"}


def test_a_sector_of_zeros_is_harmless_or_said(killed: Sample):
    outcomes = {
        outcome(killed, killed.damaged(NAME, zeroed(at))) for at in range(0, killed.octets(NAME), SECTOR)
    }
    assert "said" in outcomes


def zeroed(at: int) -> Callable[[bytearray], None]:
    def damage(octets: bytearray) -> None:
        octets[at : at + SECTOR] = bytes(len(octets[at : at + SECTOR]))

    return damage


def test_a_log_that_was_cut_is_as_if_the_rest_had_not_been_written(killed: Sample):
    for at in {*range(0, killed.octets(NAME), 97), SECTOR - 1, SECTOR, SECTOR + 1}:
        shelf = Shelf.of(killed.damaged(NAME, cut(at)))
        found = shelf.found()
        assert (found.chunks, found.marks) in [(content.chunks, content.marks) for content in killed.contents]
        assert bool(shelf.store.damage) == (at < SECTOR), "a header is there before the log counts"
        assert read(shelf.store) == {number: BODIES[number] for number in live(found)}
        shelf.store.close(None)


def test_lost_commits_are_counted(killed: Sample):
    octets = (killed.folder / NAME).read_bytes()
    ends = [at for at in range(SECTOR, len(octets), SECTOR) if octets[at : at + 4] == redo_record.HEAD_MAGIC]
    said = []
    for at in ends:
        shelf = Shelf.of(killed.damaged(NAME, flip(at + redo_record.HEAD.size)))
        said.append(shelf.store.damage)
        shelf.store.close(None)
    for count, (text,) in zip((6, 5, 4, 3, 2), said[:5], strict=True):
        assert f"its last {count} commits are lost" in text
    assert "a commit may be lost" in said[5][0]


def folder_name(folder: Path) -> bytes:
    with closing(sqlite3.connect(f"file:{folder / MESSAGES}?mode=ro", uri=True)) as database:
        name: bytes = database.execute("select folder from state").fetchone()[0]
        return name


def test_a_log_that_is_missing_is_said(killed: Sample):
    folder = killed.damaged(NAME, lambda octets: None)
    (folder / NAME).unlink()
    assert any("is missing" in text for text in verification.verify(folder).problems)
    shelf = Shelf.of(folder)
    assert any(f"{NAME} is missing" in text for text in shelf.store.damage)
    shelf.store.close(None)


def test_a_log_of_another_folder_is_not_taken(killed: Sample, tmp_path: Path):
    filled(tmp_path / "other").kill(tmp_path / "killed")
    folder = killed.damaged(NAME, lambda octets: None)
    shutil.copyfile(tmp_path / "killed" / NAME, folder / NAME)
    shelf = Shelf.of(folder)
    assert [*shelf.found().chunks] == [1]
    assert "what was committed last may be lost" in shelf.store.damage[0]
    shelf.store.close(None)


# Two nodes on one folder, in spite of its lock.


def test_a_node_that_empties_its_log_learns_that_another_one_has_taken_the_folder(tmp_path: Path):
    shelf = filled(tmp_path / "data")
    (tmp_path / "data" / "lock").unlink()
    other = Shelf.of(tmp_path / "data", REDO_OCTETS)
    assert other.found() == contents()[-1]
    with pytest.raises(StoreError, match="another node"):
        writer_of(shelf).look_after()
    other.store.close(None)
    shelf.store.close(None)


def test_a_node_learns_from_the_log_that_another_one_has_taken_the_folder(tmp_path: Path):
    shelf = filled(tmp_path / "data")
    (tmp_path / "data" / "lock").unlink()
    other = Shelf.of(tmp_path / "data", REDO_OCTETS)
    assert other.found() == contents()[-1]
    assert "another node" in str(shelf.commit(chunks=[entries(20, b"late")])), "before the other one starts"
    other.start()
    assert other.commit(chunks=[entries(20, b"x")]) == 1
    other = other.given_up()
    assert [*other.found().chunks] == [1, 12, 20]
    other.store.close(None)
    shelf.store.close(None)


def test_a_node_whose_log_was_empty_learns_it_when_it_begins_a_round(tmp_path: Path):
    shelf = Shelf.of(tmp_path / "data", REDO_OCTETS).start()
    (tmp_path / "data" / "lock").unlink()
    other = Shelf.of(tmp_path / "data", REDO_OCTETS).start()
    assert "another node" in str(shelf.commit(chunks=[entries(1, b"late")]))
    shelf.store.close(None)
    other.store.close(None)


def test_a_node_does_not_end_or_overwrite_the_round_of_another(tmp_path: Path):
    """It has nothing left to write to the database, whose epoch would tell it."""
    shelf = Shelf.of(tmp_path / "data", REDO_OCTETS).start()
    shelf.commit(chunks=[entries(1, b"x")])
    shelf.commit(dropped=[1])
    (tmp_path / "data" / "lock").unlink()
    other = Shelf.of(tmp_path / "data", REDO_OCTETS).start()
    assert other.commit(chunks=[entries(5, b"y")]) == 1
    assert "another node" in str(shelf.commit(objects={"b": "1"}))
    assert other.commit(chunks=[entries(6, b"y")]) == 2
    other = other.given_up()
    assert [*other.found().chunks] == [5, 6]
    other.store.close(None)
    shelf.store.close(None)


def test_a_node_does_not_start_if_another_one_has_written_since_it_read(tmp_path: Path):
    shelf = Shelf.of(tmp_path / "data", REDO_OCTETS).start()
    assert isinstance(shelf.store, SqliteStore)
    shelf.store._folder.release()  # as where a file system does not know locks: a lock that is deleted ends the node
    other = Shelf.of(tmp_path / "data", REDO_OCTETS)
    assert shelf.commit(chunks=[entries(1, b"x")]) == 1, "nobody has started yet"
    with pytest.raises(StoreError, match="another node"):
        other.start()
    other.store.close(None)
    shelf.store.close(None)
    shelf = Shelf.of(tmp_path / "data")
    assert [*shelf.found().chunks] == [1]
    shelf.store.close(None)


# Copies, and inspection.


def test_a_backup_has_what_is_in_the_log(tmp_path: Path):
    shelf = filled(tmp_path / "data")
    shelf.commit(marks={12: mark_of(1, False, 1_700_000_000_000)})
    shelf.store.backup(tmp_path / "copy")
    assert sorted(file.name for file in (tmp_path / "copy").iterdir()) == [MESSAGES, "meta.db"]
    assert format_of(tmp_path / "copy") == FORMAT + WAITING
    expected = shelf.killed()
    copied = Shelf.of(tmp_path / "copy")
    assert copied.store.damage == []
    assert copied.found() == expected.found()
    for each in (copied, expected):
        each.store.close(None)


def test_a_backup_is_of_one_moment_though_the_log_is_written_to_the_database_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A round ends, and another begins, between the two looks at the log: then a new moment is taken."""
    shelf = filled(tmp_path / "data")
    seen = []
    real = redo_log.read

    def busy(path: Path, folder: bytes) -> redo_log.ReadLog:
        found = real(path, folder)
        if len(seen) < 3:
            shelf.commit(objects={f"{len(seen)}": "1"}, dropped=[12] if len(seen) == 1 else [])
            shelf.commit(chunks=[entries(20 + len(seen), b"x")])
        seen.append(found.commits)
        return found

    monkeypatch.setattr(redo_log, "read", busy)
    backup.copy(tmp_path / "data", tmp_path / "copy")
    assert len(seen) > 2, "it was tried again"
    copied, expected = Shelf.of(tmp_path / "copy"), shelf.killed()
    assert (copied.found().chunks, copied.store.damage) == (expected.found().chunks, [])
    for each in (copied, expected):
        each.store.close(None)


def test_verify_counts_and_checks_what_is_in_the_log(killed: Sample):
    def counted(folder: Path) -> tuple[int, int, int, list[str]]:
        report = verification.verify(folder)
        return report.chunks, report.messages, report.octets, report.problems

    folder = killed.damaged(NAME, lambda octets: None)
    logged = counted(folder)
    assert verification.measure(folder).messages == logged[1]
    Shelf.of(folder).store.close(None)
    assert logged == counted(folder)
    assert logged[:2] == (2, 2)
    assert any(NAME in text for text in verification.verify(killed.damaged(NAME, flip(700))).problems)


def test_the_size_of_a_record_is_known_before_it_is_made(tmp_path: Path):
    shelf = Shelf.of(tmp_path / "data", REDO_OCTETS).start()
    commit = shelf.new_commit(
        chunks=[entries(1, b"x", b"y"), entries(3, b"z")], settled={1: b"\1"}, marks={2: 3}, dropped=[7]
    )
    shelf.given(commit)
    octets = (tmp_path / "data" / NAME).read_bytes()
    assert len(octets) == SECTOR + redo_record.octets_of(commit, [*writer_of(shelf).logged.chunks.values()])
    shelf.store.close(None)


@pytest.mark.parametrize(
    "columns",
    [
        {"settled": {1: bytes(redo_policy.LARGE_OCTETS)}},
        {"dropped": [*range(1, redo_policy.LARGE_OCTETS // 8)]},
    ],
)
def test_a_commit_with_many_numbers_or_bits_passes_it_by(tmp_path: Path, columns: dict[str, object]):
    shelf = filled(tmp_path / "data")
    shelf.commit(**columns)
    assert in_database(tmp_path / "data") != [1], "what is in the log is written before"
    shelf.store.close(None)
