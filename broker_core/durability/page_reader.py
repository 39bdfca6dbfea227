"""Read pages back from the store: the entries of chunks become rows with messages.

Damaged entries are reported, left out, and left in the store: a message with a wrong byte is never returned.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from broker_core.store import chunk
from broker_core.store.contract import DamagedError, Page, Reader

if TYPE_CHECKING:
    from broker_core.message import Encoding, Message


# Number, position in the queue, expiry in ms since 1970 (0: never), arrival in ms since 1970, message.
Row: TypeAlias = "tuple[int, int, int, int, Message]"


class FoundPage:
    """The rows of a page that could be read, and the damage found."""

    __slots__ = ("damage", "rows")

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.damage: list[str] = []  # why the others could not be read


def read_page(reader: Reader, page: Page, encoding_of: Callable[[str], Encoding | None]) -> FoundPage:
    """Read all rows of a page that are not damaged, in order. Raises StoreError."""
    found = FoundPage()
    at, numbers = 0, page.numbers
    while at < len(numbers):
        try:
            first, entries = reader.find(numbers[at])
            columns = chunk.read(entries)
        except DamagedError as error:
            found.damage.append(str(error))
            at += 1
            continue
        last = columns.numbers[-1]
        end = at + 1
        while end < len(numbers) and numbers[end] <= last:
            end += 1
        _read_chunk(reader, first, columns, numbers[at:end], encoding_of, found)
        at = end
    return found


def _read_chunk(
    reader: Reader,
    first: int,
    columns: chunk.Columns,
    numbers: Sequence[int],
    encoding_of: Callable[[str], Encoding | None],
    found: FoundPage,
) -> None:
    places = chunk.places(columns, numbers)
    if len(places) < len(numbers):
        found.damage.append(f"chunk {first} has {len(places)} of {len(numbers)} entries")
    if not places:
        return
    records = [columns.records[place] for place in places]
    begin, end = columns.begin(min(records)), columns.ends[max(records)]
    try:
        octets = reader.messages(first, begin, end - begin)
    except DamagedError as error:
        found.damage.append(str(error))
        return
    ends, crcs, positions, expiries = columns.ends, columns.crcs, columns.positions, columns.expiries
    for place, record in zip(places, records, strict=True):
        raw = octets[columns.begin(record) - begin : ends[record] - begin]
        try:
            message = chunk.message_of(raw, crcs[record], encoding_of)
        except DamagedError as error:
            found.damage.append(f"chunk {first}: {error}")
            continue
        expiry = 0 if expiries is None else expiries[place]
        arrival = columns.arrival(place)
        found.rows.append((columns.numbers[place], positions[place], expiry, arrival, message))


def whole(reader: Reader, number: int) -> tuple[bytes, bytes]:
    """Return the encoded entries and messages of the chunk that has an entry. Raises DamagedError, StoreError."""
    first, entries = reader.find(number)
    ends = chunk.read(entries).ends
    return entries, reader.messages(first, 0, ends[-1])
