"""Publishes committed batches: one after the other, a portion a turn, with pauses for the loop's other work.

    committed ──> a portion: into queues, and the note of the progress, in one commit ──> ... ──> published
                      └─an alarm, a slow disk, a full queue─> tried again after a pause

A row that a queue would refuse is not published: it waits until there is room, and so do the rows after it.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from leveret.broker import WORK_MAX
from leveret.features.staging.row_source import MemoryRowSource, RowSource
from leveret.publishing.portion import publish_portion
from leveret.queues.discarded_messages import PAUSE_S
from leveret.queues.stream import NAMED, StreamQueue

if TYPE_CHECKING:
    from leveret.clock import Timer
    from leveret.features.staging.batch import Batch, Piece
    from leveret.features.staging.staging import Staging
    from leveret.message import Message

log: Final = logging.getLogger("leveret.broker")

PORTION: Final = 1000  # rows a turn: 4 ms
ROW_OCTETS_SHIFT: Final = 9  # a row of more than 512 bytes counts as several
BLOCK_OCTETS_SHIFT: Final = 12  # a block that is published whole counts as a row for each 4 KiB
ARRIVALS: Final = 5000  # in queues, for one commit: closing it takes 5 ms
LOOK_S: Final = 0.05  # between checks for room
DROP_ROWS: Final = 10_000  # published before the log is truncated


class Publication:
    """Publishes the committed batches of one staging."""

    __slots__ = ("_since_drop", "_staging", "_timer", "batches", "drawing", "portion")

    def __init__(self, staging: Staging) -> None:
        self.batches: deque[Batch] = deque()
        self.portion = PORTION
        self.drawing: RowSource = MemoryRowSource(staging.log)
        self._staging = staging
        self._timer: Timer | None = None
        self._since_drop = 0

    @property
    def rows(self) -> int:
        return sum(batch.rows for batch in self.batches)

    def add(self, batch: Batch) -> None:
        """Append a batch to those that were committed before."""
        self.batches.append(batch)
        self.go_on()

    def go_on(self) -> None:
        """Continue; called when there is more to do, or when missing data have arrived."""
        self._go_on_in(0.0)

    def end(self) -> None:
        """Stop publishing, and notify the waiters."""
        broker = self._staging.virtual_host.broker
        broker.timers.cancel(self._timer)
        batches, self.batches = self.batches, deque()
        for batch in batches:
            self._tell(batch)

    def _go_on_in(self, seconds: float) -> None:
        broker = self._staging.virtual_host.broker
        if self.batches and (self._timer is None or not seconds):
            broker.timers.cancel(self._timer)
            self._timer = broker.timers.at(broker.now + seconds, self._pour)

    def _pour(self, now: float) -> None:
        """Publish a portion unless the staging has to wait."""
        self._timer = None
        if self._staging.must_wait:
            self._go_on_in(LOOK_S)
            return
        if self._is_enough:
            self._go_on_in(PAUSE_S)
            return
        quota = self.portion
        while self.batches and quota > 0:
            batch = self.batches[0]
            if batch.is_published:
                self._finish(batch)
            elif (cost := self._pour_piece(batch, batch.pieces[-1], quota)) > 0:
                quota -= cost
            else:
                return
        self._go_on_in(PAUSE_S)

    @property
    def _is_enough(self) -> bool:
        """True if the next commit has so many arrivals that closing it takes a turn."""
        journal = self._staging.virtual_host.broker.journal
        return journal is not None and len(journal.arrivals) >= ARRIVALS

    def _pour_piece(self, batch: Batch, piece: Piece, quota: int) -> int:
        """Publish available rows of a piece. Returns their cost; 0: publishing continues by itself later."""
        if cost := self._pour_block(batch, piece):
            return cost
        found = self.drawing.read(piece.next, piece.end, quota, quota << ROW_OCTETS_SHIFT)
        if found is None:
            self.drawing.fetch(piece.next, piece.end, self.go_on)
            return 0
        offsets, messages = found
        if not messages:
            return self._pass_over(batch, piece)
        lost = min(offsets[0], piece.end) - piece.next  # unreadable rows, which the log has reported
        messages = messages[: piece.rows - lost]
        rows = lost + self._publish(batch, messages)
        if rows:
            self._moved(batch, rows)
        if rows < lost + len(messages):
            self._go_on_in(PAUSE_S if self._is_much else LOOK_S)
            return 0
        return max(rows, sum([message.size for message in messages]) >> ROW_OCTETS_SHIFT)

    def _pour_block(self, batch: Batch, piece: Piece) -> int:
        """Push a whole block to streams, if one comes next and only streams get it. Returns the cost or 0."""
        whole = self.drawing.whole(piece.next, piece.end)
        if whole is None:
            return 0
        packed, samples = whole
        streams = self._streams_of(samples)
        if not streams or not all(stream.entering is None and stream.log.takes(packed) for stream in streams):
            return 0
        for stream in streams:
            stream.push_block(packed)
        exchange = self._staging.virtual_host.exchanges[samples[0].exchange]
        exchange.published += packed.count
        exchange.count_copies(len(streams), packed.count)
        batch.published += packed.count
        self._moved(batch, packed.count)
        return max(1, len(streams) * len(packed.octets) >> BLOCK_OCTETS_SHIFT)

    def _streams_of(self, samples: Sequence[Message]) -> list[StreamQueue]:
        """Return the streams that get every message like these; empty if other queues do, or if one looks at each."""
        host = self._staging.virtual_host
        exchange, queues = host.exchanges.get(samples[0].exchange), None
        for sample in samples:
            if exchange is None or sample.exchange != exchange.name:
                return []
            if sample.notes is not None or (sample.facts.has_headers and NAMED in sample.properties):
                return []
            route = host.broker.route(exchange, sample)
            if not route.lasting or route.handled or route.keepers or queues not in (None, route.queues):
                return []
            queues = route.queues
        streams = [queue for queue in queues or () if type(queue) is StreamQueue]
        return streams if len(streams) == len(queues or ()) else []

    def _pass_over(self, batch: Batch, piece: Piece) -> int:
        """Wait for rows that are not on disk yet; skip the rest of the piece if it cannot be read."""
        if self._staging.log.committed < piece.end:
            return 0
        rows = piece.rows
        self._moved(batch, rows)
        return rows

    def _moved(self, batch: Batch, rows: int) -> None:
        batch.move(rows)
        batch.keep_counts()
        self._since_drop += rows
        if self._since_drop >= DROP_ROWS:
            self._since_drop = 0
            self._staging.drop_needless()

    def _publish(self, batch: Batch, messages: Sequence[Message]) -> int:
        """Publish messages and return how many; it stops at a full queue, or when the turn is over."""
        done = publish_portion(self._staging.virtual_host, messages)
        batch.published += done.taken
        batch.unroutable += done.unroutable
        return done.done

    @property
    def _is_much(self) -> bool:
        return self._staging.virtual_host.broker.work > WORK_MAX

    def _finish(self, batch: Batch) -> None:
        self.batches.popleft()
        if batch.unroutable:
            log.warning(
                "%d of %d messages of batch %d of %s went to no queue",
                batch.unroutable,
                batch.unroutable + batch.published,
                batch.number,
                self._staging.described,
            )
        self._staging.published(batch)
        self._tell(batch)

    def _tell(self, batch: Batch) -> None:
        waiting, batch.waiting = batch.waiting, []
        for then in waiting:
            then()
