"""The tables of arguments over real sockets: what is implemented changes something, what is not is told or refused."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Final

import attrs
import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker
from proton import Described, Link, Terminus, symbol
from proton.reactor import Filter, LinkOption
from proton.utils import LinkDetached

from leveret.arguments.queue_arguments import QUEUE_ARGUMENTS, QueueArgument
from leveret.arguments.row import Effect, Row
from leveret.limits import QueueLimits, QueueType
from leveret.protocols.amqp091.broker.argument_rows import CONSUMER_ROWS
from leveret.protocols.amqp10.broker import sources
from leveret.protocols.amqp10.broker.argument_rows import CAPABILITY_ROWS, FILTER_ROWS
from tests.core.arguments.test_arguments import COMPANIONS
from tests.interop.conftest import RunningNode, running_nodes
from tests.interop.proton_peer import connect

pytestmark = pytest.mark.interop

IMPLEMENTED: Final = [row for row in QUEUE_ARGUMENTS.values() if row.field]
WITHOUT_EFFECT: Final = [row for row in QUEUE_ARGUMENTS.values() if row.effect is Effect.NO_EFFECT]
REFUSED: Final = [row for row in CAPABILITY_ROWS.values() if row.effect is Effect.REFUSED]
CONSUMERS: Final = [row for row in CONSUMER_ROWS.values() if row.effect is Effect.NO_EFFECT]
FILTERS: Final = [row for row in FILTER_ROWS.values() if row.effect is Effect.NO_EFFECT]


@pytest.fixture(scope="module")
def node() -> Iterator[RunningNode]:
    """One node for the whole walk."""
    with running_nodes() as start:
        yield start()


@pytest.fixture
def channel(node: RunningNode) -> Iterator[BlockingChannel]:
    connection = pika.BlockingConnection(pika.URLParameters(node.url))
    yield connection.channel()
    connection.close()


def ids(row: Row) -> str:
    return row.name


def type_of(row: QueueArgument) -> str:
    return next(kind for kind in QueueType if kind in row.types).value


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "leveret.arguments"]


@pytest.mark.parametrize("row", IMPLEMENTED, ids=ids)
def test_an_argument_changes_the_limits_of_the_queue(
    row: QueueArgument, channel: BlockingChannel, node: RunningNode, caplog: pytest.LogCaptureFixture
) -> None:
    base = {"x-queue-type": type_of(row), **COMPANIONS.get(row.name, {})}
    names = f"without-{row.name}", f"with-{row.name}"
    channel.queue_declare(names[0], durable=True, arguments=base)
    channel.queue_declare(names[1], durable=True, arguments={**base, row.name: row.example})
    without, with_it = (node.find(name) for name in names)
    assert without is not None
    assert with_it is not None
    before, after = attrs.asdict(without.limits, recurse=False), attrs.asdict(with_it.limits, recurse=False)
    assert {name for name in before if before[name] != after[name] and not name.endswith("_asked")} == {
        row.field
    }
    assert told(caplog) == []


@pytest.mark.parametrize("row", WITHOUT_EFFECT, ids=ids)
def test_an_argument_without_effect_is_taken_and_told_once(
    row: QueueArgument, channel: BlockingChannel, node: RunningNode, caplog: pytest.LogCaptureFixture
) -> None:
    arguments = {"x-queue-type": type_of(row), row.name: row.example}
    with caplog.at_level(logging.WARNING):
        for number in range(3):
            channel.queue_declare(f"{row.name}-{number}", durable=True, arguments=arguments)
    queue = node.find(f"{row.name}-2")
    assert queue is not None
    assert attrs.evolve(queue.declared_limits, overflow_asked=False) == QueueLimits()
    (line,) = told(caplog)
    assert line.startswith(f"queue '{row.name}-0' in vhost '/': {row.name} has no effect here")


def test_an_argument_of_another_type_of_queue_is_refused(channel: BlockingChannel) -> None:
    with pytest.raises(ChannelClosedByBroker, match="invalid arg 'x-max-age'") as caught:
        channel.queue_declare("other", arguments={"x-max-age": "7D"})
    assert caught.value.reply_code == 406


def test_a_misspelt_argument_is_taken_and_told(
    channel: BlockingChannel, caplog: pytest.LogCaptureFixture
) -> None:
    channel.queue_declare("misspelt", arguments={"x-max-lenght": 5})
    assert told(caplog) == [
        "queue 'misspelt' in vhost '/': x-max-lenght is not known here and has no effect; did you mean x-max-length?"
    ]


@pytest.mark.parametrize("row", CONSUMERS, ids=ids)
def test_an_argument_of_a_consumer_without_effect_is_told(
    row: Row, channel: BlockingChannel, caplog: pytest.LogCaptureFixture
) -> None:
    channel.queue_declare("consumed")
    channel.basic_consume("consumed", lambda *_: None, arguments={row.name: True})
    (line,) = told(caplog)
    assert line.startswith(f"consumer of queue 'consumed' in vhost '/': {row.name} has no effect here")


@pytest.mark.parametrize("row", FILTERS, ids=ids)
def test_a_filter_that_is_not_applied_is_absent_from_the_answer_and_told(
    row: Row, node: RunningNode, caplog: pytest.LogCaptureFixture
) -> None:
    node.declare("filtered") if node.find("filtered") is None else None
    connection = connect(node)
    wanted = {symbol(row.name): Described(symbol(row.name), "x"), symbol("jms-selector"): "a = 1"}
    receiver = connection.create_receiver("/queues/filtered", options=Filter(wanted))
    answer = receiver.link.remote_source.filter
    answer.rewind()
    answer.next()
    assert [str(name) for name in answer.get_dict()] == ["jms-selector"]
    queue = node.find("filtered")
    assert queue is not None
    ((warning,),) = [each.warnings for each in queue.consumers]
    connection.close()
    (line,) = told(caplog)
    assert line == f"receiver on queue 'filtered' in vhost '/': {warning}"
    assert warning.startswith(f"filter {row.name} has no effect here")


class AsksCoordinator(LinkOption):
    """Asks a coordinator for a capability."""

    def __init__(self, capability: str) -> None:
        self.capability = capability

    def apply(self, link: Link) -> None:
        link.target.type = Terminus.COORDINATOR
        link.target.capabilities.put_object(symbol(self.capability))


@pytest.mark.parametrize("row", REFUSED, ids=ids)
def test_a_capability_that_is_not_there_is_refused(row: Row, node: RunningNode) -> None:
    connection = connect(node)
    with pytest.raises(LinkDetached, match=row.name) as caught:
        connection.create_sender(None, options=AsksCoordinator(row.name))
    assert caught.value.condition == "amqp:not-implemented"
    connection.close()


def test_every_example_can_be_written_as_json() -> None:
    for row in QUEUE_ARGUMENTS.values():
        assert json.loads(json.dumps(row.example)) == row.example


def test_every_filter_that_a_source_reads_has_a_row() -> None:
    kinds = (
        sources.SELECTORS,
        sources.SQL_FILTERS,
        sources.PROPERTIES_FILTERS,
        sources.APPLICATION_FILTERS,
        sources.OFFSETS,
        sources.STREAM_FILTERS,
        sources.GROUPS,
        sources.UNFILTEREDS,
        sources.NO_LOCAL,
    )
    read = {name for kind in kinds for name in kind if isinstance(name, str)}
    assert read == {row.name for row in FILTER_ROWS.values() if row.effect is Effect.IMPLEMENTED}
