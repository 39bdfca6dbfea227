"""Commits that the caller writes to the redo log itself: durable at once, only while that is quick, in their order."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from pathlib import Path
from queue import Empty

import pytest

from leveret.durable.store import pace, redo_log, redo_policy, writer
from leveret.durable.store.contract import Commit, NoSpaceError, StoreError
from leveret.durable.store.redo_policy import REDO_OCTETS
from leveret.durable.store.writer_thread import End
from tests.durable.store.shelf import Shelf, entries
from tests.durable.store.test_redo_log import writer_of

FIRST = 100  # numbers of messages that tests write at once
TOLD = 11  # commits that a quick disk takes to show that it is


class Clock:
    """What a write to the log takes, as the writer sees it."""

    def __init__(self) -> None:
        self.takes = 0.0
        self._now = 0.0

    def __call__(self) -> float:
        self._now += self.takes
        return self._now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(writer, "perf_counter", clock)
    monkeypatch.setattr(pace, "STALLED", 20)
    monkeypatch.setattr(writer, "IDLE_S", 3600.0)  # no maintenance comes between
    return clock


@pytest.fixture
def shelf(tmp_path: Path, clock: Clock) -> Iterator[Shelf]:
    """A store whose disk was quick so far."""
    shelf = Shelf.of(tmp_path / "data", REDO_OCTETS).start()
    quick(shelf, 1)
    assert len(shelf.told) == TOLD
    yield shelf
    shelf.store.close(None)


def quick(shelf: Shelf, first: int) -> int:
    """Commit messages until the disk counts as quick. Returns how many it took."""
    count = 0
    while not writer_of(shelf)._pace.is_quick:
        assert shelf.commit(chunks=[entries(first + count, b"by the thread")]) is not None
        count += 1
    return count


def at_once(shelf: Shelf, number: int) -> bool:
    """Whether a commit with this message is durable when it was given; nothing is in flight."""
    with writer_of(shelf)._turn:
        pass  # the thread has reported the last one, and waits
    return shelf.store.append(shelf.new_commit(chunks=[entries(number, b"at once")]), at_once=True)


def told(shelf: Shelf) -> object:
    """What the store says next."""
    shelf.hear()
    return shelf.told[-1]


def found(shelf: Shelf) -> list[int]:
    """The chunks that a start finds after a kill."""
    shelf = shelf.killed()
    try:
        return sorted(shelf.found().chunks)
    finally:
        shelf.store.close(None)


def test_a_commit_is_durable_when_it_was_given_and_nothing_is_reported(shelf: Shelf) -> None:
    before = list(shelf.told)
    assert at_once(shelf, FIRST)
    assert at_once(shelf, FIRST + 1)
    assert shelf.hear_all() == len(before)
    assert shelf.commit(chunks=[entries(FIRST + 2, b"by the thread")]) == TOLD + 3
    assert shelf.store.stats().commits == TOLD + 3
    assert found(shelf)[-3:] == [FIRST, FIRST + 1, FIRST + 2]


def test_a_caller_that_may_gather_more_writes_nothing(shelf: Shelf) -> None:
    assert not shelf.store.append(shelf.new_commit(chunks=[entries(FIRST, b"")]))
    assert told(shelf) == TOLD + 1


def test_a_disk_has_to_show_that_it_is_quick(tmp_path: Path, clock: Clock) -> None:
    shelf = Shelf.of(tmp_path / "data", REDO_OCTETS).start()
    for number in range(1, 11):
        assert not at_once(shelf, number)
        told(shelf)
    quick(shelf, 50)
    assert at_once(shelf, FIRST)
    shelf.store.close(None)


@pytest.mark.parametrize("takes", [2 * pace.QUICK_S, 0.009, 1.0])
def test_a_disk_that_is_slow_on_average_is_left_to_the_thread(
    shelf: Shelf, clock: Clock, takes: float
) -> None:
    clock.takes = takes
    number = FIRST
    while at_once(shelf, number):
        number += 1
    told(shelf)
    assert number - FIRST <= 1 / pace.WEIGHT, "it takes few to learn that"
    for each in range(number + 1, number + 30):
        assert not at_once(shelf, each)
        told(shelf)
    clock.takes = 0.0
    assert quick(shelf, 500) > 0
    assert at_once(shelf, 1000)


def test_a_commit_that_takes_longer_now_and_then_changes_nothing(shelf: Shelf, clock: Clock) -> None:
    for number in range(FIRST, FIRST + 60):
        clock.takes = 4 * pace.QUICK_S if number % 16 == 0 else pace.QUICK_S / 4
        assert at_once(shelf, number)


def test_a_caller_that_was_held_up_waits_longer_until_it_tries_again(shelf: Shelf, clock: Clock) -> None:
    clock.takes = 1.01 * pace.STALL_S
    assert at_once(shelf, FIRST)
    clock.takes = 0.0
    for number in range(FIRST + 1, FIRST + 1 + pace.STALLED):
        assert not at_once(shelf, number)
        told(shelf)
    quick(shelf, 500)
    assert at_once(shelf, 1000)


def test_nothing_is_written_while_the_thread_does_something(shelf: Shelf) -> None:
    commit = shelf.new_commit(chunks=[entries(FIRST, b"")])
    turn = writer_of(shelf)._turn
    with turn:
        assert not writer_of(shelf).has_written(commit)
    assert shelf.given(commit) == commit.number


@pytest.mark.parametrize("place", ["write_all", "sync_file"])
def test_a_disk_that_fails_is_reported_by_the_thread_and_trusted_no_more(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    def failing(*arguments: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as context:
        context.setattr(redo_log, place, failing)
        assert not at_once(shelf, FIRST)
    assert isinstance(error := told(shelf), StoreError), "although it would succeed now"
    assert "Input/output error" in str(error)
    assert not shelf.store.append(shelf.new_commit(chunks=[entries(FIRST + 1, b"")]), at_once=True)
    assert FIRST + 1 not in found(shelf)


def test_a_commit_without_room_is_kept_once_there_is_some(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    commit = shelf.new_commit(chunks=[entries(FIRST, b"x")])
    with writer_of(shelf)._turn:
        pass
    with monkeypatch.context() as context:
        context.setattr(redo_log, "write_all", full)
        assert not writer_of(shelf).has_written(commit)
        assert isinstance(shelf.given(commit), NoSpaceError | int)
    if not isinstance(shelf.told[-1], int):
        assert shelf.given(commit) == commit.number
    assert found(shelf)[-1] == FIRST


def test_a_node_learns_at_once_that_another_one_has_taken_the_folder(shelf: Shelf, tmp_path: Path) -> None:
    (tmp_path / "data" / "lock").unlink()
    other = Shelf.of(tmp_path / "data", REDO_OCTETS)
    assert not at_once(shelf, FIRST)
    assert "another node" in str(told(shelf))
    other.start()
    other.store.close(None)


def test_a_full_round_is_left_to_the_thread(shelf: Shelf, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redo_policy, "CHUNKS_MAX", TOLD + 1)
    assert at_once(shelf, FIRST)
    assert not at_once(shelf, FIRST + 1)
    assert told(shelf) == TOLD + 2
    assert at_once(shelf, FIRST + 2), "in the next round"
    assert found(shelf)[-3:] == [FIRST, FIRST + 1, FIRST + 2]


@pytest.mark.parametrize("columns", [{"objects": {'["queue","/","b"]': "{}"}}, {"ended": [7]}])
def test_what_the_log_cannot_say_is_left_to_the_thread(shelf: Shelf, columns: dict[str, object]) -> None:
    with writer_of(shelf)._turn:
        pass
    commit = shelf.new_commit(**columns)
    assert not shelf.store.append(commit, at_once=True)
    assert told(shelf) == commit.number


class Orders:
    """Orders that never come. It raises `EndedError` when there are no more waits to be seen."""

    class EndedError(Exception):
        pass

    def __init__(self, written: writer.Writer, at_once: list[bool]) -> None:
        self.writer = written
        self.at_once = at_once  # for each wait: whether the caller writes a commit meanwhile
        self.waits: list[tuple[float | None, bool]] = []

    def get_nowait(self) -> Commit | End:
        assert self.writer._turn.locked()
        raise Empty

    def get(self, timeout: float | None) -> Commit | End:
        assert not self.writer._turn.locked()
        if not self.at_once:
            raise self.EndedError
        self.waits.append((timeout, self.writer._is_asleep))
        if self.at_once.pop(0):
            self.writer._wrote_at_once = True
        raise Empty


def test_the_files_are_maintained_when_no_commit_came_either_way(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf = Shelf.of(tmp_path / "data", REDO_OCTETS)  # whose thread has not begun
    written = writer_of(shelf)
    looks: list[bool] = []
    monkeypatch.setattr(written, "look_after", lambda: looks.append(True) or len(looks) < 2)
    monkeypatch.setattr(written, "_orders", orders := Orders(written, [True, True, False, False, False]))
    with pytest.raises(Orders.EndedError):
        written._next()
    idle = writer.IDLE_S
    assert orders.waits == [(idle, False), (idle, False), (idle, False), (0, False), (None, True)]
    assert len(looks) == 3
    shelf.store.close(None)


def test_a_thread_that_sleeps_is_woken_so_that_it_maintains_the_files_later(shelf: Shelf) -> None:
    with writer_of(shelf)._turn:
        writer_of(shelf)._is_asleep = True
    assert not at_once(shelf, FIRST)
    assert told(shelf) == TOLD + 1
    assert at_once(shelf, FIRST + 1)


def test_a_file_that_is_deleted_is_missed_before_anything_is_confirmed(shelf: Shelf, tmp_path: Path) -> None:
    assert at_once(shelf, FIRST)
    (tmp_path / "data" / "messages.db").unlink()
    assert not at_once(shelf, FIRST + 1)
    assert str(told(shelf)).endswith("has been deleted, moved or replaced while the node ran")
