"""Backups: taken while a store is written to, of one moment, whole or not at all; and what a copy is worth."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from leveret.durable.store import backup, verification
from leveret.durable.store.contract import Span
from leveret.durable.store.folder import MESSAGES, META, STREAMS, BadFolder
from leveret.durable.store.memory import MemoryStore
from tests.durable.store.shelf import Found, Shelf, append, content_of, entries


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
    backup.copy(tmp_path / "data", tmp_path / "copy")
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

    backup.copy(tmp_path / "data", tmp_path / "copy", busy)
    assert len(steps) > 3, "it was copied in steps"
    assert steps[-1] == max(steps)
    found, _ = held(tmp_path / "copy")
    assert list(found.chunks) == [1, 3]
    assert found.objects == [('["a"]', "1")]
    assert verification.verify(tmp_path / "copy").problems == []
    shelf.store.close(None)


def test_a_backup_has_no_message_without_its_queue(
    shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """A queue and a message come between the moment of one database and that of the other."""

    class Moment(backup.Snapshot):
        def __init__(self, file: Path) -> None:
            super().__init__(file)
            number = 10 + len(shelf.told)
            shelf.commit(objects={f'["{number}"]': "x"}, chunks=[entries(number, b"x")])

    monkeypatch.setattr(backup, "Snapshot", Moment)
    shelf.store.backup(tmp_path / "copy")
    shelf.store.close(None)
    found, _ = held(tmp_path / "copy")
    assert [key for key, _ in found.objects] == ['["a"]', '["11"]']
    assert list(found.chunks) == [1]


def test_an_interrupted_backup_is_no_data_folder(shelf: Shelf, tmp_path: Path):
    def interrupted(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        backup.copy(tmp_path / "data", tmp_path / "copy", interrupted)
    shelf.store.close(None)
    with pytest.raises(BadFolder, match="no data folder"):
        verification.verify(tmp_path / "copy")


def test_a_folder_that_is_not_empty_is_left_alone(shelf: Shelf, tmp_path: Path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").write_text("precious")
    with pytest.raises(BadFolder, match="is not empty"):
        shelf.store.backup(tmp_path / "mine")
    assert [file.name for file in (tmp_path / "mine").iterdir()] == ["file"]
    shelf.store.close(None)


def test_nothing_is_made_if_there_is_nothing_to_copy(tmp_path: Path):
    with pytest.raises(BadFolder, match="no data folder"):
        backup.copy(tmp_path / "absent", tmp_path / "copy")
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
    backup.copy(tmp_path / "data", tmp_path / "copy")
    there = [file for folder in ("data", "copy") for file in (tmp_path / folder).glob("*.db*")]
    shelf.store.close(None)
    assert len(there) >= 6, "the logs are looked at, too"
    assert {file.stat().st_mode & 0o077 for file in there if file.exists()} == {0}


# Streams.


def segment_of(folder: Path, stream: int, first: int = 0) -> Path:
    return folder / STREAMS / str(stream) / f"{first:020}.segment"


def stream_in(folder: Path) -> list[tuple[int, bytes]]:
    """Offsets and bodies of all streams of a folder, which must be sound."""
    assert verification.verify(folder).problems == []
    shelf = Shelf.of(folder)
    assert shelf.store.damage == []
    with shelf.store.reader() as reader:
        found, errors = content_of(reader, list(shelf.store.spans()))
    shelf.store.close(None)
    assert errors == []
    return found


def test_streams_are_copied_up_to_what_is_committed(shelf: Shelf, tmp_path: Path):
    shelf.commit(appends=[append(1, 0, b"a", b"b"), append(2, 5, b"c", segment=5)], producers={(1, "p"): 3})
    with segment_of(tmp_path / "data", 1).open("ab") as torn:
        torn.write(b"never committed")
    steps: list[tuple[int, int]] = []
    backup.copy(tmp_path / "data", tmp_path / "copy", lambda done, total: steps.append((done, total)))
    shelf.store.close(None)
    assert stream_in(tmp_path / "copy") == [(0, b"a"), (1, b"b"), (5, b"c")]
    assert segment_of(tmp_path / "copy", 1).stat().st_size < segment_of(tmp_path / "data", 1).stat().st_size
    assert steps == sorted(steps)
    assert steps[-1][0] == steps[-1][1]
    copy = Shelf.of(tmp_path / "copy")
    assert list(copy.store.producers()) == [(1, "p", 3)]
    copy.store.close(None)


def test_a_copy_and_what_it_is_of_share_no_file(shelf: Shelf, tmp_path: Path):
    shelf.commit(appends=[append(1, 0, b"a")])
    shelf.store.backup(tmp_path / "copy")
    copy = Shelf.of(tmp_path / "copy").start()
    copy.commit(appends=[append(1, 1, b"theirs")])
    shelf.commit(appends=[append(1, 1, b"ours")])
    for each in (shelf, copy):
        each.store.close(each.new_commit())
    assert stream_in(tmp_path / "data") == [(0, b"a"), (1, b"ours")]
    assert stream_in(tmp_path / "copy") == [(0, b"a"), (1, b"theirs")]


def test_a_backup_of_streams_is_of_one_moment_though_they_grow_and_go(
    shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """With each step a message comes, and a segment goes that was to be copied: another moment is taken."""
    monkeypatch.setattr(backup, "STEP_OCTETS", 100)
    shelf.commit(appends=[append(1, n, b"%d" % n * 50, segment=n) for n in range(4)] + [append(2, 0, b"x")])
    following = 4

    def busy(done: int, total: int) -> None:
        nonlocal following
        shelf.commit(
            appends=[append(1, following, b"%d" % following, segment=3), append(2, following - 3, b"y")],
            cut=[(1, following - 4)] if following < 7 else [],
        )
        following += 1

    backup.copy(tmp_path / "data", tmp_path / "copy", busy)
    shelf.store.close(None)
    found = stream_in(tmp_path / "copy")
    first = found[0][0]
    assert first > 0, "some went before they could be copied"
    newest = [offset for offset, body in found if body == b"y"][-1]
    assert newest > 0, "what came before the moment is there"
    assert found == [
        *((n, b"%d" % n * (50 if n < 4 else 1)) for n in range(first, newest + 4)),
        (0, b"x"),
        *((n, b"y") for n in range(1, newest + 1)),
    ]


@pytest.mark.parametrize(("most", "expected"), [(8, [0, 1, 2, 3]), (2, [0, 1])])
def test_if_much_was_copied_another_moment_is_taken(
    shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int, expected: list[int]
):
    """So that none is held on to for long; but for so many times only."""
    monkeypatch.setattr(backup, "HELD_OCTETS", 2000)
    monkeypatch.setattr(backup, "ROUNDS_MAX", most)
    copied = backup.SegmentCopy.copy
    sizes = [5000, 5000, 5000, 1000, 5000]
    following = 0

    def grow() -> None:
        nonlocal following
        shelf.commit(appends=[append(1, following, b"x" * sizes[following])])
        following += 1

    def busy(self: backup.SegmentCopy, spans: Sequence[Span], others: int) -> bool:
        whole = copied(self, spans, others)
        grow()
        return whole

    grow()
    monkeypatch.setattr(backup.SegmentCopy, "copy", busy)
    shelf.store.backup(tmp_path / "copy")
    shelf.store.close(None)
    assert [offset for offset, _ in stream_in(tmp_path / "copy")] == expected


def test_a_segment_that_is_lost_is_lost_in_the_copy_and_the_rest_is_there(shelf: Shelf, tmp_path: Path):
    shelf.commit(appends=[append(n, 0, b"%d" % n) for n in (1, 2)])
    segment_of(tmp_path / "data", 1).unlink()
    shelf.store.backup(tmp_path / "copy")
    shelf.store.close(None)
    copy = Shelf.of(tmp_path / "copy")
    assert ["stream 1" in text for text in copy.store.damage] == [True]
    with copy.store.reader() as reader:
        assert content_of(reader, list(copy.store.spans()))[0] == [(0, b"2")]
    copy.store.close(None)


# Verification.


def test_streams_are_verified_and_counted(shelf: Shelf, tmp_path: Path):
    queue = {'["queue","/","events"]': '{"number":9}'}
    shelf.commit(
        objects=queue, appends=[append(9, 0, b"a", b"b"), append(9, 2, b"cd"), append(9, 3, b"e", segment=3)]
    )
    owner = ("queue", "/", "events")
    for report in (verification.verify(tmp_path / "data"), verification.measure(tmp_path / "data")):
        assert (report.problems, report.segments) == ([], 2)
        assert report.files["streams/"] == sum(span.octets for span in shelf.store.spans())
        content = report.contents[owner]
        assert (content.messages, content.octets, content.oldest_ms, content.damaged) == (4, 5, 1000, 0)
    octets = bytearray(segment_of(tmp_path / "data", 9).read_bytes())
    octets[-20] ^= 1
    segment_of(tmp_path / "data", 9).write_bytes(octets)
    report = verification.verify(tmp_path / "data")
    assert [text.partition(": ")[0] for text in report.problems] == ["stream 9"]
    assert "messages from 2 to 2 cannot be read" in report.problems[0]
    assert report.contents[owner].damaged == 1
    segment_of(tmp_path / "data", 9, 3).unlink()
    assert verification.verify(tmp_path / "data").contents[owner].damaged == 2
    shelf.store.close(None)


def test_a_segment_that_goes_while_it_is_to_be_verified_is_no_problem(shelf: Shelf, tmp_path: Path):
    shelf.commit(appends=[append(1, n, b"%d" % n, segment=n) for n in range(3)])

    def busy(done: int, total: int) -> None:
        shelf.commit(cut=[(1, 1)])

    assert verification.verify(tmp_path / "data", busy).problems == []
    assert not segment_of(tmp_path / "data", 1, 1).exists()
    shelf.store.close(None)
