"""The shipped types in a real broker: what the bench of the other tests stands in for."""

from __future__ import annotations

import pytest

from leveret.broker import Broker, Outcome
from leveret.clock import ManualClock
from leveret.errors import PreconditionFailed
from leveret.exchanges.exchange_type import ExchangeType
from leveret.exchanges.standard import STANDARD
from leveret.features.standard import equip
from leveret.plugins.delayed_message import DelayedMessage
from leveret.plugins.local_random import LocalRandom
from leveret.plugins.recent_history import RecentHistory
from leveret.testing.fakes import fake_message
from leveret.virtual_host import VirtualHost

TYPES: dict[str, type[ExchangeType]] = {
    **STANDARD,
    "x-delayed-message": DelayedMessage,
    "x-local-random": LocalRandom,
    "x-recent-history": RecentHistory,
}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def host(clock: ManualClock) -> VirtualHost:
    return equip(Broker(clock=clock, exchange_types=TYPES)).add_virtual_host("/")


def pass_time(host: VirtualHost, clock: ManualClock, seconds: float) -> None:
    clock.advance(seconds)
    host.broker.tick()
    host.broker.settle()


def test_s151_a_held_message_is_taken_and_the_alternate_does_not_get_it(
    host: VirtualHost, clock: ManualClock
) -> None:
    host.declare_exchange("others", "fanout")
    host.bind(host.exchange("others"), other := host.declare_queue("other"), "")
    arguments = {"x-delayed-type": "topic", "alternate-exchange": "others"}
    exchange = host.declare_exchange("later", "x-delayed-message", arguments=arguments)
    host.bind(exchange, queue := host.declare_queue("q"), "a.#")
    assert host.broker.publish(exchange, fake_message("a.b", {"x-delay": 1000})) is Outcome.TAKEN
    assert host.broker.publish(exchange, fake_message("b", {"x-delay": 2000})) is Outcome.TAKEN
    assert (queue.ready, other.ready) == (0, 0)
    pass_time(host, clock, 1)
    assert (queue.ready, other.ready) == (1, 0)
    pass_time(host, clock, 1)  # the alternate counts when the message is released
    assert (queue.ready, other.ready) == (1, 1)


def test_a_refused_delayed_type_leaves_no_exchange_behind(host: VirtualHost) -> None:
    with pytest.raises(PreconditionFailed):
        host.declare_exchange("later", "x-delayed-message", arguments={"x-delayed-type": "x-none"})
    assert "later" not in host.exchanges


def test_a_deleted_exchange_releases_nothing(host: VirtualHost, clock: ManualClock) -> None:
    exchange = host.declare_exchange("later", "x-delayed-message", arguments={"x-delayed-type": "fanout"})
    host.bind(exchange, queue := host.declare_queue("q"), "")
    host.broker.publish(exchange, fake_message("", {"x-delay": 1000}))
    host.delete_exchange("later")
    pass_time(host, clock, 2)
    assert queue.ready == 0


def test_recent_history_reaches_a_queue_that_is_bound_later(host: VirtualHost) -> None:
    exchange = host.declare_exchange("news", "x-recent-history")
    for key in "abc":
        host.broker.publish(exchange, fake_message(key))
    host.bind(exchange, queue := host.declare_queue("late"), "")
    assert queue.ready == 3


@pytest.mark.parametrize("type_", ["quorum", "stream"])
def test_a_local_random_exchange_is_for_classic_queues(host: VirtualHost, type_: str) -> None:
    exchange = host.declare_exchange("any", "x-local-random")
    queue = host.declare_queue("q", durable=True, arguments={"x-queue-type": type_})
    with pytest.raises(PreconditionFailed) as refused:
        host.bind(exchange, queue, "")
    assert str(refused.value) == f"Queue type rabbit_{type_}_queue not valid for this exchange type"
    assert not exchange.bindings
    assert not host.bindings_to(queue)
    host.bind(exchange, host.declare_queue("classic"), "")
    assert host.broker.publish(exchange, fake_message("any key")) is Outcome.TAKEN
