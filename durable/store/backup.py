"""Copy a data folder to another: backup, whether or not a node runs on it, and restore.

Both databases are copied as of about one moment: a read transaction is opened on messages.db, then one on meta.db, then
both are copied. So meta.db may be newer by a commit, as it may be after a crash; it is never older, for then there
would be messages without their queue.

Segments of streams only grow, or are deleted. They are copied first. If that took long, or one was deleted meanwhile, a
new moment is taken, and what has grown since is copied, too. Surplus bytes have no row, and are removed when a node
starts on the copy.

During the copy, the node's logs grow by what is written meanwhile.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from itertools import count
from pathlib import Path
from typing import Final

import attrs

from leveret.durable.store import redo_log, salvage
from leveret.durable.store.contract import DamagedError, Span, StoreError
from leveret.durable.store.database import (
    COPIED,
    LOGGED,
    PAGE_OCTETS,
    RUNNING,
    WAITING,
    flags_of,
    is_damage,
    opened,
    say,
    set_flags,
    state_of,
    unusable,
)
from leveret.durable.store.folder import LOCK, MESSAGES, META, STREAMS, BadFolder, make, require
from leveret.durable.store.logged_changes import LoggedChanges, define
from leveret.durable.store.redo_log import ReadLog
from leveret.durable.store.segments import file_of, read_file
from leveret.durable.store.syncing import sync_file, sync_folder

STEP_PAGES: Final = 2048  # copied at a time: 8 MiB
STEP_OCTETS: Final = 1 << 20  # read from a segment at a time
# bytes of segments copied while a moment is held; after more, a new moment is taken
HELD_OCTETS: Final = 1 << 26
ROUNDS_MAX: Final = 8  # at most: the node may write as fast as this copies

Progress = Callable[[int, int], None]  # bytes copied, bytes in all


def copy(source: Path, target: Path, progress: Progress = lambda done, total: None) -> None:
    """Copy a folder's databases and segments into another, which must be empty, or is created.

    Raises BadFolder, or OSError if the target cannot be written, or the source cannot be read.
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
    for name in (MESSAGES, META):  # until these have their names, an interrupted copy is no data folder
        _unfinished(target, name).rename(target / name)
    sync_folder(target)


@contextmanager
def _moments(source: Path, target: Path, segments: SegmentCopy) -> Iterator[list[Snapshot]]:
    """Yield a moment of both databases, once all its segments have been copied. Raises BadFolder, OSError."""
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
    """Create the target folder. Raises BadFolder if it is not empty."""
    make(target)
    if any(each.name != LOCK for each in target.iterdir()):
        raise BadFolder(f"{target} is not empty")


def _unfinished(folder: Path, name: str) -> Path:
    return folder / f"{name}.new"


class Snapshot:
    """A database as of one moment: a read transaction that is open until it is closed."""

    def __init__(self, file: Path) -> None:
        """Begin the read transaction. Raises BadFolder."""
        self.name = file.name
        self.database = opened(file, write=False)
        self.logged = ReadLog()  # what the redo log has besides
        try:
            if self.name == MESSAGES and flags_of(self.database) & LOGGED:
                self._begin_with(redo_log.log_of(file))
            else:
                self._begin()
            self.octets = salvage.octets_of(self.database)
        except sqlite3.Error as error:
            self.database.close()
            raise unusable(file, error) from None
        except OSError as error:
            self.database.close()
            raise BadFolder(f"{redo_log.log_of(file)} cannot be read: {error.strerror}") from None

    def _begin(self) -> object:
        """Begin the transaction, and return the folder's name."""
        self.database.execute("begin")
        row = self.database.execute("select folder from state").fetchone()  # it begins with the first read
        return row[0] if row else None

    def _begin_with(self, log: Path) -> None:
        """Begin the transaction at a moment at which what the log has is what the database lacks.

        Nothing else is written to the database during a round of the log. Raises OSError, sqlite3.Error.
        """
        folder = self._begin()
        while isinstance(folder, bytes):
            self.database.execute("rollback")
            before = redo_log.read(log, folder)
            self._begin()
            # if one has begun since, then after this moment, or with nothing of it confirmed
            if not before.round:
                self.logged = before
                return
            self.logged = redo_log.read(log, folder)
            if self.logged.round == before.round:
                return

    def close(self) -> None:
        self.database.close()

    def copy(self, file: Path, done: int, total: int, progress: Progress) -> None:
        """Copy the database to a file. Raises sqlite3.Error."""

        def step(status: int, pages_left: int, pages: int) -> None:
            progress(done + (pages - pages_left) * PAGE_OCTETS, total)

        file.touch(mode=0o600)
        with closing(sqlite3.connect(file, isolation_level=None)) as copied:
            self.database.backup(copied, pages=STEP_PAGES, progress=step)
            if self.name == MESSAGES:
                _write_logged(copied, self.logged.changes)
            copied.execute("pragma journal_mode=delete").fetchone()  # one file, readable everywhere
            if self.name == MESSAGES:
                _say_that_it_is_a_copy(copied)


def _write_logged(messages: sqlite3.Connection, logged: LoggedChanges) -> None:
    """Write to a copy what the redo log has besides. Raises sqlite3.Error."""
    define(messages)
    messages.execute("begin")
    try:
        logged.write(messages, again=True)
    except sqlite3.Error as error:
        if not is_damage(error):
            raise
        messages.execute("rollback")
        messages.execute("begin")
        logged.write(messages, kept=[*logged.dropped], again=True)
    messages.execute("commit")
    set_flags(messages, flags_of(messages) & ~LOGGED | (WAITING if logged.waits else 0))


def _say_that_it_is_a_copy(messages: sqlite3.Connection) -> None:
    try:
        state = state_of(messages)
    except DamagedError:
        return
    if state.ended == RUNNING:
        say(messages, attrs.evolve(state, ended=COPIED))


class SegmentCopy:
    """Copies the segments of streams, as far as they are there."""

    def __init__(self, source: Path, target: Path, progress: Progress) -> None:
        self._source = source / STREAMS
        self._target = target / STREAMS
        self._progress = progress
        self._copied: dict[tuple[int, int], int] = {}  # bytes copied, by stream and first offset
        self._lost: set[tuple[int, int]] = set()  # shorter than they should be, or missing
        self.done = self.total = 0

    def copy(self, spans: Sequence[Span], others: int) -> bool:
        """Copy what is not copied yet; `others` is the size of what will be copied after it, for the progress.

        Returns whether everything was there. What is missing twice was not deleted, but is lost: so it is in the copy.
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
        """Copy the rest of a segment. Returns whether it could be read. Raises OSError."""
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
            sync_file(target.fileno())
        self._copied[key] = at
        return True


def _spans(messages: Snapshot) -> list[Span]:
    """Return the segments that messages.db names; what is damaged there is damaged in the copy, too. Raises OSError."""
    try:
        found = salvage.segments(messages.database, lambda text: None)
        return [span for _, span in found if span is not None]
    except sqlite3.Error as error:
        raise OSError(f"{messages.name} cannot be read: {error}") from None


def octets_in(folder: Path) -> int:
    """Return the size of a data folder's databases in bytes, logs included."""
    return sum(file.stat().st_size for name in (MESSAGES, META) for file in folder.glob(f"{name}*"))
