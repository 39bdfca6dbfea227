"""Writers as Spark uses them, without Spark: tasks stage, the driver commits, and a repeated batch changes nothing."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Iterator, Sequence

import attrs
import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage
from pyspark.sql.types import BinaryType, StringType

from leveret.pipeline.arrow import Batch
from leveret.pipeline.columns import columns_of
from leveret.pipeline.errors import BadRow, PipelineError, Refused, Unreachable, Unroutable
from leveret.pipeline.schema import record
from leveret.pipeline.sink import BATCH_ID, QUERY_ID, BatchWriter, StreamWriter, TaskResult, Writing
from leveret.pipeline.sink_options import read_sink_options
from tests.pipeline.bulk import said, serving
from tests.pipeline.staged import FakeExchanges, bodies

Messages = list[WriterCommitMessage | None]


@pytest.fixture
def broker() -> Iterator[FakeExchanges]:
    with serving(FakeExchanges()) as broker:
        assert isinstance(broker, FakeExchanges)
        yield broker


@attrs.frozen
class FakeTask:
    """What Spark says in a task."""

    partition: int = 0
    batch: int | None = 7

    def __call__(self) -> FakeTask:
        return self

    def partitionId(self) -> int:  # noqa: N802
        return self.partition

    def getLocalProperty(self, key: str) -> str | None:  # noqa: N802
        known = {} if self.batch is None else {QUERY_ID: "a-query", BATCH_ID: str(self.batch)}
        return known.get(key)


def writing(broker: FakeExchanges, task: FakeTask | None = None, **given: str) -> Writing:
    said = {"endpoints": broker.url, "exchange": "shop", "retrySeconds": "0", **given}
    options = read_sink_options(said)
    columns = columns_of(record(body=BinaryType(), key=StringType()), options)
    return Writing(options, columns, task or FakeTask())


def batch(*bodies: bytes | None, key: str = "k") -> Batch:
    columns = {"body": pa.array(bodies, pa.binary()), "key": pa.array([key] * len(bodies), pa.string())}
    found: Batch = pa.RecordBatch.from_pydict(columns)
    return found


def run(
    broker: FakeExchanges, number: int, *partitions: Sequence[Batch], **given: str
) -> tuple[StreamWriter, Messages]:
    """The tasks of a micro-batch; what they tell goes to the driver pickled."""
    writer = StreamWriter(writing(broker, **given))
    done: Messages = []
    for partition, batches in enumerate(partitions):
        task = StreamWriter(writing(broker, FakeTask(partition, number), **given))
        done.append(pickle.loads(pickle.dumps(task.write(iter(batches)))))
    return writer, done


def test_nothing_is_published_before_the_commit_and_all_of_it_after(broker: FakeExchanges):
    writer, done = run(broker, 7, [batch(b"a"), batch(b"b", b"c")], [batch(b"d")], [])
    assert bodies(broker) == []
    writer.commit(done, 7)
    assert bodies(broker) == [b"a", b"b", b"c", b"d"]
    assert {(each.exchange, each.key) for each in broker.published} == {("shop", "k")}


def test_small_batches_are_one_piece(broker: FakeExchanges):
    run(broker, 7, [batch(b"%d" % at) for at in range(50)])
    (asked,) = broker.asked
    assert asked.endswith("?piece=0&mandatory=true")


def test_a_micro_batch_that_is_repeated_after_its_commit_changes_nothing(
    broker: FakeExchanges, caplog: pytest.LogCaptureFixture
):
    for _ in range(2):
        writer, done = run(broker, 7, [batch(b"a")], [batch(b"b"), batch(b"c" * 2_000_000), batch(b"d")])
        writer.commit(done, 7)
        broker.published = [each for each in broker.published if len(each.body) == 1]
    assert bodies(broker) == [b"a", b"b", b"d"]
    assert "batch 7 of query a-query was published before" in caplog.text


def test_a_micro_batch_that_is_repeated_before_its_commit_is_taken_anew(broker: FakeExchanges):
    run(broker, 7, [batch(b"of a driver that died", b"x")])
    writer, done = run(broker, 7, [batch(b"a")])
    writer.commit(done, 7)
    assert bodies(broker) == [b"a"]


def test_an_attempt_that_failed_leaves_nothing(broker: FakeExchanges):
    run(broker, 7, [batch(b"a")])
    with pytest.raises(BadRow, match="column 'body' is null"):
        run(broker, 7, [batch(b"a" * 2_000_000), batch(None)])
    writer, done = run(broker, 7, [batch(b"b")])
    writer.commit(done, 7)
    assert bodies(broker) == [b"b"]


def test_a_micro_batch_without_rows_asks_nothing(broker: FakeExchanges):
    writer, done = run(broker, 7, [], [batch()])
    writer.commit(done, 7)
    writer.commit([], 8)
    assert broker.asked == []


def test_a_commit_without_an_answer_may_be_repeated(broker: FakeExchanges):
    writer, done = run(broker, 7, [batch(b"a")])
    broker.faults = ["cut", "hang up"]
    with pytest.raises(Unreachable):
        writer.commit(done, 7)
    writer.commit(done, 7)
    assert bodies(broker) == [b"a"]


def test_an_abort_drops_the_batch_and_only_that(broker: FakeExchanges):
    first, done = run(broker, 7, [batch(b"a")])
    first.commit(done, 7)
    writer, done = run(broker, 8, [batch(b"b")])
    writer.abort([None, *done], 8)
    with pytest.raises(Refused):
        writer.commit(done, 8)
    first.abort(done, 7)
    assert bodies(broker) == [b"a"]


def test_an_abort_says_when_nothing_could_be_cleared_up(
    broker: FakeExchanges, caplog: pytest.LogCaptureFixture
):
    writer, done = run(broker, 8, [batch(b"b")])
    writer.abort([None], 8)
    broker.faults = [503]
    writer.abort(done, 8)
    assert "micro-batch 8 of query a-query: its data" in caplog.text


def test_rows_that_no_queue_got_are_counted_in_the_log(
    broker: FakeExchanges, caplog: pytest.LogCaptureFixture
):
    for delivery in ("exactly-once", "at-least-once"):
        caplog.clear()
        writer, done = run(
            broker, 7, [batch(b"a", b"b", key="nowhere"), batch(b"c")], delivery=delivery, mandatory="false"
        )
        writer.commit(done, 7)
        (record,) = caplog.records
        assert (record.name, record.levelno) == ("leveret.pipeline", logging.WARNING)
        assert "micro-batch 7: 2 rows matched no queue" in record.getMessage()
    assert bodies(broker) == [b"c", b"c"]


def test_a_row_for_no_queue_ends_the_task(broker: FakeExchanges):
    with pytest.raises(Unroutable, match="option mandatory=false") as caught:
        run(broker, 7, [batch(b"a", key="nowhere")])
    assert pickle.loads(pickle.dumps(caught.value)).key == "nowhere"


def test_a_piece_that_is_not_whole_at_the_broker_is_no_success(
    broker: FakeExchanges, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(broker, "change", lambda method, target: (200, {}, b'{"rows": 1}'))
    with pytest.raises(PipelineError, match="the broker has 1 rows of partition 0, which has sent 2"):
        run(broker, 7, [batch(b"a", b"b")])


def test_at_least_once_is_published_by_the_tasks(broker: FakeExchanges):
    writer, done = run(broker, 7, [batch(b"a")], [batch(b"b")], delivery="at-least-once")
    assert bodies(broker) == [b"a", b"b"]
    writer.abort(done, 7)
    run(broker, 7, [batch(b"a")], delivery="at-least-once")
    writer.commit(done, 7)
    assert bodies(broker) == [b"a", b"b", b"a"]
    assert broker.stagings == {}


def test_only_micro_batches_have_a_number(broker: FakeExchanges):
    with pytest.raises(PipelineError, match="only micro-batches can be written"):
        StreamWriter(writing(broker, FakeTask(batch=None))).write(iter([batch(b"a")]))


def test_a_batch_has_a_name_of_its_own_and_is_forgotten(broker: FakeExchanges):
    writers = [pickle.loads(pickle.dumps(BatchWriter(writing(broker)))) for _ in range(2)]
    done = [writer.write(iter([batch(b"a")])) for writer in writers]
    assert len(broker.stagings) == 2
    assert all(isinstance(each, TaskResult) for each in done)
    writers[0].commit([done[0]])
    writers[1].abort([done[1], None])
    assert (bodies(broker), broker.stagings) == ([b"a"], {})


def test_a_batch_that_was_published_is_a_success_though_it_is_not_forgotten(
    broker: FakeExchanges, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    writer = BatchWriter(writing(broker))
    done = writer.write(iter([batch(b"a")]))
    monkeypatch.setattr(broker, "_drop", lambda name, staging: said(500, {"reason": "a mistake"}))
    writer.commit([done])
    assert bodies(broker) == [b"a"]
    assert "was not cleared up: " in caplog.text


def test_the_password_does_not_travel(broker: FakeExchanges, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LEVERET_PASSWORD", "s3cret")
    writer = StreamWriter(writing(broker))
    assert b"s3cret" not in pickle.dumps(writer)
    with pytest.raises(Refused, match="does not let 'guest' in"):
        writer.write(iter([batch(b"a")]))
