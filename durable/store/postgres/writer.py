"""Write commits to PostgreSQL in a thread, each with one statement, and to the local copy while the database works.

    commit ──> pack ──> segments ──> statement is sent ──> local copy ──> (next commit: pack) ──> answer ──> durable
                                                                          no answer, or a warning: in doubt <──┘

While the thread has nothing to do, the journal's thread itself packs and sends a small commit, without waiting: the
database works while the thread is woken, which is what a client waits for that has its messages confirmed one by one.

A commit in doubt is neither done nor lost. The thread connects until it can, for as long as that takes, and gives a
beat, which waits for a commit that is on its way: once the beat is replicated, so is all before it, and its answer says
whether the commit is there. If not, the same is sent again. Nothing is confirmed before, and publishers are held back
meanwhile. If the row is of another epoch, this node is fenced.

While no commits come, a beat each second shows others that this node lives: on the same connection and by the same
thread as commits, so that a node that cannot commit cannot seem to live.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import Empty
from threading import Event
from time import monotonic
from typing import TYPE_CHECKING, Final

from leveret.durable.store import chunk
from leveret.durable.store.contract import Commit, FencedError, FullDatabaseError, NoSpaceError, StoreError
from leveret.durable.store.postgres import schema
from leveret.durable.store.postgres.arrays import INT64, bigint, boolean
from leveret.durable.store.postgres.parameters import (
    NARROW,
    Parameters,
    VolatileChunks,
    WritingRight,
    lasting,
    parts,
)
from leveret.durable.store.postgres.recent_commits import KEPT_OCTETS, RecentCommits
from leveret.durable.store.postgres.reserve import DatabaseReserve
from leveret.durable.store.postgres.session import (
    Database,
    Session,
    UnreachableError,
    boottime,
    owner_session,
)
from leveret.durable.store.postgres.source import AGAIN_S
from leveret.durable.store.wakeup import Wakeup
from leveret.durable.store.writer_thread import End, Soon, WriterThread

if TYPE_CHECKING:
    from leveret.durable.store.contract import Chunk
    from leveret.durable.store.postgres.scratch import Scratch
    from leveret.durable.store.segments import SegmentChange

log: Final = logging.getLogger("leveret.store")

BEAT_S: Final = 1.0  # without a commit, before the row is touched
SLOW_S: Final = 2.0  # that a commit may take before publishers are held back
SMALL: Final = 32  # messages, or changes of a kind, in a commit that the journal's thread sends
SMALL_OCTETS: Final = 32 << 10  # of their bodies
CLOSE_S: Final = 10.0  # for the last commit, while the database does not answer

NUMBERS_KEPT: Final = 256  # of the last commits, of which earlier ones are deleted as many at a time

TRUE: Final = boolean(True)
COMMIT_NAME: Final = b"write"
COMMIT: Final = "select {{s}}.commit({})".format(
    ", ".join(f"${at}::{kind}" for at, kind in enumerate(schema.PARAMETERS, 1))
)
BARRIER_NAME: Final = b"barrier"
BARRIER: Final = "select committed, replicated from {s}.barrier($1::text, $2::bigint, $3::text)"
NOT_REPLICATED: Final = (
    "the database has no synchronous standby (synchronous_standby_names is empty); store.postgres.require_replicated "
    "= false does without one"
)
CANCELLED: Final = "the database did not wait for its standby, although it should have"
SLOW: Final = f"the database, or its synchronous standby, has not answered for {SLOW_S:.0f} s"
LACKS: Final = "it lacks commits that were confirmed"
TAKEN: Final = "another node has taken over: this one confirms nothing more"


class Sent:
    """A commit on its way: encoded once, however often it is sent."""

    __slots__ = ("change", "commit", "is_written", "made", "parts", "sent_at")

    def __init__(
        self,
        commit: Commit,
        made: list[Chunk],
        change: SegmentChange | None,
        parts: list[Parameters],
    ) -> None:
        self.commit = commit
        self.made = made
        self.change = change
        self.parts = parts  # a statement each; empty: the database has them, or needs nothing of the commit
        self.is_written = False  # in the local copy
        self.sent_at = 0.0  # when the journal's thread has sent it, in seconds of `boottime`; or 0


def is_small(commit: Commit) -> bool:
    """Return whether a commit takes so little time to be encoded that all clients can wait for that."""
    if commit.changes_segments or commit.replaced:
        return False
    if max(len(commit.objects), len(commit.settled), len(commit.marks), len(commit.dropped)) > SMALL:
        return False
    sizes = [message.size for each in commit.chunks for message in each.messages[: SMALL + 1]]
    return len(sizes) <= SMALL and sum(sizes) <= SMALL_OCTETS


def _need_little(made: list[Parameters]) -> None:
    """Have commits add no row for their number, for which a page might be wanting."""
    for each in made:
        each[NARROW] = TRUE


class PostgresWriter(WriterThread):
    """The thread that writes one shard in one epoch."""

    def __init__(
        self,
        database: Database,
        right: WritingRight,
        scratch: Scratch,
        session: Session,
        requires_standby: bool,
        closing: Event,
    ) -> None:
        super().__init__()
        self._database = database
        self._right = right
        self._identity = [right.shard.encode(), bigint(right.epoch), right.claim.encode()]
        self._scratch = scratch
        self._session = session
        self._requires_standby = requires_standby
        self._volatile = VolatileChunks()
        self.reserve = DatabaseReserve(self._opened)
        self._fill_at = (
            monotonic() + BEAT_S
        )  # when the reserve is looked after, also if commits come all the time
        # With a synchronous standby a promotion loses nothing, unless a wrong server is promoted.
        self.recent = RecentCommits(0 if requires_standby else KEPT_OCTETS)
        self._encoded: list[Sent] = []  # in order: those that are not written yet, and may be given again
        self._taken: Commit | End | None = None  # the next order, which was taken to be encoded
        self._numbered_from = 1  # the first number of a commit of this epoch that was not told to be deleted
        self._refused = 0  # number of the commit that had no space: none is written before it; or 0
        self._wakeup = Wakeup()
        self._given = 0  # orders to write a commit
        self._obeyed = -1  # orders that the writer is done with; -1: it has not begun
        self._is_waiting = False  # for the database, so that the next commit can be encoded
        self._stalled_for: str | None = None  # what was told last
        self._close_at = float("inf")
        self.in_doubt = 0  # answers that were not clear, or did not come
        self.renewed_at = boottime()  # when that was sent; others cannot have seen it earlier
        self._closing = closing

    # Called by the journal's thread.

    def start(
        self,
        soon: Soon,
        durable: Callable[[int], None],
        failed: Callable[[Exception], None],
        stalled: Callable[[str | None], None],
    ) -> None:
        """Take commits from now on."""
        self._soon, self._durable, self._failed_with, self._stalled = soon, durable, failed, stalled
        self._thread.start()

    def put(self, commit: Commit) -> None:
        """Have a commit written, as of any writer. A small one is sent at once if the thread has nothing to do.

        The database works then, while the thread is woken.
        """
        self._given += 1
        if not self._turn.acquire(blocking=False):
            super().put(commit)
            if self._is_waiting:
                self._wakeup.wake()
            return
        try:
            # The thread may have taken an order, and not have begun with it: what comes next comes after that.
            if self._given == self._obeyed + 1 and not self._refused and is_small(commit):
                self._send_at_once(commit)
            super().put(commit)
        finally:
            self._turn.release()

    def _send_at_once(self, commit: Commit) -> None:
        """Encode and send a commit without waiting. What fails is tried again, and told, by the thread."""
        try:
            sent = self._encode(commit, False)
            if len(sent.parts) == 1 and self._session.is_prepared(COMMIT_NAME):
                self._session.was_doubtful()
                at = boottime()
                self._session.begin(COMMIT_NAME, sent.parts[0])
                sent.sent_at = at
        except (NoSpaceError, StoreError, UnreachableError):
            pass

    def end(self, last: Commit | None) -> None:
        """Write all that was put, and the last commit, and end the thread. Raises StoreError.

        What cannot be written within `CLOSE_S` is given up; without a last commit, at once.
        """
        self._close_at = monotonic() + (CLOSE_S if last is not None else 0.0)
        super().end(last)

    def let_go(self) -> None:
        """Close the connection, once the thread has ended, or was never started."""
        self._session.close()
        self._wakeup.close()

    # The thread.

    def _begin(self) -> None:
        self._beat()  # from here on the shard counts as not closed properly

    def _next(self) -> Commit | End:
        """Return the next order; while there is none, maintain the local copy, and show that this node lives.

        Between two commits that clients wait for, one after the other, maintenance would hold up the second.
        """
        self._obeyed += 1
        if self._taken is not None:
            order, self._taken = self._taken, None
            return order
        more, wait_s = True, BEAT_S
        while True:
            if (given := self._wait(wait_s)) is not None:
                return given
            more = more and self._scratch.look_after()
            wait_s = 0 if more else BEAT_S
            if boottime() - self.renewed_at >= BEAT_S:
                self._beat()
                self._look_after_reserve()

    def _keep(self, commit: Commit) -> None:
        """Write a commit, and report the outcome; not one that comes after one that had no space. Raises StoreError."""
        number, durable, failed = commit.number, self._durable, self._failed_with
        if 0 < self._refused < number:
            return
        try:
            self._write(commit, False)
        except NoSpaceError as error:
            short = error
            self._refused = number
            self._soon(lambda: failed(short))
            return
        self._refused = 0
        self.commits += 1
        self._soon(lambda: durable(number))
        if not self.reserve.is_whole and monotonic() >= self._fill_at:
            self._look_after_reserve()

    def _look_after_reserve(self) -> None:
        """Fill a part of the reserve, a second after the one before: it holds commits up for some 50 ms."""
        self._fill_at = monotonic() + BEAT_S
        with suppress(UnreachableError):  # the next commit, or beat, finds that out
            self.reserve.look_after(monotonic())

    def _finish(self, last: Commit) -> None:
        """Write the last commit, and with it the note that the shard was closed properly, and has no owner."""
        try:
            self._write(last, True)
        except (NoSpaceError, StoreError) as error:
            self._failed = StoreError(f"the store could not be closed properly: {error}")

    # Commit.

    def _write(self, commit: Commit, is_last: bool) -> None:
        """Write a commit here and there, all or nothing. Raises NoSpaceError, StoreError."""
        sent = self._encode(commit, is_last)
        if not sent.parts:
            self._write_copy(sent)
        else:
            is_sure = False
            while not is_sure:
                try:
                    is_sure = self._commit(sent)
                except FullDatabaseError:
                    if not self._has_lent_to(sent):
                        raise
                except UnreachableError as error:
                    self._tell(str(error))
                    is_sure = self._is_there(commit.number)
            messages = sum([len(each) for each in commit.chunks if not each.volatile])
            self.recent.add(commit.number, sent.parts, messages)
            sent.parts = []
            self._write_copy(sent)
            self._tell(None)
        self._encoded.remove(sent)

    def _has_lent_to(self, sent: Sent) -> bool:
        """Give up a part of the reserve for a commit that found no room, and return whether there was one."""
        _need_little(sent.parts)
        try:
            return self.reserve.give_up_part(monotonic())
        except UnreachableError:
            return True  # the commit finds that out, too

    def _encode(self, commit: Commit, is_last: bool) -> Sent:
        """Return a commit encoded, once, however often it is given. Raises NoSpaceError, StoreError."""
        for sent in self._encoded:
            if sent.commit is commit:
                return sent
        sent = self._encoded_anew(commit, is_last)
        self._encoded.append(sent)
        return sent

    def _encode_next(self) -> None:
        """Encode the next commit, if there is one, while the database works on the one before.

        Files of segments are written in the order of commits: one that changes them waits until those are.
        """
        if self._taken is None:
            with suppress(Empty):
                self._taken = self._orders.get_nowait()
        following = self._taken
        if isinstance(following, Commit) and not following.changes_segments:
            self._encode(following, False)

    def _encoded_anew(self, commit: Commit, is_last: bool) -> Sent:
        made = [chunk.pack(entries) for entries in commit.chunks]
        change, blocks = self._scratch.write_segments(commit)
        wanted, kept = lasting(commit, made, self._volatile)
        if not (wanted or kept or change is not None or is_last):
            return Sent(commit, made, change, [])
        old = self._old_numbers(commit.number)
        made_parts = parts(self._right, wanted, kept, change, blocks, is_last, old)
        if self.reserve.is_short:
            _need_little(made_parts)
        return Sent(commit, made, change, made_parts)

    def _old_numbers(self, number: int) -> Sequence[int]:
        """Return the first and the last number of earlier commits that are to be deleted now, if any are."""
        first, last = self._numbered_from, number - NUMBERS_KEPT
        if last - first < NUMBERS_KEPT:
            return ()
        self._numbered_from = last + 1
        return first, last

    def _write_copy(self, sent: Sent) -> None:
        if not sent.is_written:
            self._scratch.write_rows(sent.commit, sent.made, sent.change)
            sent.is_written = True
            sent.made = []

    def _commit(self, sent: Sent) -> bool:
        """Send a commit once. Return whether it is safe. Raises UnreachableError: it is in doubt; and as `_write`."""
        session, sent_at = self._session, sent.sent_at
        if not sent_at:
            sent_at = boottime()
            session.was_doubtful()

        def waiting() -> None:
            self._look()
            if boottime() - sent_at > SLOW_S:
                self._tell(SLOW)

        try:
            row = (
                self._ask(session, sent, waiting)
                if len(sent.parts) == 1
                else self._transact(session, sent.parts, waiting)
            )
        except UnreachableError:
            self.in_doubt += 1
            raise
        self.renewed_at = sent_at
        if not self._is_safe(session, row == [TRUE]):
            return self._is_there(sent.commit.number, session)
        return True

    def _ask(self, session: Session, sent: Sent, waiting: Callable[[], None]) -> list[bytes | None] | None:
        if sent.sent_at:
            sent.sent_at = 0.0  # another time this thread sends it
            session.flush(waiting)
        else:
            session.prepare(COMMIT_NAME, COMMIT)
            session.send(COMMIT_NAME, sent.parts[0], waiting)
        with suppress(NoSpaceError):  # it is tried again, and told, once the database has answered
            self._write_copy(sent)  # while the database works

        def looking() -> None:
            waiting()
            self._encode_next()

        self._is_waiting = True
        self._encode_next()
        try:
            return session.answer(looking, self._wakeup)
        finally:
            self._is_waiting = False

    def _transact(
        self, session: Session, made: Sequence[Parameters], waiting: Callable[[], None]
    ) -> list[bytes | None] | None:
        """Send a commit that is too large for one statement, as a transaction. Raises as `_commit` does."""
        row = None
        try:
            for name in (b"begin", *[COMMIT_NAME] * len(made), b"commit"):
                session.prepare(name, COMMIT if name == COMMIT_NAME else name.decode())
            session.send(b"begin", [], waiting)
            session.answer(waiting)
            for part in made:
                session.send(COMMIT_NAME, part, waiting)
                row = session.answer(waiting)
            session.send(b"commit", [], waiting)
            session.answer(waiting)
        except (NoSpaceError, StoreError):
            session.close()  # which ends the transaction; the next statement connects anew
            raise
        return row

    def _is_safe(self, session: Session, replicated: bool) -> bool:
        """Return whether what was answered is on a standby, too, as far as that is required."""
        cause = NOT_REPLICATED if self._requires_standby and not replicated else None
        cause = CANCELLED if session.was_doubtful() else cause
        if cause is not None:
            self.in_doubt += 1
            self._tell(cause)
            return False
        return True

    # Doubt.

    def _beat(self) -> None:
        """Show that this node lives, and notice whether it is fenced. Raises StoreError."""
        self._is_there(-1, self._session)
        self._tell(None)

    def _is_there(self, number: int, session: Session | None = None) -> bool:
        """Return whether a commit is in the database and safe, as is all before it, however long that takes.

        `session` is one that is whole; without it there is a new one. Raises StoreError, FencedError.
        """
        while True:
            try:
                if session is None:
                    session = self._connected()
                session.was_doubtful()
                session.prepare(BARRIER_NAME, BARRIER)
                sent_at = boottime()
                session.send(BARRIER_NAME, self._identity, self._look)
                row = session.answer(self._look)
                if row is None:
                    self._look_for_claim(session)
                    raise FencedError(TAKEN)
                self.renewed_at = sent_at
                self._mend(session, INT64.unpack(row[0] or bytes(INT64.size))[0])
                if self._is_safe(session, row[1] == TRUE):
                    return row[0] == bigint(number)
            except (UnreachableError, NoSpaceError) as error:
                self._tell(str(error))
                session = None
            self._look()
            self._closing.wait(AGAIN_S)

    def _mend(self, session: Session, last: int) -> None:
        """Write the commits again that a promoted server lacks, the last of which it has is `last`.

        Raises UnreachableError, NoSpaceError, StoreError.
        """
        recent = self.recent
        if last >= recent.last:
            return
        recent.note_loss(last)
        self._tell(LACKS)
        for _, made in recent.after(last):
            if len(made) == 1:
                session.prepare(COMMIT_NAME, COMMIT)
                session.send(COMMIT_NAME, made[0], self._look)
                session.answer(self._look)
            else:
                self._transact(session, made, self._look)
        recent.note_rewritten(last)

    def _look_for_claim(self, session: Session) -> None:
        """Log where the database has forgotten the takeover of this node, with all that came after it."""
        row = session.row("select epoch from {s}.shard where id = %s", self._right.shard)
        if row is not None and int(str(row[0])) < self._right.epoch:
            log.critical(
                "the database has forgotten that this node took over in epoch %d, and all that was confirmed since, up "
                "to commit %d: a server was promoted that had not got them",
                self._right.epoch,
                self.recent.last,
            )

    def _connected(self) -> Session:
        """Connect anew. Raises UnreachableError."""
        self._session.close()
        self._session = self._opened()
        return self._session

    def _opened(self) -> Session:
        """Return a new connection. Raises UnreachableError."""
        return owner_session(self._database, self._right.shard, self._right.epoch)

    def _look(self) -> None:
        """Called while the database is waited for. Raises StoreError once the store is to be closed."""
        if monotonic() >= self._close_at:
            raise StoreError("the database did not answer in time")

    def _tell(self, cause: str | None) -> None:
        """Report why commits wait, or that they go on, where that has changed."""
        if cause != self._stalled_for:
            if cause is None or self._stalled_for is None:
                stalled = self._stalled
                self._soon(lambda: stalled(cause))
            else:
                log.warning("the database: %s", cause)
            self._stalled_for = cause
