"""What a trace says, and what may be on a disk after a part of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from .cuts import Disk, Fate
from .tracing import Call, calls_in

FOLDER = Path("/folder")
LOG = FOLDER / "a-wal"


def hexed(text: str) -> str:
    return "".join(f"\\x{octet:02x}" for octet in text.encode())


def test_a_trace_is_read(tmp_path: Path):
    name = hexed("/folder/a-wal")
    lines = [
        f'7 10.000001 pwrite64(3<{name}>, "{hexed("abcd")}", 4, 4096) = 4',
        f"8 10.000002 fdatasync(4<{name}> <unfinished ...>",
        f"7 10.000003 ftruncate(3<{name}>, 10) = 0",
        "8 10.000004 <... fdatasync resumed>) = 0",
        f"7 10.000005 fdatasync(3<{name}>) = -1 EIO (Input/output error) (INJECTED)",
        f'7 10.000006 unlink("{name}") = 0',
        f'7 10.000007 pwrite64(3<{name}>, "{hexed("abcd")}", 4, 0) = 3',
        "7 10.000008 +++ killed by SIGKILL +++",
    ]
    (tmp_path / "trace").write_text("\n".join(lines))
    assert calls_in(tmp_path / "trace") == [
        Call(10.000001, "pwrite64", LOG, 4096, b"abcd"),
        Call(10.000003, "ftruncate", LOG, 10),
        Call(10.000002, "fdatasync", LOG),
        Call(10.000006, "unlink", LOG),
        Call(10.000007, "pwrite64", LOG, 0, b"abc"),
    ]


@pytest.fixture
def disk(tmp_path: Path) -> Disk:
    (tmp_path / "data").mkdir()
    (tmp_path / "data/a-wal").write_bytes(b"old")
    return Disk(tmp_path / "data")


def after(disk: Disk, fate: Fate, seed: int = 0) -> bytes | None:
    """What is left of the log."""
    target = disk.folder.with_name("cut")
    disk.cut(target, fate, seed)
    left = target / "a-wal"
    return left.read_bytes() if left.exists() else None


def do(disk: Disk, name: str, offset: int = 0, octets: bytes = b"") -> None:
    disk.do(Call(0, name, disk.folder / "a-wal", offset, octets))


def test_what_was_not_synced_may_be_lost(disk: Disk):
    do(disk, "pwrite64", 3, b" new")
    assert after(disk, Fate.LOST) == b"old"
    assert after(disk, Fate.KEPT) == b"old new"
    do(disk, "fdatasync")
    assert after(disk, Fate.LOST) == b"old new"


def test_a_write_may_be_torn_between_sectors(disk: Disk):
    do(disk, "pwrite64", 0, b"x" * 700)
    do(disk, "fdatasync")
    do(disk, "pwrite64", 500, b"y" * 524)
    found = {after(disk, Fate.TORN, seed) for seed in range(30)}
    first = b"x" * 500 + b"y" * 12 + b"x" * 188
    second = b"x" * 512 + b"y" * 512
    assert found == {b"x" * 700, first, second, b"x" * 500 + b"y" * 524}


def test_a_file_grows_and_shrinks(disk: Disk):
    do(disk, "ftruncate", 1)
    do(disk, "pwrite64", 3, b"!")
    assert after(disk, Fate.KEPT) == b"o\0\0!"
    assert after(disk, Fate.LOST) == b"old"


def test_a_file_that_was_removed_may_be_back(disk: Disk):
    do(disk, "unlink")
    assert after(disk, Fate.KEPT) is None
    assert {after(disk, Fate.LOST, seed) for seed in range(20)} == {None, b"old"}


def test_a_file_that_is_made_again_is_a_new_one(disk: Disk):
    do(disk, "unlink")
    do(disk, "pwrite64", 0, b"new")
    assert after(disk, Fate.LOST) == b""
    assert after(disk, Fate.KEPT) == b"new"


def test_the_index_of_the_log_does_not_count(disk: Disk):
    disk.do(Call(0, "pwrite64", disk.folder / "a-shm", 0, b"new"))
    disk.cut(disk.folder.with_name("cut"), Fate.KEPT, 0)
    assert [path.name for path in disk.folder.with_name("cut").iterdir()] == ["a-wal"]


def test_files_in_folders_within_count_and_the_folders_are_none(disk: Disk):
    segment = disk.folder / "streams" / "7" / "a.segment"
    disk.do(Call(0, "pwrite64", segment, 0, b"new"))
    disk.do(Call(0, "fsync", segment.parent))
    disk.do(Call(0, "fsync", disk.folder))
    target = disk.folder.with_name("cut")
    disk.cut(target, Fate.KEPT, 0)
    left = {str(path.relative_to(target)): path.read_bytes() for path in target.rglob("*") if path.is_file()}
    assert left == {"a-wal": b"old", "streams/7/a.segment": b"new"}
