"""The same world on a store in SQLite, below which is a simulated disk."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from random import Random

from leveret.durable.store import housekeeping

from .disk import SimulatedDisk
from .held import Disk
from .on_sqlite import SqliteDisk
from .replacing import replaced
from .world import Messaging

MEMORY = Path("/dev/shm")


class Stored(Messaging):
    """Torn and reordered writes, syncs that fail, and a disk that is full below SQLite."""

    weights: Mapping[str, int] = {
        **Messaging.weights,
        "look_after": 3,
        "crash": 5,
        "io_error": 3,
        "fill_disk": 2,
        "free_disk": 3,
        "files_run_out": 1,
    }

    def __init__(self) -> None:
        in_memory = MEMORY if os.access(MEMORY, os.W_OK) else None
        self._root = Path(tempfile.mkdtemp(prefix="leveret-simulation-", dir=in_memory))
        self.hardware = SimulatedDisk(self._root, Random(0))
        self._until_closed = ExitStack()
        self._until_closed.callback(shutil.rmtree, self._root)
        self._until_closed.enter_context(self.hardware.installed())
        self._until_closed.enter_context(replaced(housekeeping, "monotonic", lambda: self._clock()))
        try:
            super().__init__()
        except BaseException:
            self.close()
            raise

    def _clock(self) -> float:
        return self.node.clock.now() if hasattr(self, "node") else 0.0

    def close(self) -> None:
        self._until_closed.close()

    def _disk(self) -> Disk:
        made = SqliteDisk(self.hardware)
        self.hardware.make_safe()
        return made

    def check(self) -> None:
        super().check()
        damage = [each for each in self.node.disk.damage if "torn" not in each]
        assert not damage, f"the store calls itself damaged: {damage}"

    def step_fill_disk(self, random: Random) -> None:
        """Others fill the disk: what is left is what the store has set aside."""
        self.say("others fill the disk")
        self.hardware.free = random.choice((0, 4096, 100_000))

    def step_free_disk(self, random: Random) -> None:
        self.hardware.make_room()

    def step_files_run_out(self, random: Random) -> None:
        """Nothing can be opened while a commit is written."""
        if self.node.disk.flying is not None:
            self.say("no file can be opened")
            self.hardware.no_files = True
            self.step_land(random)
            self.hardware.no_files = False

    def _settle_disk(self) -> None:
        self.hardware.make_room()
        super()._settle_disk()
