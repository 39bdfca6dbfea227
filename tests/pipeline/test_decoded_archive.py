"""Archives whose bodies are decoded: each message is in the table or in that of undecodable ones, whatever is killed,
and columns come as schemas get them."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from leveret.pipeline.errors import BadOption, PipelineError, Unreachable
from leveret.pipeline.jobs.archive import DELTA, ICEBERG, Target
from leveret.pipeline.jobs.archive_local import LocalArchive, iceberg_archive, local_archive
from leveret.pipeline.jobs.checkpoints import QueryCheckpoint
from leveret.pipeline.jobs.run import Report, Stop
from leveret.pipeline.jobs.table_positions import ArchiveCheckpoint, TableCheckpoint
from leveret.pipeline.options import Use, read_options
from tests.harness.seldom import elsewhere, spark_killed
from tests.interop.conftest import need_module
from tests.pipeline import archiver, bulk
from tests.pipeline.bulk import FakeBroker, message
from tests.pipeline.conftest import ROOT

polars = need_module("polars")
need_module("deltalake")
need_module("fastavro")
need_module("pyarrow")

from leveret.pipeline.decoding.decode_options import DecodeOptions  # noqa: E402
from leveret.pipeline.decoding.registry import RegistryEndpoint  # noqa: E402
from leveret.pipeline.jobs.decoding import DecodedAgain, Decoding, decode_again, decoding_of  # noqa: E402
from leveret.pipeline.jobs.paired_table import paired_table  # noqa: E402
from leveret.pipeline.jobs.undecoded import UndecodedTable  # noqa: E402
from tests.pipeline.decoding.registry_server import FakeRegistry, serving  # noqa: E402
from tests.pipeline.decoding.samples import avro_body, record  # noqa: E402
from tests.pipeline.lake_readers import ICEBERG_READERS, READERS, loaded, rows_by_duckdb, scanned  # noqa: E402

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Cut(Exception):  # noqa: N818
    """The process is killed here."""


class DecodedLake:
    """An archive with decoded columns, the table beside it, and a broker."""

    def __init__(self, broker: FakeBroker, folder: Path, kind: str = DELTA) -> None:
        self.broker = broker
        self.kind = kind
        self.where = folder / "lake"
        self.checkpoint = folder / "lake.checkpoint"
        self.file = folder / "schema"
        self.file.write_text("n bigint")
        self.decode = DecodeOptions("json", str(self.file))
        self.lines: list[str] = []

    def publish(self, *bodies: bytes) -> None:
        self.broker.streams["orders"].publish(*(message(body) for body in bodies))

    @contextmanager
    def run(
        self, checkpoint: ArchiveCheckpoint | None = None, by: tuple[str, ...] = ("day",), **given: str
    ) -> Iterator[LocalArchive]:
        said = {"endpoints": self.broker.url, "subscribe": "orders", "startingOffsets": "earliest", **given}
        options = read_options(said, Use.STREAM)
        target = attrs.evolve(self.target, by=by)
        decoding = decoding_of(target, options, self.decode)
        if self.kind == ICEBERG:
            with iceberg_archive(options, target, ["orders"], time.time, decoding) as run:
                yield run
            return
        kept = checkpoint or QueryCheckpoint(self.checkpoint)
        with local_archive(options, decoding.layout, kept, time.time, decoding) as run:
            run.agree()
            yield run

    def once(self, checkpoint: ArchiveCheckpoint | None = None, **given: str) -> None:
        with self.run(checkpoint, **given) as run:
            assert run.run(Report("archive", self.lines.append), Stop())

    @property
    def target(self) -> Target:
        return Target(str(self.where), self.kind)

    @property
    def beside(self) -> str:
        """The table of rows that cannot be decoded."""
        return self.decode.undecoded or f"{self.where}.undecoded"

    @property
    def is_there(self) -> bool:
        return paired_table(self.target).columns() is not None

    def again(self) -> DecodedAgain:
        return decode_again(self.target, self.decode)

    def rows(self, *columns: str) -> list[tuple[Any, ...]]:
        found = self.read(str(self.where)).sort("offset")
        return list(found.select(columns).rows())

    def undecoded(self, *columns: str) -> list[tuple[Any, ...]]:
        found = self.read(self.beside).sort("offset")
        return list(found.select(columns or ("offset",)).rows())

    def read(self, where: str) -> polars.DataFrame:
        """Return a table as a program reads it that knows nothing of us."""
        if self.kind == DELTA:
            return polars.read_delta(where)
        return polars.from_arrow(loaded(Path(where)).scan().to_arrow())

    def offsets(self) -> list[int]:
        """Return the offsets that are in either table."""
        return sorted(each for (each,) in [*self.rows("offset"), *self.undecoded("offset")])


@pytest.fixture(params=[DELTA, pytest.param(ICEBERG, marks=elsewhere)])
def lake(broker: FakeBroker, tmp_path: Path, request: pytest.FixtureRequest) -> DecodedLake:
    if request.param == ICEBERG:
        need_module("pyiceberg")
    broker.stream("orders")
    return DecodedLake(broker, tmp_path, request.param)


def test_bodies_become_columns_and_those_that_cannot_go_beside(lake: DecodedLake):
    lake.publish(b'{"n": 1}', b"?", b'{"n": 2, "m": 3}', b'{"n": "x"}')
    lake.once()
    assert lake.rows("offset", "n", "body") == [(0, 1, b'{"n": 1}'), (2, 2, b'{"n": 2, "m": 3}')]
    assert lake.undecoded("offset", "stream", "body", "reason") == [
        (1, "orders", b"?", "the body is no JSON: Expecting value: line 1 column 1 (char 0)"),
        (3, "orders", b'{"n": "x"}', "$.n: 'x' is no bigint"),
    ]
    assert lake.lines[0].startswith("archive: batch 0: 4 rows, of which 2 were not decoded in ")
    lake.publish(b'{"n": 5}')
    lake.once()
    lake.once()
    assert lake.offsets() == [0, 1, 2, 3, 4]


def test_a_batch_without_a_row_that_can_be_decoded_moves_on(lake: DecodedLake):
    lake.publish(b"?", b"?")
    lake.once()
    lake.publish(b'{"n": 1}')
    lake.once()
    assert lake.rows("offset") == [(2,)]
    assert lake.undecoded() == [(0,), (1,)]


def test_a_table_need_not_have_the_bodies(lake: DecodedLake, tmp_path: Path):
    lake.decode = DecodeOptions("json", str(lake.file), prefix="order_", keeps_body=False)
    lake.publish(b'{"n": 1}', b"?")
    lake.once()
    assert lake.rows("order_n") == [(1,)]
    assert not {"body", "raw_body", "body_json"} & set(lake.read(str(lake.where)).columns)
    assert lake.undecoded("body") == [(b"?",)]


def test_columns_that_were_chosen_are_those_of_the_table(lake: DecodedLake):
    lake.publish(b'{"n": 1}', b"?")
    lake.once(columns="offset,timestamp")
    made = {"day"} if lake.kind == DELTA else set()  # a transform of another column, in Iceberg
    assert set(lake.read(str(lake.where)).columns) == {"offset", "timestamp", "n", *made}
    assert lake.undecoded("stream", "partition", "offset", "body") == [("orders", 0, 1, b"?")]


# Columns that come later.


def test_a_new_field_adds_a_column_that_is_null_in_older_rows(lake: DecodedLake):
    lake.publish(b'{"n": 1}')
    lake.once()
    lake.file.write_text("n bigint, m string, to struct<city: string>")
    lake.publish(b'{"n": 2, "m": "x", "to": {"city": "Oulu"}}')
    lake.once()
    lake.file.write_text("n bigint, to struct<zip: int>")
    lake.publish(b'{"n": 3, "m": "y", "to": {"zip": 5}}')
    lake.once()
    assert lake.rows("n", "m", "to") == [
        (1, None, None),
        (2, "x", {"city": "Oulu", "zip": None}),
        (3, None, {"city": None, "zip": 5}),
    ]
    assert sorted(READERS) == ["DuckDB", "pandas", "polars", "pyarrow"]
    assert sorted(ICEBERG_READERS) == ["DuckDB", "pandas", "polars", "pyiceberg"]
    for name, column in DECODED[lake.kind].items():
        assert sorted(column(lake.where), key=str) == [1, 2, 3], name


def test_spark_reads_columns_that_came_later(lake: DecodedLake, spark: SparkSession):
    from leveret.pipeline.jobs.replay import ReplayRequest, content_of, rows_of
    from leveret.pipeline.jobs.table import table

    lake.publish(b'{"n": 1}')
    lake.once()
    lake.file.write_text("n bigint, m string, to struct<city: string>")
    lake.publish(b'{"n": 2, "m": "x", "to": {"city": "Oulu"}}', b'{"n": 3, "m": "y"}')
    lake.once()
    lake.file.write_text("n bigint, to struct<zip: int>")
    lake.publish(b'{"n": 4, "to": {"zip": 5}}')
    lake.once()
    rows = table(spark, str(lake.where)).orderBy("offset").select("n", "m", "to.city", "to.zip").collect()
    assert [tuple(row) for row in rows] == [
        (1, None, None, None),
        (2, "x", "Oulu", None),
        (3, "y", None, None),
        (4, None, None, 5),
    ]
    request = ReplayRequest(str(lake.where), "again", where="m = 'y'")
    chosen = rows_of(spark, request, content_of(spark, request))
    assert [row.offset for row in chosen.collect()] == [2]


def n_by_duckdb(where: Path) -> list[int]:
    query = 'select n, m, "to".zip from delta_scan(?)'
    return [int(row[0]) for row in rows_by_duckdb(query, str(where), "delta")]


def n_by_pyarrow(where: Path) -> list[int]:
    from deltalake import DeltaTable

    found: list[int] = DeltaTable(str(where)).to_pyarrow_table(columns=["n", "m", "to"])["n"].to_pylist()
    return found


def n_by_duckdb_of_iceberg(where: Path) -> list[int]:
    query, place = 'select n, m, "to".zip from iceberg_scan(?)', loaded(where).metadata_location
    return [int(row[0]) for row in rows_by_duckdb(query, place, "avro", "iceberg")]


def n_by_polars_of_iceberg(where: Path) -> list[int]:
    found = scanned(where).select("n", "m", "to").collect()
    return [int(each) for each in found["n"].to_list()]


DECODED: dict[str, dict[str, Callable[[Path], list[int]]]] = {
    DELTA: {"DuckDB": n_by_duckdb, "pyarrow": n_by_pyarrow},
    ICEBERG: {"DuckDB": n_by_duckdb_of_iceberg, "polars": n_by_polars_of_iceberg},
}


def test_an_archive_without_decoded_columns_gets_them(lake: DecodedLake):
    from leveret.pipeline.jobs.archive_run import layout_of

    lake.publish(b'{"n": 1}')
    said = {"endpoints": lake.broker.url, "subscribe": "orders", "startingOffsets": "earliest"}
    options = read_options(said, Use.STREAM)

    def without() -> AbstractContextManager[LocalArchive]:
        if lake.kind == ICEBERG:
            return iceberg_archive(options, lake.target, ["orders"])
        return local_archive(options, layout_of(lake.target, options), QueryCheckpoint(lake.checkpoint))

    with without() as run:
        run.run(Report("archive", lake.lines.append), Stop())
    lake.publish(b'{"n": 2}')
    lake.once()
    assert lake.rows("offset", "n") == [(0, None), (1, 2)]
    with pytest.raises(BadOption, match="other columns than these messages"), without() as run:
        run.agree()  # and adds no rows with nulls


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        ("n string", "the column n is string in the schema, and bigint in the table"),
        ("N bigint", "the columns n and N differ"),
        ("offset bigint", "the column offset is one of the message itself"),
        ("body string", "the column body is one of the message itself"),
    ],
)
def test_a_schema_that_does_not_fit_the_table_is_refused(lake: DecodedLake, schema: str, why: str):
    lake.publish(b'{"n": 1}')
    lake.once()
    lake.file.write_text(schema)
    with pytest.raises(BadOption, match=why):
        lake.once()


def test_two_runs_whose_schemas_add_columns_do_not_hinder_each_other(lake: DecodedLake, tmp_path: Path):
    lake.publish(b'{"n": 1}')
    with lake.run() as run:
        assert run.run(Report("archive", lake.lines.append), Stop())
        lake.publish(b'{"n": 2, "m": "x"}', b"?")
        lake.file.write_text("n bigint, m string")
        lake.once(QueryCheckpoint(tmp_path / "another"))  # where the lock does not reach
        lake.publish(b'{"n": 3, "m": "y"}', b"?")
        with pytest.raises(PipelineError, match="another run has added"):
            run.run(Report("archive", lake.lines.append), Stop())
    lake.once()
    assert lake.rows("offset", "n", "m") == [(0, 1, None), (1, 2, "x"), (3, 3, "y")]
    assert lake.offsets() == [*range(5)]


# Killed between the commits.


def killed(lake: DecodedLake, step: str) -> None:
    """Have a run die at a step: of the commit to the archive, or of that to the table beside it."""

    def die(*args: object) -> None:
        raise Cut

    with pytest.MonkeyPatch.context() as patch:
        commit = Decoding.commit

        def dying(self: Decoding, *args: Any) -> bool:
            if step == "written":
                raise Cut
            if step == "in the archive":
                patch.setattr(UndecodedTable, "complete", die)
            commit(self, *args)
            raise Cut

        patch.setattr(Decoding, "commit", dying)
        with pytest.raises(Cut):
            lake.once()


@pytest.mark.parametrize("has_checkpoint", [True, False])
@pytest.mark.parametrize("step", ["written", "in the archive", "in both"])
def test_a_run_that_is_killed_between_the_commits_repeats_and_loses_nothing(
    lake: DecodedLake, step: str, has_checkpoint: bool
):
    lake.publish(b'{"n": 1}', b"?", b'{"n": "x"}')
    killed(lake, step)
    if step != "written":
        # By now other rows could be decoded, and others not, and the broker has none of them any more.
        lake.file.write_text("n bigint NOT NULL, m string NOT NULL")
        lake.broker.streams["orders"].drop(3)
    lake.publish(b'{"n": 4, "m": "x"}', b"?")
    lake.once(None if has_checkpoint else TableCheckpoint(str(lake.where), ["orders"]))
    assert lake.rows("offset", "n") == [(0, 1), (3, 4)]
    assert lake.undecoded() == [(1,), (2,), (4,)]


def test_rows_of_a_run_that_named_another_table_get_there(lake: DecodedLake, tmp_path: Path):
    lake.publish(b"?", b'{"n": 1}')
    killed(lake, "in the archive")
    lake.decode = DecodeOptions("json", str(lake.file), undecoded=str(tmp_path / "elsewhere"))
    lake.publish(b"??")
    lake.once()
    assert lake.undecoded("offset", "body") == [(2, b"??")]
    lake.decode = DecodeOptions("json", str(lake.file))
    assert lake.undecoded("offset", "body") == [(0, b"?")]


def test_a_table_of_undecodable_rows_may_be_deleted(lake: DecodedLake):
    import shutil

    lake.publish(b"?")
    lake.once()
    shutil.rmtree(lake.beside)
    lake.publish(b"?", b'{"n": 1}')
    lake.once()
    assert lake.undecoded() == [(1,)]


def test_the_two_tables_are_not_one(lake: DecodedLake):
    lake.decode = DecodeOptions("json", str(lake.file), undecoded=f"{lake.where}/")
    with pytest.raises(BadOption, match="a table of their own"):
        lake.once()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", [DELTA, pytest.param(ICEBERG, marks=spark_killed)])
def test_a_process_that_is_killed_at_any_step_repeats_and_loses_nothing(
    broker: FakeBroker, tmp_path: Path, kind: str
):
    stream = broker.stream("lake-events")
    command = [sys.executable, "-m", "tests.pipeline.archiver", broker.url, str(tmp_path)]
    (tmp_path / "schema").write_text("n bigint")
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=ROOT, **pipes) as process:  # type: ignore[call-overload]

        def run(step: int) -> str:
            process.stdin.write(f"decoded {step} {kind}\n")
            process.stdin.flush()
            return str(process.stdout.readline().strip())

        step, killed_at = 1, 0
        while True:
            stream.publish(*(message(body) for body in (b'{"n": 1}', b"?", b'{"m": "x"}', b'{"n": "x"}')))
            (tmp_path / "schema").write_text(f"n bigint, m{step} string")  # a column more in each run
            outcome = run(step)
            if outcome == archiver.DONE:
                break
            assert outcome == archiver.KILLED
            killed_at += 1
            step += 1
        process.stdin.close()
    assert killed_at > 15
    lake = DecodedLake(broker, tmp_path, kind)
    place = archiver.iceberg_of if kind == ICEBERG else archiver.table_of
    lake.where = place(tmp_path, archiver.DECODED)
    offsets = [*range(stream.next)]
    assert lake.rows("offset") == [(each,) for each in offsets if each % 4 in (0, 2)]
    assert lake.undecoded("offset") == [(each,) for each in offsets if each % 4 in (1, 3)]


# Back after a fix.


def test_rows_that_can_be_decoded_by_now_are_moved(lake: DecodedLake):
    lake.publish(b'{"n": 1}', b'{"n": 2.5}', b"?", b'{"m": "x", "n": 3}')
    lake.once()
    assert lake.again() == DecodedAgain(0, 2)
    lake.decode = DecodeOptions("json", str(lake.file))
    lake.file.write_text("m string, n bigint, o double")
    lake.publish(b'{"n": 4, "o": "late"}')
    lake.once()
    lake.file.write_text("m string, n bigint, o string")
    with pytest.raises(BadOption, match="the column o is string"):
        lake.again()
    lake.file.write_text("n bigint, `p` string, m string")
    assert lake.again() == DecodedAgain(1, 2)
    assert lake.rows("offset", "n", "m") == [(0, 1, None), (3, 3, None), (4, 4, None)]
    assert lake.undecoded() == [(1,), (2,)]
    assert lake.again() == DecodedAgain(0, 2)
    assert lake.offsets() == [*range(5)]


def test_rows_are_moved_once_where_that_is_killed(lake: DecodedLake, monkeypatch: pytest.MonkeyPatch):
    lake.publish(b'{"n": 1}', b'{"n": "2"}', b"?")
    lake.once()
    lake.file.write_text("n bigint, text string")
    lake.publish(b'{"text": "x"}', b'{"text": 5}')
    lake.once()
    lake.file.write_text("text string")
    complete, calls = UndecodedTable.complete, []

    def die(self: UndecodedTable) -> None:
        calls.append(self)
        if len(calls) == 3:  # the one after the archive's commit
            raise Cut
        complete(self)

    with monkeypatch.context() as patch:
        patch.setattr(UndecodedTable, "complete", die)
        with pytest.raises(Cut):
            lake.again()
    assert lake.again().moved == 0
    assert lake.rows("offset", "text") == [(0, None), (1, None), (3, "x")]
    assert lake.undecoded() == [(2,), (4,)]


def test_rows_are_moved_once_where_two_runs_do_it(lake: DecodedLake, monkeypatch: pytest.MonkeyPatch):
    lake.publish(b'{"n": 1}', b'{"m": 1, "n": "x"}')
    lake.once()
    lake.file.write_text("m bigint")
    write, seen = Decoding.write, []

    def first(self: Decoding, *args: Any) -> Any:
        monkeypatch.setattr(Decoding, "write", write)
        written = write(self, *args)
        seen.append(lake.again())
        return written

    monkeypatch.setattr(Decoding, "write", first)
    with pytest.raises(PipelineError, match="changed by another run meanwhile"):
        lake.again()
    assert seen == [DecodedAgain(1, 0)]
    assert lake.rows("offset", "m") == [(0, None), (1, 1)]
    assert lake.undecoded() == []


def test_an_archive_goes_on_while_rows_are_moved(lake: DecodedLake, monkeypatch: pytest.MonkeyPatch):
    lake.publish(b'{"n": 1}', b'{"m": 1, "n": "x"}')
    with lake.run() as run:
        assert run.run(Report("archive", lake.lines.append), Stop())
        lake.file.write_text("m bigint")
        write = Decoding.write

        def meanwhile(self: Decoding, *args: Any) -> Any:
            monkeypatch.setattr(Decoding, "write", write)
            written = write(self, *args)
            lake.publish(b'{"n": 2}', b"?")
            assert run.run(Report("archive", lake.lines.append), Stop())
            return written

        monkeypatch.setattr(Decoding, "write", meanwhile)
        assert lake.again() == DecodedAgain(1, 0)
        lake.publish(b'{"n": 3, "m": 4}')
        assert run.run(Report("archive", lake.lines.append), Stop())
    assert lake.rows("offset", "n", "m") == [(0, 1, None), (1, None, 1), (2, 2, None), (4, 3, None)]
    assert lake.undecoded() == [(3,)]


def test_an_archive_without_undecodable_rows_has_nothing_to_do_again(lake: DecodedLake):
    lake.publish(b'{"n": 1}')
    lake.once()
    assert lake.again() == DecodedAgain(0, 0)
    with pytest.raises(PipelineError, match=f"is no {lake.kind.title()} table"):
        decode_again(attrs.evolve(lake.target, where=f"{lake.where}-not"), lake.decode)


# Schemas of a registry.


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    with serving() as found:
        yield found


FIRST = record("Order", id="int")
SECOND = record("Order", id="long", name=["null", "string"])
OTHER = record("Order", id="string")


def body(number: int, schema: object, **fields: object) -> bytes:
    return b"\0" + number.to_bytes(4, "big") + avro_body(schema, fields)


def test_a_schema_that_a_message_brings_adds_its_columns(lake: DecodedLake, registry: FakeRegistry):
    lake.decode = DecodeOptions("avro", registry=RegistryEndpoint(registry.url))
    for number, schema in enumerate((FIRST, SECOND, OTHER), 1):
        registry.avro(number, schema)
    lake.publish(body(1, FIRST, id=1), body(3, OTHER, id="x"))
    with lake.run() as run:
        assert run.run(Report("archive", lake.lines.append), Stop())
        lake.publish(body(1, FIRST, id=2), body(2, SECOND, id=1 << 40, name="hare"), body(9, FIRST, id=3))
        assert run.run(Report("archive", lake.lines.append), Stop())
        registry.avro(9, FIRST)
    assert lake.rows("offset", "id", "name") == [(0, 1, None), (2, 2, None), (3, 1 << 40, "hare")]
    assert lake.undecoded("offset", "reason") == [
        (1, "schema 3: the column id is string in the schema, and bigint in the table"),
        (4, "the registry has no schema 9"),
    ]
    assert lake.again() == DecodedAgain(1, 1)
    assert lake.rows("offset", "id")[-1] == (4, 3)


def test_a_registry_that_is_gone_stops_a_run_and_no_row_is_undecodable(
    lake: DecodedLake, registry: FakeRegistry
):
    lake.decode = DecodeOptions("avro", registry=RegistryEndpoint(registry.url))
    registry.avro(1, FIRST)
    lake.publish(body(1, FIRST, id=1))
    registry.faults = [503] * 3
    with pytest.raises(Unreachable, match="the registry at 127"):
        lake.once()
    lake.once()
    assert lake.rows("id") == [(1,)]
    assert lake.undecoded() == []


# All of it together.

BODIES = st.sampled_from([b'{"n": 1}', b'{"m": "x"}', b'{"n": "x"}', b"?"])
SCHEMAS = st.sampled_from(["n bigint", "m string", "n bigint, m string"])
STEPS = st.lists(
    st.tuples(st.just("publish"), st.lists(BODIES, min_size=1, max_size=3))
    | st.tuples(st.sampled_from(["archive", "again"]), SCHEMAS)
    | st.tuples(st.sampled_from(["written", "in the archive", "in both"]), SCHEMAS),
    min_size=2,
    max_size=8,
)


@pytest.mark.parametrize("kind", [DELTA, pytest.param(ICEBERG, marks=spark_killed)])
@settings(max_examples=15, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(steps=STEPS)
def test_each_message_is_in_one_table_whatever_happens(
    tmp_path_factory: pytest.TempPathFactory, kind: str, steps: list[tuple[str, Any]]
):
    with bulk.serving(FakeBroker()) as broker:
        broker.stream("orders")
        lake = DecodedLake(broker, tmp_path_factory.mktemp("lake"), kind)
        published: list[bytes] = []
        archived = 0
        for step, value in [*steps, ("archive", "n bigint, m string")]:
            if step == "publish":
                lake.publish(*value)
                published += value
                continue
            lake.file.write_text(value)
            if step == "archive":
                lake.once()
            elif step == "again":
                if lake.is_there:
                    lake.again()
                continue
            elif archived == len(published):
                continue  # nothing is committed
            else:
                killed(lake, step)
            archived = archived if step == "written" else len(published)
        if published:
            assert lake.offsets() == [*range(len(published))]
            for offset, n, m in lake.rows("offset", "n", "m"):
                found = json.loads(published[offset])
                assert n in (None, found.get("n"))
                assert m in (None, found.get("m"))
