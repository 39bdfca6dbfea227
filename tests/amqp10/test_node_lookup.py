"""Names of queues and exchanges as addresses, as Apache Qpid looks them up, where a setting permits that."""

from __future__ import annotations

import pytest

from leveret.protocols.amqp10.broker.node_lookup import Node, look_up
from leveret.protocols.amqp10.codec import performatives as p
from leveret.protocols.amqp10.codec.errors import AmqpError
from leveret.protocols.amqp10.codec.types import Symbol
from tests.amqp10.client import Session
from tests.amqp10.controller import bodies_of
from tests.amqp10.parts import data
from tests.amqp10.peer import bind, declare, session_of
from tests.harness.bench import ClientBench

NODES = "[protocols.amqp10.addresses]\nnodes = true\n"
BOTH = NODES + "v1 = true\n"


def bench_of(toml: str = NODES) -> ClientBench:
    """Queues `q` and `a/b`, an exchange `x`, and `amq.topic` with `k.#` bound to `q`."""
    bench = ClientBench(toml)
    declare(bench, "q")
    declare(bench, "a/b")
    bench.host.declare_exchange("x", "topic")
    bind(bench, "x", "q", "k.#")
    bind(bench, "amq.topic", "q", "k.#")
    return bench


@pytest.fixture
def bench() -> ClientBench:
    return bench_of()


@pytest.fixture
def session(bench: ClientBench) -> Session:
    return session_of(bench)


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("q", Node(queue="q")),
        ("a/b", Node(queue="a/b")),
        ("amq.topic", Node(exchange="amq.topic")),
        ("amq.topic/", Node(exchange="amq.topic", key="")),
        ("amq.topic/k.1/2", Node(exchange="amq.topic", key="k.1/2")),
        ("missing", None),
        ("missing/k", None),
    ],
)
def test_a_name_is_looked_up(bench: ClientBench, address: str, expected: Node | None) -> None:
    assert look_up(bench.host, address) == expected


def test_an_ambiguous_name_is_refused_and_a_capability_tells_what_is_meant(
    bench: ClientBench, session: Session
) -> None:
    declare(bench, "x/k.1")
    declare(bench, "x")
    with pytest.raises(AmqpError):
        look_up(bench.host, "x")
    why = "the address 'x/k.1' is ambiguous: queue 'x/k.1' or exchange 'x' with key 'k.1'"
    refused = f"amqp:invalid-field Attach refused: {why}"
    assert session.ask_sender("x/k.1").refusal() == refused
    assert session.ask_receiver("x/k.1").refusal() == refused
    for capability, queue in (("queue", "x/k.1"), ("topic", "q")):
        target = p.Target(address="x/k.1", capabilities=[Symbol(capability)])
        assert session.sender(target).publish(data(b"x")) == p.Accepted()
        assert bodies_of(bench, queue) == [b"x"]
    anywhere = session.sender(None)
    rejection = anywhere.rejection(p.Properties(to="x"), data(b""))
    assert rejection.startswith("amqp:precondition-failed")
    assert "ambiguous" in rejection


@pytest.mark.parametrize(
    ("address", "subject"), [("q", None), ("amq.topic", "k.1"), ("amq.topic/k.1", "other")]
)
def test_a_sender_publishes_to_what_is_named(
    bench: ClientBench, session: Session, address: str, subject: str | None
) -> None:
    """Also by the `to` of each message."""
    properties = p.Properties(subject=subject)
    assert session.sender(address).publish(properties, data(b"1")) == p.Accepted()
    properties = p.Properties(to=address, subject=subject)
    to = session.sender(None).publish(properties, data(b"2"))
    assert to == (
        p.Released() if address == "amq.topic" else p.Accepted()
    )  # the key of `to` is in the address
    assert bodies_of(bench, "q") == [b"1", b"2"][: 1 if address == "amq.topic" else 2]


def test_a_receiver_reads_a_queue_or_what_is_published_with_a_key(
    bench: ClientBench, session: Session
) -> None:
    queue, news = session.receiver("a/b", 5), session.receiver("amq.topic/k.1", 5)
    session.sender("/queues/a%2Fb").publish(data(b"queue"))
    session.sender("/exchanges/amq.topic/k.1").publish(data(b"news"))
    session.sender("/exchanges/amq.topic/k.2").publish(data(b"other"))
    assert (queue.bodies(), news.bodies()) == ([b"queue"], [b"news"])


def test_a_durable_subscription_may_be_named_so(bench: ClientBench, session: Session) -> None:
    source = p.Source(address="amq.topic/k.1", durable=2, expiry_policy=Symbol("never"))
    session.receiver(source, name="news").detach(closed=False)
    session.sender("amq.topic/k.1").publish(data(b"1"))
    assert session.receiver(source, 5, name="news").bodies() == [b"1"]


@pytest.mark.parametrize("address", ["missing", "missing/k"])
def test_what_is_not_there_is_not_found(session: Session, address: str) -> None:
    why = f"amqp:not-found no queue or exchange '{address}' in vhost '/'"
    assert session.ask_sender(address).refusal() == why
    assert session.ask_receiver(address).refusal() == why


@pytest.mark.parametrize("address", ["x" * 600, "amq.topic/" + "k" * 256])
def test_addresses_are_bounded(session: Session, address: str) -> None:
    assert session.ask_sender(address).refusal().startswith("amqp:invalid-field Attach refused: ")


def test_addresses_of_versions_1_and_2_remain_what_they_are() -> None:
    bench = bench_of(BOTH)
    session = session_of(bench)
    for address in ("/queues/q", "/queue/q", "/amq/queue/q"):
        assert session.sender(address).publish(data(b"")) == p.Accepted()
    assert bench.queue("q").ready == 3
    session.receiver("new")  # nothing has that name: declared, as version 1 says
    assert "new" in bench.host.queues
    assert session.ask_receiver("new/key").refusal().startswith("amqp:not-found")


def test_without_the_setting_nothing_is_looked_up() -> None:
    session = session_of(bench_of(""))
    for address in ("q", "amq.topic/k.1"):
        why = f"amqp:invalid-field Attach refused: amqp_address_v1_not_permitted '{address}'"
        assert session.ask_sender(address).refusal() == why


def test_permissions_are_those_of_what_is_named(bench: ClientBench) -> None:
    user = bench.user("ann", write="^q$", read="^q$")
    session = session_of(bench, user)
    assert session.ask_sender("amq.topic/k.1").refusal().startswith("amqp:unauthorized-access")
    assert session.ask_receiver("a/b").refusal().startswith("amqp:unauthorized-access")
