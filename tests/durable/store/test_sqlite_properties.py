"""Whatever is committed, in whatever order, and however the store ends: SQLite has what memory has."""

from __future__ import annotations

import shutil
from pathlib import Path

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from leveret.durable.store import chunk
from leveret.durable.store.contract import Commit, DamagedError, Store
from leveret.durable.store.memory import MemoryStore
from tests.durable.store.shelf import Shelf, entries, quick_folder

some = st.integers(0, 30)  # one of those there are, counted round
keys = st.sampled_from(["a", "b", "c", "d", "\N{SNOWMAN}"])
sizes = st.sampled_from([0, 1, 100, 5000, 70_000])


class StoreMachine(RuleBasedStateMachine):
    """The same commits to both, the same ends; `chunks` is what should be there."""

    redo_octets = 0

    @initialize()
    def begin(self) -> None:
        self.place = Path(quick_folder())
        self.next_entry = 1
        self.chunks: dict[int, list[int]] = {}  # first to the numbers of its entries
        self.sqlite = Shelf.of(self.place / "data", self.redo_octets).start()
        self.memory = Shelf(MemoryStore()).start()
        self.open = Commit(0)

    def teardown(self) -> None:
        self.sqlite.store.close(None)
        shutil.rmtree(self.place)

    # A commit is gathered, then given.

    @rule(key=keys, value=st.none() | st.text(max_size=5))
    def an_object(self, key: str, value: str | None) -> None:
        self.open.objects[key] = value

    @rule(count=st.integers(1, 20), size=sizes, skipped=st.sampled_from([0, 0, 3]))
    def a_chunk(self, count: int, size: int, skipped: int) -> None:
        first = self.next_entry + skipped
        bodies = [b"%d" % number * (size // 4 + 1) for number in range(first, first + count)]
        self.open.chunks.append(entries(first, *bodies))
        self.next_entry = first + count

    @rule(at=some, bits=st.binary(min_size=1, max_size=3))
    def settled(self, at: int, bits: bytes) -> None:
        if self.chunks:
            self.open.settled[self.some_chunk(at)] = bits

    @rule(at=some, tries=st.integers(0, 70_000))
    def a_mark(self, at: int, tries: int) -> None:
        if self.chunks:
            self.open.marks[self.chunks[self.some_chunk(at)][-1]] = tries

    @rule(at=some)
    def dropped(self, at: int) -> None:
        if self.chunks:
            first = self.some_chunk(at)
            if not self.is_spoken_of(first):
                self.open.dropped.append(first)
                del self.chunks[first]

    @rule(at=some, count=st.integers(1, 3), every=st.integers(1, 3))
    def replaced(self, at: int, count: int, every: int) -> None:
        firsts = sorted(self.chunks)
        begin = at % len(firsts) if firsts else 0
        gone = firsts[begin : begin + count]
        if not gone or any(map(self.is_spoken_of, gone)):
            return
        needed = {first: self.chunks[first][::every] for first in gone}
        merged = chunk.rewritten([(*self.whole(first), needed[first]) for first in gone])
        self.open.replaced.append((gone, merged))
        for first in gone:
            del self.chunks[first]
        self.chunks[merged.first] = [number for first in gone for number in needed[first]]

    def is_spoken_of(self, first: int) -> bool:
        """Whether the commit that is being gathered says something of a chunk: the journal says one thing only."""
        marked = any(number in self.open.marks for number in self.chunks[first])
        return (
            marked or first in self.open.settled or any(first == made.first for _, made in self.open.replaced)
        )

    def some_chunk(self, at: int) -> int:
        return sorted(self.chunks)[at % len(self.chunks)]

    def whole(self, first: int) -> tuple[bytes, bytes]:
        with self.sqlite.store.reader() as reader:
            _, columns = reader.find(first)
            return columns, reader.messages(first, 0, chunk.read(columns).ends[-1])

    @rule()
    def commit(self) -> None:
        commit, self.open = self.open, Commit(self.open.number + 1)
        for shelf in (self.sqlite, self.memory):
            shelf.store.append(commit)
            shelf.hear()
            assert shelf.told.pop() == commit.number
        for made in commit.chunks:
            self.chunks[made.first] = list(range(made.first, made.first + len(made)))

    # The end, and the next start.

    @rule(how=st.sampled_from(["closed", "given_up", "killed"]))
    def end(self, how: str) -> None:
        self.commit()
        self.sqlite, self.memory = getattr(self.sqlite, how)(), getattr(self.memory, how)()
        if self.sqlite.folder != self.place / "data":
            self.sqlite.store.close(None)
            assert self.sqlite.folder is not None
            shutil.rmtree(self.place / "data")
            self.sqlite.folder.rename(self.place / "data")
            self.sqlite = Shelf.of(self.place / "data", self.redo_octets)
        assert self.sqlite.store.damage == []
        assert self.sqlite.store.was_clean == self.memory.store.was_clean == (how == "closed")
        assert self.sqlite.found() == self.memory.found()
        self.sqlite.start()
        self.memory.start()

    @invariant()
    def reads_are_equal(self) -> None:
        if self.open:
            return
        for number in range(self.next_entry + 2):
            assert read(self.sqlite.store, number) == read(self.memory.store, number)


def read(store: Store, number: int) -> tuple[int, bytes, bytes] | None:
    """The chunk of an entry, whole; None: there is none."""
    try:
        with store.reader() as reader:
            first, columns = reader.find(number)
            return first, columns, reader.messages(first, 0, chunk.read(columns).ends[-1])
    except DamagedError:
        return None


class LoggedStoreMachine(StoreMachine):
    """The same with a redo log, which is filled by a few commits."""

    redo_octets = 40_000


TestStores = StoreMachine.TestCase
TestLoggedStores = LoggedStoreMachine.TestCase
