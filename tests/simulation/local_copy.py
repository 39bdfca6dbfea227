"""Readers of the local copy of a shard, which lacks messages that are in the database: a model that has rows only.

    commit ──> the database, then the local copy; or the other way round      loader, readers ──> rows of the database

The local copy is the real one, without its threads. A commit may be in one of the two only while messages are brought.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from random import Random
from threading import Event
from typing import Any, Final

from leveret.durable.store import chunk, housekeeping
from leveret.durable.store.contract import Chunk, Commit, StoredChunk
from leveret.durable.store.postgres import bodies, scratch
from leveret.durable.store.postgres.parameters import VolatileChunks, lasting
from leveret.durable.store.postgres.scratch import CachedSlices, Scratch
from leveret.durable.store.postgres.session import Database
from leveret.durable.store.postgres.source import ChunkRow, Source

from .reading import READERS, GivenCommit, Reading
from .replacing import replaced
from .stored import MEMORY

BROUGHT_OCTETS: Final = 20_000  # of messages that the loader fetches at a time
FILE_OCTETS: Final = 60_000  # of the files beside the local copy


class ShardRows:
    """The rows of a shard's chunks, and of their settled bits."""

    def __init__(self) -> None:
        self.chunks: dict[int, Chunk] = {}
        self.bits: dict[int, bytes] = {}

    def take(self, commit: Commit, made: Sequence[Chunk]) -> None:
        """Write a commit, in the order of its statement."""
        for first in (*commit.dropped, *(first for gone, _ in commit.replaced for first in gone)):
            self.chunks.pop(first, None)
            self.bits.pop(first, None)
        for each in (*(new for _, new in commit.replaced), *made):
            assert each.first not in self.chunks, "a row is there once"
            self.chunks[each.first] = each
        self.bits.update(commit.settled)

    def in_order(self) -> list[ChunkRow]:
        return [
            ChunkRow(first, len(each.messages), each.entries, self.bits.get(first, b""))
            for first, each in sorted(self.chunks.items())
        ]


class RowSource(Source):
    """Reads these rows, each time as of a moment of its own, before and after which other things happen."""

    def __init__(self, rows: ShardRows, meanwhile: Callable[[], None]) -> None:
        super().__init__(Database(""), "main", "simulation", Event())
        self._shard_rows = rows
        self._meanwhile = meanwhile

    def bodies(self, firsts: Sequence[int]) -> list[Chunk]:
        self._meanwhile()
        there = self._shard_rows.chunks
        found = [there[first] for first in sorted(firsts) if first in there]
        self._meanwhile()
        return found

    def chunk_of(self, number: int) -> Chunk | None:
        self._meanwhile()
        there = self._shard_rows.chunks
        first = max((each for each in there if each <= number), default=None)
        found = None if first is None else there[first]
        self._meanwhile()
        return found


class LocalCopy(Reading):
    """The local copy of a shard."""

    weights: Mapping[str, int] = {**Reading.weights, "start_again": 4, "load": 4, "overtake": 8, "ask": 4}

    def __init__(self) -> None:
        super().__init__()
        in_memory = MEMORY if os.access(MEMORY, os.W_OK) else None
        root = Path(tempfile.mkdtemp(prefix="leveret-simulation-", dir=in_memory))
        self._until_closed = ExitStack()
        self._until_closed.callback(shutil.rmtree, root)
        for module, name, value in (
            (housekeeping, "monotonic", lambda: 0.0),
            (scratch, "monotonic", lambda: 0.0),
            (scratch, "BROUGHT_OCTETS", BROUGHT_OCTETS),
            (bodies, "FILE_OCTETS", FILE_OCTETS),
        ):
            self._until_closed.enter_context(replaced(module, name, value))
        self._folder = root / "scratch"
        self.database = ShardRows()
        self._stored: set[int] = set()  # entries that the database has, and needs
        self._use()
        self.fill()

    def _use(self) -> None:
        """Make the copy, as a start does it."""
        self.copy = copy = Scratch(self._folder, lambda use: RowSource(self.database, self.meanwhile))
        copy.take_rows(self.database.in_order())
        copy._firsts = sorted(copy._lacking)
        copy._reads = self._reads()
        self._volatile = VolatileChunks()
        source, file = copy._sources[0], copy._folder.messages
        self.slices = [
            CachedSlices(copy._connected(file), copy._segments, copy, source) for _ in range(READERS + 2)
        ]

    def _reads(self) -> Any:
        """Return what takes jobs in the place of a thread."""
        world = self

        class Jobs:
            def put(self, job: Any, then: Any) -> None:
                world.read_soon(job, then)

        return Jobs()

    def close(self) -> None:
        for moment in self.moments.values():
            moment.end()
        self.copy.let_go()
        self._until_closed.close()

    @property
    def lacking(self) -> Collection[int]:
        return self.copy._lacking

    def give(self, given: GivenCommit) -> None:
        commit = given.commit
        self._made = [chunk.pack(entries) for entries in commit.chunks]
        self._sent: tuple[Commit, list[Chunk]] | None = lasting(commit, self._made, self._volatile)
        self._is_copied = False

    def land(self, random: Random) -> None:
        """Have the database or the local copy take the commit, or report it once both have."""
        assert self.flying is not None
        if self._sent is not None and (self._is_copied or random.random() < 0.5):
            self._store(self.flying)
        elif not self._is_copied:
            self._copy(self.flying)
        if self._sent is None and self._is_copied:
            self.landed()

    def _store(self, given: GivenCommit) -> None:
        assert self._sent is not None
        self.say(f"the database has commit {given.commit.number}")
        self.database.take(*self._sent)
        self._sent = None
        self._stored.update(number for number, is_volatile in given.made.items() if not is_volatile)
        self._stored.difference_update(given.settled)

    def _copy(self, given: GivenCommit) -> None:
        self.say(f"the local copy has commit {given.commit.number}")
        change, _ = self.copy.write_segments(given.commit)
        self.copy.write_rows(given.commit, self._made, change)
        self._is_copied = True
        self.readable(given)

    def look_after(self) -> None:
        self.copy.look_after()

    def start_again(self, random: Random) -> Sequence[StoredChunk]:
        """Another node takes over, or the same again: it has what is in the database."""
        self.copy.let_go()
        self.written = set(self._stored)
        self._use()
        return [StoredChunk(row.first, row.entries, row.octets, row.bits) for row in self.database.in_order()]

    def step_start_again(self, random: Random) -> None:
        super().step_start_again(random)
        if random.random() < 0.5:
            self.step_overtake(random)

    def step_load(self, random: Random) -> None:
        """The loader brings all that is lacking, while other things happen."""
        self._step(random)
        if self.copy._lacking:
            self.say(f"the loader brings {list(self.copy._lacking)}")
            self.copy._bring_all()

    def step_overtake(self, random: Random) -> None:
        """A merge is in the database, and messages are brought before it is in the local copy."""
        self.step_rewrite(random)
        self.do_work(random)
        self.do_commit(random)
        if self.flying is not None and self._sent is not None:
            self._store(self.flying)
        if self.copy._lacking:
            self.say(f"the loader brings {list(self.copy._lacking)}")
            self.copy._bring_all()
        self.do_fetch(random, has_all=True)

    def step_ask(self, random: Random) -> None:
        """A queue wants messages to be brought."""
        self._step(random)
        if self.written:
            numbers = sorted(self.written)
            begin = random.randrange(len(numbers))
            self.copy.brings(numbers[begin : begin + random.choice((1, 5, 20))])

    def come_to_rest(self) -> None:
        self.copy._bring_all()
        while self.jobs:
            self.do_work(self._random)
        self.copy.look_after()
        kept, beside = set(self.copy.bodies._files), set(self.copy._beside.values())
        assert kept == beside, f"messages are kept beside that no chunk has: {sorted(kept ^ beside)}"
