"""The reading half of the journal: entries are read back, at once or by a thread, and damaged ones are known.

page ── fetch, fetch_soon ──> store ──> entries for their holder
                                └──> unreadable: they stay in the store, and may be read again
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

from mypy_extensions import mypyc_attr

from leveret.clock import NEVER
from leveret.durability import Durability, Holder, Page, Stored
from leveret.durable.arrival_times import ArrivalTimes
from leveret.durable.chunks import Chunks
from leveret.durable.page_reader import FoundPage, read_again, read_page
from leveret.durable.store.contract import Store
from leveret.durable.unreadable import UnreadableEntries
from leveret.durable.wall_offsets import JUMP_MS, WallOffsets

if TYPE_CHECKING:
    from leveret.broker import Broker
    from leveret.message import Encoding
    from leveret.observability.metric import Metric

log: Final = logging.getLogger("leveret.store")

UNREADABLE: Final = "messages cannot be read"
T = TypeVar("T")


@mypyc_attr(allow_interpreted_subclasses=True)
class EntryReader(Durability):
    """Reads the entries of one store, and knows those that are needed and those that cannot be read."""

    def __init__(self, store: Store, broker: Broker, encodings: Mapping[str, Callable[[], Encoding]]) -> None:
        """Create a reader. `encodings`: by protocol name, a function that returns its encoding."""
        self.store = store
        self.broker = broker
        self.known = Chunks()
        self.wall_offsets = WallOffsets(wall_ms_of(broker), broker.clock.wall() * 1000)
        self._arrival_times = ArrivalTimes(lambda: self.known.oldest)
        self.arrival_times = self._arrival_times
        self._unreadable: UnreadableEntries[Holder] = UnreadableEntries(self._on_unreadable)
        self.unreadable = self._unreadable
        self._encodings = encodings
        # By description: holders with messages of a protocol that is not installed, as far as the log has told.
        self.missing_told: set[tuple[str, str]] = set()
        self._to_tell: list[tuple[str, str]] | None = None  # those found while all are counted

    @abstractmethod
    def reading_failed(self, error: Exception) -> None:
        """Handle an error in reading that is not damage."""

    def encoding(self, name: str) -> Encoding | None:
        """Return the encoding of a protocol; None if it is not installed."""
        known = self._encodings.get(name)
        return None if known is None else known()

    @property
    def arrivals_known(self) -> ArrivalTimes:
        """Return when entries arrived, to be added to."""
        return self._arrival_times

    def fetch(self, holder: Holder, page: Page) -> list[Stored]:
        with self.store.reader() as reader:
            found = read_page(reader, page, self.encoding)
        if found.damage and (missing := self._missing(page, found)):
            with self.store.reader() as reader:
                read_again(reader, missing, found)
        return self._stored(holder, page, found)

    def is_far(self, page: Page) -> bool:
        return self.store.lacks(page.numbers)

    def brings(self, numbers: Sequence[int]) -> bool:
        return self.store.brings(numbers)

    def fetch_soon(self, holder: Holder, page: Page, then: Callable[[list[Stored]], None]) -> None:
        def arrived(result: FoundPage | Exception) -> None:
            if isinstance(result, Exception):
                self.reading_failed(result)
            elif result.damage and (missing := self._missing(page, result)):
                self.store.read_soon(lambda reader: read_again(reader, missing, result), arrived_again)
            else:
                then(self._stored(holder, page, result))

        def arrived_again(result: FoundPage | Exception) -> None:
            if isinstance(result, Exception):
                self.reading_failed(result)
            else:
                then(self._stored(holder, page, result))

        self.store.read_soon(lambda reader: read_page(reader, page, self.encoding), arrived)

    def offset_ms_of(self, number: int) -> float:
        now_ms = wall_ms_of(self.broker)
        offset_ms = self.wall_offsets.of(number, self._arrival_times.of(number) or 0)
        return offset_ms if abs(offset_ms - now_ms) > JUMP_MS else now_ms

    def work_soon(self, job: Callable[[], T], then: Callable[[T | Exception], None]) -> None:
        self.store.read_soon(lambda reader: job(), then)

    def _missing(self, page: Page, result: FoundPage) -> list[int]:
        """Return the entries of a page that could not be read, without those that were settled before the read."""
        whole = not result.damage and not result.protocols
        return [] if whole else self._needed(page, [row[0] for row in result.rows])

    def _needed(self, page: Page, numbers: Iterable[int]) -> list[int]:
        """Return the entries of a page that are still needed, without those with these numbers."""
        there = {*numbers}
        return [number for number in page.numbers if number not in there and self.known.needs(number)]

    def _stored(self, holder: Holder, page: Page, result: FoundPage) -> list[Stored]:
        missing = self._missing(page, result)
        if missing and result.protocols:
            self.tell_missing(holder.described, result.protocols)
        if missing and result.damage:
            log.error(
                "%d messages of %s cannot be read; they are not delivered, and stay in the store: %s",
                len(missing),
                holder.described,
                "; ".join(dict.fromkeys(result.damage)),
            )
        offset_of = self.wall_offsets.of
        return [
            (
                number,
                position,
                (expires_ms - offset_of(number, arrived_ms)) / 1000 if expires_ms else NEVER,
                message,
            )
            for number, position, expires_ms, arrived_ms, message in result.rows
        ]

    # What cannot be read.

    def tell_missing(self, described: str, protocols: Iterable[str]) -> None:
        """Log once that a holder has messages of protocols that are not installed."""
        for name in protocols:
            if self._to_tell is not None:
                self._to_tell.append((described, name))
            elif (described, name) not in self.missing_told:
                self.missing_told.add((described, name))
                log.warning(
                    "%s has messages of the protocol '%s', which is not installed: they are not delivered, and stay"
                    " in the store",
                    described,
                    name,
                )

    def tell_missing_later(self) -> None:
        """Log none of that until `tell_missing_now`: all such messages are counted."""
        self._to_tell = []

    def tell_missing_now(self) -> None:
        """Log what was found meanwhile and is not told yet."""
        found, self._to_tell = self._to_tell or [], None
        for described, name in found:
            self.tell_missing(described, [name])

    def missed(self, holder: Holder, page: Page, stored: Sequence[Stored]) -> None:
        if numbers := self._needed(page, [row[0] for row in stored]):
            marks = {number: page.marks[number] for number in numbers if number in page.marks}
            self._unreadable.note(
                holder, Page(numbers, page.position, page.last, 0, redelivered=page.redelivered, marks=marks)
            )

    def metrics(self) -> Sequence[Metric]:
        return self.store.metrics()

    def unreadable_of(self, holder: Holder) -> int:
        return self._unreadable.of(holder) if self._unreadable.count else 0

    def read_unreadable(self, holder: Holder, then: Callable[[Page, list[Stored]], None]) -> int:
        pages = self._unreadable.pages(holder)
        for page in pages:
            self.fetch_soon(holder, page, partial(self._arrived_again, holder, page, then))
        return sum([len(page) for page in pages])

    def _arrived_again(
        self, holder: Holder, page: Page, then: Callable[[Page, list[Stored]], None], stored: list[Stored]
    ) -> None:
        """Give a holder what could be read of a page, unless it has dropped all of that meanwhile."""
        if self._unreadable.remove(holder, page):
            self.missed(holder, page, stored)
            if stored:
                then(page, stored)

    def settle_unreadable(self, holder: Holder) -> int:
        pages = self._unreadable.take(holder) if self._unreadable.count else ()
        for page in pages:
            self.settle_numbers(page.numbers)
        return sum([len(page) for page in pages])

    def read_all_again(self) -> None:
        """Have queues read again what they could not while the store did not answer."""
        for holder in self._unreadable.holders():
            holder.reread()

    def _on_unreadable(self, count: int) -> None:
        """Raise an alarm, which does not hold publishers back, while there are messages that cannot be read."""
        if count:
            self.broker.alarms.warn(UNREADABLE)
        else:
            self.broker.alarms.end_warning(UNREADABLE)


def wall_ms_of(broker: Broker) -> float:
    """Return the milliseconds to add to monotonic time for that since 1970."""
    return (broker.clock.wall() - broker.clock.now()) * 1000
