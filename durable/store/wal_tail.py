"""Check the end of SQLite's write-ahead log: was it torn by a crash, or is it damaged, with commits after the damage?

SQLite reads its log up to the first frame whose checksum does not match, and takes everything after it for the debris
of a crash. That is right for one transaction, the one that was being written. If two or more end there, all but the
last had been synced, and were confirmed: then the log was damaged afterwards, and what was confirmed is lost. If one
ends there, either the power failed when the disk had written the end before the rest, or the commit before it was
damaged.

Frames of the log's earlier rounds, which may still follow, have other salts than its header. If the header is what was
damaged, SQLite takes nothing; it is synced before anything follows. (sqlite.org/fileformat2.html, section 4.)
"""

from __future__ import annotations

import os
import sqlite3
from collections import Counter
from pathlib import Path
from struct import Struct, iter_unpack
from typing import BinaryIO, Final

from leveret.durable.store.database import PAGE_OCTETS, frames_copied, is_want_of_room
from leveret.durable.store.syncing import sync_file

HEADER: Final = Struct(">IIII8s8s")  # magic number, format, page size, round, salts, checksum
FRAME: Final = Struct(">II8s8s")  # page, pages of the database if it ends a transaction, salts, checksum
FRAME_OCTETS: Final = FRAME.size + PAGE_OCTETS
STEP_OCTETS: Final = 1 << 20  # of a log that is rewritten, at a time
ORDERS: Final = {0x377F0682: "<", 0x377F0683: ">"}  # magic number to the byte order of checksummed words


def log_of(database: Path) -> Path:
    """Return the file of a database's log."""
    return database.with_name(f"{database.name}-wal")


def commits_lost(file: Path, database: sqlite3.Connection) -> int:
    """Return how many commits at the end of a database's log are lost (`commits_behind`); before anything is written.

    Copies the log into the database, as far as it is good and there is room. Raises OSError, sqlite3.Error.
    """
    try:
        frames = frames_copied(database)
    except sqlite3.Error as error:
        if not is_want_of_room(error):
            raise
        frames = frames_taken(file)
    return commits_behind(file, max(0, frames))


def write_again(database: Path) -> None:
    """Write a database's log over itself, and sync it, before SQLite copies it. Raises OSError.

    If a sync has failed, the end of it may be in the system's memory only, and no later sync writes that. SQLite would
    copy it into the database all the same, and go on behind it: after a power cut it would read the log up to the gap,
    older pages over newer ones of the database, and none of what was committed since.
    """
    try:
        log = os.open(log_of(database), os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return
    try:
        at = 0
        while octets := os.pread(log, STEP_OCTETS, at):
            at += os.pwrite(log, octets, at)
        if at:
            sync_file(log)
    finally:
        os.close(log)


def told(file: Path, commits: int) -> str:
    """Return a message about lost commits."""
    if commits == 1:
        return f"the end of {log_of(file)} is torn or damaged: a commit or two may be lost"
    return f"{log_of(file)} is damaged: its last {commits} commits are lost"


def commits_behind(database: Path, frames: int) -> int:
    """Return how many transactions end after the `frames` of its log that SQLite took. Raises OSError."""
    try:
        opened = log_of(database).open("rb")
    except FileNotFoundError:
        return 0
    with opened as log:
        salts = _salts(log)
        # a full disk may leave a part of one
        whole = (os.fstat(log.fileno()).st_size - HEADER.size) // FRAME_OCTETS
        log.seek(HEADER.size + frames * FRAME_OCTETS)
        commits: Counter[bytes] = Counter()  # by the round of the log
        for _ in range(frames, whole):
            _, ends, of_round, _ = FRAME.unpack(log.read(FRAME.size))
            commits[of_round] += bool(ends)
            log.seek(PAGE_OCTETS, 1)
        return max(commits.values(), default=0) if salts is None else commits[salts]


def frames_taken(database: Path) -> int:
    """Return how many frames of the log SQLite takes, computed without it: 0.1 ms for each. Raises OSError."""
    try:
        opened = log_of(database).open("rb")
    except FileNotFoundError:
        return 0
    taken = 0
    with opened as log:
        salts = _salts(log)
        log.seek(0)
        magic, _, _, _, _, sums = HEADER.unpack(log.read(HEADER.size).ljust(HEADER.size, b"\0"))
        order = ORDERS.get(magic, "<")
        number = 0
        while len(frame := log.read(FRAME_OCTETS)) == FRAME_OCTETS:
            _, ends, of_round, checksum = FRAME.unpack_from(frame)
            sums = _sums(frame[:8] + frame[FRAME.size :], order, sums)
            if of_round != salts or checksum != sums:
                break
            number += 1
            taken = number if ends else taken
    return taken


def _salts(log: BinaryIO) -> bytes | None:
    """Return the salts of the log's current round; None if its header is damaged."""
    header = log.read(HEADER.size)
    if len(header) < HEADER.size:
        return None
    magic, _, _, _, salts, checksum = HEADER.unpack(header)
    order = ORDERS.get(magic)
    return salts if order and _sums(header[: -len(checksum)], order) == checksum else None


def _sums(octets: bytes, order: str, before: bytes = bytes(8)) -> bytes:
    """Return SQLite's checksum, continued from `before`: two sums over all words, two words at a time."""
    one, two = int.from_bytes(before[:4]), int.from_bytes(before[4:])
    for first, second in iter_unpack(f"{order}II", octets):
        one = (one + first + two) & 0xFFFFFFFF
        two = (two + second + one) & 0xFFFFFFFF
    return one.to_bytes(4) + two.to_bytes(4)
