"""Iceberg tables that are added to all the time: a commit costs the same, and nothing that is needed is forgotten."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from leveret.pipeline.errors import PipelineError
from leveret.pipeline.jobs.archive import ICEBERG, Target
from leveret.pipeline.jobs.archive_local import LocalArchive, iceberg_archive
from leveret.pipeline.jobs.lake_table import lake_table
from leveret.pipeline.jobs.run import Report, Stop
from leveret.pipeline.jobs.undecoded import UndecodedTable
from leveret.pipeline.options import Use, read_options
from tests.interop.conftest import need_module
from tests.pipeline.bulk import FakeBroker
from tests.pipeline.test_decoded_archive import DecodedLake
from tests.pipeline.test_iceberg import Lake

need_module("pyiceberg")
need_module("polars")

from leveret.pipeline.jobs import iceberg  # noqa: E402

HOUR_S = 3600
DAY_S = 24 * HOUR_S
AT_ONCE = 6  # snapshots that are forgotten, at least


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(iceberg, "FORGOTTEN_LEAST", AT_ONCE)


class GrowingLake(Lake):
    """A table that gets small commits, at times of its own."""

    def __init__(self, broker: FakeBroker, folder: Path) -> None:
        super().__init__(broker, folder)
        self.later_s = 0.0
        broker.stream("orders")

    @contextmanager
    def at_work(self) -> Iterator[LocalArchive]:
        said = {"endpoints": self.broker.url, "subscribe": "orders", "startingOffsets": "earliest"}
        options = read_options(said, Use.STREAM)
        with iceberg_archive(options, Target(str(self.where), ICEBERG), ["orders"], self._now) as run:
            yield run

    def _now(self) -> float:
        return time.time() + self.later_s

    def commit(self, commits: int, run: LocalArchive | None = None) -> None:
        if run is None:
            with self.at_work() as run:
                self.commit(commits, run)
            return
        for _ in range(commits):
            self.broker.stream("orders").fill(1)
            assert run.run(Report("archive", lambda line: None), Stop())

    def set(self, **properties: str) -> None:
        with self.table.transaction() as change:
            change.set_properties(
                {name.replace("__", ".").replace("_", "-"): value for name, value in properties.items()}
            )

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """The numbers of snapshots and manifests, the bytes of the metadata, and the number of its files."""
        table = self.table
        snapshot = table.current_snapshot()
        assert snapshot is not None
        metadata = iceberg.local_path(table.metadata_location)
        assert metadata is not None
        files = len([*metadata.parent.glob("*.metadata.json")])
        return len(table.snapshots()), len(snapshot.manifests(table.io)), metadata.stat().st_size, files


@pytest.fixture
def lake(broker: FakeBroker, tmp_path: Path) -> GrowingLake:
    return GrowingLake(broker, tmp_path)


def test_what_a_commit_writes_stays_as_it_is_however_many_there_were(lake: GrowingLake) -> None:
    lake.commit(1)
    assert iceberg.BOUNDS.items() <= lake.table.properties.items()
    lake.set(
        history__expire__max_snapshot_age_ms="0",
        commit__manifest__min_count_to_merge="4",
        write__metadata__previous_versions_max="3",
    )
    found = []
    with lake.at_work() as run:
        for _ in range(3):
            lake.commit(2 * AT_ONCE, run)
            found.append(lake.sizes)
    for snapshots, manifests, octets, files in found:
        assert snapshots <= AT_ONCE + 1
        assert manifests <= 4
        assert octets <= found[0][2] * 1.5
        assert files <= 5
    assert lake.offsets() == [*range(6 * AT_ONCE + 1)]


def test_snapshots_of_the_last_day_stay(lake: GrowingLake) -> None:
    lake.commit(AT_ONCE + 5)
    lake.later_s = DAY_S - 60
    lake.commit(1)
    assert len(lake.table.snapshots()) == AT_ONCE + 6
    lake.later_s = DAY_S + 60
    lake.commit(1)
    assert len(lake.table.snapshots()) == 1  # its own time is now
    lake.commit(1)
    assert lake.offsets() == [*range(AT_ONCE + 8)]


def test_of_many_snapshots_those_of_the_last_hour_stay(
    lake: GrowingLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(iceberg, "HISTORY_MANY", 4)
    lake.commit(AT_ONCE + 5)
    lake.later_s = HOUR_S - 60
    lake.commit(1)
    assert len(lake.table.snapshots()) == AT_ONCE + 6
    lake.later_s = HOUR_S + 60
    lake.commit(1)
    assert len(lake.table.snapshots()) == 4
    lake.commit(1)
    assert lake.offsets() == [*range(AT_ONCE + 8)]


def test_a_table_may_say_how_long_its_history_is(lake: GrowingLake) -> None:
    lake.commit(AT_ONCE)
    lake.set(history__expire__max_snapshot_age_ms=str(2 * HOUR_S * 1000))
    lake.later_s = HOUR_S + 60
    lake.commit(2)
    assert len(lake.table.snapshots()) == AT_ONCE + 2
    lake.later_s = 2 * HOUR_S + 60
    lake.commit(1)
    assert len(lake.table.snapshots()) == 1


def test_what_a_reader_may_have_begun_with_stays_until_it_is_cleaned(lake: GrowingLake) -> None:
    lake.commit(AT_ONCE)
    before = lake.table.current_snapshot()
    assert before is not None
    assert lake_table(str(lake.where)).optimized(1 << 20).read == AT_ONCE
    lake.later_s = DAY_S + 60
    lake.commit(1)
    assert lake.table.snapshots()[0].snapshot_id == before.snapshot_id
    assert len(lake.table.snapshots()) == 2
    upkeep = lake_table(str(lake.where))
    upkeep.orphans(1, delete=True, now=time.time())
    assert lake.table.scan(snapshot_id=before.snapshot_id).to_arrow().num_rows == AT_ONCE
    upkeep.orphans(1, delete=True, now=time.time() + 2 * DAY_S)
    assert len(lake.table.snapshots()) == 1
    assert lake.offsets() == [*range(AT_ONCE + 1)]


def test_a_tag_keeps_its_snapshot(lake: GrowingLake) -> None:
    lake.commit(3)
    tagged = lake.table.snapshots()[1].snapshot_id
    lake.table.manage_snapshots().create_tag(tagged, "audit").commit()
    lake.later_s = DAY_S + 60
    lake.commit(AT_ONCE)
    assert lake.table.snapshots()[0].snapshot_id == tagged
    assert lake.table.scan(snapshot_id=tagged).to_arrow().num_rows == 2


def test_where_an_archive_ends_is_known_behind_snapshots_of_other_programs(lake: GrowingLake) -> None:
    lake.commit(AT_ONCE + 1)
    lake.table.delete("offset = 3")
    iceberg.forget_redundant(lake.table, time.time() + DAY_S + 60)
    assert len(lake.table.snapshots()) == 2
    lake.commit(1)
    assert lake.offsets() == [each for each in range(AT_ONCE + 2) if each != 3]


def test_what_is_told_of_undecoded_rows_is_done_before_it_is_forgotten(
    broker: FakeBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.stream("orders")
    lake = DecodedLake(broker, tmp_path, ICEBERG)
    lake.once()
    with iceberg.found(str(lake.where), None).transaction() as change:
        change.set_properties({iceberg.HISTORY: "0"})
    report = Report("archive", lambda line: None)
    with ExitStack() as stack:
        with (
            monkeypatch.context() as killed
        ):  # a run is killed between its two commits, when this one has begun
            killed.setattr(UndecodedTable, "complete", lambda table: None)
            lake.publish(b"?")
            lake.once()
            run = stack.enter_context(lake.run())
        for number in range(AT_ONCE + 2):
            lake.publish(b'{"n": %d}' % number)
            assert run.run(report, Stop())
        assert len(iceberg.found(str(lake.where), None).snapshots()) <= AT_ONCE
    assert lake.undecoded("offset") == [(0,)]
    lake.once()
    assert lake.offsets() == [*range(AT_ONCE + 3)]


def test_the_table_of_undecoded_rows_does_not_grow_either(broker: FakeBroker, tmp_path: Path) -> None:
    broker.stream("orders")
    lake = DecodedLake(broker, tmp_path, ICEBERG)
    lake.once()
    for where in (str(lake.where), lake.beside):
        with iceberg.found(where, None).transaction() as change:
            change.set_properties({iceberg.HISTORY: "0"})
    with lake.run() as run:
        for _ in range(AT_ONCE + 5):
            lake.publish(b'{"n": 1}', b"?")
            assert run.run(Report("archive", lambda line: None), Stop())
    assert [
        len(iceberg.found(where, None).snapshots()) <= AT_ONCE for where in (str(lake.where), lake.beside)
    ] == [
        True,
        True,
    ]
    assert len(lake.undecoded("offset")) == AT_ONCE + 5
    assert lake.offsets() == [*range(2 * AT_ONCE + 10)]


def test_a_history_that_cannot_be_shortened_is_told_and_ends_nothing(
    lake: GrowingLake, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    lake.commit(AT_ONCE)
    lake.later_s = DAY_S + 60

    def refused(*_: object) -> None:
        raise PipelineError("not today")

    with monkeypatch.context() as patched, caplog.at_level(logging.WARNING, "leveret.pipeline"):
        patched.setattr(iceberg, "forget", refused)
        lake.commit(1)
    assert "its old snapshots are not forgotten: not today" in caplog.text
    lake.commit(1)
    assert len(lake.table.snapshots()) == 1
    assert lake.offsets() == [*range(AT_ONCE + 2)]


@pytest.mark.parametrize("what", ["commit", "forget"])
def test_pyiceberg_copies_no_history_for_a_commit(
    lake: GrowingLake, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """Each copy takes 16 µs for each snapshot, and for a commit there are 22."""
    from pyiceberg import table

    lake.commit(12)
    known, copied = table.update_table_metadata, []

    def counted(metadata: table.TableMetadata, *given: object, **named: object) -> object:
        copied.append(len(metadata.snapshots))
        return known(metadata, *given, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(table, "update_table_metadata", counted)
    if what == "commit":
        lake.commit(1)
        assert copied
        assert max(copied) <= 2
    else:
        ids = {each.snapshot_id for each in lake.table.snapshots()[:8]}
        iceberg.forget(lake.table, ids)
        assert len(lake.table.snapshots()) == 4
        assert 0 < len(copied) <= 4
