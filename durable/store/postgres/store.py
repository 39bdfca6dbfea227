"""The store in PostgreSQL: a thread that writes to the database, and a local copy that serves all reads.

append ──> PostgresWriter (writer.py) ──> PostgreSQL and Scratch      read_soon ──> Scratch (scratch.py) ──> PostgreSQL
objects, chunks, marks, spans <── Source (source.py), before the start; they go into the local copy on the way
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from threading import Event, Thread
from typing import ClassVar, Final, TypeVar

import attrs

from leveret.durable.store.contract import (
    Commit,
    FencedError,
    Reader,
    Span,
    Stats,
    Store,
    StoredChunk,
    StoreError,
)
from leveret.durable.store.postgres import schema
from leveret.durable.store.postgres.horizon import HorizonWatch
from leveret.durable.store.postgres.parameters import WritingRight
from leveret.durable.store.postgres.scratch import Scratch
from leveret.durable.store.postgres.session import (
    APPLICATION,
    Database,
    Session,
    UnreachableError,
    owner_session,
)
from leveret.durable.store.postgres.source import Source
from leveret.durable.store.postgres.writer import TAKEN, PostgresWriter
from leveret.observability.metric import Metric

T = TypeVar("T")

BEHIND_OCTETS: Final = 8 << 20


class PostgresStore(Store):
    """One shard in one epoch, which has been claimed (shard.py)."""

    behind_octets: ClassVar[int] = BEHIND_OCTETS
    commits_max: ClassVar[int] = 2  # one is encoded while the database has the other

    def __init__(
        self,
        database: Database,
        epoch: int,
        folder: Path,
        require_replicated: bool = True,
        shard: str = schema.SHARD,
        ends_aside: bool = False,
    ) -> None:
        """Read the shard, except for messages. `folder` is for the local copy, and is emptied.

        `ends_aside`: a close without a last commit does not wait for what waits for the database (`wait_until_ended`).
        Raises UnreachableError, BadDatabase, BadFolder, and FencedError if the epoch is over already.
        """
        self.damage: list[str] = []
        self._database = database
        self._shard = shard
        self._closing = Event()
        self._started = False
        self._ends_aside = ends_aside
        self._ending: Thread | None = None
        self._has_chunks = False  # the local copy has those that were there at the start
        session = owner_session(database, shard, epoch)
        try:
            right = self._begun(session, epoch)
            self._loading = self._source("start")
            self._scratch = Scratch(folder, self._source)
        except BaseException:
            session.close()
            raise
        self._writer = PostgresWriter(
            database, right, self._scratch, session, require_replicated, self._closing
        )
        self._horizon = HorizonWatch(database, f"{APPLICATION}:horizon", self._closing)
        try:
            self._load()
        except BaseException:
            self._let_go()
            raise

    def _begun(self, session: Session, epoch: int) -> WritingRight:
        """Return the right to write that the claim of an epoch has given. Raises FencedError if it is over."""
        schema.check(session)
        text = "select claim, clean from {s}.shard where id = %s and epoch = %s"
        row = session.row(text, self._shard, epoch)
        if row is None:
            raise FencedError(TAKEN)
        self.was_clean = bool(row[1])
        session.done("delete from {s}.commits where shard = %s and epoch < %s", self._shard, epoch)
        return WritingRight(self._shard, epoch, str(row[0]))

    def _source(self, use: str) -> Source:
        return Source(self._database, self._shard, f"{APPLICATION}:{use}", self._closing)

    def _load(self) -> None:
        source, scratch = self._loading, self._scratch
        self._objects, self._marks = source.objects(), source.marks()
        self._spans, self._producers = source.spans(), source.producers()
        scratch.take_objects(self._objects)
        scratch.take_marks(self._marks)
        scratch.take_streams(self._spans, self._producers)

    # Recovery; before `start` only.

    def objects(self) -> Iterator[tuple[str, str]]:
        return iter(self._objects.items())

    def chunks(self) -> Iterator[StoredChunk]:
        has_chunks, self._has_chunks = self._has_chunks, True
        for rows in self._loading.chunks():
            if not has_chunks:
                self._scratch.take_rows(rows)
            for row in rows:
                yield StoredChunk(row.first, row.entries, row.octets, row.bits)

    def marks(self) -> Iterator[tuple[int, int]]:
        return iter(self._marks)

    def spans(self) -> Iterator[Span]:
        return iter(self._scratch.known_spans() if self._started else self._spans)

    def producers(self) -> Iterator[tuple[int, str, int]]:
        return iter(self._producers)

    # Running.

    def start(
        self,
        soon: Callable[[Callable[[], None]], None],
        durable: Callable[[int], None],
        failed: Callable[[Exception], None],
        stalled: Callable[[str | None], None] = lambda cause: None,
    ) -> None:
        if not self._has_chunks:
            deque(self.chunks(), 0)
        self._loading.close()
        self._objects, self._marks, self._spans, self._producers = {}, [], [], []
        self._scratch.begin(soon)
        self._writer.start(soon, durable, failed, stalled)
        self._horizon.start()
        self._started = True

    @property
    def room(self) -> int:
        return self._writer.reserve.room

    @property
    def is_short(self) -> bool:
        return self._writer.reserve.is_short

    @property
    def has_lost(self) -> bool:
        return self._writer.recent.missing > 0

    def append(self, commit: Commit, at_once: bool = False) -> bool:
        self._writer.put(commit)
        return False

    def reader(self) -> AbstractContextManager[Reader]:
        return self._scratch.reader()

    def lacks(self, numbers: Sequence[int]) -> bool:
        return self._scratch.lacks(numbers)

    def brings(self, numbers: Sequence[int]) -> bool:
        return self._scratch.brings(numbers)

    def read_soon(self, job: Callable[[Reader], T], then: Callable[[T | Exception], None]) -> None:
        self._scratch.read_soon(job, then)

    # Maintenance.

    @property
    def renewed_at(self) -> float:
        """Return when the last commit or beat that the database has taken was sent, in seconds of `boottime`."""
        return self._writer.renewed_at

    @property
    def in_doubt(self) -> int:
        """Return how many answers about commits were not clear, or did not come."""
        return self._writer.in_doubt

    def stats(self) -> Stats:
        return attrs.evolve(self._scratch.stats(), commits=self._writer.commits)

    def metrics(self) -> Sequence[Metric]:
        return [*self._horizon.horizon.metrics(), *self._writer.recent.metrics()]

    def backup(self, folder: Path) -> None:
        from leveret.durable.store.postgres.copying import to_folder  # a node that only runs need not load it

        try:
            to_folder(self._database, folder, shard=self._shard)
        except (UnreachableError, StoreError) as error:
            raise OSError(str(error)) from None

    def close(self, last: Commit | None) -> None:
        assert self._started or not last, "a store takes commits once it is started"
        if last is None and self._started and self._ends_aside:
            self._ending = Thread(target=self._end, args=(None,), name="leveret-ending", daemon=True)
            self._ending.start()
        else:
            self._end(last)

    def wait_until_ended(self) -> None:
        """Wait until everything is closed after `close`, so that the folder can be used again."""
        if self._ending is not None:
            self._ending.join()

    def _end(self, last: Commit | None) -> None:
        """Write the last commit, if there is one, and close everything. Raises StoreError."""
        try:
            if self._started:
                self._writer.end(last)
        finally:
            self._let_go()

    def _let_go(self) -> None:
        self._closing.set()
        self._loading.close()
        self._writer.let_go()
        self._scratch.let_go()
