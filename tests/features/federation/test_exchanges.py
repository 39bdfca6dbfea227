"""Federated exchanges: what comes from upstream, which bindings go there, and what ends where."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from leveret.exchanges.exchange_type import Exchange
from leveret.features.federation.feed import ExchangeFeed, Propagation, Side
from leveret.features.federation.upstream import upstream_of
from leveret.message import Message
from leveret.values import Json

from .region import DURABLE, Downstream, Region, Regions, bodies

SIDES = pytest.mark.parametrize("make", [Region, Regions], ids=["local", "remote"])
Make = Callable[[], Downstream]


def federated(side: Downstream, **said: Json) -> Downstream:
    """Declare the topic exchange f with a queue q bound by a.#, and federate it."""
    exchange = side.host.declare_exchange("f", "topic", durable=True)
    side.host.bind(exchange, side.host.declare_queue("q", durable=True), "a.#")
    side.upstream(**said)
    side.federate()
    return side


def keys_upstream(side: Downstream) -> list[str]:
    return sorted(binding.key for binding in side.up.exchanges["f"].bindings)


@SIDES
def test_messages_published_upstream_come_to_the_bindings_here(make: Make) -> None:
    side = federated(make())
    side.publish(side.up, "f", "a.b", b"1", b"2")
    side.publish(side.up, "f", "b.c", b"not bound")
    assert bodies(side.host.queues["q"]) == [b"1", b"2"]
    assert (side.link.state, side.link.forwarded) == ("running", 2)
    queue = side.up.queues[queue_upstream(side)]
    assert (queue.ready, queue.unsettled) == (0, 0)


def queue_upstream(side: Downstream) -> str:
    (name,) = (name for name in side.up.queues if name.startswith("federation: "))
    return name


@SIDES
def test_what_is_upstream_has_the_names_and_arguments_of_rabbitmq(make: Make) -> None:
    side = federated(make(), expires=60_000, message_ttl=5000, max_hops=2)
    end = "" if isinstance(side, Regions) else ":/:f"
    assert queue_upstream(side) == f"federation: f -> a{end}"
    queue = side.up.queues[queue_upstream(side)]
    assert queue.durable
    assert queue.arguments == {
        "x-internal-purpose": "federation",
        "x-queue-type": "classic",
        "x-expires": 60_000,
        "x-message-ttl": 5000,
    }
    (internal,) = (each for each in side.up.exchanges.values() if each.name.startswith("federation: "))
    assert internal.name == f"federation: f -> a{end} A"
    assert (internal.internal, internal.auto_delete, internal.durable) == (True, True, True)
    if isinstance(side, Regions):
        assert internal.type.name == "x-federation-upstream"
        assert internal.arguments["x-max-hops"] == 2
    (binding,) = side.up.exchanges["f"].bindings
    (record,) = binding.arguments["x-bound-from"]  # type: ignore[misc]
    assert record == {"cluster-name": "a", "vhost": "/", "exchange": "/:f A", "hops": 2}


@SIDES
def test_what_a_binding_asks_for_and_gets_into_no_queue_stays_upstream(make: Make) -> None:
    side = federated(make(), reconnect_delay=1)
    behind = side.host.declare_exchange("behind", "fanout", durable=True)
    side.host.bind(side.host.exchanges["f"], behind, "b")
    side.run()
    side.publish(side.up, "f", "b", b"1", b"2")
    assert side.link.state == "terminated"
    assert "routes a message with the key 'b' to no queue" in side.link.reason
    side.host.bind(behind, side.host.declare_queue("later", durable=True), "")
    side.run(20.0)
    assert bodies(side.host.queues["later"]) == [b"1", b"2"]


@SIDES
def test_what_no_binding_asks_for_any_more_is_dropped_and_counted(make: Make) -> None:
    side = federated(make(), reconnect_delay=1)
    side.link.stop()
    side.publish(side.up, "f", "a.b", b"1")
    side.host.bind(side.host.exchanges["f"], side.host.queues["q"], "b")
    side.host.unbind(side.host.exchanges["f"], side.host.queues["q"], "a.#")
    side.link.start()
    side.run()
    side.publish(side.up, "f", "b", b"2")
    assert (side.link.state, side.link.unwanted) == ("running", 1)
    assert bodies(side.host.queues["q"]) == [b"2"]


@SIDES
def test_bindings_go_upstream_as_they_come_and_go_and_equal_ones_once(make: Make) -> None:
    side = federated(make())
    exchange, other = side.host.exchanges["f"], side.host.declare_queue("other")
    side.host.bind(exchange, other, "a.#")
    side.host.bind(exchange, other, "b")
    side.run()
    assert keys_upstream(side) == ["a.#", "b"]
    side.host.delete_queue(side.host.queues["q"])
    side.run()
    assert keys_upstream(side) == ["a.#", "b"]  # the other queue still asks for it
    side.host.unbind(exchange, other, "a.#")
    side.run()
    assert keys_upstream(side) == ["b"]


@SIDES
def test_messages_tell_over_which_links_they_have_come_and_whose_they_are_is_not_believed(make: Make) -> None:
    side = federated(make())
    side.publish(side.up, "f", "a", b"1")
    (delivery,) = side.host.queues["q"].waiting()
    (record,) = delivery.message.header("x-received-from")  # type: ignore[misc]
    there = {"cluster-name": "leveret", "vhost": "/", "uri": "amqp://there"}
    if not isinstance(side, Regions):
        there = {"cluster-name": "a", "vhost": "up", "uri": "amqp:///up"}
    assert {name: record[name] for name in there if name != "cluster-name"} == {
        name: value for name, value in there.items() if name != "cluster-name"
    }
    assert (record["exchange"], record["redelivered"]) == ("f", False)
    assert record["cluster-name"]


@SIDES
def test_a_message_goes_over_as_many_links_as_the_upstream_allows(make: Make) -> None:
    side = federated(make(), max_hops=2)
    once, here = {"cluster-name": "x", "vhost": "/"}, {"cluster-name": "a", "vhost": "/"}
    for name, records in (("one", [once]), ("two", [once, once]), ("circle", [here]), ("odd", 7)):
        side.publish(side.up, "f", "a", name.encode(), **{"x-received-from": records})
    assert bodies(side.host.queues["q"]) == [b"one", b"odd"]
    queue = side.up.queues[queue_upstream(side)]
    assert (queue.ready, queue.unsettled) == (0, 0)


def test_an_upstream_without_the_exchange_type_gets_a_fanout_and_ends_circles_here() -> None:
    side = federated(Regions(knows_type=False))
    here = {"cluster-name": "a", "vhost": "/"}
    side.publish(side.up, "f", "a", b"circle", **{"x-received-from": [here]})
    side.publish(side.up, "f", "a", b"1")
    assert bodies(side.host.queues["q"]) == [b"1"]
    (internal,) = (each for each in side.up.exchanges.values() if each.name.startswith("federation: "))
    assert internal.type.name == "fanout"
    queue = side.up.queues[queue_upstream(side)]
    assert (queue.ready, queue.unsettled) == (0, 0)


def test_what_is_published_while_the_link_is_down_comes_later_once_and_bindings_are_as_they_are() -> None:
    side = federated(Regions())
    network = side.both.network
    network.is_up = False
    for line in list(network.lines):
        network.cut(line)
    side.run()
    assert side.link.state == "terminated"
    side.host.bind(side.host.exchanges["f"], side.host.queues["q"], "late")
    side.host.unbind(side.host.exchanges["f"], side.host.queues["q"], "a.#")
    side.publish(side.up, "f", "a.b", b"1", b"2")
    network.is_up = True
    side.run(10)
    assert bodies(side.host.queues["q"]) == []  # they are no longer bound here
    side.publish(side.up, "f", "late", b"3")
    assert bodies(side.host.queues["q"]) == [b"3"]
    assert keys_upstream(side) == ["late"]
    assert [name[-1] for name in side.up.exchanges if name.startswith("federation: ")] == ["B"]


@SIDES
def test_an_exchange_that_is_missing_upstream_is_declared_like_the_one_here(make: Make) -> None:
    side = federated(make())
    there = side.up.exchanges["f"]
    assert (there.type.name, there.durable) == ("topic", True)


@SIDES
def test_without_the_policy_nothing_is_left_upstream(make: Make) -> None:
    side = federated(make())
    side.stop_federating()
    assert list(side.federation) == []
    assert [name for name in (*side.up.queues, *side.up.exchanges) if "federation" in name] == []


@SIDES
def test_what_is_upstream_stays_where_the_upstream_says_never(make: Make) -> None:
    side = federated(make(), resource_cleanup_mode="never")
    side.host.delete_exchange("f")
    side.run()
    assert list(side.federation) == []
    assert queue_upstream(side)


def test_links_follow_upstreams_sets_and_patterns() -> None:
    side = Region()
    side.host.declare_exchange("f", "fanout")
    side.upstream("one", exchange="x")
    side.upstream("two")
    side.federate(federation_upstream_set="all")
    assert [(link.upstream.name, link.there) for link in side.federation] == [("one", "x"), ("two", "f")]
    side.federate(federation_upstream_set="some")
    assert list(side.federation) == []
    side.federation.sets.set("/", "some", [{"upstream": "one", "exchange": "y"}], "guest")
    side.run()
    assert [(link.upstream.name, link.there) for link in side.federation] == [("one", "y")]
    side.federate(federation_upstream_pattern="^t")
    (link,) = side.federation
    assert link.upstream.name == "two"
    side.upstream("three")
    assert [each.upstream.name for each in side.federation] == ["three", "two"]
    assert link in list(side.federation)  # it was not disturbed
    side.federation.upstreams.delete("/", "two")
    side.run()
    assert [each.upstream.name for each in side.federation] == ["three"]


def test_internal_exchanges_and_the_default_one_have_no_links() -> None:
    side = Region()
    side.host.declare_exchange("f", "fanout", internal=True)
    side.upstream()
    side.federate("")
    assert {link.name for link in side.federation} == {
        name for name, each in side.host.exchanges.items() if name and not each.internal
    }


def test_a_link_has_the_permissions_of_the_user_who_has_set_the_upstream() -> None:
    side = Region()
    side.broker.access.set_permissions("guest", "up", ".*", ".*", "^$")
    federated(side)
    assert side.link.state == "terminated"
    assert "in vhost 'up' refused for user 'guest'" in side.link.reason


def propagation(max_hops: int, exchange: Exchange) -> Propagation:
    upstream = upstream_of("u", {"uri": "amqp://x", "max-hops": max_hops})
    return Propagation(ExchangeFeed(upstream, exchange, "here"), Side("there", "/"), "A")


@pytest.mark.parametrize(("left", "max_hops", "asked"), [(1, 5, None), (2, 5, 1), (5, 2, 2), (3, 3, 2)])
def test_a_binding_from_another_link_goes_up_as_far_as_messages_come_down(
    left: int, max_hops: int, asked: int | None
) -> None:
    side = Region()
    exchange, queue = side.host.declare_exchange("f", "topic"), side.host.declare_queue("q")
    before = {"cluster-name": "other", "vhost": "/", "exchange": "/:f A", "hops": left}
    binding = side.host.bind(exchange, queue, "k", {"x-bound-from": [before]})
    wanted = propagation(max_hops, exchange).added(binding)
    assert (wanted is None) == (asked is None)
    if wanted is not None:
        first, second = wanted.arguments["x-bound-from"]  # type: ignore[misc]
        assert (first["hops"], second) == (asked, before)


def test_a_binding_does_not_return_to_where_it_came_from() -> None:
    side = Region()
    exchange, queue = side.host.declare_exchange("f", "topic"), side.host.declare_queue("q")
    there = {"cluster-name": "there", "vhost": "/", "exchange": "/:f A", "hops": 9}
    binding = side.host.bind(exchange, queue, "k", {"x-bound-from": [there]})
    assert propagation(9, exchange).added(binding) is None


def test_two_exchanges_that_federate_each_other_pass_each_message_once() -> None:
    side = Region()
    both = [(side.host, "up"), (side.up, "down")]
    for host, name in both:
        exchange = host.declare_exchange("f", "fanout", durable=True)
        host.bind(exchange, host.declare_queue("q", durable=True), "")
        uri = "amqp:///up" if name == "up" else "amqp:///%2F"
        side.federation.upstreams.set(host.name, name, {"uri": uri, "max-hops": 5}, "guest")
        from leveret.policy import Policy

        side.broker.policies.set(Policy("p", host.name, "^f", {"federation-upstream": name}))
        host.apply_policies()
    side.run()
    side.publish(side.host, "f", "", b"down")
    side.publish(side.up, "f", "", b"up")
    assert [sorted(bodies(host.queues["q"])) for host, _ in both] == [[b"down", b"up"]] * 2


def test_a_message_of_any_user_may_come_where_users_are_trusted() -> None:
    for trusts, expected in ((False, None), (True, "root")):
        side = federated(Regions(), trust_user_id=trusts)
        message = Message(side_encoding(), "f", "a", user_id_properties("root"), b"1", DURABLE)
        side.up.broker.publish(side.up.exchanges["f"], message)
        side.up.broker.settle()
        side.run()
        (delivery,) = side.host.queues["q"].waiting()
        assert delivery.message.facts.user_id == expected


def side_encoding():  # type: ignore[no-untyped-def]
    from leveret.protocols.amqp091.broker.encoding import ENCODING

    return ENCODING


def user_id_properties(user: str) -> bytes:
    from leveret.protocols.amqp091.codec.wire import BasicProperties

    return BasicProperties(delivery_mode=2, user_id=user).encode()
