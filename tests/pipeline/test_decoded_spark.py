"""Bodies that Spark's tasks decode: each message is in one of two tables, whatever is cut off, and tasks that know
nothing of each other agree about columns."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from leveret.pipeline.jobs.archive import Target
from leveret.pipeline.offsets import Range
from leveret.pipeline.options import Use, read_options
from tests.interop.conftest import need_module
from tests.pipeline.bulk import FakeBroker
from tests.pipeline.decoding.registry_server import FakeRegistry, serving

need_module("polars")
need_module("deltalake")
need_module("fastavro")
need_module("pyspark")

from leveret.pipeline.decoding.decode_options import DecodeOptions  # noqa: E402
from leveret.pipeline.decoding.registry import RegistryEndpoint  # noqa: E402
from leveret.pipeline.jobs.archive import archive_messages  # noqa: E402
from leveret.pipeline.jobs.decoded_committer import DecodedCommitter  # noqa: E402
from leveret.pipeline.jobs.decoding import DecodedFiles  # noqa: E402
from leveret.pipeline.jobs.decoding_task import heard, task_in, together, told  # noqa: E402
from leveret.pipeline.jobs.undecoded import UndecodedTable  # noqa: E402
from tests.pipeline.test_decoded_archive import FIRST, OTHER, SECOND, Cut, DecodedLake, body  # noqa: E402

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture
def lake(broker: FakeBroker, tmp_path: Path) -> DecodedLake:
    broker.stream("orders")
    return DecodedLake(broker, tmp_path)


@pytest.fixture
def registry() -> Iterator[FakeRegistry]:
    with serving() as found:
        yield found


def options(lake: DecodedLake, **given: str) -> dict[str, str]:
    return {
        "endpoints": lake.broker.url,
        "subscribe": "orders",
        "startingOffsets": "earliest",
        "minPartitions": "2",
        **given,
    }


def by_spark(spark: SparkSession, lake: DecodedLake, **given: str) -> list[tuple[int, int]]:
    """Archive what there is, and return the rows of micro-batches, and how many were not decoded."""
    target = Target(str(lake.where))
    query, committer = archive_messages(spark, options(lake, **given), target, decode=lake.decode)
    query.awaitTermination()
    return [(each.rows, each.undecoded) for each in committer.written.values()]


def test_spark_decodes_and_goes_on_where_it_was_cut_off(
    spark: SparkSession, lake: DecodedLake, monkeypatch: pytest.MonkeyPatch
):
    lake.publish(b'{"n": 1}', b"?", b'{"n": 2}', b'{"n": "x"}')
    assert by_spark(spark, lake, maxOffsetsPerTrigger="3") == [(3, 1), (1, 1)]
    lake.file.write_text("n bigint, m string")
    lake.publish(b'{"n": 3, "m": "y"}', b"?")

    def cut(*given: object) -> None:
        raise Cut

    commit = DecodedCommitter._commit
    for owner, name in ((DecodedCommitter, "_commit"), (UndecodedTable, "complete")):
        with monkeypatch.context() as patched:

            def cut_there(
                self: DecodedCommitter, *done: Any, owner: type = owner, name: str = name
            ) -> object:
                patched.setattr(owner, name, cut)  # once the query has begun
                return cut() if owner is DecodedCommitter else commit(self, *done)

            patched.setattr(DecodedCommitter, "_commit", cut_there)
            with pytest.raises(Exception, match="Cut"):
                by_spark(spark, lake)
    assert lake.undecoded() == [(1,), (3,)]
    assert by_spark(spark, lake) == []
    assert lake.rows("offset", "n", "m") == [(0, 1, None), (2, 2, None), (4, 3, "y")]
    assert lake.undecoded("offset", "body")[-1] == (5, b"?")
    lake.publish(b'{"n": 6}', b"?")
    lake.once()  # goes on where Spark ended, and Spark where this does
    lake.publish(b'{"n": 8}', b"?")
    assert by_spark(spark, lake) == [(2, 1)]
    assert lake.offsets() == [*range(10)]


def test_spark_decodes_with_a_registry(spark: SparkSession, lake: DecodedLake, registry: FakeRegistry):
    lake.decode = DecodeOptions("avro", registry=RegistryEndpoint(registry.url), keeps_body=False)
    registry.avro(1, FIRST)
    registry.avro(2, SECOND)
    lake.publish(body(1, FIRST, id=1), body(2, SECOND, id=1 << 40, name="hare"), body(9, FIRST, id=3))
    assert by_spark(spark, lake) == [(3, 1)]
    assert lake.rows("offset", "id", "name") == [(0, 1, None), (1, 1 << 40, "hare")]
    assert lake.undecoded("offset", "reason") == [(2, "the registry has no schema 9")]
    registry.avro(9, FIRST)
    assert lake.again().moved == 1
    assert "body" not in lake.read(str(lake.where)).columns


def test_tasks_that_give_a_column_two_types_have_that_of_the_first(lake: DecodedLake, registry: FakeRegistry):
    lake.decode = DecodeOptions("avro", registry=RegistryEndpoint(registry.url))
    registry.avro(1, FIRST)
    registry.avro(2, SECOND)
    registry.avro(3, OTHER)
    lake.publish(body(1, FIRST, id=1), body(3, OTHER, id="x"), body(2, SECOND, id=2, name="hare"))
    given = read_options(options(lake), Use.STREAM)
    committer = DecodedCommitter(Target(str(lake.where)), given, lake.decode)
    layout = committer.task.layout
    task = task_in(committer.task.as_text(), layout.where, layout.by, layout.file_octets)
    assert task == committer.task

    def done(first: int) -> tuple[Range, DecodedFiles]:
        wanted = Range("orders", 0, "orders", lake.broker.streams["orders"].incarnation, first, first + 1)
        return wanted, heard(told(task.write(given, wanted)))

    redone = []

    def again(columns: pa.Schema, wanted: Range) -> DecodedFiles:
        redone.append(wanted.first)
        return committer._again(columns, wanted)

    written = together([done(0), done(1), done(2)], task.known, again)
    assert redone == [1]
    assert (written.rows, written.undecoded_rows) == (3, 1)
    assert written.columns.field("id").type == pa.int64()
    assert written.columns.field("name").type == pa.string()
