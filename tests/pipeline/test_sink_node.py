"""What the sink asks of a real node, and what that answers: the seam between the two, without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

import pika
import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import BinaryType

from leveret.pipeline.client import Client
from leveret.pipeline.columns import columns_of
from leveret.pipeline.encode import Encoder
from leveret.pipeline.errors import Missing, Refused
from leveret.pipeline.jobs.archive_columns import COLUMNS
from leveret.pipeline.offsets import Range
from leveret.pipeline.options import Use, read_options
from leveret.pipeline.publisher import Published, Publisher, Taken
from leveret.pipeline.reader import rows_of
from leveret.pipeline.schema import record
from leveret.pipeline.sink_options import SinkOptions, read_sink_options
from tests.pipeline.conftest import LocalNode, started

pytestmark = pytest.mark.interop

QUEUES = ("work", "other")


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalNode]:
    """One for all tests."""
    with started(tmp_path_factory.mktemp("node") / "data") as node:
        yield node


Channel = pika.adapters.blocking_connection.BlockingChannel


@contextmanager
def connected(node: LocalNode) -> Iterator[Channel]:
    with pika.BlockingConnection(pika.URLParameters(node.amqp_url)) as connection:
        yield connection.channel()


@pytest.fixture
def channel(node: LocalNode) -> Iterator[Channel]:
    with connected(node) as channel:
        for queue in QUEUES:
            channel.queue_declare(queue, durable=True)
            channel.queue_purge(queue)
        yield channel


def options(node: LocalNode, **given: str) -> SinkOptions:
    said = {"endpoints": node.url, "exchange": "", "routingKey": "work", "retrySeconds": "5", **given}
    return read_sink_options(said)


def rows(node: LocalNode, *bodies: bytes, **given: str) -> bytes:
    asked = options(node, **given)
    encoder = Encoder(columns_of(record(body=BinaryType()), asked), asked)
    batch = pa.RecordBatch.from_pydict({"body": pa.array(bodies, pa.binary())})
    return b"".join(made.octets for made in encoder.blocks(batch))


def bodies(channel: Channel, queue: str = "work") -> list[bytes]:
    found = []
    while (got := channel.basic_get(queue, auto_ack=True))[0] is not None:
        found.append(got[2])
    return found


def test_what_is_staged_twice_is_published_once(node: LocalNode, channel: Channel):
    publisher = Publisher(options(node))
    for _ in range(2):
        assert publisher.stage("q1", 3, 0, 5, 0, rows(node, b"a", b"b")) == Taken(2, repeated=False)
    assert publisher.stage("q1", 3, 0, 5, 1, rows(node, b"c")) == Taken(3, repeated=False)
    assert publisher.stage("q1", 3, 1, 6, 0, rows(node, b"d")) == Taken(1, repeated=False)
    assert publisher.stage("q1", 3, 1, 7, 0, rows(node, b"of an attempt that failed")).rows == 1
    assert publisher.commit("q1", 3, [(1, 6, 1), (0, 5, 3)]) == Published(4, 0)
    assert publisher.commit("q1", 3, [(1, 6, 1), (0, 5, 3)]).repeated
    assert publisher.stage("q1", 3, 0, 9, 0, rows(node, b"a")) == Taken(0, repeated=True)
    publisher.close()
    assert bodies(channel) == [b"a", b"b", b"c", b"d"]


def test_what_is_dropped_or_forgotten_is_not_published(node: LocalNode, channel: Channel):
    publisher = Publisher(options(node))
    publisher.stage("q2", 3, 0, 5, 0, rows(node, b"a"))
    publisher.drop("q2", 3)
    with pytest.raises(Refused, match="does not have what was staged"):
        publisher.commit("q2", 3, [(0, 5, 1)])
    publisher.stage("q2", 4, 0, 5, 0, rows(node, b"a"))
    publisher.forget("q2")
    assert publisher.state("q2") is None
    with pytest.raises(Refused, match="does not have what was staged"):
        publisher.commit("q2", 4, [(0, 5, 1)])
    with pytest.raises(Refused, match="does not have what was staged"):
        publisher.stage("q2", 4, 0, 5, 1, rows(node, b"a"))
    publisher.close()
    assert bodies(channel) == []


def test_a_committed_batch_is_neither_dropped_nor_staged_again(node: LocalNode, channel: Channel):
    publisher = Publisher(options(node))
    publisher.stage("q3", 0, 0, 5, 0, rows(node, b"a"))
    publisher.commit("q3", 0, [(0, 5, 1)])
    publisher.drop("q3", 0)
    state = publisher.state("q3")
    assert state is not None
    assert (state.batch, state.publishing) == (0, 0)
    publisher.close()
    assert bodies(channel) == [b"a"]


@pytest.mark.parametrize("key", ["", "other"])
def test_rows_are_published_at_once_to_where_they_say(node: LocalNode, channel: Channel, key: str):
    publisher = Publisher(options(node))
    given = {"routingKey": key} if key else {}
    assert publisher.publish(rows(node, b"a", b"b", **given)) == Published(2, 0)
    publisher.close()
    assert bodies(channel, key or "work") == [b"a", b"b"]


def test_rows_for_no_queue_are_counted_or_refused(node: LocalNode, channel: Channel):
    publisher, strict = Publisher(options(node, mandatory="false")), Publisher(options(node))
    nowhere = rows(node, b"a", routingKey="nobody")
    assert publisher.publish(nowhere) == Published(0, 1)
    publisher.stage("q4", 0, 0, 5, 0, nowhere)
    assert publisher.commit("q4", 0, [(0, 5, 1)]) == Published(0, 1)
    for attempt in (lambda: strict.publish(nowhere), lambda: strict.stage("q4", 1, 0, 5, 0, nowhere)):
        with pytest.raises(Refused, match=r"no queue: .*exchange '' with key 'nobody'; bind one"):
            attempt()
    publisher.close()
    strict.close()


def test_a_missing_exchange_and_a_wrong_password_are_said(node: LocalNode):
    publisher = Publisher(options(node))
    with pytest.raises(Missing, match="is not in virtual host '/': no exchange 'shop' in vhost '/'"):
        publisher.stage("q5", 0, 0, 5, 0, rows(node, b"a", exchange="shop"))
    publisher.close()
    stranger = Publisher(options(node), "wrong")
    with pytest.raises(Refused, match="does not let 'guest' in"):
        stranger.state("q5")
    stranger.close()


def test_a_node_that_is_killed_has_what_was_staged(node: LocalNode):
    with connected(node) as channel:
        channel.queue_declare("kept", durable=True)
    publisher = Publisher(options(node))
    publisher.stage("q6", 0, 0, 5, 0, rows(node, b"a", routingKey="kept"))
    node.kill()
    node.start()
    taken = publisher.stage("q6", 0, 0, 5, 1, rows(node, b"b", routingKey="kept"))
    assert taken == Taken(2, repeated=False)
    assert publisher.commit("q6", 0, [(0, 5, 2)]) == Published(2, 0)
    publisher.close()
    with connected(node) as channel:
        assert bodies(channel, "kept") == [b"a", b"b"]


def raw_blocks(node: LocalNode, **columns: object) -> bytes:
    asked = options(node, routingKey="copies")
    kinds = {
        "body": pa.binary(),
        "raw_properties": pa.binary(),
        "encoding": pa.string(),
        "raw_body": pa.binary(),
    }
    arrays = {name: pa.array(columns[name], kind) for name, kind in kinds.items()}
    batch = pa.RecordBatch.from_pydict(arrays)
    encoder = Encoder(columns_of(from_arrow_schema(batch.schema), asked), asked)
    return b"".join(made.octets for made in encoder.blocks(batch))


def test_messages_of_amqp_1_0_are_taken_as_they_were(node: LocalNode, channel: Channel):
    channel.queue_declare("copies", durable=True, arguments={"x-queue-type": "stream"})
    value = b"\0Sw\xc1\x06\x02\xa1\x01aT\x01"
    properties = b"\0Sp\xc0\x02\x01A\0Ss\xc0\x07\x04\xa1\x01m@@@\0St\xc1\x06\x02\xa1\x01nT\x07"
    given = {
        "body": [b"plain", value, b"a"],
        "raw_properties": [properties, properties, b"\x10\x00\x02"],
        "encoding": ["amqp10", "amqp10", "amqp091"],
        "raw_body": [None, value, None],
    }
    publisher = Publisher(options(node))
    assert publisher.publish(raw_blocks(node, **given)) == Published(3, 0)
    publisher.stage("raw", 0, 0, 5, 0, raw_blocks(node, **given))
    assert publisher.commit("raw", 0, [(0, 5, 3)]) == Published(3, 0)
    asked = read_options({"endpoints": node.url, "subscribe": "copies"}, Use.STREAM)
    client = Client(asked)
    (stream,) = client.partitions("copies")
    client.close()
    names = pa.schema([(name, COLUMNS[name]) for name in (*given, "headers")])
    range_ = Range("copies", 0, "copies", stream.incarnation, 0, 6)
    got = [row for batch in rows_of(asked, names, range_) for row in batch.to_pylist()]
    assert {name: [row[name] for row in got] for name in given} == {
        name: [*values, *values] for name, values in given.items()
    }
    assert got[1]["headers"] == [("n", "7")]

    alike = {**given, "encoding": ["amqp10"] * 3, "raw_properties": [properties] * 3}
    for broken, said in (
        ({"raw_body": [b"no sections"] * 3}, "a body is not made of sections of AMQP 1.0"),
        ({"raw_properties": [value] * 3}, "the properties have sections of a body"),
        ({"raw_properties": [properties[:-1]] * 3}, "the properties cannot be read"),
    ):
        with pytest.raises(Refused, match=said):
            publisher.publish(raw_blocks(node, **{**alike, **broken}))
    publisher.close()
