"""A data folder to another: backup, while a node runs on it or not, and restore.

Both databases are copied as of one moment, or as good as: first a moment of messages.db is held on to, then one of
meta.db, then both are copied at leisure. So meta.db may be newer by a commit, as it may be after a crash; never older,
for then there would be messages without their queue.

While it copies, the node's logs grow by what is written meanwhile.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Final

import attrs

from broker_core.store import finding
from broker_core.store.contract import DamagedError
from broker_core.store.database import COPIED, PAGE_OCTETS, RUNNING, opened, say, state_of, unusable
from broker_core.store.folder import LOCK, MESSAGES, META, BadFolder, make, require, sync_folder

STEP_PAGES: Final = 2048  # copied at a time: 8 MiB

Progress = Callable[[int, int], None]  # octets copied, octets in all


def copy(source: Path, target: Path, progress: Progress = lambda done, total: None) -> None:
    """Copy the databases of a folder into another, which must be empty, or is made.

    Raises BadFolder, and OSError: the target cannot be written, or the source cannot be read.
    """
    require(source)
    with ExitStack() as stack:
        moments = [stack.enter_context(closing(Moment(source / name))) for name in (MESSAGES, META)]
        make(target)
        if any(each.name != LOCK for each in target.iterdir()):
            raise BadFolder(f"{target} is not empty")
        total = sum(moment.octets for moment in moments)
        done = 0
        for moment in moments:
            try:
                moment.copy(_unfinished(target, moment.name), done, total, progress)
            except sqlite3.Error as error:
                raise OSError(f"{source} cannot be copied to {target}: {error}") from None
            done += moment.octets
    for name in (MESSAGES, META):  # a copy that was interrupted is no data folder
        _unfinished(target, name).rename(target / name)
    sync_folder(target)


def _unfinished(folder: Path, name: str) -> Path:
    return folder / f"{name}.new"


class Moment:
    """A database as of one moment, held on to until it is closed."""

    def __init__(self, file: Path) -> None:
        """Raises BadFolder."""
        self.name = file.name
        self.database = opened(file, write=False)
        try:
            self.database.execute("begin")
            self.database.execute("select * from state").fetchone()  # a moment begins with the first look
            self.octets = finding.octets_of(self.database)
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


def octets_in(folder: Path) -> int:
    """Of all files of a data folder, logs included."""
    return sum(file.stat().st_size for name in (MESSAGES, META) for file in folder.glob(f"{name}*"))
