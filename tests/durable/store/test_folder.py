"""The data folder: whose it is, what is in it, and what is refused with which words."""

from __future__ import annotations

import errno
import os
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from leveret.durable.store import database
from leveret.durable.store import folder as folder_module
from leveret.durable.store.folder import LOCK, MESSAGES, META, BadFolder, Folder, holder
from leveret.durable.store.sqlite import SqliteStore
from tests.durable.store.shelf import Found, Shelf, entries


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A store that was used and closed."""
    shelf = Shelf.of(tmp_path / "data").start()
    shelf.commit(objects={"a": "1"}, chunks=[entries(1, b"x")])
    shelf.store.close(shelf.new_commit())
    return tmp_path / "data"


def refused(folder: Path) -> str:
    before = {file.name: file.read_bytes() for file in folder.glob("*.db")}
    with pytest.raises(BadFolder) as caught:
        SqliteStore(folder)
    assert before == {file.name: file.read_bytes() for file in folder.glob("*.db")}, "nothing is overwritten"
    assert holder(folder) is None, "the lock is let go"
    return str(caught.value)


# The lock.


def test_a_folder_is_made_for_its_owner_only(tmp_path: Path):
    SqliteStore(tmp_path / "deep" / "data").close(None)
    assert stat.S_IMODE((tmp_path / "deep" / "data").stat().st_mode) == 0o700


def test_two_stores_cannot_share_a_folder(tmp_path: Path):
    first = SqliteStore(tmp_path / "data")
    with pytest.raises(BadFolder, match=f"{tmp_path}/data is in use by the process {os.getpid()}: two nodes"):
        SqliteStore(tmp_path / "data")
    first.close(None)
    SqliteStore(tmp_path / "data").close(None)


def test_the_lock_of_another_process_ends_with_it(tmp_path: Path):
    program = "import sys; from pathlib import Path; from leveret.durable.store.folder import Folder\n"
    program += (
        f"folder = Folder(Path({str(tmp_path / 'data')!r})); print('held', flush=True); sys.stdin.read()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        assert holder(tmp_path / "data") == process.pid
        with pytest.raises(BadFolder, match=f"in use by the process {process.pid}:"):
            SqliteStore(tmp_path / "data")
        process.kill()
        process.wait()
    assert holder(tmp_path / "data") is None
    SqliteStore(tmp_path / "data").close(None)


def test_a_lock_that_says_nothing_is_one_all_the_same(tmp_path: Path):
    folder = Folder(tmp_path)
    (tmp_path / LOCK).write_text("nonsense")
    with pytest.raises(BadFolder, match="is in use by another process"):
        Folder(tmp_path)
    assert holder(tmp_path) == 0
    folder.release()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_lock_that_there_is_no_room_to_sign_holds_all_the_same(
    tmp_path: Path, number: int, monkeypatch: pytest.MonkeyPatch
):
    (tmp_path / LOCK).write_text("12345\n")

    def refuse(*given: object) -> int:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patched:
        patched.setattr(folder_module.os, "pwrite", refuse)
        folder = Folder(tmp_path)
    assert holder(tmp_path) == 0, "not the process before"
    with pytest.raises(BadFolder, match="is in use by another process"):
        Folder(tmp_path)
    folder.release()


def test_a_folder_that_cannot_be_made_is_refused(tmp_path: Path):
    (tmp_path / "file").write_text("mine")
    for place in (tmp_path / "file", tmp_path / "file" / "data"):
        with pytest.raises(BadFolder, match=f"{place}"):
            SqliteStore(place)
    assert (tmp_path / "file").read_text() == "mine"


def test_a_lock_is_no_way_to_somebody_elses_file(tmp_path: Path):
    (tmp_path / "precious").write_text("mine")
    (tmp_path / LOCK).symlink_to(tmp_path / "precious")
    with pytest.raises(BadFolder, match="cannot be used"):
        SqliteStore(tmp_path)
    assert (tmp_path / "precious").read_text() == "mine"


# Formats.


@pytest.mark.parametrize("name", [MESSAGES, META])
def test_a_newer_format_is_refused(folder: Path, name: str):
    with sqlite3.connect(folder / name) as connection:
        connection.execute("pragma user_version=5")
    connection.close()
    said = refused(folder)
    assert f"{folder / name} has format 5, and this version of Leveret knows formats up to 4" in said
    assert "newer version" in said


@pytest.mark.parametrize("name", [MESSAGES, META])
def test_a_database_of_somebody_else_is_refused(folder: Path, name: str):
    (folder / name).unlink()
    with sqlite3.connect(folder / name) as connection:
        connection.execute("create table theirs (x)")
    connection.close()
    assert f"{folder / name} is no file of Leveret's" in refused(folder)


def test_the_two_databases_are_not_taken_for_each_other(folder: Path):
    (folder / META).rename(folder / "other")
    (folder / MESSAGES).rename(folder / META)
    (folder / "other").rename(folder / MESSAGES)
    assert "is no file of Leveret's" in refused(folder)


@pytest.mark.parametrize("name", [MESSAGES, META])
def test_what_is_no_database_is_refused(folder: Path, name: str):
    (folder / name).write_bytes(b"x" * 10_000)
    assert f"{folder / name} is damaged: file is not a database" in refused(folder)


@pytest.mark.parametrize("name", [MESSAGES, META])
def test_other_tables_are_refused(folder: Path, name: str):
    with sqlite3.connect(folder / name) as connection:
        connection.execute("create table more (x)")
    connection.close()
    assert "its tables are not those of format 1" in refused(folder)


# Files that are missing, or of another folder.


@pytest.mark.parametrize("name", [MESSAGES, META])
def test_a_missing_file_is_not_made_anew(folder: Path, name: str):
    (folder / name).unlink()
    assert f"{folder / name} is missing" in refused(folder)
    assert not (folder / name).exists()


@pytest.mark.parametrize("name", [MESSAGES, META])
def test_an_empty_file_is_not_taken_for_a_new_one(folder: Path, name: str):
    (folder / name).write_bytes(b"")
    log = folder / f"{name}-wal"
    log.write_bytes(b"what SQLite would delete")
    assert f"{folder / name} is cut off" in refused(folder)
    assert log.read_bytes() == b"what SQLite would delete"


@pytest.mark.parametrize("name", [MESSAGES, META])
def test_files_of_different_folders_are_refused(folder: Path, tmp_path: Path, name: str):
    other = Shelf.of(tmp_path / "other").start()
    other.store.close(other.new_commit())
    (tmp_path / "other" / name).replace(folder / name)
    assert "its two databases are of different folders" in refused(folder)


# Made, or half made.


@pytest.mark.parametrize("left", [[], [MESSAGES], ["messages.new"], [MESSAGES, "meta.new"]])
def test_what_a_crash_left_of_the_making_of_a_folder_is_made_again(tmp_path: Path, left: list[str]):
    SqliteStore(tmp_path / "data").close(None)
    for file in (tmp_path / "data").glob("*"):
        if file.name not in left:
            file.unlink()
    for name in left:
        if name.endswith(".new"):
            (tmp_path / "data" / name).write_bytes(b"half of it")
    shelf = Shelf.of(tmp_path / "data").start()
    shelf.commit(objects={"a": "1"}, chunks=[entries(1, b"x")])
    shelf = shelf.closed()
    assert [*shelf.found().chunks] == [1]
    assert shelf.store.was_clean
    shelf.store.close(None)


def test_a_database_is_not_there_before_it_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Whatever fails while it is made, there is none of that name, and the next start makes it."""
    for at in range(len(database.SCHEMA[MESSAGES]) + 1):
        tables = list(database.SCHEMA[MESSAGES])
        tables.insert(at, "create nonsense")
        with monkeypatch.context() as context:
            context.setitem(database.SCHEMA, MESSAGES, tuple(tables))
            with pytest.raises(BadFolder, match="cannot be written"):
                SqliteStore(tmp_path / "data")
        assert not (tmp_path / "data" / MESSAGES).exists()
    shelf = Shelf.of(tmp_path / "data")
    assert shelf.found() == Found([], {}, {})
    shelf.store.close(None)


def test_a_file_in_place_of_the_folder_is_told(tmp_path: Path):
    (tmp_path / "data").write_text("")
    with pytest.raises(BadFolder, match="data cannot be made: there is something else of this name"):
        Folder(tmp_path / "data")
