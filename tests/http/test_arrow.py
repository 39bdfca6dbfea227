"""Blocks to Arrow: every column of every message, the range that was asked for, and no more than was asked for."""

from __future__ import annotations

import datetime

import pytest

from leveret.durable.store import block
from leveret.durable.store.contract import Append
from leveret.message import Encoding, Message
from leveret.protocols.amqp091.broker.encoding import ENCODING as AMQP091
from leveret.protocols.amqp10.broker.encoding import ENCODING as AMQP10
from leveret.protocols.http.bulk import arrow

pa = pytest.importorskip("pyarrow")

ARRIVED = 1_700_000_000_123
PLENTY = 1 << 20


def encoding_of(name: str) -> Encoding | None:
    return {each.name: each for each in (AMQP091, AMQP10)}.get(name)


def blocks(*commits: list[Message], first: int = 0) -> bytes:
    made: list[bytes] = []
    for messages in commits:
        made.append(block.pack(Append(1, 0, first, ARRIVED, messages)))
        first += len(messages)
    return b"".join(made)


def plain(body: bytes = b"x", key: str = "k", properties: bytes = b"", exchange: str = "") -> Message:
    return Message(AMQP091, exchange, key, properties, body)


def rows(
    octets: bytes, offset: int = 0, until: int | None = None, octets_max: int = PLENTY
) -> list[dict[str, object]]:
    made, _ = arrow.made(octets, offset, until, octets_max, encoding_of)
    found: list[dict[str, object]] = pa.ipc.open_stream(made).read_all().to_pylist()
    return found


def test_every_column_of_every_message_is_there() -> None:
    octets = blocks(
        [plain(b"1", "a", b"p", "x"), plain(b"", "b", b"qq", "y"), plain(b"333", "a", b"", "x")], first=7
    )
    arrived = datetime.datetime.fromtimestamp(ARRIVED / 1000, datetime.UTC)
    expected = [
        (7, b"1", "a", b"p", "x"),
        (8, b"", "b", b"qq", "y"),
        (9, b"333", "a", b"", "x"),
    ]
    assert rows(octets, 7) == [
        {
            "offset": offset,
            "timestamp": arrived,
            "exchange": exchange,
            "routing_key": key,
            "body": body,
            "properties": properties,
            "encoding": "amqp091",
        }
        for offset, body, key, properties, exchange in expected
    ]


def test_like_messages_say_the_same_as_unlike_ones() -> None:
    like = [plain(b"1", properties=b"p"), plain(b"2", properties=b"p")]
    unlike = [*like, plain(b"3", "other", b"q")]
    assert rows(blocks(like)) == rows(blocks(unlike))[:2]


@pytest.mark.parametrize("offset", range(7))
@pytest.mark.parametrize("until", [None, *range(1, 8)])
def test_only_what_was_asked_for_is_given(offset: int, until: int | None) -> None:
    octets = blocks([plain(b"0"), plain(b"1", "b"), plain(b"2")], [plain(b"3")], [plain(b"4"), plain(b"5")])
    found = rows(octets, offset, until)
    expected = range(offset, 6 if until is None else min(until, 6))
    assert [(each["offset"], each["body"]) for each in found] == [(n, b"%d" % n) for n in expected]
    _, following = arrow.made(octets, offset, until, PLENTY, encoding_of)
    assert following == max(offset, expected.stop)


def test_nothing_is_a_stream_of_no_batches() -> None:
    made, following = arrow.made(b"", 5, None, PLENTY, encoding_of)
    assert following == 5
    assert pa.ipc.open_stream(made).read_all().num_rows == 0
    assert pa.ipc.open_stream(made).schema == arrow.schema()


def test_octets_that_are_no_utf_8_are_marked_in_texts() -> None:
    assert rows(blocks([plain(key="\udcff!")]))[0]["routing_key"] == "\ufffd\ufffd\ufffd!"


def test_what_a_block_says_once_does_not_become_more_than_was_asked_for() -> None:
    messages = [plain(b"", properties=bytes(10_000)) for _ in range(1000)]
    octets = blocks(messages, messages)
    assert len(octets) < 40_000
    at, answers = 0, 0
    while at < 2000:
        made, following = arrow.made(octets, at, None, 1_000_000, encoding_of)
        assert len(made) < 1_100_000
        assert at < following
        assert pa.ipc.open_stream(made).read_all().column("offset").to_pylist() == list(range(at, following))
        at, answers = following, answers + 1
    assert answers == 21


def test_one_message_is_always_given() -> None:
    octets = blocks([plain(bytes(5000), properties=bytes(5000))] * 3)
    _, following = arrow.made(octets, 0, None, 1, encoding_of)
    assert following == 1


def test_bodies_of_amqp_1_0_are_unwrapped_where_they_are_data() -> None:
    data = Message(AMQP10, "", "k", b"", b"\x00\x53\x75\xa0\x03abc")
    value = Message(AMQP10, "", "k", b"", b"\x00\x53\x77\xa1\x03abc")
    octets = blocks([plain(b"plain"), data, value])
    found = rows(octets)
    assert [each["body"] for each in found] == [b"plain", b"abc", value.body]
    assert [each["encoding"] for each in found] == ["amqp091", "amqp10", "amqp10"]
    assert [each["body"] for each in rows(octets, 1)] == [b"abc", value.body]


def test_bodies_of_a_protocol_that_is_not_installed_stay_as_they_are() -> None:
    octets = blocks([Message(AMQP10, "", "k", b"", b"\x00\x53\x75\xa0\x03abc")])
    made, _ = arrow.made(octets, 0, None, PLENTY, lambda name: None)
    assert pa.ipc.open_stream(made).read_all().to_pylist()[0]["body"] == b"\x00\x53\x75\xa0\x03abc"
