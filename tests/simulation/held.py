"""Disks of the simulation: stores whose commits are written, fail and are cut off when the simulation says so."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from random import Random
from typing import NamedTuple, TypeVar

from leveret.durable.store.contract import Commit, NoSpaceError, Reader, Store, StoreError
from leveret.durable.store.memory import MemoryStore

T = TypeVar("T")


class Reached(NamedTuple):
    """The last commits of which parts are on a disk; None: nothing is lost."""

    objects: int | None  # that are new
    messages: int | None
    removals: int | None  # of objects

    @classmethod
    def whole(cls, commit: int | None) -> Reached:
        return cls(commit, commit, commit)


class Disk(Store):
    """A store whose commits reach the disk when the simulation says so."""

    landed: int  # number of the last commit that is on disk
    late: list[Callable[[], None]] | None = None  # reads that are done when these are called; None: at once

    @property
    @abstractmethod
    def flying(self) -> Commit | None:
        """The next commit to be written, if there is one."""

    @abstractmethod
    def land(self) -> None:
        """Write the commit in flight, and report it."""

    @abstractmethod
    def fail(self, error: NoSpaceError | StoreError) -> None:
        """Have the commit in flight fail."""

    @abstractmethod
    def look_after(self) -> None:
        """Maintain the files, as in a time without commits."""

    @abstractmethod
    def cut(self, random: Random) -> tuple[Reached, ...]:
        """End the node in the middle of what it does. Return what may be the last on disk."""

    @abstractmethod
    def again(self) -> Disk:
        """Return the disk as the next start finds it."""


class MemoryDisk(MemoryStore, Disk):
    """A disk whose commits are whole, or not there."""

    def __init__(self) -> None:
        super().__init__(held=True)
        self.landed = 0

    def land(self) -> None:
        assert self.flying is not None
        self.landed = self.flying.number
        super().land()

    def look_after(self) -> None: ...

    def read_soon(self, job: Callable[[Reader], T], then: Callable[[T | Exception], None]) -> None:
        """Read at once: what is read is of this moment, whenever it arrives."""
        late = self.late

        def arrived(found: T | Exception) -> None:
            if late is None:
                then(found)
            else:
                late.append(lambda: then(found))

        super().read_soon(job, arrived)

    def cut(self, random: Random) -> tuple[Reached, ...]:
        for commit in self.given:
            if random.random() >= 0.5:
                break
            self.landed = commit.number
            self.content.take(commit)
        return (Reached.whole(self.landed),)

    def again(self) -> MemoryDisk:
        disk, found = MemoryDisk(), self.reopened()
        disk.content, disk.was_clean = found.content, found.was_clean
        return disk
