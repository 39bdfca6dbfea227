"""The worlds of readers: each sees a moment of its own, while chunks are written, settled, merged and deleted.

    settle, commit ──> land: written ──────┐
    rewrite ──> work: the merged chunk ──> commit      open ──> read ... read ──> end: what there was when it began

There are no threads: what other threads may do in the middle of a read is done there, by the generator of the step
(`Reading.meanwhile`). The index of chunks, their rewriting and the reading of pages are the real ones. An entry that is
written before the moment of a reader, and not settled before it, has to be read with its bytes; only where these have
to come from another machine may a second reading have to bring them, as the journal's does.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from hashlib import sha256
from random import Random
from types import SimpleNamespace
from typing import Any, Final, TypeVar

import attrs

from leveret.durability import Page
from leveret.durable import compaction, merge_candidates
from leveret.durable.chunk_state import ChunkState
from leveret.durable.chunks import Chunks
from leveret.durable.compaction import LOOK_EVERY, Compaction
from leveret.durable.page_reader import FoundPage, read_again, read_page
from leveret.durable.store import chunk
from leveret.durable.store.contract import (
    BlockRange,
    Chunk,
    Commit,
    DamagedError,
    Entries,
    Reader,
    StoredChunk,
)
from leveret.durable.store.snapshot_reader import SnapshotReader
from leveret.message import Facts, Message
from leveret.selectors.bloom import BloomQuery
from leveret.testing.simulation import World
from tests.harness.bench import ENCODING

from .replacing import replaced

T = TypeVar("T")

DURABLE: Final = Facts(durable=True)
SIZES: Final = (0, 10, 300, 3000, 9000, 20_000)  # of bodies; a chunk of 8192 bytes is a large one
FIRST_COMMITS: Final = 5
READERS: Final = 3  # besides the one that does jobs, and the one that reads again
JOBS, AGAIN = READERS, READERS + 1  # the places of these two
ASIDES_MAX: Final = 12  # interruptions of one step
NESTED_MAX: Final = 2  # things that happen within another, one within the other


@attrs.define(eq=False)
class GivenCommit:
    """A commit that the store has, and what it changes for readers."""

    commit: Commit
    made: dict[int, bool] = attrs.field(factory=dict)  # new entries, and whether they are volatile
    settled: Sequence[int] = ()


class Moment(Reader):
    """One moment of a connection, between whose reads other things happen."""

    def __init__(self, world: Reading, place: int) -> None:
        self.place = place
        self.expected = set(world.written)  # entries that have to be found
        self._world = world
        self._context = world.slices[place].moment()
        self._reader = self._context.__enter__()
        # Chunks whose messages were elsewhere; None: nothing was read.
        self._lacking: Collection[int] | None = None

    def end(self) -> None:
        self._context.__exit__(None, None, None)

    def lacked(self, number: int) -> bool:
        """Return whether the messages of an entry were on another machine at this moment."""
        try:
            return self._reader.find(number)[0] in (self._lacking or ())
        except DamagedError:
            return False

    def find(self, number: int) -> tuple[int, bytes]:
        self._world.meanwhile()
        if self._lacking is None:
            self.expected &= self._world.written
            if self._reader._recent.find(number) is None:  # else it is in the redo log
                self._lacking = set(self._world.lacking)
        if self.place == JOBS and self._world.fails_once():
            raise DamagedError(f"entry {number} seems to be damaged")
        return self._reader.find(number)

    def messages(self, first: int, start: int, length: int) -> bytes:
        self._world.meanwhile()
        return self._reader.messages(first, start, length)

    def again(self, number: int) -> Chunk:
        self._world.meanwhile()
        return self._reader.again(number)

    def blocks(self, stream: int, segment: int, offset: int, until: int, octets: int) -> bytes:
        raise NotImplementedError

    def wanted(self, stream: int, segment: int, offset: int, until: int, wanted: BloomQuery) -> BlockRange:
        raise NotImplementedError

    def offset_since(self, stream: int, segment: int, until: int, arrived: int) -> int:
        raise NotImplementedError


class Reading(World):
    """A store without threads, readers of it, and the model of its entries."""

    weights: Mapping[str, int] = {
        "settle": 8,
        "commit": 22,
        "land": 16,
        "rewrite": 18,
        "work": 16,
        "open": 12,
        "read": 18,
        "end": 8,
        "fetch": 8,
        "look_after": 3,
        "start_again": 1,
    }
    asides: Mapping[str, int] = {"commit": 4, "land": 8, "work": 4, "settle": 1, "look_after": 1, "fetch": 2}

    slices: Sequence[SnapshotReader]  # a connection for each reader

    def __init__(self) -> None:
        self.history: list[str] = []
        self._digest = sha256()
        self._random = Random(0)  # of the step that is done
        self._nested = NESTED_MAX  # nothing happens meanwhile until the first step
        self._asides_left = 0
        self.bodies: dict[int, bytes] = {}  # of all entries there ever were
        self.written: set[int] = set()  # entries that readers find from now on
        self.settled: set[int] = set()  # for the next commit
        self.leftover: list[int] = []  # chunks that a start has found, and drops
        self.next_entry = 1
        self.flying: GivenCommit | None = None
        self._commits = self._messages = 0
        self.moments: dict[int, Moment] = {}  # by the place of the reader
        self._reading: set[int] = set()  # places whose reader is in the middle of a read
        self._begin_index([])

    def _begin_index(self, states: Sequence[ChunkState]) -> None:
        self.known = Chunks()
        for state in states:
            self.known.add(state)
        self.last = self.next_entry - 1  # the last entry that is known to be written
        self.jobs: deque[tuple[Callable[[Reader], Any], Callable[[Any], None]]] = deque()
        self.rewriter = Compaction(self._journal())

    def _journal(self) -> Any:
        """Return what the rewriter knows of a journal."""
        world = self

        class Journal:
            known = world.known
            store = world
            broker = SimpleNamespace(clock=SimpleNamespace(wall=lambda: 0.0))
            arrivals_known = SimpleNamespace(after=lambda ms: world.next_entry)

            @property
            def written(self) -> int:
                return world.last

            def fail(self, error: Exception) -> None:
                raise error

        return Journal()

    def say(self, text: str) -> None:
        self.history.append(f"  {'  ' * self._nested}{text}")

    @property
    def digest(self) -> str:
        """A digest of all that was read."""
        return self._digest.hexdigest()

    # What a store does.

    @property
    def lacking(self) -> Collection[int]:
        """The chunks whose messages are on another machine."""
        return ()

    @abstractmethod
    def give(self, given: GivenCommit) -> None:
        """Take a commit, to be written later."""

    @abstractmethod
    def land(self, random: Random) -> None:
        """Write the commit in flight, or a part of it."""

    @abstractmethod
    def look_after(self) -> None:
        """Maintain the files, as in a time without commits."""

    @abstractmethod
    def start_again(self, random: Random) -> Sequence[StoredChunk]:
        """End in the middle of what is done, start again, and return the chunks found."""

    def fill(self) -> None:
        """Write some chunks to begin with."""
        for number in range(FIRST_COMMITS):
            self.do_commit(Random(number))
            self.finish_commit(Random(number))
        self._nested = 0

    # Steps. Some of them are done in the middle of others.

    def _step(self, random: Random) -> None:
        self._random, self._nested, self._asides_left = random, 0, ASIDES_MAX

    def meanwhile(self) -> None:
        """Let some of what other threads do happen now."""
        random = self._random
        if self._nested >= NESTED_MAX or not self._asides_left or random.random() < 0.6:
            return
        self._asides_left -= 1
        self._nested += 1
        for _ in range(random.randint(1, 3)):
            kind = random.choices(list(self.asides), list(self.asides.values()))[0]
            getattr(self, f"do_{kind}")(random)
        self._nested -= 1

    def fails_once(self) -> bool:
        """Return whether what a job reads seems to be damaged: it reads it once more, and from where it was first."""
        often = 0.8 if self.lacking else 0.1
        return self._nested < NESTED_MAX and self._random.random() < often

    def step_settle(self, random: Random) -> None:
        self._step(random)
        self.do_settle(random)

    def do_settle(self, random: Random) -> None:
        """Consumers settle some entries, or all of a chunk."""
        live = [number for number in sorted(self.bodies) if self._is_live(number)]
        if not live:
            return
        begin = random.randrange(len(live))
        count = random.choice((1, 2, 4, 8, 16))
        some = random.sample(live, min(count, len(live))) if random.random() < 0.5 else live[begin:][:count]
        self.say(f"settled: {sorted(some)}")
        self.settled.update(some)

    def _is_live(self, number: int) -> bool:
        return number not in self.settled and self.known.needs(number)

    def step_commit(self, random: Random) -> None:
        self._step(random)
        self.do_commit(random)

    def do_commit(self, random: Random) -> None:
        """The journal closes a commit, as it does it: what is settled, what is new, and merged chunks."""
        if self.flying is not None and random.random() < 0.5:
            self.finish_commit(random)
        if self.flying is not None:
            return
        given = GivenCommit(Commit(self._commits + 1))
        commit = given.commit
        self._settle_in(given)
        for _ in range(random.choice((0, 1, 1, 2))):
            commit.chunks.append(self._gathered(given, random))
        self.rewriter.replace_in(commit)
        if not commit:
            return
        self._commits += 1
        self.flying = given
        replaced_ = [(gone, f"{made.octets} bytes") for gone, made in commit.replaced]
        self.say(
            f"commit {commit.number}: new {list(given.made)}, dropped {commit.dropped}, merged {replaced_}"
        )
        self.give(given)

    def _settle_in(self, given: GivenCommit) -> None:
        commit = given.commit
        given.settled = sorted(self.settled)
        self.settled.clear()
        gone = []
        for state in self.known.settle(given.settled):
            if state.live:
                commit.settled[state.first] = bytes(state.bits)
            else:
                gone.append(state)
        self.known.drop(gone)
        commit.dropped = [*self.leftover, *(state.first for state in gone)]
        self.leftover = []

    def _gathered(self, given: GivenCommit, random: Random) -> Entries:
        """Return new entries of one or several queues, some of which share messages."""
        made = Entries(self.next_entry, volatile=random.random() < 0.15, arrived=1000)
        size = random.choice(SIZES)
        queues = random.choice((1, 1, 2))
        for _ in range(random.randint(1, 6)):
            if not made.messages or random.random() < 0.7:
                self._messages += 1
                body = (b"%d," % self._messages * (size // 2 + 1))[: max(size, 12)]
                made.messages.append(Message(ENCODING, "", "key", b"", body, DURABLE))
            number, body = self.next_entry, bytes(made.messages[-1].body)
            made.queues.append(random.randint(1, queues))
            made.positions.append(number)
            made.priorities.append(0)
            made.expiries.append(0)
            made.records.append(len(made.messages) - 1)
            self.bodies[number], given.made[number] = body, made.volatile
            self.next_entry += 1
        octets = sum(message.size for message in made.messages)
        self.known.add(ChunkState(made.first, range(made.first, self.next_entry), octets, made.volatile))
        return made

    def step_land(self, random: Random) -> None:
        self._step(random)
        self.do_land(random)

    def do_land(self, random: Random) -> None:
        """The store goes on with the commit in flight."""
        if self.flying is not None:
            self.land(random)

    def finish_commit(self, random: Random) -> None:
        """Have the store write all of the commit in flight."""
        while self.flying is not None:
            self.land(random)

    def readable(self, given: GivenCommit) -> None:
        """Note that a commit is in what readers see. Called by the store."""
        self.written.update(given.made)
        self.written.difference_update(given.settled)

    def landed(self) -> None:
        """Note that the commit in flight is durable. Called by the store."""
        assert self.flying is not None
        self.say(f"commit {self.flying.commit.number} is durable")
        self.last = max(self.last, *self.flying.made, 0)
        self.flying = None

    def step_look_after(self, random: Random) -> None:
        self._step(random)
        self.do_look_after(random)

    def do_look_after(self, random: Random) -> None:
        """No commits come."""
        if self.flying is None:
            self.look_after()

    # Jobs of the thread that reads.

    def read_soon(self, job: Callable[[Reader], T], then: Callable[[T | Exception], None]) -> None:
        self.jobs.append((job, then))

    def step_rewrite(self, random: Random) -> None:
        """Look for chunks to rewrite, as if some of them were many, once a commit has landed."""
        self._step(random)
        self.finish_commit(random)
        self.rewriter._since = LOOK_EVERY
        with (
            replaced(compaction, "YOUNG_MS", 0),
            replaced(merge_candidates, "SMALL_MANY", random.choice((1, 2, 3))),
            replaced(merge_candidates, "RECLAIMED", random.choice((1, 3000, 1 << 17))),
            replaced(merge_candidates, "MERGED_ENTRIES", random.choice((4, 8, 20, 1 << 15))),
        ):
            self.rewriter.look()
        if random.random() < 0.6:
            self.do_work(random)

    def step_work(self, random: Random) -> None:
        self._step(random)
        self.do_work(random)

    def do_work(self, random: Random) -> None:
        """The thread that reads begins its next job, or does the one that it has begun."""
        if JOBS in self._reading or not self.jobs:
            return
        if JOBS not in self.moments:
            self.moments[JOBS] = Moment(self, JOBS)
            if random.random() < 0.3:
                return
        job, then = self.jobs.popleft()
        moment = self.moments[JOBS]
        self._reading.add(JOBS)
        found: object
        try:
            found = job(moment)
        except Exception as error:
            found = error
        del self.moments[JOBS]
        self._reading.discard(JOBS)
        moment.end()
        if isinstance(found, Chunk):
            self.say(f"chunk {found.first} is merged, {found.octets} bytes")
        then(found)
        damaged = [state.first for state in self.known._states.values() if state.damaged]
        assert not damaged, f"chunks {damaged} cannot be rewritten: {found}"

    # Readers.

    def step_open(self, random: Random) -> None:
        """A reader begins."""
        self._step(random)
        free = [place for place in range(READERS) if place not in self.moments]
        if free:
            self.moments[free[0]] = Moment(self, free[0])
            self.say(f"reader {free[0]} begins, with {len(self.moments[free[0]].expected)} entries")

    def step_read(self, random: Random) -> None:
        """A reader that has begun reads some entries."""
        self._step(random)
        if able := [place for place in self.moments if place < READERS]:
            moment = self.moments[random.choice(able)]
            self._read(moment, self._some_numbers(moment, random))

    def _some_numbers(self, moment: Moment, random: Random) -> list[int]:
        """Return entries that follow each other, or from anywhere, also some that need not be there."""
        known = sorted(moment.expected)
        begin = random.randrange(len(known)) if known else 0
        count = random.choice((1, 3, 10, 30))
        near = known[begin : begin + count] if random.random() < 0.7 else known[:: random.randint(1, 5)]
        others = random.sample(range(1, self.next_entry), min(2, self.next_entry - 1))
        return sorted({*near, *(others if random.random() < 0.2 else ())})

    def step_end(self, random: Random) -> None:
        """A reader reads all that is left, or not, and ends."""
        self._step(random)
        if able := [place for place in self.moments if place < READERS]:
            moment = self.moments[random.choice(able)]
            if random.random() < 0.5:
                self._read(moment, sorted(moment.expected))
            self._end(moment)

    def _end(self, moment: Moment) -> None:
        self.say(f"reader {moment.place} ends")
        del self.moments[moment.place]
        moment.end()

    def step_fetch(self, random: Random) -> None:
        self._step(random)
        self.do_fetch(random)

    def do_fetch(self, random: Random, has_all: bool = False) -> None:
        """A reader begins, reads some entries or all, and ends."""
        if free := [place for place in range(READERS) if place not in self.moments]:
            moment = self.moments[free[0]] = Moment(self, free[0])
            self._read(moment, sorted(moment.expected) if has_all else self._some_numbers(moment, random))
            self._end(moment)

    def _read(self, moment: Moment, numbers: Sequence[int]) -> None:
        if not numbers:
            return
        self.say(f"reader {moment.place} reads {numbers[0]} to {numbers[-1]}")
        self._reading.add(moment.place)
        found = read_page(moment, Page(numbers, 0, 0, 0), {ENCODING.name: ENCODING}.get)
        there = self._checked(found)
        missing = [number for number in numbers if number in moment.expected and number not in there]
        lost = [number for number in missing if not moment.lacked(number)]
        assert not lost, f"entries {lost} are not read: {found.damage}"
        if missing:
            self._read_again(missing, found.damage)
        self._reading.discard(moment.place)

    def _checked(self, found: FoundPage) -> set[int]:
        """Return the entries that were read, which have the right bytes."""
        for number, position, _, _, message in found.rows:
            assert position == number, f"entry {number} is returned as another"
            assert bytes(message.body) == self.bodies[number], f"entry {number} has other bytes"
            self._digest.update(b"%d " % number)
        there = {row[0] for row in found.rows}
        assert len(there) == len(found.rows), "an entry is returned twice"
        return there

    def _read_again(self, missing: Sequence[int], damage: Sequence[str]) -> None:
        """Read entries at a new moment that came from another machine, as the journal does."""
        needed = [number for number in missing if self.known.needs(number)]
        if not needed or AGAIN in self.moments:
            return
        self.say(f"entries {needed} are read again: {damage}")
        moment = self.moments[AGAIN] = Moment(self, AGAIN)
        found = read_again(moment, needed, FoundPage({ENCODING.name: ENCODING}.get))
        there = self._checked(found)
        del self.moments[AGAIN]
        moment.end()
        lost = [number for number in needed if self.known.needs(number) and number not in there]
        assert not lost, f"entries {lost} are not read again: {found.damage}"

    # Starts.

    def step_start_again(self, random: Random) -> None:
        """The node is killed, and starts on what is there."""
        self._step(random)
        for moment in list(self.moments.values()):
            moment.end()
        self.moments.clear()
        self.settled.clear()
        found = list(self.start_again(random))
        self.flying, self.leftover, states = None, [], []
        for kept in found:
            assert kept.entries is not None, f"chunk {kept.first} is damaged after a start"
            columns = chunk.read(kept.entries)
            if columns.volatile:
                self.leftover.append(kept.first)
                self.written.difference_update(columns.numbers)
                continue
            states.append(ChunkState(kept.first, columns.numbers, kept.octets))
            states[-1].restore_bits(kept.settled or b"")
        self._begin_index(states)
        there = {number for state in states for number in state.needed()}
        assert there == self.written, f"a start has {sorted(there ^ self.written)} too few, or too many"
        self.say(f"the node has started, with chunks {[state.first for state in states]}")

    # Checks.

    def check(self) -> None: ...

    def finish(self) -> None:
        """Everything that is needed is read at once in the end, by a reader that nothing disturbs."""
        self._nested = NESTED_MAX
        for place in [place for place in self.moments if place < READERS]:
            self._read(self.moments[place], sorted(self.moments[place].expected))
            self._end(self.moments[place])
        while self.jobs:
            self.do_work(self._random)
        for _ in range(2):
            self.finish_commit(self._random)
            self.do_commit(Random(0))
        self.finish_commit(self._random)
        self.come_to_rest()
        assert not self.lacking, f"chunks {list(self.lacking)} are never brought"
        self.moments[0] = Moment(self, 0)
        needed = [number for number in sorted(self.bodies) if self.known.needs(number)]
        assert self.moments[0].expected == set(needed), "the store has what is needed"
        self._read(self.moments[0], needed)
        self._end(self.moments[0])

    def come_to_rest(self) -> None:
        """Bring what is lacking, and maintain the files until there is nothing to do."""
        self.look_after()
