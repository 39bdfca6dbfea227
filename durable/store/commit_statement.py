"""Write a commit with one SQL statement: rows for a view without a table, and triggers that apply them.

A thread releases Python's lock with each statement, and with a busy loop waits 0.1 ms to get it back, three times: a
commit of ten statements would take 3 ms. Most commits are one row, and so a transaction of its own.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Final, TypeAlias

from leveret.durable.store.contract import Chunk, Commit
from leveret.durable.store.salvage import (
    bits_checksum,
    chunk_checksum,
    mark_checksum,
    producer_checksum,
    segment_checksum,
)
from leveret.durable.store.segments import SegmentChange

FENCED: Final = "another node has opened the data folder, in spite of its lock"

# A view without a table for a commit, and one for each part of it that most commits lack, to which the trigger passes
# that on: a trigger with all parts takes 20 us more, whatever is in them. The lock of the folder keeps other nodes out,
# unless its file was deleted or the file system does not support locks.
VIEWS: Final = (
    """
CREATE TEMP VIEW IF NOT EXISTS work AS SELECT
  0 AS epoch, 0 AS first, 0 AS checksum, x'' AS entries, x'' AS messages,
  '' AS dropped, '' AS replaced, '' AS settled, x'' AS bits, '' AS marks,
  '' AS cut, '' AS segments, '' AS forgotten, '' AS producers, x'' AS names
""",
    "CREATE TEMP VIEW IF NOT EXISTS deletion AS SELECT '' AS dropped, '' AS replaced",
    "CREATE TEMP VIEW IF NOT EXISTS change AS SELECT '' AS settled, x'' AS bits, '' AS marks",
    "CREATE TEMP VIEW IF NOT EXISTS streaming AS SELECT "
    "'' AS cut, '' AS segments, '' AS forgotten, '' AS producers, x'' AS names",
    f"""
CREATE TEMP TRIGGER IF NOT EXISTS work_is_done INSTEAD OF INSERT ON work BEGIN
  SELECT raise(ABORT, '{FENCED}') WHERE new.epoch IS NOT (SELECT epoch FROM state WHERE id = 1);
  INSERT INTO deletion SELECT new.dropped, new.replaced WHERE new.dropped IS NOT NULL OR new.replaced IS NOT NULL;
  INSERT INTO chunks SELECT new.first, new.checksum, new.entries, new.messages WHERE new.first IS NOT NULL;
  INSERT INTO change SELECT new.settled, new.bits, new.marks WHERE new.settled IS NOT NULL OR new.marks IS NOT NULL;
  INSERT INTO streaming SELECT new.cut, new.segments, new.forgotten, new.producers, new.names
    WHERE new.segments IS NOT NULL;
END
""",
    # With the marks of the deleted entries, which are those up to the next chunk.
    """
CREATE TEMP TRIGGER IF NOT EXISTS deletion_is_done INSTEAD OF INSERT ON deletion BEGIN
  DELETE FROM marks WHERE entry IN (
    SELECT marks.entry FROM json_each(new.dropped) AS each CROSS JOIN marks
    WHERE marks.entry >= each.value AND marks.entry <
      coalesce((SELECT min(chunks.first) FROM chunks WHERE chunks.first > each.value), 0x7fffffffffffffff));
  DELETE FROM chunks WHERE first IN (SELECT value FROM json_each(new.dropped));
  DELETE FROM settled WHERE chunk IN (SELECT value FROM json_each(new.dropped));
  DELETE FROM chunks WHERE first IN (SELECT value FROM json_each(new.replaced));
  DELETE FROM settled WHERE chunk IN (SELECT value FROM json_each(new.replaced));
END
""",
    """
CREATE TEMP TRIGGER IF NOT EXISTS change_is_done INSTEAD OF INSERT ON change BEGIN
  INSERT OR REPLACE INTO settled SELECT
    json_extract(value, '$[0]'), json_extract(value, '$[1]'),
    substr(new.bits, json_extract(value, '$[2]'), json_extract(value, '$[3]')) FROM json_each(new.settled);
  INSERT OR REPLACE INTO marks SELECT
    json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]') FROM json_each(new.marks);
END
""",
    """
CREATE TEMP TRIGGER IF NOT EXISTS streaming_is_done INSTEAD OF INSERT ON streaming BEGIN
  DELETE FROM segments WHERE place IN (SELECT value FROM json_each(new.cut));
  INSERT OR REPLACE INTO segments SELECT
    json_extract(value, '$[0]'), json_extract(value, '$[1]'), json_extract(value, '$[2]'),
    json_extract(value, '$[3]'), json_extract(value, '$[4]'), json_extract(value, '$[5]'),
    json_extract(value, '$[6]'), json_extract(value, '$[7]'), json_extract(value, '$[8]')
    FROM json_each(new.segments);
  DELETE FROM producers WHERE place IN (SELECT value FROM json_each(new.forgotten));
  INSERT OR REPLACE INTO producers SELECT
    json_extract(value, '$[0]'), json_extract(value, '$[1]'),
    substr(new.names, json_extract(value, '$[2]'), json_extract(value, '$[3]')),
    json_extract(value, '$[4]'), json_extract(value, '$[5]') FROM json_each(new.producers);
END
""",
)
DO: Final = f"INSERT INTO work VALUES ({', '.join('?' * 15)})"

Row: TypeAlias = tuple[int | str | bytes | None, ...]  # a value for each column of the view
NO_STREAMS: Final[Row] = (None,) * 5


def rows_of(
    commit: Commit,
    made: list[Chunk],
    epoch: int,
    aside: Iterable[int] = (),
    change: SegmentChange | None = None,
) -> list[Row]:
    """Return the rows of a commit, in this order: a row for each of its chunks, at least one.

    `made` are its new chunks, packed; `aside` are chunks that cannot be deleted; `change` is of segments and producers.
    """
    kept = set(aside)
    parts: list[tuple[list[int], Chunk | None]] = [*commit.replaced, *(([], each) for each in made)]
    rows: list[Row] = []
    for number, (gone, new) in enumerate(parts or [([], None)], 1):
        is_first, is_last = number == 1, number >= len(parts)
        dropped = as_list(commit.dropped, kept) if is_first else None
        settled, bits = as_settled(commit.settled) if is_last else (None, None)
        marks = as_marks(commit.marks) if is_last else None
        octets = (None, None, None, None) if new is None else _columns(new)
        streams = NO_STREAMS if change is None or not is_last else _of_streams(change)
        rows.append((epoch, *octets, dropped, as_list(gone, kept), settled, bits, marks, *streams))
    return rows


def _columns(chunk: Chunk) -> tuple[int, int, bytes, bytes]:
    return chunk.first, chunk_checksum(chunk.entries), chunk.entries, chunk.messages


def as_list(firsts: list[int], kept: set[int]) -> str | None:
    """Return these chunks as JSON, without those kept; None if there are none, as for the other parts of a row."""
    if not firsts:
        return None
    return json.dumps([first for first in firsts if first not in kept] if kept else firsts)


def as_settled(settled: dict[int, bytes]) -> tuple[str | None, bytes | None]:
    """Return chunk, checksum and the place of the bits of each, as JSON; and the bits of all."""
    if not settled:
        return None, None
    rows: list[tuple[int, int, int, int]] = []
    at = 1
    for first, bits in settled.items():
        rows.append((first, bits_checksum(first, bits), at, len(bits)))
        at += len(bits)
    return json.dumps(rows), b"".join(settled.values())


def as_marks(marks: dict[int, int]) -> str | None:
    if not marks:
        return None
    return json.dumps([(entry, tries, mark_checksum(entry, tries)) for entry, tries in marks.items()])


def _of_streams(change: SegmentChange) -> Row:
    """Return deleted segments, segments, deleted producers, producers with the places of their names, and the names."""
    segments = []
    for place, span in change.spans.values():
        columns = (
            place,
            span.stream,
            span.first,
            span.next,
            span.octets,
            span.bodies,
            span.begun,
            span.last,
        )
        segments.append((*columns, segment_checksum(*columns)))
    producers, names = [], []
    at = 1
    for (stream, producer), (place, last) in change.producers.items():
        name = producer.encode("utf-8", "surrogatepass")
        checksum = producer_checksum(place, stream, name, last)
        producers.append((place, stream, at, len(name), last, checksum))
        names.append(name)
        at += len(name)
    cut, forgotten = list(change.cut.values()), list(change.forgotten.values())
    return *map(json.dumps, (cut, segments, forgotten, producers)), b"".join(names)
