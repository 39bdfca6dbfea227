"""The files beside the local copy: what is put is read until it is dropped, and files with little left go."""

from __future__ import annotations

from pathlib import Path

import pytest

from leveret.durable.store.postgres import bodies
from leveret.durable.store.postgres.bodies import ChunkBodies


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ChunkBodies:
    monkeypatch.setattr(bodies, "FILE_OCTETS", 130)
    return ChunkBodies(tmp_path / "bodies")


def files(tmp_path: Path) -> list[str]:
    return sorted(each.name for each in (tmp_path / "bodies").iterdir())


def put(kept: ChunkBodies, numbers: range) -> list[int]:
    """Put a chunk of thirty digits for each number, and return the keys."""
    return [kept.put(b"%d" % number * 30) for number in numbers]


def test_parts_of_chunks_are_read_and_nothing_beyond_their_ends(kept: ChunkBodies) -> None:
    keys = put(kept, range(1, 8))
    assert kept.octets == 7 * 30
    assert [kept.read(key, 10, 3) for key in (keys[0], keys[6])] == [b"111", b"777"]
    third = keys[2]
    assert (kept.read(third, 28, 10), kept.read(third, 30, 1), kept.read(8, 0, 1)) == (b"33", b"", None)
    kept.close()


def test_a_file_with_little_left_is_emptied_and_deleted(kept: ChunkBodies, tmp_path: Path) -> None:
    keys = put(kept, range(1, 9))
    assert files(tmp_path) == ["1", "2"]
    kept.drop(keys[:3])
    assert files(tmp_path) == ["1", "2"]
    kept.drop(keys[3:4])
    assert files(tmp_path) == ["2"]
    assert (kept.read(keys[3], 0, 1), kept.read(keys[4], 0, 3), kept.octets) == (None, b"555", 120)
    kept.drop(keys[4:])
    kept.drop([kept.put(b"9" * 200)])
    kept.put(b"10")  # in a new file, when nothing is left in the one before
    assert files(tmp_path) == ["3"]
    kept.close()
    assert files(tmp_path) == []


def test_what_a_reader_may_still_see_stays_until_it_has_ended(kept: ChunkBodies) -> None:
    one = kept.put(b"one")
    with kept.held(), kept.held():
        kept.drop([one])
        assert kept.read(one, 0, 3) == b"one"
    kept.tidy()
    assert kept.read(one, 0, 3) is None
    kept.close()


def test_what_takes_the_place_of_a_chunk_is_read_while_that_is_still_there_for_others(
    kept: ChunkBodies,
) -> None:
    old = kept.put(b"x" * 10_000)
    with kept.held():
        kept.drop([old])
        new = kept.put(b"y" * 20_000)
        assert kept.read(new, 0, 20_000) == b"y" * 20_000
        assert kept.read(old, 0, 20_000) == b"x" * 10_000
    assert kept.read(new, 0, 20_000) == b"y" * 20_000
    kept.close()


def test_readers_that_follow_each_other_without_a_pause_hold_nothing_that_was_dropped_before_them(
    kept: ChunkBodies,
) -> None:
    key = kept.put(b"one")
    first = kept.held()
    with first:
        kept.drop([key])
        second = kept.held()
        second.__enter__()
    kept.tidy()
    assert kept.read(key, 0, 3) is None
    second.__exit__(None, None, None)
    kept.close()
