"""What Spark asks of the source, without Spark's Java."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from io import BytesIO
from types import SimpleNamespace

import pytest

from leveret.pipeline.errors import PipelineError
from leveret.pipeline.jobs.commands import what_spark_says
from tests.interop.conftest import need_module
from tests.pipeline.bulk import FakeBroker
from tests.pipeline.conftest import ROOT

need_module("pyspark")

from pyspark.sql.streaming.datasource import ReadAllAvailable  # noqa: E402
from pyspark.util import handle_worker_exception  # noqa: E402

from leveret.pipeline.source import IDLE_S, AmqpSource, StreamReader  # noqa: E402


@pytest.fixture
def reader(broker: FakeBroker) -> StreamReader:
    source = AmqpSource({"endpoints": broker.url, "subscribe": "orders"})
    return source.streamReader(source.schema())


def test_a_query_that_finds_nothing_new_does_not_ask_again_at_once(
    broker: FakeBroker, reader: StreamReader, monkeypatch: pytest.MonkeyPatch
):
    slept: list[float] = []
    monkeypatch.setattr("leveret.pipeline.source.time", SimpleNamespace(sleep=slept.append))
    stream = broker.stream("orders")
    start = reader.initialOffset()
    assert reader.latestOffset(start, ReadAllAvailable()) == start
    assert slept == [IDLE_S]
    stream.fill(3)
    assert reader.latestOffset(start, ReadAllAvailable()) != start
    assert slept == [IDLE_S]
    reader.stop()


def test_what_spark_writes_of_an_error_begins_with_our_words(
    broker: FakeBroker, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("SPARK_SIMPLIFIED_TRACEBACK", "1")  # as Spark sets it by default
    source = AmqpSource({"endpoints": broker.url, "subscribe": "orders", "nonsense": "1"})
    text = spark_writes(source.schema)
    assert text.startswith(
        "leveret.pipeline.errors.BadOption: unknown option 'nonsense'; did you mean username?\n"
    )
    assert "Traceback (most recent call last)" in text  # for a log
    assert what_spark_says(text) == ("BadOption", "unknown option 'nonsense'; did you mean username?")

    monkeypatch.setenv("SPARK_SIMPLIFIED_TRACEBACK", "1")
    stream = broker.stream("orders")
    stream.fill(5)
    stream.fill(5)
    source = AmqpSource({"endpoints": broker.url, "subscribe": "orders"})
    reading = source.reader(source.schema())
    (task,) = reading.partitions()
    stream.drop(5)
    text = spark_writes(lambda: list(reading.read(task)))
    assert text.startswith("leveret.pipeline.errors.DataLoss: partition 0 of stream 'orders'")


def spark_writes(work: Callable[[], object]) -> str:
    """Return what a worker of Spark writes of the error with which some work ends."""
    written = BytesIO()
    try:
        work()
    except PipelineError as error:
        handle_worker_exception(error, written)
    return written.getvalue()[8:].decode()  # behind a mark and a length


@pytest.mark.parametrize(
    ("imported", "needless"),
    [
        ("leveret.pipeline.jobs.table_sink", ["pandas"]),  # which takes longer than all the rest
        ("leveret.pipeline.source", ["pandas", "leveret.pipeline.decode", "leveret.pipeline.encode"]),
        (
            "leveret.pipeline.jobs.archive_source",
            ["pandas", "leveret.pipeline.decode", "leveret.pipeline.encode", "pyarrow.parquet"],
        ),
    ],
)
def test_processes_that_plan_for_spark_import_only_what_plans(imported: str, needless: list[str]):
    """Spark starts several for each query."""
    program = f"import sys, {imported}; print(*(each for each in {needless} if each in sys.modules))"
    assert subprocess.check_output([sys.executable, "-c", program], cwd=ROOT, text=True).split() == []
