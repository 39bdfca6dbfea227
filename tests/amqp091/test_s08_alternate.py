"""Alternate exchanges (§8 of the acceptance list): where a message goes that nobody wants, and who may say so."""

from __future__ import annotations

import logging

import pytest

from leveret.exchanges.explain import explain
from leveret.exchanges.standard import STANDARD
from leveret.plugins.delayed_message import DelayedMessage
from leveret.protocols.amqp091.codec import methods as m
from leveret.protocols.amqp091.codec.wire import BasicProperties, FieldTable
from tests.amqp091.peer import channel_of, opened
from tests.harness.bench import ClientBench

from .peer import ClientChannel, Content


def alternate(name: str | None) -> FieldTable:
    return {} if name is None else {"alternate-exchange": name}


def chained(*names: str, bench: ClientBench | None = None, type_: str = "direct") -> ClientChannel:
    """Exchanges of which each has the next as its alternate; the last is a fanout with the queue `end`."""
    channel = channel_of(bench)
    for name, following in zip(names, [*names[1:], None], strict=True):
        channel.exchange(name, type_ if following else "fanout", arguments=alternate(following))
    channel.declare("end")
    channel.bind("end", names[-1])
    return channel


def publish(
    channel: ClientChannel, exchange: str, key: str = "k", mandatory: bool = True, **properties: object
) -> str:
    """What became of a message: the queues that have it now, or `returned`."""
    channel.publish(exchange, key, b"x", BasicProperties(**properties), mandatory)  # type: ignore[arg-type]
    returned = channel.all()
    if returned:
        [content] = returned
        assert isinstance(content, Content)
        assert content.method == m.BasicReturn(312, "NO_ROUTE", exchange, key)
        return "returned"
    queues = channel.peer.bench.host.queues
    return " ".join(f"{name}" for name in sorted(queues) for _ in channel.bodies(name))


# Declaring.


@pytest.mark.parametrize(
    ("value", "type_"), [(1, "signedint"), (True, "bool"), (None, "void"), ({}, "table"), ([], "array")]
)
def test_s127_the_argument_is_a_name(value: object, type_: str) -> None:
    method = m.ExchangeDeclare("x", "direct", arguments={"alternate-exchange": value})  # type: ignore[dict-item]
    assert channel_of().closed_with(method) == (
        f"406 PRECONDITION_FAILED - invalid type '{type_}' for arg 'alternate-exchange' in exchange 'x' in vhost '/'"
    )


def test_s127_the_argument_sets_the_alternate() -> None:
    assert publish(chained("x", "ae"), "x") == "end"


def test_s127_a_name_keeps_its_octets() -> None:
    channel = opened('[compat]\nnames = "any"')
    channel.exchange("\udcff", "fanout")  # one octet, 0xff, which is no UTF-8
    channel.exchange("x", arguments={"alternate-exchange": b"\xff"})
    channel.declare("end")
    channel.bind("end", "\udcff")
    assert publish(channel, "x") == "end"


def test_s128_a_policy_sets_it_too() -> None:
    channel = chained("x")
    channel.exchange("y")
    channel.peer.bench.policy("^y$", alternate("x"))
    assert publish(channel, "y") == "end"


def test_s128_the_argument_wins_if_there_are_both() -> None:
    channel = chained("x", "ae")
    channel.exchange("of policy", "fanout")
    channel.declare("policy")
    channel.bind("policy", "of policy")
    channel.peer.bench.policy("^x$", alternate("of policy"))
    assert publish(channel, "x") == "end"


def test_s128_the_policy_of_the_highest_priority_counts() -> None:
    channel = chained("ae")
    channel.exchange("x")
    channel.peer.bench.policy(".*", alternate("missing"), priority=1)
    channel.peer.bench.policy("^x$", alternate("ae"), priority=2)
    assert publish(channel, "x") == "end"


def test_s129_a_new_policy_holds_for_the_next_publish() -> None:
    channel = chained("ae")
    channel.exchange("x")
    bench = channel.peer.bench
    assert publish(channel, "x") == "returned"
    bench.policy("^x$", alternate("ae"))
    assert publish(channel, "x") == "end"
    bench.policy("^x$", alternate("amq.fanout"))
    assert publish(channel, "x") == "returned"
    bench.broker.policies.clear("/", "^x$")
    bench.host.apply_policies()
    assert publish(channel, "x") == "returned"


def test_s130_the_alternate_need_not_exist_yet() -> None:
    channel = channel_of()
    channel.exchange("x", arguments=alternate("later"))
    assert publish(channel, "x") == "returned"
    channel.exchange("later", "fanout")
    channel.declare("end")
    channel.bind("end", "later")
    assert publish(channel, "x") == "end"


@pytest.mark.parametrize(("profile", "lines"), [("default", 2), ("rabbitmq-4", 0), ("rabbitmq-3.13", 0)])
def test_s131_a_missing_alternate_is_none_and_said_once(
    profile: str, lines: int, caplog: pytest.LogCaptureFixture
) -> None:
    channel = channel_of(ClientBench(f'[compat]\nprofile = "{profile}"'))
    for name in ("x", "y"):
        channel.exchange(name, arguments=alternate("missing"))
    with caplog.at_level(logging.WARNING, "leveret"):
        for _ in range(3):
            assert publish(channel, "x", key=str(_)) == "returned"
            assert publish(channel, "y") == "returned"
    said = [record.getMessage() for record in caplog.records]
    assert said == [
        f"alternate exchange 'missing' of exchange '{name}' in vhost '/' is missing"
        for name in ("x", "y")[:lines]
    ]


# Routing.


def test_s132_the_alternate_is_for_what_the_exchange_itself_leads_nowhere() -> None:
    channel = chained("x", "ae")
    channel.declare("own")
    channel.bind("own", "x", "k")
    assert publish(channel, "x", "k") == "own"
    assert publish(channel, "x", "other") == "end"


def test_s132_with_cc_one_key_that_matches_is_enough() -> None:
    channel = chained("x", "ae")
    channel.declare("own")
    channel.bind("own", "x", "k")
    assert publish(channel, "x", "other", headers={"CC": ["k"]}) == "own"
    assert publish(channel, "x", "other", headers={"CC": ["none"]}) == "end"


def test_s133_another_exchange_that_matched_is_a_way_even_if_it_leads_nowhere() -> None:
    channel = chained("x", "ae")
    channel.exchange("dead end")
    channel.link("x", "dead end", "k")
    assert publish(channel, "x", "k") == "returned"
    assert publish(channel, "x", "other") == "end"


def test_s133_then_the_alternate_of_that_one_counts() -> None:
    channel = chained("x", "ae")
    channel.exchange("other ae", "fanout")
    channel.exchange("y", arguments=alternate("other ae"))
    channel.link("x", "y", "k")
    channel.declare("of y")
    channel.bind("of y", "other ae")
    assert publish(channel, "x", "k") == "of y"


@pytest.mark.parametrize("length", [2, 3, 10, 200])
def test_s134_a_chain_is_followed_to_its_end(length: int) -> None:
    names = [f"x{number}" for number in range(length)]
    assert publish(chained(*names), "x0") == "end"


def test_s134_the_first_that_finds_a_queue_ends_it() -> None:
    channel = chained("x", "y", "z")
    channel.declare("of y")
    channel.bind("of y", "y", "k")
    assert publish(channel, "x", "k") == "of y"
    assert publish(channel, "x", "other") == "end"


@pytest.mark.parametrize("ring", [("a", "b"), ("a", "b", "c"), ("a",)])
def test_s135_s136_a_ring_ends_when_each_was_asked(ring: tuple[str, ...]) -> None:
    channel = channel_of()
    for at, name in enumerate(ring):
        channel.exchange(name, arguments=alternate(ring[(at + 1) % len(ring)]))
    for name in ring:
        assert publish(channel, name) == "returned"
        assert channel.peer.bench.host.exchanges[name].unroutable == 1


def test_s135_a_ring_can_be_left() -> None:
    channel = channel_of()
    channel.exchange("a", arguments=alternate("b"))
    channel.exchange("b", arguments=alternate("a"))
    channel.declare("q")
    channel.bind("q", "b", "k")
    assert publish(channel, "a", "k") == "q"


def test_s137_an_exchange_reached_in_two_ways_is_asked_once() -> None:
    channel = channel_of()
    channel.exchange("x", "fanout")
    channel.exchange("y", arguments=alternate("z"))
    channel.exchange("z", "fanout")
    for target in ("y", "z"):
        channel.link("x", target)
    channel.declare("q")
    channel.bind("q", "z")
    assert publish(channel, "x") == "q"


def test_s137_an_alternate_that_was_asked_before_is_not_asked_again() -> None:
    channel = channel_of()
    channel.exchange("x", "topic", arguments=alternate("y"))
    channel.exchange("y", arguments=alternate("x"))
    channel.link("x", "y", "#")
    assert publish(channel, "x") == "returned"
    assert publish(channel, "y") == "returned"


def test_s138_mandatory_is_content_with_the_alternate() -> None:
    channel = chained("x", "ae")
    channel.confirms()
    channel.publish("x", "k", b"x", mandatory=True)
    assert channel.all() == [m.BasicAck(1, False)]
    assert channel.bodies("end") == [b"x"]


def test_s139_one_return_for_the_whole_chain_with_the_exchange_it_was_published_to() -> None:
    channel = chained("x", "y", "z")
    channel.does(m.QueueDelete("end"))
    properties = BasicProperties(message_id="7")
    channel.publish("x", "k", b"body", properties, mandatory=True)
    [returned] = channel.all()
    assert returned.method == m.BasicReturn(312, "NO_ROUTE", "x", "k")
    assert (returned.raw_properties, returned.body) == (properties.encode(), b"body")


def test_s140_the_message_stays_what_it_was() -> None:
    channel = chained("x", "y", "z")
    properties = BasicProperties("text/plain", headers={"a": 1, "CC": ["c"]}, delivery_mode=2, priority=3)
    channel.publish("x", "k", b"body", properties)
    channel.consume("end", "t", no_ack=True)
    [delivered] = channel.deliveries()
    assert delivered.method == m.BasicDeliver("t", 1, False, "x", "k")
    assert (delivered.raw_properties, delivered.body) == (properties.encode(), b"body")


def test_s141_a_persistent_message_is_persistent_behind_the_alternate() -> None:
    channel = chained("x", "ae")
    channel.declare("kept", durable=True)
    channel.bind("kept", "ae")
    channel.publish("x", "k", b"body", BasicProperties(delivery_mode=2))
    [delivery] = channel.peer.bench.queue("kept").waiting()
    assert delivery.message.facts.durable


def test_s142_immediate_takes_the_alternate_if_no_consumer_is_ready() -> None:
    channel = chained("x", "ae")
    channel.declare("idle")
    channel.bind("idle", "x", "k")
    channel.consume("end", "t", no_ack=True)
    channel.publish("x", "k", b"now", immediate=True)
    [delivered] = channel.deliveries()
    assert (delivered.body, delivered.method.exchange) == (b"now", "x")
    assert channel.get("idle") is None


def test_s142_and_is_returned_if_nobody_is_ready_there_either() -> None:
    channel = chained("x", "ae")
    channel.declare("idle")
    channel.bind("idle", "x", "k")
    channel.publish("x", "k", b"now", immediate=True)
    [returned] = channel.all()
    assert returned.method == m.BasicReturn(313, "NO_CONSUMERS", "x", "k")
    channel.consume("idle", "t", no_ack=True)
    channel.publish("x", "k", b"again", immediate=True)
    assert [delivered.body for delivered in channel.deliveries()] == [b"again"]


@pytest.mark.parametrize("profile", ["rabbitmq-3.13", "rabbitmq-4"])
def test_s142_not_where_immediate_is_not_implemented(profile: str) -> None:
    channel = channel_of(ClientBench(f'[compat]\nprofile = "{profile}"'))
    channel.exchange("x", arguments=alternate("amq.fanout"))
    channel.publish("x", "k", b"now", immediate=True)
    assert channel.peer.refusal() == "540 NOT_IMPLEMENTED - immediate=true"


def test_s143_the_alternate_may_be_internal() -> None:
    channel = channel_of()
    channel.exchange("hidden", "fanout", internal=True)
    channel.exchange("x", arguments=alternate("hidden"))
    channel.declare("q")
    channel.bind("q", "hidden")
    assert publish(channel, "x") == "q"


def test_s144_a_fanout_catches_everything_and_a_direct_one_what_it_is_bound_for() -> None:
    channel = channel_of()
    channel.exchange("ae")
    channel.exchange("x", arguments=alternate("ae"))
    channel.declare("q")
    channel.bind("q", "ae", "k")
    assert publish(channel, "x", "k") == "q"
    assert publish(channel, "x", "other") == "returned"
    assert publish(chained("x", "ae"), "x", "whatever") == "end"


def test_s145_the_default_exchange_takes_no_alternate_by_argument() -> None:
    method = m.ExchangeDeclare("", "direct", arguments=alternate("amq.fanout"))
    text = "403 ACCESS_REFUSED - operation not permitted on the default exchange"
    assert channel_of().closed_with(method) == text


def test_s145_s146_nor_by_policy() -> None:
    channel = chained("ae")
    channel.peer.bench.policy(".*", alternate("ae"))
    assert publish(channel, "", "nowhere") == "returned"
    assert publish(channel, "amq.direct", "nowhere") == "end"


# Permissions.


@pytest.mark.parametrize(
    ("permissions", "refused"),
    [
        ({"configure": "^y$"}, "configure access to exchange 'x'"),
        ({"read": "^y$"}, "read access to exchange 'x'"),
        ({"write": "^x$"}, "write access to exchange 'ae'"),
    ],
)
def test_s147_declaring_with_an_alternate_needs_three_permissions(
    permissions: dict[str, str], refused: str
) -> None:
    bench = ClientBench()
    channel = channel_of(bench, bench.user("u", **permissions))
    method = m.ExchangeDeclare("x", "direct", arguments=alternate("ae"))
    assert channel.closed_with(method) == f"403 ACCESS_REFUSED - {refused} in vhost '/' refused for user 'u'"
    assert "x" not in bench.host.exchanges


def test_s147_without_one_configure_is_enough() -> None:
    bench = ClientBench()
    channel = channel_of(bench, bench.user("u", configure="^x$", write="^$", read="^$"))
    channel.exchange("x")


def test_s148_permissions_are_asked_for_when_it_is_made_and_not_again() -> None:
    bench = ClientBench()
    owner = chained("x", "ae", bench=bench)
    user = bench.user("u", configure="^x$", write="^x$", read="^$")
    channel = channel_of(bench, user)
    channel.exchange("x", arguments=alternate("ae"))  # equal to what is there
    channel.publish("x", "k", b"x", mandatory=True)
    assert channel.all() == []
    assert owner.bodies("end") == [b"x"]


def test_s148_not_for_policies() -> None:
    bench = ClientBench()
    owner = chained("ae", bench=bench)
    channel = channel_of(bench, bench.user("u", configure="^x$", write="^x$", read="^$"))
    channel.exchange("x")
    bench.policy("^x$", alternate("ae"))
    channel.publish("x", "k", b"x", mandatory=True)
    assert channel.all() == []
    assert owner.bodies("end") == [b"x"]


def value(name: str | None) -> str:
    return "none" if name is None else f"the value '{name}' of type 'longstr'"


@pytest.mark.parametrize(("current", "new"), [("a", "b"), (None, "b"), ("a", None)])
def test_s149_another_alternate_is_another_exchange(current: str | None, new: str | None) -> None:
    channel = channel_of()
    channel.exchange("x", arguments=alternate(current))
    method = m.ExchangeDeclare("x", "direct", arguments=alternate(new))
    assert channel.closed_with(method) == (
        "406 PRECONDITION_FAILED - inequivalent arg 'alternate-exchange' for exchange 'x' in vhost '/': "
        f"received {value(new)} but current is {value(current)}"
    )


def test_s149_what_a_policy_says_is_no_argument() -> None:
    channel = chained("ae")
    channel.exchange("x")
    channel.peer.bench.policy("^x$", alternate("ae"))
    channel.exchange("x")
    assert publish(channel, "x") == "end"


# Exchanges that hold messages, and explanations.


def test_s151_what_an_exchange_holds_is_not_for_its_alternate() -> None:
    bench = ClientBench(exchange_types={**STANDARD, "x-delayed-message": DelayedMessage})
    channel = chained("ae", bench=bench)
    arguments: FieldTable = {"x-delayed-type": "direct", **alternate("ae")}
    channel.exchange("later", "x-delayed-message", arguments=arguments)
    channel.declare("q")
    channel.bind("q", "later", "k")
    for key in ("k", "other"):
        assert publish(channel, "later", key, headers={"x-delay": 1000}) == ""  # and nothing is returned
    bench.advance(1)
    assert [len(channel.bodies(queue)) for queue in ("q", "end")] == [1, 1]  # routed, and then the alternate
    assert publish(channel, "later", "other") == "end"


def test_s152_an_explanation_tells_every_exchange_asked_and_every_hop() -> None:
    channel = chained("x", "y", "z")
    channel.exchange("ring", arguments=alternate("ring"))
    host = channel.peer.bench.host
    told = explain(host, "x", "k")
    steps = [(step.exchange, step.via, step.alternate, step.outcome) for step in told.steps]
    assert steps == [
        ("x", "publish", "y", "followed"),
        ("y", "alternate", "z", "followed"),
        ("z", "alternate", None, ""),
    ]
    assert all(step.reason for step in told.steps[:2])
    assert list(told.queues) == ["end"]
    [step] = explain(host, "ring", "k").steps
    assert (step.exchange, step.outcome) == ("ring", "asked before")
    assert channel.get("end") is None


# Coming and going.


def test_x041_a_deleted_alternate_comes_back_when_it_is_declared_again() -> None:
    channel = chained("x", "ae")
    assert publish(channel, "x") == "end"
    channel.does(m.ExchangeDelete("ae"))
    assert publish(channel, "x") == "returned"
    channel.exchange("x", arguments=alternate("ae"))  # the argument is still there
    channel.exchange("ae", "fanout")
    channel.bind("end", "ae")
    assert publish(channel, "x") == "end"


def test_x042_confirms_wait_for_the_queues_of_the_alternate() -> None:
    channel = chained("x", "ae")
    channel.declare("full", arguments={"x-max-length": 0, "x-overflow": "reject-publish"})
    channel.confirms()
    channel.publish("x", "k")
    assert channel.all() == [m.BasicAck(1, False)]
    channel.bind("full", "ae")
    channel.publish("x", "k")
    assert channel.all() == [m.BasicNack(2, False, False)]


def test_x043_the_default_exchange_as_alternate_leads_to_the_queue_of_that_name() -> None:
    channel = channel_of()
    channel.exchange("x", arguments=alternate(""))
    channel.declare("k")
    assert publish(channel, "x", "k") == "k"
    assert publish(channel, "x", "other") == "returned"
    channel.declare("own")
    channel.bind("own", "x", "k")
    assert publish(channel, "x", "k") == "own"


def test_x043_it_needs_write_on_the_default_exchange() -> None:
    bench = ClientBench()
    channel = channel_of(bench, bench.user("u", write="^x$"))
    method = m.ExchangeDeclare("x", "direct", arguments=alternate(""))
    text = "403 ACCESS_REFUSED - write access to exchange 'amq.default' in vhost '/' refused for user 'u'"
    assert channel.closed_with(method) == text
