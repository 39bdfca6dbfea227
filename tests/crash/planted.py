"""A node with a mistake planted in it, to see that the tests here would find it; or with hardly any memory.

    python -m tests.crash.planted NAME serve --data DIR

Mistakes that matter for a moment only are given some time, as on a slow disk. Small chunks are rewritten at once, not
when they are a second old: what runs here is over by then.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, Final
from zlib import crc32

from leveret.broker import Broker
from leveret.durable import compaction, paging, recovery
from leveret.durable.journal import Journal
from leveret.durable.paging import Paging
from leveret.durable.store import chunk, database, origin, redo_log, writer
from leveret.durable.store.contract import Chunk, Commit, Entries, NoSpaceError
from leveret.durable.store.segments import SegmentChange
from leveret.durable.store.writer import Writer
from leveret.queues import lane
from leveret.server.cli import main
from leveret.server.node.transport import Transport
from leveret.transaction import Transaction

SLOWLY_S: Final = 0.02
LITTLE_OCTETS: Final = 20_000


def confirm_before_sync() -> None:
    """Publishers are told when a commit is handed over."""
    keep = Writer._keep

    def early(self: Writer, commit: Commit) -> None:
        number, durable = commit.number, self._durable
        self._soon(lambda: durable(number))
        self._durable = lambda number: None
        time.sleep(SLOWLY_S)
        keep(self, commit)
        self._durable = durable

    Writer._keep = early  # type: ignore[method-assign]


def answer_before_sync() -> None:
    """Nobody's answer is held back."""
    Transport.hold = lambda self, commit: None  # type: ignore[method-assign]
    _slow_writer()


def _slow_writer() -> None:
    write = Writer._write

    def slow(self: Writer, *arguments: Any) -> SegmentChange | None:
        time.sleep(SLOWLY_S)
        return write(self, *arguments)

    Writer._write = slow  # type: ignore[method-assign]


def no_sync() -> None:
    """The system writes when it likes."""
    opened = database.connected

    def lax(*arguments: Any) -> Any:
        connection = opened(*arguments)
        connection.execute("pragma synchronous=normal")
        return connection

    database.connected = lax
    redo_log.sync_file = lambda file: None  # type: ignore[attr-defined]


def no_checksums() -> None:
    """What is read is taken for what was written."""
    read = chunk.message_of
    chunk.message_of = lambda record, checksum, encoding_of: read(record, crc32(record), encoding_of)


def _in_parts(parts_of: Callable[[Commit], Sequence[Commit]]) -> None:
    """Each commit takes several transactions."""
    write = Writer._write

    def in_parts(self: Writer, commit: Commit, state: Any) -> None:
        for part in parts_of(commit):
            write(self, part, state)
            time.sleep(SLOWLY_S)

    Writer._write = in_parts  # type: ignore[method-assign]


def ack_before_message() -> None:
    """What is settled is written before the messages that came with it."""

    def parts_of(commit: Commit) -> Sequence[Commit]:
        acks = Commit(commit.number)
        acks.settled, acks.dropped = commit.settled, commit.dropped
        commit.settled, commit.dropped = {}, []
        return acks, commit

    _in_parts(parts_of)


def transactions_in_two() -> None:
    """A part of a transaction is on its way to the disk before the rest is done."""
    commit = Transaction.commit

    def in_two(self: Transaction) -> int:
        publishes, outcomes = self._publishes, self._outcomes
        half = len(publishes) // 2
        queue = self.publications[0].route.queues[0] if self.publications else None
        self._publishes, self._outcomes = publishes[:half], []
        commit(self)
        if queue is not None and queue.journal is not None:
            queue.journal.holds = True  # or it would be put off
            queue.journal.settle(())
        self._publishes, self._outcomes = publishes[half:], outcomes
        return commit(self)

    Transaction.commit = in_two  # type: ignore[method-assign]


def lose_when_rewriting() -> None:
    """The last entry of a chunk is forgotten when it is rewritten."""
    rewritten = chunk.rewritten

    def careless(parts: Sequence[tuple[bytes, bytes, Sequence[int]]]) -> Chunk:
        return rewritten([(entries, messages, needed[:-1]) for entries, messages, needed in parts])

    chunk.rewritten = careless


def no_flags() -> None:
    """Nobody remembers that a message may have been delivered."""
    pages_of = recovery.pages_of
    recovery.pages_of = lambda gathered, marks, redelivered_to: pages_of(gathered, marks, 0)


def no_repeats() -> None:
    """Nobody remembers that a message may have moved on from its queue."""
    messages = recovery.messages

    def forgetful(broker: Broker, journal: Journal, *arguments: Any) -> recovery.Recovered:
        found = messages(broker, journal, *arguments)
        journal.redelivered_to = 0
        return found

    recovery.messages = forgetful
    slow_store()


def no_marks() -> None:
    """Nobody remembers how often a delivery failed."""
    write = Writer._write

    def forgetful(self: Writer, commit: Commit, state: Any) -> None:
        commit.marks = dict.fromkeys(commit.marks, 0)
        write(self, commit, state)

    Writer._write = forgetful  # type: ignore[method-assign]


def no_deaths() -> None:
    """Nobody remembers where a message has died."""
    origin.notes_said = lambda notes: None


def no_acks() -> None:
    """What was acked is there again."""
    write = Writer._write

    def forgetful(self: Writer, commit: Commit, state: Any) -> None:
        commit.settled = {}
        write(self, commit, state)

    Writer._write = forgetful  # type: ignore[method-assign]


def no_order() -> None:
    """The first and the last of a commit change places."""
    pack = chunk.pack

    def shuffled(entries: Entries) -> Chunk:
        positions = entries.positions
        for at in range(len(entries) // 2):
            if entries.queues[at] == entries.queues[-1 - at]:
                positions[at], positions[-1 - at] = positions[-1 - at], positions[at]
        return pack(entries)

    chunk.pack = shuffled


def sync_again() -> None:
    """A sync that failed is tried again, as if it could still be trusted."""
    writer.failure = lambda error, what, folder=None: NoSpaceError(what)


def confirm_without_room() -> None:
    """What there was no room for counts as written."""
    write = Writer._write

    def lax(self: Writer, *arguments: Any) -> None:
        with contextlib.suppress(NoSpaceError):
            write(self, *arguments)

    Writer._write = lax  # type: ignore[method-assign]


def little_memory() -> None:
    """No mistake: most of what waits is on disk only, and read back when its turn comes."""
    begin = Paging.__init__

    def poor(self: Paging, broker: Broker, budget: int | None, resident: Callable[[], int] = int) -> None:
        begin(self, broker, LITTLE_OCTETS, lambda: 1 << 62)
        self._base = 0

    Paging.__init__ = poor  # type: ignore[method-assign,assignment]
    paging.INTERVAL_S, paging.HEAD, lane.AHEAD_MIN = 0.0, 5, 2  # type: ignore[misc]


def slow_store() -> None:
    """No mistake: each commit takes some time, in which messages go on in memory."""
    _slow_writer()


def rewrite_at_once() -> None:
    """No mistake: as soon as chunks are on disk they may be rewritten."""
    compaction.YOUNG_MS = 0  # type: ignore[misc]


PLANTED: Final = {
    bug.__name__: bug
    for bug in (
        confirm_before_sync,
        answer_before_sync,
        no_sync,
        no_checksums,
        ack_before_message,
        transactions_in_two,
        lose_when_rewriting,
        no_flags,
        no_repeats,
        no_marks,
        no_deaths,
        no_acks,
        no_order,
        sync_again,
        confirm_without_room,
        little_memory,
        slow_store,
        rewrite_at_once,
    )
}


def program(name: str) -> Sequence[str]:
    """As `node.SERVE`, with the mistake."""
    return "-m", "tests.crash.planted", PLANTED[name].__name__


if __name__ == "__main__":
    rewrite_at_once()
    PLANTED[sys.argv[1]]()
    sys.exit(main(sys.argv[2:]))
