"""Write commits in a thread: each is a transaction, synced; in between the files are kept small.

    commit ──> pack ──> segments ──> meta.db: objects ──> messages.db ──> meta.db: removed objects ──> durable

What is appended to streams counts only once messages.db says so (segments.py); then files that are not needed are
deleted. A commit with objects and messages takes a transaction for each, because a queue must be there before its
messages are, and as long as they are: they may move elsewhere in the commit that removes it. A crash between two of
them leaves objects, new ones or removed ones, and nobody was told of either.

Most commits go to the redo log instead (`redo_log.py`): one write, one sync. What is left of them after some MiB is
written to messages.db in one transaction, and before anything else is: by then most of it has been consumed.

SQLite's log is copied into the database when it has grown by some MiB, or when no commits come, and then reused. Pages
that became free are given back to the file system in small steps: when no commits come, and sparingly under load if
half of the file is free.

Where the disk has no room for a commit, or to copy the log, the reserve for draining has: what it gives up goes to the
file that needs it (`Reserve.lend`), and the commit is written once more. From then on the store is short, until what
consumers have taken is given back and the reserve is allocated again. So that this suffices, even if others fill the
disk at once, the log is kept short where there is little room, little is gathered (`ahead_max`), and log and database
have room for it before it is written (`_take_ahead`).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from queue import Empty
from time import monotonic
from typing import Final

import attrs

from broker_core.store import chunk, commit_statement, salvage
from broker_core.store.contract import UNLIMITED, Chunk, Commit, NoSpaceError, StoreError
from broker_core.store.database import (
    CLOSED,
    LOGGED,
    PAGE_OCTETS,
    WAITING,
    DatabaseState,
    copied,
    cut,
    failure,
    file_of,
    flags_of,
    is_damage,
    is_want_of_files,
    is_want_of_room,
    pages_of,
    say,
    set_flags,
)
from broker_core.store.logged_changes import LoggedChanges, define, put_aside
from broker_core.store.mark import has_waiting
from broker_core.store.redo_log import ReadLog, RedoLog, octets_of
from broker_core.store.redo_policy import RedoPolicy
from broker_core.store.reserve import STEP_OCTETS, Reserve
from broker_core.store.segments import SegmentChange, Segments
from broker_core.store.wal_tail import log_of
from broker_core.store.writer_thread import End, Soon, WriterThread

LOG_OCTETS: Final = 4 << 20  # of the log, before it is copied: with 32 MiB p99 of a commit is 5 times as long
LOG_OCTETS_MAX: Final = (
    4 * LOG_OCTETS
)  # then it is truncated; reusing it takes half as long as letting it grow
COMMIT_OCTETS: Final = 8 * PAGE_OCTETS  # of the log that a commit takes besides its chunks, about
IDLE_S: Final = 1.0  # without a commit, before the files are maintained
FREE_PAGES: Final = 1024  # not given back: they will be needed again
PORTION_CHUNKS: Final = 64  # deleted at a time where there is no room to delete all that a commit says
STEP_PAGES: Final = 256  # given back at a time: 25 ms
TRICKLE_PAGES: Final = 32  # under load: 3 ms, at most every
TRICKLE_S: Final = 0.05
DRAIN_SHARE: Final = 8  # part of the reserve that a log may take, and a commit, which one turn may exceed,
AT_ONCE: Final = 16  # times the reserve may be filled by others before that is noticed;
ROOM_SHARE: Final = 32  # and this part of the room beyond
KEPT_SHARE: Final = 4  # part of the reserve that a log keeps while the store is short
LOOK_SHARE: Final = 16  # part of the room that is written before it is looked at again


class Writer(WriterThread):
    """Writes through one connection to each database, the only ones that write."""

    def __init__(
        self,
        messages: sqlite3.Connection,
        meta: sqlite3.Connection,
        aside: set[int],
        segments: Segments,
        reserve: Reserve,
        drain: Reserve,
        redo: RedoLog,
        redo_octets: int = 0,
    ) -> None:
        """`reserve` is room for a start, and `drain` for commits that make room.

        `redo_octets` of the redo log are filled before it is written to the database; with 0 it is only read.
        """
        super().__init__()
        self._redo = redo
        self._policy = RedoPolicy(redo_octets)
        self.logged = LoggedChanges()  # that are in the redo log only; readers look into it
        self._messages = messages
        self._meta = meta
        self._aside = aside  # chunks that cannot be deleted; shared with readers
        self._segments = segments
        self._reserve = reserve
        self._drain = drain
        self.room = (
            UNLIMITED  # bytes that can be written, with the reserve for draining, when they were last counted
        )
        self._unseen = 0  # bytes written since then, about
        self._seen_at = 0.0
        self._state: DatabaseState
        self._log_octets = self._meta_octets = 0  # bytes in the logs since they were copied; about
        self._trickled_at = 0.0
        self._removing: Commit | None = None  # all of it is written but for the removal of objects,
        self._removing_change: SegmentChange | None = None  # and this is what it did to segments
        self.shrinks = True  # whether free pages are given back
        self._flags = 0  # of the format of messages.db
        self._is_fenced = False  # each transaction checks that this node may still write

    # Called by the journal's thread.

    def start(
        self,
        state: DatabaseState,
        soon: Soon,
        durable: Callable[[int], None],
        failed: Callable[[Exception], None],
    ) -> None:
        """Write `state` to disk, then take commits. Raises StoreError."""
        self._soon, self._durable, self._failed_with = soon, durable, failed
        self.begin(state)
        self._fill()
        self._look_at_room()
        self._thread.start()

    def begin(self, state: DatabaseState) -> None:
        """Write `state` to disk, and be ready to write commits. Raises StoreError."""
        self._state, self._is_fenced = state, True
        try:
            self._messages.execute("begin immediate")
            say(self._messages, state)
            self._messages.execute("commit")
            define(self._messages)
            self._mend()
            self._take_over()
            self._copy_logs()  # a messages.db whose log is lost tells by itself that it was in use
            if self.shrinks:  # otherwise a file without a row may be all that is left of something damaged
                self._segments.tidy()
        except (OSError, sqlite3.Error) as error:
            raise StoreError(str(failure(error, "the store cannot be started"))) from None

    def recover(self, state: DatabaseState) -> ReadLog:
        """Write what the redo log has to the database, before that is read, and return what it had.

        Raises OSError, sqlite3.Error, NoSpaceError, StoreError.
        """
        self._state = state
        define(self._messages)
        self._flags = flags_of(self._messages)
        with self._locked():
            found = self._redo.take()
        self.logged = found.changes
        self._write_in_need(Commit(0), state)
        return found

    def _take_over(self) -> None:
        """Find out whether another node has written to the redo log since `recover`, in spite of the folder's lock.

        If it does from now on, it finds a new epoch in the database, or a new claim in the log. Raises OSError,
        sqlite3.Error, StoreError.
        """
        with self._locked():
            self._flags = flags_of(self._messages)
            if not self._flags & LOGGED:
                self._redo.remove()  # a power cut has brought it back, and perhaps not all of it
            elif self._redo.take().commits:
                raise StoreError(commit_statement.FENCED)

    def _mend(self) -> None:
        """Write damaged rows again. Raises sqlite3.Error."""
        if self._segments.mended is None:
            return
        rows = commit_statement.rows_of(Commit(0), [], self._state.epoch, change=self._segments.mended)
        try:
            self._messages.execute(commit_statement.DO, rows[0])
        except sqlite3.Error as error:
            if not is_damage(error):
                raise  # damage stays, and is found again at the next start

    # In the calling thread, instead of `start`, `put` and `end`.

    def write_segments(self, commit: Commit) -> SegmentChange | None:
        """Write the files of segments. Raises NoSpaceError, StoreError."""
        try:
            return self._write_segments(commit)
        except Exception as error:
            raise self._given_up(error) from error

    def write_rows(self, commit: Commit, made: list[Chunk], change: SegmentChange | None) -> None:
        """Write the rest, with the packed chunks, and keep the files small. Raises NoSpaceError, StoreError."""
        try:
            self._write_rows(commit, made, self._state, change)
        except Exception as error:
            raise self._given_up(error) from error
        self.commits += 1
        self._remove(change)
        self._keep_small()

    def fill(self, bodies: Sequence[tuple[bytes, int]]) -> None:
        """Write the messages of chunks that have none yet. Raises NoSpaceError, StoreError."""
        try:
            self._messages.execute("begin immediate")
            self._messages.executemany(
                "update chunks set messages = ? where first = ? and length(messages) = 0", bodies
            )
            self._messages.execute("commit")
        except sqlite3.Error as error:
            raise self._given_up(error) from error
        self._log_octets += sum(len(octets) for octets, _ in bodies)

    # The thread.

    def _next(self) -> Commit | End:
        """Return the next order; while there is none, maintain the files."""
        wait_s: float | None = IDLE_S
        while True:
            try:
                return self._orders.get(timeout=wait_s)
            except Empty:
                wait_s = 0 if self.look_after() else IDLE_S if self.is_short else None

    def _keep(self, commit: Commit) -> None:
        """Write a commit, and report the outcome. Raises StoreError."""
        number, durable, failed = commit.number, self._durable, self._failed_with
        try:
            change = self._write_in_need(commit, self._state)
        except NoSpaceError as error:
            short = error
            self._soon(lambda: failed(short))
            return
        self.commits += 1
        self._soon(lambda: durable(number))
        self._remove(change)
        self._keep_small()

    def _finish(self, last: Commit) -> None:
        """Write the last commit, and in the same transaction the note that the store was closed properly."""
        try:
            self._remove(self._write_in_need(last, attrs.evolve(self._state, ended=CLOSED)))
            self._end_log()
            self._copy_logs()
            cut(self._messages)
            cut(self._meta)
        except (NoSpaceError, StoreError) as error:
            self._failed = StoreError(f"the store could not be closed properly: {error}")
        except (OSError, sqlite3.Error):
            pass  # the commit is in the log, and durable; the next start copies it

    def _end_log(self) -> None:
        """Delete the redo log, which is empty, so that versions from before it can open the folder.

        Raises OSError, sqlite3.Error.
        """
        if self._flags & LOGGED:
            self._flags &= ~LOGGED
            set_flags(self._messages, self._flags)
        self._redo.remove()

    # Commit.

    def _write_in_need(self, commit: Commit, state: DatabaseState) -> SegmentChange | None:
        """Write a commit, with the reserve for draining if nothing else is left. Raises NoSpaceError, StoreError."""
        try:
            return self._write(commit, state)
        except NoSpaceError as error:
            if is_want_of_files(error.__cause__):
                raise
            self._drain.need()
            if self._copy_logs():
                with suppress(NoSpaceError):
                    return self._write(commit, state)
            for _ in range(DRAIN_SHARE):
                if not self._lend_to_logs(commit):
                    break
                with suppress(NoSpaceError):
                    return self._write(commit, state)
            if not self._drop_in_portions(commit):
                raise
            return self._write(commit, state)

    def _drop_in_portions(self, commit: Commit) -> bool:
        """Delete chunks of a commit that brings nothing, each portion in a transaction, so that the log stays short.

        To delete a chunk writes a few pages for each MiB, which is more than any reserve if a queue was as large as a
        disk. If the node is killed meanwhile, a part of that queue may be there again. Returns whether any were.
        Raises NoSpaceError, StoreError.
        """
        brings = bool(commit.chunks or commit.replaced or commit.appends)
        before = len(commit.dropped)
        while not brings and len(commit.dropped) > PORTION_CHUNKS:
            portion = Commit(commit.number)
            portion.dropped = commit.dropped[:PORTION_CHUNKS]
            self._write(portion, self._state)
            del commit.dropped[:PORTION_CHUNKS]
            self._copy_logs()
        return len(commit.dropped) < before

    def _lend_to_logs(self, commit: Commit) -> bool:
        """Lend a part of the reserve to the logs, and give up another for segments. Return whether there was any."""
        if not self._drain.left:
            return False
        share = self._drain.octets // DRAIN_SHARE
        if commit.appends:
            self._drain.give_up(share)
        self._lend_to_log(self._messages, share)
        self._lend_to_log(self._meta, STEP_OCTETS)
        return True

    def _lend_to_log(self, database: sqlite3.Connection, octets: int) -> None:
        """Have a log grow by some bytes, if it can."""
        with suppress(OSError, sqlite3.Error):
            log = log_of(file_of(database))
            self._drain.lend(log, log.stat().st_size + octets)

    def _lend_to_database(self, database: sqlite3.Connection) -> bool:
        """Have a database grow to what it will be when its log is copied, and return whether it could.

        SQLite writes the pages into that, and knows from the log how many there are, so that a crash in between does
        no harm. Raises sqlite3.Error.
        """
        return self._drain.lend(file_of(database), pages_of(database) * PAGE_OCTETS)

    @property
    def is_short(self) -> bool:
        """Return whether the reserve for draining was needed, and is not whole again."""
        return self._drain.is_given_up

    @property
    def ahead_max(self) -> int:
        """The most bytes that are gathered, and that the log may have."""
        reserved = 0 if self.is_short else self._drain.octets
        beyond = self.room - reserved - AT_ONCE * self._drain.octets
        return reserved // DRAIN_SHARE + max(0, beyond) // ROOM_SHARE

    def _fill(self) -> None:
        self._reserve.fill()
        self._drain.fill()

    def _take_ahead(self, octets: int = 0) -> bool:
        """Allocate room for a log, and for a commit with so many bytes, where there is little.

        Others may take all that is left, at any moment, and most of what the reserve gives up then. When SQLite copies
        a log, it cuts off what the database does not use. Returns whether there was enough. Raises sqlite3.Error.
        """
        if self._log_max >= LOG_OCTETS:
            return True
        has_all = True
        ahead = 2 * (self._drain.octets // DRAIN_SHARE + octets)
        for database, more in ((self._messages, ahead), (self._meta, STEP_OCTETS)):
            file = file_of(database)
            for grows, size in ((log_of(file), more), (file, pages_of(database) * PAGE_OCTETS + more)):
                has_all = self._drain.grow(grows, size) and has_all
        return has_all

    def _keep_room(self, octets: int) -> None:
        """See to it that a commit with so many bytes can be copied from the log, too: or nothing could be any more.

        Raises sqlite3.Error.
        """
        if octets and not self._take_ahead(octets):
            self._look_at_room()
        if self._fits(octets):
            return
        self._look_at_room()
        if self._fits(octets):
            return
        self._copy_logs()
        self._take_ahead(octets)
        self._look_at_room()
        if not self._fits(octets):
            self._drain.need()

    def _fits(self, octets: int) -> bool:
        free = self.room - self._unseen - (0 if self.is_short else self._drain.octets)
        return not octets or self._log_octets + 2 * octets <= free

    def _copy_logs(self) -> bool:
        """Copy the logs if there is room for that, so that they are used again. Raises StoreError."""
        try:
            for database in (self._messages, self._meta):
                self._copy(database)
        except sqlite3.Error as error:
            self._see_to(error)
            return False
        self._log_octets = self._meta_octets = 0
        return True

    def _copy(self, database: sqlite3.Connection) -> int:
        """Copy a log, at the reserve's expense if need be, and return its bytes. Raises sqlite3.Error."""
        try:
            return copied(database)
        except sqlite3.Error as error:
            if not (is_want_of_room(error) and self._lend_to_database(database)):
                raise
        return copied(database)

    def _look_at_room(self) -> None:
        """Count the room that is left, if enough was written since the last time, or long enough ago."""
        self._unseen, self._seen_at = 0, monotonic()
        self.room = self.measure_room()

    def measure_room(self) -> int:
        """Return the bytes that can be written, with the reserve for draining. Called from any thread."""
        free = self._drain.free()
        return UNLIMITED if free is None else free + self._drain.left

    def _write(self, commit: Commit, state: DatabaseState) -> SegmentChange | None:
        """Write a commit to disk, all or nothing, and return the changes of segments. Raises NoSpaceError, StoreError.

        Where only the removal of objects found no room, the rest is there, and is not written again.
        """
        try:
            if commit is self._removing:
                made, change = [], self._removing_change
            else:
                made = [chunk.pack(entries) for entries in commit.chunks]
                if state is self._state and self._has_logged(commit, made):
                    return None
                self._write_logged()
                if state is self._state and not commit:
                    return None
                self._keep_room(sum(each.octets for each in made))
                change = self._write_segments(commit)
            self._write_rows(commit, made, state, change)
        except Exception as error:
            raise self._given_up(error) from error
        return change

    # Redo log.

    def _has_logged(self, commit: Commit, made: list[Chunk]) -> bool:
        """Write a commit to the redo log, if it is one for that. Raises OSError, sqlite3.Error, StoreError."""
        if not self._policy.suits(commit) or self.is_short or self._log_max < LOG_OCTETS:
            return False
        octets = octets_of(commit, made)
        if not (self._fits(self.logged.octets + octets) and self._policy.is_worth_it(octets)):
            return False
        if self._redo.is_over or self._policy.is_full(self._redo.octets + octets, self.logged):
            self._write_logged()
        if not self._redo.octets:
            self._begin_round()
        self._redo.append(commit, made)
        self._check_claim()
        self.logged.add(commit, made)
        self._unseen += octets + COMMIT_OCTETS
        return True

    def _begin_round(self) -> None:
        """Begin a round of the redo log. Raises OSError, sqlite3.Error, StoreError."""
        if not self._flags & LOGGED:
            with self._owning():
                self._redo.create()
            self._need(LOGGED)
        with self._owning():
            self._redo.begin()

    def _write_logged(self) -> None:
        """Write what is in the redo log to the database, and end its round.

        Raises OSError, sqlite3.Error, StoreError.
        """
        logged = self.logged
        if logged:
            self._keep_room(logged.octets)
            try:
                self._write_changes([])
            except sqlite3.Error as error:
                undeletable = self._undeletable([*logged.dropped]) if is_damage(error) else []
                if not undeletable:
                    raise
                self._write_changes(undeletable)
            self._log_octets += logged.octets + COMMIT_OCTETS
            self._unseen += logged.octets + COMMIT_OCTETS
        self._policy.learn(logged)
        logged.clear()  # it is in the database, even if there is no room to say that the round has ended
        if self._redo.octets:
            with self._owning():
                self._redo.end()

    def _write_changes(self, undeletable: list[int]) -> None:
        """Write the logged changes in a transaction; `undeletable` chunks stay, ignored. Raises sqlite3.Error."""
        logged = self.logged
        if logged.waits:
            self._need(WAITING)
        self._messages.execute("begin immediate")
        self._check_epoch()
        logged.write(self._messages, undeletable, again=not self._is_fenced)
        self._messages.execute("commit")
        self._aside.update(undeletable)

    def _need(self, flag: int) -> None:
        """Have the database say that it needs a version that knows this. Raises sqlite3.Error."""
        if not self._flags & flag:
            set_flags(self._messages, self._flags | flag)
            self._flags |= flag

    def _check_epoch(self) -> None:
        """Check that this node may still write. Raises sqlite3.Error."""
        if self._is_fenced:
            self._messages.execute(
                commit_statement.DO, commit_statement.rows_of(Commit(0), [], self._state.epoch)[0]
            )

    def _check_claim(self) -> None:
        """Check that no other node has taken the redo log. Raises StoreError."""
        if not self._redo.is_ours:
            raise StoreError(commit_statement.FENCED)

    @contextmanager
    def _owning(self) -> Iterator[None]:
        """Lock the database for other nodes, having checked that none has taken the folder.

        Raises sqlite3.Error, StoreError.
        """
        with self._locked():
            self._check_epoch()
            self._check_claim()
            yield

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Lock the database for other nodes; what is written to it meanwhile is dropped. Raises sqlite3.Error."""
        self._messages.execute("begin immediate")
        try:
            yield
        finally:
            if self._messages.in_transaction:
                self._messages.execute("rollback")

    def _write_rows(
        self, commit: Commit, made: list[Chunk], state: DatabaseState, change: SegmentChange | None
    ) -> None:
        """Write all but segment files; what is there already is not written again. Raises sqlite3.Error."""
        if commit is not self._removing:
            self._write_kept(commit, made, state, change)
            self._removing, self._removing_change = commit, change
        if late := _late(commit):
            self._write_objects(late)
        self._removing = self._removing_change = None

    def _write_kept(
        self, commit: Commit, made: list[Chunk], state: DatabaseState, change: SegmentChange | None
    ) -> None:
        """Write all but segment files and the removal of objects. Raises sqlite3.Error."""
        try:
            self._write_packed(commit, made, state, [], change)
        except sqlite3.Error as error:
            firsts = [*commit.dropped, *(first for gone, _ in commit.replaced for first in gone)]
            undeletable = self._undeletable(firsts) if is_damage(error) else []
            if not undeletable:
                raise
            self._write_packed(commit, made, state, undeletable, change)
        if change is not None:
            self._segments.landed(change)
        octets = sum(each.octets for each in made)
        self._log_octets += octets + COMMIT_OCTETS
        self._unseen += octets + COMMIT_OCTETS if change is None else self.room

    def _write_segments(self, commit: Commit) -> SegmentChange | None:
        """Write the files of segments. Raises OSError, sqlite3.Error."""
        if commit.appends:  # files cannot be rolled back
            self._check_epoch()
        return self._segments.write(commit)

    def _write_packed(
        self,
        commit: Commit,
        made: list[Chunk],
        state: DatabaseState,
        undeletable: list[int],
        change: SegmentChange | None,
    ) -> None:
        """As `_write_kept`. `undeletable` are chunks to delete that stay, ignored."""
        if has_waiting(commit.marks) or chunk.has_signed(made):
            self._need(WAITING)
        rows = commit_statement.rows_of(commit, made, self._state.epoch, undeletable, change)
        objects = _kept(commit)
        if len(rows) == 1 and not (objects or undeletable or state is not self._state):
            self._messages.execute(commit_statement.DO, rows[0])
            return
        self._messages.execute("begin immediate")
        if objects:
            self._check_epoch()
            self._write_objects(objects)
        self._messages.executemany(commit_statement.DO, rows)
        put_aside(self._messages, undeletable)
        if state is not self._state:
            say(self._messages, attrs.evolve(state, tally=salvage.tally_if_sound(self._messages)))
        self._messages.execute("commit")
        self._aside.update(undeletable)

    def _undeletable(self, firsts: list[int]) -> list[int]:
        """Return those of the chunks to be deleted that are too damaged for that. Raises sqlite3.Error."""
        self._roll_back()
        return [first for first in firsts if not self._can_delete(first)]

    def _can_delete(self, first: int) -> bool:
        self._messages.execute("begin immediate")
        try:
            self._messages.execute("delete from chunks where first = ?", (first,))
        except sqlite3.Error as error:
            if not is_damage(error):
                raise
            return False
        finally:
            self._roll_back()
        return True

    def _roll_back(self) -> None:
        for connection in (self._meta, self._messages):
            if connection.in_transaction:
                connection.execute("rollback")

    def _given_up(self, error: Exception) -> NoSpaceError | StoreError:
        """Roll back the transactions, and return the error as one of ours."""
        try:
            self._roll_back()
        except sqlite3.Error as worse:
            error = worse
        why = failure(error, "a commit could not be written")
        if isinstance(why, NoSpaceError):  # otherwise nothing is written any more
            self._segments.take_back()
        return why

    def _write_objects(self, objects: Mapping[str, str | None]) -> None:
        """Write objects to meta.db in a transaction. Raises sqlite3.Error."""
        self._meta.execute("begin immediate")
        for key, value in objects.items():
            if value is None:
                self._meta.execute("delete from objects where key = ?", (key,))
            else:
                checksum = salvage.object_checksum(key.encode(), value.encode())
                self._meta.execute(
                    "insert into objects (key, value, checksum) values (?, ?, ?) on conflict (key) "
                    "do update set value = excluded.value, checksum = excluded.checksum",
                    (key, value, checksum),
                )
            self._meta_octets += len(key) + len(value or "")
        self._meta.execute("commit")
        self._meta_octets += COMMIT_OCTETS

    # Size of the files.

    def _remove(self, change: SegmentChange | None) -> None:
        """Delete the files of deleted segments. Raises StoreError."""
        if change is None:
            return
        try:
            self._segments.remove(change)
        except OSError as error:
            raise StoreError(str(failure(error, "a segment cannot be deleted"))) from None

    def _keep_small(self) -> None:
        """Called after a commit: copy a log that has grown; give back a few free pages. Raises StoreError."""
        if self._unseen > self.room // LOOK_SHARE or monotonic() - self._seen_at > IDLE_S:
            self._look_at_room()
        octets_max = self._log_max
        try:
            if self._log_octets > octets_max:
                self._copy(self._messages)
                self._take_ahead()
                self._log_octets = 0
                self._fill()
            if self._meta_octets > octets_max:
                self._copy(self._meta)
                self._meta_octets = 0
            if monotonic() - self._trickled_at > TRICKLE_S:
                self._trickled_at = monotonic()
                self._trickle()
        except sqlite3.Error as error:
            self._see_to(error)

    def _trickle(self) -> None:
        """Give back a few free pages under load: if half of the file is free, or where room is needed."""
        free = self._free_pages()
        if self.is_short and free > FREE_PAGES:
            self._give_back(min(self._step_pages, free - FREE_PAGES))
        elif free > 16 * FREE_PAGES and 2 * free > pages_of(self._messages):
            self._give_back(TRICKLE_PAGES)

    def look_after(self) -> bool:
        """Do one step of maintenance while no commits come. Returns whether there is more to do. Raises StoreError."""
        if self._redo.octets:
            self._empty_log()
        try:
            free = self._free_pages()
            if self.shrinks and free > FREE_PAGES:
                self._give_back(min(self._step_pages, free - FREE_PAGES))
                if self._log_octets > self._log_max:
                    self._copy_logs()
                return True
            if self._log_octets or self._meta_octets or self.is_short:
                for database in (self._messages, self._meta):
                    self._copy_and_cut(database)
                self._log_octets = self._meta_octets = 0
                self._fill()
                self._look_at_room()
                self._take_ahead()
        except sqlite3.Error as error:
            self._see_to(error)
        return False

    def _empty_log(self) -> None:
        """Write the redo log to the database, if there is room. Raises StoreError."""
        try:
            self._write_logged()
        except Exception as error:
            why = self._given_up(error)
            if isinstance(why, StoreError):
                raise why from error

    def _copy_and_cut(self, database: sqlite3.Connection) -> None:
        """Copy a log, and give back what it need not keep of its room. Raises sqlite3.Error."""
        kept = self._log_kept if self.is_short else LOG_OCTETS_MAX
        if self._copy(database) > kept:
            cut(database)
            if self.is_short:
                self._lend_to_log(database, kept)

    @property
    def _log_max(self) -> int:
        """The bytes that a log may have before it is copied."""
        return min(LOG_OCTETS, self.ahead_max)

    @property
    def _log_kept(self) -> int:
        """The bytes of a log that are not given back while the store is short: others would take them."""
        return self._drain.octets // KEPT_SHARE

    @property
    def _step_pages(self) -> int:
        """The free pages that are given back at a time: while the store is short, as many as fit into its log."""
        if not self.is_short:
            return STEP_PAGES
        return min(STEP_PAGES, max(TRICKLE_PAGES, self._log_kept // (2 * PAGE_OCTETS)))

    def _free_pages(self) -> int:
        return int(self._messages.execute("pragma freelist_count").fetchone()[0])

    def _give_back(self, pages: int) -> None:
        if self.shrinks:
            self._messages.executescript(
                f"pragma incremental_vacuum({pages})"
            )  # `execute` would give back one page
            self._log_octets += 2 * pages * PAGE_OCTETS

    def _see_to(self, error: sqlite3.Error) -> None:
        """Tolerate damage: the files stay larger than they need be. Raises StoreError for errors that are fatal."""
        if is_damage(error):
            self.shrinks = False  # moving pages would not help
            self._log_octets = self._meta_octets = 0  # nor trying again with each commit
            return
        why = failure(error, "the store's files cannot be maintained")
        if isinstance(why, StoreError):
            raise why from error


def _kept(commit: Commit) -> Mapping[str, str | None]:
    """Return the objects of a commit that are written before its messages: all, if it has nothing else."""
    late = _late(commit)
    return (
        {key: value for key, value in commit.objects.items() if key not in late} if late else commit.objects
    )


def _late(commit: Commit) -> Mapping[str, str | None]:
    """Return the objects of a commit that are removed, or replaced, once its messages are written."""
    if not (commit.objects and commit.changes_messages):
        return {}
    renewed = commit.renewed
    return {key: value for key, value in commit.objects.items() if value is None or key in renewed}
