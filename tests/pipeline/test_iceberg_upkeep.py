"""The upkeep of Iceberg tables: what is checked, joined and removed, and which other programs read them afterwards."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from leveret.pipeline.errors import PipelineError
from leveret.pipeline.jobs.lake_table import lake_table
from leveret.pipeline.jobs.run import Report, Stop
from leveret.server.cli import main
from tests.harness.seldom import elsewhere
from tests.interop.conftest import need_module
from tests.pipeline.bulk import FakeBroker, message
from tests.pipeline.lake_readers import ICEBERG_READERS
from tests.pipeline.test_archive import DAY, NOON
from tests.pipeline.test_iceberg import Lake

need_module("pyiceberg")
need_module("polars")
need_module("pandas")
need_module("duckdb_extension_iceberg")
need_module("duckdb_extension_avro")

from leveret.pipeline.jobs import iceberg  # noqa: E402

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyspark.sql import SparkSession


@pytest.fixture
def lake(broker: FakeBroker, tmp_path: Path) -> Lake:
    return Lake(broker, tmp_path)


def run(*words: str | Path) -> int:
    return main(["pipeline", *map(str, words)], {})


def check(lake: Lake, capsys: pytest.CaptureFixture[str], *more: str) -> tuple[int, list[str]]:
    code = run("check", lake.where, *(more or ("--endpoint", lake.broker.url)))
    return code, capsys.readouterr().out.splitlines()


def parquet_files(lake: Lake) -> list[Path]:
    return sorted(lake.where.rglob("*.parquet"))


def made_old(files: Sequence[Path], hours: float = 30) -> None:
    for file in files:
        state = file.stat()
        os.utime(file, (state.st_atime - hours * 3600, state.st_mtime - hours * 3600))


def test_a_whole_table_is_in_order(lake: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = lake.broker.super_stream("orders", 2)
    first.fill(250)
    second.fill(30)
    lake.once(maxOffsetsPerTrigger="100", by=("day", "stream"))
    second.fill(5)
    code, lines = check(lake, capsys)
    assert [line.split() for line in lines[1:]] == [
        ["orders", "0", "0", "250", "0", "0", "250", "0", "to", "250", "250"],
        ["orders", "1", "0", "30", "0", "0", "30", "0", "to", "35", "30"],
        ["280", "rows,", "each", "message", "once,", "5", "messages", "behind", "the", "broker"],
    ]
    assert code == 0


def test_what_is_missing_or_damaged_is_said(lake: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    lake.broker.stream("orders").fill(300)
    lake.once(maxOffsetsPerTrigger="100")
    lake.table.delete("offset >= 250")
    lake.table.delete("offset >= 100 and offset < 150")
    code, lines = check(lake, capsys)
    assert (code, lines[-1]) == (1, "200 rows, 2 problems")
    assert "orders/0: offsets 100 to 149 are missing; the broker has them still" in lines
    assert "orders/0: the checkpoint is at offset 300: offsets 250 to 299 are not there" in lines
    files = lake_table(str(lake.where)).files()
    Path(lake_table(str(lake.where)).places(files)[0]).unlink()
    assert "is in the table's metadata, but is gone" in lake_table(str(lake.where)).damaged(files)[0]
    assert run("check", lake.where, "--offline") == 1
    assert "cannot be read" in capsys.readouterr().err


def test_the_files_that_count_are_listed_with_their_values(
    lake: Lake, capsys: pytest.CaptureFixture[str]
) -> None:
    stream = lake.broker.stream("orders")
    stream.publish(message(b"a", key="eu: \xe9/%x"), arrived=NOON)
    lake.once(by=("day", "routing_key"))
    (lake.where / "data/left-over.parquet").write_bytes(b"half a f")
    assert run("files", lake.where, "--json") == 0
    (said,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert Path(said["file"]).is_file()
    assert (said["rows"], said["values"]) == (
        1,
        {"day_of_timestamp": "2026-11-27", "by_routing_key": "eu: \xe9/%x"},
    )
    assert run("files", lake.where.parent) == 1
    assert "is no Delta table" in capsys.readouterr().err


def test_a_dry_run_tells_where_a_run_would_begin_and_makes_nothing(
    lake: Lake, capsys: pytest.CaptureFixture[str]
) -> None:
    lake.broker.stream("orders").fill(30)
    words = [
        "archive",
        "orders",
        lake.where,
        "--format",
        "iceberg",
        "--dry-run",
        "--endpoint",
        lake.broker.url,
    ]
    assert run(*words) == 0
    assert "30 messages from offset 0" in capsys.readouterr().out
    assert not lake.where.exists()
    lake.once()
    lake.broker.stream("orders").fill(5)
    assert run(*words) == 0
    assert "5 messages from offset 30" in capsys.readouterr().out


def test_a_folder_with_a_space_in_its_name_is_where_the_files_are(broker: FakeBroker, tmp_path: Path) -> None:
    lake = Lake(broker, tmp_path / "my lakes")
    broker.stream("orders").fill(3)
    lake.where.parent.mkdir()
    lake.once()
    assert len(parquet_files(lake)) == 1
    assert lake.offsets() == [0, 1, 2]


@pytest.mark.parametrize(
    "by",
    [(), *(pytest.param((each,), marks=elsewhere) for each in ("day", "hour")), ("routing_key", "stream")],
)
def test_small_files_become_large_ones_with_the_same_rows(
    lake: Lake, capsys: pytest.CaptureFixture[str], by: tuple[str, ...]
) -> None:
    stream = lake.broker.stream("orders")
    for number in range(12):
        key, day = ("eu", "us: \xe9/%x", "")[number % 3], number % 2
        stream.publish(message(b"%d" % number, key=key, headers={"n": number}), arrived=NOON + DAY * day)
    lake.once(maxOffsetsPerTrigger="2", by=by)
    before = lake.table.scan().to_arrow().sort_by("offset")
    values = {(): 1, ("day",): 2, ("hour",): 2, ("routing_key", "stream"): 3}[by]
    read = len(lake_table(str(lake.where)).files())
    assert run("optimize", lake.where, "--dry-run") == 0
    assert f"{read} files, " in capsys.readouterr().out
    assert run("optimize", lake.where) == 0
    assert f"{read} files, " in capsys.readouterr().out
    assert len(lake_table(str(lake.where)).files()) == values
    assert lake.table.scan().to_arrow().sort_by("offset").equals(before)
    assert run("optimize", lake.where) == 0
    assert "0 files, 0 bytes, became 0, 0 bytes" in capsys.readouterr().out
    stream.fill(5)
    lake.once(by=by)  # and it goes on
    assert lake.offsets() == [*range(17)]
    assert check(lake, capsys)[0] == 0


def test_an_archive_that_commits_meanwhile_and_what_joins_its_files_are_in_no_ones_way(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.broker.stream("orders").fill(100)
    lake.once(maxOffsetsPerTrigger="20")
    known = iceberg.noted_in
    report = Report("archive", lambda line: None)
    with lake.run() as archive:  # begun before the files are joined

        def noted(table: Table) -> dict[str, int]:
            found = known(table)
            monkeypatch.setattr(iceberg, "noted_in", known)
            lake.broker.stream("orders").fill(10)
            assert archive.run(report, Stop())  # between the look at the table and the commit
            return found

        table = lake_table(str(lake.where))
        monkeypatch.setattr(iceberg, "noted_in", noted)
        assert table.optimized(1 << 20).read == 5
        lake.broker.stream("orders").fill(10)
        assert archive.run(report, Stop())
    assert lake.offsets() == [*range(120)]
    assert len(lake_table(str(lake.where)).files()) == 3


def test_files_that_another_program_has_rewritten_meanwhile_are_not_there_twice(lake: Lake) -> None:
    lake.broker.stream("orders").fill(100)
    lake.once(maxOffsetsPerTrigger="20")
    first, second = lake_table(str(lake.where)), lake_table(str(lake.where))
    read = first._bins(1 << 20)  # type: ignore[attr-defined]
    second.optimized(1 << 20)
    with pytest.raises(PipelineError, match="another program has rewritten its files"):
        first._commit(lambda: first._replace([task.file for task in read[0]], []))  # type: ignore[attr-defined]
    assert lake.offsets() == [*range(100)]


def test_only_old_files_of_no_snapshot_are_removed_and_only_if_that_is_said(
    lake: Lake, capsys: pytest.CaptureFixture[str]
) -> None:
    lake.broker.stream("orders").fill(100)
    lake.once(maxOffsetsPerTrigger="20", by=("stream",))
    (folder,) = (lake.where / "data").glob("stream=*")
    old, new = folder / "batch-9-aa.parquet", folder / "batch-9-bb.parquet"
    lost = lake.where / "metadata/00077-lost.metadata.json"
    for file in (old, new, lost):
        file.write_bytes(b"half a file")
    made_old([old, lost])
    assert run("clean", lake.where, "--older-than", "1d") == 0
    printed = capsys.readouterr()
    shown = [f"{file.relative_to(lake.where)}  30.0 h old, 11 bytes" for file in (old, lost)]
    assert printed.out.splitlines() == shown
    assert printed.err.endswith("nothing is removed without --delete\n")
    assert old.exists()
    assert run("clean", lake.where, "--older-than", "1d", "--delete") == 0
    assert (old.exists(), lost.exists(), new.exists()) == (False, False, True)
    assert (len(lake.table.snapshots()), lake.offsets()) == (5, [*range(100)])


def test_old_snapshots_go_with_their_files_but_not_what_tells_how_far_it_is(
    lake: Lake, capsys: pytest.CaptureFixture[str]
) -> None:
    lake.broker.stream("orders").fill(100)
    lake.once(maxOffsetsPerTrigger="20")
    assert run("optimize", lake.where) == 0
    lake.table.delete("offset = 99")  # a snapshot that does not tell
    assert len(parquet_files(lake)) == 7
    capsys.readouterr()
    assert run("vacuum", lake.where, "--older-than", "0h", "--delete") == 0
    assert "removed" in capsys.readouterr().err
    assert (len(lake.table.snapshots()), len(parquet_files(lake))) == (2, 2)
    assert run("vacuum", lake.where, "--older-than", "0h") == 0
    assert capsys.readouterr().err.endswith("nothing to remove\n")
    lake.broker.stream("orders").fill(10)
    lake.once()
    assert lake.offsets() == [*range(99), *range(100, 110)]


@pytest.mark.parametrize("by", [(), ("day", "stream"), ("routing_key",)])
def test_other_programs_read_each_message_once(lake: Lake, by: tuple[str, ...]) -> None:
    stream = lake.broker.stream("orders")
    stream.fill(50)
    lake.once(by=by, maxOffsetsPerTrigger="20")
    (lake.where / "data/left-over.parquet").write_bytes(b"half a f")
    lake_table(str(lake.where)).optimized(1 << 20)
    stream.fill(10)
    lake.once(by=by)
    read = {name: sorted(reader(lake.where)) for name, reader in ICEBERG_READERS.items()}
    assert read == {name: [*range(60)] for name in ICEBERG_READERS}


def test_spark_reads_it_without_a_package_for_the_jvm(lake: Lake, spark: SparkSession) -> None:
    from leveret.pipeline.jobs.table import table

    stream = lake.broker.stream("orders")
    stream.publish(message(b"a", key="us: \xe9/%x"), message(b"b", key=""), arrived=NOON)
    lake.once(by=("day", "routing_key"))
    rows = table(spark, str(lake.where)).orderBy("offset").collect()
    assert [(bytes(row.body), row.routing_key, row.offset) for row in rows] == [
        (b"a", "us: \xe9/%x", 0),
        (b"b", "", 1),
    ]
    assert rows[0].timestamp.timestamp() * 1000 == NOON
    assert "day" not in rows[0].asDict()
    lake.table.delete("offset >= 0")
    assert table(spark, str(lake.where)).collect() == []


def test_a_table_whose_rows_are_deleted_by_other_files_is_refused(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lake.broker.stream("orders").fill(10)
    lake.once()
    (task,) = lake.table.scan().plan_files()
    task.delete_files.add(task.file)  # as other engines leave it
    monkeypatch.setattr("pyiceberg.table.DataScan.plan_files", lambda scan: [task])
    assert run("files", lake.where) == 1
    assert "has rows that were deleted without rewriting their files" in capsys.readouterr().err
