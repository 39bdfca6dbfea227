"""The end of SQLite's write-ahead log: was it torn by a crash, or is it damaged, with commits behind the damage?

SQLite reads its log up to the first frame whose checksum does not fit, and takes everything behind it for the debris of
a crash. That is right for one transaction, the one that was being written. If two or more end there, all but the last
had been synced, and were confirmed: then the log was damaged afterwards, and what was confirmed is lost. If one ends
there, either the power went and the disk had written the end before the rest, or the commit before it was damaged.

Frames of the log's earlier rounds, which may still be behind, have other salts than its header. If the header is what
was damaged, SQLite takes nothing; it is synced before anything follows. (sqlite.org/fileformat2.html, section 4.)
"""

from __future__ import annotations

import os
import sqlite3
from collections import Counter
from pathlib import Path
from struct import Struct, iter_unpack
from typing import BinaryIO, Final

from broker_core.store.database import PAGE_OCTETS, file_of, frames_copied, is_want_of_room

HEADER: Final = Struct(">IIII8s8s")  # magic number, format, page size, round, salts, checksum
FRAME: Final = Struct(">II8s8s")  # page, pages of the database if it ends a transaction, salts, checksum
FRAME_OCTETS: Final = FRAME.size + PAGE_OCTETS
STEP_OCTETS: Final = 1 << 20  # of a log that is written over, at a time
ORDERS: Final = {0x377F0682: "<", 0x377F0683: ">"}  # magic number: the words that checksums are of


def log_of(database: Path) -> Path:
    """The file of a database's log."""
    return database.with_name(f"{database.name}-wal")


def commits_lost(file: Path, database: sqlite3.Connection) -> int:
    """How many commits at the end of a database's log are lost, as `commits_behind` counts. Before anything is written.

    Copies the log into the database, as far as it is good and there is room. Raises OSError, sqlite3.Error.
    """
    try:
        frames = frames_copied(database)
    except sqlite3.Error as error:
        if not is_want_of_room(error):
            raise
        frames = frames_taken(file)
    return commits_behind(file, max(0, frames))


def write_again(database: sqlite3.Connection) -> None:
    """Have on disk for certain what is in a database's log. Raises OSError, sqlite3.Error.

    If its sync had failed it may be in the system's memory only. It is copied into the database; without room for that,
    it is written over itself.
    """
    try:
        frames_copied(database)
    except sqlite3.Error as error:
        if not is_want_of_room(error):
            raise
        _write_over(log_of(file_of(database)))


def _write_over(file: Path) -> None:
    with file.open("r+b", buffering=0) as log:
        while octets := log.read(STEP_OCTETS):
            log.seek(-len(octets), os.SEEK_CUR)
            log.write(octets)
        os.fdatasync(log.fileno())


def told(file: Path, commits: int) -> str:
    """That they are lost, in words."""
    if commits == 1:
        return f"the end of {log_of(file)} is torn or damaged: a commit or two may be lost"
    return f"{log_of(file)} is damaged: its last {commits} commits are lost"


def commits_behind(database: Path, frames: int) -> int:
    """How many transactions ended behind the `frames` of its log that SQLite took. Raises OSError."""
    try:
        opened = log_of(database).open("rb")
    except FileNotFoundError:
        return 0
    with opened as log:
        salts = _salts(log)
        log.seek(HEADER.size + frames * FRAME_OCTETS)
        commits: Counter[bytes] = Counter()  # by the round that they are of
        while len(header := log.read(FRAME.size)) == FRAME.size:
            _, ends, of_round, _ = FRAME.unpack(header)
            commits[of_round] += bool(ends)
            log.seek(PAGE_OCTETS, 1)
        return max(commits.values(), default=0) if salts is None else commits[salts]


def frames_taken(database: Path) -> int:
    """How many frames of a database's log SQLite takes, found without it: 0.1 ms for each. Raises OSError."""
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
    """Those of the round that the log is in; None: its header is damaged."""
    header = log.read(HEADER.size)
    if len(header) < HEADER.size:
        return None
    magic, _, _, _, salts, checksum = HEADER.unpack(header)
    order = ORDERS.get(magic)
    return salts if order and _sums(header[: -len(checksum)], order) == checksum else None


def _sums(octets: bytes, order: str, before: bytes = bytes(8)) -> bytes:
    """SQLite's checksum, going on from one before: two sums over all words, two words at a time."""
    one, two = int.from_bytes(before[:4]), int.from_bytes(before[4:])
    for first, second in iter_unpack(f"{order}II", octets):
        one = (one + first + two) & 0xFFFFFFFF
        two = (two + second + one) & 0xFFFFFFFF
    return one.to_bytes(4) + two.to_bytes(4)
