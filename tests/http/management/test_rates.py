"""Rates and curves, as the histories have them."""

from __future__ import annotations

import pytest

from leveret.observability.history import History
from leveret.protocols.amqp091.codec import methods as m
from leveret.values import Json

from .lobby import Lobby

Q = "/api/queues/%2F/q"
CURVES = "lengths_age=20&lengths_incr=5&msg_rates_age=20&msg_rates_incr=5&data_rates_age=20&data_rates_incr=5"


def publish(lobby: Lobby, count: int) -> None:
    channel = lobby.client().channel(1)
    channel.call(m.QueueDeclare("q"))
    for _ in range(count):
        channel.publish("", "q", b"hello")


def samples(details: dict[str, list[dict[str, int]]]) -> list[int]:
    return [each["sample"] for each in details["samples"]]


def test_a_rate_is_that_of_the_last_interval(lobby: Lobby) -> None:
    publish(lobby, 10)
    lobby.sample()
    assert lobby.get(Q)["message_stats"]["publish_details"] == {"rate": 2.0}
    lobby.sample()
    assert lobby.get(Q)["message_stats"]["publish_details"] == {"rate": 0.0}


def test_counts_are_told_as_they_are_now(lobby: Lobby) -> None:
    publish(lobby, 3)
    told = lobby.get(Q)
    assert (told["message_stats"]["publish"], told["messages"]) == (3, 3)
    assert told["message_stats"]["publish_details"] == {"rate": 0.0}


def test_lengths_fall_too(lobby: Lobby) -> None:
    publish(lobby, 10)
    lobby.sample()
    assert lobby.get(Q)["messages_details"] == {"rate": 2.0}
    lobby.queue("q").purge()
    lobby.sample()
    told = lobby.get(Q)
    assert (told["messages_details"], told["messages_ready_details"]) == ({"rate": -2.0}, {"rate": -2.0})


def test_a_curve_has_its_points_from_now_backwards(lobby: Lobby) -> None:
    for _ in range(3):
        publish(lobby, 2)
        lobby.sample()
    told = lobby.get(f"{Q}?{CURVES}")
    details = told["message_stats"]["publish_details"]
    assert samples(details) == [6, 4, 2, 0]
    times = [each["timestamp"] for each in details["samples"]]
    assert [times[0] - time for time in times] == [0, 5000, 10_000, 15_000]  # the node is not older
    assert times[0] % 5000 == 0
    assert abs(times[0] / 1000 - lobby.clock.wall()) <= 10
    assert (details["rate"], details["avg_rate"], details["avg"]) == (0.4, 6 / 15, 12 / 4)
    assert samples(told["messages_details"]) == [6, 4, 2, 0]
    assert samples(told["message_stats"]["deliver_get_details"]) == [0] * 4


def test_what_was_always_idle_has_a_flat_curve(lobby: Lobby) -> None:
    lobby.client().channel(1).call(m.QueueDeclare("q"))
    lobby.sample()
    details = lobby.get(f"{Q}?{CURVES}")["message_stats"]["publish_details"]
    assert (samples(details), details["avg"], details["avg_rate"]) == ([0] * 2, 0, 0)


def test_octets_of_a_connection_have_their_own_curve(lobby: Lobby) -> None:
    peer = lobby.client()
    lobby.sample()
    lobby.wire(peer).octets_received += 1000
    lobby.sample()
    told = lobby.get(f"/api/connections?{CURVES}")[0]
    assert told["recv_oct_details"]["rate"] == 200.0
    assert samples(told["recv_oct_details"])[:2] == [1300, 300]
    assert (
        "samples"
        not in lobby.get("/api/connections?msg_rates_age=20&msg_rates_incr=5")[0]["recv_oct_details"]
    )


def test_the_overview_has_curves_of_everything(lobby: Lobby) -> None:
    publish(lobby, 5)
    lobby.sample()
    told = lobby.get(f"/api/overview?{CURVES}")
    assert samples(told["message_stats"]["publish_details"])[0] == 5
    assert samples(told["queue_totals"]["messages_details"])[0] == 5
    assert samples(told["churn_rates"]["queue_created_details"])[0] == 1


def test_the_node_has_curves_and_invents_none_of_their_points(lobby: Lobby) -> None:
    of_eight_hours = "/api/nodes/leveret?node_stats_age=28800&node_stats_incr=600"
    details = lobby.get(of_eight_hours)["mem_used_details"]
    assert (details["samples"], details["avg"], details["avg_rate"]) == ([], 0, 0)
    lobby.sample()
    few = lobby.get("/api/nodes/leveret?node_stats_age=600&node_stats_incr=5")["mem_used_details"]
    assert len(few["samples"]) == 2
    lobby.sample()
    details = lobby.get("/api/nodes/leveret?node_stats_age=10&node_stats_incr=5")["mem_used_details"]
    assert len(details["samples"]) == 3
    assert details["avg"] > 0


def test_a_channel_has_rates(lobby: Lobby) -> None:
    publish(lobby, 5)
    lobby.sample()
    stats = lobby.get("/api/channels")[0]["message_stats"]
    assert (stats["publish"], stats["publish_details"]) == (5, {"rate": 1.0})


def test_another_channel_of_the_same_number_begins_with_nothing(lobby: Lobby) -> None:
    peer = lobby.client()
    channel = peer.channel(1)
    channel.call(m.QueueDeclare("q"))
    for _ in range(50):
        channel.publish("", "q", b"hello")
    lobby.sample()
    channel.call(m.ChannelClose(200, "", 0, 0))
    peer.channel(1)
    lobby.sample()
    stats = lobby.get("/api/channels")[0]["message_stats"]
    assert (stats["publish"], stats["publish_details"]) == (0, {"rate": 0.0})


@pytest.mark.parametrize(
    "query",
    [
        "msg_rates_age=x&msg_rates_incr=5",
        "msg_rates_age=60&msg_rates_incr=0",
        "msg_rates_age=-1&msg_rates_incr=5",
        "msg_rates_age=100000&msg_rates_incr=1",
        "lengths_age=99999999999999999999999999&lengths_incr=1",
    ],
)
def test_a_curve_that_cannot_be_is_refused(lobby: Lobby, query: str) -> None:
    lobby.client().channel(1).call(m.QueueDeclare("q"))
    for path in (Q, "/api/queues", "/api/overview"):
        assert lobby.ask("GET", f"{path}?{query}").status == 400


def test_without_a_history_counts_are_told_and_nothing_changes(lobby: Lobby) -> None:
    publish(lobby, 5)
    lobby.broker.guests.remove(History)
    told: dict[str, Json] = lobby.get(Q)["message_stats"]
    assert (told["publish"], told["publish_details"]) == (5, {"rate": 0.0})
    assert lobby.get("/api/overview")["queue_totals"]["messages"] == 5
    assert lobby.get("/api/nodes/leveret")["mem_used"] > 0


def test_each_column_that_has_a_quick_way_is_sorted_by_what_is_told_in_it(lobby: Lobby) -> None:
    """Rates, counts and averages of all kinds: no two are alike, and some go down."""
    channel = lobby.client().channel(1)
    for number, name in enumerate("abcd"):
        channel.call(m.QueueDeclare(name))
        channel.call(m.ExchangeDeclare(f"x{name}", "fanout"))
        channel.call(m.QueueBind(name, f"x{name}"))
        for _ in range(7 * number % 5 + 1):
            channel.publish(f"x{name}", "", b"hello")
    lobby.sample()
    lobby.queue("c").purge()
    channel.publish("xb", "", b"hello")
    lobby.sample()
    for kind, keys in COLUMNS.items():
        for column in keys:
            rows = lobby.get(f"/api/{kind}?{CURVES}&sort={column}")
            told = [inner(row, column) for row in rows]
            assert told == sorted(told), (kind, column)
            backwards = lobby.get(f"/api/{kind}?{CURVES}&sort={column}&sort_reverse=true")
            assert [inner(row, column) for row in backwards] == sorted(told, reverse=True), (kind, column)


DETAILS = ("rate", "avg_rate", "avg")
COUNTED = ("publish", "deliver", "deliver_get", "ack")
LENGTHS = ("messages", "messages_ready", "messages_unacknowledged")
COLUMNS = {
    "queues": [
        *(f"message_stats.{name}" for name in COUNTED),
        *(f"message_stats.{name}_details.{part}" for name in COUNTED for part in DETAILS),
        *(f"{name}_details.{part}" for name in LENGTHS for part in DETAILS),
    ],
    "exchanges": [
        "message_stats.publish_in",
        *(
            f"message_stats.{name}_details.{part}"
            for name in ("publish_in", "publish_out")
            for part in DETAILS
        ),
    ],
    "channels": ["message_stats.publish", "message_stats.publish_details.rate"],
    "connections": [f"{name}_oct_details.{part}" for name in ("recv", "send") for part in DETAILS],
}


def inner(row: Json, column: str) -> float:
    for name in column.split("."):
        assert isinstance(row, dict)
        row = row[name]
    assert isinstance(row, int | float)
    return row


def test_a_virtual_host_has_the_rates_and_curves_of_its_queues(lobby: Lobby) -> None:
    for _ in range(2):
        publish(lobby, 10)
        lobby.sample()
    publish(lobby, 1)
    told = lobby.get(f"/api/vhosts/%2F?{CURVES}")
    assert (told["messages"], told["message_stats"]["publish"]) == (21, 20)  # now, and when last sampled
    assert told["messages_details"]["rate"] == told["message_stats"]["publish_details"]["rate"] == 2.0
    assert (
        samples(told["messages_details"]) == samples(told["message_stats"]["publish_details"]) == [20, 10, 0]
    )
    assert lobby.get("/api/vhosts")[0]["message_stats"]["publish_details"] == {"rate": 2.0}
