"""What a channel has not acknowledged is listed, and renewed, over HTTP."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from tests.amqp091.peer import ClientChannel

from .lobby import Lobby

FIRST = "127.0.0.1:40000 -> 127.0.0.1:5672"


def at(channel: str, tag: str = "") -> str:
    path = f"/api/leveret/channels/{quote(channel, safe='')}/deliveries"
    return f"{path}/{tag}/renew" if tag else path


def holding(lobby: Lobby, user: str = "guest") -> ClientChannel:
    channel = lobby.client(user).channel(3)
    channel.declare("mine", arguments={"x-consumer-timeout": 5000})
    for body in (b"a", b"b"):
        channel.publish("", "mine", body)
    channel.prefetch(2)
    channel.consume("mine", "slow")
    assert len(channel.deliveries()) == 2
    return channel


def test_what_is_not_acknowledged_is_told_with_the_time_that_is_left(lobby: Lobby) -> None:
    channel = holding(lobby)
    channel.get("mine", no_ack=False)
    lobby.advance(2)
    told = lobby.get(at(f"{FIRST} (3)"))
    assert [each["delivery_tag"] for each in told] == [1, 2]
    assert told[0] == {
        "delivery_tag": 1,
        "queue": "mine",
        "consumer_tag": "slow",
        "redelivered": False,
        "held_ms": 2000,
        "left_ms": 3000,
        "timeout_ms": 5000,
    }


@pytest.mark.parametrize(("tag", "count", "left"), [("2", 1, (1, 1)), ("all", 2, (0, 2))])
def test_a_renewed_delivery_has_its_whole_time_again(
    lobby: Lobby, tag: str, count: int, left: tuple[int, int]
) -> None:
    holding(lobby)
    lobby.advance(4)
    assert lobby.ask("PUT", at(f"{FIRST} (3)", tag)).json == {"renewed": count}
    lobby.advance(4)
    queue = lobby.queue("mine")
    assert (queue.ready, queue.unsettled) == left


@pytest.mark.parametrize("tag", ["9", "0", "x", "-1", "1" * 30, "%D9%A1"])
def test_what_is_not_held_is_not_renewed(lobby: Lobby, tag: str) -> None:
    holding(lobby)
    assert lobby.ask("PUT", at(f"{FIRST} (3)", tag)).status == 404


@pytest.mark.parametrize("channel", [FIRST, f"{FIRST} (4)", f"{FIRST} (x)", "nobody (1)", "(3)"])
def test_a_channel_that_is_not_there_has_no_deliveries(lobby: Lobby, channel: str) -> None:
    holding(lobby)
    assert lobby.ask("GET", at(channel)).status == 404
    assert lobby.ask("PUT", at(channel, "all")).status == 404


def test_users_renew_their_own_and_administrators_all(lobby: Lobby) -> None:
    channel = f"{FIRST} (3)"
    clerk = lobby.client("clerk").channel(3)
    clerk.declare("mine", arguments={"x-consumer-timeout": 5000})
    publisher = lobby.client().channel()
    for body in (b"a", b"b"):
        publisher.publish("", "mine", body)
    assert clerk.get("mine", no_ack=False) is not None
    assert lobby.ask("PUT", at(channel, "1"), user="clerk").status == 200
    assert lobby.ask("PUT", at(channel, "1")).status == 200
    assert lobby.ask("GET", at(channel), user="watcher").status == 200
    assert lobby.ask("PUT", at(channel, "1"), user="watcher").status == 403  # to watch is not to change
    assert lobby.ask("GET", at(channel), user="stranger").status == 404
