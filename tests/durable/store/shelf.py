"""Stores as tests use them: a commit is given, and what comes of it is waited for; then another start."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, TypeVar

import attrs

from leveret.durable.store import block
from leveret.durable.store.contract import Append, Commit, DamagedError, Entries, Reader, Span, Store
from leveret.durable.store.folder import STREAMS
from leveret.durable.store.memory import MemoryStore
from leveret.durable.store.sqlite import SqliteStore
from leveret.message import Facts, Message
from tests.harness.bench import ENCODING

if TYPE_CHECKING:
    from leveret.durable.store.postgres.session import Database

T = TypeVar("T")

PATIENCE_S = 60.0  # for a thread that must answer; a test that needs it fails
DURABLE = Facts(durable=True)


def entries(first: int, *bodies: bytes, queue: int = 1) -> Entries:
    """New entries of one queue, a message each."""
    made = Entries(first)
    for at, body in enumerate(bodies):
        made.queues.append(queue)
        made.positions.append(first + at)
        made.priorities.append(0)
        made.expiries.append(0)
        made.records.append(at)
        made.messages.append(Message(ENCODING, "", "key", b"", body, DURABLE))
    return made


def append(stream: int, first: int, *bodies: bytes, segment: int = 0, arrived: int = 1000) -> Append:
    """New messages of a stream."""
    messages = [Message(ENCODING, "", "key", b"", body, DURABLE) for body in bodies]
    return Append(stream, segment, first, arrived, messages)


def bodies_in(octets: bytes) -> list[tuple[int, bytes]]:
    """Offsets and bodies of the messages in blocks that follow each other."""
    found: list[tuple[int, bytes]] = []
    at = 0
    while at < len(octets):
        read = block.Block(octets, at)
        messages = block.messages_of(read, {ENCODING.name: ENCODING}.get)
        found += zip(
            range(read.header.first, read.header.next), [each.body for each in messages], strict=True
        )
        at += read.header.octets
    return found


def next_of(error: DamagedError, stream: int, offset: int) -> int:
    """Where to go on."""
    assert f"stream {stream}" in str(error)
    assert error.next is not None
    assert error.next > offset, "there is no end to it otherwise"
    return error.next


def content_of(reader: Reader, spans: list[Span]) -> tuple[list[tuple[int, bytes]], list[DamagedError]]:
    """Every message that can be read, and what was said of the rest."""
    found: list[tuple[int, bytes]] = []
    errors: list[DamagedError] = []
    for span in spans:
        offset = span.first
        while offset < span.next:
            try:
                got = bodies_in(reader.blocks(span.stream, span.first, offset, span.next, 300))
            except DamagedError as error:
                errors.append(error)
                offset = next_of(error, span.stream, offset)
            else:
                found += got
                offset = got[-1][0] + 1
        assert offset == span.next
    return found, errors


@attrs.frozen
class Found:
    """Everything that a start finds."""

    objects: list[tuple[str, str]]
    # first to entries, octets of messages, settled bits
    chunks: dict[int, tuple[bytes | None, int, bytes | None]]
    marks: dict[int, int]


class Shelf:
    """A store in memory, in SQLite in a folder, or in PostgreSQL with its copy in a folder."""

    def __init__(
        self, store: Store, folder: Path | None = None, database: Database | None = None, redo_octets: int = 0
    ) -> None:
        self.store = store
        self.redo_octets = redo_octets
        self.folder = folder
        self.database = database
        self.told: list[object] = []  # numbers of durable commits, and failures
        self.stalls: list[str | None] = []  # why commits waited, and that they went on
        self._soon: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._commits = 0

    @classmethod
    def of(cls, folder: Path, redo_octets: int = 0) -> Shelf:
        return cls(SqliteStore(folder, redo_octets=redo_octets), folder, redo_octets=redo_octets)

    @classmethod
    def of_database(cls, database: Database, folder: Path) -> Shelf:
        """A store that has taken its shard over from whatever node had it."""
        from leveret.durable.store.postgres.shard import Shard
        from leveret.durable.store.postgres.store import PostgresStore

        with closing(Shard(database)) as shard:
            epoch = shard.claim(shard.observe().epoch, "test", None)
        assert epoch is not None
        return cls(PostgresStore(database, epoch, folder), folder, database)

    def start(self) -> Shelf:
        self.store.start(self._soon.put, self.told.append, self.told.append, self.stalls.append)
        return self

    def commit(self, **columns: object) -> object:
        """Have this kept: columns of a `Commit`. Returns what the store says of it."""
        return self.given(self.new_commit(**columns))

    def given(self, commit: Commit) -> object:
        """Have a commit kept. Returns what the store says of it."""
        self.store.append(commit)
        heard = len(self.told)
        while len(self.told) == heard:
            self.hear()
        return self.told[-1]

    def new_commit(self, **columns: object) -> Commit:
        self._commits += 1
        made = Commit(self._commits)
        for name, value in columns.items():
            setattr(made, name, value)
        return made

    def hear(self) -> None:
        """The next thing that the store has to say."""
        self._soon.get(timeout=PATIENCE_S)()

    def hear_all(self) -> int:
        """Take in all that the store has said by now. Return how often it has told of commits."""
        while not self._soon.empty():
            self.hear()
        return len(self.told)

    def read(self, job: Callable[[Reader], T]) -> T | Exception:
        """What a job for the reading thread comes to."""
        found: list[T | Exception] = []
        self.store.read_soon(job, found.append)
        while not found:
            self.hear()
        return found[0]

    def found(self) -> Found:
        """Everything there is; before the start only."""
        chunks = {kept.first: (kept.entries, kept.octets, kept.settled) for kept in self.store.chunks()}
        return Found(list(self.store.objects()), chunks, dict(self.store.marks()))

    # The end, and the next start.

    def closed(self, **last: object) -> Shelf:
        """Closed properly, and opened again."""
        self.store.close(self.new_commit(**last))
        return self._again()

    def given_up(self) -> Shelf:
        self.store.close(None)
        return self._again()

    def killed(self) -> Shelf:
        """Opened again as the system has the files now, which nobody has closed."""
        if self.folder is None:
            return self._again()
        if self.database is not None:
            return self.given_up()
        copy = self.folder.with_name(f"{self.folder.name}+")
        self.kill(copy)
        return Shelf.of(copy, self.redo_octets)

    def kill(self, copy: Path) -> None:
        """Have the files in a folder as a kill would leave them."""
        assert self.folder is not None
        copy.mkdir()
        for file in files(self.folder):
            shutil.copyfile(file, copy / file.name)
        while (self.folder / STREAMS).exists():
            with suppress(shutil.Error):  # a file went meanwhile: its commit was told before
                shutil.copytree(self.folder / STREAMS, copy / STREAMS)
                break
            shutil.rmtree(copy / STREAMS)
        self.store.close(None)

    def _again(self) -> Shelf:
        if isinstance(self.store, MemoryStore):
            return Shelf(self.store.reopened())
        assert self.folder is not None
        if self.database is not None:
            return Shelf.of_database(self.database, self.folder)
        return Shelf.of(self.folder, self.redo_octets)


def files(folder: Path) -> list[Path]:
    """The databases of a folder, and their logs."""
    return sorted(file for file in folder.glob("*.db*") if not file.name.endswith("-shm"))


def quick_folder() -> str:
    """A new folder for a test that opens hundreds of stores: in memory, if the system offers that."""
    memory = Path("/dev/shm")
    return tempfile.mkdtemp(prefix="leveret-", dir=memory if os.access(memory, os.W_OK) else None)
