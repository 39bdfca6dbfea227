"""Who does not monitor learns nothing of what is not his, and leaves nothing outsized behind."""

from __future__ import annotations

import json

import pytest

from leveret.values import Json
from tests.http.management.lobby import Lobby

ADMINISTRATOR, MONITOR, CLERK = "guest", "watcher", "clerk"
LONG = "mine" + "a" * 252  # 256 octets


@pytest.fixture
def lobby() -> Lobby:
    lobby = Lobby()
    lobby.queue_with(3, "q")
    lobby.broker.virtual_host("other").declare_queue("hidden")
    return lobby


# Names and counts.


def test_the_status_tells_who_does_not_monitor_of_his_own_virtual_hosts_only(lobby: Lobby) -> None:
    told = lobby.get("/api/leveret/status", CLERK)
    assert (told["virtual_hosts"], told["queues"], told["messages_ready"]) == (["/"], 1, 3)
    assert told.keys().isdisjoint(("data_dir", "listeners", "connections"))
    assert lobby.get("/api/leveret/status", MONITOR) == lobby.node.status()


def test_limits_of_other_users_are_not_told(lobby: Lobby) -> None:
    for user in (ADMINISTRATOR, CLERK):
        assert lobby.ask("PUT", f"/api/user-limits/{user}/max-channels", {"value": 5}).status == 204
    assert [each["user"] for each in lobby.get("/api/user-limits", MONITOR)] == [CLERK, ADMINISTRATOR]
    assert [each["user"] for each in lobby.get("/api/user-limits", CLERK)] == [CLERK]
    assert lobby.get(f"/api/user-limits/{CLERK}", CLERK)[0]["user"] == CLERK


def test_limits_do_not_tell_which_users_there_are(lobby: Lobby) -> None:
    there = lobby.ask("GET", "/api/user-limits/guest", user=CLERK)
    nowhere = lobby.ask("GET", "/api/user-limits/nobody", user=CLERK)
    assert (there.status, there.content) == (nowhere.status, nowhere.content)
    assert there.status == 401


# Sizes.


@pytest.mark.parametrize(
    ("method", "path", "content"),
    [
        ("PUT", f"/api/queues/%2F/{LONG}", {}),
        ("PUT", f"/api/queues/%2F/mine{'%C3%A9' * 126}", {}),
        ("PUT", f"/api/exchanges/%2F/{LONG}", {"type": "topic"}),
        ("POST", "/api/bindings/%2F/e/amq.topic/q/q", {"routing_key": "#." * 128}),
        ("POST", "/api/bindings/%2F/e/amq.topic/e/amq.fanout", {"routing_key": "#." * 128}),
    ],
)
def test_no_name_or_key_is_longer_than_every_protocol_can_say(
    lobby: Lobby, method: str, path: str, content: Json
) -> None:
    refused = lobby.ask(method, path, content)
    assert refused.status == 400
    assert "more than 255 octets" in refused.json["reason"]


def test_the_longest_names_and_keys_are_fine(lobby: Lobby) -> None:
    assert lobby.ask("PUT", f"/api/queues/%2F/{LONG[:-1]}", {}).status == 201
    key = {"routing_key": LONG[:-1]}
    assert lobby.ask("POST", f"/api/bindings/%2F/e/amq.topic/q/{LONG[:-1]}", key).status == 201


def test_a_header_to_explain_may_be_nested_however_deep(lobby: Lobby) -> None:
    header = "x=" + "[" * 1500
    assert lobby.ask("GET", f"/api/leveret/explain?key=q&header={header}", user=MONITOR).status == 200


MANY = "[" + "[]," * 60_000 + "0]"


def test_a_body_with_very_many_values_is_not_read(lobby: Lobby) -> None:
    refused = lobby.octets("PUT", "/api/queues/%2F/mine", b'{"arguments": %s}' % MANY.encode(), CLERK)
    assert (refused.status, refused.json["reason"]) == (400, "too_many_values")


def test_a_text_may_have_as_many_brackets_and_commas_as_it_likes(lobby: Lobby) -> None:
    text = json.dumps({"description": 'a "quote" \\ ' + MANY}).encode()
    assert lobby.octets("PUT", "/api/vhosts/described", text, ADMINISTRATOR).status == 201


def test_no_message_by_hand_is_longer_than_can_be_read_in_one_go(lobby: Lobby) -> None:
    body = b" " * ((8 << 20) + 1)
    assert lobby.octets("POST", "/api/exchanges/%2F/amq.default/publish", body, ADMINISTRATOR).status == 413


def test_a_curve_has_no_more_points_than_are_quickly_found(lobby: Lobby) -> None:
    assert lobby.ask("GET", "/api/queues?lengths_age=250&lengths_incr=1", user=CLERK).status == 400
    assert lobby.ask("GET", "/api/queues?lengths_age=249&lengths_incr=1", user=CLERK).status == 200
