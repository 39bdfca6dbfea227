"""The upkeep of tables: which files count, whether each message is there once, what may go, what is converted."""

from __future__ import annotations

import cProfile
import json
import os
import shutil
from pathlib import Path

import pytest

from leveret.pipeline.errors import PipelineError
from leveret.pipeline.jobs import data_files, delta, table_log
from leveret.pipeline.jobs.checkpoints import QueryCheckpoint
from leveret.pipeline.jobs.lag import LeaseLag
from leveret.pipeline.jobs.lake_table import lake_table
from leveret.pipeline.offsets import Mark, Marks
from leveret.server.cli import main
from tests.interop.conftest import need_module
from tests.pipeline.bulk import FakeBroker, message
from tests.pipeline.test_archive import Lake

polars = need_module("polars")
parquet = need_module("pyarrow.parquet")
need_module("deltalake")

import pyarrow as pa  # noqa: E402
from deltalake import DeltaTable  # noqa: E402

from leveret.pipeline.jobs.archive_columns import COLUMNS  # noqa: E402
from leveret.pipeline.jobs.upkeep import OffsetSet, checked  # noqa: E402


@pytest.fixture
def lake(broker: FakeBroker, tmp_path: Path) -> Lake:
    return Lake(broker, tmp_path)


def run(*words: str | Path) -> int:
    return main(["pipeline", *map(str, words)], {})


def check(lake: Lake, capsys: pytest.CaptureFixture[str], *more: str) -> tuple[int, list[str]]:
    code = run("check", lake.where, *(more or ("--endpoint", lake.broker.url)))
    return code, capsys.readouterr().out.splitlines()


def offsets(*rows: int) -> OffsetSet:
    found = OffsetSet()
    found.add(pa.array(rows, pa.int64()))
    return found


def test_the_files_that_count_are_listed(lake: Lake, capsys: pytest.CaptureFixture[str]):
    lake.broker.super_stream("orders", 2)[1].fill(20)
    lake.once(by=("stream",))
    (lake.where / "stream=orders/left-over.parquet").write_bytes(b"half a f")
    assert run("files", lake.where) == 0
    printed = capsys.readouterr()
    (file,) = printed.out.splitlines()
    assert parquet.read_metadata(file).num_rows == 20
    assert printed.err.startswith("1 files, 20 rows, ")
    assert run("files", lake.where, "--json") == 0
    (said,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert (said["file"], said["rows"], said["values"]) == (file, 20, {"stream": "orders"})
    assert run("files", lake.where.parent) == 1
    assert "is no Delta table" in capsys.readouterr().err


def test_gaps_and_repeats_are_found_whatever_the_order_of_the_rows():
    found = offsets(7, 5, 6, 0, 1, 9)
    assert found.swept() == (0, 10, [(2, 5), (8, 9)], [])
    found.add(pa.array([6, 7, 8, 20], pa.int64()))
    assert found.swept() == (0, 21, [(2, 5), (10, 20)], [(6, 8)])
    assert offsets(3, 3, 3).swept() == (3, 4, [], [(3, 4)])


def test_a_whole_table_is_in_order(lake: Lake, capsys: pytest.CaptureFixture[str]):
    first, second = lake.broker.super_stream("orders", 2)
    first.fill(250)
    second.fill(30)
    lake.once(maxOffsetsPerTrigger="100", by=("day", "stream"))
    second.fill(5)
    code, lines = check(lake, capsys)
    assert [line.split() for line in lines] == [
        [
            "source",
            "partition",
            "first",
            "next",
            "missing",
            "repeated",
            "checkpoint",
            "broker",
            "has",
            "rows",
        ],
        ["orders", "0", "0", "250", "0", "0", "250", "0", "to", "250", "250"],
        ["orders", "1", "0", "30", "0", "0", "30", "0", "to", "35", "30"],
        ["280", "rows,", "each", "message", "once,", "5", "messages", "behind", "the", "broker"],
    ]
    assert code == 0


def test_what_is_missing_or_twice_or_damaged_is_said(lake: Lake, capsys: pytest.CaptureFixture[str]):
    lake.broker.stream("orders").fill(300)
    lake.once(maxOffsetsPerTrigger="100")
    table = delta.found(str(lake.where))
    schema = table.schema().to_arrow()
    second = next(file for file in delta.committed(table) if "batch-1-" in file.path)
    table.delete("offset >= 100 and offset < 150")
    code, lines = check(lake, capsys)
    assert (code, lines[-1]) == (1, "250 rows, 1 problem")
    assert "orders/0: offsets 100 to 149 are missing; the broker has them still" in lines
    lake.broker.stream("orders").drop(200)
    assert "orders/0: offsets 100 to 149 are missing; the broker has lost them, too" in check(lake, capsys)[1]

    again = delta_file(lake.where, second)
    assert delta.append(str(lake.where), ["day"], schema, [again], delta.CommittedBatch("by hand", 0))
    code, lines = check(lake, capsys, "--offline")
    assert (code, lines[-1]) == (1, "350 rows, 1 problem")
    assert lines[-2].startswith("orders/0: offsets 150 to 199 are there more than once")

    (lake.where / second.path).write_bytes(b"")
    assert run("check", lake.where, "--offline") == 1
    assert "cannot be read" in capsys.readouterr().err


def delta_file(where: Path, file: delta.Committed) -> object:
    from leveret.pipeline.jobs.data_files import DataFile

    return DataFile(
        file.path, file.values, file.octets, file.rows or 0, 0, json.dumps({"numRecords": file.rows})
    )


def test_a_table_that_lags_behind_its_checkpoint_or_its_lease_has_lost_messages():
    found = {("jobs", 0): offsets(*range(10))}
    marks = {("jobs", 0): Mark(12, "jobs!1", 10), ("orders", 0): Mark(5, "orders#1", 0)}
    lease = LeaseLag("jobs", "lake", "jobs!1", 11, 14, 3, 1, 0)
    jobs, orders = checked(found, marks, {}, {("jobs", 0): lease})
    assert jobs.troubles == (
        "the checkpoint is at offset 12: offsets 10 to 11 are not there",
        "the queue's lease is settled up to 11: offsets 10 to 10 are gone",
    )
    assert orders.troubles == ("the checkpoint is at offset 5, and the table has nothing of it",)


def test_a_table_with_a_micro_batch_that_no_checkpoint_has_yet_is_in_order(
    lake: Lake, capsys: pytest.CaptureFixture[str]
):
    from tests.pipeline.test_archive import Cut, Fragile

    lake.broker.stream("orders").fill(50)
    with pytest.raises(Cut):
        lake.once(Fragile(lake.checkpoint, "in the table"))
    code, lines = check(lake, capsys)
    assert (code, lines[-1]) == (0, "50 rows, each message once, 0 messages behind the broker")


def test_only_old_files_of_no_table_are_removed_and_only_if_that_is_said(
    lake: Lake, capsys: pytest.CaptureFixture[str]
):
    lake.broker.stream("orders").fill(50)
    lake.once()
    (folder,) = lake.where.glob("day=*")
    old, new = folder / "0-50-60-aa.parquet", folder / "0-50-60-bb.parquet"
    for file in (old, new):
        file.write_bytes(b"half a file")
    hours = 30 * 3600
    os.utime(old, (old.stat().st_atime - hours, old.stat().st_mtime - hours))
    assert run("clean", lake.where, "--older-than", "1d") == 0
    printed = capsys.readouterr()
    assert printed.out == f"{folder.name}/{old.name}  30.0 h old, 11 bytes\n"
    assert printed.err.endswith("nothing is removed without --delete\n")
    assert old.exists()
    assert run("clean", lake.where, "--older-than", "1d", "--delete") == 0
    assert (old.exists(), new.exists()) == (False, True)
    assert lake.offsets() == [*range(50)]


def test_a_folder_of_parquet_is_converted_with_its_place_in_the_stream(
    lake: Lake, capsys: pytest.CaptureFixture[str]
):
    lake.broker.stream("orders").fill(30)
    lake.once(maxOffsetsPerTrigger="10")
    as_spark_writes(lake)
    assert run("check", lake.where) == 2
    assert "`leveret pipeline convert" in capsys.readouterr().err
    assert run("convert", lake.where, "--dry-run") == 0
    said = "3 files with 30 rows, partitioned by day, up to batch 2"
    assert capsys.readouterr().out.splitlines() == [said, "nothing is changed in a dry run"]
    assert run("convert", lake.where) == 0
    assert not (lake.where / "_spark_metadata").exists()
    assert lake.offsets() == [*range(30)]
    lake.broker.stream("orders").fill(5)
    lake.once()
    assert lake.offsets() == [*range(35)]
    capsys.readouterr()
    assert run("convert", lake.where) == 1
    assert "is a Delta table already" in capsys.readouterr().err


def test_a_conversion_that_was_cut_off_is_finished(lake: Lake):
    lake.broker.stream("orders").fill(30)
    lake.once()
    as_spark_writes(lake)
    assert run("convert", lake.where) == 0
    (lake.where / "_spark_metadata.converted").rename(lake.where / "_spark_metadata")
    assert run("convert", lake.where) == 0
    assert lake.offsets() == [*range(30)]


def as_spark_writes(lake: Lake) -> None:
    """Turn a table into what Spark's file sink would have left: its log, INT96 times, and files that do not count."""
    table = delta.found(str(lake.where))
    log = lake.where / "_spark_metadata"
    log.mkdir()
    files = delta.committed(table)
    for number, file in enumerate(files):
        path = lake.where / file.path
        rows = parquet.ParquetFile(path).read()
        assert rows.schema.field("timestamp").type == COLUMNS["timestamp"]
        parquet.write_table(rows, path, use_deprecated_int96_timestamps=True)
        entry = {"path": path.as_uri(), "size": path.stat().st_size, "isDir": False, "action": "add"}
        name = str(number) if number else "0.compact"
        (log / name).write_text("v1\n" + json.dumps(entry))
        path.with_name(f"left-{number}.parquet").write_bytes(path.read_bytes())
    for file in (lake.where / "_delta_log").iterdir():
        file.unlink()
    (lake.where / "_delta_log").rmdir()


# Upkeep.


def small_files(lake: Lake) -> list[int]:
    """Archive a table in 20 micro-batches, and return the sizes of its files."""
    lake.broker.stream("orders").fill(2000)
    lake.once(maxOffsetsPerTrigger="100")
    return [each.octets for each in delta.committed(delta.found(str(lake.where)))]


def test_small_files_become_large_ones_with_the_same_rows(lake: Lake, capsys: pytest.CaptureFixture[str]):
    sizes = small_files(lake)
    assert len(sizes) == 20
    before = polars.read_delta(str(lake.where)).sort("offset")
    words = ["pipeline", "optimize", str(lake.where)]
    assert main([*words, "--dry-run"], {}) == 0
    assert f"20 files, {sum(sizes):,} bytes, are smaller than 256,000,000 bytes" in capsys.readouterr().out
    assert main(words, {}) == 0
    assert f"20 files, {sum(sizes):,} bytes, became 1, " in capsys.readouterr().out
    assert len(delta.committed(delta.found(str(lake.where)))) == 1
    assert polars.read_delta(str(lake.where)).sort("offset").equals(before)
    assert main(words, {}) == 0
    assert "0 files, 0 bytes, became 0, 0 bytes" in capsys.readouterr().out
    assert main(["pipeline", "check", str(lake.where), "--endpoint", lake.broker.url], {}) == 0
    lake.broker.stream("orders").fill(10)
    lake.agreed()  # and it goes on
    assert lake.offsets() == [*range(2010)]
    assert main(["pipeline", "vacuum", str(lake.where), "--older-than", "0h", "--delete"], {}) == 0
    assert len([*lake.where.rglob("*.parquet")]) == 2
    assert lake.offsets() == [*range(2010)]


def test_files_are_joined_within_the_values_that_a_table_is_partitioned_by(lake: Lake):
    stream = lake.broker.stream("orders")
    for number in range(6):
        stream.publish(message(b"%d" % number, key=("eu", "us: \xe9/%x")[number % 2]))
    lake.once(by=("routing_key",), maxOffsetsPerTrigger="2")
    assert lake_table(str(lake.where)).optimized(1 << 20).written == 2
    rows = polars.read_delta(str(lake.where)).sort("body")["routing_key"].to_list()
    assert rows == ["eu", "us: \xe9/%x"] * 3


def test_a_run_goes_on_where_its_table_is_optimized_meanwhile(lake: Lake):
    lake.broker.stream("orders").fill(500)

    class Optimizing(QueryCheckpoint):
        """A checkpoint before whose commits somebody optimizes the table."""

        def plan(self, batch: int, end: Marks, now_ms: int) -> None:
            super().plan(batch, end, now_ms)
            if batch == 3:
                lake_table(str(lake.where)).optimized(1 << 20)

    lake.once(Optimizing(lake.checkpoint), maxOffsetsPerTrigger="100")
    assert lake.offsets() == [*range(500)]
    assert len(delta.committed(delta.found(str(lake.where)))) == 3


def test_a_large_file_is_followed_by_another(lake: Lake, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(data_files, "GROUP_ROWS", 100)
    for _ in range(10):
        lake.broker.stream("orders").publish(*[message(os.urandom(1000)) for _ in range(50)])
    words = ["pipeline", "archive", "orders", str(lake.where), "--endpoint", lake.broker.url]
    assert main([*words, "--option", "fetchBytes=65536", "--file-size", "1kB"], {}) == 0
    assert len(delta.committed(delta.found(str(lake.where)))) > 1
    assert lake.offsets() == [*range(500)]


def test_a_micro_batch_of_small_partitions_is_one_file(lake: Lake):
    for each in lake.broker.super_stream("orders", 5):
        each.fill(10)
    lake.once()
    assert [each.rows for each in delta.committed(delta.found(str(lake.where)))] == [50]


# The log.


def test_commits_read_nothing_of_a_table_that_no_other_has_changed(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
):
    lake.broker.stream("orders").fill(50)
    lake.once()
    opened: list[str] = []
    known = delta.opened

    def open_counted(where: str) -> object:
        opened.append(where)
        return known(where)

    monkeypatch.setattr(delta, "opened", open_counted)
    monkeypatch.setattr(table_log, "CHECKPOINT_EVERY", 10)
    lake.broker.stream("orders").fill(200)
    lake.once(maxOffsetsPerTrigger="10")
    assert len(opened) == 3  # at the beginning, and for a checkpoint each ten versions
    assert lake.offsets() == [*range(250)]
    assert len([*(lake.where / delta.LOG).glob("*.checkpoint.parquet")]) == 2


def test_a_log_is_on_disk_before_what_stands_on_it(lake: Lake, monkeypatch: pytest.MonkeyPatch):
    synced: list[str] = []
    known = delta.sync_log

    def sync_noted(where: str, version: int | None = None) -> None:
        synced.extend(each.name for each in (lake.where / delta.LOG).glob("*.json"))
        synced.extend(each.name for each in (lake.where / delta.LOG).glob("*.parquet"))
        known(where, version)

    monkeypatch.setattr(delta, "sync_log", sync_noted)
    monkeypatch.setattr(table_log, "CHECKPOINT_EVERY", 3)
    lake.broker.stream("orders").fill(30)
    lake.once(maxOffsetsPerTrigger="10")
    first, *_, last = synced
    assert (first, last) == (f"{0:020}.json", f"{3:020}.checkpoint.parquet")


def test_a_commit_costs_the_same_however_many_there_are(lake: Lake, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(table_log, "CHECKPOINT_EVERY", 4)
    monkeypatch.setattr(table_log, "CHECKPOINT_SHARE", 2)
    log = table_log.TableLog(str(lake.where), [], pa.schema([("offset", "int64")]))
    calls, rows = [], []  # of each commit: functions that were called; rows of checkpoints that were written
    checkpoint = table_log.TableLog._checkpoint

    def counted(log: table_log.TableLog) -> None:
        checkpoint(log)
        rows[-1] += log._checkpointed[1]

    cleaned: list[object] = []
    monkeypatch.setattr(DeltaTable, "cleanup_metadata", lambda table: cleaned.append(table))
    monkeypatch.setattr(table_log.TableLog, "_checkpoint", counted)
    for number in range(120):
        file = data_files.DataFile(f"{number}.parquet", {}, 1, 1, 0, '{"numRecords": 1}')
        rows.append(0)
        calls.append(0)
        with cProfile.Profile() as profile:
            assert log.append(
                [file], delta.CommittedBatch("a", number, {"leveret i 0 s": (number, number + 1)})
            )
        if not rows[-1]:
            calls[-1] = sum(each.callcount for each in profile.getstats())
    assert max(calls[60:]) <= max(calls[2:20])
    assert sum(rows[80:]) <= 40 * table_log.CHECKPOINT_SHARE * 1.5
    checkpoints = sum(1 for each in rows if each)
    assert checkpoints > 5
    assert len(cleaned) == -(-checkpoints // table_log.CLEANED_EVERY)
    assert len(delta.committed(delta.found(str(lake.where)))) == 120
    again = table_log.TableLog(str(lake.where), [], pa.schema([("offset", "int64")]))
    assert again.is_there("a", 119)
    assert again._checkpointed == log._checkpointed


def test_of_two_runs_that_write_a_version_at_once_each_has_one(lake: Lake):
    columns_here = delta.columns_of(delta.prepared(str(lake.where), [], pa.schema([("offset", "int64")])))
    first, second = (table_log.TableLog(str(lake.where), [], columns_here) for _ in range(2))
    for number in range(5):
        assert first.append([], delta.CommittedBatch("a", number, {"leveret i 0 s": (number, number + 1)}))
        assert second.append([], delta.CommittedBatch("b", number, {"leveret i 1 s": (number, number + 1)}))
    with pytest.raises(PipelineError, match="has the offsets up to 4 of partition 1 of 's' already"):
        first.append([], delta.CommittedBatch("a", 5, {"leveret i 1 s": (3, 7)}))
    assert not second.append([], delta.CommittedBatch("a", 4))
    assert second.is_there("a", 4)
    assert delta.found(str(lake.where)).version() == 10
    assert delta.position_in(delta.found(str(lake.where)), ("s", 1), "i") == 5


def test_a_table_that_is_deleted_while_a_run_is_at_work_is_not_begun_in_the_middle(lake: Lake):
    lake.broker.stream("orders").fill(100)

    class Deleting(QueryCheckpoint):
        """A checkpoint before whose third micro-batch somebody deletes the table."""

        def plan(self, batch: int, end: Marks, now_ms: int) -> None:
            super().plan(batch, end, now_ms)
            if batch == 2:
                shutil.rmtree(lake.where)

    with pytest.raises(PipelineError, match="was deleted while this run was at work"):
        lake.once(Deleting(lake.checkpoint), maxOffsetsPerTrigger="10")
    assert not (lake.where / delta.LOG).exists()


def test_a_table_that_asks_more_of_writers_is_left_to_deltalake(lake: Lake):
    lake.broker.stream("orders").fill(10)
    lake.once()
    table = delta.found(str(lake.where))
    table.alter.set_table_properties({"delta.enableChangeDataFeed": "true"})
    assert delta.found(str(lake.where)).protocol().min_writer_version > table_log.WRITER_MAX
    lake.broker.stream("orders").fill(20)
    lake.once(maxOffsetsPerTrigger="10")
    assert lake.offsets() == [*range(30)]
    newest = max((lake.where / delta.LOG).glob("*.json")).read_text()
    assert '"engineInfo":"leveret"' not in newest
