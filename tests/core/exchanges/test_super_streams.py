"""Super streams: made and deleted as a whole, and found again by their order."""

from __future__ import annotations

import pytest

from leveret.errors import AccessRefused, NotFound, PreconditionFailed, TooMany
from leveret.exchanges.super_streams import (
    PARTITIONS_MAX,
    add_super_stream,
    delete_super_stream,
    partitions_of,
)
from leveret.limits import QueueType, VirtualHostLimits
from tests.core.fakes import waiting
from tests.harness.bench import CoreBench, message


def test_a_message_goes_to_the_partition_that_its_key_numbers(bench: CoreBench) -> None:
    assert add_super_stream(bench.host, "s", 3) == ["s-0", "s-1", "s-2"]
    exchange = bench.host.exchanges["s"]
    bench.broker.publish(exchange, message("1", b"a"))
    assert [waiting(queue) for queue in partitions_of(exchange)] == ["", "a", ""]
    assert exchange.durable
    assert all(each.durable for each in partitions_of(exchange))
    assert {each.type for each in partitions_of(exchange)} == {QueueType.STREAM}


def test_partitions_come_in_the_order_of_their_numbers_each_once(bench: CoreBench) -> None:
    add_super_stream(bench.host, "s", 12)
    exchange = bench.host.exchanges["s"]
    bench.host.bind(exchange, bench.host.queues["s-0"], "again")
    assert [queue.name for queue in partitions_of(exchange)] == [f"s-{n}" for n in range(12)]


def test_a_super_stream_goes_with_all_its_partitions_and_nothing_else(bench: CoreBench) -> None:
    bench.queue("s-9")
    add_super_stream(bench.host, "s", 2)
    assert delete_super_stream(bench.host, "s") == ["s-0", "s-1"]
    assert list(bench.host.queues) == ["s-9"]
    assert "s" not in bench.host.exchanges


@pytest.mark.parametrize("name", ["none", "amq.direct", ""])
def test_another_exchange_is_not_deleted(name: str, bench: CoreBench) -> None:
    with pytest.raises(NotFound, match=f"no super stream '{name}' in vhost '/'"):
        delete_super_stream(bench.host, name)
    assert name == "none" or name in bench.host.exchanges


@pytest.mark.parametrize("partitions", [-1, 0, PARTITIONS_MAX + 1])
def test_the_number_of_partitions_is_bounded(partitions: int, bench: CoreBench) -> None:
    with pytest.raises(PreconditionFailed, match=f"1 to {PARTITIONS_MAX} partitions, not {partitions}"):
        add_super_stream(bench.host, "s", partitions)
    assert not bench.host.queues


def test_what_cannot_be_made_whole_is_not_made_at_all(bench: CoreBench) -> None:
    bench.queue("s-1")
    with pytest.raises(PreconditionFailed, match="there is a queue 's-1' in vhost '/' already"):
        add_super_stream(bench.host, "s", 2)
    with pytest.raises(AccessRefused):
        add_super_stream(bench.host, "amq.s", 2)
    bench.host.limits = VirtualHostLimits(max_queues=2)
    with pytest.raises(TooMany):
        add_super_stream(bench.host, "t", 2)
    assert list(bench.host.queues) == ["s-1"]
    assert not {"s", "t"} & set(bench.host.exchanges)


def test_an_exchange_that_is_there_is_left_alone(bench: CoreBench) -> None:
    add_super_stream(bench.host, "s", 1)
    with pytest.raises(PreconditionFailed, match="there is an exchange 's' in vhost '/' already"):
        add_super_stream(bench.host, "s", 2)
    assert list(bench.host.queues) == ["s-0"]
