"""Read a shard's rows from PostgreSQL, however often the connection is lost meanwhile.

A start reads everything but the bodies of messages, which are fetched when they are wanted, or a moment later.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from threading import Event, Lock
from typing import Final, TypeVar

import attrs

from leveret.durable.store.contract import Chunk, NoSpaceError, Span, StoreError
from leveret.durable.store.postgres import schema
from leveret.durable.store.postgres.session import Database, Session, UnreachableError

log: Final = logging.getLogger("leveret.store")

T = TypeVar("T")

AGAIN_S: Final = 0.2  # between attempts to connect
PORTION_CHUNKS: Final = 256  # read at a time
PORTION_OCTETS: Final = 4 << 20  # of blocks read at a time, about

OBJECTS: Final = "select key, value from {s}.objects where shard = %s order by place"
MARKS: Final = "select entry, tries from {s}.marks where shard = %s order by entry"
SPANS: Final = """
select stream, first, next, octets, bodies, begun, last from {s}.segments where shard = %s order by stream, first
"""
PRODUCERS: Final = """
select stream, producer, sequence from {s}.producers where shard = %s order by stream, producer
"""
CHUNKS: Final = """
select c.first, c.octets, c.entries, s.bits from {s}.chunks c
left join {s}.settled s on s.shard = c.shard and s.chunk = c.first
where c.shard = %s and c.first > %s order by c.first limit %s
"""
# With `offset 0` each is looked up by its whole key: a scan of all would read what is dead, too.
BODIES: Final = """
select c.* from (select %s::text shard) s, unnest(%s::bigint[]) asked(first), lateral (
  select first, entries, messages from {s}.chunks where shard = s.shard and first = asked.first offset 0
) c order by c.first
"""
CHUNK_OF: Final = """
select first, entries, messages from {s}.chunks where shard = %s and first <= %s order by first desc limit 1
"""
BLOCKS: Final = """
select at, octets from {s}.blocks where shard = %s and stream = %s and segment = %s and at >= %s and at < %s order by at
"""


@attrs.frozen
class ChunkRow:
    """A chunk without its messages."""

    first: int
    octets: int  # of its messages
    entries: bytes
    bits: bytes


class Source:
    """Reads one shard over a connection of its own, which is opened when it is needed. Any thread, one at a time."""

    def __init__(self, database: Database, shard: str, name: str, closing: Event) -> None:
        """`closing` is set when the store is closed: what waits for the database then raises StoreError."""
        self._database = database
        self._shard = shard
        self._name = name
        self._closing = closing
        self._session: Session | None = None
        self._lock = Lock()

    def objects(self) -> dict[str, str]:
        """Return keys and values, in the order in which the keys were first written. Raises StoreError."""
        return {_bytes(key).decode(): _bytes(value).decode() for key, value in self._rows(OBJECTS)}

    def marks(self) -> list[tuple[int, int]]:
        """Return entries and their marks, in order. Raises StoreError."""
        return [(_int(entry), _int(tries)) for entry, tries in self._rows(MARKS)]

    def spans(self) -> list[Span]:
        """Return the segments of streams, in order. Raises StoreError."""
        return [Span(*map(_int, row)) for row in self._rows(SPANS)]

    def producers(self) -> list[tuple[int, str, int]]:
        """Return streams, producers and the last sequence numbers, in order. Raises StoreError."""
        return [
            (_int(stream), _bytes(name).decode("utf-8", "surrogatepass"), _int(last))
            for stream, name, last in self._rows(PRODUCERS)
        ]

    def chunks(self) -> Iterator[list[ChunkRow]]:
        """Yield all chunks in order, some at a time. Raises StoreError."""
        last = -1
        while rows := self._rows(CHUNKS, last, PORTION_CHUNKS):
            found = [
                ChunkRow(_int(first), _int(octets), _bytes(entries), _bytes(bits or b""))
                for first, octets, entries, bits in rows
            ]
            yield found
            last = found[-1].first

    def bodies(self, firsts: Sequence[int]) -> list[Chunk]:
        """Return some chunks with their messages, without those that are not there any more. Raises StoreError."""
        return [_chunk(row) for row in self._rows(BODIES, list(firsts))]

    def chunk_of(self, number: int) -> Chunk | None:
        """Return the chunk that has an entry, or had it. Raises StoreError, also if the database does not answer."""
        if self._closing.is_set():
            raise StoreError("the store is closed")
        with self._lock:
            try:
                rows = self._opened().rows(CHUNK_OF, self._shard, number)
            except (UnreachableError, NoSpaceError) as error:
                self._drop()
                raise StoreError(str(error)) from None
        return _chunk(rows[0]) if rows else None

    def blocks(self, stream: int, segment: int, octets: int) -> Iterator[tuple[int, bytes]]:
        """Yield the places and bytes of a segment's blocks up to its size in `octets`. Raises StoreError."""
        at = 0
        while at < octets:
            # A row has a block of 64 KiB to a few MiB.
            rows = self._rows(BLOCKS, stream, segment, at, min(at + PORTION_OCTETS, octets))
            if not rows:
                return
            for place, block in rows:
                yield _int(place), _bytes(block)
            at = _int(rows[-1][0]) + len(_bytes(rows[-1][1]))

    def close(self) -> None:
        with self._lock:
            self._drop()

    def _rows(self, text: str, *values: object) -> Sequence[tuple[object, ...]]:
        """Return the rows of a statement about the shard, once the database answers. Raises StoreError."""
        with self._lock:
            told = False
            while True:
                if self._closing.is_set():
                    raise StoreError("the store is closed")
                try:
                    return self._opened().rows(text, self._shard, *values)
                except NoSpaceError as error:
                    why: Exception = error
                except UnreachableError as error:
                    why = error
                self._drop()
                if not told:
                    told = True
                    log.warning("reading waits for the database: %s", why)
                self._closing.wait(AGAIN_S)

    def _opened(self) -> Session:
        if self._session is None:
            self._session = Session(self._database, self._name)
        return self._session

    def _drop(self) -> None:
        if self._session is not None:
            self._session.close()
            self._session = None


class SnapshotSource(Source):
    """Reads one shard as of one moment: a transaction that is open until it is closed. What is lost is lost."""

    def clean(self) -> bool:
        """Return whether the shard was closed properly, and is so now. Raises StoreError."""
        return self._rows("select clean from {s}.shard where id = %s") == [(True,)]

    def octets(self) -> int:
        """Return the size of all messages and blocks in bytes, for progress. Raises StoreError."""
        chunks = self._rows("select coalesce(sum(octets), 0)::bigint from {s}.chunks where shard = %s")
        blocks = self._rows("select coalesce(sum(octets), 0)::bigint from {s}.segments where shard = %s")
        return _int(chunks[0][0]) + _int(blocks[0][0])

    def _rows(self, text: str, *values: object) -> Sequence[tuple[object, ...]]:
        try:
            return self._opened().rows(text, self._shard, *values)
        except (UnreachableError, NoSpaceError) as error:
            raise StoreError(str(error)) from None

    def _opened(self) -> Session:
        if self._session is None:
            session = super()._opened()
            schema.check(session)
            session.connection.execute("begin isolation level repeatable read, read only")
        return super()._opened()


def _chunk(row: Sequence[object]) -> Chunk:
    return Chunk(_int(row[0]), _bytes(row[1]), _bytes(row[2]))


def _int(value: object) -> int:
    assert isinstance(value, int), "the column is a number"
    return value


def _bytes(value: object) -> bytes:
    assert isinstance(value, bytes), "the column is bytea"
    return value
