"""Keep the latest commits in a log of our own, one write and one sync each, before SQLite has to write pages for them.

    header   512 bytes: which folder, which round, whether it has ended; a claim
    records  a commit each, from a multiple of 512 bytes on

The file is `messages.db-redo`. A *round* is what is in the log until all of it is written to messages.db, in one
transaction; then the header says that it has ended, and the next one may begin. Writing a round twice does no harm, as
a crash between the two makes necessary. Records of earlier rounds may follow those of the current one.

The first record that is not good (`redo_record.py`) ends the round. If it has a tail, or good ones come after it, it
was written as a whole, and perhaps confirmed: then it is counted as lost.

Two nodes may be on one folder, in spite of its lock. Each that opens the log changes the claim, and then reads it; each
that has written a record looks at the claim before it reports that: so either the record is read, or its writer knows.
The header is written while the database is locked, after a look at the claim, so that nobody ends the round of another.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from struct import Struct
from typing import Final
from zlib import crc32

from leveret.durable.store import redo_record
from leveret.durable.store.contract import Chunk, Commit
from leveret.durable.store.logged_changes import LoggedChanges
from leveret.durable.store.redo_record import SECTOR
from leveret.durable.store.syncing import sync_file, sync_folder, write_all

HEADER: Final = Struct("<8s16s8sI")  # magic number, name of the folder, round, checksum of these
BEGUN: Final = b"LvrRedo1"
ENDED: Final = b"LvrRedo0"
CLAIM_AT: Final = 64
CLAIM_OCTETS: Final = 8
OCTETS_MAX: Final = 1 << 26  # of a file that is read; none is larger than a few MiB


def log_of(database: Path) -> Path:
    """Return the file of the log of messages.db."""
    return database.with_name(f"{database.name}-redo")


class RedoLog:
    """The log of one folder, for the only thread that writes to it."""

    def __init__(self, database: Path, folder: bytes) -> None:
        """`folder` is the random name of the data folder, of 16 bytes. The file need not be there."""
        self._path = log_of(database)
        self._folder = folder
        self._file = -1
        self._header: mmap.mmap | None = None  # to look at it without a system call
        self._round = b""
        self._claim = b""
        self._place = 0  # of the next record in the round
        self.octets = 0  # of the file, that the round takes; 0: none has begun
        self.is_over = False  # the round is to end, and nothing may be appended to it

    def close(self) -> None:
        """Close the file."""
        if self._header is not None:
            self._header.close()
            self._header = None
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    @property
    def is_ours(self) -> bool:
        """Return whether no other node has taken the log since this one did, or made the file before it."""
        if self._header is None:
            return not self._path.exists()
        return self._header[CLAIM_AT : CLAIM_AT + CLAIM_OCTETS] == self._claim

    def append(self, commit: Commit, made: Sequence[Chunk]) -> None:
        """Write a commit, whose packed chunks are `made`, and sync it. It counts if `is_ours` after it.

        Raises OSError.
        """
        octets = redo_record.record(self._round, self._place, commit, made)
        write_all(self._file, octets, self.octets)
        sync_file(self._file)
        self._place += 1
        self.octets += redo_record.whole(len(octets))

    # These write the header: while the database is locked for others, and `is_ours` but for `take`.

    def create(self) -> None:
        """Create the file, with a header that a power cut leaves there, or open it. Raises OSError."""
        if self._file >= 0:
            return
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        self._file = os.open(self._path, flags, 0o600)
        try:
            if os.fstat(self._file).st_size < SECTOR:
                self.end()
                sync_folder(self._path.parent)
            self._header = mmap.mmap(self._file, SECTOR, prot=mmap.PROT_READ)
        except OSError:  # without its header it would look like the file of another node
            with suppress(OSError):
                self.remove()
            raise

    def begin(self) -> None:
        """Begin a round. Raises OSError."""
        self.create()
        self._round = os.urandom(8)
        self._say(BEGUN)
        self._place, self.octets, self.is_over = 0, SECTOR, False

    def end(self) -> None:
        """End the round: all of it is in the database. To be called again if that fails. Raises OSError."""
        self.is_over = True
        self._say(ENDED)
        sync_file(self._file)
        self.octets = 0

    def take(self) -> ReadLog:
        """Claim the log, and read it. Raises OSError.

        The header is written once more: that a round has ended may be in the system's memory only, and is not what a
        power cut would leave once more is written to the database.
        """
        try:
            is_cut = self._path.stat().st_size < SECTOR
        except FileNotFoundError:
            return ReadLog()
        self.create()
        magic, self._round = _header_in(os.pread(self._file, SECTOR, 0), self._folder)
        if magic:
            self._say(magic)
        else:  # what is damaged is left as it is, but for the claim
            self._claim = os.urandom(CLAIM_OCTETS)
            write_all(self._file, self._claim, CLAIM_AT)
        sync_file(self._file)
        found = read(self._path, self._folder)
        found.is_damaged = found.is_damaged or is_cut
        if found.round or found.is_damaged:
            self.octets = SECTOR  # of a round that has begun, and is to end
        return found

    def _say(self, magic: bytes) -> None:
        claim = os.urandom(CLAIM_OCTETS)
        header = redo_record.sealed(HEADER.pack(magic, self._folder, self._round, 0))
        write_all(self._file, (header.ljust(CLAIM_AT, b"\0") + claim).ljust(SECTOR, b"\0"), 0)
        self._claim = claim  # once it is there: without room the one before stays

    def remove(self) -> None:
        """Delete the file, whose last round has ended. Raises OSError."""
        self.close()
        with suppress(FileNotFoundError):
            self._path.unlink()


class ReadLog:
    """A round as it was read."""

    __slots__ = ("changes", "commits", "is_damaged", "lost", "round")

    def __init__(self) -> None:
        self.round = b""  # empty: none has begun, or its header is damaged
        self.is_damaged = False  # the header is
        self.changes = LoggedChanges()
        self.commits = 0
        self.lost = 0  # commits that cannot be read; if it is one, it may never have been confirmed

    def troubles(self, path: Path) -> list[str]:
        """Return messages about what is lost."""
        if self.is_damaged:
            return [f"{path} is damaged: what was committed last may be lost"]
        if self.lost == 1:
            return [f"the end of {path} is torn or damaged: a commit may be lost"]
        return [f"{path} is damaged: its last {self.lost} commits are lost"] if self.lost else []


def read(path: Path, folder: bytes) -> ReadLog:
    """Read a log of a data folder, which may be written to meanwhile. Raises OSError."""
    found = ReadLog()
    try:
        with path.open("rb") as file:
            octets = file.read(OCTETS_MAX)
    except FileNotFoundError:
        return found
    magic, found.round = _header_in(octets, folder)
    found.is_damaged = bool(octets) and not magic
    if magic != BEGUN:
        found.round = b""
        return found
    at = SECTOR
    while (commit := redo_record.commit_at(octets, at, found.round, found.commits)) is not None:
        changes, made, size = commit
        found.changes.add(changes, made)
        found.commits += 1
        at += redo_record.whole(size)
    found.lost = redo_record.count_behind(octets, at, found.round, found.commits)
    return found


def missing(path: Path) -> str:
    """Return a message about a log that should be there."""
    return f"{path} is missing: what was committed last may be lost"


def _header_in(octets: bytes, folder: bytes) -> tuple[bytes, bytes]:
    """Return what a header says of the round, and the round; both are empty if it is damaged, or of another folder."""
    if len(octets) >= SECTOR:
        magic, name, round_, checksum = HEADER.unpack_from(octets)
        is_good = magic in (BEGUN, ENDED) and checksum == crc32(octets[: HEADER.size - 4])
        if is_good and name == folder:
            return magic, round_
    return b"", b""
