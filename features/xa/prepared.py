"""A prepared branch on disk: a log like a stream's for its messages, and a record that says what they are.

    accepted   messages that have left their queues, with their positions there
    published  messages that are in no queue yet, with the route each is to take

The log is written in the commit that takes the accepted messages out of their queues: after a crash each of them is
either in its queue or in the branch. While the node runs, the branch has its messages in memory, too.

A store writes a record before the messages of its commit, and removes one after them. So a note in the log decides:
without it the branch was never prepared, or was completed since.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from typing import TYPE_CHECKING, Final

import attrs

from leveret.catalogue import BRANCH
from leveret.exchanges.routing import Route, walk
from leveret.queues.place import delivery_at, packed_place
from leveret.transaction import Publication

if TYPE_CHECKING:
    from leveret.delivery import Delivery
    from leveret.durable.journal import Journal
    from leveret.durable.store.contract import Reader, Span
    from leveret.durable.store.origin import EncodingOf
    from leveret.exchanges.exchange_type import Exchange
    from leveret.features.xa.branch import Branch
    from leveret.message import Message
    from leveret.queues.queue import Queue
    from leveret.queues.stream_log import Log

log: Final = logging.getLogger("leveret.store")

PREPARED: Final = "prepared"  # the note in the log with the number of its messages
# The note that the node ended suddenly: the branch may have been committed before.
REPEATED: Final = "repeated"


@attrs.frozen
class Path:
    """A route in a form that survives a restart."""

    queues: tuple[int, ...]  # numbers in the store; transient queues have none, and are left out
    keepers: tuple[str, ...]  # exchanges
    handled: bool


@attrs.frozen
class Outline:
    """The meaning of the messages in the log: first the accepted ones, then the published ones."""

    accepted: tuple[tuple[int, int], ...] = ()  # a queue's number, and the number of its messages
    paths: tuple[Path, ...] = ()  # a published message has the index of its path as its position in the log


class Prepared:
    """The part of one branch that is on disk."""

    __slots__ = ("branch", "log", "lost", "number", "outline")

    def __init__(self, branch: Branch) -> None:
        self.branch = branch
        self.log: Log | None = None
        self.number = 0  # in the store
        self.outline = Outline()
        self.lost = 0  # messages that could not be read after a restart

    @property
    def stored_as(self) -> tuple[str, ...]:
        return BRANCH, self.branch.branches.host.name, str(self.branch.xid)

    def keep(self) -> None:
        """Write the branch and take its messages out of their queues, both in the open commit."""
        branch = self.branch
        by_queue: dict[Queue, list[Delivery]] = {}
        for delivery in branch.accepted:
            if delivery.queue.has_entries and not delivery.queue.deleted:
                by_queue.setdefault(delivery.queue, []).append(delivery)
            else:  # accepting removes nothing from a stream
                delivery.queue.accept(delivery)
        branch.accepted = [queue.stand_in(each) for queue, taken in by_queue.items() for each in taken]
        if branch.branches.host.broker.catalogue is not None:
            self._write(by_queue)
        for queue, deliveries in by_queue.items():
            queue.forget(deliveries)

    def _write(self, by_queue: dict[Queue, list[Delivery]]) -> None:
        broker, branch = self.branch.branches.host.broker, self.branch
        paths, chosen = paths_of(each.route for each in branch.transaction.publications)
        accepted = tuple((queue.number, len(deliveries)) for queue, deliveries in by_queue.items())
        self.outline = Outline(accepted, paths)
        self.keep_record()
        assert self.log is not None, "the catalogue has given it one"
        self.log.note(PREPARED, len(branch.accepted) + len(chosen))
        append, wall = self.log.append, broker.clock.wall()
        for delivery in branch.accepted:
            append(delivery.message, wall, packed_place(delivery))
        for place, each in zip(chosen, branch.transaction.publications, strict=True):
            append(each.message, wall, place)

    def keep_in(self, journal: Journal, number: int) -> None:
        """Keep the branch in the store."""
        self.number = number
        self.log = opened = journal.open_log(number, self.branch.described, lambda: None)
        opened.remembers = False

    def keep_record(self) -> None:
        """Keep in the store what the branch is, without its messages."""
        catalogue = self.branch.branches.host.broker.catalogue
        if catalogue is not None:
            catalogue.keep(self)

    def put_back(self) -> None:
        """Put the accepted messages back into their queues, or where a deleted queue has them go."""
        for delivery in self.branch.accepted:
            if delivery.queue.deleted:
                delivery.queue.release(delivery)
            else:
                delivery.queue.take_back(delivery)

    def completed(self) -> None:
        """Record the outcome. The store writes the record before it removes the log, whatever the order here."""
        self._end_log()
        self.keep_record()

    def forget(self) -> None:
        """Remove the branch from the store."""
        self._end_log()
        catalogue = self.branch.branches.host.broker.catalogue
        if catalogue is not None:
            catalogue.forget(self)
            self.number = 0

    def _end_log(self) -> None:
        if self.log is not None:
            broker = self.branch.branches.host.broker
            broker.discarded.add(self.log.end(), broker.now)
            self.log = None

    @property
    def is_there(self) -> bool:
        """True if the log has the note that the branch is prepared."""
        return self.log is not None and PREPARED in self.log.sequences

    def read(self, spans: Iterable[Span]) -> None:
        """Read all messages into memory; called after the queues have been recovered."""
        from leveret.durable.journal import Journal  # a node in memory does not need it

        host, outline = self.branch.branches.host, self.outline
        queues = {queue.number: queue for queue in host.queues.values() if queue.number}
        owners = [queues.get(number) for number, _ in outline.accepted]
        ends = list(accumulate(count for _, count in outline.accepted))
        paths = [(path, route_of(path, queues, host.exchanges)) for path in outline.paths]
        journal, found = host.broker.journal, 0
        assert isinstance(journal, Journal), "a recovered branch has a journal"
        assert self.log is not None, "a recovered branch has a log"
        if not journal.store.was_clean:
            self.log.note(REPEATED, 1)
        repeats = REPEATED in self.log.sequences
        with journal.store.reader() as reader:
            for offset, position, message in placed(reader, spans, journal.encoding):
                place = bisect_right(ends, offset)
                if place == len(owners):
                    if position >= len(paths):
                        continue
                    path, route = paths[position]
                    exchange = host.exchanges.get(message.exchange)
                    if exchange is not None and has_lost_all(path, route):
                        route = walk(exchange, message)
                    again = message.repeated() if repeats else message
                    self.branch.transaction.publications.append(
                        Publication(host, message.exchange, route, again)
                    )
                elif (owner := owners[place]) is not None:
                    self._take_again(owner, position, message)
                found += 1
        messages = self.log.sequences[PREPARED]
        self.lost = messages - found
        if self.lost:
            log.error("%s has lost %d of its %d messages", self.branch.described, self.lost, messages)

    def _take_again(self, queue: Queue, position: int, message: Message) -> None:
        delivery = delivery_at(position, message, queue)
        queue.set_one_aside(delivery)
        self.branch.accepted.append(delivery)


def paths_of(routes: Iterable[Route]) -> tuple[tuple[Path, ...], list[int]]:
    """Return the distinct paths of routes, and the index of each message's path."""
    known: dict[tuple[tuple[Queue, ...], tuple[Exchange, ...], bool], int] = {}
    chosen = [known.setdefault((each.queues, each.keepers, each.handled), len(known)) for each in routes]
    paths = [
        Path(
            tuple(queue.number for queue in queues if queue.number),
            tuple(keeper.name for keeper in keepers if keeper.durable),
            handled,
        )
        for queues, keepers, handled in known
    ]
    return tuple(paths), chosen


def route_of(path: Path, queues: Mapping[int, Queue], exchanges: Mapping[str, Exchange]) -> Route:
    """Return the route of a path, without queues and exchanges that do not exist any more."""
    return Route(
        tuple(queues[number] for number in path.queues if number in queues),
        path.handled,
        tuple(exchanges[name] for name in path.keepers if name in exchanges),
        lasting=False,
    )


def has_lost_all(path: Path, left: Route) -> bool:
    """Return whether a path led somewhere, and nothing is left of that: its messages are routed anew."""
    return not left.queues and bool(path.queues or (path.handled and len(left.keepers) < len(path.keepers)))


def placed(
    reader: Reader, spans: Iterable[Span], encoding_of: EncodingOf
) -> Iterator[tuple[int, int, Message]]:
    """Yield offset, position and message of all readable messages of a log."""
    from leveret.durable.store.contract import DamagedError  # a node in memory does not need the store

    for span in spans:
        offset = span.first
        while offset < span.next:
            try:
                rows = rows_at(reader, span, offset, encoding_of)
            except DamagedError as damage:
                log.error("messages from %d on of a prepared branch cannot be read: %s", offset, damage)
                offset = max(damage.next or span.next, offset + 1)
            else:
                yield from rows
                offset = rows[-1][0] + 1


def rows_at(
    reader: Reader, span: Span, offset: int, encoding_of: EncodingOf
) -> list[tuple[int, int, Message]]:
    """Return offset, position and message of those in one block. Raises DamagedError."""
    from leveret.durable.store import block
    from leveret.durable.store.contract import DamagedError
    from leveret.durable.store.segment_reader import some_blocks

    read = block.Block(some_blocks(reader, span.stream, span.first, offset, span.next, 0), 0)
    try:
        messages = block.messages_of(read, encoding_of, noted=False)
    except DamagedError as damage:
        raise DamagedError(str(damage), read.header.next) from None
    assert read.positions is not None, "a prepared branch knows the place of each of its messages"
    return list(
        zip(range(read.header.first, read.header.next), read.positions.tolist(), messages, strict=True)
    )
