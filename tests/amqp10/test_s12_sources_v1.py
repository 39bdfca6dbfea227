"""Sources of AMQP 1.0 receivers, addresses of version 1 (§12 of the acceptance list), where they are permitted."""

from __future__ import annotations

import pytest

from leveret.protocols.amqp10.codec.types import Symbol
from tests.amqp091.peer import channel_of
from tests.amqp10.client import Session
from tests.amqp10.consuming import filled, source, taken
from tests.amqp10.peer import declare, session_of
from tests.harness.bench import ClientBench

V1 = "[protocols.amqp10.addresses]\nv1 = true"


def bench_v1() -> ClientBench:
    return ClientBench(V1)


def publish(bench: ClientBench, exchange: str, key: str, body: bytes) -> None:
    channel_of(bench).publish(exchange, key, body)


# Exchanges.


def test_s219_an_exchange_is_subscribed_to_with_a_binding_key() -> None:
    bench = bench_v1()
    link = session_of(bench).receiver("/exchange/amq.topic/a.*", credit=10)
    assert link.attached.source.address == "/exchange/amq.topic/a.*"
    [name] = bench.host.queues
    assert name.startswith("amq.gen")
    for key, body in (("a.b", b"0"), ("b.a", b"1"), ("a.c", b"2")):
        publish(bench, "amq.topic", key, body)
    assert taken(link) == [0, 2]


def test_s219_each_link_has_a_queue_of_its_own_which_goes_with_it() -> None:
    bench = bench_v1()
    session = session_of(bench)
    first, second = (session.receiver("/exchange/amq.fanout", credit=10) for _ in range(2))
    publish(bench, "amq.fanout", "any", b"0")
    assert taken(first) == taken(second) == [0]
    first.detach()
    assert len(bench.host.queues) == 1
    session.end()
    assert not bench.host.queues
    assert not list(bench.host.bindings())


def test_s220_a_topic_is_a_binding_key_of_amq_topic() -> None:
    bench = bench_v1()
    link = session_of(bench).receiver("/topic/news.#", credit=10)
    publish(bench, "amq.topic", "news.local", b"0")
    publish(bench, "amq.topic", "weather", b"1")
    assert taken(link) == [0]


def test_s224_a_missing_exchange_is_not_found_and_leaves_no_queue() -> None:
    bench = bench_v1()
    error = session_of(bench).ask_receiver("/exchange/x/key").refusal()
    assert error == "amqp:not-found no exchange 'x' in vhost '/'"
    assert not bench.host.queues


def refused(session: Session, address: str) -> str:
    return session.ask_receiver(address).refusal()


@pytest.mark.parametrize(
    ("permissions", "told"),
    [
        ({"configure": "none"}, "configure access to queue 'amq.gen"),
        ({"write": "none"}, "write access to queue 'amq.gen"),
        ({"read": "amq.gen.*"}, "read access to exchange 'amq.topic'"),
        ({"read": "amq.topic"}, "read access to queue 'amq.gen"),
    ],
)
def test_s219_permissions_for_a_subscription(permissions: dict[str, str], told: str) -> None:
    bench = bench_v1()
    session = session_of(bench, bench.user("ann", **permissions))
    assert refused(session, "/exchange/amq.topic/a").startswith(f"amqp:unauthorized-access {told}")
    assert not bench.host.queues


def test_s219_a_topic_exchange_asks_for_its_topics_too() -> None:
    bench = bench_v1()
    user = bench.user("ann")
    bench.broker.access.set_topic_permissions(user, "/", "amq.topic", write=".*", read="mine.*")
    assert session_of(bench, user).receiver("/topic/mine.a").detached is None
    error = refused(session_of(bench, user), "/topic/yours.a")
    assert error.startswith("amqp:unauthorized-access read access to topic 'yours.a'")


# Queues.


@pytest.mark.parametrize("address", ["/queue/q", "q"])
def test_s221_a_queue_is_declared_if_it_is_missing(address: str) -> None:
    bench = bench_v1()
    link = session_of(bench).receiver(address, credit=10)
    queue = bench.queue("q")
    assert (queue.durable, queue.auto_delete, queue.exclusive, queue.type.value) == (
        False,
        False,
        False,
        "classic",
    )
    publish(bench, "", "q", b"0")
    assert taken(link) == [0]
    link.detach()
    assert "q" in bench.host.queues


@pytest.mark.parametrize("address", ["/queue/q", "q", "/amq/queue/q"])
def test_s221_an_existing_queue_is_taken_as_it_is(address: str) -> None:
    bench = filled(1, bench_v1(), durable=True, arguments={"x-max-length": 5})
    assert taken(session_of(bench).receiver(address, credit=1)) == [0]


def test_s221_amq_queue_must_exist() -> None:
    bench = bench_v1()
    error = session_of(bench).ask_receiver("/amq/queue/q").refusal()
    assert error == "amqp:not-found no queue 'q' in vhost '/'"
    assert not bench.host.queues


def test_s221_declaring_needs_the_permission_to_configure() -> None:
    bench = bench_v1()
    session = session_of(bench, bench.user("ann", configure="other"))
    assert refused(session, "/queue/q").startswith("amqp:unauthorized-access configure access to queue 'q'")


def test_s221_a_refused_receiver_declares_no_queue() -> None:
    bench = bench_v1()
    error = session_of(bench).ask_receiver(source("/queue/q", outcomes=[Symbol("strange")])).refusal()
    assert error == "amqp:not-implemented Outcomes not supported: [strange]"
    assert not bench.host.queues


@pytest.mark.parametrize(("durability", "durable"), [(0, False), (1, True), (2, True)])
def test_s218_a_declared_queue_is_as_durable_as_the_terminus(durability: int, durable: bool) -> None:
    bench = bench_v1()
    session_of(bench).receiver(source("/queue/q", durable=durability))
    assert bench.queue("q").durable is durable


def test_x064_a_temporary_queue_belongs_to_the_connection() -> None:
    bench = bench_v1()
    session = session_of(bench)
    session.receiver("/temp-queue/q")
    assert bench.queue("q").exclusive
    error = session_of(bench).ask_receiver("/amq/queue/q").refusal()
    assert error.startswith("amqp:resource-locked")
    session.peer.close()
    assert not bench.host.queues


def test_s225_version_2_is_tried_first() -> None:
    bench = filled(1, bench_v1())
    session = session_of(bench)
    assert taken(session.receiver("/queues/q", credit=1)) == [0]
    assert "missing" in session.ask_receiver("/queues/missing").refusal()
    declare(bench, "queues")
    assert session.receiver("/queue/queues").detached is None


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("/qqq/x", "unknown_destination '/qqq/x'"),
        ("/exchange/", "invalid_destination exchange '/'"),
        ("/queue", "invalid_destination queue ''"),
    ],
)
def test_s223_unknown_forms_are_refused(address: str, why: str) -> None:
    error = session_of(bench_v1()).ask_receiver(address).refusal()
    assert error == f"amqp:invalid-field Attach refused: {why}"
