"""The execution layer of the draft of 2007, one direction at a time: which commands came, and which are complete.

Peers send each other commands without waiting, and each keeps a picture of the other's future state. The picture lags
behind, and it may be wrong. The layer lets a peer tell its assumptions from what it knows, with few numbers:

    C(n)      a command has the next number, of 32 bits, from 0 on; the number is counted, not sent
    DUP(ids)  something updates the disposition of these commands. None of them may be marked complete before
    CEM(m)    cumulative execution mark: every command up to m has been executed. Marks never go backwards
    REM(ids)  these have been, too, although not all before them (the draft breaks off in the middle of this word; that
              it means a ranged execution mark is our reading)
    sync      asks, with a command, for the mark as soon as that command is complete
    flush     asks for the mark as it is now

A command that the mark reaches without a DUP for it has ended normally. A command that ends abnormally must be named by
a DUP before: until then no mark can pass it.

The published 0-10 expresses the same differently, and here both are one machine: `session.completed` carries CEM and
REM in one set, without the ids that the peer has said it knows (`session.known-completed`); `session.flush` is the
flush, the bit of a command's header the sync, and `execution.sync` a command that is complete when all before it are.
`execution.result` and `execution.exception` are DUPs; after the exception the session is over.

`Execution` is the side to which commands come, `Sending` the side from which they go. A session has one of each, and
they know nothing of each other: the two directions are independent.

Counting goes on for ever, while ids can be compared over 2^31 at most. So nothing further back than REACH is reported:
a peer that has not acknowledged it by then has forgotten it as well.
"""

from __future__ import annotations

from typing import Final

from leveret.protocols.amqp010.codec.sequences import (
    HALF,
    MASK,
    Id,
    SequenceSet,
    distance,
    following,
    is_before,
    preceding,
)

REACH: Final = 1 << 30  # ids
KNOWN_RANGES_MAX: Final = 64  # beyond, what the peer knows is forgotten, and it is told again
UPDATED_RANGES_MAX: Final = 64  # of commands that have a result and are not completed


class SequenceError(ValueError):
    """Raised for a statement of a peer about ids that cannot be true."""


class Execution:
    """The commands that come from a peer. The peer knows that [floor, unknown_from) are complete; [unknown_from,
    first_incomplete) are complete; of the others up to next_id some may be (`_ahead`). These numbers are ids.

    Raises SequenceError for mistakes that only the peer can make, ValueError for those that only we can.
    """

    __slots__ = (
        "_ahead",
        "_asked",
        "_barriers",
        "_gaps",
        "_held",
        "_known",
        "_news",
        "_owed",
        "_repeats",
        "_sync_point",
        "_told",
        "_unusual",
        "first_incomplete",
        "floor",
        "next_id",
        "unknown_from",
    )

    def __init__(self, point: Id = 0) -> None:
        self._ahead = SequenceSet()  # complete, after first_incomplete
        self._barriers = SequenceSet()  # complete as soon as all before them are
        self._owed = SequenceSet()  # ended abnormally, and no DUP has named them yet
        self._held = False  # one of these three is not empty
        self._gaps = SequenceSet()  # never to come, after next_id
        self._repeats = 0  # commands to come that have come before
        self._unusual = False  # one of these two is not empty
        self._known = SequenceSet()  # what the peer knows to be complete, after unknown_from
        self._sync_point: Id | None = None  # the last command with a sync that is not answered yet
        self._asked = False
        self._news = 0  # completed ahead since the peer was told
        self._start(point)

    def _start(self, point: Id) -> None:
        self.floor = point
        self.unknown_from = point
        self.first_incomplete = point
        self.next_id = point
        self._told = point  # first_incomplete when the peer was told last

    # What comes.

    @property
    def begun(self) -> bool:
        """True if any command has come."""
        return self.next_id != self.floor

    def expect(self, point: Id) -> None:
        """Continue with this id: commands from it on that have come before are to be passed over."""
        if not self.begun:
            self._gaps = SequenceSet()
            self._unusual = False
            self._start(point)
            return
        repeats = distance(point, self.next_id)
        if not 0 <= repeats <= REACH:
            raise SequenceError(f"command {self.next_id} is the next one, not {point}")
        self._repeats = repeats
        self._unusual = repeats > 0 or bool(self._gaps)

    def receive(self) -> Id | None:
        """Count a command that came (C(n)) and return its id, or None if it has come before (see `repeated`)."""
        if self._unusual:
            return self._receive_unusual()
        id = self.next_id
        self.next_id = (id + 1) & MASK
        return id

    @property
    def is_plain(self) -> bool:
        """True if the commands to come have not come before, and none of them is left out."""
        return not self._unusual

    def receive_run(self, commands: int) -> None:
        """Count so many commands that came (C(n)), while it `is_plain`."""
        self.next_id = (self.next_id + commands) & MASK

    def _receive_unusual(self) -> Id | None:
        if self._repeats:
            self._repeats -= 1
            self._unusual = self._repeats > 0 or bool(self._gaps)
            return None
        id = self.next_id
        self.next_id = following(id)
        self._skip_gaps()
        return id

    @property
    def coming(self) -> Id:
        """The id of the command that comes next, for the first time or again."""
        return (self.next_id - self._repeats) & MASK

    @property
    def repeated(self) -> Id:
        """The id of the command for which `receive` has just returned None."""
        return preceding(self.coming)

    def interrupts(self, ids: SequenceSet) -> bool:
        """Return whether some of these are among the commands that come again: counting needs a new point then."""
        return self._repeats > 0 and bool(ids.within(self.coming, preceding(self.next_id)))

    def gap(self, ids: SequenceSet) -> None:
        """Note that these commands will never come, and count them as complete; those that came are not affected."""
        if not ids:
            return
        if distance(self.next_id, ids.last) > REACH:
            raise SequenceError(f"command {ids.last} is too far from {self.next_id}")
        self._gaps.update(ids.within(self.next_id, (self.next_id + REACH) & MASK))
        self._skip_gaps()

    def _skip_gaps(self) -> None:
        gaps = self._gaps
        while gaps and gaps.first == self.next_id:
            lower, upper = gaps.first_range
            self.next_id = following(upper)
            gaps.discard_until(self.next_id)
            self._complete_range(lower, upper)
        self._unusual = self._repeats > 0 or bool(gaps)

    # Completion.

    @property
    def mark(self) -> Id | None:
        """The execution mark: every command up to it is complete. None if the first is not."""
        return None if self.first_incomplete == self.floor else preceding(self.first_incomplete)

    def complete(self, id: Id) -> None:
        """Note that the command has been executed; do nothing if that is known."""
        if id == self.first_incomplete and not self._held and id != self.next_id:
            self.first_incomplete = (id + 1) & MASK
        else:
            self._complete_range(id, id)

    def complete_through(self, id: Id) -> None:
        """Note that all commands up to this one have been executed."""
        first = self.first_incomplete
        if (id - first) & MASK >= HALF:
            return
        if self._held or (id - first) & MASK >= (self.next_id - first) & MASK:
            self._complete_range(first, id)
        else:
            self.first_incomplete = (id + 1) & MASK

    def barrier(self, id: Id) -> None:
        """Note an execution.sync: the command is complete as soon as all before it are."""
        self._barriers.add(id)
        self._advance()

    def abnormal(self, id: Id) -> None:
        """Note that the command has ended abnormally: no mark passes it until a DUP has named it."""
        self._require_incomplete(SequenceSet.of_range(id, id))
        self._owed.add(id)
        self._held = True

    def dup(self, ids: SequenceSet) -> None:
        """Note that the peer is told something about these (DUP(ids)). Raises ValueError if any is complete."""
        self._require_incomplete(ids)
        self._owed = self._owed.without(ids)
        self._advance()

    def _require_incomplete(self, ids: SequenceSet) -> None:
        if not ids:
            return
        if is_before(ids.first, self.first_incomplete) or ids.without(self._ahead).count != ids.count:
            raise ValueError(f"of {ids} some are complete")
        if not is_before(ids.last, self.next_id):
            raise ValueError(f"of {ids} some have not come")

    def _complete_range(self, lower: Id, upper: Id) -> None:
        if not is_before(upper, self.next_id):
            raise ValueError(f"command {upper} has not come")
        if self._owed.within(lower, upper):
            raise ValueError(f"of {lower}-{upper} some still owe their outcome")
        if is_before(upper, self.first_incomplete):
            return
        if is_before(self.first_incomplete, lower):
            self._ahead.add_range(lower, upper)
            self._news += 1
        else:
            self.first_incomplete = following(upper)
        self._advance()

    def _advance(self) -> None:
        """Move first_incomplete past commands completed ahead, and past barriers that have become complete."""
        for ids in (self._ahead, self._barriers):
            ids.discard_until(self.first_incomplete)
        moved = True
        while moved:
            moved = False
            for ids in (self._ahead, self._barriers):
                if ids and ids.first == self.first_incomplete:
                    self.first_incomplete = following(ids.first_range[1])
                    ids.discard_until(self.first_incomplete)
                    moved = True
        self._held = bool(self._ahead or self._barriers or self._owed)

    # Reports to the peer.

    def sync(self, id: Id) -> None:
        """Note that the peer asked to be told when this command is complete."""
        if is_before(id, self.first_incomplete) or id in self._ahead:
            self._asked = True
        elif self._sync_point is None or is_before(self._sync_point, id):
            self._sync_point = id

    def due(self, every: int) -> bool:
        """Return whether to report: the peer asked; or there is news, and a sync waits, all is complete, or `every`."""
        if self._asked:
            return True
        if self._told == self.first_incomplete and not self._news:
            return False
        news = ((self.first_incomplete - self._told) & MASK) + self._news
        return self._sync_point is not None or self.first_incomplete == self.next_id or news >= every

    @property
    def untold(self) -> bool:
        """True if any command is complete that the peer was not told of."""
        return self._told != self.first_incomplete or self._news > 0

    def told(self) -> None:
        """Note that the peer is being told `completed` as it is now."""
        self._told = self.first_incomplete
        self._news = 0
        self._asked = False
        if self._sync_point is not None and is_before(self._sync_point, self.first_incomplete):
            self._sync_point = None

    def retell(self) -> None:
        """Report again, because the last reports may have been lost."""
        self._asked = bool(self.completed)

    @property
    def one_range(self) -> bool:
        """True if `completed` is [unknown_from, first_incomplete) and nothing else, and not empty."""
        return not self._held and not self._known and self.unknown_from != self.first_incomplete

    @property
    def completed(self) -> SequenceSet:
        """The complete commands that the peer is not known to know of: the unknown-completed set."""
        done = self._completed(self._ahead.range_count)
        return done.without(self._known) if self._known else done

    def completed_first(self, ranges: int) -> SequenceSet:
        """Return the first `ranges` ranges of `completed`; takes time for those only."""
        done = self._completed(ranges)
        return (done.without(self._known) if self._known else done).beginning(ranges)

    def _completed(self, ranges: int) -> SequenceSet:
        """Return complete commands, known or not: all before first_incomplete, and `ranges` ranges of those ahead."""
        if self.unknown_from != self.first_incomplete:
            done = SequenceSet.of_range(self.unknown_from, preceding(self.first_incomplete))
        else:
            done = SequenceSet()
        done.update(self._ahead.beginning(ranges))
        return done

    @property
    def rem(self) -> SequenceSet:
        """REM: the commands that are complete although some before them are not."""
        return self._ahead.copy()

    @property
    def received(self) -> SequenceSet:
        """The commands that have come and that the peer does not know to be complete."""
        if self.unknown_from == self.next_id:
            return SequenceSet()
        return SequenceSet.of_range(self.unknown_from, preceding(self.next_id))

    def known(self, ids: SequenceSet) -> None:
        """Note that the peer knows these commands to be complete. Those that are not complete are passed over."""
        if not ids:
            return
        if not self.begun or distance(self.next_id, ids.last) >= 0:
            raise SequenceError(f"command {ids.last} has not come, so it cannot be known to be complete")
        completed = self._completed(KNOWN_RANGES_MAX)
        self._known.update(completed.without(completed.without(ids)))
        if self._known and self._known.first == self.unknown_from:
            self.unknown_from = following(self._known.first_range[1])
            self._known.discard_until(self.unknown_from)
        if self._known.range_count > KNOWN_RANGES_MAX:
            self._known = SequenceSet()

    # Memory.

    @property
    def range_count(self) -> int:
        """The number of ranges that are kept, of complete ids, gaps and barriers: a measure of memory."""
        if not self._held and not self._unusual:
            return 0
        return self._ahead.range_count + self._gaps.range_count + self._barriers.range_count

    def forget(self) -> None:
        """Forget ids too far back to be compared; to be called once REACH ids lie between floor and next_id.

        Raises SequenceError if there are incomplete commands among them.
        """
        if (self.next_id - self.first_incomplete) & MASK > REACH // 2:
            raise SequenceError(f"command {self.first_incomplete} has been incomplete for too long")
        self.floor = (self.first_incomplete - REACH // 2) & MASK
        if is_before(self.unknown_from, self.floor):
            self.unknown_from = self.floor
            self._known.discard_until(self.floor)


class Sending:
    """The commands that go to a peer: complete before first_incomplete, perhaps complete up to next_id (`_ahead`)."""

    __slots__ = ("_ahead", "_updated", "first_incomplete", "next_id")

    def __init__(self, point: Id = 0) -> None:
        self.next_id = point
        self.first_incomplete = point
        self._ahead = SequenceSet()
        self._updated = SequenceSet()  # incomplete, and a DUP has named them

    def send(self) -> Id:
        """Count the command that is sent next (C(n)) and return its id."""
        id = self.next_id
        self.next_id = (id + 1) & MASK
        return id

    def dup(self, ids: SequenceSet) -> None:
        """Note that the peer tells something about these (DUP(ids)). Raises SequenceError if any is complete
        already."""
        self.require_sent(ids)
        incomplete = self._incomplete_of(ids)
        if incomplete.count != ids.count:
            raise SequenceError(f"of {ids} some are complete")
        self._updated.update(ids)
        if self._updated.range_count > UPDATED_RANGES_MAX:
            raise SequenceError("too many commands have results and are not complete")

    def rem(self, ids: SequenceSet) -> tuple[SequenceSet, SequenceSet]:
        """Mark these commands complete (REM(ids)).

        Returns the ids that were incomplete so far, and which of them no DUP had named: these have ended normally.
        """
        if ids.range_count == 1 and not self._ahead and not self._updated:  # 2 us instead of 6
            first = self.first_incomplete
            lower, upper = ids.first_range
            if (first - lower) & MASK < HALF and (upper - first) & MASK < (self.next_id - first) & MASK:
                self.first_incomplete = (upper + 1) & MASK
                ended = SequenceSet.of_range(first, upper)
                return ended, ended
        self.require_sent(ids)
        ended = self._incomplete_of(ids)
        self._ahead.update(ended)
        if self._ahead and self._ahead.first == self.first_incomplete:
            self.first_incomplete = following(self._ahead.first_range[1])
            self._ahead.discard_until(self.first_incomplete)
        normally = ended
        if self._updated:
            normally = ended.without(self._updated)
            self._updated = self._updated.without(ended)
        return ended, normally

    def require_sent(self, ids: SequenceSet) -> None:
        if ids and distance(self.next_id, ids.last) >= 0:
            raise SequenceError(f"command {ids.last} was never sent")

    def _incomplete_of(self, ids: SequenceSet) -> SequenceSet:
        if self.first_incomplete == self.next_id:
            return SequenceSet()
        open_ids = ids.within(self.first_incomplete, preceding(self.next_id))
        return open_ids.without(self._ahead) if self._ahead else open_ids

    @property
    def range_count(self) -> int:
        """The number of ranges that are kept, as for Execution."""
        return self._ahead.range_count + self._updated.range_count

    def forget(self) -> None:
        """Forget commands that the peer has not completed; to be called once REACH ids are open: no peer will by
        now."""
        self.first_incomplete = (self.next_id - REACH // 2) & MASK
        for ids in (self._ahead, self._updated):
            ids.discard_until(self.first_incomplete)
