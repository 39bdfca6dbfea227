"""What Spark asks of the source, without Spark's Java."""

from __future__ import annotations

import subprocess
import sys
from types import SimpleNamespace

import pytest

from tests.interop.conftest import need_module
from tests.pipeline.bulk import FakeBroker
from tests.pipeline.conftest import ROOT

need_module("pyspark")

from pyspark.sql.streaming.datasource import ReadAllAvailable  # noqa: E402

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


def test_processes_that_plan_for_spark_do_not_import_pandas():
    """Spark starts several for each query, and that takes longer than all the rest that they import."""
    program = "import sys, leveret.pipeline.source, leveret.pipeline.jobs.table_sink; sys.exit('pandas' in sys.modules)"
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True)
