"""Streams over HTTP in memory: which a user may see and read, and where answers begin and end."""

from __future__ import annotations

from urllib.parse import quote

import pytest

from leveret.values import Table
from tests.core.fakes import FakeConsumer
from tests.harness.http import no_number
from tests.http.stand import Stand, bodies, told

SUPER: Table = {"x-super-stream": True}


# Which there are.


def test_only_streams_that_the_user_may_read_are_listed(stand: Stand) -> None:
    stand.publish(b"1", b"22")
    stand.declare("secret-stream")
    stand.declare("private")
    stand.host.declare_queue("simple", durable=True)
    content = stand.ask("").response.json
    assert isinstance(content, list)
    assert [each["name"] for each in content] == ["s", "secret-stream"]
    assert content[0] == stand.ask("/s").response.content
    assert content[0] == {
        "name": "s",
        "incarnation": stand.stream.incarnation,
        "first": 0,
        "next": 2,
        "messages": 2,
        "octets": 3,
    }


def test_readers_are_told_with_how_far_behind_they_are(stand: Stand) -> None:
    stand.publish(b"1", b"2", b"3")
    assert stand.ask("/s/readers").response.json == []
    FakeConsumer(stand.stream, credit=2, arguments={"x-stream-offset": "first"})
    stand.broker.settle()
    assert stand.ask("/s/readers").response.json == [
        {"tag": "", "connection": "", "channel": 0, "next": 2, "lag": 1}
    ]


def test_a_super_stream_tells_its_partitions_in_their_order(stand: Stand) -> None:
    exchange = stand.host.declare_exchange("super", "direct", durable=True, arguments=SUPER)
    for name, order in (("s-1", 1), ("s-0", 0)):
        stand.host.bind(exchange, stand.declare(name), str(order), {"x-stream-partition-order": order})
    partitions = stand.ask("/super").response.content["partitions"]
    assert isinstance(partitions, list)
    assert [each["name"] for each in partitions] == ["s-0", "s-1"]
    assert stand.ask("").response.json[-1] == {"name": "super", "partitions": ["s-0", "s-1"]}
    stand.host.bind(exchange, stand.declare("private"), "2", {"x-stream-partition-order": 2})
    assert stand.ask("/super").response.status == 403


LAST_OFFSET = 2**63 - 1
REFUSED = {
    "/private": (403, "read access to queue 'private' in vhost '/' refused for user 'reader'"),
    "/none": (403, "read access to queue 'none' in vhost '/' refused for user 'reader'"),
    "/sold-out": (404, "no queue 'sold-out' in vhost '/'"),
    "/simple/offset?timestamp=1": (400, "queue 'simple' in vhost '/' is no stream"),
    "/s/offset": (400, "parameter 'timestamp' is missing"),
    "/s/offset?timestamp=1&x=1": (400, "unknown parameter 'x'; known are timestamp"),
    "/s/blocks": (400, "parameter 'from' is missing"),
    "/s/blocks?from=-1": no_number("from", "-1", 0, LAST_OFFSET),
    "/s/blocks?from=%C2%B2": no_number("from", "²", 0, LAST_OFFSET),
    "/s/blocks?from=1&until=1": no_number("until", "1", 2, LAST_OFFSET),
    "/s/blocks?from=0&max_octets=16777217": no_number("max_octets", "16777217", 1, 16777216),
    "/s/blocks?from=0&wait_ms=30001": no_number("wait_ms", "30001", 0, 30000),
    "/s/blocks?from=0&columns=body": (
        400,
        "parameter 'columns' is for format=arrow: blocks are sent as they are",
    ),
    "/s/blocks?from=0&format=arrow&columns=body,bodies": (
        400,
        "parameter 'columns' is 'body,bodies', not some of offset, timestamp, exchange, routing_key, body, properties,"
        " encoding, each once",
    ),
    "/s/blocks?from=0&format=csv": (400, "parameter 'format' is 'csv', not one of blocks, arrow"),
    "/s/blocks?from=2": (416, "queue 's' in vhost '/' has no offset 2 yet; its next is 1"),
    "/s/blocks?from=0&incarnation=x": (409, "queue 's' in vhost '/' has another incarnation than 'x'"),
}


@pytest.mark.parametrize("path", REFUSED)
def test_what_cannot_be_read_is_refused_in_words(stand: Stand, path: str) -> None:
    stand.host.declare_queue("simple", durable=True)
    stand.publish(b"x")
    assert stand.ask(path).response.refusal == REFUSED[path]


def test_who_may_do_everything_but_read_is_told_nothing(stand: Stand) -> None:
    assert stand.ask("", user="writer").response.json == []
    for path in ("/s", "/s/offset?timestamp=1", "/s/blocks?from=0", "/none"):
        assert stand.ask(path, user="writer").response.status == 403


@pytest.mark.parametrize("name", ["closed", "none"])
def test_a_virtual_host_that_is_closed_to_the_user_is_as_one_that_is_not_there(
    stand: Stand, name: str
) -> None:
    assert stand.ask("", host=name).response.refusal == (
        403,
        f"access to vhost '{name}' refused for user 'reader'",
    )


def test_an_offset_is_found_by_time(stand: Stand) -> None:
    for _ in range(3):
        stand.publish(b"x")
        stand.advance(10)
    arrived_ms = 1_000_000_000_000
    for since_ms, expected in ((0, 0), (arrived_ms + 5, 1), (arrived_ms + 20_000, 2), (arrived_ms * 2, 3)):
        response = stand.ask(f"/s/offset?timestamp={since_ms}").response
        assert response.content == {"offset": expected}


# What is there.


def test_blocks_tell_what_is_in_them_and_where_to_go_on(stand: Stand) -> None:
    stand.publish(b"a", b"b", b"c")
    response = stand.blocks("from=1")
    assert bodies(response) == [(1, b"b"), (2, b"c")]
    assert told(response) == (1, 3, 3)
    assert response.headers["Leveret-Incarnation"] == stand.stream.incarnation


def test_a_stream_is_read_to_its_end_in_small_answers(stand: Stand) -> None:
    expected = [(at, bytes([at]) * 300) for at in range(20)]
    stand.publish(*(body for _, body in expected))
    read: list[tuple[int, bytes]] = []
    while len(read) < 20:
        response = stand.blocks(f"from={len(read)}&max_octets=1000")
        first, following, _ = told(response)
        assert (first, following) == (len(read), len(read) + len(bodies(response)))
        assert len(response.body) < 2500
        read += bodies(response)
    assert read == expected


def test_until_is_where_no_block_begins(stand: Stand) -> None:
    stand.publish(b"a", b"b", b"c")
    assert bodies(stand.blocks("from=0&until=2")) == [(0, b"a"), (1, b"b")]
    assert told(stand.blocks("from=0&until=2")) == (0, 2, 3)


def test_at_the_end_there_is_nothing_and_the_same_offset_is_next(stand: Stand) -> None:
    stand.publish(b"a")
    response = stand.blocks("from=1")
    assert (bodies(response), told(response)) == ([], (1, 1, 1))


def test_what_retention_has_taken_is_gone_and_the_first_is_told(stand: Stand) -> None:
    stand.publish(*[b"x" * 100] * 5)
    stand.stream.log.retain(250, None)
    response = stand.blocks("from=1")
    assert response.status == 410
    assert (response.content["first"], response.content["next"]) == (3, 5)


def test_head_tells_the_headers_only(stand: Stand) -> None:
    stand.publish(b"a")
    response = stand.ask("/s/blocks?from=0", method="HEAD").response
    assert (response.status, response.body, told(response)) == (200, b"", (0, 1, 1))


def test_names_are_percent_decoded(stand: Stand) -> None:
    stand.declare("s/ö")
    assert stand.ask("/" + quote("s/ö", safe="")).response.content["name"] == "s/ö"
