"""The files beside the local copy: what is put is read until it is dropped, and files with little left go."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker_core.store.postgres import bodies
from broker_core.store.postgres.bodies import ChunkBodies


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ChunkBodies:
    monkeypatch.setattr(bodies, "FILE_OCTETS", 130)
    return ChunkBodies(tmp_path / "bodies")


def files(tmp_path: Path) -> list[str]:
    return sorted(each.name for each in (tmp_path / "bodies").iterdir())


def test_parts_of_chunks_are_read_and_nothing_beyond_their_ends(kept: ChunkBodies) -> None:
    for first in range(1, 8):
        kept.put(first, b"%d" % first * 30)
    assert kept.octets == 7 * 30
    assert [kept.read(first, 10, 3) for first in (1, 7)] == [b"111", b"777"]
    assert (kept.read(3, 28, 10), kept.read(3, 30, 1), kept.read(8, 0, 1)) == (b"33", b"", None)
    kept.put(3, b"again")
    assert (kept.read(3, 0, 10), kept.octets) == (b"again", 6 * 30 + 5)
    kept.close()


def test_a_file_with_little_left_is_emptied_and_deleted(kept: ChunkBodies, tmp_path: Path) -> None:
    for first in range(1, 9):
        kept.put(first, b"%d" % first * 30)
    assert files(tmp_path) == ["1", "2"]
    kept.drop([1, 2, 3])
    assert files(tmp_path) == ["1", "2"]
    kept.drop([4])
    assert files(tmp_path) == ["2"]
    assert (kept.read(4, 0, 1), kept.read(5, 0, 3), kept.octets) == (None, b"555", 120)
    kept.drop([5, 6, 7, 8])
    kept.put(9, b"9" * 200)
    kept.drop([9])
    kept.put(10, b"10")  # in a new file, when nothing is left in the one before
    assert files(tmp_path) == ["3"]
    kept.close()
    assert files(tmp_path) == []


def test_what_a_reader_may_still_see_stays_until_it_has_ended(kept: ChunkBodies) -> None:
    kept.put(1, b"one")
    with kept.held(), kept.held():
        kept.drop([1])
        assert kept.read(1, 0, 3) == b"one"
    kept.drop([])
    assert kept.read(1, 0, 3) is None
    kept.close()
