"""Disks whose syncs lie lose what was confirmed, and the store never takes what is left for something else.

Against such a disk, or a controller with a cache and no battery, nothing can be promised: commits may be lost, and
where the last ones are lost as a whole nothing shows it. What holds is that a start ends well or says why it cannot,
and that no chunk is another than was written.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Final

import attrs
import pytest

from leveret.durable.store import chunk, housekeeping
from leveret.durable.store.contract import Commit, DamagedError, Entries, StoreError
from leveret.durable.store.folder import BadFolder
from tests.durable.store.shelf import entries

from .disk import SimulatedDisk, is_possible
from .on_sqlite import SqliteDisk
from .replacing import replaced
from .stored import MEMORY

SEEDS: Final = 30
COMMITS_MAX: Final = 40

pytestmark = pytest.mark.skipif(not is_possible(), reason="SQLite's functions cannot be reached")


@attrs.define
class Outcome:
    """What a start after a cut came to."""

    refused: str = ""
    damage: list[str] = attrs.field(factory=list)
    lost: int = 0  # confirmed chunks that are not there
    back: int = 0  # chunks that are there although their removal was confirmed
    wrong: list[str] = attrs.field(factory=list)


@contextmanager
def folder() -> Iterator[Path]:
    root = Path(tempfile.mkdtemp(prefix="leveret-lying-", dir=MEMORY if os.access(MEMORY, os.W_OK) else None))
    try:
        with replaced(housekeeping, "monotonic", lambda: 0.0):
            yield root
    finally:
        shutil.rmtree(root)


class History:
    """Commits of chunks, which come and go, and what was confirmed of them."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.written: dict[
            int, tuple[bytes, bytes]
        ] = {}  # entries and messages of each chunk that was ever given
        self.there: set[int] = set()  # as confirmed
        self._next = 1
        self._number = 0

    def commit(self) -> tuple[Commit, set[int], set[int]]:
        random = self.random
        self._number += 1
        made, new, gone = Commit(self._number), set[int](), set[int]()
        for _ in range(random.randint(0, 2)):
            bodies = [random.randbytes(random.choice((10, 600, 3000))) for _ in range(random.randint(1, 4))]
            each: Entries = entries(self._next, *bodies)
            packed = chunk.pack(each)
            self.written[self._next] = packed.entries, packed.messages
            new.add(self._next)
            made.chunks.append(each)
            self._next += len(bodies)
        if self.there and random.random() < 0.5:
            gone = set(random.sample(sorted(self.there), random.randint(1, len(self.there))))
            made.dropped.extend(sorted(gone))
        if random.random() < 0.1:
            made.objects[f"a{self._number}"] = "1"
        return made, new, gone


def run(seed: int, share: float) -> Outcome:
    """Lead a store through commits on a disk that lies about a share of its syncs, cut the power, and start again."""
    random = Random(seed)
    with folder() as root:
        disk = SimulatedDisk(root, random)
        with disk.installed():
            store = SqliteDisk(disk)
            store.writes_at_once = False
            confirmed: list[int] = []
            store.start(lambda told: told(), confirmed.append, lambda error: None)
            disk.make_safe()
            lying = Random(seed)
            disk.lies = lambda: lying.random() < share
            history = History(random)
            for _ in range(random.randint(1, COMMITS_MAX)):
                made, new, gone = history.commit()
                if not made:
                    continue
                store.append(made)
                store.land()
                assert confirmed[-1:] == [made.number]
                history.there = (history.there | new) - gone
                if random.random() < 0.2:
                    store.look_after()
            disk.cut_at(0, is_power=True)
            disk.begin_again()
            store._abandon()
            return outcome(disk, history)


def outcome(disk: SimulatedDisk, history: History) -> Outcome:
    found = Outcome()
    try:
        store = SqliteDisk(disk)
    except BadFolder as error:
        found.refused = str(error)
        return found
    there: set[int] = set()
    try:
        for kept in store.chunks():
            if kept.entries is None:
                continue
            known = history.written.get(kept.first)
            if known is None or known[0] != kept.entries:
                found.wrong.append(f"chunk {kept.first} has entries that were never written")
                continue
            there.add(kept.first)
            with suppress(DamagedError), store.reader() as reader:
                got = reader.messages(kept.first, 0, len(known[1]))
                if got != known[1] and not chunk.damaged_records(chunk.read(known[0]), got):
                    found.wrong.append(f"chunk {kept.first} has messages that were never written")
        store.start(lambda told: told(), lambda number: None, lambda error: None)
    except StoreError as error:
        found.refused = str(error)
    finally:
        found.damage = store.damage
        store._abandon()
    found.lost, found.back = len(history.there - there), len(there - history.there)
    return found


@pytest.mark.parametrize("share", [0.1, 0.5, 1.0])
def test_a_disk_whose_syncs_lie_makes_no_junk_of_what_was_written(share: float):
    found = [run(seed, share) for seed in range(1, SEEDS + 1)]
    assert [each.wrong for each in found] == [[]] * SEEDS
    assert any(each.lost for each in found), "such disks do lose something"
    assert any(each.damage for each in found), "and it is told where it shows"


def test_a_disk_that_does_not_lie_keeps_all():
    for seed in range(1, SEEDS + 1):
        assert run(seed, 0.0) == Outcome(), seed
