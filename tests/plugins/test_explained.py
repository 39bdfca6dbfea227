"""Explaining a message leaves no trace in the shipped exchange types that keep messages."""

from __future__ import annotations

from leveret.broker import Broker
from leveret.clock import ManualClock
from leveret.exchanges.explain import explain
from leveret.exchanges.standard import STANDARD
from leveret.plugins.consistent_hash import ConsistentHash
from leveret.plugins.delayed_message import DelayedMessage
from leveret.plugins.recent_history import RecentHistory
from leveret.testing.fakes import fake_message
from leveret.values import Table
from leveret.virtual_host import VirtualHost

TYPES = {**STANDARD, **{kind.name: kind for kind in (ConsistentHash, DelayedMessage, RecentHistory)}}


def host_with(type_: str, arguments: Table | None = None, key: str = "") -> VirtualHost:
    """A virtual host with an exchange `e` and a queue `q` bound to it."""
    host = Broker(ManualClock(), exchange_types=TYPES).add_virtual_host("/")
    host.bind(host.declare_exchange("e", type_, arguments=arguments), host.declare_queue("q"), key)
    return host


def test_a_delayed_message_that_is_explained_is_not_held() -> None:
    host = host_with("x-delayed-message", {"x-delayed-type": "direct"}, key="k")
    told = explain(host, "e", "k", {"x-delay": 5000})
    assert (told.handled, told.queues, told.dropped) == (True, (), None)
    held = host.exchanges["e"].type
    assert isinstance(held, DelayedMessage)
    assert held.held == 0
    assert host.broker.timers.next_at() is None
    assert explain(host, "e", "k").queues == ("q",)
    assert explain(host, "e", "other").dropped == "exchange 'e': no binding matches the message"


def test_a_message_that_is_explained_makes_no_history() -> None:
    host = host_with("x-recent-history")
    assert explain(host, "e").queues == ("q",)
    host.bind(host.exchanges["e"], host.declare_queue("early"), "")
    assert host.queues["early"].ready == 0
    host.broker.publish(host.exchanges["e"], fake_message())
    host.bind(host.exchanges["e"], host.declare_queue("late"), "")
    assert host.queues["late"].ready == 1


def test_a_hash_is_explained_as_it_will_be_drawn() -> None:
    host = host_with("x-consistent-hash", key="1")
    host.bind(host.exchanges["e"], host.declare_queue("p"), "1")
    for key in map(str, range(20)):
        (name,) = explain(host, "e", key).queues
        before = host.queues[name].ready
        host.broker.publish(host.exchanges["e"], fake_message(key))
        assert host.queues[name].ready == before + 1
