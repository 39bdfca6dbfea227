"""Tell which messages in the store are of protocols that are not installed, such as one whose package was removed.

    a start with the protocol ─ note ─> ["protocol", name] in the store
    a start without it ─ count, in a reading thread ─> one warning with queues and numbers

Such messages stay where they are and are not delivered; they are there again when the protocol is. Only starts where a
protocol is missing read messages for this.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from leveret.arguments.names import counted
from leveret.durable.store import block, chunk
from leveret.durable.store.contract import DamagedError, Span
from leveret.durable.store.records import PROTOCOL, key_of, text_of

if TYPE_CHECKING:
    from leveret.broker import Broker
    from leveret.durable.journal import Journal
    from leveret.durable.store.contract import Reader

log: Final = logging.getLogger("leveret.store")

BLOCKS_OCTETS: Final = 1 << 20  # bytes of blocks that are read at once
NAMED_MAX: Final = 10  # queues in a warning

Found: TypeAlias = "Counter[tuple[str, int]]"
"""How many messages there are, by protocol and number of the holder."""
Row: TypeAlias = "tuple[int, str, int]"
"""A message of a queue: its number in the store, its protocol, and the number of its holder."""
Job: TypeAlias = "Callable[[Reader], Found | list[Row]]"


class MissingProtocols:
    """The protocols of a node that does not have all of which there may be messages in its store."""

    def __init__(
        self, broker: Broker, journal: Journal, known: Mapping[str, str], installed: Mapping[str, str]
    ) -> None:
        """`known` are the protocols of earlier starts, `installed` those of this one that do not come with Leveret.

        Both tell by name where a protocol came from, in words.
        """
        self._broker = broker
        self._journal = journal
        self._missing = {name: known[name] for name in known if journal.encoding(name) is None}
        self._found: Found = Counter()
        self._spans: list[Span] = []
        if self._missing:
            self._spans = [*journal.store.spans()]
        for name, source in installed.items():
            if known.get(name) != source:
                journal.put(key_of(PROTOCOL, name), text_of({"source": source}))

    def count(self) -> None:
        """Have the messages counted, if any protocol is missing. Called when the journal has started."""
        if self._missing:
            self._journal.tell_missing_later()
            self._go_on(self._jobs())

    def _go_on(self, jobs: Iterator[Job]) -> None:
        job = next(jobs, None)
        if job is None:
            self._tell()
            self._journal.tell_missing_now()
            return

        def read(found: Found | list[Row] | Exception) -> None:
            if isinstance(found, list):
                needs = self._journal.known.needs
                self._found.update((name, holder) for number, name, holder in found if needs(number))
            elif isinstance(found, Counter):
                self._found.update(found)
            elif not isinstance(found, DamagedError):  # damage is told when a consumer wants the messages
                self._journal.reading_failed(found)
                return
            self._go_on(jobs)

        self._journal.store.read_soon(job, read)

    def _jobs(self) -> Iterator[Job]:
        """Yield functions that count a part each: a chunk of queues, or some blocks of a stream."""
        known = self._journal.known
        number = known.oldest
        while number and (state := known.after(number - 1)) is not None:
            yield partial(self._in_chunk, state.first, state.last)
            number = state.last + 1
        for span in self._spans:
            offset = span.first
            while offset < span.next:
                ends: list[int] = []
                yield partial(self._in_blocks, span, offset, ends)
                if not ends:
                    break
                offset = ends[-1]

    def _in_chunk(self, first: int, last: int, reader: Reader) -> list[Row]:
        """Return the messages of a chunk, which may be merged with others by now. Raises DamagedError."""
        at, entries = reader.find(first)
        columns = chunk.read(entries)
        octets = reader.messages(at, 0, columns.ends[-1])
        names = [chunk.protocol_of(octets, columns.begin(record)) for record in range(len(columns.ends))]
        return [
            (number, name, columns.queues[place])
            for place, number in enumerate(columns.numbers)
            if first <= number <= last and (name := names[columns.records[place]]) in self._missing
        ]

    def _in_blocks(self, span: Span, offset: int, ends: list[int], reader: Reader) -> Found:
        """Count the messages of some blocks; `ends` gets the offset after them. Raises DamagedError."""
        found: Found = Counter()
        octets = reader.blocks(span.stream, span.first, offset, span.next, BLOCKS_OCTETS)
        at = 0
        while at < len(octets):
            each = block.Block(octets, at)
            at += each.header.octets
            names = [str(origin[0]) for origin in each.origins]
            which = [0] * each.header.count if each.which is None else each.which.tolist()
            found.update((names[place], span.stream) for place in which if names[place] in self._missing)
            ends.append(each.header.next)
        return found

    def _tell(self) -> None:
        holders = {
            queue.number: queue.described
            for host in self._broker.hosts()
            for queue in host.queues.values()
            if queue.journal is not None
        }
        for name, source in self._missing.items():
            numbers = {
                holders.get(number, f"what has number {number}"): many
                for (protocol, number), many in self._found.items()
                if protocol == name
            }
            if not numbers:
                self._journal.remove(key_of(PROTOCOL, name))
                continue
            self._journal.missing_told.update((described, name) for described in numbers)
            shown = [f"{many} in {described}" for described, many in list(numbers.items())[:NAMED_MAX]]
            if len(numbers) > NAMED_MAX:
                shown.append(f"and more in {len(numbers) - NAMED_MAX} others")
            log.warning(
                "the protocol '%s' is not installed, of which the store has %s: %s; not delivered until it is there"
                " again, which came from %s",
                name,
                counted(sum(numbers.values()), "message"),
                ", ".join(shown),
                source,
            )
