"""The reserve: filled while there is plenty of room, deleted by a start that finds none."""

from __future__ import annotations

import os
import resource
import shutil
import signal
from collections.abc import Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from threading import Event

import pytest

from leveret.alarms import free_octets
from leveret.durable.store import wal_tail
from leveret.durable.store import writer as writer_module
from leveret.durable.store.commit_statement import DO
from leveret.durable.store.contract import NoSpaceError
from leveret.durable.store.database import opened
from leveret.durable.store.folder import MESSAGES
from leveret.durable.store.housekeeping import Housekeeping
from leveret.durable.store.reserve import (
    DRAIN,
    DRAIN_OCTETS,
    PIECE_OCTETS,
    RESERVE,
    RESERVE_OCTETS,
    STEP_OCTETS,
    Reserve,
    drain_octets,
)
from leveret.durable.store.reserve import PLENTY as TIMES
from leveret.durable.store.sqlite import SqliteStore
from leveret.durable.store.writer import PORTION_CHUNKS
from tests.crash.failing import fill, small_disk, why_no_small_disk
from tests.durable.store.shelf import Shelf, entries
from tests.durable.store.test_writer import FULL, Faulty, make_faulty

PLENTY = TIMES * RESERVE_OCTETS


class Disk:
    """A disk with so much room."""

    def __init__(self, folder: Path) -> None:
        self.free = PLENTY
        self.file = folder / RESERVE
        self.reserve = Reserve(folder, free=lambda folder: self.free)

    @property
    def reserved(self) -> int | None:
        return self.file.stat().st_size if self.file.exists() else None


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    return Disk(tmp_path)


def test_a_reserve_is_filled_while_there_is_plenty_of_room(disk: Disk):
    disk.free = PLENTY - 1
    disk.reserve.fill()
    assert disk.reserved is None
    disk.free = PLENTY
    disk.reserve.fill()
    assert disk.reserved == RESERVE_OCTETS
    assert disk.file.stat().st_mode & 0o777 == 0o600
    assert disk.file.stat().st_blocks * 512 >= RESERVE_OCTETS, "a file with holes holds no room"


def test_a_reserve_that_is_there_stays_as_it_is(disk: Disk):
    disk.reserve.fill()
    before = disk.file.stat()
    disk.reserve.fill()
    assert disk.file.stat() == before


def test_a_reserve_that_was_left_half_written_is_filled(disk: Disk):
    disk.file.write_bytes(b"half")
    disk.reserve.fill()
    assert disk.reserved == RESERVE_OCTETS


def test_a_reserve_is_released_when_there_is_no_room_else(disk: Disk):
    disk.reserve.fill()
    disk.free = RESERVE_OCTETS
    disk.reserve.release()
    assert disk.reserved == RESERVE_OCTETS
    disk.free = RESERVE_OCTETS - 1
    disk.reserve.release()
    assert disk.reserved is None
    disk.reserve.release()


def test_a_reserve_that_is_given_up_stays_so_until_there_is_plenty_of_room(disk: Disk):
    disk.reserve.fill()
    assert disk.reserve.give_up(RESERVE_OCTETS // 2)
    assert (disk.reserved, disk.reserve.left) == (RESERVE_OCTETS // 2, RESERVE_OCTETS // 2)
    disk.free = PLENTY - RESERVE_OCTETS // 2 - 1
    disk.reserve.fill()
    assert disk.reserve.is_given_up
    assert disk.reserve.give_up(RESERVE_OCTETS)
    assert not disk.reserve.give_up(1)
    disk.free = PLENTY - 1
    disk.reserve.fill()
    assert disk.reserve.is_given_up
    disk.free = PLENTY
    disk.reserve.fill()
    assert not disk.reserve.is_given_up
    assert disk.reserved == RESERVE_OCTETS


def test_a_reserve_that_is_needed_counts_as_given_up_until_there_is_room_again_though_it_is_whole(disk: Disk):
    disk.reserve.fill()
    disk.reserve.need()
    disk.free = PLENTY - RESERVE_OCTETS - 1
    disk.reserve.fill()
    assert disk.reserve.is_given_up
    assert disk.reserved == RESERVE_OCTETS
    disk.free += 1
    disk.reserve.fill()
    assert not disk.reserve.is_given_up


def test_a_reserve_counts_as_given_up_on_a_disk_with_less_room_than_its_size(disk: Disk):
    disk.free = RESERVE_OCTETS
    disk.reserve.fill()
    assert not disk.reserve.is_given_up
    disk.free = RESERVE_OCTETS - 1
    disk.reserve.fill()
    assert disk.reserve.is_given_up


def test_what_a_full_disk_has_no_room_for_is_lent_though_others_take_what_is_given_up_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    if reason := why_no_small_disk(tmp_path):
        pytest.skip(reason)
    with small_disk(tmp_path) as folder:
        folder.mkdir()
        reserve, file, fillers = Reserve(folder), folder / "file", count()
        reserve.fill()
        file.write_bytes(b"what is there stays")
        fill(tmp_path / "filler")
        truncated = os.truncate

        def taken(path: Path, size: int) -> None:
            truncated(path, size)
            if (number := next(fillers)) < 3:
                fill(tmp_path / f"{number}")

        monkeypatch.setattr(os, "truncate", taken)
        assert reserve.lend(file, 5 * STEP_OCTETS)
        assert file.stat().st_blocks * 512 >= 5 * STEP_OCTETS
        assert file.read_bytes() == b"what is there stays".ljust(5 * STEP_OCTETS, b"\0")
        assert reserve.left == RESERVE_OCTETS - 8 * STEP_OCTETS
        assert reserve.is_given_up
        assert not reserve.lend(file, 5 * STEP_OCTETS + RESERVE_OCTETS)
        assert reserve.left == 0
        reserve.close()


def test_room_is_lent_from_what_is_free_first(disk: Disk, tmp_path: Path):
    disk.reserve.fill()
    file = tmp_path / "file"
    file.touch()
    assert disk.reserve.lend(file, STEP_OCTETS + 1)
    assert file.stat().st_size == STEP_OCTETS + 1
    assert disk.reserve.lend(file, 1)
    assert file.stat().st_size == STEP_OCTETS + 1, "nothing is taken from it"
    assert disk.reserve.left == RESERVE_OCTETS
    assert not disk.reserve.is_given_up
    assert not disk.reserve.lend(tmp_path / "missing", 1)
    disk.reserve.close()


def test_a_file_grows_as_far_as_there_is_room_and_nothing_is_given_up_for_it(tmp_path: Path):
    if reason := why_no_small_disk(tmp_path):
        pytest.skip(reason)
    with small_disk(tmp_path) as folder:
        folder.mkdir()
        reserve, file = Reserve(folder), folder / "file"
        reserve.fill()
        file.touch()
        fill(tmp_path / "filler")
        left = STEP_OCTETS + 3 * PIECE_OCTETS
        os.truncate(tmp_path / "filler", (tmp_path / "filler").stat().st_size - left)
        assert not reserve.grow(file, RESERVE_OCTETS)
        assert file.stat().st_size == left
        assert free_octets(folder) == 0
        assert reserve.left == RESERVE_OCTETS
        assert not reserve.is_given_up
        assert reserve.grow(file, left)
        reserve.close()


def test_a_large_disk_keeps_eight_mib_for_draining(tmp_path: Path):
    assert drain_octets(tmp_path / "to be made") == DRAIN_OCTETS == 8 << 20


@pytest.fixture
def short_files() -> Iterator[None]:
    """No file may grow beyond half a reserve."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (RESERVE_OCTETS // 2, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    signal.signal(signal.SIGXFSZ, ignored)


@pytest.mark.usefixtures("short_files")
def test_a_reserve_that_cannot_be_filled_is_not_there(disk: Disk):
    disk.reserve.fill()
    assert disk.reserved is None


def test_a_reserve_is_no_way_to_somebody_elses_file(disk: Disk, tmp_path: Path):
    other = tmp_path / "other"
    other.write_bytes(b"theirs")
    disk.file.symlink_to(other)
    disk.reserve.fill()
    assert other.read_bytes() == b"theirs"


def test_a_disk_that_says_nothing_is_left_alone(tmp_path: Path):
    def failing(folder: Path) -> int:
        raise OSError("no such disk")

    reserve = Reserve(tmp_path, free=failing)
    reserve.fill()
    reserve.release()
    assert list(tmp_path.iterdir()) == []


# Of a store.


def no_copying(sql: str, *arguments: object) -> tuple[int, str] | None:
    return FULL if "wal_checkpoint" in sql else None


def without_copying(shelf: Shelf) -> None:
    """Its log cannot be copied, for want of room."""
    assert isinstance(shelf.store, SqliteStore)
    make_faulty(shelf.store, no_copying)


def test_a_store_is_short_without_the_reserve_for_draining_until_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(writer_module, "IDLE_S", 3600.0)  # only the test has the files maintained
    store = SqliteStore(tmp_path / "data", RESERVE_OCTETS)
    shelf = Shelf(store, tmp_path / "data").start()
    assert (tmp_path / "data" / DRAIN).stat().st_size == RESERVE_OCTETS
    files = store._files
    full = [FULL, None]

    def once(sql: str, *arguments: object) -> tuple[int, str] | None:
        return full.pop(0) if full and "INSERT INTO work" in sql else None

    is_idle, keep_small = Event(), files.keep_small

    def kept_small() -> None:
        keep_small()
        is_idle.set()

    make_faulty(store, once)
    files.keep_small = kept_small  # type: ignore[method-assign]
    assert shelf.commit(chunks=[entries(1, b"x")]) == 1, "it was written once more"
    assert store.is_short
    is_idle.wait()  # the thread goes on with the same connection after it has told of the commit
    store._writer.look_after()
    assert not store.is_short
    shelf.store.close(shelf.new_commit())


def test_a_store_that_has_started_has_a_reserve(tmp_path: Path):
    shelf = Shelf.of(tmp_path / "data").start()
    assert (tmp_path / "data" / RESERVE).stat().st_size == RESERVE_OCTETS
    shelf.store.close(shelf.new_commit())


def test_a_store_starts_without_room_to_copy_its_log(tmp_path: Path):
    shelf = Shelf.of(tmp_path / "data").start()
    shelf.commit(objects={"a": "1"}, chunks=[entries(1, b"x" * 50_000)])
    shelf = shelf.killed()
    without_copying(shelf)
    shelf.start()
    assert shelf.commit(chunks=[entries(2, b"y")]) == 1
    after = shelf.killed()
    assert list(after.found().chunks) == [1, 2]
    assert after.found().objects == [("a", "1")]
    after.store.close(None)


def test_commits_that_are_lost_are_counted_without_room_to_copy_the_log(tmp_path: Path):
    """As many as with room: none, and then those behind a frame that is damaged."""
    shelf = Shelf.of(tmp_path / "data").start()
    for number in range(1, 6):
        shelf.commit(chunks=[entries(number, b"x")])
    shelf.kill(tmp_path / "killed")
    file = tmp_path / "killed" / MESSAGES
    whole = wal_tail.log_of(file).read_bytes()
    at = wal_tail.HEADER.size + wal_tail.FRAME_OCTETS - 1
    spoilt = whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :]
    for log in (whole, spoilt):
        wal_tail.log_of(file).write_bytes(log)
        with closing(opened(file)) as database:
            counted = wal_tail.commits_lost(file, Faulty(database, no_copying))  # type: ignore[arg-type]
            assert counted == wal_tail.commits_lost(file, database)
            assert (counted > 1) == (log is spoilt)


def test_a_part_of_a_frame_that_a_full_disk_has_left_is_no_lost_commit(tmp_path: Path):
    shelf = Shelf.of(tmp_path / "data").start()
    shelf.commit(chunks=[entries(1, b"x")])
    shelf.kill(tmp_path / "killed")
    file = tmp_path / "killed" / MESSAGES
    log = wal_tail.log_of(file)
    whole = log.read_bytes()
    last = whole[-wal_tail.FRAME_OCTETS :]
    for part in (wal_tail.FRAME.size, wal_tail.FRAME_OCTETS - 1):
        log.write_bytes(whole + last[:part])
        with closing(opened(file)) as database:
            assert wal_tail.commits_lost(file, database) == 0


def test_a_store_starts_on_a_disk_that_is_full_and_messages_can_be_settled(tmp_path: Path):
    if reason := why_no_small_disk(tmp_path):
        pytest.skip(reason)
    with small_disk(tmp_path) as folder:
        shelf = Shelf.of(folder).start()
        for number in range(1, 31):
            assert shelf.commit(chunks=[entries(number, b"x" * 50_000)]) == number
        shelf = shelf.given_up()
        shelf.store.close(None)
        filler = tmp_path / "filler"
        fill(filler)
        assert free_octets(folder) == 0
        shelf = Shelf.of(folder).start()
        assert not (folder / RESERVE).exists()
        assert shelf.commit(dropped=list(range(1, 31))) == 1
        filler.unlink()
        shelf = shelf.given_up()
        assert shelf.found().chunks == {}
        shelf.start()
        assert (folder / RESERVE).stat().st_size == RESERVE_OCTETS
        shelf.store.close(None)


def test_a_log_is_copied_on_a_full_disk_and_a_crash_before_that_does_no_harm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    if reason := why_no_small_disk(tmp_path):
        pytest.skip(reason)
    monkeypatch.setattr(writer_module, "IDLE_S", 3600.0)  # only the test has the files maintained
    monkeypatch.setattr(Housekeeping, "_take_ahead", lambda self, octets=0: None)
    (tmp_path / "small").mkdir()
    with small_disk(tmp_path / "small") as folder:
        store = SqliteStore(folder, drain_octets(folder))
        shelf = Shelf(store, folder).start()
        numbers = [1, 2]
        for number in numbers:
            assert shelf.commit(chunks=[entries(number, b"x" * 80_000)]) == number
        fill(tmp_path / "small" / "filler")
        before = (folder / MESSAGES).stat().st_size
        assert store._files._lend_to_database(store._writer._messages)
        assert store.is_short
        grown = (folder / MESSAGES).stat().st_size
        assert grown > before + 150_000
        shutil.copytree(folder, tmp_path / "killed")
        assert store._files.copy_logs()
        assert (folder / MESSAGES).stat().st_size == grown, "as large as it had to be"
        assert shelf.commit(dropped=numbers) == len(numbers) + 1
        shelf.store.close(None)
    again = Shelf.of(tmp_path / "killed")
    assert list(again.found().chunks) == numbers
    assert again.store.damage == []
    again.store.close(None)


def test_what_was_gathered_before_others_took_all_room_is_written_without_any_and_so_is_what_settles_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """They take what the reserve gives up, too, before the store has any of it."""
    if reason := why_no_small_disk(tmp_path):
        pytest.skip(reason)
    monkeypatch.setattr(writer_module, "IDLE_S", 3600.0)  # only the test has the files maintained
    (tmp_path / "small").mkdir()
    with small_disk(tmp_path / "small") as folder:
        fillers, truncated = count(), os.truncate

        def taken(path: Path, size: int) -> None:
            truncated(path, size)
            fill(tmp_path / "small" / f"{next(fillers)}")

        monkeypatch.setattr(os, "truncate", taken)
        shelf = Shelf(SqliteStore(folder, drain_octets(folder)), folder).start()
        assert shelf.commit(chunks=[entries(1, b"x" * 200_000)]) == 1
        fill(tmp_path / "small" / "filler")
        for number in (2, 3):
            assert shelf.commit(chunks=[entries(number, b"x" * 200_000)]) == number
        assert shelf.store.is_short
        assert shelf.commit(objects={"q": "{}"}, dropped=[1]) == 4
        shutil.copytree(folder, tmp_path / "killed")
        assert shelf.commit(dropped=[2, 3]) == 5
        shelf.store.close(None)
    again = Shelf.of(tmp_path / "killed")
    assert list(again.found().chunks) == [2, 3]
    assert again.store.damage == []
    again.store.close(None)


def test_chunks_of_more_queue_than_there_is_room_to_delete_are_deleted_in_portions(tmp_path: Path):
    chunks = 3 * PORTION_CHUNKS
    store = SqliteStore(tmp_path / "data", RESERVE_OCTETS)
    shelf = Shelf(store, tmp_path / "data").start()
    for number in range(1, chunks + 1):
        shelf.commit(chunks=[entries(number, b"x")])

    def full_for_many(sql: str, *arguments: object) -> tuple[int, str] | None:
        return FULL if sql == DO and repr(arguments).count(",") > 2 * PORTION_CHUNKS else None

    make_faulty(store, full_for_many)
    everything = list(range(1, chunks + 1))
    with_more = shelf.commit(chunks=[entries(chunks + 1, b"y")], dropped=[*everything])
    assert isinstance(with_more, NoSpaceError), "what it brings and what it deletes belong together"
    assert shelf.commit(dropped=[*everything]) == chunks + 2
    after = shelf.given_up()
    assert after.found().chunks == {}
    after.store.close(None)
