"""Queues, exchanges and bindings over HTTP: declared, told of and deleted, by whom that is allowed."""

from __future__ import annotations

import pytest

from leveret.policy import Policy
from leveret.protocols.amqp091.codec import methods as m
from leveret.protocols.amqp091.codec.wire import BasicProperties
from leveret.protocols.http.management.bindings import properties_key
from leveret.queues.stream import StreamQueue
from leveret.values import Json, Table

from .lobby import Lobby

Q, X = "/api/queues/%2F", "/api/exchanges/%2F"


# Queues.


def test_a_queue_is_declared_once_and_found_again(lobby: Lobby) -> None:
    said: Json = {"durable": False, "auto_delete": True, "arguments": {"x-max-length": 5}}
    assert lobby.ask("PUT", f"{Q}/q", said).status == 201
    assert lobby.ask("PUT", f"{Q}/q", said).status == 204
    told = lobby.get(f"{Q}/q")
    assert (told["durable"], told["auto_delete"], told["arguments"]) == (False, True, {"x-max-length": 5})
    assert lobby.queue("q").limits.max_length == 5


def test_a_queue_of_which_nothing_is_said_lasts(lobby: Lobby) -> None:
    assert lobby.ask("PUT", f"{Q}/q").status == 201
    assert lobby.queue("q").durable
    assert not lobby.queue("q").auto_delete


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ({"durable": False}, "inequivalent arg 'durable'"),
        ({"auto_delete": "yes"}, "not_boolean"),
        ({"arguments": {"x-message-ttl": -1}}, "x-message-ttl"),
        ({"node": "elsewhere"}, "elsewhere"),
        ([1], "not_json"),
    ],
)
def test_what_contradicts_or_makes_no_sense_is_refused(lobby: Lobby, said: Json, reason: str) -> None:
    lobby.ask("PUT", f"{Q}/q")
    response = lobby.ask("PUT", f"{Q}/q", said)
    assert (response.status, response.content["error"]) == (400, "bad_request")
    assert reason in str(response.reason)
    assert lobby.queue("q").durable


@pytest.mark.parametrize(("path", "status"), [(f"{Q}/amq.x", 401), ("/api/queues/nowhere/q", 404)])
def test_a_reserved_name_or_an_unknown_place_is_refused(lobby: Lobby, path: str, status: int) -> None:
    assert lobby.ask("PUT", path).status == status


def test_a_queue_is_deleted_once(lobby: Lobby) -> None:
    lobby.ask("PUT", f"{Q}/q")
    assert lobby.ask("DELETE", f"{Q}/q").status == 204
    assert "q" not in lobby.host.queues
    assert lobby.ask("DELETE", f"{Q}/q").status == 404
    assert lobby.ask("GET", f"{Q}/q").status == 404


def test_a_queue_in_use_or_with_messages_stays_if_that_is_wanted(lobby: Lobby) -> None:
    lobby.queue_with(1)
    channel = lobby.client().channel(1)
    channel.call(m.BasicConsume("q", "tag"))
    assert lobby.ask("DELETE", f"{Q}/q?if-unused=true").status == 400
    channel.call(m.BasicCancel("tag"))
    channel.call(m.ChannelClose(200, "", 0, 0))
    assert lobby.ask("DELETE", f"{Q}/q?if-empty=true").status == 400
    assert "q" in lobby.host.queues
    assert lobby.ask("DELETE", f"{Q}/q?if-empty=false").status == 204


def test_a_queue_tells_what_monitors_read(lobby: Lobby) -> None:
    channel = lobby.client().channel()
    channel.declare("q")

    def told() -> list[Json]:
        lobby.settle()
        queue = lobby.get("/api/queues/%2F/q")
        return [queue[name] for name in ("head_message_timestamp", "consumer_utilisation", "memory")]

    assert told() == [None, 0.0, 4096]
    channel.publish("", "q", b"x" * 100, BasicProperties(timestamp=77))
    channel.publish("", "q", b"x" * 100, BasicProperties(timestamp=88))
    assert told() == [77, 0.0, 4096 + 2 * (512 + 100)]
    channel.does(m.BasicQos(0, 1, False))
    channel.consume("q", "t")
    assert told()[:2] == [88, 0.0]  # the consumer has all that it may have
    channel.ack(1, multiple=True)
    channel.get("q")
    assert told()[0] is None


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_the_bytes_of_a_queue_are_those_of_waiting_and_of_unacknowledged_messages(
    lobby: Lobby, kind: str
) -> None:
    channel = lobby.client().channel()
    channel.declare("q", durable=True, arguments={"x-queue-type": kind})

    def told() -> list[Json]:
        lobby.settle()
        queue = lobby.get("/api/queues/%2F/q")
        return [queue[f"message_bytes{name}"] for name in ("", "_ready", "_unacknowledged")]

    for size in (1, 10, 100, 1000):
        channel.publish("", "q", b"x" * size)
    assert told() == [1111, 1111, 0]
    channel.does(m.BasicQos(0, 2, False))
    channel.consume("q", "t")
    assert told() == [1111, 1100, 11]
    channel.get("q", no_ack=False)
    assert told() == [1111, 1000, 111]
    channel.get("q")
    assert told() == [111, 0, 111]
    channel.ack(1)
    assert told() == [110, 0, 110]
    channel.does(m.BasicCancel("t"))
    channel.nack(3)
    assert told() == [110, 100, 10]
    channel.nack(2, requeue=False)
    assert told() == [100, 100, 0]


def test_permissions_hold_for_queues(lobby: Lobby) -> None:
    assert lobby.ask("PUT", f"{Q}/mine", user="clerk").status == 201
    assert lobby.ask("PUT", f"{Q}/yours", user="clerk").status == 401
    assert "yours" not in lobby.host.queues
    lobby.ask("PUT", f"{Q}/yours")
    assert lobby.ask("DELETE", f"{Q}/yours", user="clerk").status == 401
    # whether it is there, he is not told
    assert lobby.ask("DELETE", f"{Q}/no%20matter", user="clerk").status == 401
    assert "yours" in lobby.host.queues
    assert lobby.ask("PUT", "/api/queues/other/mine", user="clerk").status == 401
    assert lobby.ask("PUT", f"{Q}/mine2", user="watcher").status == 401
    assert lobby.ask("DELETE", f"{Q}/mine", user="clerk").status == 204


def test_a_queue_is_paused_and_resumed(lobby: Lobby) -> None:
    lobby.queue_with(1)
    for verb, state in (("pause", "paused"), ("pause", "paused"), ("resume", "running")):
        assert lobby.ask("PUT", f"{Q}/q/{verb}").status == 204
        assert lobby.get(f"{Q}/q")["state"] == state
        assert lobby.get("/api/queues")[0]["state"] == state
        assert lobby.get("/api/queues?disable_stats=true")[0]["state"] == state
    assert lobby.ask("PUT", f"{Q}/nothing/pause").status == 404


def test_an_operator_gets_messages_of_a_paused_queue_clients_do_not(lobby: Lobby) -> None:
    lobby.queue_with(2)
    lobby.ask("PUT", f"{Q}/q/pause")
    assert lobby.client().channel(1).get("q") is None
    assert (
        len(
            lobby.ask(
                "POST", f"{Q}/q/get", {"count": 5, "ackmode": "ack_requeue_true", "encoding": "auto"}
            ).json
        )
        == 2
    )
    lobby.ask("PUT", f"{Q}/to")
    assert lobby.ask("POST", "/api/leveret/queues/%2F/q/move", {"to": "to"}).json["moved"] == 2


def test_who_may_configure_a_queue_may_pause_it(lobby: Lobby) -> None:
    lobby.ask("PUT", f"{Q}/mine")
    lobby.ask("PUT", f"{Q}/yours")
    assert lobby.ask("PUT", f"{Q}/mine/pause", user="clerk").status == 204
    assert lobby.ask("PUT", f"{Q}/yours/pause", user="clerk").status == 401
    assert lobby.ask("PUT", f"{Q}/mine/resume", user="watcher").status == 401
    assert (lobby.queue("mine").paused, lobby.queue("yours").paused) == (True, False)


def test_an_exclusive_queue_is_told_and_stays_with_its_connection(lobby: Lobby) -> None:
    lobby.client().channel(1).call(m.QueueDeclare("own", exclusive=True))
    told = lobby.get(f"{Q}/own")
    assert (told["exclusive"], told["owner_pid_details"]) == (
        True,
        {"name": "127.0.0.1:40000 -> 127.0.0.1:5672"},
    )
    assert lobby.ask("DELETE", f"{Q}/own").status == 400
    assert "own" in lobby.host.queues


def test_lists_are_of_virtual_hosts_that_the_user_may_enter(lobby: Lobby) -> None:
    lobby.ask("PUT", f"{Q}/here")
    lobby.ask("PUT", "/api/queues/other/there")
    seen = {
        user: [each["name"] for each in lobby.get("/api/queues", user)]
        for user in ("clerk", "watcher", "stranger")
    }
    assert seen == {"clerk": ["here"], "watcher": ["here", "there"], "stranger": []}
    assert {each["vhost"] for each in lobby.get("/api/exchanges", "clerk")} == {"/"}
    assert {each["vhost"] for each in lobby.get("/api/bindings", "clerk")} == {"/"}
    for path in (
        "/api/queues/other",
        "/api/queues/other/there",
        "/api/exchanges/other",
        "/api/bindings/other",
    ):
        assert lobby.ask("GET", path, user="clerk").status == 401
        assert lobby.ask("GET", path, user="watcher").status == 200


def test_a_queue_tells_its_policies_and_what_they_say(lobby: Lobby) -> None:
    lobby.ask("PUT", f"{Q}/q")
    lobby.broker.policies.set(Policy("short", "/", "^q", {"max-length": 9}))
    lobby.broker.policies.set_operator(Policy("shorter", "/", "^q", {"max-length": 3}))
    told = lobby.get(f"{Q}/q")
    assert (told["policy"], told["operator_policy"]) == ("short", "shorter")
    assert told["effective_policy_definition"] == {"max-length": 3}


def test_the_readers_of_a_stream_are_told_with_where_they_are(lobby: Lobby) -> None:
    channel = lobby.client().channel(1)
    channel.call(m.QueueDeclare("s", durable=True, arguments={"x-queue-type": "stream"}))
    channel.call(m.BasicQos(0, 2, False))
    channel.call(m.BasicConsume("s", "reader", arguments={"x-stream-offset": "first"}))
    for _ in range(5):
        channel.publish("", "s", b"hello")
    assert isinstance(lobby.queue("s"), StreamQueue)
    told = lobby.get(f"{Q}/s")
    where = {"connection": "127.0.0.1:40000 -> 127.0.0.1:5672", "channel": 1}
    assert told["readers"] == [{"tag": "reader", **where, "offset": 2, "lag": 3}]
    assert told["type"] == "stream"


# Exchanges.


def test_an_exchange_is_declared_once_and_found_again(lobby: Lobby) -> None:
    said: Json = {
        "type": "topic",
        "durable": False,
        "auto_delete": True,
        "internal": True,
        "arguments": {"a": 1},
    }
    assert lobby.ask("PUT", f"{X}/x", said).status == 201
    assert lobby.ask("PUT", f"{X}/x", said).status == 204
    told = lobby.get(f"{X}/x")
    assert {name: told[name] for name in ("type", "durable", "auto_delete", "internal", "arguments")} == said


def test_an_exchange_of_which_nothing_is_said_is_direct_and_lasts(lobby: Lobby) -> None:
    assert lobby.ask("PUT", f"{X}/x", {}).status == 201
    told = lobby.get(f"{X}/x")
    assert (told["type"], told["durable"], told["internal"]) == ("direct", True, False)


def test_exchanges_that_cannot_be_are_refused(lobby: Lobby) -> None:
    lobby.ask("PUT", f"{X}/x", {})
    assert lobby.ask("PUT", f"{X}/x", {"type": "fanout"}).status == 400
    assert lobby.ask("PUT", f"{X}/y", {"type": "nonsense"}).status == 400
    assert lobby.ask("PUT", f"{X}/amq.y", {}).status == 401
    assert lobby.ask("PUT", f"{X}/yours", {}, user="clerk").status == 401
    assert not {"y", "amq.y", "yours"} & lobby.host.exchanges.keys()


def test_an_exchange_is_deleted_once_and_not_in_use_if_that_is_wanted(lobby: Lobby) -> None:
    lobby.ask("PUT", f"{X}/x", {})
    lobby.ask("PUT", f"{Q}/q")
    lobby.ask("POST", "/api/bindings/%2F/e/x/q/q")
    assert lobby.ask("DELETE", f"{X}/x", user="clerk").status == 401
    assert lobby.ask("DELETE", f"{X}/x?if-unused=true").status == 400
    assert lobby.ask("DELETE", f"{X}/x").status == 204
    assert lobby.ask("DELETE", f"{X}/x").status == 404
    assert lobby.ask("DELETE", f"{X}/amq.topic").status == 401


def test_the_default_exchange_has_an_address(lobby: Lobby) -> None:
    assert lobby.get(f"{X}/amq.default")["name"] == ""
    assert lobby.ask("GET", f"{X}/nothing").status == 404


def test_what_went_through_an_exchange_is_counted_on_both_sides(lobby: Lobby) -> None:
    channel = lobby.client().channel(1)
    for name in ("a", "b"):
        channel.call(m.QueueDeclare(name))
        channel.call(m.QueueBind(name, "amq.topic", "#"))
    channel.publish("amq.topic", "any", b"hello")
    channel.publish("amq.direct", "nobody", b"hello")
    stats = {name: lobby.get(f"{X}/{name}")["message_stats"] for name in ("amq.topic", "amq.direct")}
    assert (stats["amq.topic"]["publish_in"], stats["amq.topic"]["publish_out"]) == (1, 2)
    assert (stats["amq.direct"]["publish_in"], stats["amq.direct"]["publish_out"]) == (1, 0)


# Bindings.


def bound(lobby: Lobby) -> None:
    for name in ("q", "p"):
        lobby.ask("PUT", f"{Q}/{name}")
    lobby.ask("PUT", f"{X}/x", {"type": "topic"})


@pytest.mark.parametrize(
    ("key", "address"),
    [("", "~"), ("plain", "plain"), ("a.b", "a.b"), ("~x", "%7Ex"), ("x y", "x+y"), ("ä/%", "%C3%A4%2F%25")],
)
def test_a_binding_without_arguments_is_addressed_by_its_key(key: str, address: str) -> None:
    assert properties_key(key, {}) == address


def test_arguments_make_an_address_of_their_own() -> None:
    different: list[Table] = [{"a": 1}, {"a": 2}, {"a": "1"}, {"b": 1}, {"a": 1, "b": 1}]
    keys = {properties_key("k", arguments) for arguments in different}
    assert len(keys) == len(different)
    assert all(key.startswith("k~") for key in keys)
    assert properties_key("k", {"a": 1, "b": [2]}) == properties_key("k", {"b": [2], "a": 1})


@pytest.mark.parametrize(
    "said",
    [
        {},
        {"routing_key": "plain"},
        {"routing_key": "~ä b/c%"},
        {"routing_key": "k", "arguments": {"x": 1, "y": "z"}},
    ],
)
@pytest.mark.parametrize(("kind", "destination"), [("q", "q"), ("e", "amq.fanout")])
def test_a_binding_is_made_found_and_undone_at_its_address(
    lobby: Lobby, said: dict[str, Json], kind: str, destination: str
) -> None:
    bound(lobby)
    base = f"/api/bindings/%2F/e/x/{kind}"
    made = lobby.ask("POST", f"{base}/{destination}", said)
    assert made.status == 201
    address = f"{base}/{made.headers['Location']}"
    told = lobby.get(address)
    assert told["routing_key"] == said.get("routing_key", "")
    assert told["arguments"] == said.get("arguments", {})
    assert (told["source"], told["destination"]) == ("x", destination)
    assert told["destination_type"] == ("queue" if kind == "q" else "exchange")
    assert lobby.get(f"{base}/{destination}") == [told]
    assert lobby.ask("DELETE", address).status == 204
    assert lobby.ask("DELETE", address).status == 404
    assert lobby.get(f"{base}/{destination}") == []


def test_only_the_binding_with_that_key_goes(lobby: Lobby) -> None:
    bound(lobby)
    for key in ("one", "two"):
        lobby.ask("POST", "/api/bindings/%2F/e/x/q/q", {"routing_key": key})
    lobby.ask("POST", "/api/bindings/%2F/e/x/q/p", {"routing_key": "one"})
    assert lobby.ask("DELETE", "/api/bindings/%2F/e/x/q/q/one").status == 204
    left = [(each["destination"], each["routing_key"]) for each in lobby.get(f"{X}/x/bindings/source")]
    assert left == [("p", "one"), ("q", "two")]


def test_bindings_are_told_from_every_side(lobby: Lobby) -> None:
    bound(lobby)
    lobby.ask("POST", "/api/bindings/%2F/e/x/q/q", {"routing_key": "k"})
    lobby.ask("POST", "/api/bindings/%2F/e/x/e/amq.fanout", {"routing_key": "e"})

    def keys(path: str) -> list[Json]:
        return [each["routing_key"] for each in lobby.get(path)]

    assert keys("/api/bindings") == ["p", "q", "k", "e"]
    assert keys("/api/bindings/%2F") == ["p", "q", "k", "e"]
    assert keys("/api/bindings/other") == []
    assert keys(f"{Q}/q/bindings") == ["q", "k"]
    assert keys(f"{X}/x/bindings/source") == ["k", "e"]
    assert keys(f"{X}/amq.fanout/bindings/destination") == ["e"]
    assert keys(f"{X}/amq.default/bindings/source") == ["p", "q"]
    assert keys("/api/bindings/%2F/e//q/q") == ["q"]
    assert keys("/api/bindings/%2F/e/amq.default/q/q") == ["q"]
    assert keys("/api/bindings/%2F/e/x/q/nobody") == []
    for path in (f"{Q}/nobody/bindings", f"{X}/nobody/bindings/source", f"{X}/nobody/bindings/destination"):
        assert lobby.ask("GET", path).status == 404


def test_bindings_of_queues_to_the_default_exchange_stay(lobby: Lobby) -> None:
    bound(lobby)
    assert lobby.ask("DELETE", "/api/bindings/%2F/e//q/q/q").status == 401
    assert lobby.ask("POST", "/api/bindings/%2F/e//q/q", {"routing_key": "z"}).status == 401
    assert len(lobby.get(f"{Q}/q/bindings")) == 1


def test_what_is_not_there_cannot_be_bound(lobby: Lobby) -> None:
    bound(lobby)
    assert lobby.ask("POST", "/api/bindings/%2F/e/nobody/q/q", {}).status == 404
    assert lobby.ask("POST", "/api/bindings/%2F/e/x/q/nobody", {}).status == 404
    assert lobby.ask("POST", "/api/bindings/nowhere/e/x/q/q", {}).status == 404


def test_permissions_hold_for_bindings(lobby: Lobby) -> None:
    bound(lobby)
    lobby.ask("PUT", f"{Q}/mine")
    path = "/api/bindings/%2F/e/x/q/mine"
    assert lobby.ask("POST", path, {"routing_key": "k"}, user="clerk").status == 401  # he may not read from x
    lobby.ask("POST", path, {"routing_key": "k"})
    assert lobby.ask("DELETE", f"{path}/k", user="clerk").status == 401
    assert lobby.ask("DELETE", f"{path}/k", user="watcher").status == 401
    assert len(lobby.get(path)) == 1
