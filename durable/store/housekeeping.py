"""Keep the two databases of a store small, and room on the disk for what is written to them.

SQLite's log is copied into the database when it has grown by some MiB, or when no commits come, and then reused. Pages
that became free are given back to the file system in small steps: when no commits come, and sparingly under load if
half of the file is free.

Where the disk has no room for a commit, or to copy the log, the reserve for draining has: what it gives up goes to the
file that needs it (`Reserve.lend`). From then on the store is short, until what consumers have taken is given back and
the reserve is allocated again. So that this suffices, even if others fill the disk at once, the log is kept short where
there is little room, little is gathered (`ahead_max`), and log and database have room before they are written
(`_take_ahead`).
"""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import Final

from leveret.durable.store.contract import UNLIMITED, StoreError
from leveret.durable.store.database import (
    PAGE_OCTETS,
    copied,
    cut,
    failure,
    file_of,
    is_damage,
    is_want_of_room,
    pages_of,
)
from leveret.durable.store.reserve import STEP_OCTETS, Reserve
from leveret.durable.store.wal_tail import log_of

LOG_OCTETS: Final = 4 << 20  # of the log, before it is copied: with 32 MiB p99 of a commit is 5 times as long
# then it is truncated; reusing it takes half as long as letting it grow
LOG_OCTETS_MAX: Final = 4 * LOG_OCTETS
COMMIT_OCTETS: Final = 8 * PAGE_OCTETS  # of the log that a commit takes besides its chunks, about
LOOK_S: Final = 1.0  # at most, before the room is looked at again
FREE_PAGES: Final = 1024  # not given back: they will be needed again
STEP_PAGES: Final = 256  # given back at a time: 25 ms
TRICKLE_PAGES: Final = 32  # under load: 3 ms, at most every
TRICKLE_S: Final = 0.05
DRAIN_SHARE: Final = 8  # part of the reserve that a log may take, and a commit, which one turn may exceed,
AT_ONCE: Final = 16  # times the reserve may be filled by others before that is noticed;
ROOM_SHARE: Final = 32  # and this part of the room beyond
KEPT_SHARE: Final = 4  # part of the reserve that a log keeps while the store is short
LOOK_SHARE: Final = 16  # part of the room that is written before it is looked at again


class Housekeeping:
    """The thread that writes has this look after its files: after each commit, in between, and in need.

    `messages` and `meta` are the connections that write; `reserve` is room for a start, and `drain` for commits that
    make room.
    """

    def __init__(
        self, messages: sqlite3.Connection, meta: sqlite3.Connection, reserve: Reserve, drain: Reserve
    ) -> None:
        self._messages = messages
        self._meta = meta
        self._reserve = reserve
        self._drain = drain
        self.room = UNLIMITED  # bytes that can be written, with `drain`, when they were last counted
        self._unseen = 0  # bytes written since then, about
        self._seen_at = 0.0
        self._log_octets = self._meta_octets = 0  # bytes in the logs since they were copied; about
        self._trickled_at = 0.0
        self.shrinks = True  # whether free pages are given back

    @property
    def folder(self) -> Path:
        """The data folder."""
        return self._drain.folder

    def start(self) -> None:
        """Allocate the reserves, and count the room."""
        self._fill()
        self._look_at_room()

    # What was written.

    def wrote_messages(self, octets: int) -> None:
        """Note that messages.db has so many bytes more."""
        self._log_octets += octets + COMMIT_OCTETS
        self._unseen += octets + COMMIT_OCTETS

    def wrote_objects(self, octets: int) -> None:
        """Note that meta.db has so many bytes more."""
        self._meta_octets += octets + COMMIT_OCTETS

    def wrote_redo_log(self, octets: int) -> None:
        """Note that the redo log has so many bytes more."""
        self._unseen += octets + COMMIT_OCTETS

    def wrote_segments(self) -> None:
        """Note that segments were written, or deleted: the room is another."""
        self._unseen = self.room

    # Room.

    @property
    def is_short(self) -> bool:
        """Return whether the reserve for draining was needed, and is not whole again."""
        return self._drain.is_given_up

    @property
    def is_narrow(self) -> bool:
        """Return whether the disk has little room, so that the log is kept short."""
        return self._log_max < LOG_OCTETS

    @property
    def ahead_max(self) -> int:
        """The most bytes that are gathered, and that the log may have."""
        reserved = 0 if self.is_short else self._drain.octets
        beyond = self.room - reserved - AT_ONCE * self._drain.octets
        return reserved // DRAIN_SHARE + max(0, beyond) // ROOM_SHARE

    def measure_room(self) -> int:
        """Return the bytes that can be written, with the reserve for draining. Called from any thread."""
        free = self._drain.free()
        return UNLIMITED if free is None else free + self._drain.left

    def fits(self, octets: int) -> bool:
        """Return whether so many bytes can be written, and be copied from the log."""
        free = self.room - self._unseen - (0 if self.is_short else self._drain.octets)
        return not octets or self._log_octets + 2 * octets <= free

    def keep_room(self, octets: int) -> None:
        """See to it that a commit with so many bytes can be copied from the log, too: or nothing could be any more.

        Raises sqlite3.Error.
        """
        if octets and not self._take_ahead(octets):
            self._look_at_room()
        if self.fits(octets):
            return
        self._look_at_room()
        if self.fits(octets):
            return
        self.copy_logs()
        self._take_ahead(octets)
        self._look_at_room()
        if not self.fits(octets):
            self.need()

    def need(self) -> None:
        """Count the reserve for draining as needed."""
        self._drain.need()

    def lend(self, for_segments: bool) -> bool:
        """Lend a part of the reserve to the logs, and give up another for segments. Return whether there was any."""
        if not self._drain.left:
            return False
        share = self._drain.octets // DRAIN_SHARE
        if for_segments:
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

    def _take_ahead(self, octets: int = 0) -> bool:
        """Allocate room for a log, and for a commit with so many bytes, where there is little.

        Others may take all that is left, at any moment, and most of what the reserve gives up then. When SQLite copies
        a log, it cuts off what the database does not use. Returns whether there was enough. Raises sqlite3.Error.
        """
        if not self.is_narrow:
            return True
        has_all = True
        ahead = 2 * (self._drain.octets // DRAIN_SHARE + octets)
        for database, more in ((self._messages, ahead), (self._meta, STEP_OCTETS)):
            file = file_of(database)
            for grows, size in ((log_of(file), more), (file, pages_of(database) * PAGE_OCTETS + more)):
                has_all = self._drain.grow(grows, size) and has_all
        return has_all

    def _look_at_room(self) -> None:
        """Count the room that is left."""
        self._unseen, self._seen_at = 0, monotonic()
        self.room = self.measure_room()

    def _fill(self) -> None:
        self._reserve.fill()
        self._drain.fill()

    # Logs.

    @property
    def _log_max(self) -> int:
        """The bytes that a log may have before it is copied."""
        return min(LOG_OCTETS, self.ahead_max)

    @property
    def _log_kept(self) -> int:
        """The bytes of a log that are not given back while the store is short: others would take them."""
        return self._drain.octets // KEPT_SHARE

    def copy_logs(self) -> bool:
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
            if not (is_want_of_room(error, self.folder) and self._lend_to_database(database)):
                raise
        return copied(database)

    def _copy_and_cut(self, database: sqlite3.Connection) -> None:
        """Copy a log, and give back what it need not keep of its room. Raises sqlite3.Error."""
        kept = self._log_kept if self.is_short else LOG_OCTETS_MAX
        if self._copy(database) > kept:
            cut(database)
            if self.is_short:
                self._lend_to_log(database, kept)

    def cut_logs(self) -> None:
        """Copy the logs, and give back all of their room. Raises sqlite3.Error, StoreError."""
        self.copy_logs()
        cut(self._messages)
        cut(self._meta)

    # Size of the files.

    def keep_small(self) -> None:
        """Called after a commit: copy a log that has grown; give back a few free pages. Raises StoreError."""
        if self._unseen > self.room // LOOK_SHARE or monotonic() - self._seen_at > LOOK_S:
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

    def look_after(self) -> bool:
        """Do one step of maintenance while no commits come. Returns whether there is more to do. Raises StoreError."""
        try:
            free = self._free_pages()
            if self.shrinks and free > FREE_PAGES:
                self._give_back(min(self._step_pages, free - FREE_PAGES))
                if self._log_octets > self._log_max:
                    self.copy_logs()
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

    def _trickle(self) -> None:
        """Give back a few free pages under load: if half of the file is free, or where room is needed."""
        free = self._free_pages()
        if self.is_short and free > FREE_PAGES:
            self._give_back(min(self._step_pages, free - FREE_PAGES))
        elif free > 16 * FREE_PAGES and 2 * free > pages_of(self._messages):
            self._give_back(TRICKLE_PAGES)

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
            # `execute` would give back one page
            self._messages.executescript(f"pragma incremental_vacuum({pages})")
            self._log_octets += 2 * pages * PAGE_OCTETS

    def _see_to(self, error: sqlite3.Error) -> None:
        """Tolerate damage: the files stay larger than they need be. Raises StoreError for errors that are fatal."""
        if is_damage(error):
            self.shrinks = False  # moving pages would not help
            self._log_octets = self._meta_octets = 0  # nor trying again with each commit
            return
        why = failure(error, "the store's files cannot be maintained", self.folder)
        if isinstance(why, StoreError):
            raise why from error
