"""A disk below SQLite and below the files of streams: it loses, tears and reorders what was not synced, and it fails.

    SQLite ── a VFS that is SQLite's own, but for writes, truncations and syncs ──┐
    segments, reserves ── os.pwrite, os.fdatasync, os.unlink ... ─────────────────┴──> SimulatedDisk

The files are real ones, in a folder in memory. Beside them the disk remembers of each what a sync has made safe, and
the writes since. `cut_at` ends the machine or the process in the middle of some operation:

* a process that is killed leaves its files as they are, with the same writes unsafe;
* a power cut keeps what is safe, and of every other write some sectors of 512 bytes, whichever; a file may have its new
  size all the same, with zeros in it; names that were made or deleted since their folder was synced are there or not.

A disk that lies says of some syncs that all is safe, and has done nothing. A sync that fails has written nothing, and
the next one that succeeds does not write what this one should have (as Linux does). Everything is decided by one
generator.
"""

from __future__ import annotations

import ctypes
import errno
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, Final

import attrs

SECTOR: Final = 512
FULL, WRITE_FAILED, SYNC_FAILED, TRUNCATE_FAILED, OK = (
    13,
    10 | 3 << 8,
    10 | 4 << 8,
    10 | 6 << 8,
    0,
)  # of SQLite
ROOM: Final = 1 << 40


@attrs.define(eq=False)
class Change:
    """A write, or a truncation, if there are no bytes."""

    at: int
    octets: bytes | None
    is_doomed: bool = False  # a sync of it has failed: none will write it any more
    is_safe: bool = False  # on the disk, after something that is doomed


@attrs.define(eq=False)
class Kept:
    """What the disk has of a file, whatever the operating system shows of it."""

    safe: bytearray = attrs.field(factory=bytearray)
    changes: list[Change] = attrs.field(factory=list)
    is_named: bool = False  # its name is safe, too
    is_gone: bool = False  # deleted, which is not safe yet

    def sync(self) -> None:
        while self.changes and not self.changes[0].is_doomed:
            applied(self.safe, self.changes.pop(0))
        for change in self.changes:  # in their order: what is doomed may have been written over since
            change.is_safe = not change.is_doomed

    def after_a_cut(self, random: Random, has_size: bool) -> bytes | None:
        """Return what a power cut leaves; None: no file. `has_size`: its size is safe, if it is there."""
        if self.is_gone and random.random() < 0.5:
            return None
        if not self.is_named and random.random() < 0.5:
            return None
        left, share = bytearray(self.safe), random.choice((0.0, 0.5, 0.9, 1.0))
        size = len(self.safe)
        for change in self.changes:
            if change.is_safe:
                applied(left, change)
                continue
            if change.octets is None:
                if random.random() < share:
                    applied(left, change)
                size = len(left)
                continue
            at, end = change.at, change.at + len(change.octets)
            size = max(size, end)
            while at < end:
                until = min(end, (at // SECTOR + 1) * SECTOR)
                if random.random() < share:
                    applied(left, Change(at, change.octets[at - change.at : until - change.at]))
                at = until
        if has_size:
            left.extend(bytes(max(0, size - len(left))))
        return bytes(left)


def applied(content: bytearray, change: Change) -> None:
    size = len(content)
    if change.octets is None:
        content[change.at :] = bytes(max(0, change.at - size))
        return
    if size < change.at:
        content.extend(bytes(change.at - size))
    content[change.at : change.at + len(change.octets)] = change.octets


class SimulatedDisk:
    """One disk. `installed` lets SQLite and the store's files write to it; its folders come one after the other."""

    def __init__(self, root: Path, random: Random) -> None:
        self.root = root
        self.random = random
        self.free = ROOM  # bytes
        self.operations = 0  # that changed something, or synced
        self.no_files = False  # nothing can be opened
        self.sync_errors = 0  # so many syncs, or writes, fail from now on
        self.write_errors = 0
        self.lies: Callable[[], bool] = lambda: (
            False
        )  # whether a sync says that all is safe, and has done nothing
        self._kept: dict[str, Kept] = {}
        self._cut_at = 0
        self._is_power = False
        self._image: dict[str, tuple[bytes, Kept]] | None = None
        self._lives = 0
        self._names: dict[int, str] = {}  # of SQLite's files, by address
        self._next_folder()

    def _next_folder(self) -> None:
        self._lives += 1
        self.folder = self.root / f"{self._lives}"
        self.folder.mkdir()

    # Ends.

    def cut_at(self, operations: int, is_power: bool) -> None:
        """Take the disk away after so many operations from now: 0 is at once."""
        self._cut_at, self._is_power, self._image = self.operations + operations, is_power, None
        self._look()

    def begin_again(self) -> None:
        """Go on with what there was when the disk was taken away; if it was not yet, as it is."""
        if self._image is None:
            self._image = self._taken()
        image, self._image, self._cut_at = self._image, None, 0
        self._names.clear()
        self._next_folder()
        self._kept = {}
        for name, (octets, kept) in image.items():
            file = self.folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(octets)
            self._kept[str(file)] = kept

    def make_safe(self) -> None:
        """Sync everything."""
        for name in list(self._kept):
            if self._kept[name].is_gone:
                del self._kept[name]
        for file in self._files():
            self._kept[str(file)] = Kept(bytearray(file.read_bytes()), [], True)

    def _files(self) -> list[Path]:
        return sorted(
            each for each in self.folder.rglob("*") if each.is_file() and not each.name.endswith("-shm")
        )

    def _look(self) -> None:
        if self._cut_at and self._image is None and self.operations >= self._cut_at:
            self._image = self._taken()

    def _taken(self) -> dict[str, tuple[bytes, Kept]]:
        image: dict[str, tuple[bytes, Kept]] = {}
        if not self._is_power:
            for file in self._files():
                name = str(file)
                kept = self._kept.get(name, Kept())
                copy = Kept(
                    bytearray(kept.safe), [attrs.evolve(each) for each in kept.changes], kept.is_named
                )
                image[str(file.relative_to(self.folder))] = file.read_bytes(), copy
            return image
        for name, kept in sorted(self._kept.items()):
            octets = kept.after_a_cut(self.random, has_size=self.operations % 3 == 0)
            if octets is not None:
                image[str(Path(name).relative_to(self.folder))] = (
                    octets,
                    Kept(bytearray(octets), [], True),
                )
        return image

    # Operations.

    def has(self, name: str) -> bool:
        return name.startswith(f"{self.folder}/")

    def _of(self, name: str) -> Kept:
        return self._kept.setdefault(name, Kept())

    def opened(self, name: str) -> None:
        kept = self._of(name)
        if kept.is_gone:
            kept.is_gone, kept.changes = False, [*kept.changes, Change(0, None)]

    def grow(self, octets: int) -> bool:
        """Take room for so many more bytes. Return whether there is room."""
        if octets > self.free:
            return False
        self.free -= octets
        return True

    def make_room(self) -> None:
        """Others leave the disk."""
        self.free = ROOM

    def fails_to_write(self) -> bool:
        self.write_errors -= (fails := self.write_errors > 0)
        return fails

    def written(self, name: str, at: int, octets: bytes) -> None:
        self._of(name).changes.append(Change(at, octets))
        self._done()

    def truncated(self, name: str, size: int) -> None:
        self._of(name).changes.append(Change(size, None))
        self._done()

    def synced(self, name: str, with_name: bool = False) -> bool:
        """Return False if the sync fails."""
        kept = self._of(name)
        if self.sync_errors:
            self.sync_errors -= 1
            for change in kept.changes:
                change.is_doomed = not change.is_safe
            return False
        self._done()  # a cut before it
        if self.lies():
            return True
        kept.sync()
        kept.is_named = kept.is_named or with_name
        self._done()
        return True

    def folder_synced(self, folder: str) -> None:
        self._done()
        if self.lies():
            return
        for name, kept in list(self._kept.items()):
            if os.path.dirname(name) == folder:
                kept.is_named = True
                if kept.is_gone:
                    del self._kept[name]
        self._done()

    def deleted(self, name: str) -> None:
        if name in self._kept:
            self._kept[name].is_gone = True
        self._done()

    def _done(self) -> None:
        self.operations += 1
        self._look()

    # SQLite's files.

    def opened_by_sqlite(self, address: int, name: str) -> None:
        if self.has(name) and not name.endswith("-shm"):
            self._names[address] = name
            self.opened(name)
        else:
            self._names.pop(address, None)

    def name_of(self, address: int) -> str | None:
        name = self._names.get(address)
        return name if name is not None and self.has(name) else None

    @contextmanager
    def installed(self) -> Iterator[None]:
        """Have SQLite and the store write to this disk."""
        with os_calls(self), vfs(self):
            yield


# The calls of Python's own.


@contextmanager
def os_calls(disk: SimulatedDisk) -> Iterator[None]:
    """Lead the calls of `os` that the store uses past the disk."""
    real = SimpleNamespace(**vars(os))

    def name_at(file: int) -> str:
        return os.readlink(f"/proc/self/fd/{file}")

    def fail(number: int) -> None:
        raise OSError(number, os.strerror(number))

    def open_(path: Any, flags: int, mode: int = 0o777, **more: Any) -> int:
        name = os.fspath(path)
        is_ours = isinstance(name, str) and disk.has(name)
        if is_ours and disk.no_files:
            fail(errno.EMFILE)
        is_new = is_ours and not os.path.exists(name)
        file: int = real.open(path, flags, mode, **more)
        if is_new:
            disk.opened(name)
        return file

    def pwrite(file: int, octets: Any, at: int) -> int:
        name = name_at(file)
        if not disk.has(name):
            return int(real.pwrite(file, octets, at))
        if disk.fails_to_write():
            fail(errno.EIO)
        if not disk.grow(max(0, at + len(octets) - os.fstat(file).st_size)):
            fail(errno.ENOSPC)
        count: int = real.pwrite(file, octets, at)
        disk.written(name, at, bytes(octets[:count]))
        return count

    def ftruncate(file: int, size: int) -> None:
        name = name_at(file)
        before = os.fstat(file).st_size
        real.ftruncate(file, size)
        if disk.has(name):
            disk.free += max(0, before - size)
            disk.truncated(name, size)

    def truncate(path: Any, size: int) -> None:
        file = real.open(path, os.O_RDWR)
        try:
            ftruncate(file, size)
        finally:
            os.close(file)

    def fallocate(file: int, at: int, size: int) -> None:
        name = name_at(file)
        if disk.has(name):
            if not disk.grow(size):
                fail(errno.ENOSPC)
            real.ftruncate(file, at + size)  # sparse: the room is counted, and not used
            disk.truncated(name, at + size)
        else:
            real.posix_fallocate(file, at, size)

    def sync(file: int) -> None:
        name = name_at(file)
        if name == str(disk.folder) or (disk.has(name) and os.path.isdir(name)):
            disk.folder_synced(name)
        elif disk.has(name):
            if name.endswith("-wal"):  # written over as a whole, by a call that is not seen here
                disk.written(name, 0, os.pread(file, os.fstat(file).st_size, 0))
            if not disk.synced(name):
                fail(errno.EIO)

    def unlink(path: Any, **more: Any) -> None:
        name = os.fspath(path)
        is_ours = isinstance(name, str) and disk.has(name)
        size = os.stat(name).st_size if is_ours and os.path.exists(name) else 0
        real.unlink(path, **more)
        if is_ours:
            disk.free += size
            disk.deleted(name)

    def statvfs(path: Any) -> Any:
        found = real.statvfs(path)
        return SimpleNamespace(
            f_bavail=disk.free // found.f_frsize,
            f_bfree=disk.free // found.f_frsize,
            f_blocks=ROOM // found.f_frsize,
            f_frsize=found.f_frsize,
            f_bsize=found.f_bsize,
        )

    def urandom(size: int) -> bytes:
        return disk.random.randbytes(size)

    led = {
        "open": open_,
        "pwrite": pwrite,
        "ftruncate": ftruncate,
        "truncate": truncate,
        "posix_fallocate": fallocate,
        "fdatasync": sync,
        "fsync": sync,
        "unlink": unlink,
        "statvfs": statvfs,
        "urandom": urandom,
    }
    for name, call in led.items():
        setattr(os, name, call)
    try:
        yield
    finally:
        for name in led:
            setattr(os, name, getattr(real, name))


# The VFS (sqlite.org/vfs.html). Structures are those of sqlite3.h.

Pointer = ctypes.c_void_p
# names are pointers: SQLite keeps those, and finds parameters behind them
XOPEN = ctypes.CFUNCTYPE(ctypes.c_int, Pointer, Pointer, Pointer, ctypes.c_int, ctypes.POINTER(ctypes.c_int))
XDELETE = ctypes.CFUNCTYPE(ctypes.c_int, Pointer, Pointer, ctypes.c_int)
XRANDOM = ctypes.CFUNCTYPE(ctypes.c_int, Pointer, ctypes.c_int, Pointer)
XWRITE = ctypes.CFUNCTYPE(ctypes.c_int, Pointer, Pointer, ctypes.c_int, ctypes.c_int64)
XTRUNCATE = ctypes.CFUNCTYPE(ctypes.c_int, Pointer, ctypes.c_int64)
XSYNC = ctypes.CFUNCTYPE(ctypes.c_int, Pointer, ctypes.c_int)
XSIZE = ctypes.CFUNCTYPE(ctypes.c_int, Pointer, ctypes.POINTER(ctypes.c_int64))


class Vfs(ctypes.Structure):
    _fields_ = [
        ("version", ctypes.c_int),
        ("file_size", ctypes.c_int),
        ("path_max", ctypes.c_int),
        ("next", Pointer),
        ("name", ctypes.c_char_p),
        ("data", Pointer),
        ("open", XOPEN),
        ("delete", XDELETE),
        ("access", Pointer),
        ("full_path", Pointer),
        ("dl", Pointer * 4),
        ("randomness", XRANDOM),
        ("rest", Pointer * 7),  # sleep, time, last error, time in 64 bits, and three for system calls
    ]


class Methods(ctypes.Structure):
    _fields_ = [
        ("version", ctypes.c_int),
        ("close", Pointer),
        ("read", Pointer),
        ("write", XWRITE),
        ("truncate", XTRUNCATE),
        ("sync", XSYNC),
        ("size", XSIZE),
        ("rest", Pointer * 12),
    ]


class File(ctypes.Structure):
    _fields_ = [("methods", ctypes.POINTER(Methods))]


CREATE_WAL: Final = 0x00080000


@cache
def library() -> ctypes.CDLL:
    """Return the library of Python's sqlite3."""
    import _sqlite3

    for line in Path("/proc/self/maps").read_text().splitlines():
        if "libsqlite3" in line:
            return ctypes.CDLL(line.split()[-1])
    return ctypes.CDLL(_sqlite3.__file__)


def is_possible() -> bool:
    """Return whether SQLite's functions can be reached."""
    try:
        return hasattr(library(), "sqlite3_vfs_register")
    except OSError:
        return False


@cache
def shim() -> Shim:
    return Shim()


@contextmanager
def vfs(disk: SimulatedDisk) -> Iterator[None]:
    """Make the disk's VFS the default one for a while."""
    made = shim()
    made.disk = disk
    made.use(True)
    try:
        yield
    finally:
        made.use(False)
        made.disk = None


class Shim:
    """SQLite's own VFS, but for what a disk has to know. Registered once, as SQLite keeps pointers to it."""

    def __init__(self) -> None:
        self.disk: SimulatedDisk | None = None
        self._library = library()
        self._library.sqlite3_vfs_find.restype = Pointer
        self._library.sqlite3_vfs_find.argtypes = [ctypes.c_char_p]
        self._library.sqlite3_vfs_register.argtypes = [Pointer, ctypes.c_int]
        self._real_address = self._library.sqlite3_vfs_find(None)
        self._real = Vfs.from_address(self._real_address)
        self._own = Vfs()
        ctypes.memmove(ctypes.byref(self._own), self._real_address, ctypes.sizeof(Vfs))
        self._own.name, self._own.next = b"simulated", None
        self._own.open, self._own.delete = XOPEN(self._open), XDELETE(self._delete)
        self._own.randomness = XRANDOM(self._random)
        self._methods: dict[int, Methods] = {}  # by the address of the real ones
        self._keep: list[object] = []

    def use(self, is_used: bool) -> None:
        self._library.sqlite3_vfs_register(ctypes.addressof(self._own), int(is_used))
        if not is_used:
            self._library.sqlite3_vfs_register(self._real_address, 1)
        self._library.sqlite3_randomness(0, None)  # seeded again by the next need

    def _open(self, _: int, name: int | None, file: int, flags: int, out: Any) -> int:
        code: int = self._real.open(self._real_address, name, file, flags, out)
        if code == OK and name is not None:
            held = File.from_address(file)
            address = ctypes.addressof(held.methods.contents)
            held.methods = ctypes.pointer(self._led(address))
            if self.disk is not None:
                self.disk.opened_by_sqlite(file, os.fsdecode(ctypes.string_at(name)))
        return code

    def _delete(self, _: int, name: int, sync: int) -> int:
        disk, text = self.disk, os.fsdecode(ctypes.string_at(name))
        size = os.stat(text).st_size if os.path.exists(text) else 0
        code: int = self._real.delete(self._real_address, name, sync)
        if code == OK and disk is not None and disk.has(text):
            disk.free += size
            disk.deleted(text)
            if sync:
                disk.folder_synced(os.path.dirname(text))
        return code

    def _random(self, _: int, size: int, to: int) -> int:
        octets = self.disk.random.randbytes(size) if self.disk is not None else os.urandom(size)
        ctypes.memmove(to, octets, size)
        return size

    def _led(self, address: int) -> Methods:
        if address not in self._methods:
            self._methods[address] = self._made(Methods.from_address(address))
        return self._methods[address]

    def _made(self, real: Methods) -> Methods:
        def name(file: int) -> str | None:
            return self.disk.name_of(file) if self.disk is not None else None

        def write(file: int, octets: int, size: int, at: int) -> int:
            disk, found = self.disk, name(file)
            if disk is None or found is None:
                return int(real.write(file, octets, size, at))
            if disk.fails_to_write():
                return WRITE_FAILED
            there = ctypes.c_int64()
            real.size(file, ctypes.byref(there))
            if not disk.grow(max(0, at + size - there.value)):
                return FULL
            code: int = real.write(file, octets, size, at)
            if code == OK:
                disk.written(found, at, ctypes.string_at(octets, size))
            return code

        def truncate(file: int, size: int) -> int:
            there = ctypes.c_int64()
            real.size(file, ctypes.byref(there))
            code: int = real.truncate(file, size)
            disk, found = self.disk, name(file)
            if disk is not None and found is not None and code == OK:
                disk.free += max(0, there.value - size)
                disk.truncated(found, size)
            return code

        def sync(file: int, flags: int) -> int:
            disk, found = self.disk, name(file)
            if disk is None or found is None:
                return int(real.sync(file, flags))
            # A log that SQLite makes is synced with its name for the first time.
            return OK if disk.synced(found, found.endswith("-wal")) else SYNC_FAILED

        own = Methods()
        ctypes.memmove(ctypes.byref(own), ctypes.byref(real), ctypes.sizeof(Methods))
        calls: tuple[Callable[..., object], ...] = (XWRITE(write), XTRUNCATE(truncate), XSYNC(sync))
        own.write, own.truncate, own.sync = calls  # type: ignore[misc]
        self._keep.append((own, calls))
        return own
