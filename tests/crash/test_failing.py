"""Disks that fail under a running node: no confirm too many, no message too few."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.harness.seldom import elsewhere, planted

from .failing import (
    Failure,
    full_disk,
    full_start,
    no_quota,
    no_room,
    short_write,
    small_disk,
    sync_fails,
    too_large_commits,
    why_no_small_disk,
)
from .ledger import kinds
from .planted import program
from .tracing import why_not

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

SEED = 3


def need(reason: str) -> None:
    if reason:
        pytest.skip(reason)


def test_a_sync_that_fails_ends_the_node(tmp_path: Path):
    need(why_not())
    ended_by_itself(sync_fails(tmp_path / "data", SEED))


@elsewhere
def test_a_write_that_is_cut_short_ends_the_node(tmp_path: Path):
    ended_by_itself(short_write(tmp_path / "data", SEED))


def ended_by_itself(failure: Failure) -> None:
    assert failure.code == 1
    critical = [line for line in failure.log.splitlines() if "CRITICAL" in line]
    assert len(critical) == 1, failure.log
    assert "store" in critical[0]
    assert "Traceback" not in failure.log
    assert failure.complaints == []


@elsewhere
def test_want_of_room_blocks_publishers_for_a_while(tmp_path: Path):
    need(why_not())
    went_on(no_room, tmp_path / "data")


@elsewhere
def test_a_used_up_quota_holds_publishers_back_until_there_is_room(tmp_path: Path):
    need(why_not())
    went_on(no_quota, tmp_path / "data")


def test_a_full_disk_blocks_publishers_until_there_is_room(tmp_path: Path):
    need(why_no_small_disk(tmp_path))
    with small_disk(tmp_path) as folder:
        went_on(full_disk, folder)


@elsewhere
def test_commits_that_do_not_fit_on_the_disk_are_refused_as_a_whole(tmp_path: Path):
    need(why_no_small_disk(tmp_path))
    with small_disk(tmp_path) as folder:
        failure = too_large_commits(folder, SEED)
    assert failure.refused_commits == [1, 1]
    assert not failure.blocked
    assert failure.complaints == []


def test_a_node_starts_on_a_disk_that_is_full(tmp_path: Path):
    """Consumers find there all that was promised, and what they answer is kept."""
    need(why_no_small_disk(tmp_path))
    with small_disk(tmp_path) as folder:
        failure = full_start(folder, SEED)
    assert failure.blocked
    assert failure.complaints == []


def went_on(fail: Callable[[Path, int], Failure], folder: Path) -> None:
    failure = fail(folder, SEED)
    assert failure.blocked
    assert failure.promises > 0
    assert failure.code is None
    assert failure.complaints == []


@planted
def test_a_node_that_syncs_again_is_found(tmp_path: Path):
    need(why_not())
    assert sync_fails(tmp_path / "data", SEED, program("sync_again")).code is None


@planted
def test_a_node_that_confirms_what_it_has_no_room_for_is_found(tmp_path: Path):
    need(why_not())
    failure = no_room(tmp_path / "data", SEED, program("confirm_without_room"))
    assert not failure.blocked
    assert "LOST" in kinds(failure.complaints)
