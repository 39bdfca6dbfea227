"""Write commits in a thread: each is a transaction, synced.

    commit ──> pack ──> segments ──> meta.db: objects ──> messages.db ──> meta.db: removed objects ──> durable

What is appended to streams counts only once messages.db says so (segments.py); then files that are not needed are
deleted. A commit with objects and messages takes a transaction for each, because a queue must be there before its
messages are, and as long as they are: they may move elsewhere in the commit that removes it. A crash between two of
them leaves objects, new ones or removed ones, and nobody was told of either.

Most commits go to the redo log instead (`redo_log.py`): one write, one sync. What is left of them after some MiB is
written to messages.db in one transaction, and before anything else is: by then most of it has been consumed.

A caller that waits for each of its commits, with nothing else to do, may write them to the redo log in its own thread,
as long as the disk is quick: to wake this thread, and to be woken by it, takes as long as the sync.

`housekeeping.py` keeps the databases small in between, and has a reserve where the disk has no room for a commit, which
is then written once more.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from time import perf_counter
from typing import Final

import attrs

from leveret.durable.store import chunk, commit_statement, salvage
from leveret.durable.store.contract import Chunk, Commit, NoSpaceError, StoreError
from leveret.durable.store.database import (
    CLOSED,
    LOGGED,
    WAITING,
    DatabaseState,
    failure,
    flags_of,
    is_damage,
    is_want_of_files,
    say,
    set_flags,
)
from leveret.durable.store.housekeeping import DRAIN_SHARE, Housekeeping
from leveret.durable.store.logged_changes import LoggedChanges, define, put_aside
from leveret.durable.store.pace import Pace
from leveret.durable.store.redo_log import ReadLog, RedoLog
from leveret.durable.store.redo_policy import RedoPolicy
from leveret.durable.store.redo_record import octets_of
from leveret.durable.store.segments import SegmentChange, Segments
from leveret.durable.store.writer_thread import End, Soon, WriterThread
from leveret.mark import has_waiting

IDLE_S: Final = 1.0  # without a commit, before the files are maintained
FILL: Final = "update chunks set messages = ? where first = ? and length(messages) = 0 and entries = ?"
PORTION_CHUNKS: Final = 64  # deleted at a time where there is no room to delete all that a commit says


class Writer(WriterThread):
    """Writes through one connection to each database, the only ones that write."""

    def __init__(
        self,
        messages: sqlite3.Connection,
        meta: sqlite3.Connection,
        aside: set[int],
        segments: Segments,
        files: Housekeeping,
        redo: RedoLog,
        lost: Callable[[], Path | None] = lambda: None,
        redo_octets: int = 0,
    ) -> None:
        """`lost` returns a file that has been deleted meanwhile. `redo_octets` of the redo log are filled before it is
        written to the database; with 0 it is only read.
        """
        super().__init__()
        self._lost = lost
        self._redo = redo
        self._policy = RedoPolicy(redo_octets)
        self.logged = LoggedChanges()  # that are in the redo log only; readers look into it
        self._messages = messages
        self._meta = meta
        self._aside = aside  # chunks that cannot be deleted; shared with readers
        self._segments = segments
        self._files = files
        self._state: DatabaseState
        self._removing: Commit | None = None  # all of it is written but for the removal of objects,
        self._removing_change: SegmentChange | None = None  # and this is what it did to segments
        self._flags = 0  # of the format of messages.db
        self._is_fenced = False  # each transaction checks that this node may still write
        # chunks whose merging was taken back: what is settled of them is not written
        self._apart: set[int] = set()
        self._is_asleep = False  # this thread waits for a commit, and not for the time to maintain the files
        self._wrote_at_once = False  # the caller wrote a commit, since this thread began to wait
        self._pace = Pace()
        self._given: Exception | None = None  # what went wrong when the caller tried to write the next commit

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
        self._files.start()
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
            self._files.copy_logs()  # a messages.db whose log is lost tells by itself that it was in use
            if self._files.shrinks:  # else a file without a row may be all that is left of something damaged
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

    def has_written(self, commit: Commit) -> bool:
        """Write a commit to the redo log in the calling thread, if that is quick; return whether it is durable now.

        If it is not, it is to be `put`: then this is also where an error is reported. All commits before have been
        reported as durable.
        """
        if not self._pace.is_quick or self._given is not None or not self._turn.acquire(blocking=False):
            return False
        try:
            if self._is_asleep or self._apart or not self._redo.octets:
                return False
            made = [chunk.pack(entries) for entries in commit.chunks]
            if not self._has_logged(commit, made, at_once=True):
                return False
            self._require_files()
        except Exception as error:
            self._given = error
            return False
        finally:
            self._turn.release()
        self._wrote_at_once = True
        self.commits += 1
        return True

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
        self._files.keep_small()

    def fill(self, bodies: Sequence[Chunk]) -> list[int]:
        """Write the messages of chunks that have none yet; not if their entries are others. Return which were written.

        Raises NoSpaceError, StoreError.
        """
        filled: list[int] = []
        try:
            self._messages.execute("begin immediate")
            for each in bodies:
                if self._messages.execute(FILL, (each.messages, each.first, each.entries)).rowcount:
                    filled.append(each.first)
            self._messages.execute("commit")
        except sqlite3.Error as error:
            raise self._given_up(error) from error
        self._files.wrote_messages(sum(len(each.messages) for each in bodies))
        return filled

    # The thread.

    def _next(self) -> Commit | End:
        """Return the next order; while there is none, maintain the files."""
        wait_s: float | None = IDLE_S
        while True:
            self._is_asleep = wait_s is None
            if (order := self._wait(wait_s)) is not None:
                return order
            if self._wrote_at_once:
                self._wrote_at_once = False
                wait_s = IDLE_S
            else:
                wait_s = 0 if self.look_after() else IDLE_S if self._files.is_short else None

    def _keep(self, commit: Commit) -> None:
        """Write a commit, and report the outcome. Raises StoreError."""
        number, durable, failed = commit.number, self._durable, self._failed_with
        try:
            change = self._write_in_need(commit, self._state)
        except NoSpaceError as error:
            short = error
            self._soon(lambda: failed(short))
            return
        self._require_files()
        self.commits += 1
        self._soon(lambda: durable(number))
        self._remove(change)
        self._files.keep_small()

    def _finish(self, last: Commit) -> None:
        """Write the last commit, and in the same transaction the note that the store was closed properly."""
        try:
            self._remove(self._write_in_need(last, attrs.evolve(self._state, ended=CLOSED)))
            self._end_log()
            self._files.cut_logs()
            self._require_files()
        except (NoSpaceError, StoreError) as error:
            self._failed = StoreError(f"the store could not be closed properly: {error}")
        except (OSError, sqlite3.Error):
            pass  # the commit is in the log, and durable; the next start copies it

    def _require_files(self) -> None:
        """Check that what was written is where the next start looks for it. Raises StoreError."""
        file = self._lost()
        if file is not None:
            raise StoreError(f"{file} has been deleted, moved or replaced while the node ran")

    def _end_log(self) -> None:
        """Delete the redo log, which is empty, so that versions from before it can open the folder.

        Raises OSError, sqlite3.Error.
        """
        if self._flags & LOGGED:
            self._flags &= ~LOGGED
            set_flags(self._messages, self._flags)
        self._redo.remove()

    def look_after(self) -> bool:
        """Do one step of maintenance while no commits come. Returns whether there is more to do. Raises StoreError."""
        if self._redo.octets:
            self._empty_log()
        return self._files.look_after()

    # Commit.

    def _write_in_need(self, commit: Commit, state: DatabaseState) -> SegmentChange | None:
        """Write a commit, with the reserve for draining if nothing else is left. Raises NoSpaceError, StoreError."""
        try:
            return self._write(commit, state)
        except NoSpaceError as error:
            if is_want_of_files(error.__cause__):
                raise
            self._files.need()
            if self._files.copy_logs():
                with suppress(NoSpaceError):
                    return self._write(commit, state)
            for _ in range(DRAIN_SHARE):
                if not self._files.lend(for_segments=bool(commit.appends)):
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
            self._files.copy_logs()
        return len(commit.dropped) < before

    def _write(self, commit: Commit, state: DatabaseState) -> SegmentChange | None:
        """Write a commit to disk, all or nothing, and return the changes of segments. Raises NoSpaceError, StoreError.

        Where only the removal of objects found no room, the rest is there, and is not written again.
        """
        for first in self._apart.intersection(commit.settled):
            del commit.settled[first]
        try:
            if (given := self._given) is not None:
                self._given = None
                raise given
            if commit is self._removing:
                made, change = [], self._removing_change
            else:
                made = [chunk.pack(entries) for entries in commit.chunks]
                if state is self._state and self._has_logged(commit, made):
                    return None
                self._write_logged()
                if state is self._state and not commit:
                    return None
                self._files.keep_room(sum(each.octets for each in made))
                change = self._write_segments(commit)
            self._write_rows(commit, made, state, change)
        except Exception as error:
            raise self._given_up(error) from error
        return change

    # Redo log.

    def _has_logged(self, commit: Commit, made: list[Chunk], at_once: bool = False) -> bool:
        """Write a commit to the redo log, if it is one for that; `at_once`, if that is all there is to write.

        Raises OSError, sqlite3.Error, StoreError.
        """
        if not self._policy.suits(commit) or self._files.is_short or self._files.is_narrow:
            return False
        octets = octets_of(commit, made)
        if not (self._files.fits(self.logged.octets + octets) and self._policy.is_worth_it(octets)):
            return False
        if self._redo.is_over or self._policy.is_full(self._redo.octets + octets, self.logged):
            if at_once:
                return False
            self._write_logged()
        if not self._redo.octets:
            self._begin_round()
        began = perf_counter()
        self._redo.append(commit, made)
        self._pace.took(perf_counter() - began, by_caller=at_once)
        self._check_claim()
        self.logged.add(commit, made)
        self._files.wrote_redo_log(octets)
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
            self._files.keep_room(logged.octets)
            try:
                self._write_changes([])
            except sqlite3.Error as error:
                undeletable = self._undeletable([*logged.dropped]) if is_damage(error) else []
                if not undeletable:
                    raise
                self._write_changes(undeletable)
            self._files.wrote_messages(logged.octets)
        self._policy.learn(logged)
        logged.clear()  # it is in the database, even if there is no room to say that the round has ended
        if self._redo.octets:
            with self._owning():
                self._redo.end()

    def _write_changes(self, undeletable: list[int]) -> None:
        """Write the logged changes in a transaction; `undeletable` chunks stay, ignored.

        Raises sqlite3.Error, StoreError.
        """
        logged = self.logged
        if logged.waits:
            self._need(WAITING)
        self._messages.execute("begin immediate")
        self._check_epoch()
        if self._is_fenced:
            self._check_claim()  # else another node may have written them already
        logged.write(self._messages, undeletable, again=not self._is_fenced)
        self._messages.execute("commit")
        self._aside.update(undeletable)

    def _empty_log(self) -> None:
        """Write the redo log to the database, if there is room. Raises StoreError."""
        try:
            self._write_logged()
        except Exception as error:
            why = self._given_up(error)
            if isinstance(why, StoreError):
                raise why from error

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
            self._leave_apart(commit, undeletable)
            left = {*commit.dropped, *(first for gone, _ in commit.replaced for first in gone)}
            self._write_packed(commit, made, state, [each for each in undeletable if each in left], change)
        self._files.wrote_messages(sum(each.octets for each in made))
        if change is not None:
            self._segments.landed(change)
            self._files.wrote_segments()

    def _leave_apart(self, commit: Commit, undeletable: Sequence[int]) -> None:
        """Take back merges whose chunk would have the number of one that cannot be deleted: all stay as they are.

        Bits of the merged chunk would stand for other entries of its first part: they are left out from now on, and
        what they settle is delivered again after a restart.
        """
        apart = {new.first for _, new in commit.replaced if new.first in undeletable}
        commit.replaced = [each for each in commit.replaced if each[1].first not in apart]
        self._apart |= apart
        for first in apart.intersection(commit.settled):
            del commit.settled[first]

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
        why = failure(error, "a commit could not be written", self._files.folder)
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
        self._meta.execute("commit")
        self._files.wrote_objects(sum(len(key) + len(value or "") for key, value in objects.items()))

    def _remove(self, change: SegmentChange | None) -> None:
        """Delete the files of deleted segments. Raises StoreError."""
        if change is None:
            return
        try:
            self._segments.remove(change)
        except OSError as error:
            raise StoreError(str(failure(error, "a segment cannot be deleted"))) from None


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
