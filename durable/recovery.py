"""Recovery, at a start, turns a store's chunks into pages of the restored queues. No message is read.

    chunk ── entries that are not settled ──> by owner and priority ──> pages, in order of position ──> owner.restore

Entries without an owner (of queues deleted just before the end, or paged out only) are settled. If some objects could
not be read, those entries may be theirs: then they stay in the store.
"""

from __future__ import annotations

import logging
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate, compress, count
from operator import gt
from typing import TYPE_CHECKING, Final

from leveret.clock import NEVER
from leveret.durability import Holder, Page, WaitingRow
from leveret.durable.chunk_state import ChunkState
from leveret.durable.store import chunk
from leveret.durable.store.contract import DamagedError, StoredChunk
from leveret.mark import attempts_in, due_ms_in, is_fresh, is_plain

if TYPE_CHECKING:
    from leveret.broker import Broker
    from leveret.durable.journal import Journal
    from leveret.durable.wall_offsets import WallOffsets

log: Final = logging.getLogger("leveret.store")

PAGE_MESSAGES: Final = 4096
PAGE_OCTETS: Final = 1 << 20  # bytes of bodies
ALL_UP_TO: Final = 0  # key of the mark whose value is a number: entries up to it were delivered before
PORTION: Final = 50_000  # entries between two reports of progress


class Recovered:
    """The counts of a recovery."""

    __slots__ = ("damaged", "messages", "owners")

    def __init__(self) -> None:
        self.messages = 0  # each copy in a queue counts
        self.owners = 0  # queues that have messages
        self.damaged = 0  # chunks that cannot be read


class Gathered:
    """The entries of one owner and one priority, in columns."""

    __slots__ = ("expiries", "numbers", "positions", "sizes", "wall_ms")

    def __init__(self, wall_ms: float) -> None:
        self.wall_ms = wall_ms  # milliseconds to add to monotonic time for that since 1970
        self.numbers = array("Q")
        self.positions = array("Q")
        self.sizes = array("I")
        self.expiries = array("Q")  # ms since 1970, by the clock of the start; 0: never

    def take(self, columns: chunk.Columns, places: Sequence[int], offsets: WallOffsets) -> None:
        """Add entries of a chunk."""
        records, sizes, expiries = columns.records, columns.sizes, columns.expiries
        if len(places) == len(columns) and isinstance(records, range):  # usual: all, each with its own record
            self.numbers.extend(columns.numbers)
            self.positions.extend(columns.positions)
            self.sizes.extend(sizes)
        else:
            self.numbers.extend(map(columns.numbers.__getitem__, places))
            self.positions.extend(map(columns.positions.__getitem__, places))
            self.sizes.extend(sizes[records[place]] for place in places)
        if expiries is None:
            self.expiries.frombytes(bytes(self.expiries.itemsize * len(places)))
        elif columns.latest_arrival <= offsets.started_ms:
            self.expiries.extend(map(expiries.__getitem__, places))
        else:  # the clock was set back
            ahead_ms = [offsets.ahead_ms(columns.arrival(place)) for place in places]
            rows = zip(places, ahead_ms, strict=True)
            self.expiries.extend(
                expiries[place] and max(1, int(expiries[place] - ahead)) for place, ahead in rows
            )

    def taken_out(
        self, waits: Mapping[int, int], redelivered_to: int, ahead_ms: Callable[[int], float]
    ) -> list[WaitingRow]:
        """Take out the entries that wait for a time, whose marks are in `waits`.

        `ahead_ms` returns by how much the clock of an entry was ahead when it arrived. One that was delivered since has
        its time by the clock of its return.
        """
        rows: list[WaitingRow] = []
        left: list[int] = []
        for at, number in enumerate(self.numbers):
            if (mark := waits.get(number)) is None:
                left.append(at)
                continue
            ahead = ahead_ms(number) if is_fresh(mark) else 0.0
            due = (due_ms_in(mark) - ahead - self.wall_ms) / 1000
            expires_at = (self.expiries[at] - self.wall_ms) / 1000 if self.expiries[at] else NEVER
            again = number <= redelivered_to or not is_fresh(mark)
            rows.append(
                (number, self.positions[at], self.sizes[at], due, expires_at, attempts_in(mark), again)
            )
        if rows:
            self._keep(left)
        return rows

    def _keep(self, places: Sequence[int]) -> None:
        """Keep the entries at these places only, in their order."""
        self.numbers = array("Q", map(self.numbers.__getitem__, places))
        self.sizes = array("I", map(self.sizes.__getitem__, places))
        self.expiries = array("Q", map(self.expiries.__getitem__, places))
        self.positions = array("Q", map(self.positions.__getitem__, places))

    def in_order(self) -> bool:
        """Sort the entries by their positions, unless they are in order. Return whether their numbers still ascend."""
        positions = self.positions
        if any(map(gt, positions, positions[1:])):  # an entry was revised, and written again
            self._keep(sorted(range(len(positions)), key=positions.__getitem__))
            return False
        return True  # as they do in chunks, which come in order


def messages(
    broker: Broker, journal: Journal, progress: Callable[[int], None] = lambda entries: None
) -> Recovered:
    """Restore the messages of all owners. `progress` is called now and then with their number. Raises StoreError."""
    owners = {owner.number: owner for owner in owners_of(broker)}
    offsets, arrivals = journal.wall_offsets, journal.arrivals_known
    wall_ms = offsets.of(0, 0)
    found: dict[tuple[int, int], Gathered] = {}
    recovered, told = Recovered(), 0
    marks = dict(journal.store.marks())
    waits = parted(marks, broker.clock.wall() * 1000)
    for kept in journal.store.chunks():
        _take(journal, kept, owners, found, marks, recovered)
        if recovered.messages - told >= PORTION:
            told = recovered.messages
            progress(told)
    _streams(journal, recovered)
    # Else new entries could count as delivered before.
    journal.next_entry = max(journal.next_entry, marks.get(ALL_UP_TO, 0) + 1)
    offsets.recovered(journal.next_entry)
    journal.written = journal.next_entry - 1
    if not journal.store.was_clean:
        journal.redelivered_to = journal.written
    else:
        journal.redelivered_to = marks.get(ALL_UP_TO, 0)
    recovered.owners += len({number for number, _ in found})
    for number in owners:
        if not owners[number].ranked:
            found.setdefault((number, 0), Gathered(wall_ms))
    queues = (queue for host in broker.hosts() for queue in host.queues.values())
    ids = {queue.number: queue.deduplication for queue in queues}

    def ahead_ms(number: int) -> float:
        return offsets.ahead_ms(arrivals.of(number) or 0)

    for (number, priority), gathered in sorted(found.items(), key=lambda item: item[0]):
        if (known := ids.get(number)) is not None:
            known.found(gathered.positions)
        if waits and (rows := gathered.taken_out(waits, journal.redelivered_to, ahead_ms)):
            owners[number].restore_schedule(rows, any(ahead_ms(row[0]) > 0 for row in rows))
            if not gathered.numbers:
                continue
        owners[number].restore(priority, pages_of(gathered, marks, journal.redelivered_to))
    return recovered


def parted(marks: dict[int, int], now_ms: float) -> dict[int, int]:
    """Take the marks of entries that still wait out of `marks`, and return them. The others become plain counts."""
    waits: dict[int, int] = {}
    for number, mark in [each for each in marks.items() if not is_plain(each[1]) and each[0] != ALL_UP_TO]:
        if due_ms_in(mark) > now_ms:
            waits[number] = marks.pop(number)
        elif is_fresh(mark):
            del marks[number]
        else:
            marks[number] = attempts_in(mark)
    return waits


def _streams(journal: Journal, recovered: Recovered) -> None:
    """Restore the segments of streams, and delete those of streams that do not exist."""
    found: set[int] = set()
    for span in journal.store.spans():
        found.add(span.stream)
        if (stream := journal.logs.get(span.stream)) is not None:
            stream.take_back(span)
            recovered.messages += span.next - span.first
    for number, producer, sequence in journal.store.producers():
        found.add(number)
        if (stream := journal.logs.get(number)) is not None:
            stream.sequences[producer] = sequence
    catalogue = journal.broker.catalogue
    for number in sorted(found):
        journal.next_queue = max(journal.next_queue, number + 1)
        if (stream := journal.logs.get(number)) is not None:
            stream.taken_back(journal.store.was_clean)
            recovered.owners += 1
        elif catalogue is None or not catalogue.incomplete:
            journal.end_stream(number)


def owners_of(broker: Broker) -> Iterable[Holder]:
    """Yield all holders of entries in the store: queues, their held dead letters, and what exchanges hold."""
    for host in broker.hosts():
        queues = [*host.queues.values(), *host.ending]
        yield from (queue for queue in queues if queue.number and queue.has_entries)
        dead = (queue.dead_letters for queue in queues)
        yield from (held for held in dead if held is not None and held.number)
        holdings = (exchange.holding for exchange in host.exchanges.values())
        yield from (holding for holding in holdings if holding is not None and holding.number)


def _take(
    journal: Journal,
    kept: StoredChunk,
    owners: Mapping[int, Holder],
    found: dict[tuple[int, int], Gathered],
    marks: dict[int, int],
    recovered: Recovered,
) -> None:
    """Sort the live entries of one chunk by owner, and settle those without."""
    try:
        if kept.entries is None:
            raise DamagedError("its columns cannot be read")
        columns = chunk.read(kept.entries)
    except DamagedError as error:
        recovered.damaged += 1
        # it may be whole again
        journal.next_entry = max(journal.next_entry, kept.first + journal.chunk_entries)
        log.error(
            "chunk %d cannot be read, its messages are not recovered; it stays in the store: %s",
            kept.first,
            error,
        )
        return
    journal.next_entry = max(journal.next_entry, columns.numbers[-1] + 1)
    state = ChunkState(kept.first, columns.numbers, kept.octets, columns.volatile)
    state.restore_bits(kept.settled or b"")
    journal.known.add(state)
    journal.arrivals_known.note_chunk(columns)
    if kept.settled is None or len(kept.settled) not in (0, len(state.bits)):
        log.error("chunk %d: what of it is settled cannot be read; all of it is delivered again", kept.first)
        marks.update((number, 0) for number in columns.numbers if number not in marks)
    offsets = journal.wall_offsets
    lost = _hand_out(columns, state.live_places(), owners, found, offsets) if state.live else []
    recovered.messages += state.live - len(lost)
    journal.next_queue = max(journal.next_queue, max(columns.queues) + 1)
    catalogue = journal.broker.catalogue
    if lost and (columns.volatile or catalogue is None or not catalogue.incomplete):
        journal.settle_numbers(lost)


def _hand_out(
    columns: chunk.Columns,
    places: Sequence[int],
    owners: Mapping[int, Holder],
    found: dict[tuple[int, int], Gathered],
    offsets: WallOffsets,
) -> Sequence[int]:
    """Sort entries by owner and priority into `found`. Return the numbers of those without an owner, sorted."""
    queues, priorities = columns.queues, columns.priorities
    if queues.count(queues[0]) == len(queues) and priorities.count(priorities[0]) == len(priorities):
        mine = {(queues[0], priorities[0]): places}  # usual, and a tenth of the work
    else:
        by_owner: dict[tuple[int, int], list[int]] = {}
        for place in places:
            by_owner.setdefault((queues[place], priorities[place]), []).append(place)
        mine = dict(by_owner)
    lost: list[int] = []
    for (queue, priority), chosen in mine.items():
        if columns.volatile or queue not in owners:
            lost += map(columns.numbers.__getitem__, chosen)
            continue
        priority = owners[queue].rank(priority)  # else one level could be restored in two parts
        gathered = found.get((queue, priority))
        if gathered is None:
            gathered = found[queue, priority] = Gathered(offsets.of(0, 0))
        gathered.take(columns, chosen, offsets)
    return sorted(lost)


def pages_of(gathered: Gathered, marks: Mapping[int, int], redelivered_to: int) -> list[Page]:
    """Return pages in order of positions. All messages of a page count as delivered before, or only those marked."""
    ascends = gathered.in_order()
    numbers, positions = gathered.numbers, gathered.positions
    sums = array("Q", accumulate(gathered.sizes, initial=0))
    pages: list[Page] = []
    begin = 0
    for border in _borders(numbers, redelivered_to, ascends):
        while begin < border:
            full = bisect_left(sums, sums[begin] + PAGE_OCTETS, begin)
            end = min(begin + PAGE_MESSAGES, full, border)
            chosen = numbers[begin:end]
            marked = {number: marks[number] for number in chosen if number in marks} if marks else {}
            expiries = gathered.expiries[begin:end]
            expiring = len(expiries) - expiries.count(0)
            due = (expiries[0] - gathered.wall_ms) / 1000 if expiries[0] else NEVER
            octets, old = sums[end] - sums[begin], chosen[0] <= redelivered_to
            first, last = positions[begin], positions[end - 1]
            pages.append(Page(compact(chosen), first, last, octets, expiring, old, marked, due))
            begin = end
    return pages


def _borders(numbers: array[int], redelivered_to: int, ascends: bool) -> Iterable[int]:
    """Yield the indexes at which a page has to end: where numbers fall, if they may, and after `redelivered_to`."""
    begin = 0
    falls = () if ascends else compress(count(1), map(gt, numbers, numbers[1:]))
    for fall in (*falls, len(numbers)):
        yield bisect_right(numbers, redelivered_to, begin, fall)
        yield fall
        begin = fall


def compact(numbers: Sequence[int]) -> Sequence[int]:
    """Return ascending numbers, as a range if they are consecutive."""
    if numbers[-1] - numbers[0] == len(numbers) - 1:
        return range(numbers[0], numbers[-1] + 1)
    return array("Q", numbers)
