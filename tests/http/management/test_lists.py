"""Lists: a page of them, sorted, filtered by name, some columns only; wrong wishes; and others' turns between."""

from __future__ import annotations

from collections.abc import Callable, Generator

import pytest

from leveret.errors import PreconditionFailed
from leveret.protocols.http.connection import Response
from leveret.protocols.http.management import lists
from leveret.protocols.http.management.lists import ListQuery, listed, rank
from leveret.protocols.http.management.patterns import name_filter
from leveret.protocols.http.server.memory_budget import lists_of, taken_now
from leveret.protocols.http.server.request import Request
from leveret.values import Json
from tests.harness.bench import message

from .lobby import Lobby

NAMES = ("amq.direct", "amq.fanout", "amq.headers", "amq.match", "amq.rabbitmq.trace", "amq.topic")


def names(found: list[dict[str, Json]]) -> list[Json]:
    return [each["name"] for each in found]


def test_without_a_page_there_is_all_in_order(lobby: Lobby) -> None:
    assert names(lobby.get("/api/exchanges/%2F")) == ["", *NAMES]


def test_a_page_says_how_much_there_is(lobby: Lobby) -> None:
    found = lobby.get("/api/exchanges/%2F?page=2&page_size=3")
    assert names(found.pop("items")) == ["amq.headers", "amq.match", "amq.rabbitmq.trace"]
    assert found == {
        "filtered_count": 7,
        "item_count": 3,
        "page": 2,
        "page_count": 3,
        "page_size": 3,
        "total_count": 7,
    }


def test_the_last_page_has_what_is_left(lobby: Lobby) -> None:
    found = lobby.get("/api/exchanges/%2F?page=3&page_size=3")
    assert (names(found["items"]), found["item_count"]) == (["amq.topic"], 1)


def test_a_page_is_of_those_with_the_name_whatever_its_capitals(lobby: Lobby) -> None:
    found = lobby.get("/api/exchanges/%2F?page=1&name=AMQ.T")
    assert names(found["items"]) == ["amq.topic"]
    assert (found["filtered_count"], found["total_count"]) == (1, 7)


def test_an_expression_matches_a_part_of_the_name(lobby: Lobby) -> None:
    found = lobby.get("/api/exchanges/%2F?page=1&name=%5Eamq.(TOPIC%7Cma)&use_regex=true")
    assert names(found["items"]) == ["amq.match", "amq.topic"]


def test_a_dot_is_a_dot_unless_it_is_an_expression(lobby: Lobby) -> None:
    assert lobby.get("/api/exchanges/%2F?page=1&name=a.q")["filtered_count"] == 0
    assert lobby.get("/api/exchanges/%2F?page=1&name=a.q&use_regex=true")["filtered_count"] == 6


def test_names_are_looked_for_with_pages_only(lobby: Lobby) -> None:
    assert len(lobby.get("/api/exchanges/%2F?name=topic")) == 7


def test_a_name_that_nobody_has_makes_an_empty_first_page(lobby: Lobby) -> None:
    found = lobby.get("/api/exchanges/%2F?page=1&name=nobody")
    assert (found["items"], found["page_count"], found["filtered_count"]) == ([], 0, 0)


@pytest.mark.parametrize(
    ("query", "error"),
    [
        ("page=0", "invalid_pagination_parameters"),
        ("page=-1", "invalid_pagination_parameters"),
        ("page=1&page_size=0", "invalid_pagination_parameters"),
        ("page=1&page_size=501", "invalid_pagination_parameters"),
        ("page=2", "page_out_of_range"),
        ("page=99999999999999999999999", "page_out_of_range"),
        ("page=x", "bad_request"),
        ("page=1&page_size=x", "bad_request"),
        ("page=1&name=%5B&use_regex=true", "bad_request"),
        ("page=1&page=2", "bad_request"),
    ],
)
def test_a_page_that_cannot_be_is_refused(lobby: Lobby, query: str, error: str) -> None:
    response = lobby.ask("GET", f"/api/exchanges/%2F?{query}")
    assert (response.status, response.content["error"]) == (400, error)


def test_lists_are_sorted_by_a_column_either_way_and_equals_by_name(lobby: Lobby) -> None:
    upwards = names(lobby.get("/api/exchanges/%2F?sort=type"))
    assert upwards == [
        "",
        "amq.direct",
        "amq.fanout",
        "amq.headers",
        "amq.match",
        "amq.rabbitmq.trace",
        "amq.topic",
    ]
    downwards = names(lobby.get("/api/exchanges/%2F?sort=type&sort_reverse=true"))
    assert downwards == upwards[::-1]


def test_lists_are_sorted_by_a_column_in_a_column_before_they_are_cut(lobby: Lobby) -> None:
    lobby.queue_with(1, "few")
    lobby.queue_with(3, "many")
    lobby.queue_with(2, "some")
    path = "/api/queues?sort=message_stats.publish&sort_reverse=true&columns=name&page_size=2"
    assert lobby.get(f"{path}&page=1")["items"] == [{"name": "many"}, {"name": "some"}]
    assert lobby.get(f"{path}&page=2")["items"] == [{"name": "few"}]


def test_a_column_that_nobody_knows_leaves_the_order_as_it_is(lobby: Lobby) -> None:
    assert names(lobby.get("/api/exchanges/%2F?sort=nonsense.too")) == ["", *NAMES]


def test_values_of_any_kind_have_an_order_with_nothing_as_zero() -> None:
    values: list[Json] = [{"a": 1}, "b", "a", True, 2, -1.5, None, [], False]
    assert sorted(values, key=rank) == [-1.5, None, 2, False, True, "a", "b", [], {"a": 1}]


def test_some_columns_and_parts_of_columns_can_be_asked_for(lobby: Lobby) -> None:
    path = (
        "/api/exchanges/%2F/amq.topic?columns=name,message_stats.publish_in,message_stats.nonsense,nonsense"
    )
    assert lobby.get(path) == {"name": "amq.topic", "message_stats": {"publish_in": 0}}


# Expressions.


@pytest.mark.parametrize("expression", [r"(a)\1", "(?=a)", "(?!a)", "(?<=a)b", "a++", "(a{1,30}){1,30}"])
def test_an_expression_that_could_take_long_is_not_tried(expression: str) -> None:
    with pytest.raises(PreconditionFailed, match="cannot be looked for"):
        name_filter(expression, is_expression=True)


@pytest.mark.parametrize(
    "expression", ["^.*orders.*-v[0-9]+.*$", "(new|old)_queue", r"a\.b\+c\(", "[*+?{(]+x*"]
)
def test_an_expression_that_people_write_is(expression: str) -> None:
    name_filter(expression, is_expression=True)


def test_a_long_name_is_not_looked_for() -> None:
    with pytest.raises(PreconditionFailed):
        name_filter("a" * 201, is_expression=False)


# Others' turns.


def turns(steps: Generator[float, None, Response], done: Callable[[], int]) -> list[int]:
    """How much was done in each turn."""
    counts, before = [], 0
    while True:
        pause_s = next(steps, None)
        now = done()
        counts.append(now - before)
        before = now
        if pause_s is None:
            return counts
        assert pause_s > 0, "others have no turn"


@pytest.mark.parametrize(
    "query", ["page=1&name=7", "page=1", "sort=number", "sort=number&sort_reverse=true&page=1", ""]
)
def test_a_long_list_leaves_others_their_turn(lobby: Lobby, query: str) -> None:
    done = 0

    def looked_at(number: int) -> Json:
        nonlocal done
        done += 1
        return number

    def named(number: int) -> str:
        looked_at(number)
        return str(number)

    def place(number: int) -> tuple[object, ...]:
        looked_at(number)
        return (number,)

    asked = asked_with(lobby, query)
    wish = ListQuery.of(asked)
    steps = lists._steps(asked, wish, range(10_000), {"number": looked_at}, place, named)
    # a clock that stands still: so much at most in a turn, however quick it is
    counts = turns(steps, lambda: done)
    assert sum(counts) >= 10_000
    assert max(counts) <= 3 * 512


def test_slow_columns_leave_others_their_turn_earlier(lobby: Lobby) -> None:
    done = 0

    def slow(number: int) -> Json:
        nonlocal done
        done += 1
        lobby.clock.advance(0.001)
        return number

    asked = asked_with(lobby, "sort=number")
    steps = lists._steps(asked, ListQuery.of(asked), range(200), {"number": slow}, lambda n: (n,), str)
    assert max(turns(steps, lambda: done)) <= 2 * 8


def test_work_that_finds_nothing_is_work_too(lobby: Lobby) -> None:
    nothing: list[int | None] = [None] * 5000
    asked = asked_with(lobby, "page=1")
    steps = lists._steps(asked, ListQuery.of(asked), nothing, {}, lambda n: (n,), str)
    assert len(turns(steps, lambda: 0)) >= 5000 // 512


def test_long_lists_share_a_room(lobby: Lobby) -> None:
    asked, broker = asked_with(lobby, ""), lobby.broker
    room = lists_of(broker)
    other = taken_now(room, broker, room.octets)
    assert other is not None
    for number in range(1001):
        lobby.host.declare_queue(f"q{number:04}")
    refused = lobby.ask("GET", "/api/queues?columns=name")
    assert (refused.status, refused.headers["Retry-After"]) == (503, "1")
    assert len(lobby.get("/api/queues?columns=name&page=1")["items"]) == 100
    other.end()
    assert len(lobby.get("/api/queues?columns=name")) == 1001
    assert room.taken == 0
    later = listed(asked, range(1001), {"n": lambda n: n}, lambda n: (n,), str)
    later.dropped()  # nobody waits any more
    assert room.taken == 0


def asked_with(lobby: Lobby, query: str) -> Request:
    pairs = [pair.partition("=") for pair in query.split("&") if pair]
    return Request(lobby.broker, {}, {name: [value] for name, _, value in pairs})


# Memory.


def test_curves_of_many_things_take_no_more_memory_than_there_is_for_lists(lobby: Lobby) -> None:
    host = lobby.broker.virtual_host("/")
    for number in range(20):
        host.declare_queue(f"q{number}")
    for _ in range(50):
        lobby.sample()
    path = "/api/queues?page=1&lengths_age=240&lengths_incr=1&msg_rates_age=240&msg_rates_incr=1"
    rooms = lists_of(lobby.broker)
    rooms.taken = rooms.octets - (1 << 20)
    assert lobby.ask("GET", path).status == 503
    assert rooms.taken == rooms.octets - (1 << 20)
    rooms.taken = 0
    assert len(lobby.ask("GET", path).body) > 1 << 20
    assert rooms.taken == 0


def test_dead_letters_that_are_held_are_told_with_the_reason(lobby: Lobby) -> None:
    arguments = {"x-dead-letter-exchange": "gone", "x-dead-letter-strategy": "at-least-once"}
    queue = lobby.host.declare_queue("q", arguments={**arguments, "x-overflow": "reject-publish"})
    few = ("messages", "messages_dlx", "message_bytes_dlx", "dead_letters_wait")
    assert [lobby.get("/api/queues/%2F/q")[name] for name in few] == [0, 0, 0, None]
    lobby.broker.publish(lobby.host.default_exchange, message("q", b"hello"))
    delivery = queue.take_one(settled=False)
    assert delivery is not None
    queue.reject(delivery)
    lobby.settle()
    assert [lobby.get("/api/queues/%2F/q")[name] for name in few] == [0, 1, 5, "no exchange 'gone'"]
    columns = "page=1&columns=name,messages_dlx&sort=messages_dlx&sort_reverse=true"
    assert lobby.get(f"/api/queues?{columns}")["items"][0] == {"name": "q", "messages_dlx": 1}
