"""One task: every message of its range once, and nothing that is gone passed over in silence."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from pyspark.sql.types import StructType

from leveret.pipeline.arrow import schema_of
from leveret.pipeline.client import Fetched
from leveret.pipeline.decode import Decoder
from leveret.pipeline.errors import DataLoss, PipelineError
from leveret.pipeline.offsets import Range
from leveret.pipeline.options import Use, read_options
from leveret.pipeline.reader import read
from leveret.pipeline.schema import SCHEMAS
from tests.pipeline.bulk import FakeBroker, FakeStream, block, message
from tests.pipeline.test_planning import Direct

COLUMNS = StructType([SCHEMAS["amqp"]["offset"], SCHEMAS["amqp"]["body"]])


@pytest.fixture
def broker() -> FakeBroker:
    return FakeBroker()


@pytest.fixture
def stream(broker: FakeBroker) -> FakeStream:
    stream = broker.stream("orders")
    stream.fill(500, commit=50)
    return stream


def offsets(
    source: object, first: int, until: int, fail: bool = True, incarnation: str = "orders#1"
) -> list[int]:
    """What a task reads; bodies are offsets."""
    given = {"endpoints": "a", "subscribe": "orders", "failOnDataLoss": str(fail)}
    asked = Range("orders", 0, "orders", incarnation, first, until)
    decoder = Decoder(schema_of(COLUMNS), "amqp", "orders", 0)
    rows = [
        row
        for batch in read(read_options(given, Use.BATCH), source, decoder, asked)  # type: ignore[arg-type]
        for row in batch.to_pylist()
    ]
    assert all(row["body"] == b"%d" % row["offset"] for row in rows)
    return [row["offset"] for row in rows]  # type: ignore[misc]


class Few(Direct):
    """Gives one block at a time."""

    def blocks(self, name: str, incarnation: str, first: int, until: int) -> Fetched:
        return Fetched(*self._broker.streams[name].chosen(first, until, 1))


@pytest.mark.parametrize("source", [Direct, Few])
@pytest.mark.parametrize(("first", "until"), [(0, 500), (7, 493), (50, 100), (99, 101), (5, 6), (9, 9)])
def test_a_range_is_read_whole_however_it_lies_in_blocks_and_answers(
    broker: FakeBroker, stream: FakeStream, source: type[Direct], first: int, until: int
):
    assert offsets(source(broker), first, until) == list(range(first, until))


def test_what_retention_took_meanwhile_is_a_loss(broker: FakeBroker, stream: FakeStream):
    stream.drop(200)
    with pytest.raises(DataLoss, match="partition 0 of stream 'orders': offsets 150 to 199 are gone"):
        offsets(Direct(broker), 150, 300)
    assert offsets(Direct(broker), 150, 300, fail=False) == list(range(200, 300))
    assert offsets(Direct(broker), 100, 180, fail=False) == []


def test_a_stream_that_was_made_anew_meanwhile_is_a_loss(broker: FakeBroker, stream: FakeStream):
    with pytest.raises(DataLoss, match="offsets 10 to 19 are gone"):
        offsets(Direct(broker), 10, 20, incarnation="orders#0")
    assert offsets(Direct(broker), 10, 20, fail=False, incarnation="orders#0") == []


@pytest.mark.parametrize(("lost", "first", "last"), [(0, 20, 49), (1, 50, 99), (3, 150, 179)])
def test_a_block_that_is_missing_among_others_is_a_loss(
    broker: FakeBroker, stream: FakeStream, lost: int, first: int, last: int
):
    del stream.blocks[lost]
    if lost == 3:  # damage at the end of what is asked: the broker says to go on behind it
        source: Direct = Damaged(broker)
    else:
        source = Direct(broker)
    with pytest.raises(DataLoss, match=f"offsets {first} to {last} are gone"):
        offsets(source, 20, 180)
    expected = [at for at in range(20, 180) if not first <= at <= last]
    assert offsets(source, 20, 180, fail=False) == expected


class Damaged(Direct):
    """Says to go on behind what it cannot give."""

    def blocks(self, name: str, incarnation: str, first: int, until: int) -> Fetched:
        octets, following = self._broker.streams[name].chosen(first, min(until, 150), 4 << 20)
        return Fetched(octets, 200 if following == 150 or not octets else following)


class Answers:
    def __init__(self, fetched: Fetched) -> None:
        self._fetched = fetched

    def blocks(self, name: str, incarnation: str, first: int, until: int) -> Fetched:
        return self._fetched


def test_a_broker_that_gives_nothing_is_not_asked_for_ever():
    with pytest.raises(PipelineError, match="gives no message at offset 5"):
        offsets(Answers(Fetched(b"", 5)), 5, 9)


def test_damage_is_said_with_the_stream_and_the_offset():
    octets = bytearray(block(5, message(b"5")))
    octets[-9] ^= 1
    with pytest.raises(PipelineError, match="partition 0 of stream 'orders', after offset 5: the checksum"):
        offsets(Answers(Fetched(bytes(octets), 6)), 5, 6, fail=False)
