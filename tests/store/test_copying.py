"""Backups: taken while a store is written to, of one moment, whole or not at all; and what a copy is worth."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker_core.store import checking, copying
from broker_core.store.folder import MESSAGES, META, BadFolder
from broker_core.store.memory import MemoryStore
from tests.store.shelf import Found, Shelf, entries


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    made = Shelf.of(tmp_path / "data").start()
    made.commit(objects={'["a"]': "1"}, chunks=[entries(1, b"x", b"y")], settled={1: b"\1"}, marks={2: 3})
    return made


def held(folder: Path) -> tuple[Found, bool]:
    """What a start on a folder finds, and whether it was closed properly; sound it must be."""
    shelf = Shelf.of(folder)
    found, clean = shelf.found(), shelf.store.was_clean
    assert shelf.store.damage == []
    shelf.store.close(None)
    return found, clean


def test_a_backup_of_a_store_in_use_is_that_store_as_after_a_crash(shelf: Shelf, tmp_path: Path):
    shelf.store.backup(tmp_path / "copy")
    expected = shelf.given_up().found()
    assert expected.marks == {2: 3}
    assert held(tmp_path / "copy") == (expected, False)


def test_a_backup_of_a_store_that_was_closed_is_closed(shelf: Shelf, tmp_path: Path):
    shelf.store.close(shelf.new_commit(objects={'["b"]': "2"}))
    copying.copy(tmp_path / "data", tmp_path / "copy")
    found, clean = held(tmp_path / "copy")
    assert found.objects == [('["a"]', "1"), ('["b"]', "2")]
    assert clean


def test_a_copy_has_no_logs_and_can_be_lost_none(shelf: Shelf, tmp_path: Path):
    shelf.store.backup(tmp_path / "copy")
    shelf.store.close(None)
    assert sorted(file.name for file in (tmp_path / "copy").iterdir()) == [MESSAGES, META]


def test_a_backup_is_of_one_moment_though_commits_go_on(shelf: Shelf, tmp_path: Path):
    """Between the first step of copying and the last a queue is declared, and gets messages; others go."""
    shelf.commit(chunks=[entries(3, b"z" * 20_000_000)])
    steps: list[int] = []

    def busy(done: int, total: int) -> None:
        number = len(steps)
        steps.append(done)
        shelf.commit(objects={f"queue {number}": "x"}, chunks=[entries(10 + number, b"later")], dropped=[1])

    copying.copy(tmp_path / "data", tmp_path / "copy", busy)
    assert len(steps) > 3, "it was copied in steps"
    assert steps[-1] == max(steps)
    found, _ = held(tmp_path / "copy")
    assert list(found.chunks) == [1, 3]
    assert found.objects == [('["a"]', "1")]
    assert checking.verify(tmp_path / "copy").problems == []
    shelf.store.close(None)


def test_a_backup_has_no_message_without_its_queue(
    shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A queue and a message come between the moment of one database and that of the other."""

    class Moment(copying.Moment):
        def __init__(self, file: Path) -> None:
            super().__init__(file)
            number = 10 + len(shelf.told)
            shelf.commit(objects={f'["{number}"]': "x"}, chunks=[entries(number, b"x")])

    monkeypatch.setattr(copying, "Moment", Moment)
    shelf.store.backup(tmp_path / "copy")
    shelf.store.close(None)
    found, _ = held(tmp_path / "copy")
    assert [key for key, _ in found.objects] == ['["a"]', '["11"]']
    assert list(found.chunks) == [1]


def test_an_interrupted_backup_is_no_data_folder(shelf: Shelf, tmp_path: Path):
    def interrupted(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        copying.copy(tmp_path / "data", tmp_path / "copy", interrupted)
    shelf.store.close(None)
    with pytest.raises(BadFolder, match="no data folder"):
        checking.verify(tmp_path / "copy")


def test_a_folder_that_is_not_empty_is_left_alone(shelf: Shelf, tmp_path: Path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").write_text("precious")
    with pytest.raises(BadFolder, match="is not empty"):
        shelf.store.backup(tmp_path / "mine")
    assert [file.name for file in (tmp_path / "mine").iterdir()] == ["file"]
    shelf.store.close(None)


def test_nothing_is_made_if_there_is_nothing_to_copy(tmp_path: Path):
    with pytest.raises(BadFolder, match="no data folder"):
        copying.copy(tmp_path / "absent", tmp_path / "copy")
    assert not (tmp_path / "copy").exists()


def test_a_copy_is_a_store_like_any_other(shelf: Shelf, tmp_path: Path):
    shelf.store.backup(tmp_path / "copy")
    shelf.store.close(None)
    copy = Shelf.of(tmp_path / "copy").start()
    copy.commit(chunks=[entries(3, b"more")])
    copy.store.close(copy.new_commit())
    found, clean = held(tmp_path / "copy")
    assert (list(found.chunks), clean) == ([1, 3], True)


def test_a_store_in_memory_cannot_be_copied(tmp_path: Path):
    with pytest.raises(OSError, match="in memory"):
        MemoryStore().backup(tmp_path / "copy")


def test_nobody_else_may_read_a_data_folder_or_its_copy_wherever_they_are(tmp_path: Path):
    for folder in (tmp_path / "data", tmp_path / "copy"):
        folder.mkdir(mode=0o755)
    shelf = Shelf.of(tmp_path / "data").start()
    shelf.commit(chunks=[entries(1, b"x")])
    copying.copy(tmp_path / "data", tmp_path / "copy")
    there = [file for folder in ("data", "copy") for file in (tmp_path / folder).glob("*.db*")]
    shelf.store.close(None)
    assert len(there) >= 6, "the logs are looked at, too"
    assert {file.stat().st_mode & 0o077 for file in there if file.exists()} == {0}
