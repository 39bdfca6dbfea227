"""Staged publishing: many rows, in batches, from many tasks at a time, published as a whole or not at all, and once.

    take ──> staged, invisible ──commit──> committed ──published, a portion at a time──> in the queues
                     └─drop, or abandoned─> gone

A staging has a log of its own, which holds rows until they are published. The progress of each batch is recorded in the
same commit as its effect (`Log.note`, `batch.py`), so that publication continues there after a crash.

A batch has parts, one for each attempt at each partition; a part comes in pieces, numbered from 0. A piece that was
taken, or a batch that was committed, is not taken again: so every request can be repeated.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby, islice
from typing import TYPE_CHECKING, Final

from leveret.catalogue import STAGING
from leveret.errors import NotAllowed, NotFound, TooMany
from leveret.features.staging.batch import (
    COMMITTED,
    USED,
    Batch,
    BatchPart,
    Piece,
    in_order,
    pieces_in,
    used_note,
)
from leveret.features.staging.publication import LOOK_S, Publication
from leveret.guests import Guest
from leveret.queues.discarded_messages import PAUSE_S
from leveret.queues.stream_log import Log, MemoryLog

if TYPE_CHECKING:
    from leveret.clock import Timer
    from leveret.durable.journal import Journal
    from leveret.durable.store.contract import Packed
    from leveret.message import Message
    from leveret.virtual_host import VirtualHost

PORTION: Final = 2000  # rows taken in a turn: 5 ms
NOTES_MAX: Final = 100_000  # of a staging: as many pieces, roughly
STAGINGS_MAX: Final = 1000  # in a virtual host
NAME_MAX: Final = 255  # bytes
LOOK_AGAIN_S: Final = 3600.0  # between searches for abandoned batches
BATCH_MAX_S: Final = 24 * 3600  # an uncommitted batch that was not used for so long is dropped
NAME_MAX_S: Final = 30 * 24 * 3600  # the same for a staging without batches


class OutOfOrder(NotAllowed):
    """Raised if another piece has to come first."""

    def __init__(self, number: int, expected: int) -> None:
        super().__init__(f"piece {number} cannot come yet, piece {expected} is the next")
        self.expected = expected


class NotStaged(NotAllowed):
    """Raised if a part to be committed does not have its rows."""

    def __init__(self, part: BatchPart, rows: int, found: int) -> None:
        attempt = f"partition {part.partition}, attempt {part.attempt}"
        super().__init__(
            f"{attempt} of batch {part.batch} has {found} rows, not {rows}: nothing is committed"
        )
        self.part = part


class Full(TooMany):
    """Raised if a limit is reached."""


class Stagings(Guest):
    """The stagings of a virtual host."""

    def __init__(self, host: VirtualHost) -> None:
        self.found: dict[str, Staging] = {}  # by name

    def user_deleted(self, name: str) -> None:
        """Leave the user's stagings to administrators, and not to the next user of that name."""
        for staging in self.found.values():
            if staging.user == name:
                staging.disown()

    def close(self) -> None:
        """Drop the batches that are staged, as the virtual host is deleted."""
        for name in list(self.found):
            self.found.pop(name).end()


class Staging:
    """The batches of one producer, one after the other."""

    __slots__ = (
        "_rows",
        "_staged",
        "_taking",
        "_timer",
        "committed",
        "ended",
        "last",
        "log",
        "name",
        "number",
        "portion",
        "pouring",
        "user",
        "virtual_host",
    )

    def __init__(self, virtual_host: VirtualHost, name: str, user: str) -> None:
        self.virtual_host = virtual_host
        self.name = name
        self.user = user  # the owner; empty: it was deleted
        self.number = 0  # in the store
        self.log: Log = MemoryLog()
        self.committed = -1  # the last batch that was committed
        self.last: Batch | None = None  # the same
        self.ended = False
        self._staged: dict[int, dict[BatchPart, list[Piece]]] = {}  # uncommitted pieces by batch
        self._rows: Counter[BatchPart] = Counter()  # of these
        self.portion = PORTION
        self.pouring = Publication(self)
        self._taking: int | None = None  # the first offset of a piece that is being received
        self._timer: Timer | None = None

    @property
    def stored_as(self) -> tuple[str, ...]:
        return STAGING, self.virtual_host.name, self.name

    @property
    def described(self) -> str:
        """The staging as error texts name it."""
        return f"staging '{self.name}' in vhost '{self.virtual_host.name}'"

    def keep_in(self, journal: Journal, number: int) -> None:
        """Keep the staging in the store; called before it is used."""
        from leveret.features.staging.block_row_source import (
            BlockRowSource,
        )  # a node in memory does not need it

        self.number = number
        self.log = log = journal.open_log(number, self.described, self._committed)
        log.remembers = False
        self.pouring.drawing = BlockRowSource(log, journal.encoding)

    def disown(self) -> None:
        """Leave the staging without an owner, also in the store."""
        self.user = ""
        if (catalogue := self.virtual_host.broker.catalogue) is not None:
            catalogue.keep(self)

    def _committed(self) -> None:
        """Called when the log has more to read."""
        self.pouring.go_on()

    def begin(self) -> None:
        """Start a new staging, or one that was recovered with its log."""
        notes = self.log.sequences
        self.committed = notes.get(COMMITTED, -1)
        for number, pieces in groupby(pieces_in(notes), lambda piece: piece.part.batch):
            if number > self.committed:
                for piece in pieces:
                    self._add(piece)
            else:
                self.pouring.add(Batch(number, list(pieces), self.log))
        if self.committed >= 0:
            self.last = self._pouring_batch(self.committed) or Batch(self.committed, [], self.log)
        if USED not in notes:
            self.use()
        self._look_again()

    def end(self) -> None:
        """End the staging, and drop everything that is not published."""
        broker = self.virtual_host.broker
        self.ended = True
        broker.timers.cancel(self._timer)
        self.pouring.end()
        if broker.catalogue is not None:
            broker.catalogue.forget(self)
        broker.discarded.add(self.log.end(), broker.now)
        self.log = MemoryLog()
        self._staged.clear()

    def _require_alive(self) -> None:
        if self.ended:
            raise no_staging(self.name, self.virtual_host.name)

    @property
    def publishing(self) -> int:
        """The number of rows of committed batches that are still to be published."""
        return self.pouring.rows

    @property
    def staged(self) -> dict[int, int]:
        """The number of staged rows by batch."""
        return {
            number: sum(piece.rows for pieces in parts.values() for piece in pieces)
            for number, parts in sorted(self._staged.items())
        }

    def rows_of(self, part: BatchPart) -> int:
        """Return how many rows of a part are staged."""
        return self._rows[part]

    def _pieces_of(self, part: BatchPart) -> Sequence[Piece]:
        return self._staged.get(part.batch, {}).get(part, ())

    def is_committed(self, batch: int) -> bool:
        """Return whether a batch is committed, or older than one that is, and so can never be."""
        return batch <= self.committed

    @property
    def must_wait(self) -> bool:
        """True if messages should not be put into queues now.

        In memory only, an alarm is no reason: publishing takes no more memory, and waiting would not end it.
        """
        broker = self.virtual_host.broker
        return broker.is_behind or (broker.journal is not None and broker.alarms.reason is not None)

    def expects(self, part: BatchPart, number: int) -> bool:
        """Return whether a piece is the next one; False if it was taken already, or its batch is committed.

        Raises OutOfOrder if others have to come first, and Full if there are too many pieces.
        """
        following = len(self._pieces_of(part))
        if self.is_committed(part.batch) or number < following:
            return False
        if number > following:
            raise OutOfOrder(number, following)
        if len(self.log.sequences) >= NOTES_MAX:
            raise Full(f"{self.described} has {NOTES_MAX} pieces; send larger ones, or commit")
        return True

    def take(
        self,
        part: BatchPart,
        number: int,
        messages: Iterator[Message],
        packed: Iterator[Packed] | None = None,
    ) -> Iterator[float]:
        """Stage a piece, unless it was taken already: a portion at each step of the iterator.

        `packed`: the same messages in blocks that the log takes; they are stored instead. Yields how many seconds to
        pause before the next step. Has to be closed if it is given up. Raises as `expects` does, and NotFound if the
        staging has ended.
        """
        while self._taking is not None:
            yield PAUSE_S
        self._require_alive()
        if self.expects(part, number):
            first = self._taking = self.log.next
            try:
                yield from self._append(messages) if packed is None else self._append_blocks(packed)
                if self.expects(part, number):  # the batch may have been committed meanwhile
                    self._add(piece := Piece(part, number, first, self.log.next))
                    self.log.note(piece.note, piece.next)
            finally:
                self._taking = None
        self.use(part.batch)

    def _append(self, messages: Iterator[Message]) -> Iterator[float]:
        wall, append = self.virtual_host.broker.clock.wall(), self.log.append
        while portion := list(islice(messages, self.portion)):
            for message in portion:
                append(message, wall)
            if len(portion) < self.portion:
                break
            yield PAUSE_S
            while self.virtual_host.broker.is_behind:
                yield LOOK_S
            self._require_alive()

    def _append_blocks(self, packed: Iterator[Packed]) -> Iterator[float]:
        for number, each in enumerate(packed):
            if number:
                yield PAUSE_S
            while self.virtual_host.broker.is_behind:
                yield LOOK_S
            self._require_alive()
            self.log.append_block(each)

    def _add(self, piece: Piece) -> None:
        self._staged.setdefault(piece.part.batch, {}).setdefault(piece.part, []).append(piece)
        self._rows[piece.part] += piece.rows

    def use(self, batch: int | None = None) -> None:
        """Note the time of use. Its commit also makes a repeated request wait for what is not on disk yet."""
        wall = int(self.virtual_host.broker.clock.wall())
        self.log.note(USED, wall)
        if batch is not None and batch in self._staged:
            self.log.note(used_note(batch), wall)

    def commit(self, number: int, parts: Iterable[tuple[BatchPart, int]]) -> Batch | None:
        """Commit a batch of these parts with their numbers of rows; its other parts and older batches are dropped.

        Rows are published in the order of their partitions. Returns None if the batch was committed before, and another
        one since. Raises NotStaged if rows are missing; then nothing changes.
        """
        if not self.is_committed(number):
            chosen: list[Piece] = []
            for part, rows in parts:
                if rows != self.rows_of(part):
                    raise NotStaged(part, rows, self.rows_of(part))
                chosen += self._pieces_of(part)
            self._commit(number, in_order(chosen))
        self.use()
        return (
            self.last if self.last is not None and self.last.number == number else self._pouring_batch(number)
        )

    def _commit(self, number: int, chosen: list[Piece]) -> None:
        kept = set(chosen)
        for each in [batch for batch in self._staged if batch <= number]:
            self._forget(each, kept)
        if self.last is not None and self.last.is_published:
            self.last.forget_counts()
        self.committed = number
        self.log.note(COMMITTED, number)
        self.last = Batch(number, chosen, self.log)
        self.last.keep_counts()
        self.pouring.add(self.last)

    def _pouring_batch(self, number: int) -> Batch | None:
        return next((batch for batch in self.pouring.batches if batch.number == number), None)

    def published(self, batch: Batch) -> None:
        """Called when all of a batch is in its queues, before those that wait for that are told.

        The last rows may be in a commit that is on its way. Noting the use gives the open commit something to write, so
        that answers, which wait for that one, come after both.
        """
        if batch is not self.last:
            batch.forget_counts()
        self.use()
        self.drop_needless()

    def drop(self, batch: int) -> int:
        """Drop the staged rows of a batch and return their number. Raises NotAllowed if it is committed."""
        if self.is_committed(batch):
            raise NotAllowed(f"batch {batch} of {self.described} is committed already")
        rows = self.staged.get(batch, 0)
        self._forget(batch)
        self.use()
        self.drop_needless()
        return rows

    def _forget(self, batch: int, kept: Iterable[Piece] = ()) -> None:
        for part, pieces in self._staged.pop(batch, {}).items():
            del self._rows[part]
            for piece in pieces:
                if piece not in kept:
                    self.log.unnote(piece.note)
        self.log.unnote(used_note(batch))

    def drop_needless(self) -> None:
        """Truncate the log before the first row that is, or may be, still to be published."""
        staged = [pieces[0] for parts in self._staged.values() for pieces in parts.values()]
        poured = [piece for batch in self.pouring.batches for piece in batch.pieces]
        needed = [piece.next for piece in (*staged, *poured)]
        if self._taking is not None:
            needed.append(self._taking)
        self.log.drop_until(min(needed, default=self.log.next))

    def _look_again(self) -> None:
        broker = self.virtual_host.broker
        self._timer = broker.timers.at(broker.now + LOOK_AGAIN_S, self._look)

    def _look(self, now: float) -> None:
        """Drop abandoned batches, and the staging itself if it was not used for too long."""
        wall, notes = self.virtual_host.broker.clock.wall(), self.log.sequences
        for batch in list(self._staged):
            if wall - notes.get(used_note(batch), 0) >= BATCH_MAX_S:
                self._forget(batch)
        self.drop_needless()
        busy = self._staged or self.pouring.batches or self._taking is not None
        if not busy and wall - notes.get(USED, 0) >= NAME_MAX_S:
            del stagings_of(self.virtual_host)[self.name]
            self.end()
        else:
            self._look_again()


def stagings_of(host: VirtualHost) -> dict[str, Staging]:
    """Return the stagings of a virtual host by name."""
    return host.guest(Stagings).found


def no_staging(name: str, virtual_host: str) -> NotFound:
    return NotFound(f"no staging '{name}' in vhost '{virtual_host}'")


def new_staging(host: VirtualHost, name: str, user: str) -> Staging:
    """Create a staging. Raises Full if there are too many."""
    if len(stagings_of(host)) >= STAGINGS_MAX:
        raise Full(f"there are {STAGINGS_MAX} stagings in vhost '{host.name}' already")
    staging = stagings_of(host)[name] = Staging(host, name, user)
    if host.broker.catalogue is not None:
        host.broker.catalogue.keep(staging)
    staging.begin()
    return staging


def forget_staging(staging: Staging) -> None:
    """Delete a staging with its staged rows. Raises NotAllowed while rows are still to be published."""
    if staging.publishing:
        raise NotAllowed(f"{staging.described} has {staging.publishing} rows still to publish")
    del stagings_of(staging.virtual_host)[staging.name]
    staging.end()
