"""Connections, channels and consumers: what is told of them, to whom, and how they are ended."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from leveret.protocols.amqp091.codec import methods as m
from tests.amqp091.peer import Peer
from tests.amqp10.peer import Peer as Peer10
from tests.harness.peer import LOOPBACK

from .lobby import Lobby, Wire

FIRST = "127.0.0.1:40000 -> 127.0.0.1:5672"
AT = f"/api/connections/{quote(FIRST, safe='')}"


def test_a_connection_is_told_with_who_has_it_and_what_went_over_it(lobby: Lobby) -> None:
    peer = lobby.client("clerk")
    peer.channel(1)
    peer.channel(5)
    told = lobby.get(AT)
    expected = {
        "name": FIRST,
        "user": "clerk",
        "vhost": "/",
        "protocol": "AMQP 0-9-1",
        "auth_mechanism": "PLAIN",
        "channels": 2,
        "channel_max": 2047,
        "frame_max": 131072,
        "timeout": 0,
        "state": "running",
        "recv_oct": 300,
        "recv_cnt": 3,
        "send_oct": 200,
        "send_cnt": 2,
        "send_pend": 7,
        "peer_port": 40000,
        "port": 5672,
        "ssl": False,
        "connected_at": 1_000_000_000_000,
    }
    assert expected.items() <= told.items()
    assert told["client_properties"]["product"] == "test"


def test_who_has_not_logged_in_and_http_are_no_connections(lobby: Lobby) -> None:
    peer = Peer(lobby)
    peer.start()
    assert lobby.get("/api/connections") == []
    assert lobby.get("/api/overview")["object_totals"]["connections"] == 0


@pytest.mark.parametrize(("user", "seen"), [("guest", 2), ("watcher", 2), ("clerk", 1), ("stranger", 0)])
@pytest.mark.parametrize("path", ["/api/connections", "/api/channels"])
def test_users_are_told_of_their_own(lobby: Lobby, path: str, user: str, seen: int) -> None:
    lobby.client("guest").channel(1)
    lobby.client("clerk").channel(1)
    assert len(lobby.get(path, user)) == seen


def test_the_connections_of_a_virtual_host_are_told_to_who_may_enter_it(lobby: Lobby) -> None:
    lobby.client("guest", "other").channel(1)
    lobby.client("guest", "/").channel(1)
    assert [each["vhost"] for each in lobby.get("/api/vhosts/other/connections")] == ["other"]
    assert [each["vhost"] for each in lobby.get("/api/vhosts/other/channels")] == ["other"]
    assert lobby.ask("GET", "/api/vhosts/other/connections", user="clerk").status == 401
    assert lobby.ask("GET", "/api/vhosts/nowhere/connections").status == 404


def test_another_users_connection_is_not_told_and_not_ended(lobby: Lobby) -> None:
    peer = lobby.client("guest")
    for method in ("GET", "DELETE"):
        assert lobby.ask(method, AT, user="clerk").status == 401
    assert lobby.ask("GET", f"{AT}/channels", user="clerk").status == 401
    assert lobby.ask("DELETE", AT, user="watcher").status == 401  # to watch is not to end
    assert not peer.front.closed
    assert lobby.wire(peer).reason == ""


def test_a_connection_is_ended_with_the_reason_that_is_given(lobby: Lobby) -> None:
    peer = lobby.client()
    assert lobby.ask("DELETE", AT, headers={"X-Reason": "enough"}).status == 204
    assert peer.refusal() == "320 CONNECTION_FORCED - enough"


def test_a_user_ends_his_own_connection_and_needs_no_reason(lobby: Lobby) -> None:
    peer = lobby.client("clerk")
    assert lobby.ask("DELETE", AT, user="clerk").status == 204
    assert peer.refusal() == "320 CONNECTION_FORCED - Closed via management plugin"


def test_a_connection_of_1_0_has_its_container_id(lobby: Lobby) -> None:
    lobby.client()
    peer = Peer10(lobby).open(container_id="shop-7")
    lobby.node.connected.append(Wire(LOOPBACK, peer.front))
    ids = {each["protocol"]: each["container_id"] for each in lobby.get("/api/connections")}
    assert ids == {"AMQP 0-9-1": None, "AMQP 1.0": "shop-7"}


def test_a_long_reason_is_cut(lobby: Lobby) -> None:
    peer = lobby.client()
    lobby.ask("DELETE", AT, headers={"X-Reason": "x" * 5000})
    assert lobby.wire(peer).reason == "x" * 200


def test_there_is_no_connection_of_another_name(lobby: Lobby) -> None:
    for method in ("GET", "DELETE"):
        response = lobby.ask(method, "/api/connections/nobody")
        assert (response.status, response.content) == (
            404,
            {"error": "Object Not Found", "reason": "Not Found"},
        )
    assert lobby.ask("GET", "/api/channels/nobody%20(1)").status == 404
    assert lobby.ask("GET", "/api/channels/nobody").status == 404


def test_all_connections_of_a_user_are_ended_and_no_others(lobby: Lobby) -> None:
    first, second, other = lobby.client("clerk"), lobby.client("clerk"), lobby.client("guest")
    assert lobby.ask("DELETE", "/api/connections/username/clerk").status == 204
    assert [bool(lobby.wire(each).reason) for each in (first, second, other)] == [True, True, False]
    assert lobby.ask("DELETE", "/api/connections/username/nobody").status == 204


def test_only_administrators_end_the_connections_of_others(lobby: Lobby) -> None:
    guest = lobby.client("guest")
    assert lobby.ask("DELETE", "/api/connections/username/guest", user="clerk").status == 401
    assert lobby.ask("DELETE", "/api/connections/username/guest", user="watcher").status == 401
    assert lobby.wire(guest).reason == ""


def test_a_user_is_told_the_names_of_his_connections(lobby: Lobby) -> None:
    lobby.client("guest")
    lobby.client("clerk")
    few = {"name": FIRST, "vhost": "/", "user": "guest", "node": "leveret"}
    assert lobby.get("/api/connections/username/guest") == [few]
    assert lobby.get("/api/connections/username/guest", "clerk") == []


# Channels.


def test_a_channel_is_told_with_what_it_has_done(lobby: Lobby) -> None:
    channel = lobby.client().channel(3)
    channel.call(m.ConfirmSelect())
    channel.call(m.QueueDeclare("q"))
    channel.call(m.BasicQos(0, 2, False))
    channel.call(m.BasicConsume("q", "tag"))
    for _ in range(3):
        channel.publish("", "q", b"hello")
    channel.ack(1)
    told = lobby.get(f"{AT}/channels")[0]
    expected = {
        "name": f"{FIRST} (3)",
        "number": 3,
        "confirm": True,
        "transactional": False,
        "consumer_count": 1,
        "messages_unacknowledged": 2,
        "messages_unconfirmed": 0,
        "prefetch_count": 2,
        "state": "running",
        "user": "guest",
    }
    assert expected.items() <= told.items()
    stats = told["message_stats"]
    assert [stats[name] for name in ("publish", "confirm", "deliver", "deliver_get", "ack")] == [
        3,
        3,
        3,
        3,
        1,
    ]


def test_one_channel_is_told_with_its_consumers_and_no_others(lobby: Lobby) -> None:
    client = lobby.client()
    one, other = client.channel(1), client.channel(11)
    one.call(m.QueueDeclare("q"))
    one.call(m.BasicConsume("q", "mine"))
    other.call(m.BasicConsume("q", "not mine"))
    told = lobby.get(f"/api/channels/{quote(FIRST + ' (1)', safe='')}")
    assert [each["consumer_tag"] for each in told["consumer_details"]] == ["mine"]
    assert lobby.ask("GET", f"/api/channels/{quote(FIRST + ' (2)', safe='')}").status == 404
    assert lobby.ask("GET", f"/api/channels/{quote(FIRST + ' (1)', safe='')}", user="clerk").status == 401


# Consumers.


def test_a_consumer_is_told_with_its_queue_and_channel(lobby: Lobby) -> None:
    channel = lobby.client().channel(3)
    channel.call(m.QueueDeclare("q"))
    channel.call(m.BasicQos(0, 9, False))
    channel.call(m.BasicConsume("q", "tag", exclusive=True, arguments={"x-priority": 3}))
    assert lobby.get("/api/consumers") == [
        {
            "arguments": {"x-priority": 3},
            "ack_required": True,
            "active": True,
            "activity_status": "up",
            "channel_details": {
                "connection_name": FIRST,
                "name": f"{FIRST} (3)",
                "node": "leveret",
                "number": 3,
                "peer_host": "127.0.0.1",
                "peer_port": 40000,
                "user": "guest",
                "user_provided_name": None,
            },
            "consumer_tag": "tag",
            "consumer_timeout": 1_800_000,
            "exclusive": True,
            "prefetch_count": 9,
            "queue": {"name": "q", "vhost": "/"},
            "slow": False,
            "warnings": [],
        }
    ]


def test_arguments_of_a_consumer_without_effect_are_told_with_it(lobby: Lobby) -> None:
    channel = lobby.client().channel(1)
    channel.call(m.QueueDeclare("q"))
    arguments = {"x-priorty": 3}
    channel.call(m.BasicConsume("q", "tag", no_local=True, arguments=arguments))
    [told] = lobby.get("/api/consumers")
    assert told["warnings"] == [
        "no-local has no effect, unless the row no_local of [compat] is true",
        "x-priorty is not known here and has no effect; did you mean x-priority?",
    ]
    assert lobby.get("/api/queues/%2F/q")["consumer_details"][0]["warnings"] == told["warnings"]


def test_of_consumers_with_one_active_one_is(lobby: Lobby) -> None:
    channel = lobby.client().channel(1)
    channel.call(m.QueueDeclare("q", arguments={"x-single-active-consumer": True}))
    channel.call(m.BasicConsume("q", "first"))
    channel.call(m.BasicConsume("q", "second"))
    told = {
        each["consumer_tag"]: (each["active"], each["activity_status"])
        for each in lobby.get("/api/consumers")
    }
    assert told == {"first": (True, "single_active"), "second": (False, "waiting")}
    assert lobby.get("/api/queues/%2F/q")["single_active_consumer_tag"] == "first"


def test_consumers_are_told_to_who_may_enter_their_virtual_host(lobby: Lobby) -> None:
    for name in ("/", "other"):
        channel = lobby.client(virtual_host=name).channel(1)
        channel.call(m.QueueDeclare("q"))
        channel.call(m.BasicConsume("q", f"in {name}"))
    assert [each["consumer_tag"] for each in lobby.get("/api/consumers", "clerk")] == ["in /"]
    assert [each["consumer_tag"] for each in lobby.get("/api/consumers", "watcher")] == ["in /", "in other"]
    assert [each["consumer_tag"] for each in lobby.get("/api/consumers/other")] == ["in other"]
    assert lobby.ask("GET", "/api/consumers/other", user="clerk").status == 401
    assert lobby.ask("GET", "/api/consumers/nowhere").status == 404
