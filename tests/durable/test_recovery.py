"""Entries to pages, by columns: the same as entry by entry."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from leveret.clock import NEVER
from leveret.durability import Page
from leveret.durable import recovery
from leveret.durable.recovery import Gathered, pages_of
from leveret.durable.store import chunk
from leveret.durable.store.contract import Entries
from leveret.durable.wall_offsets import WallOffsets
from leveret.message import Facts, Message
from tests.harness.bench import ENCODING

ROWS = st.lists(
    st.tuples(st.integers(1, 3), st.integers(0, 2), st.integers(0, 1), st.booleans(), st.booleans()),
    min_size=1,
    max_size=12,
)


class Keeper:
    """An owner that tells priorities apart up to a highest one."""

    ranked = True

    def __init__(self, number: int, highest: int) -> None:
        self.number = number
        self._highest = highest

    def rank(self, priority: int) -> int:
        return min(priority, self._highest)


def columns_of(rows: Sequence[tuple[int, int, int, bool, bool]], first: int, volatile: bool) -> chunk.Columns:
    """A chunk, packed and read. A row: queue, priority, whether it expires, whether it has the message of the last."""
    entries = Entries(first, volatile, 0)
    for at, (queue, priority, expires, shares, _) in enumerate(rows):
        if not (shares and entries.messages):
            entries.messages.append(Message(ENCODING, "", "", b"", b"x" * at, Facts(durable=True)))
        entries.records.append(len(entries.messages) - 1)
        entries.queues.append(queue)
        entries.positions.append(100 + at)
        entries.priorities.append(priority)
        entries.expiries.append(expires)
    return chunk.read(chunk.pack(entries).entries)


@given(ROWS, st.sampled_from([0, 1, 2]), st.booleans(), st.booleans(), st.booleans())
def test_entries_come_to_their_owners(
    rows: list[tuple[int, int, int, bool, bool]], highest: int, volatile: bool, alike: bool, all_live: bool
) -> None:
    """Chunks of one queue and one priority take a way of their own; queue 3 has gone."""
    if alike:
        rows = [(rows[0][0], rows[0][1], *row[2:]) for row in rows]
    columns = columns_of(rows, 7, volatile)
    places = [at for at, row in enumerate(rows) if all_live or row[4]]
    expected: dict[tuple[int, int], list[tuple[int, int, int, bool]]] = {}
    lost = []
    for place in places:
        queue, priority, expires, *_ = rows[place]
        if volatile or queue == 3:
            lost.append(7 + place)
        else:
            size = columns.sizes[columns.records[place]]
            row = (7 + place, 100 + place, size, bool(expires))
            expected.setdefault((queue, min(priority, highest)), []).append(row)
    found: dict[tuple[int, int], Gathered] = {}
    owners = {number: Keeper(number, highest) for number in (1, 2)}
    live = range(len(rows)) if all_live else places
    if places:
        assert recovery._hand_out(columns, live, owners, found, WallOffsets(0.0, 0.0)) == lost  # type: ignore[arg-type]
    assert {
        key: sorted(
            (number, position, size, bool(expiry))
            for number, position, size, expiry in zip(
                each.numbers, each.positions, each.sizes, each.expiries, strict=True
            )
        )
        for key, each in found.items()
    } == expected


def gathered(rows: Sequence[tuple[int, int, int]], expiring: set[int]) -> Gathered:
    made = Gathered(500.0)
    for number, position, size in rows:
        made.numbers.append(number)
        made.positions.append(position)
        made.sizes.append(size)
        made.expiries.append(1000 * number if number in expiring else 0)
    return made


PAGED = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 5)), max_size=40)


@given(PAGED, st.integers(0, 40), st.sets(st.integers(1, 40)), st.sets(st.integers(1, 40)))
def test_pages_are_in_order_as_full_as_may_be_and_either_old_or_new(
    said: list[tuple[int, int]], redelivered_to: int, marked: set[int], expiring: set[int]
) -> None:
    positions = list(dict.fromkeys(position for position, _ in said))
    rows = [
        (number, position, size)
        for number, (position, (_, size)) in enumerate(zip(positions, said, strict=False), 1)
    ]
    before = recovery.PAGE_MESSAGES, recovery.PAGE_OCTETS
    recovery.PAGE_MESSAGES, recovery.PAGE_OCTETS = 4, 9  # type: ignore[misc]
    try:
        marks = dict.fromkeys(marked, 2)
        pages = pages_of(gathered(rows, expiring & {row[0] for row in rows}), marks, redelivered_to)
    finally:
        recovery.PAGE_MESSAGES, recovery.PAGE_OCTETS = before  # type: ignore[misc]
    ordered = sorted(rows, key=lambda row: row[1])
    assert [number for page in pages for number in page.numbers] == [number for number, *_ in ordered]
    at = 0
    for page in pages:
        mine = ordered[at : at + len(page)]
        at += len(page)
        _check(page, mine, redelivered_to, marked, expiring)
        if at < len(ordered):
            _check_full(page, mine, ordered[at], redelivered_to)


def _check(
    page: Page, mine: list[tuple[int, int, int]], redelivered_to: int, marked: set[int], expiring: set[int]
) -> None:
    numbers = [number for number, *_ in mine]
    assert numbers == sorted(numbers)
    assert (page.position, page.last) == (mine[0][1], mine[-1][1])
    assert page.octets == sum(size for *_, size in mine)
    assert page.octets - mine[-1][2] < 9
    assert len(mine) <= 4
    assert {number <= redelivered_to for number in numbers} == {page.redelivered}
    assert set(page.marks) == marked & set(numbers)
    assert page.expiring == len(expiring & set(numbers))
    assert page.due == (numbers[0] - 0.5 if numbers[0] in expiring else NEVER)


def _check_full(
    page: Page, mine: list[tuple[int, int, int]], following: tuple[int, int, int], redelivered_to: int
) -> None:
    """There is a reason why the next message is not in it."""
    assert (
        len(mine) == 4
        or page.octets >= 9
        or following[0] < mine[-1][0]
        or (following[0] <= redelivered_to) is not page.redelivered
    )


def test_numbers_that_follow_each_other_are_a_range() -> None:
    assert recovery.compact(array("Q", [4, 5, 6])) == range(4, 7)
    assert recovery.compact(array("Q", [4, 6])) == array("Q", [4, 6])
