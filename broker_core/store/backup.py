"""A data folder to another: backup, while a node runs on it or not, and restore.

Both databases are copied as of one moment, or as good as: first a moment of messages.db is held on to, then one of
meta.db, then both are copied at leisure. So meta.db may be newer by a commit, as it may be after a crash; never older,
for then there would be messages without their queue.

Segments of streams only grow, or go. They are copied first. If that took long, or one went meanwhile, another moment
is taken, and what has grown since is copied, too. What was copied too much has no row, and goes at a start of the copy.

While it copies, the node's logs grow by what is written meanwhile.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from itertools import count
from pathlib import Path
from typing import Final

import attrs

from broker_core.store import salvage
from broker_core.store.contract import DamagedError, Span, StoreError
from broker_core.store.database import COPIED, PAGE_OCTETS, RUNNING, opened, say, state_of, unusable
from broker_core.store.folder import LOCK, MESSAGES, META, STREAMS, BadFolder, make, require, sync_folder
from broker_core.store.segments import file_of, read_file

STEP_PAGES: Final = 2048  # copied at a time: 8 MiB
STEP_OCTETS: Final = 1 << 20  # of a segment
HELD_OCTETS: Final = (
    1 << 26
)  # of segments, copied while a moment is held; for more, it is another moment then
ROUNDS_MAX: Final = 8  # of that: the node may write as fast as it is copied

Progress = Callable[[int, int], None]  # octets copied, octets in all


def copy(source: Path, target: Path, progress: Progress = lambda done, total: None) -> None:
    """Copy the databases of a folder into another, which must be empty, or is made.

    Raises BadFolder, and OSError: the target cannot be written, or the source cannot be read.
    """
    require(source)
    segments = SegmentCopy(source, target, progress)
    with _moments(source, target, segments) as moments:
        try:
            for moment in moments:
                moment.copy(_unfinished(target, moment.name), segments.done, segments.total, progress)
                segments.done += moment.octets
        except sqlite3.Error as error:
            raise OSError(f"{source} cannot be copied to {target}: {error}") from None
    for name in (MESSAGES, META):  # a copy that was interrupted is no data folder
        _unfinished(target, name).rename(target / name)
    sync_folder(target)


@contextmanager
def _moments(source: Path, target: Path, segments: SegmentCopy) -> Iterator[list[Snapshot]]:
    """A moment of both databases; all segments that there are then have been copied. Raises BadFolder, OSError."""
    for number in count(1):
        with ExitStack() as stack:
            moments = [stack.enter_context(closing(Snapshot(source / name))) for name in (MESSAGES, META)]
            if number == 1:
                _make_empty(target)
            before, databases = segments.done, sum(moment.octets for moment in moments)
            whole = segments.copy(_spans(moments[0]), databases)
            if whole and (segments.done - before <= HELD_OCTETS or number >= ROUNDS_MAX):
                yield moments
                return


def _make_empty(target: Path) -> None:
    """Raises BadFolder."""
    make(target)
    if any(each.name != LOCK for each in target.iterdir()):
        raise BadFolder(f"{target} is not empty")


def _unfinished(folder: Path, name: str) -> Path:
    return folder / f"{name}.new"


class Snapshot:
    """A database as of one moment, held on to until it is closed."""

    def __init__(self, file: Path) -> None:
        """Raises BadFolder."""
        self.name = file.name
        self.database = opened(file, write=False)
        try:
            self.database.execute("begin")
            self.database.execute("select * from state").fetchone()  # a moment begins with the first look
            self.octets = salvage.octets_of(self.database)
        except sqlite3.Error as error:
            self.database.close()
            raise unusable(file, error) from None

    def close(self) -> None:
        self.database.close()

    def copy(self, file: Path, done: int, total: int, progress: Progress) -> None:
        """Raises sqlite3.Error."""

        def step(status: int, pages_left: int, pages: int) -> None:
            progress(done + (pages - pages_left) * PAGE_OCTETS, total)

        file.touch(mode=0o600)
        with closing(sqlite3.connect(file, isolation_level=None)) as copied:
            self.database.backup(copied, pages=STEP_PAGES, progress=step)
            copied.execute("pragma journal_mode=delete").fetchone()  # one file, readable wherever it lies
            if self.name == MESSAGES:
                _say_that_it_is_a_copy(copied)


def _say_that_it_is_a_copy(messages: sqlite3.Connection) -> None:
    try:
        state = state_of(messages)
    except DamagedError:
        return
    if state.ended == RUNNING:
        say(messages, attrs.evolve(state, ended=COPIED))


class SegmentCopy:
    """Segments that are copied, as far as they are there."""

    def __init__(self, source: Path, target: Path, progress: Progress) -> None:
        self._source = source / STREAMS
        self._target = target / STREAMS
        self._progress = progress
        self._copied: dict[tuple[int, int], int] = {}  # octets, by stream and first offset
        self._lost: set[tuple[int, int]] = set()  # that are shorter than they should be, or are not there
        self.done = self.total = 0

    def copy(self, spans: Sequence[Span], others: int) -> bool:
        """Copy what is not copied yet, before so many other octets.

        Returns whether all was there. What is lacking twice has not gone, but is lost: so it is in the copy.
        """
        left = sum(span.octets - self._copied.get((span.stream, span.first), 0) for span in spans)
        self.total = self.done + left + others
        whole = True
        folders = set()
        for span in spans:
            key = span.stream, span.first
            if key in self._lost or self._copied.get(key) == span.octets:
                continue
            file = file_of(self._target, *key)
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            folders.add(file.parent)
            if not self._copy(span, file):
                self._lost.add(key)
                whole = False
        for folder in (*folders, self._target, self._target.parent) if folders else ():
            sync_folder(folder)
        return whole

    def _copy(self, span: Span, file: Path) -> bool:
        """Copy the rest of a segment. Returns whether that could be read. Raises OSError."""
        key = span.stream, span.first
        at = self._copied.get(key, 0)
        with file.open("ab") as target:
            while at < span.octets:
                try:
                    octets = read_file(file_of(self._source, *key), at, min(STEP_OCTETS, span.octets - at))
                except StoreError as error:
                    raise OSError(str(error)) from None
                if not octets:
                    return False
                target.write(octets)
                at += len(octets)
                self._copied[key] = at
                self.done += len(octets)
                self._progress(self.done, self.total)
            target.flush()
            os.fdatasync(target.fileno())
        self._copied[key] = at
        return True


def _spans(messages: Snapshot) -> list[Span]:
    """The segments of messages.db; what is damaged there is damaged in the copy, too. Raises OSError."""
    try:
        found = salvage.segments(messages.database, lambda text: None)
        return [span for _, span in found if span is not None]
    except sqlite3.Error as error:
        raise OSError(f"{messages.name} cannot be read: {error}") from None


def octets_in(folder: Path) -> int:
    """Of the databases of a data folder, logs included."""
    return sum(file.stat().st_size for name in (MESSAGES, META) for file in folder.glob(f"{name}*"))
