"""Queues of a real node as tasks read them, without Spark: what blocks say of deaths, deliveries and limits."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from leveret.pipeline.arrow import schema_of
from leveret.pipeline.client import Client
from leveret.pipeline.decode import Decoder
from leveret.pipeline.errors import Refused
from leveret.pipeline.leases import LeasedBlocks, Leases
from leveret.pipeline.offsets import Marks
from leveret.pipeline.options import Use, read_options
from leveret.pipeline.planner import Limit, Planner
from leveret.pipeline.reader import read
from leveret.pipeline.schema import SCHEMAS
from tests.pipeline.conftest import LocalNode, started

pytestmark = [pytest.mark.interop]


class Query:
    """What Spark does with one, on a queue."""

    def __init__(self, node: LocalNode, queue: str) -> None:
        given = {"endpoints": node.url, "subscribe": queue, "readerName": "archive"}
        self._options = read_options(given, Use.STREAM)
        self._client = Client(self._options, "guest")
        self._planner = Planner(self._options, self._client, Leases(self._client))
        self._marks: Marks = {}

    def begin(self) -> None:
        self._marks = self._planner.initial()

    def batch(self, limit: Limit) -> list[dict[str, object]]:
        start, self._marks = self._marks, self._planner.latest(self._marks, limit)
        rows: list[dict[str, object]] = []
        for each in self._planner.ranges(start, self._marks):
            assert each.fence is not None
            decoder = Decoder(schema_of(SCHEMAS["amqp"]), "amqp", each.stream, each.partition)
            for batch in read(self._options, LeasedBlocks(self._client, each.fence), decoder, each):
                rows += batch.to_pylist()
        return rows

    def close(self) -> None:
        self._client.close()


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalNode]:
    """One for all tests here: each has a queue of its own."""
    with started(tmp_path_factory.mktemp("node")) as node:
        yield node


@pytest.fixture
def query(node: LocalNode) -> Iterator[Callable[[str], Query]]:
    with ExitStack() as closing:

        def begun(queue: str) -> Query:
            query = Query(node, queue)
            closing.callback(query.close)
            query.begin()
            return query

        yield begun


@pytest.fixture
def channel(node: LocalNode) -> Iterator[BlockingChannel]:
    with pika.BlockingConnection(pika.URLParameters(node.amqp_url)) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        yield channel


def test_dead_letters_of_a_queue_say_of_what_they_died(
    channel: BlockingChannel, query: Callable[[str], Query]
):
    channel.queue_declare("dead")
    dead = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
    channel.queue_declare("jobs", arguments=dead)
    for body in (b"1", b"2"):
        channel.basic_publish("", "jobs", body, pika.BasicProperties(headers={"retries": 2}))
        found, _, _ = channel.basic_get("jobs")
        channel.basic_reject(found.delivery_tag, requeue=False)
    channel.queue_declare("dead", passive=True)
    again, _, _ = channel.basic_get("dead")
    channel.basic_nack(again.delivery_tag, requeue=True)
    rows = query("dead").batch(Limit())
    assert [(row["body"], row["redelivered"]) for row in rows] == [(b"1", True), (b"2", False)]
    for row in rows:
        headers = dict(row["headers"])  # type: ignore[call-overload]
        assert (headers["retries"], headers["x-last-death-queue"]) == ("2", "jobs")
        (death,) = json.loads(headers["x-death"])
        assert (death["reason"], death["queue"], death["count"]) == ("rejected", "jobs", 1)


def test_a_limit_of_octets_goes_on_message_by_message_at_worst(
    channel: BlockingChannel, query: Callable[[str], Query]
):
    channel.queue_declare("large")
    for _ in range(6):
        channel.basic_publish("", "large", bytes(1000))
    begun = query("large")
    assert [len(begun.batch(Limit(octets=octets))) for octets in (1, 1, 3000, 10_000)] == [1, 1, 3, 1]


def test_queues_that_nobody_else_may_read_are_refused_with_the_reason(
    channel: BlockingChannel, query: Callable[[str], Query]
):
    channel.queue_declare("mine", exclusive=True)
    channel.queue_declare("brief", auto_delete=True)
    for queue, why in (("mine", "exclusive access"), ("brief", "is auto-delete")):
        with pytest.raises(Refused, match=f"for queue '{queue}' in virtual host '/': .*{why}"):
            query(queue)
