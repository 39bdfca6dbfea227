"""The end of SQLite's write-ahead log: was it torn by a crash, or is it damaged, with commits behind the damage?

SQLite reads its log up to the first frame whose checksum does not fit, and takes everything behind it for the debris of
a crash. That is right for one transaction, the one that was being written. If there are the ends of two or more, all
but the last had been synced, and were confirmed: then the log was damaged afterwards, and what was confirmed is lost.

Frames of the log's earlier rounds, which may still be behind, have another salt than its header. If the header is what
was damaged, SQLite takes nothing, and the first frame says which round it is. (sqlite.org/fileformat2.html, section 4.)
"""

from __future__ import annotations

import sqlite3
from pathlib import Path
from struct import Struct, iter_unpack
from typing import BinaryIO, Final

from broker_core.store.database import PAGE_OCTETS

HEADER: Final = Struct(">IIII8s8s")  # magic number, format, page size, round, salts, checksum
FRAME: Final = Struct(">II8s8s")  # page, pages of the database if it ends a transaction, salts, checksum
FRAME_OCTETS: Final = FRAME.size + PAGE_OCTETS
BIG_ENDIAN: Final = 0x377F0683  # the magic number of a log whose checksums are of big-endian words


def log_of(database: Path) -> Path:
    """The file of a database's log."""
    return database.with_name(f"{database.name}-wal")


def commits_lost(file: Path, database: sqlite3.Connection) -> str:
    """What was lost at the end of a database's log, in words; empty: nothing. Before anything is written.

    Copies the log into the database, as far as it is good. Raises OSError, sqlite3.Error.
    """
    _, frames, _ = database.execute("pragma wal_checkpoint(passive)").fetchone()
    commits = commits_behind(file, max(0, frames))
    return f"{log_of(file)} is damaged: about {commits} commits are lost" if commits > 1 else ""


def commits_behind(database: Path, frames: int) -> int:
    """How many transactions ended behind the `frames` of its log that SQLite took. Raises OSError.

    One may be what a crash left of a commit that was never confirmed; if there are more, some were lost by damage.
    """
    try:
        opened = log_of(database).open("rb")
    except FileNotFoundError:
        return 0
    with opened as log:
        salts = _salts(log)
        log.seek(HEADER.size + frames * FRAME_OCTETS)
        commits = 0
        while len(header := log.read(FRAME.size)) == FRAME.size:
            _, ends, of_round, _ = FRAME.unpack(header)
            commits += bool(ends) and of_round == salts
            log.seek(PAGE_OCTETS, 1)
        return commits


def _salts(log: BinaryIO) -> bytes:
    """Those of the round that the log is in."""
    header = log.read(HEADER.size).ljust(HEADER.size, b"\0")
    salts, checksum = header[16:24], header[24:]
    if _sums(header[:24], ">" if HEADER.unpack(header)[0] == BIG_ENDIAN else "<") == checksum:
        return salts
    return log.read(FRAME.size)[8:16]


def _sums(octets: bytes, order: str) -> bytes:
    """SQLite's checksum: two sums over all words, two words at a time."""
    one = two = 0
    for first, second in iter_unpack(f"{order}II", octets):
        one = (one + first + two) & 0xFFFFFFFF
        two = (two + second + one) & 0xFFFFFFFF
    return one.to_bytes(4) + two.to_bytes(4)
