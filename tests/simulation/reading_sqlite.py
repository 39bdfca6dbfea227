"""Readers of the store in SQLite: what they read is in the database, in the redo log, or between the two."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from random import Random

from leveret.durable.store import housekeeping
from leveret.durable.store.contract import StoredChunk

from .disk import SimulatedDisk
from .on_sqlite import SqliteDisk
from .reading import READERS, GivenCommit, Reading
from .replacing import replaced
from .stored import MEMORY


class ReadingSqlite(Reading):
    """A store in SQLite whose commits go to the redo log, or past it."""

    def __init__(self) -> None:
        super().__init__()
        in_memory = MEMORY if os.access(MEMORY, os.W_OK) else None
        root = Path(tempfile.mkdtemp(prefix="leveret-simulation-", dir=in_memory))
        self._until_closed = ExitStack()
        self._until_closed.callback(shutil.rmtree, root)
        self._until_closed.enter_context(replaced(housekeeping, "monotonic", lambda: 0.0))
        self._hardware = SimulatedDisk(root, Random(1))
        self._use(SqliteDisk(self._hardware))
        self.fill()

    def _use(self, store: SqliteDisk) -> None:
        self.store = store
        store.writes_at_once = False
        self._found = list(store.chunks())
        store.start(lambda told: told(), lambda number: self.landed(), self._fail)
        file = store._folder.messages
        self.slices = [store._slices_of(store._connected(file)) for _ in range(READERS + 2)]

    def _fail(self, error: Exception) -> None:
        raise error

    def close(self) -> None:
        for moment in self.moments.values():
            moment.end()
        self.store._abandon()
        self._until_closed.close()

    def give(self, given: GivenCommit) -> None:
        self.store.append(given.commit)

    def land(self, random: Random) -> None:
        assert self.flying is not None
        self.readable(self.flying)
        self.store.land()

    def look_after(self) -> None:
        self.store.look_after()

    def start_again(self, random: Random) -> Sequence[StoredChunk]:
        self._hardware.random = random
        self._use(self.store.again())
        return self._found
