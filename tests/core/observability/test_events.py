"""What a broker tells of: each change once, with who did it, and nothing for messages."""

from __future__ import annotations

from leveret.broker import Broker
from leveret.client import Client
from leveret.clock import ManualClock
from leveret.observability.events import Event, EventListener
from leveret.policy import Policy
from leveret.security.access import Access


class Diary(EventListener):
    def __init__(self) -> None:
        self.events: list[Event] = []

    def on_event(self, event: Event) -> None:
        self.events.append(event)

    @property
    def names(self) -> list[str]:
        return [event.name for event in self.events]


def entered() -> tuple[Client, Diary]:
    access = Access()
    broker = Broker(ManualClock(), access=access)
    broker.add_virtual_host("/")
    user = access.add_user("shop", "sesame")
    access.set_permissions("shop", "/", ".*", ".*", ".*")
    diary = Diary()
    broker.events.listeners.append(diary)
    client = Client(broker, user, "a -> b")
    client.enter("/")
    return client, diary


def test_what_a_client_does_is_told_once_with_his_name() -> None:
    client, diary = entered()
    client.declare_exchange("x", "topic")
    client.declare_exchange("x", "topic")
    client.declare_queue("q", arguments={"x-max-length": 5})
    client.declare_queue("q", arguments={"x-max-length": 5})
    client.bind("x", "q", False, "a.*", {})
    client.bind("x", "q", False, "a.*", {})
    client.delete_queue("q")
    client.delete_exchange("x")
    client.leave()
    assert diary.names == [
        "connection.created",
        "exchange.created",
        "queue.created",
        "binding.created",
        "queue.deleted",
        "binding.deleted",
        "exchange.deleted",
        "connection.closed",
    ]
    assert {event.actor for event in diary.events} == {"shop"}
    assert {event.virtual_host for event in diary.events} == {"/"}


def test_what_happens_by_itself_is_the_brokers() -> None:
    client, diary = entered()
    client.declare_queue("q", arguments={"x-expires": 1000})
    client.broker.settle()
    clock = client.broker.clock
    assert isinstance(clock, ManualClock)
    clock.advance(2.0)
    client.broker.tick()
    client.broker.settle()
    assert [(event.name, event.actor) for event in diary.events[-2:]] == [
        ("queue.created", "shop"),
        ("queue.deleted", ""),
    ]


def test_an_exchange_goes_with_its_bindings() -> None:
    client, diary = entered()
    client.declare_exchange("x", "fanout")
    client.declare_queue("q")
    client.bind("x", "q", False, "", {})
    client.delete_exchange("x")
    assert diary.names[-2:] == ["binding.deleted", "exchange.deleted"]


def test_users_and_permissions_are_told_without_their_secrets() -> None:
    client, diary = entered()
    access = client.broker.access
    access.add_user("new", "canary", ["monitoring"])
    access.add_user("new", "canary-2", ["monitoring"])
    access.set_permissions("new", "/", "", "", ".*")
    access.set_topic_permissions("new", "/", "amq.topic", "a", "b")
    access.delete_user("new")
    assert diary.names[1:] == [
        "user.created",
        "user.tags.set",
        "user.password.changed",
        "permission.created",
        "topic.permission.created",
        "user.deleted",
        "permission.deleted",
        "topic.permission.deleted",
    ]
    assert "canary" not in repr(diary.events)


def test_policies_and_virtual_hosts_are_told() -> None:
    client, diary = entered()
    broker = client.broker
    broker.add_virtual_host("v")
    broker.policies.set(Policy("short", "v", ".*", {"max-length": 5}))
    broker.policies.clear("v", "short")
    broker.policies.clear("v", "short")
    broker.delete_virtual_host("v")
    assert diary.names[1:4] == ["vhost.created", "policy.set", "policy.cleared"]
    assert diary.names[-1] == "vhost.deleted"


def test_events_are_counted_though_nobody_listens() -> None:
    client, diary = entered()
    client.broker.events.listeners.clear()
    client.declare_queue("q")
    assert client.broker.events.counts["queue.created"] == 1
    assert diary.names == ["connection.created"]
