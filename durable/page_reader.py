"""Read pages back from the store: the entries of chunks become rows with messages.

What cannot be read is read once more, at a new moment, and in a cluster from the database itself. What is damaged then,
too, is reported, left out, and left in the store: a message with a wrong byte is never returned.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, Final, TypeAlias

from leveret.durability import Page
from leveret.durable.store import chunk
from leveret.durable.store.contract import DamagedError, MissingProtocolError, Reader

if TYPE_CHECKING:
    from leveret.message import Encoding, Message


# Number, position in the queue, expiry in ms since 1970 (0: never), arrival in ms since 1970, message.
Row: TypeAlias = "tuple[int, int, int, int, Message]"
NUMBER: Final = itemgetter(0)


class FoundPage:
    """The rows of a page that could be read, the damage found, and the protocols that are missing."""

    __slots__ = ("_encoding_of", "damage", "protocols", "rows")

    def __init__(self, encoding_of: Callable[[str], Encoding | None]) -> None:
        self.rows: list[Row] = []
        self.damage: list[str] = []  # why the others could not be read
        self.protocols: set[str] = set()  # those that messages are of, and that are not installed
        self._encoding_of = encoding_of

    def take(
        self, first: int, columns: chunk.Columns, places: Sequence[int], octets: bytes, begin: int
    ) -> None:
        """Take some entries of a chunk; `octets` are those of its messages from `begin` on."""
        ends, crcs, positions, expiries = columns.ends, columns.crcs, columns.positions, columns.expiries
        for place in places:
            record = columns.records[place]
            raw = octets[columns.begin(record) - begin : ends[record] - begin]
            try:
                message = chunk.message_of(raw, crcs[record], self._encoding_of)
            except MissingProtocolError as error:
                self.protocols.add(error.protocol)
                continue
            except DamagedError as error:
                self.damage.append(f"chunk {first}: {error}")
                continue
            expiry = 0 if expiries is None else expiries[place]
            arrival = columns.arrival(place)
            self.rows.append((columns.numbers[place], positions[place], expiry, arrival, message))


def read_page(reader: Reader, page: Page, encoding_of: Callable[[str], Encoding | None]) -> FoundPage:
    """Read all rows of a page that are not damaged, in order. Raises StoreError."""
    found = FoundPage(encoding_of)
    at, numbers = 0, page.numbers
    while at < len(numbers):
        try:
            first, entries = reader.find(numbers[at])
            columns = chunk.read(entries)
        except DamagedError as error:
            found.damage.append(str(error))
            at += 1
            continue
        end = _end_of(columns, numbers, at)
        _read_chunk(reader, first, columns, numbers[at:end], found)
        at = end
    return found


def _end_of(columns: chunk.Columns, numbers: Sequence[int], at: int) -> int:
    """Return the place of the first number after this one that is behind a chunk's last entry."""
    return max(bisect_right(numbers, columns.numbers[-1], at), at + 1)


def _read_chunk(
    reader: Reader, first: int, columns: chunk.Columns, numbers: Sequence[int], page: FoundPage
) -> None:
    places = chunk.places(columns, numbers)
    if places:
        records = [columns.records[place] for place in places]
        begin, end = columns.begin(min(records)), columns.ends[max(records)]
        try:
            octets = reader.messages(first, begin, end - begin)
        except DamagedError as error:
            page.damage.append(str(error))
            return
        page.take(first, columns, places, octets, begin)
    if len(places) < len(numbers):
        page.damage.append(f"chunk {first} has {len(places)} of {len(numbers)} entries")


def read_again(reader: Reader, missing: Sequence[int], page: FoundPage) -> FoundPage:
    """Add the rows that a page lacks, by their numbers, each chunk read once more and whole. Raises StoreError."""
    page.damage.clear()
    at = 0
    while at < len(missing):
        try:
            made = reader.again(missing[at])
            columns = chunk.read(made.entries)
        except DamagedError as error:
            page.damage.append(str(error))
            at = _end_of_damage(reader, missing, at)
            continue
        end = _end_of(columns, missing, at)
        places = chunk.places(columns, missing[at:end])
        if len(places) < end - at:
            page.damage.append(f"chunk {made.first} has {len(places)} of {end - at} entries")
        page.take(made.first, columns, places, made.messages, 0)
        at = end
    page.rows.sort(key=NUMBER)
    return page


def _end_of_damage(reader: Reader, numbers: Sequence[int], at: int) -> int:
    """Return the place of the first number after this one that is not in the same damaged chunk, as far as is known."""
    try:
        return _end_of(chunk.read(reader.find(numbers[at])[1]), numbers, at)
    except DamagedError:
        return at + 1


def whole(reader: Reader, number: int) -> tuple[bytes, bytes]:
    """Return the encoded entries and messages of the chunk that has an entry. Raises DamagedError, StoreError."""
    try:
        first, entries = reader.find(number)
        return entries, reader.messages(first, 0, chunk.read(entries).ends[-1])
    except DamagedError:
        made = reader.again(number)
        return made.entries, made.messages
