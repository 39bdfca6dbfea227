"""Events as messages: under which keys and with which headers, and that they never disturb what they tell of."""

from __future__ import annotations

import pytest

from leveret.alarms import Alarms
from leveret.broker import Broker
from leveret.client import Client
from leveret.clock import ManualClock
from leveret.observability.event_exchange import EVENTS, PENDING_MAX, AlarmEvents, EventExchange
from leveret.protocols.amqp091.broker.encoding import ENCODING
from leveret.queues.queue import Queue
from leveret.security.access import Access
from leveret.values import Table
from tests.core.fakes import FakeConsumer
from tests.harness.call_count import calls
from tests.harness.http import FakeNode
from tests.metrics.stand import Link

WALL_MS = 1_000_000_000_000


class Told:
    """A broker whose events a queue gets."""

    def __init__(self, pattern: str = "#") -> None:
        access = Access()
        self.broker = Broker(ManualClock(), access=access, events_in="/")
        self.broker.encodings = {"amqp091": lambda: ENCODING}
        self.host = self.broker.add_virtual_host("/")
        self.queue: Queue = self.host.declare_queue("told", durable=True)
        self.exchange = self.host.exchange(EVENTS)
        self.listener = EventExchange(self.broker)
        self.host.bind(self.exchange, self.queue, pattern)
        self.user = access.add_user("shop", "sesame")
        access.set_permissions("shop", "/", ".*", ".*", ".*")
        self.broker.events.listeners.append(self.listener)
        self.client = Client(self.broker, self.user, "a -> b")
        self.client.enter("/")
        self.news()

    def news(self) -> list[tuple[str, Table]]:
        self.broker.settle()
        found = [(each.message.key, each.message.headers) for each in self.queue.waiting()]
        self.queue.purge()
        return found


@pytest.fixture
def told() -> Told:
    return Told()


def test_a_declaration_is_told_with_its_facts_and_who_did_it(told: Told) -> None:
    told.client.declare_queue("q", arguments={"x-max-length": 5})
    assert told.news() == [
        (
            "queue.created",
            {
                "name": "q",
                "type": "classic",
                "durable": False,
                "auto_delete": False,
                "exclusive": False,
                "arguments": {"x-max-length": 5},
                "vhost": "/",
                "user_who_performed_action": "shop",
                "timestamp_in_ms": WALL_MS,
            },
        )
    ]


def test_an_event_is_a_durable_message_without_a_body_and_with_a_time(told: Told) -> None:
    told.client.declare_queue("q")
    told.broker.settle()
    [delivery] = told.queue.waiting()
    message = delivery.message
    properties, body = message.encoding.convert(message)
    assert (body, properties.durable, properties.timestamp) == (b"", True, WALL_MS // 1000)
    assert message.exchange == EVENTS


def test_what_no_user_does_is_done_by_the_broker() -> None:
    told = Told("queue.deleted")
    told.client.declare_queue("q", arguments={"x-expires": 1000})
    told.broker.settle()
    clock = told.broker.clock
    assert isinstance(clock, ManualClock)
    clock.advance(2.0)
    told.broker.tick()
    [(key, headers)] = told.news()
    assert (key, headers["user_who_performed_action"]) == ("queue.deleted", "rmq-internal")


def test_a_connection_is_told_with_where_it_comes_from() -> None:
    told = Told("connection.created")
    node = told.broker.operations = FakeNode()
    node.fed = Link(7, None)
    Client(told.broker, told.user, node.fed.peer.name).enter("/")
    [(_, headers)] = told.news()
    assert {name: headers[name] for name in ("node", "peer_host", "peer_port", "port", "ssl")} == {
        "node": "leveret",
        "peer_host": "127.0.0.1",
        "peer_port": 7,
        "port": 5672,
        "ssl": False,
    }
    assert (headers["user"], headers["vhost"]) == ("shop", "/")


def test_whoever_binds_a_pattern_is_told_of_no_more() -> None:
    told = Told("exchange.*")
    told.client.declare_queue("q")
    told.client.declare_exchange("x", "topic")
    told.client.delete_exchange("x")
    assert [key for key, _ in told.news()] == ["exchange.created", "exchange.deleted"]


def test_events_of_the_node_name_what_they_are_about_by_themselves() -> None:
    told = Told("#")
    told.broker.add_virtual_host("v")
    told.broker.access.add_user("new", "canary")
    found = dict(told.news())
    assert "vhost" not in found["vhost.created"]
    assert found["vhost.created"]["name"] == "v"
    assert "canary" not in repr(found)


def test_the_queue_of_the_events_can_be_deleted_while_one_is_told(told: Told) -> None:
    before = told.exchange.published
    FakeConsumer(told.queue)
    told.client.delete_queue("told")
    told.broker.settle()
    assert "told" not in told.host.queues
    assert told.exchange.published == before


def test_nothing_is_made_while_nobody_is_bound(told: Told) -> None:
    told.host.unbind(told.exchange, told.queue, "#")
    told.news()
    made = calls(lambda: told.client.declare_queue("q"))
    assert "EventExchange.on_event" in made
    assert not [name for name in made if "encode" in name or "_message" in name or name == "Timers.at"]


def test_events_of_one_batch_are_bounded(told: Told) -> None:
    for _ in range(PENDING_MAX + 7):
        told.broker.events.happened("queue.created", "/", {"name": "q"})
    assert told.listener.passed_over == 7
    told.broker.settle()
    assert told.queue.ready == PENDING_MAX


def test_only_one_virtual_host_has_the_exchange_and_nobody_can_delete_or_publish_to_it(told: Told) -> None:
    assert EVENTS not in told.broker.add_virtual_host("v").exchanges
    assert told.exchange.internal
    assert told.exchange.durable
    assert EVENTS not in Broker(ManualClock()).add_virtual_host("/").exchanges


def test_the_virtual_host_of_the_events_may_go_and_come_back(told: Told) -> None:
    told.broker.delete_virtual_host("/")
    told.broker.settle()
    assert EVENTS in told.broker.add_virtual_host("/").exchanges


def test_each_alarm_is_told_when_it_is_raised_and_when_it_is_cleared() -> None:
    told = Told("alarm.#")
    alarms = Alarms()
    alarms.listen(AlarmEvents(told.broker).on_alarms)
    for change, reason in (
        (alarms.set, "low on memory"),
        (alarms.set, "low on disk"),
        (alarms.clear, "low on memory"),
        (alarms.clear, "low on disk"),
    ):
        change(reason)
    assert [(key, headers["name"]) for key, headers in told.news()] == [
        ("alarm.set", "low on memory"),
        ("alarm.set", "low on disk"),
        ("alarm.cleared", "low on memory"),
        ("alarm.cleared", "low on disk"),
    ]
