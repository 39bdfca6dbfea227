"""What Prometheus is told, as its own parser reads it; and that nobody waits for it."""

from __future__ import annotations

import pytest

from leveret.clock import ManualClock
from leveret.features.federation.federation import federation_of
from leveret.features.shovels.shovels import shovels_of
from leveret.interceptors.chain import chain_of
from leveret.observability.connection_stats import ChannelFacts, ConnectionFacts
from leveret.plugins.json_schema import JsonSchema
from leveret.policy import Policy
from leveret.protocols.http.metrics import endpoint
from leveret.values import Table
from tests.core.fakes import FakeConsumer
from tests.harness.bench import message
from tests.harness.http import ELSEWHERE, HERE, Response, basic
from tests.http.desk import Desk
from tests.metrics.stand import OPEN, Front, Labels, Link, Stand, families, samples

FACTS = ConnectionFacts(protocol="AMQP 0-9-1", user="shop", virtual_host="/")


def busy() -> Stand:
    """One queue with a history: 5 published, 3 delivered of which 1 was answered, 1 fetched, 1 waits."""
    stand = Stand()
    queue = stand.queue("q")
    consumer = FakeConsumer(queue, credit=3)
    stand.publish("q", *[b"12"] * 5)
    assert queue.take_one(settled=True) is not None
    consumer.queue.accept(consumer.got[0])
    return stand


TOTALS = {
    "rabbitmq_queue_messages_ready": 1,
    "rabbitmq_queue_messages_unacked": 2,
    "rabbitmq_queue_messages": 3,
    "rabbitmq_queue_messages_ready_bytes": 2,
    "rabbitmq_queue_consumers": 1,
    "rabbitmq_queue_messages_published_total": 5,
    "rabbitmq_queue_messages_delivered_ack_total": 3,
    "rabbitmq_queue_messages_delivered_total": 0,
    "rabbitmq_queue_get_total": 1,
    "rabbitmq_queue_get_ack_total": 0,
    "rabbitmq_queue_messages_acked_total": 1,
}


def named(**labels: str) -> Labels:
    return tuple(sorted(labels.items()))


@pytest.mark.parametrize("accept", ["", OPEN])
def test_sums_are_told_under_rabbitmqs_names(accept: str) -> None:
    found = busy().scrape("/metrics", accept)
    assert {name: found[name, ()] for name in TOTALS} == TOTALS
    assert found["rabbitmq_global_messages_received_total", ()] == 5
    assert found["rabbitmq_global_messages_routed_total", ()] == 5
    assert found["rabbitmq_global_messages_delivered_total", ()] == 4
    assert found["rabbitmq_global_messages_acknowledged_total", ()] == 1
    assert (found["rabbitmq_queues", ()], found["rabbitmq_consumers", ()]) == (1, 1)


@pytest.mark.parametrize("accept", ["", OPEN])
def test_shovels_are_told_with_what_they_have_moved(accept: str) -> None:
    stand = Stand()
    stand.broker.access.add_user("guest")
    stand.broker.access.set_permissions("guest", "/", ".*", ".*", ".*")
    stand.queue("from")
    stand.publish("from", b"1", b"2")
    value = {"src-uri": "amqp://", "src-queue": "from", "dest-uri": "amqp://", "dest-queue": "to"}
    shovels_of(stand.broker).set("/", "s", value, "guest")
    for _ in range(20):
        stand.advance(0.1)
    found = stand.scrape("/metrics", accept)
    labels = named(vhost="/", shovel="s")
    assert found["leveret_shovel_messages_total", labels] == 2
    assert found["leveret_shovel_running", labels] == 1
    stand.host.delete_queue(stand.host.queue("from"))
    stand.advance(0.1)
    assert stand.scrape("/metrics", accept)["leveret_shovel_running", labels] == 0


@pytest.mark.parametrize("accept", ["", OPEN])
def test_links_of_a_federation_are_told_with_what_they_have_brought(accept: str) -> None:
    stand = Stand()
    stand.broker.access.add_user("guest")
    stand.broker.access.set_permissions("guest", "/", ".*", ".*", ".*")
    exchange = stand.host.declare_exchange("up", "fanout", durable=True)
    stand.host.bind(stand.host.declare_exchange("f", "fanout"), stand.queue("q"), "")
    federation = federation_of(stand.broker)
    federation.upstreams.set("/", "u", {"uri": "amqp://", "exchange": "up"}, "guest")
    stand.broker.policies.set(Policy("p", "/", "^f$", {"federation-upstream": "u"}))
    stand.host.apply_policies()
    for _ in range(5):
        stand.advance(0.1)
    stand.broker.publish(exchange, message("", b"1"))
    for _ in range(5):
        stand.advance(0.1)
    labels = named(vhost="/", type="exchange", name="f", upstream="u", **{"from": "up"})
    found = stand.scrape("/metrics", accept)
    assert found["leveret_federation_messages_total", labels] == 1
    assert found["leveret_federation_link_running", labels] == 1


@pytest.mark.parametrize("accept", ["", OPEN])
def test_interceptors_are_told_with_what_they_have_refused(accept: str) -> None:
    stand = Stand()
    stand.queue("q")
    entry: tuple[str, Table] = ("x-json-schema", {"schema": {"type": "object"}})
    kinds = {"x-json-schema": JsonSchema}
    stand.broker.intercept(chain_of((entry, entry), kinds, "node", stand.broker.clock, 1.0))
    stand.publish("q", b"no", b"{}")
    found = stand.scrape("/metrics", accept)
    labels = named(interceptor="x-json-schema")
    assert found["leveret_interceptor_messages_refused_total", labels] == 1
    assert found["leveret_interceptor_errors_total", labels] == 0


def test_dead_letters_that_are_held_are_told() -> None:
    stand = Stand()
    arguments = {
        "x_dead_letter_exchange": "",
        "x_dead_letter_routing_key": "dead",
        "x_overflow": "reject-publish",
    }
    queue = stand.queue("q", x_dead_letter_strategy="at-least-once", **arguments)
    stand.queue("dead", x_max_length=1, x_overflow="reject-publish")
    stand.publish("q", b"12", b"345")
    for _ in range(2):
        delivery = queue.take_one(settled=False)
        assert delivery is not None
        queue.reject(delivery)
    stand.settle()
    found = stand.scrape("/metrics/per-object")
    of_q = named(vhost="/", queue="q")
    assert found["leveret_queue_messages_dlx", of_q] == 1
    assert found["leveret_queue_message_bytes_dlx", of_q] == 3
    assert found["leveret_queue_messages_dead_lettered_confirmed_total", of_q] == 1


def test_bytes_of_unacknowledged_messages_are_told() -> None:
    stand = Stand()
    queue = stand.queue("q")
    stand.publish("q", b"12", b"345")
    assert queue.take_one(settled=False) is not None
    found = stand.scrape("/metrics/per-object")
    of_q = named(vhost="/", queue="q")
    names = ("messages_ready_bytes", "messages_unacked_bytes", "messages_bytes")
    assert [found[f"rabbitmq_queue_{name}", of_q] for name in names] == [3, 2, 5]


def test_sums_do_not_fall_when_what_was_counted_goes() -> None:
    stand = busy()
    before = stand.scrape()
    stand.host.delete_queue(stand.host.queue("q"))
    stand.settle()
    after = stand.scrape()
    counters = [each for each in before if each[0].endswith("_total")]
    assert [each for each in counters if after[each] < before[each]] == []
    assert after["rabbitmq_queue_messages_ready", ()] == 0


@pytest.mark.parametrize("accept", ["", OPEN])
def test_each_queue_has_a_line(accept: str) -> None:
    stand = busy()
    stand.queue("empty")
    found = stand.scrape("/metrics/per-object", accept)
    assert {name: found[name, named(vhost="/", queue="q")] for name in TOTALS} == TOTALS
    assert found["rabbitmq_queue_messages", named(vhost="/", queue="empty")] == 0
    assert found["rabbitmq_exchange_messages_published_total", named(vhost="/", exchange="")] == 5


def test_streams_tell_how_far_their_readers_are_behind() -> None:
    stand = Stand()
    queue = stand.host.declare_queue("s", durable=True, arguments={"x-queue-type": "stream"})
    stand.publish("s", b"a", b"b", b"c")
    FakeConsumer(queue, credit=1, arguments={"x-stream-offset": "first"})
    FakeConsumer(queue, credit=9, arguments={"x-stream-offset": "next"})
    stand.settle()
    found = stand.scrape("/metrics/per-object")
    at = named(vhost="/", queue="s")
    assert found["leveret_stream_next_offset", at] == 3
    assert found["leveret_stream_reader_lag", at] == 2


def test_connections_and_channels_have_lines_and_their_octets_stay_in_the_sums() -> None:
    stand = Stand()
    channel = ChannelFacts(number=4, published=9, unsettled=2, delivered=5, delivered_settled=1)
    stand.node.connected = [Link(1, Front(FACTS, [channel])), Link(2, None), Link(3, Front(None))]
    stand.node.past = {"octets_received": 1000}
    found = stand.scrape("/metrics/per-object")
    name = "127.0.0.1:1 -> 127.0.0.1:5672"
    at = named(vhost="/", connection=name, user="shop", protocol="AMQP 0-9-1")
    assert found["rabbitmq_connection_incoming_bytes_total", at] == 100
    assert found["leveret_connection_pending_bytes", at] == 7
    at = named(vhost="/", connection=name, channel="4")
    assert found["rabbitmq_channel_messages_published_total", at] == 9
    assert found["rabbitmq_channel_messages_delivered_ack_total", at] == 4
    assert found["rabbitmq_channel_messages_unacked", at] == 2
    assert len([one for one, _ in found if one == "rabbitmq_connection_incoming_bytes_total"]) == 1
    assert stand.scrape()["rabbitmq_connection_incoming_bytes_total", ()] == 1300


def test_details_are_what_was_asked_for() -> None:
    stand = busy()
    stand.broker.add_virtual_host("other").declare_queue("q")
    found = stand.scrape(
        "/metrics/detailed?family=queue_coarse_metrics&family=queue_consumer_count&vhost=%2F"
    )
    assert found["rabbitmq_detailed_queue_messages_ready", named(vhost="/", queue="q")] == 1
    assert {name for name, labels in found if labels} == {
        "rabbitmq_detailed_queue_messages_ready",
        "rabbitmq_detailed_queue_messages_unacked",
        "rabbitmq_detailed_queue_messages",
        "rabbitmq_detailed_queue_consumers",
        "rabbitmq_build_info",
        "rabbitmq_identity_info",
    }
    assert not [labels for _, labels in found if ("vhost", "other") in labels]


def test_what_there_is_can_be_asked_for_by_name() -> None:
    stand = Stand()
    stand.host.bind(stand.host.exchange("amq.topic"), stand.queue("q"), "k")
    found = stand.scrape(
        "/metrics/detailed?family=vhost_status&family=exchange_names&family=exchange_bindings"
    )
    at = named(vhost="/", exchange="amq.topic", type="topic")
    assert found["rabbitmq_cluster_vhost_status", named(vhost="/")] == 1
    assert found["rabbitmq_cluster_exchange_name", at] == found["rabbitmq_cluster_exchange_bindings", at] == 1


def test_a_group_of_another_broker_is_empty_and_a_misspelt_parameter_is_refused() -> None:
    stand = Stand()
    assert {name for name, _ in stand.scrape("/metrics/detailed?family=ra_metrics")} == {
        "rabbitmq_build_info",
        "rabbitmq_identity_info",
    }
    assert stand.ask("/metrics/detailed?familiy=queue_metrics").response.status == 400


def test_alarms_are_told() -> None:
    stand = Stand()
    stand.broker.alarms.set("low on disk")
    found = stand.scrape()
    assert found["rabbitmq_alarms_free_disk_space_watermark", ()] == 1
    assert found["rabbitmq_alarms_memory_used_watermark", ()] == 0


def test_the_format_is_said() -> None:
    stand = Stand()
    asked = stand.ask()
    asked.finish()
    assert asked.response.headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    opened = stand.ask(accept=OPEN)
    opened.finish()
    assert opened.response.headers["Content-Type"].startswith("application/openmetrics-text; version=1.0.0")


@pytest.mark.parametrize(
    "target", ["/metrics", "/metrics/per-object", "/metrics/detailed?family=queue_metrics"]
)
def test_every_family_has_a_help_and_stands_in_one_place(target: str) -> None:
    stand = busy()
    stand.node.connected = [Link(1, Front(FACTS, [ChannelFacts(number=1)]))]
    for accept in ("", OPEN):
        text = stand.text(target, accept)
        found = families(text, accept)
        assert all(each.documentation for each in found)
        assert len({each.name for each in found}) == len(found)
        heads = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")]
        assert len(heads) == len(set(heads))


@pytest.mark.parametrize(("target", "least"), [("/metrics", 15), ("/metrics/per-object", 150)])
def test_others_have_turns_while_ten_thousand_queues_are_told(target: str, least: int) -> None:
    stand = Stand()
    for number in range(10_000):
        stand.queue(f"q{number}")
    scrape = stand.ask(target)
    scrape.finish()
    assert scrape.turns >= least
    assert scrape.response.status == 200


def test_a_queue_that_goes_meanwhile_is_told_once() -> None:
    stand = Stand()
    for number in range(2000):
        stand.queue(f"q{number}")
        stand.publish(f"q{number}", b"")
    scrape = stand.ask()
    gone = iter(list(stand.host.queues.values()))
    scrape.finish(lambda: stand.host.delete_queue(next(gone)))
    text = scrape.response.body.decode()
    assert "\nrabbitmq_queue_messages_published_total 2000\n" in text


def test_answers_are_bounded_in_size_and_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoint, "OCTETS_MAX", 10_000)
    stand = Stand()
    for number in range(400):
        stand.queue(f"q{number}")
    scrape = stand.ask("/metrics/per-object")
    scrape.finish()
    assert scrape.response.status == 503
    monkeypatch.undo()
    under_way = [stand.ask("/metrics/per-object") for _ in range(endpoint.AT_ONCE)]
    assert stand.ask().response.status == 503
    under_way[0].connection.lost()
    last = stand.ask()
    last.finish()
    assert last.response.status == 200


def test_nothing_else_is_served_there_and_nothing_is_changed() -> None:
    stand = Stand()
    for path in ("/", "/api/leveret/status", "/api/overview", "/ui/index.html", "/metrics/x", "/metrics/x/"):
        assert stand.ask(path).response.status == 404
    for method in ("POST", "PUT", "DELETE"):
        assert stand.ask(method=method).response.status == 405
    assert stand.ask(host="evil.example").response.status == 421


@pytest.mark.parametrize("peer", [HERE, ELSEWHERE])
def test_the_control_endpoint_tells_them_to_users_who_may_monitor(peer: object) -> None:
    desk = Desk()
    for path in ("/metrics", "/metrics/per-object", "/metrics/detailed"):
        assert desk.ask(path, user=None).status == 401
        assert desk.ask(path, user="management:sesame").status in (401, 403)
        assert desk.ask(path, user="none:sesame").status in (401, 403)


@pytest.mark.parametrize("user", ["monitoring", "administrator"])
def test_users_who_may_monitor_are_told_the_same(user: str) -> None:
    desk = Desk()
    connection = desk.connect()
    head = f"GET /metrics HTTP/1.1\r\nHost: localhost\r\nAuthorization: {basic(user + ':sesame')}\r\n\r\n"
    connection.receive(head.encode(), 0.0)
    clock = desk.broker.clock
    assert isinstance(clock, ManualClock)
    for _ in range(9):
        clock.advance(0.01)
        desk.broker.tick()
        desk.broker.settle()
    response = Response(b"".join(connection.outbox.take()), "GET")
    assert response.status == 200
    assert samples(families(response.body.decode()))["rabbitmq_queues", ()] == 0


def test_a_message_costs_no_more_for_being_measured() -> None:
    stand = busy()
    stand.broker.publish(stand.host.default_exchange, message("q"))
    assert stand.scrape()["rabbitmq_queue_messages_published_total", ()] == 6
