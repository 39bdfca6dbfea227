"""The broker at a glance, and its node."""

from __future__ import annotations

import pytest

from leveret.alarms import Alarms, DiskMonitor, MemoryMonitor
from leveret.operations import Listening
from leveret.protocols.amqp091.codec import methods as m

from .lobby import Lobby


def test_everything_is_counted_at_once(lobby: Lobby) -> None:
    channel = lobby.client().channel(1)
    channel.call(m.QueueDeclare("q"))
    channel.call(m.BasicQos(0, 1, False))
    channel.call(m.BasicConsume("q", "tag"))
    for _ in range(3):
        channel.publish("", "q", b"hello")
    told = lobby.get("/api/overview")
    assert told["object_totals"] == {
        "channels": 1,
        "connections": 1,
        "consumers": 1,
        "exchanges": 14,
        "queues": 1,
    }
    lengths = {
        name: told["queue_totals"][name] for name in ("messages", "messages_ready", "messages_unacknowledged")
    }
    assert lengths == {"messages": 3, "messages_ready": 2, "messages_unacknowledged": 1}


def test_messages_are_counted_as_they_were_sampled_last(lobby: Lobby) -> None:
    lobby.queue_with(4)
    assert lobby.get("/api/overview")["message_stats"]["publish"] == 0
    lobby.sample()
    stats = lobby.get("/api/overview")["message_stats"]
    assert (stats["publish"], stats["publish_details"]) == (4, {"rate": 0.8})
    lobby.sample()
    assert lobby.get("/api/overview")["message_stats"]["publish_details"] == {"rate": 0.0}


def test_comings_and_goings_are_counted(lobby: Lobby) -> None:
    client = lobby.client()
    client.channel(1).call(m.QueueDeclare("q"))
    client.channel(2).call(m.QueueDelete("q"))
    churn = lobby.get("/api/overview")["churn_rates"]
    counts = {name: count for name, count in churn.items() if not name.endswith("_details")}
    assert counts == {
        "connection_created": 1,
        "connection_closed": 0,
        "channel_created": 2,
        "channel_closed": 0,
        "queue_created": 1,
        "queue_declared": 1,
        "queue_deleted": 1,
    }


def test_who_does_not_monitor_is_told_of_his_own(lobby: Lobby) -> None:
    lobby.queue_with(2, "here")
    lobby.client("guest", "other").channel(1).call(m.QueueDeclare("there"))
    lobby.client("clerk")
    lobby.sample()
    told = lobby.get("/api/overview", "clerk")
    assert told["object_totals"] == {
        "channels": 0,
        "connections": 1,
        "consumers": 0,
        "exchanges": 7,
        "queues": 1,
    }
    assert told["message_stats"]["publish"] == 2
    assert told["queue_totals"]["messages"] == 2
    assert not told.keys() & {"node", "listeners", "contexts", "churn_rates"}
    nothing = lobby.get("/api/overview", "stranger")
    assert (nothing["message_stats"]["publish"], nothing["object_totals"]["queues"]) == (0, 0)


def test_rates_of_own_virtual_hosts_are_added(lobby: Lobby) -> None:
    lobby.queue_with(5)
    lobby.sample()
    assert lobby.get("/api/overview", "clerk")["message_stats"]["publish_details"] == {"rate": 1.0}


def test_listeners_are_told_by_what_they_serve(lobby: Lobby) -> None:
    lobby.node.listeners = lambda: [  # type: ignore[method-assign]
        Listening("127.0.0.1", 5672, ("amqp091", "amqp10"), False),
        Listening("::", 5671, ("amqp091",), True),
        Listening("127.0.0.1", 15671, ("http",), True),
        Listening("::", 5673, ("amqp091", "amqp10"), True, tls_optional=True),
    ]
    told = lobby.get("/api/overview")
    listeners = [(each["protocol"], each["ip_address"], each["port"]) for each in told["listeners"]]
    assert listeners == [
        ("amqp", "127.0.0.1", 5672),
        ("amqp/ssl", "::", 5671),
        ("https", "127.0.0.1", 15671),
        ("amqp", "::", 5673),
        ("amqp/ssl", "::", 5673),
    ]
    assert [(each["port"], each["protocol"]) for each in told["contexts"]] == [("15671", "https")]


def test_every_type_of_exchange_is_described(lobby: Lobby) -> None:
    types = {each["name"]: each["description"] for each in lobby.get("/api/overview")["exchange_types"]}
    assert types.keys() == {"direct", "fanout", "headers", "topic"}
    assert all(types.values())
    assert types["fanout"] == "every bound destination, whatever the key"


def test_columns_of_the_overview_can_be_asked_for(lobby: Lobby) -> None:
    told = lobby.get("/api/overview?columns=node,object_totals.queues")
    assert told == {"node": "leveret", "object_totals": {"queues": 0}}


# The node.


def test_the_node_tells_its_alarms_and_their_limits(lobby: Lobby) -> None:
    memory = MemoryMonitor("1GiB", used=lambda: 2 << 30, total=lambda: 4 << 30, give_back=lambda: None)
    lobby.broker.alarms = Alarms((memory, DiskMonitor(None)))
    lobby.broker.alarms.check(0)
    told = lobby.get("/api/nodes/leveret")
    assert (told["mem_alarm"], told["disk_free_alarm"]) == (True, False)
    assert (told["mem_limit"], told["disk_free_limit"]) == (1 << 30, 0)


def test_the_node_tells_what_it_takes_up(lobby: Lobby) -> None:
    lobby.client()
    told = lobby.get("/api/nodes")[0]
    assert told["mem_used"] > 1 << 20
    assert 0 < told["fd_used"] < told["fd_total"]
    assert told["sockets_used"] == 2  # a connection and a listener
    assert told["disk_free"] > 0
    assert told["processor_ms"] > 0
    assert (told["name"], told["running"], told["type"]) == ("leveret", True, "ram")
    assert lobby.get("/api/nodes/leveret/memory")["memory"]["total"]["rss"] > 1 << 20


def test_there_is_no_other_node(lobby: Lobby) -> None:
    assert lobby.ask("GET", "/api/nodes/rabbit@elsewhere").status == 404
    assert lobby.ask("GET", "/api/nodes/rabbit@elsewhere/memory").status == 404


@pytest.mark.parametrize("path", ["/api/nodes", "/api/nodes/leveret", "/api/nodes/leveret/memory"])
def test_the_node_is_for_those_who_monitor(lobby: Lobby, path: str) -> None:
    assert lobby.ask("GET", path, user="clerk").status == 401
    assert lobby.ask("GET", path, user="watcher").status == 200
