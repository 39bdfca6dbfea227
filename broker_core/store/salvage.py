"""What is in messages.db, however damaged it is: rows that can be read, and gaps where some cannot.

SQLite stops at the first page that it cannot make sense of. Here a scan goes on behind it: it feels for the next key
that can be reached. Every row carries a checksum of all that is in it, so a wrong octet is never taken for a right one;
a row that is gone without a trace is missed in the tally, taken when the store was closed.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from struct import Struct
from typing import Final, TypeAlias
from zlib import crc32

from broker_core.store import chunk
from broker_core.store.contract import DamagedError, Span, StoredChunk
from broker_core.store.database import is_damage

Cell: TypeAlias = int | bytes | str | float | None
Row: TypeAlias = tuple[Cell, ...]
Say: TypeAlias = Callable[[str], None]

KEY: Final = Struct("<Q")
MARK: Final = Struct("<QQ")
SEGMENT: Final = Struct("<8Q")
PRODUCER: Final = Struct("<QQQ")
QUICK_OCTETS: Final = 64 << 20  # a database up to this size is looked through at each start: that takes 30 ms


def chunk_checksum(entries: bytes) -> int:
    """The one at the end of them, which is of them all."""
    return int.from_bytes(entries[-4:], "little")


def bits_checksum(first: int, bits: bytes) -> int:
    return crc32(bits, crc32(KEY.pack(first)))


def mark_checksum(entry: int, tries: int) -> int:
    return crc32(MARK.pack(entry, tries))


def segment_checksum(*columns: int) -> int:
    return crc32(SEGMENT.pack(*columns))


def producer_checksum(place: int, stream: int, producer: bytes, sequence: int) -> int:
    return crc32(producer, crc32(PRODUCER.pack(place, stream, sequence)))


def object_checksum(key: bytes, value: bytes) -> int:
    return crc32(value, crc32(key, len(key)))


def tally(messages: sqlite3.Connection) -> bytes:
    """How many rows of each kind there are, and the sums of their checksums. Raises sqlite3.Error."""
    sums: list[object] = []
    for table in ("chunks", "settled", "marks", "segments", "producers"):
        sums += messages.execute(f"select count(*), sum(checksum) from {table}").fetchone()
    return repr(sums).encode()


def tally_if_sound(messages: sqlite3.Connection) -> bytes:
    """As `tally`; empty if not everything can be read. Raises sqlite3.Error if it is not about damage."""
    try:
        return tally(messages)
    except sqlite3.Error as error:
        if not is_damage(error):
            raise
        return b""


def troubles(database: sqlite3.Connection, pragma: str = "quick_check") -> list[str]:
    """What SQLite finds wrong with the structure of a database, in its words."""
    try:
        found = [str(text, "utf-8", "replace") for (text,) in database.execute(f"pragma {pragma}(20)")]
    except sqlite3.Error as error:
        return [str(error)]
    return (
        [] if found == ["ok"] else [line.removeprefix("*** ") for text in found for line in text.splitlines()]
    )


def octets_of(database: sqlite3.Connection) -> int:
    """The size of a database, without its log."""
    (pages,), (size,) = (
        database.execute(f"pragma {name}").fetchone() for name in ("page_count", "page_size")
    )
    return int(pages) * int(size)


# Rows of one table.


def rows(database: sqlite3.Connection, table: str, key: str, columns: str, say: Say) -> Iterator[Row]:
    """Rows in the order of their keys. A row that cannot be read comes as its key alone; gaps are said.

    Raises sqlite3.Error if it is not about damage.
    """
    last = -1
    while True:
        try:
            for row in database.execute(
                f"select {key}, {columns} from {table} where {key} > ? order by {key}", (last,)
            ):
                if not isinstance(row[0], int) or row[0] <= last:
                    say(f"{table}: rows behind {last} are out of order")
                    return
                last = row[0]
                yield row
            return
        except sqlite3.Error as error:
            if not is_damage(error):
                raise
        at = _key_from(database, table, key, last + 1)
        if at is not None:
            last = at
            yield _row(database, table, key, columns, at)
            continue
        next_at = _reachable(database, table, key, last + 1)
        until = "the end" if next_at is None else f"{next_at - 1}"
        say(f"{table}: what there is from {last + 1} to {until} cannot be read")
        if next_at is None:
            return
        last = next_at - 1


def _row(database: sqlite3.Connection, table: str, key: str, columns: str, at: int) -> Row:
    """One row, if it can be read: Python steps to the next one first, and forgets this one if that is damaged."""
    try:
        row: Row | None = database.execute(
            f"select {key}, {columns} from {table} where {key} = ?", (at,)
        ).fetchone()
    except sqlite3.Error:
        row = None
    return row or (at,)


def _key_from(database: sqlite3.Connection, table: str, key: str, least: int) -> int | None:
    """The next key, if that much of its row can be read."""
    try:
        (found,) = database.execute(f"select min({key}) from {table} where {key} >= ?", (least,)).fetchone()
    except sqlite3.Error:
        return None
    return found if isinstance(found, int) and found >= least else None


def _reachable(database: sqlite3.Connection, table: str, key: str, lost: int) -> int | None:
    """A key behind a gap that begins at `lost`: the nearest, if there is one gap only."""

    try:
        (top,) = database.execute(f"select max({key}) from {table}").fetchone()
    except sqlite3.Error:
        return None
    if not isinstance(top, int) or top < lost:
        return None
    step, bad = 1, lost
    while (found := _key_from(database, table, key, good := min(bad + step, top))) is None:
        if good == top:
            return None
        bad, step = good, 2 * step
    while good - bad > 1:
        middle = (good + bad) // 2
        nearer = _key_from(database, table, key, middle)
        if nearer is None:
            bad = middle
        else:
            good, found = middle, nearer
    return found


# What the rows mean.


def kept(database: sqlite3.Connection, aside: set[int], say: Say) -> Iterator[StoredChunk]:
    """Every chunk with the bits of what is settled. Raises sqlite3.Error if it is not about damage."""
    settled, all_known = bits(database, say)
    for row in rows(database, "chunks", "first", "length(messages), entries", say):
        first = row[0]
        assert isinstance(first, int)
        octets, entries = row[1:] if len(row) == 3 else (0, None)
        if first in aside or not isinstance(octets, int):
            octets, entries = 0, None
        wrong = why_wrong(first, entries)
        if wrong:
            say(f"chunk {first}: {wrong}")
            entries = None
        assert entries is None or isinstance(entries, bytes)
        yield StoredChunk(first, entries, octets, settled.get(first, b"" if all_known else None))


def why_wrong(first: int, entries: Cell) -> str:
    """What is wrong with a chunk's entries; empty: nothing."""
    if not isinstance(entries, bytes):
        return "it cannot be read"
    try:
        found = chunk.read(entries).first
    except DamagedError as error:
        return str(error)
    return "" if found == first else f"it says that it is chunk {found}"


def bits(database: sqlite3.Connection, say: Say) -> tuple[dict[int, bytes | None], bool]:
    """Chunk to the bits of its settled entries, None where they are damaged; and whether these are all."""
    found: dict[int, bytes | None] = {}
    gaps: list[str] = []
    for first, *rest in rows(database, "settled", "chunk", "checksum, bits", gaps.append):
        assert isinstance(first, int)
        found[first] = _bits(first, rest)
        if found[first] is None:
            say(f"chunk {first}: it is not known which of its entries are settled")
    for gap in gaps:
        say(gap)
    return found, not gaps


def _bits(first: int, rest: list[Cell]) -> bytes | None:
    if len(rest) == 2 and isinstance(rest[1], bytes) and bits_checksum(first, rest[1]) == rest[0]:
        return rest[1]
    return None


def aside(database: sqlite3.Connection, say: Say) -> Iterator[int]:
    """Chunks that could not be deleted, for they are damaged."""
    for first, *_ in rows(database, "aside", "first", "first", say):
        assert isinstance(first, int)
        yield first


def marks(database: sqlite3.Connection, say: Say) -> Iterator[tuple[int, int]]:
    """Entries, and how often each was tried."""
    for entry, *rest in rows(database, "marks", "entry", "tries, checksum", say):
        assert isinstance(entry, int)
        if len(rest) == 2 and isinstance(rest[0], int) and rest[0] >= 0:
            if mark_checksum(entry, rest[0]) == rest[1]:
                yield entry, rest[0]
                continue
        say(f"it is not known how often entry {entry} was delivered")


def segments(database: sqlite3.Connection, say: Say) -> Iterator[tuple[int, Span | None]]:
    """Places of rows, and the segments of streams that they tell of; None: the row is damaged."""
    columns = "stream, first, next, octets, bodies, begun, last, checksum"
    for place, *rest in rows(database, "segments", "place", columns, say):
        assert isinstance(place, int)
        said = [each for each in rest if isinstance(each, int) and each >= 0]
        if len(said) == 8 and segment_checksum(place, *said[:7]) == said[7]:
            yield place, Span(*said[:7])
        else:
            say(f"segment {place}{_of_stream(rest)}: its row is damaged")
            yield place, None


def producers(database: sqlite3.Connection, say: Say) -> Iterator[tuple[int, int, str, int]]:
    """Places of rows, streams, producers, and the last sequence numbers that were taken."""
    for place, *rest in rows(database, "producers", "place", "stream, producer, sequence, checksum", say):
        assert isinstance(place, int)
        if len(rest) == 4:
            stream, name, last, checksum = rest
            if (
                isinstance(stream, int)
                and isinstance(name, bytes)
                and isinstance(last, int)
                and min(stream, last) >= 0
                and producer_checksum(place, stream, name, last) == checksum
            ):
                yield place, stream, name.decode("utf-8", "surrogatepass"), last
                continue
        say(f"producer {place}{_of_stream(rest)}: its last sequence number is lost")


def _of_stream(rest: list[Cell]) -> str:
    """Whose it is, if that can be read."""
    return f" of stream {rest[0]}" if rest and isinstance(rest[0], int) else ""


def objects(meta: sqlite3.Connection, say: Say) -> Iterator[tuple[str, str]]:
    """Keys and values of meta.db."""
    for place, *rest in rows(meta, "objects", "place", "key, value, checksum", say):
        if len(rest) == 3:
            key, value, checksum = rest
            if (
                isinstance(key, bytes)
                and isinstance(value, bytes)
                and object_checksum(key, value) == checksum
            ):
                yield key.decode(), value.decode()
                continue
        say(f"the object at {place!r} is damaged")
