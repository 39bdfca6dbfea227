"""What may be on a disk when the power goes, made from a trace of system calls.

    folder before ── calls up to the cut ──> what is on disk for certain, and what may be on its way there
                                                     └─ all of it, none, or some sectors ──> folder after

A write is on its way until its file is synced. A file that was removed is gone at once, or back, as the file system
likes. SQLite's index of its log (`-shm`) is made anew at every start, so it never counts.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterable
from enum import Enum
from pathlib import Path
from typing import Final

from .tracing import Call

SECTOR: Final = 512  # what a disk writes whole
NOT_KEPT: Final = "-shm"


class Fate(Enum):
    """What becomes of that which was not synced."""

    KEPT = "kept"  # as when only the process ends
    LOST = "lost"
    TORN = "torn"  # some sectors of it are written


class File:
    """The octets of one file: what is on disk for certain, and what was written since."""

    def __init__(self, octets: bytes) -> None:
        self.synced = octets
        self.written: list[Call] = []
        self.removed = False

    def left(self, fate: Fate, chance: random.Random) -> bytes | None:
        """What is found after the power is back; None: no such file."""
        if self.removed and (fate is Fate.KEPT or chance.random() < 0.5):
            return None
        octets = bytearray(self.synced)
        for call in self.written:
            if fate is Fate.KEPT:
                _apply(octets, call)
            elif fate is Fate.TORN:
                _tear(octets, call, chance)
        return bytes(octets)


def _apply(octets: bytearray, call: Call) -> None:
    if call.name == "ftruncate":
        del octets[call.offset :]
        octets.extend(bytes(call.offset - len(octets)))
    elif call.name == "pwrite64":
        end = call.offset + len(call.octets)
        octets.extend(bytes(max(0, end - len(octets))))
        octets[call.offset : end] = call.octets


def _tear(octets: bytearray, call: Call, chance: random.Random) -> None:
    """Some of its sectors."""
    if call.name == "ftruncate":
        if chance.random() < 0.5:
            _apply(octets, call)
        return
    at = 0
    while at < len(call.octets):
        start = call.offset + at
        size = SECTOR - start % SECTOR
        if chance.random() < 0.5:
            _apply(octets, Call(call.at, call.name, call.path, start, call.octets[at : at + size]))
        at += size


class Disk:
    """A folder whose files change as a trace tells."""

    def __init__(self, folder: Path) -> None:
        """As the folder is now: all of that counts as synced."""
        self.folder = folder
        self.files = {path: File(path.read_bytes()) for path in folder.rglob("*") if path.is_file()}

    def do(self, call: Call) -> None:
        if self.folder not in call.path.parents or call.path.name.endswith(NOT_KEPT):
            return
        file = self.files.get(call.path)
        if file is None and call.name == "fsync":
            return  # a folder: names count as kept
        if file is None or (file.removed and call.name != "unlink"):
            file = self.files[call.path] = File(b"")
        if call.name in ("fdatasync", "fsync"):
            octets = bytearray(file.synced)
            for written in file.written:
                _apply(octets, written)
            file.synced, file.written = bytes(octets), []
        elif call.name == "unlink":
            file.removed = True
        else:
            file.written.append(call)

    def do_all(self, calls: Iterable[Call]) -> None:
        for call in calls:
            self.do(call)

    def cut(self, target: Path, fate: Fate, seed: int) -> None:
        """Make the target what the folder would be if the power went now."""
        chance = random.Random(seed)
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir(parents=True)
        for path, file in self.files.items():
            octets = file.left(fate, chance)
            if octets is not None and not path.name.endswith(NOT_KEPT):
                there = target / path.relative_to(self.folder)
                there.parent.mkdir(parents=True, exist_ok=True)
                there.write_bytes(octets)
