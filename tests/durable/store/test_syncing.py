"""What a sync asks of the system: on macOS, that the drive writes down what it has; and what a start syncs again."""

from __future__ import annotations

import errno
import fcntl
import os
import sys
from contextlib import closing
from pathlib import Path

import pytest

from leveret.durable.store import sqlite, syncing, wal_tail
from leveret.durable.store.database import connected
from leveret.durable.store.folder import MESSAGES, META
from leveret.durable.store.syncing import have_folder, sync_file, sync_folder, write_all
from tests.durable.store.shelf import Shelf, entries

F_FULLFSYNC = 51  # its number on macOS


class Asked:
    """What a system that calls itself macOS was asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[object] = []
        self.error = 0
        monkeypatch.setattr(sys, "platform", "darwin")
        monkeypatch.setattr(fcntl, "F_FULLFSYNC", F_FULLFSYNC, raising=False)
        monkeypatch.setattr(fcntl, "fcntl", self._fcntl)
        monkeypatch.setattr(os, "fsync", lambda descriptor: self.calls.append("fsync"))
        monkeypatch.delattr(os, "fdatasync", raising=False)

    def _fcntl(self, descriptor: int, command: int) -> int:
        self.calls.append(command)
        if self.error:
            raise OSError(self.error, os.strerror(self.error))
        return 0


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    return Asked(monkeypatch)


def test_on_macos_files_and_folders_are_written_down_by_the_drive(asked: Asked, tmp_path: Path):
    with (tmp_path / "file").open("wb") as file:
        sync_file(file.fileno())
    sync_folder(tmp_path)
    assert asked.calls == [F_FULLFSYNC, F_FULLFSYNC]


@pytest.mark.parametrize("error", [errno.ENOTSUP, errno.EINVAL, errno.ENOTTY])
def test_a_file_system_that_cannot_do_so_syncs_as_it_can(asked: Asked, error: int):
    asked.error = error
    sync_file(0)
    assert asked.calls == [F_FULLFSYNC, "fsync"]


def test_a_sync_that_has_failed_is_not_tried_again(asked: Asked):
    asked.error = errno.EIO
    with pytest.raises(OSError, match="Input/output error"):
        sync_file(0)
    assert asked.calls == [F_FULLFSYNC]


def test_a_disk_that_takes_a_part_of_a_write_is_given_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    write, parts = os.pwrite, iter([2, 0, 1, 3])

    def cut_short(descriptor: int, octets: bytes, at: int) -> int:
        return write(descriptor, octets[: next(parts)], at)

    monkeypatch.setattr(os, "pwrite", cut_short)
    with (tmp_path / "file").open("w+b") as file:
        with pytest.raises(OSError, match="cut short"):
            write_all(file.fileno(), b"abcd", 1)
        assert write_all(file.fileno(), b"abcd", 1) == 4
        assert file.read() == b"\0abcd"


def test_a_folder_that_is_made_has_its_name_on_disk_and_so_have_those_above_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    synced: list[Path] = []
    monkeypatch.setattr(syncing, "sync_folder", synced.append)
    have_folder(tmp_path / "a/b/c")
    have_folder(tmp_path / "a/b/c")
    assert synced == [tmp_path, tmp_path / "a", tmp_path / "a/b"]
    assert (tmp_path / "a/b/c").is_dir()


def test_sqlite_is_asked_for_the_same(tmp_path: Path):
    file = tmp_path / "messages.db"
    file.touch()
    with closing(connected(file)) as database:
        for pragma in ("fullfsync", "checkpoint_fullfsync"):
            assert database.execute(f"pragma {pragma}").fetchone() == (1,)


def test_the_logs_of_a_store_that_was_not_closed_are_written_over_themselves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """What is in them may be in memory only, if a sync has failed; that is before SQLite looks at them."""
    shelf = Shelf.of(tmp_path / "data").start()
    shelf.commit(objects={"a": "1"}, chunks=[entries(1, b"x" * 50_000)])
    copy = tmp_path / "copy"
    shelf.kill(copy)
    logs = [wal_tail.log_of(copy / name) for name in (MESSAGES, META)]
    before = [(log.read_bytes(), log.stat().st_mtime_ns) for log in logs]
    synced: list[str] = []
    monkeypatch.setattr(wal_tail, "STEP_OCTETS", 4096)
    monkeypatch.setattr(
        wal_tail, "sync_file", lambda file: synced.append(os.readlink(f"/proc/self/fd/{file}"))
    )
    monkeypatch.setattr(sqlite, "opened", lambda file: pytest.fail("it is too late then"))
    with pytest.raises(pytest.fail.Exception):
        Shelf.of(copy)
    assert synced == [str(log) for log in logs]
    for log, (octets, moment) in zip(logs, before, strict=True):
        assert octets
        assert log.read_bytes() == octets
        assert log.stat().st_mtime_ns > moment
