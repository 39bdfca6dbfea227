"""Bindings from the client's side, §3 of the acceptance list; exchanges bound to exchanges; policies on exchanges."""

from __future__ import annotations

import pytest

from leveret.policy import ApplyTo, Policy
from leveret.protocols.amqp091.codec import methods as m
from leveret.protocols.amqp091.codec.wire import BasicProperties, FieldTable, Method
from leveret.values import Table
from tests.amqp091.peer import opened, permitted, with_queue

from .peer import ClientChannel

STRICT = '[compat]\nprofile = "spec"'
STRICT_ROW = '[compat]\ndelete_missing = "not-found"'
LENIENT = ("", '[compat]\nprofile = "rabbitmq-3.13"', '[compat]\nprofile = "rabbitmq-4"')


def fanouts(*names: str) -> ClientChannel:
    """Fanout exchanges of these names, and queue `q`."""
    channel = opened()
    for name in names:
        channel.exchange(name, "fanout")
    channel.declare("q")
    return channel


# Exchange to exchange.


def test_s054_both_exchanges_must_be_there() -> None:
    channel = fanouts("x")
    missing = "404 NOT_FOUND - no exchange 'y' in vhost '/'"
    assert channel.refused(m.ExchangeBind("y", "x")) == missing
    assert channel.refused(m.ExchangeBind("x", "y")) == missing


def test_s054_binding_needs_write_on_the_destination_and_read_on_the_source() -> None:
    channel = fanouts("to", "from")
    permitted(channel, read=".*")
    refused = "403 ACCESS_REFUSED - {} access to exchange '{}' in vhost '/' refused for user 'guest'"
    for method in (m.ExchangeBind("to", "from"), m.ExchangeUnbind("to", "from")):
        permitted(channel, read=".*")
        assert channel.refused(method) == refused.format("write", "to")
        permitted(channel, write=".*")
        assert channel.refused(method) == refused.format("read", "from")
        permitted(channel, write="^to$", read="^from$")
        channel.does(method)


def test_s054_binding_a_queue_needs_write_on_it_and_read_on_the_source() -> None:
    channel = fanouts("x")
    permitted(channel, read=".*")
    refused = "403 ACCESS_REFUSED - {} access to {} in vhost '/' refused for user 'guest'"
    assert channel.refused(m.QueueBind("q", "x")) == refused.format("write", "queue 'q'")
    permitted(channel, write=".*")
    assert channel.refused(m.QueueBind("q", "x")) == refused.format("read", "exchange 'x'")
    permitted(channel, write="^q$", read="^x$")
    channel.bind("q", "x")


def test_s054_binding_to_a_topic_exchange_may_need_the_topic_too() -> None:
    channel = with_queue()
    channel.peer.bench.broker.access.set_topic_permissions("guest", "/", "amq.topic", ".*", "^mine")
    channel.bind("q", "amq.topic", "mine.#")
    assert channel.closed_with(m.QueueBind("q", "amq.topic", "yours.#")) == (
        "403 ACCESS_REFUSED - read access to topic 'yours.#' in exchange 'amq.topic' in vhost '/' "
        "refused for user 'guest'"
    )


def test_a_message_goes_from_exchange_to_exchange_by_each_ones_own_rules() -> None:
    channel = opened()
    channel.exchange("topics", "topic")
    channel.exchange("directs", "direct")
    channel.declare("q")
    channel.link("topics", "directs", "a.#")
    channel.bind("q", "directs", "a.b")
    for key in ("a.b", "a.c", "b"):
        channel.publish("topics", key, key.encode())
    content = channel.get("q")
    assert content is not None
    assert (content.body, content.method.fields()["exchange"]) == (b"a.b", "topics")
    assert channel.get("q") is None


def test_s055_an_exchange_may_be_bound_to_itself() -> None:
    channel = fanouts("x")
    channel.link("x", "x")
    channel.bind("q", "x")
    channel.publish("x", "", b"once")
    assert channel.bodies("q") == [b"once"]


def test_s055_a_cycle_is_walked_once_and_every_queue_gets_one_copy() -> None:
    channel = fanouts("a", "b", "c")
    for source, destination in (("a", "b"), ("b", "c"), ("c", "a"), ("a", "c")):
        channel.link(source, destination)
    channel.declare("r")
    for name in ("a", "b", "c"):
        channel.bind("q", name)
    channel.bind("r", "c")
    channel.publish("a", "", b"once")
    assert channel.bodies("q") == [b"once"]
    assert channel.bodies("r") == [b"once"]


def test_s055_a_cycle_without_a_queue_leads_nowhere() -> None:
    channel = fanouts("a", "b")
    channel.link("a", "b")
    channel.link("b", "a")
    channel.publish("a", "key", b"back", mandatory=True)
    (returned,) = channel.deliveries()
    assert returned.method == m.BasicReturn(312, "NO_ROUTE", "a", "key")


def test_a_new_hop_far_down_is_seen_by_the_next_publish() -> None:
    channel = fanouts("a", "b")
    channel.link("a", "b")
    channel.publish("a", "", b"before")
    channel.bind("q", "b")
    channel.publish("a", "", b"after")
    channel.does(m.ExchangeUnbind("b", "a"))
    channel.publish("a", "", b"too late")
    assert channel.bodies("q") == [b"after"]


# Binding and unbinding.


def test_s056_binding_twice_is_binding_once() -> None:
    channel = fanouts("x")
    for _ in range(2):
        channel.bind("q", "x", "key", {"a": 1})
    assert len(list(channel.peer.bench.host.bindings())) == 1
    channel.publish("x", "key", b"once")
    assert channel.bodies("q") == [b"once"]
    channel.does(m.QueueUnbind("q", "x", "key", {"a": 1}))
    assert not list(channel.peer.bench.host.bindings())


def test_s056_other_arguments_or_another_key_make_another_binding() -> None:
    channel = fanouts("x")
    arguments: list[FieldTable] = [{}, {"a": 1}, {"a": 2}, {"a": True}, {"a": [1, {"b": 2}]}]
    for each in arguments:
        channel.bind("q", "x", "key", each)
    channel.bind("q", "x", "other")
    assert len(list(channel.peer.bench.host.bindings())) == 6
    for each in arguments:
        channel.does(m.QueueUnbind("q", "x", "key", each))
    channel.publish("x", "", b"by the other key")
    assert channel.bodies("q") == [b"by the other key"]


MISSING: list[tuple[Method, str]] = [
    (m.QueueUnbind("q", "x", "key"), "no binding key between exchange 'x' and 'q'"),
    (m.QueueUnbind("nowhere", "x", "key"), "no queue 'nowhere' in vhost '/'"),
    (m.QueueUnbind("q", "nowhere", "key"), "no exchange 'nowhere' in vhost '/'"),
    (m.ExchangeUnbind("x", "amq.fanout", "key"), "no binding key between exchange 'amq.fanout' and 'x'"),
    (m.ExchangeUnbind("x", "nowhere", "key"), "no exchange 'nowhere' in vhost '/'"),
    (m.ExchangeUnbind("nowhere", "x", "key"), "no exchange 'nowhere' in vhost '/'"),
]


@pytest.mark.parametrize(("method", "text"), MISSING)
@pytest.mark.parametrize("toml", LENIENT)
def test_s057_taking_away_what_is_not_there_is_fine(toml: str, method: Method, text: str) -> None:
    channel = opened(toml)
    channel.exchange("x")
    channel.declare("q", durable=True)
    channel.does(method)


@pytest.mark.parametrize(("method", "text"), MISSING)
@pytest.mark.parametrize("toml", [STRICT, STRICT_ROW])
def test_s057_where_a_profile_says_so_it_is_not_found(toml: str, method: Method, text: str) -> None:
    channel = opened(toml)
    channel.exchange("x")
    channel.declare("q")
    assert channel.closed_with(method) == f"404 NOT_FOUND - {text}"


@pytest.mark.parametrize(
    ("durable_exchange", "durable_queue", "lasts"),
    [(True, True, True), (True, False, False), (False, True, False), (False, False, False)],
)
def test_s059_a_binding_is_durable_if_both_ends_are(
    durable_exchange: bool, durable_queue: bool, lasts: bool
) -> None:
    channel = opened()
    channel.exchange("x", durable=durable_exchange)
    channel.declare("q", durable=durable_queue)
    channel.bind("q", "x")
    (binding,) = channel.peer.bench.host.bindings()
    assert binding.durable is lasts


def test_s059_so_is_a_binding_between_exchanges() -> None:
    channel = opened()
    channel.exchange("lasting", durable=True)
    channel.exchange("passing")
    channel.link("amq.fanout", "lasting")
    channel.link("amq.fanout", "passing")
    assert [binding.durable for binding in channel.peer.bench.host.bindings()] == [True, False]


# Policies on exchanges.


def put(channel: ClientChannel, name: str, pattern: str, definition: Table, priority: int = 0) -> None:
    bench = channel.peer.bench
    bench.broker.policies.set(Policy(name, "/", pattern, definition, priority, ApplyTo.EXCHANGES))
    bench.host.apply_policies()


def clear(channel: ClientChannel, name: str) -> None:
    bench = channel.peer.bench
    bench.broker.policies.clear("/", name)
    bench.host.apply_policies()


def with_alternates() -> ClientChannel:
    """Exchange `x` that leads nowhere, and two that could stand in for it: `a` to queue `a`, `b` to queue `b`."""
    channel = opened()
    channel.exchange("x")
    for name in ("a", "b"):
        channel.exchange(name, "fanout")
        channel.declare(name)
        channel.bind(name, name)
    return channel


def test_a_policy_on_exchanges_holds_and_ceases_without_redeclaring() -> None:
    channel = with_alternates()
    channel.publish("x", "", b"none yet")
    put(channel, "p", "^x$", {"alternate-exchange": "a"})
    channel.publish("x", "", b"1")
    put(channel, "p", "^x$", {"alternate-exchange": "b"})
    channel.publish("x", "", b"2")
    clear(channel, "p")
    channel.publish("x", "", b"none any more")
    assert (channel.bodies("a"), channel.bodies("b")) == ([b"1"], [b"2"])


def test_of_two_policies_the_higher_priority_holds() -> None:
    channel = with_alternates()
    put(channel, "low", ".*", {"alternate-exchange": "a"}, priority=1)
    put(channel, "high", "^x", {"alternate-exchange": "b"}, priority=2)
    channel.publish("x", "", b"1")
    clear(channel, "high")
    channel.publish("x", "", b"2")
    assert (channel.bodies("b"), channel.bodies("a")) == ([b"1"], [b"2"])


def test_a_policy_holds_for_exchanges_declared_after_it_and_for_predeclared_ones() -> None:
    channel = with_alternates()
    put(channel, "p", "^(new|amq[.]direct)$", {"alternate-exchange": "a"})
    channel.exchange("new")
    for name in ("new", "amq.direct"):
        channel.publish(name, "", name.encode())
    assert channel.bodies("a") == [b"new", b"amq.direct"]


def test_a_policy_may_come_from_the_configuration() -> None:
    definition = 'pattern = "^x$"\ndefinition = { alternate-exchange = "amq.fanout" }'
    channel = opened(f'[[policies]]\nname = "p"\n{definition}')
    channel.exchange("x")
    channel.declare("q")
    channel.bind("q", "amq.fanout")
    channel.publish("x", "", b"by policy", BasicProperties(delivery_mode=2))
    assert channel.bodies("q") == [b"by policy"]
