"""Definitions written and read again: whatever a broker holds, another one holds after the import."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from leveret.broker import Broker
from leveret.config.compat import compat
from leveret.limits import UserLimits, VirtualHostLimits
from leveret.policy import ApplyTo, Policy
from leveret.server.definitions import exporter
from leveret.server.definitions.importer import apply
from leveret.server.definitions.reader import read
from leveret.virtual_host import Description

LETTERS = st.characters(codec="utf-8", exclude_characters="\0")
NAMES = st.text(LETTERS, min_size=1, max_size=12).filter(lambda name: not name.startswith("amq."))
KEYS = st.text(LETTERS, max_size=12)
LIMITS = st.none() | st.integers(-1, 1000)
RATES = st.none() | st.integers(1, 1000) | st.just(-1)
PLAIN: st.SearchStrategy[Any] = (
    st.none() | st.booleans() | st.integers(-(2**31), 2**31 - 1) | st.text(LETTERS, max_size=8)
)
ARGUMENTS = st.dictionaries(
    st.text(LETTERS, min_size=1, max_size=8).map("my-{}".format),
    st.recursive(PLAIN, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3)),
    max_size=3,
)
EXPRESSIONS = st.sampled_from(["", ".*", "^a|b$", "{username}"])


def content(broker: Broker) -> dict[str, list[exporter.Item]]:
    return {name: list(items) for name, items in exporter.everything(broker)}


@st.composite
def brokers(draw: st.DrawFn) -> Broker:
    broker = Broker()
    for user in draw(st.lists(NAMES, max_size=3, unique=True)):
        limits = UserLimits(draw(LIMITS), draw(LIMITS), draw(RATES))
        broker.access.add_user(user, draw(st.none() | NAMES), draw(st.sets(st.sampled_from("abc"))), limits)
    for name in draw(st.lists(NAMES, min_size=1, max_size=2, unique=True)):
        host = broker.add_virtual_host(
            name, VirtualHostLimits(draw(LIMITS), draw(st.none() | st.integers(50, 99)), draw(RATES))
        )
        host.describe(
            Description(draw(KEYS), tuple(draw(st.lists(st.sampled_from(["x", "ü"]), unique=True))))
        )
        host.set_tracing(draw(st.booleans()))
        for user in broker.access.users():
            broker.access.set_permissions(user.name, name, *(draw(EXPRESSIONS) for _ in range(3)))
            broker.access.set_topic_permissions(
                user.name, name, draw(NAMES), draw(EXPRESSIONS), draw(EXPRESSIONS)
            )
        fill(draw, broker, name)
    for parameter in draw(st.lists(NAMES, max_size=2, unique=True)):
        broker.parameters.set(parameter, draw(PLAIN))
    return broker


def fill(draw: st.DrawFn, broker: Broker, name: str) -> None:
    host = broker.virtual_host(name)
    policy = Policy(
        draw(NAMES), name, ".*", {"max-length": 5}, draw(st.integers(-5, 5)), draw(st.sampled_from(ApplyTo))
    )
    broker.policies.set(policy)
    broker.policies.set_operator(policy)
    for each in draw(st.lists(NAMES, max_size=3, unique=True)):
        type_ = draw(st.sampled_from(["direct", "fanout", "topic", "headers"]))
        host.declare_exchange(
            each, type_, *(draw(st.booleans()) for _ in range(3)), arguments=draw(ARGUMENTS)
        )
    for each in draw(st.lists(NAMES, max_size=3, unique=True)):
        queue = host.declare_queue(each, draw(st.booleans()), False, draw(st.booleans()), draw(ARGUMENTS))
        source = draw(st.sampled_from([exchange for exchange in host.exchanges.values() if exchange.name]))
        host.bind(source, queue, draw(KEYS), draw(ARGUMENTS))
    exchanges = [exchange for exchange in host.exchanges.values() if exchange.name]
    host.bind(draw(st.sampled_from(exchanges)), draw(st.sampled_from(exchanges)), draw(KEYS))


@given(brokers())
def test_what_is_imported_is_what_was_exported(broker: Broker) -> None:
    said = content(broker)
    other = Broker(compat=compat(names="any"))
    assert apply(read(json.dumps(said)), other) == []
    assert content(other) == said
    assert apply(read(json.dumps(said)), other) == []  # once more changes nothing
    assert content(other) == said


def test_a_virtual_host_is_exported_without_its_name() -> None:
    broker = Broker()
    host = broker.add_virtual_host("/", VirtualHostLimits(max_queues=5))
    host.bind(host.exchange("amq.topic"), host.declare_queue("q"), "a")
    sections = {name: list(items) for name, items in exporter.of_virtual_host(broker, host)}
    assert list(sections) == ["parameters", "policies", "queues", "exchanges", "bindings"]
    assert not any("vhost" in item for items in sections.values() for item in items)
    assert sections["bindings"][0]["destination"] == "q"
