"""A table of what a peer has to answer, by the numbers under which it was sent: delivery tags, delivery ids."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Final, Generic, TypeVar

T = TypeVar("T")

GAP_MAX: Final = 8  # numbers in a row that may be missing in the list
TRIMMED: Final = 256  # places at the front of the list that are free before they are given back
COST: Final = 12  # places of a list that take as much memory as an entry of a dict
TRIED: Final = 4  # numbers that are tried as quickly as an entry of a dict is walked over
SPARSE: Final = 1024  # free places that the list may have besides these


class NumberedTable(Generic[T]):
    """A table whose numbers ascend, mostly one by one: it takes eight bytes an entry, where a dict takes a hundred.

    The entries are in a list, each at the distance of its number from the first one. When most places of the list are
    free, or numbers jump (also back, as serial numbers do after the last, and entries that come again), all that is in
    the list moves to a dict, and the list begins anew. So numbers may come round, and jump over those that are still
    there. Entries are in the order in which they were added; None cannot be one. An empty table has no places.

        stragglers         listed  ┌ _first     ┌ _start
        {3: e, 17: e}              [None, None, e, e, None, e, e]  <── add
    """

    __slots__ = ("_count", "_first", "_oldest", "_start", "listed", "stragglers")

    def __init__(self) -> None:
        self.listed: list[T | None] = []
        self._first = 0  # the number of the list's first place
        self._start = 0  # no place before it has an entry
        self._count = 0  # entries in the list
        self.stragglers: dict[int, T] = {}
        self._oldest = 0  # no straggler has a lower number

    def __len__(self) -> int:
        return self._count + len(self.stragglers)

    def __contains__(self, number: int) -> bool:
        return self.get(number) is not None

    def __iter__(self) -> Iterator[int]:
        return iter(self.numbers())

    def add(self, number: int, entry: T) -> None:
        """Add an entry; its number is a new one."""
        if number != self._first + len(self.listed):
            self._make_way(number)
        self.listed.append(entry)
        self._count += 1

    def add_all(self, first: int, entries: Sequence[T]) -> None:
        """Add entries with the numbers from `first` on."""
        if first != self._first + len(self.listed):
            self._make_way(first)
        self.listed.extend(entries)
        self._count += len(entries)

    def get(self, number: int) -> T | None:
        """Return the entry with this number; None if there is none."""
        at = number - self._first
        if 0 <= at < len(self.listed):
            entry = self.listed[at]
            if entry is not None:
                return entry
        return self.stragglers.get(number) if self.stragglers else None

    def pop(self, number: int) -> T | None:
        """Remove the entry with this number and return it; None if there is none."""
        at = number - self._first
        if 0 <= at < len(self.listed):
            entry = self.listed[at]
            if entry is not None:
                self.listed[at] = None
                self._free(1)
                return entry
        return self.stragglers.pop(number, None) if self.stragglers else None

    def take(self, numbers: Sequence[int]) -> list[T]:
        """Remove the entries with these numbers, up to the first number that has none, and return them."""
        listed, first, size = self.listed, self._first, len(self.listed)
        taken: list[T] = []
        count = 0
        for number in numbers:
            at = number - first
            entry = listed[at] if 0 <= at < size else None
            if entry is not None:
                listed[at] = None
                count += 1
            else:
                entry = self.stragglers.pop(number, None)
                if entry is None:
                    break
            taken.append(entry)
        if count and count == self._count:  # all of them, as mostly
            self._first += size
            self._start = self._count = 0
            listed.clear()
        elif count:
            self._free(count)
        return taken

    def _free(self, count: int) -> None:
        """Count entries that were taken from the list, and give free places back."""
        listed = self.listed
        size = len(listed)
        self._count -= count
        start = self._start if self._count else size
        while start < size and listed[start] is None:
            start += 1
        if start == size or (start >= TRIMMED and 2 * start >= size):  # those at the front
            del listed[:start]
            self._first += start
            size -= start
            start = 0
        self._start = start
        if size - start > COST * self._count + SPARSE:
            self._set_aside()

    def has_all(self, first: int, last: int) -> bool:
        """Return whether there is an entry for every number from `first` to `last`."""
        if first > last:
            return False
        start, end = first - self._first, last - self._first + 1
        if start >= 0 and end <= len(self.listed) and None not in self.listed[start:end]:
            return True
        return all(self.get(number) is not None for number in range(first, last + 1))

    def up_to(self, last: int) -> list[int]:
        """Return the numbers that are no higher than `last`, of a table whose numbers only ascend. The caller takes
        their entries.

        A dict keeps the places of deleted entries and walks over them: to take many stragglers in small steps from
        their front would cost a walk over all of them for each step, so their numbers are tried instead.
        """
        numbers: list[int] = []
        if self.stragglers:
            start, self._oldest = self._oldest, max(self._oldest, last + 1)
            if last - start < TRIED * len(self.stragglers) + SPARSE:
                numbers = [each for each in range(start, last + 1) if each in self.stragglers]
            else:
                numbers = list(takewhile(lambda each: each <= last, self.stragglers))
        first, listed = self._first, self.listed
        end = min(last - first + 1, len(listed))
        for at in range(self._start, end):
            if listed[at] is not None:
                numbers.append(first + at)
        return numbers

    def numbers(self) -> list[int]:
        return [number for number, _ in self.items()]

    def values(self) -> Entries[T]:
        """Return a view of the entries, in order."""
        return Entries(self)

    def items(self) -> list[tuple[int, T]]:
        """Return the numbers and their entries, in order, as they are now."""
        return [*self.stragglers.items(), *self._in_list()]

    def _in_list(self) -> list[tuple[int, T]]:
        """Return the numbers and entries of the list."""
        items: list[tuple[int, T]] = []
        for at in range(self._start, len(self.listed)):
            entry = self.listed[at]
            if entry is not None:
                items.append((self._first + at, entry))
        return items

    def put_back(self, entries: Mapping[int, T]) -> None:
        """Add entries that were here before. All entries are in the order of their numbers afterwards."""
        if entries:
            ordered = dict(sorted({**dict(self.items()), **entries}.items()))
            self.clear()
            self.stragglers, self._oldest = ordered, next(iter(ordered))

    def clear(self) -> None:
        self.listed, self.stragglers = [], {}
        self._first = self._start = self._count = self._oldest = 0

    def _make_way(self, number: int) -> None:
        """Have the list end where the next entry, with this number, belongs."""
        end = self._first + len(self.listed)
        if self._count and 0 < number - end <= GAP_MAX:
            self.listed += [None] * (number - end)
            return
        if self._count:
            self._set_aside()
        self.listed = []
        self._first, self._start = number, 0

    def _set_aside(self) -> None:
        """Move what is in the list to the dict."""
        items = self._in_list()
        lowest = items[0][0]
        self._oldest = min(self._oldest, lowest) if self.stragglers else lowest
        self.stragglers.update(items)
        self._first += len(self.listed)
        self.listed = []
        self._start = self._count = 0


class Entries(Generic[T]):
    """The entries of a table, as they are when they are walked over."""

    __slots__ = ("_table",)

    def __init__(self, table: NumberedTable[T]) -> None:
        self._table = table

    def __len__(self) -> int:
        return len(self._table)

    def __iter__(self) -> Iterator[T]:
        return iter([entry for _, entry in self._table.items()])

    def __reversed__(self) -> Iterator[T]:
        """Walk over the entries from the newest on, one by one: mostly only some of many are wanted."""
        table = self._table
        for entry in reversed(table.listed):
            if entry is not None:
                yield entry
        yield from reversed(table.stragglers.values())
