"""The default type of queues: which declarations get it, and that what is there stays as it is."""

from __future__ import annotations

import pytest

from leveret.errors import PreconditionFailed
from leveret.limits import QueueType
from leveret.queues.default_type import default_type
from leveret.queues.queue import Queue
from leveret.values import Table
from leveret.virtual_host import VirtualHost
from tests.harness.bench import CoreBench


@pytest.fixture
def host(bench: CoreBench) -> VirtualHost:
    bench.host.set_default_queue_type(QueueType.QUORUM)
    return bench.host


def kind(queue: Queue) -> tuple[QueueType, object]:
    return queue.type, queue.arguments.get("x-queue-type")


def test_a_durable_queue_without_a_type_gets_the_default_one_and_says_so(host: VirtualHost) -> None:
    arguments: Table = {"x-max-length": 5}
    queue = host.declare_queue("q", durable=True, arguments=arguments)
    assert kind(queue) == (QueueType.QUORUM, "quorum")
    assert queue.arguments["x-max-length"] == 5
    assert arguments == {"x-max-length": 5}  # the client's own table is left alone
    assert host.declare_queue("q", durable=True, arguments=arguments) is queue


@pytest.mark.parametrize("unsuitable", [{}, {"exclusive": True}, {"durable": True, "auto_delete": True}])
def test_a_queue_that_the_type_does_not_suit_is_classic(
    host: VirtualHost, unsuitable: dict[str, bool]
) -> None:
    assert kind(host.declare_queue("q", **unsuitable)) == (QueueType.CLASSIC, "classic")  # type: ignore[arg-type]


@pytest.mark.parametrize("type_", list(QueueType))
def test_a_type_that_is_named_counts(host: VirtualHost, type_: QueueType) -> None:
    queue = host.declare_queue("q", durable=True, arguments={"x-queue-type": type_.value})
    assert kind(queue) == (type_, type_.value)


def test_s065_declaring_again_without_a_type_means_the_default_type(host: VirtualHost) -> None:
    host.declare_queue("q", durable=True, arguments={"x-queue-type": "classic"})
    with pytest.raises(PreconditionFailed, match="x-queue-type"):
        host.declare_queue("q", durable=True)


def test_x017_a_queue_declared_before_there_was_a_default_is_declared_again_as_before(
    bench: CoreBench,
) -> None:
    queue = bench.host.declare_queue("q", durable=True)
    bench.host.set_default_queue_type(QueueType.QUORUM)
    assert bench.host.declare_queue("q", durable=True) is queue
    assert bench.host.declare_queue("q", durable=True, arguments={"x-queue-type": "classic"}) is queue
    assert kind(queue) == (QueueType.CLASSIC, None)


def test_the_default_of_a_virtual_host_goes_before_the_nodes(bench: CoreBench) -> None:
    bench.broker.default_queue_type = QueueType.STREAM
    assert kind(bench.host.declare_queue("a", durable=True)) == (QueueType.STREAM, "stream")
    bench.host.set_default_queue_type(QueueType.QUORUM)
    assert kind(bench.host.declare_queue("b", durable=True)) == (QueueType.QUORUM, "quorum")
    bench.host.set_default_queue_type(None)
    assert kind(bench.host.declare_queue("c", durable=True)) == (QueueType.STREAM, "stream")


def test_without_a_default_nothing_is_added(bench: CoreBench) -> None:
    assert kind(bench.host.declare_queue("q", durable=True)) == (QueueType.CLASSIC, None)


@pytest.mark.parametrize(
    ("value", "type_"),
    [
        ("quorum", QueueType.QUORUM),
        ("rabbit_stream_queue", QueueType.STREAM),
        (None, None),
        ("undefined", None),
    ],
)
def test_a_type_is_read_as_rabbitmq_writes_it(value: object, type_: QueueType | None) -> None:
    assert default_type(value) is type_


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("", "default_queue_type must not be an empty string"),
        ("mirrored", "mirrored is not a valid queue type"),
        (5, "5 is not a valid default_queue_type value"),
    ],
)
def test_anything_else_is_refused_in_its_words(value: object, text: str) -> None:
    with pytest.raises(PreconditionFailed) as refused:
        default_type(value)
    assert str(refused.value) == text
