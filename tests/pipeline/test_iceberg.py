"""Archives as Iceberg tables: each message once, whatever a run was cut off at, and read by others."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from leveret.pipeline.errors import BadOption, PipelineError
from leveret.pipeline.jobs.archive import ICEBERG, Target
from leveret.pipeline.jobs.archive_local import LocalArchive, iceberg_archive
from leveret.pipeline.jobs.delta import CommittedBatch
from leveret.pipeline.jobs.run import Report, Stop
from leveret.pipeline.options import Use, read_options
from leveret.server.cli import main
from tests.interop.conftest import need_module
from tests.pipeline.bulk import FakeBroker, message
from tests.pipeline.test_archive import DAY, NOON

polars = need_module("polars")
pyiceberg = need_module("pyiceberg")

from pyiceberg.catalog.sql import SqlCatalog, SqlCatalogBaseTable  # noqa: E402
from pyiceberg.table import CreateTableTransaction  # noqa: E402
from pyiceberg.utils.config import Config  # noqa: E402

from leveret.pipeline.jobs import iceberg  # noqa: E402


class Cut(Exception):  # noqa: N818
    """The process is killed here."""


class Lake:
    """An Iceberg table and a broker."""

    def __init__(self, broker: FakeBroker, folder: Path) -> None:
        self.broker = broker
        self.where = folder / "lake"

    @contextmanager
    def run(
        self, sources: Sequence[str] = ("orders",), by: tuple[str, ...] = (), **given: str
    ) -> Iterator[LocalArchive]:
        said = {
            "endpoints": self.broker.url,
            "subscribe": ",".join(sources),
            "startingOffsets": "earliest",
            **given,
        }
        target = Target(str(self.where), ICEBERG, by)
        with iceberg_archive(read_options(said, Use.STREAM), target, sources) as run:
            yield run

    def once(self, sources: Sequence[str] = ("orders",), by: tuple[str, ...] = (), **given: str) -> None:
        with self.run(sources, by, **given) as run:
            assert run.run(Report("archive", lambda line: None), Stop())

    @property
    def table(self) -> pyiceberg.table.Table:
        catalogue, name = iceberg.catalogue_of(str(self.where), None)
        return catalogue.load_table(name)

    def offsets(self) -> list[int]:
        return sorted(self.table.scan().to_arrow()["offset"].to_pylist())


@pytest.fixture
def lake(broker: FakeBroker, tmp_path: Path) -> Lake:
    return Lake(broker, tmp_path)


def test_each_run_adds_what_is_new_and_others_read_it(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")  # without a package of its own
    stream = lake.broker.stream("orders")
    stream.publish(message(b"a", headers={"n": 1}), message(b"b"))
    stream.fill(98)
    lake.once(maxOffsetsPerTrigger="30")
    stream.fill(50)
    lake.once(startingOffsets="latest")  # it is not new
    lake.once()
    assert lake.offsets() == [*range(150)]
    rows = polars.scan_iceberg(lake.table).sort("offset").collect()
    assert rows["body"].to_list()[:3] == [b"a", b"b", b"2"]
    assert rows["headers"].to_list()[0] == {"n": "1"}
    duckdb = need_module("duckdb")
    batches = lake.table.scan(selected_fields=("offset",)).to_arrow()
    assert batches.num_rows == 150
    with duckdb.connect() as connection:
        connection.register("orders", batches)
        assert connection.sql('SELECT sum("offset") FROM orders').fetchall() == [(150 * 149 // 2,)]


@pytest.mark.parametrize("by", [("day",), ("hour",), ("stream",), ("routing_key",), ("day", "stream")])
def test_a_table_is_partitioned_as_its_readers_know(lake: Lake, by: tuple[str, ...]) -> None:
    stream = lake.broker.stream("orders")
    stream.publish(message(b"a", key="eu"), message(b"b", key=""), arrived=NOON)
    stream.publish(message(b"c", key="us: \xe9/%x"), arrived=NOON + DAY)
    lake.once(by=by)
    files = [
        task.file
        for task in lake.table.scan(row_filter="timestamp >= '2026-11-28T00:00:00+00:00'").plan_files()
    ]
    assert [file.record_count for file in files] == [3 if by == ("stream",) else 1]
    assert lake.table.scan(row_filter="routing_key = 'eu'").to_arrow()["body"].to_pylist() == [b"a"]
    assert lake.offsets() == [0, 1, 2]
    stream.fill(1)
    with pytest.raises(BadOption, match=f"is partitioned by {','.join(by)}, not by none"):
        lake.once()


@pytest.mark.parametrize("dies", ["before", "after"])
def test_a_run_that_is_killed_around_a_commit_repeats_nothing(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, dies: str
) -> None:
    lake.broker.stream("orders").fill(120)
    known = iceberg.IcebergLog.append

    def cut(log: iceberg.IcebergLog, files: Sequence[object], batch: CommittedBatch) -> bool:
        if batch.number == 1 and dies == "before":
            raise Cut
        done = known(log, files, batch)  # type: ignore[arg-type]
        if batch.number == 1:
            raise Cut
        return done

    with monkeypatch.context() as patched:
        patched.setattr(iceberg.IcebergLog, "append", cut)
        with pytest.raises(Cut):
            lake.once(maxOffsetsPerTrigger="50")
    lake.broker.stream("orders").fill(30)
    lake.once()
    assert lake.offsets() == [*range(150)]


def test_a_queue_moves_to_the_table(lake: Lake) -> None:
    queue = lake.broker.queue("jobs")
    queue.fill(150)
    lake.once(("jobs",), readerName="lake", maxOffsetsPerTrigger="100")
    lease = queue.leases["lake"]
    assert (len(queue.ready), lease.first, lease.next) == (0, 150, 150)
    assert lake.offsets() == [*range(150)]


def test_of_two_runs_at_once_the_later_is_refused_what_is_there(lake: Lake) -> None:
    lake.broker.stream("orders").fill(100)
    with lake.run() as first, lake.run() as second:
        assert first.run(Report("archive", lambda line: None), Stop())
        assert second.run(Report("archive", lambda line: None), Stop())  # the same batch of the same query
    assert lake.offsets() == [*range(100)]
    log = iceberg.IcebergLog(str(lake.where), None, (), lake.table.scan().to_arrow().schema)
    (name,) = [each for each in log._noted() if each.startswith("leveret ")]
    with pytest.raises(PipelineError, match="has the offsets up to 99 of partition 0 of 'orders' already"):
        log.append([], CommittedBatch("another", 0, {name: (50, 120)}))


def test_a_run_that_another_overtook_with_fewer_messages_does_not_skip_the_rest(lake: Lake) -> None:
    stream = lake.broker.stream("orders")
    stream.fill(10)
    lake.once()
    with lake.run() as slow:
        stream.fill(10)
        lake.once()
        stream.fill(10)  # the slow run plans up to here what has the same number in the table
        with pytest.raises(PipelineError, match="another run has added batch 1, which ends at offset 19"):
            slow.run(Report("archive", lambda line: None), Stop())
    stream.fill(10)
    lake.once()
    assert lake.offsets() == [*range(40)]


def test_of_two_runs_that_begin_a_table_at_once_both_have_it(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = CreateTableTransaction.commit_transaction

    def overtaken(transaction: CreateTableTransaction) -> object:
        monkeypatch.setattr(CreateTableTransaction, "commit_transaction", known)
        lake.once()
        return known(transaction)

    monkeypatch.setattr(CreateTableTransaction, "commit_transaction", overtaken)
    lake.broker.stream("orders").fill(10)
    lake.once()
    assert lake.offsets() == [*range(10)]


def test_of_two_runs_that_begin_a_catalogue_at_once_both_go_on(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = SqlCatalog.create_tables

    def overtaken(catalogue: SqlCatalog) -> None:
        monkeypatch.setattr(SqlCatalog, "create_tables", known)
        lake.once()
        SqlCatalogBaseTable.metadata.create_all(
            catalogue.engine, checkfirst=False
        )  # it had none when it looked

    monkeypatch.setattr(SqlCatalog, "create_tables", overtaken)
    lake.broker.stream("orders").fill(10)
    lake.once()
    assert lake.offsets() == [*range(10)]


def test_of_two_runs_that_begin_a_namespace_at_once_both_go_on(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = SqlCatalog.namespace_exists

    def overtaken(catalogue: SqlCatalog, namespace: str) -> bool:
        monkeypatch.setattr(SqlCatalog, "namespace_exists", known)
        there = known(catalogue, namespace)
        lake.once()
        return there  # as it was when it looked

    monkeypatch.setattr(SqlCatalog, "namespace_exists", overtaken)
    lake.broker.stream("orders").fill(10)
    lake.once()
    assert lake.offsets() == [*range(10)]


def test_snapshots_of_other_programs_do_not_hide_where_it_ends(lake: Lake) -> None:
    lake.broker.stream("orders").fill(10)
    lake.once()
    table = lake.table
    table.delete("offset = 3")
    lake.broker.stream("orders").fill(10)
    lake.once()
    assert lake.offsets() == [each for each in range(20) if each != 3]


def test_the_command_writes_iceberg_and_goes_on_with_it(
    lake: Lake, capsys: pytest.CaptureFixture[str]
) -> None:
    lake.broker.stream("orders").fill(10)
    words = ["pipeline", "archive", "orders", str(lake.where), "--endpoint", lake.broker.url]
    assert main([*words, "--format", "iceberg"], {}) == 0
    first, *_ = capsys.readouterr().err.splitlines()
    assert first == "archive: 10 messages, about 10 bytes: with pyarrow in this process"
    lake.broker.stream("orders").fill(10)
    assert main(words, {}) == 0  # the format is that of the table
    assert lake.offsets() == [*range(20)]
    assert not lake.where.with_name("lake.checkpoint").exists()
    for more, said in (
        (("--format", "delta"), "is a table of format iceberg, not delta"),
        (("--engine", "spark"), "written by this process, without Spark"),
        (("--checkpoint", "/c"), "takes no --checkpoint"),
        (("--catalog", "c", "--format", "delta"), "--catalog is of Iceberg tables"),
        (("--catalog", "c"), "the target is NAMESPACE.TABLE"),
        (("--partition-by", "header:country"), "cannot be partitioned by header_country"),
    ):
        assert main([*words, *more], {}) == 2
        assert said in capsys.readouterr().err


def test_a_catalogue_is_known_and_its_file_may_be_another_one_by_now(lake: Lake) -> None:
    lake.broker.stream("orders").fill(10)
    lake.once()
    catalogue, _ = iceberg.catalogue_of(str(lake.where), None)
    assert iceberg.catalogue_of(str(lake.where), None)[0] is catalogue
    shutil.rmtree(lake.where)
    lake.once()
    assert lake.offsets() == [*range(10)]


def test_a_catalogue_of_pyicebergs_configuration_has_the_table(
    lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {
        "TYPE": "sql",
        "URI": f"sqlite:///{tmp_path / 'shared.db'}",
        "WAREHOUSE": (tmp_path / "house").as_uri(),
    }
    for name, value in settings.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__LAKEHOUSE__{name}", value)
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())
    (tmp_path / "house").mkdir()
    lake.broker.stream("orders").fill(10)
    words = ["pipeline", "archive", "orders", "shop.orders", "--endpoint", lake.broker.url]
    assert main([*words, "--catalog", "lakehouse"], {}) == 0
    catalogue, name = iceberg.catalogue_of("shop.orders", "lakehouse")
    assert catalogue.load_table(name).scan().to_arrow().num_rows == 10
