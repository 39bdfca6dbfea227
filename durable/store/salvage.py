"""Read messages.db, however damaged it is: rows that can be read, and gaps where some cannot.

SQLite stops at the first page that it cannot decode. A scan here continues after it: it searches for the next key that
can be reached. Every row carries a checksum of all that is in it, so a wrong byte is never taken for a right one; a row
that has vanished without a trace is noticed by the tally, which was taken when the store was closed.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from struct import Struct
from typing import Final, TypeAlias
from zlib import crc32

from leveret.durable.store import chunk
from leveret.durable.store.contract import DamagedError, Span, StoredChunk
from leveret.durable.store.database import is_damage

Cell: TypeAlias = int | bytes | str | float | None
Row: TypeAlias = tuple[Cell, ...]
Say: TypeAlias = Callable[[str], None]

KEY: Final = Struct("<Q")
MARK: Final = Struct("<QQ")
SEGMENT: Final = Struct("<8Q")
PRODUCER: Final = Struct("<QQQ")
QUICK_OCTETS: Final = 64 << 20  # a database up to this size is checked at each start: that takes 30 ms


def chunk_checksum(entries: bytes) -> int:
    """Return the checksum at the end of a chunk's entries, which covers all of them."""
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
    """Return the number of rows in each table, and the sums of their checksums. Raises sqlite3.Error."""
    sums: list[object] = []
    for table in ("chunks", "settled", "marks", "segments", "producers"):
        sums += messages.execute(f"select count(*), sum(checksum) from {table}").fetchone()
    return repr(sums).encode()


def tally_if_sound(messages: sqlite3.Connection) -> bytes:
    """Like `tally`; empty if damage keeps something from being read. Raises sqlite3.Error for other errors."""
    try:
        return tally(messages)
    except sqlite3.Error as error:
        if not is_damage(error):
            raise
        return b""


def troubles(database: sqlite3.Connection, pragma: str = "quick_check") -> list[str]:
    """Return SQLite's findings about the structure of a database, in its words."""
    try:
        found = [str(text, "utf-8", "replace") for (text,) in database.execute(f"pragma {pragma}(20)")]
    except sqlite3.Error as error:
        return [str(error)]
    return (
        [] if found == ["ok"] else [line.removeprefix("*** ") for text in found for line in text.splitlines()]
    )


def octets_of(database: sqlite3.Connection) -> int:
    """Return the size of a database in bytes, without its log."""
    (pages,), (size,) = (
        database.execute(f"pragma {name}").fetchone() for name in ("page_count", "page_size")
    )
    return int(pages) * int(size)


# Rows of one table.


def rows(database: sqlite3.Connection, table: str, key: str, columns: str, say: Say) -> Iterator[Row]:
    """Yield rows in the order of their keys. An unreadable row comes as its key alone; gaps are reported to `say`.

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
    """Return one row, if it can be read: iterating fails early, as Python steps to the next row first."""
    try:
        row: Row | None = database.execute(
            f"select {key}, {columns} from {table} where {key} = ?", (at,)
        ).fetchone()
    except sqlite3.Error:
        row = None
    return row or (at,)


def _key_from(database: sqlite3.Connection, table: str, key: str, least: int) -> int | None:
    """Return the next key, if at least the key can be read."""
    try:
        (found,) = database.execute(f"select min({key}) from {table} where {key} >= ?", (least,)).fetchone()
    except sqlite3.Error:
        return None
    return found if isinstance(found, int) and found >= least else None


def _reachable(database: sqlite3.Connection, table: str, key: str, lost: int) -> int | None:
    """Return a key after a gap that begins at `lost`: the nearest one, if there is a single gap."""

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


# Decoded rows.


def kept(database: sqlite3.Connection, aside: set[int], say: Say) -> Iterator[StoredChunk]:
    """Yield every chunk with the bits of its settled entries. Raises sqlite3.Error if it is not about damage."""
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
    """Return what is wrong with a chunk's entries; empty if nothing is."""
    if not isinstance(entries, bytes):
        return "it cannot be read"
    try:
        found = chunk.read(entries).first
    except DamagedError as error:
        return str(error)
    return "" if found == first else f"it says that it is chunk {found}"


def bits(database: sqlite3.Connection, say: Say) -> tuple[dict[int, bytes | None], bool]:
    """Return chunk to the bits of its settled entries, None if damaged; and whether these are all."""
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
    """Yield chunks that could not be deleted because they are damaged."""
    for first, *_ in rows(database, "aside", "first", "first", say):
        assert isinstance(first, int)
        yield first


def marks(database: sqlite3.Connection, say: Say) -> Iterator[tuple[int, int]]:
    """Yield entries, and the failed deliveries of each."""
    for entry, *rest in rows(database, "marks", "entry", "tries, checksum", say):
        assert isinstance(entry, int)
        if len(rest) == 2 and isinstance(rest[0], int) and rest[0] >= 0:
            if mark_checksum(entry, rest[0]) == rest[1]:
                yield entry, rest[0]
                continue
        say(f"it is not known how often entry {entry} was delivered")


def segments(database: sqlite3.Connection, say: Say) -> Iterator[tuple[int, Span | None]]:
    """Yield places of rows, and the segments of streams that they describe; None if the row is damaged."""
    columns = "stream, first, next, octets, bodies, begun, last, checksum"
    for place, *rest in rows(database, "segments", "place", columns, say):
        assert isinstance(place, int)
        numbers = [each for each in rest if isinstance(each, int) and each >= 0]
        if len(numbers) == 8 and segment_checksum(place, *numbers[:7]) == numbers[7]:
            yield place, Span(*numbers[:7])
        else:
            say(f"segment {place}{_of_stream(rest)}: its row is damaged")
            yield place, None


def producers(database: sqlite3.Connection, say: Say) -> Iterator[tuple[int, int, str, int]]:
    """Yield places of rows, streams, producers, and the last sequence numbers that were accepted."""
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
    """Return the stream of a row for a message, if it can be read."""
    return f" of stream {rest[0]}" if rest and isinstance(rest[0], int) else ""


def objects(meta: sqlite3.Connection, say: Say) -> Iterator[tuple[str, str]]:
    """Yield keys and values of meta.db."""
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
