"""The store in SQLite without its threads, on a simulated disk: a commit is written when the simulation says so."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from random import Random
from typing import Final, TypeVar

import attrs

from leveret.durable.store.contract import Commit, NoSpaceError, Reader, StoreError
from leveret.durable.store.database import RUNNING
from leveret.durable.store.sqlite import SqliteStore

from .disk import SimulatedDisk
from .held import Disk, Reached

T = TypeVar("T")
DRAIN_OCTETS: Final = 256 << 10
REDO_OCTETS: Final = 16 << 10
OPERATIONS_MAX: Final = 16  # of a commit, about
AT_ONCE: Final = 3  # one of so many commits is written when it is given, if the store can do that


class SqliteDisk(SqliteStore, Disk):
    """A store in SQLite whose commits are written by `land`, in the calling thread."""

    def __init__(self, disk: SimulatedDisk) -> None:
        self.disk = disk
        self.writes_at_once = True  # some commits, whether or not the journal wants it
        self._given: Commit | None = None
        self.landed = 0  # the last commit that was reported as durable
        self.is_over = False  # nothing is written any more
        self._error: StoreError | None = None
        self._doubtful: int | None = None  # the commit that failed, and may be there all the same, or in part
        super().__init__(disk.folder, DRAIN_OCTETS, disk.random.choice((0, REDO_OCTETS)))

    # What a thread does otherwise.

    def start(
        self,
        soon: Callable[[Callable[[], None]], None],
        durable: Callable[[int], None],
        failed: Callable[[Exception], None],
        stalled: Callable[[str | None], None] = lambda cause: None,
    ) -> None:
        self._objects, self._marks, self._producers = [], [], []
        self._state = attrs.evolve(self._state, epoch=self._state.epoch + 1, ended=RUNNING, tally=b"")
        writer = self._writer
        self._files.shrinks = not self.damage
        self._closed_properly = False

        def is_durable(number: int) -> None:
            self.landed, self._doubtful = number, None
            durable(number)

        writer._soon, writer._durable, writer._failed_with = soon, is_durable, failed
        self._failed_with = failed
        writer.begin(self._state)
        self._files.start()
        self._started = True

    def append(self, commit: Commit, at_once: bool = False) -> bool:
        assert self._given is None, "there is one commit in flight at a time"
        if self.writes_at_once and commit.number % AT_ONCE == 0 and not self.is_over:
            self._writer._pace.trust()
            if self._writer.has_written(commit):
                self.landed = commit.number
                return True
        self._given = commit
        return False

    @property
    def flying(self) -> Commit | None:
        return self._given

    def land(self) -> None:
        """Write the commit in flight, and report what came of it."""
        commit, self._given = self._given, None
        assert commit is not None, "nothing is in flight"
        if self.is_over:
            return
        self._doubtful = commit.number
        try:
            self._writer._keep(commit)
        except StoreError as error:
            self.is_over, self._error = True, error
            self._failed_with(error)

    def look_after(self) -> None:
        """Maintain the files, as the thread does when no commits come."""
        if self.flying is None and not self.is_over:
            try:
                self._writer.look_after()
            except StoreError as error:
                self.is_over, self._error = True, error
                self._failed_with(error)

    def read_soon(self, job: Callable[[Reader], T], then: Callable[[T | Exception], None]) -> None:
        if self.late is None:
            self._done(self._slices.moment(), job, then)
            return
        moment = self._slices_of(self._connected(self._folder.messages)).moment()
        reader = moment.__enter__()
        self.late.append(lambda: self._done(moment, job, then, reader))

    def _done(
        self,
        moment: AbstractContextManager[Reader],
        job: Callable[[Reader], T],
        then: Callable[[T | Exception], None],
        begun: Reader | None = None,
    ) -> None:
        """Do a job at a moment, which may have begun before."""
        found: T | Exception
        try:
            found = job(begun if begun is not None else moment.__enter__())
        except Exception as error:
            found = error
        moment.__exit__(None, None, None)
        self._writer._soon(lambda: then(found))

    def close(self, last: Commit | None) -> None:
        try:
            if self._error is not None and last is not None:
                raise self._error
            assert not self.is_over or last is None
            if last is not None:
                if self.flying is not None:
                    self.land()
                self._writer._finish(last)
                if self._writer._failed is not None:
                    raise self._writer._failed
                self._closed_properly = True
        finally:
            self._let_go()

    # What becomes of the disk.

    def fail(self, error: NoSpaceError | StoreError) -> None:
        """Have the commit in flight fail: writes find no room, or cannot be done."""
        disk, random = self.disk, self.disk.random
        if isinstance(error, NoSpaceError):
            before, disk.free = disk.free, 0
            self.land()
            disk.free = max(before, disk.free)
            return
        if random.random() < 0.5:
            disk.sync_errors = 1
        else:
            disk.write_errors = 1
        self.land()
        disk.sync_errors = disk.write_errors = 0

    def cut(self, random: Random) -> tuple[Reached, ...]:
        """End the process or the machine, in the middle of the commit in flight, if there is one.

        A commit is written in three steps, and one that found no room may have come through the first.
        """
        disk, before, flying = self.disk, self.landed, self.flying
        disk.cut_at(random.randint(1, OPERATIONS_MAX) if flying else 0, random.random() < 0.6)
        if flying is None:
            return _steps(before, self._doubtful)
        self._writer._durable = lambda number: None
        if not self.is_over:
            self._writer._soon = lambda told: None
            with suppress(StoreError):
                self._writer._keep(flying)
        return _steps(before, flying.number)

    def again(self) -> SqliteDisk:
        """Return the store as the next start finds it."""
        if not self._closed_properly:
            self.disk.begin_again()
            self._abandon()
        return SqliteDisk(self.disk)

    def _abandon(self) -> None:
        for connection in self._connections:
            connection.close()
        if self._redo is not None:
            self._redo.close()
        self._drain.close()
        self._folder.release()


def _steps(before: int, commit: int | None) -> tuple[Reached, ...]:
    """Return how far a commit may have come after the one before it."""
    if commit is None:
        return (Reached.whole(before),)
    new, written = Reached(commit, before, before), Reached(commit, commit, before)
    return Reached.whole(before), new, written, Reached.whole(commit)
