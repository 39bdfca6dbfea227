"""Blocks that a stranger sends: what of them is refused in which words, and that nothing is ever taken by halves."""

from __future__ import annotations

import json
import struct
from typing import Final
from zlib import crc32

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leveret.durable.store import block
from leveret.features.staging.staging import stagings_of
from leveret.message import Facts, Message
from leveret.protocols.amqp091.broker.encoding import ENCODING, WRITTEN_MAX
from leveret.protocols.http.bulk import input_blocks
from leveret.values import Json, Properties
from tests.durable.store.test_chunk import fields, told
from tests.http.press import BASE, DURABLE, Press, packed, rows

ORIGIN: Final[list[Json]] = ["amqp091", False, 0, None, None, None, [], [], False, None, "", "q"]
PIECE: Final = f"{BASE}/7/0/1?piece=0"


def octets_of(
    origins: Json | bytes = None,
    count: int = 2,
    flags: int = block.SAME,
    which: bytes = b"",
    positions: bytes = b"",
    properties: tuple[bytes, bytes] = (b"", DURABLE),
    ends: tuple[int, ...] = (0, 1, 2),
    bodies: bytes = b"ab",
) -> bytes:
    """A block whose checksums fit, whatever it says. `properties`: where they end, and the octets."""
    said = (
        origins
        if isinstance(origins, bytes)
        else json.dumps([ORIGIN] if origins is None else origins).encode()
    )
    parts = [said, which, positions, *properties, struct.pack(f"<{len(ends)}I", *ends), bodies]
    payload = b"".join(part + bytes(-len(part) % 8) for part in parts)
    octets = block.HEADER_OCTETS + len(payload)
    head = block.HEADER.pack(
        block.MAGIC,
        1,
        flags,
        0,
        octets,
        count,
        0,
        0,
        1,
        len(said),
        len(properties[1]),
        len(bodies),
        crc32(payload),
        0,
        0,
    )
    return head + struct.pack("<I", crc32(head)) + payload


def said_with(**changes: Json) -> list[Json]:
    """An origin with something else at `at_N`."""
    changed = list(ORIGIN)
    for name, value in changes.items():
        changed[int(name.removeprefix("at_"))] = value
    return [changed]


CANNOT = "the block at octet 0 cannot be read: "
NAMES = "the block at octet 0 has an origin whose encoding, exchange or routing key is no text of 255 octets or less"
NO_LIST = "the block at octet 0 has an origin that is no list of 12"
WHICH = struct.pack("<2I", 0, 1)
REFUSED = {
    "nothing": (b"", "the body has no blocks"),
    "noise": (b"x" * 100, CANNOT + "the checksum of a block's header does not fit"),
    "half a head": (rows("q", b"a")[:40], CANNOT + "the header of a block is cut off"),
    "half a block": (rows("q", b"a")[:-8], CANNOT + "a block is cut off"),
    "something behind": (
        octets_of() + b"x",
        "the block at octet 176 cannot be read: the header of a block is cut off",
    ),
    "another payload": (octets_of()[:-1] + b"x", CANNOT + "the checksum of a block does not fit"),
    "no json": (octets_of(b"[x]"), CANNOT + "Expecting value: line 1 column 2 (char 1)"),
    "no origins": (octets_of([]), "the block at octet 0 has rows without an origin"),
    "no list of origins": (octets_of({}), "the block at octet 0 has rows without an origin"),
    "another origin": (
        octets_of(flags=block.SAME | block.WHICH, which=WHICH),
        "the block at octet 0 has rows without an origin",
    ),
    "no origin": (octets_of([1]), NO_LIST),
    "a short origin": (octets_of([ORIGIN[1:]]), NO_LIST),
    "a number as key": (octets_of(said_with(at_11=1)), NAMES),
    "nothing as exchange": (octets_of(said_with(at_10=None)), NAMES),
    "a list as encoding": (octets_of(said_with(at_0=["amqp091"])), NAMES),
    "a long key": (octets_of(said_with(at_11="é" * 128)), NAMES),
    "half a letter": (
        octets_of(b"[" + json.dumps(ORIGIN).replace('"q"', '"\\ud800"').encode() + b"]"),
        NAMES,
    ),
    "a strange protocol": (
        octets_of(said_with(at_0="mqtt")),
        "a message is of the protocol 'mqtt', which is not installed",
    ),
    "ends that fall": (
        octets_of(ends=(0, 2, 2), bodies=b"abc"),
        CANNOT + "the ends of pieces do not ascend to their size",
    ),
    "ends beyond": (octets_of(ends=(0, 3, 2)), CANNOT + "the ends of pieces do not ascend to their size"),
    "a late begin": (octets_of(ends=(1, 1, 2)), CANNOT + "the ends of pieces do not ascend to their size"),
    "ends of properties beyond": (
        octets_of(flags=0, properties=(struct.pack("<3I", 0, 9, 4), b"abcd")),
        CANNOT + "the ends of pieces do not ascend to their size",
    ),
    "broken properties": (octets_of(properties=(b"", b"\xff\xff")), "the properties cannot be read: "),
    "long properties": (
        octets_of(properties=(b"", bytes(WRITTEN_MAX + 1))),
        f"the properties have {WRITTEN_MAX + 1} octets, {WRITTEN_MAX} are the most",
    ),
    "a wrong expiration": (
        octets_of(properties=(b"", bytes((0x01, 0x00)) + b"\x01x")),
        "invalid expiration 'x': no_integer",
    ),
    "the own queue of a channel": (
        rows("q", b"a", properties=ENCODING.write(Properties(reply_to="amq.rabbitmq.reply-to"))),
        "fast reply consumer does not exist",
    ),
    "another user": (
        rows("q", b"a", properties=ENCODING.write(Properties(user_id="root"))),
        "user_id property set to 'root' but authenticated user was 'spark'",
    ),
    "CC that is no list": (
        rows("q", b"a", properties=ENCODING.write(Properties(headers={"CC": "q"}))),
        "invalid message: unacceptable type 'longstr' in header 'CC', expected an array",
    ),
    "a large message": (
        rows("q", b"", bytes(2_000_001)),
        "message size 2000001 is larger than configured max size 2000000 (limits.message_size_max)",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_wrong_with_a_block_is_said_and_nothing_of_the_request_is_taken(
    press: Press, name: str
) -> None:
    wrong, reason = REFUSED[name]
    response = press.ask("POST", PIECE, wrong)
    assert response.status == 400
    assert str(response.content["reason"]).startswith(reason)
    if wrong:
        response = press.ask("POST", PIECE, rows("q", b"fine") + wrong)
        assert response.status == 400
    assert not stagings_of(press.host)
    assert press.ask("POST", "/api/leveret/publish/%2F", rows("q", b"fine") + wrong).status == (
        400 if wrong else 200
    )
    assert press.bodies() == ("" if wrong else "fine")


def test_what_protocols_are_published_otherwise_only(press: Press) -> None:
    response = press.ask("POST", PIECE, octets_of(said_with(at_0="fake")))
    assert response.status == 501
    assert response.content["reason"] == "messages of the protocol 'fake' are taken over that protocol only"


def test_a_block_is_of_one_protocol(press: Press) -> None:
    assert press.ask("POST", PIECE, octets_of([ORIGIN, *said_with(at_0="fake")])).refusal == (
        400,
        "the block at octet 0 has messages of several protocols",
    )


ACCESS = {
    "secret": (403, "write access to exchange 'secret' in vhost '/' refused for user 'spark'"),
    "x": (404, "no exchange 'x' in vhost '/'"),
    "inner": (403, "cannot publish to internal exchange 'inner' in vhost '/'"),
}


@pytest.mark.parametrize("name", ACCESS)
def test_who_may_not_publish_to_an_exchange_may_not_stage_for_it(press: Press, name: str) -> None:
    press.host.declare_exchange("inner", "fanout", durable=True, internal=True)
    response = press.ask("POST", PIECE, rows("q", b"fine") + rows("q", b"a", exchange=name))
    assert response.refusal == ACCESS[name]
    assert not stagings_of(press.host)


def test_topic_permissions_hold_for_every_key(press: Press) -> None:
    press.host.bind(press.site.exchange("topics", "topic"), press.queue, "#", {})
    press.broker.access.set_topic_permissions("spark", "/", "topics", "^a", ".*")
    hidden = ENCODING.write(Properties(headers={"BCC": ["a.1", "b.2"]}))
    refused = "write access to topic '{}' in exchange 'topics' in vhost '/' refused for user 'spark'"
    for body, key in (
        (rows("b.1", b"a", exchange="topics"), "b.1"),
        (rows("a", b"a", exchange="topics", properties=hidden), "b.2"),
    ):
        assert press.ask("POST", PIECE, rows("q", b"fine") + body).refusal == (403, refused.format(key))
    assert press.stage("7/0/1?piece=0", rows("a", b"a", exchange="topics")) == {"rows": 1}


def test_there_are_so_many_rows_and_origins_in_a_request_and_no_more(
    press: Press, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(input_blocks, "ROWS_MAX", 3)
    assert press.ask("POST", PIECE, octets_of() + octets_of()).refusal == (
        400,
        "there are more than 3 rows; send smaller requests",
    )
    monkeypatch.setattr(input_blocks, "ORIGINS_OCTETS_MAX", 100)
    response = press.ask("POST", PIECE, octets_of(said_with(at_11="k" * 60)))
    assert response.content["reason"] == "the origins have more than 100 octets; send smaller requests"


def test_many_origins_and_properties_are_checked_a_portion_at_a_time(press: Press) -> None:
    messages = [
        Message(ENCODING, "", f"k{n}", ENCODING.write(Properties(message_id=str(n))), b"x", Facts())
        for n in range(5000)
    ]
    incoming_rows = packed([*messages, Message(ENCODING, "", "q", b"\0\0", b"last", Facts())])
    assert press.stage("7/0/1?piece=0", incoming_rows) == {"rows": 5001}
    assert press.commit(7, [0, 1, 5001]) == {"published": 1, "unroutable": 5000, "repeated": False}
    assert press.bodies() == "last"


def test_rows_of_which_the_broker_knows_the_same_are_of_one_kind(press: Press) -> None:
    """Or the store would write each kind down, and reading and packing cost many times as much."""
    plain = [Properties(message_id=str(n), durable=True) for n in range(3)]
    others = [Properties(durable=True, priority=1), Properties(durable=True, headers={"n": 1})]
    messages = [Message(ENCODING, "", "q", ENCODING.write(each), b"x", Facts()) for each in (*plain, *others)]
    press.stage("7/0/1?piece=0", packed(messages))
    press.commit(7, [0, 1, 5])
    first, second, third, *rest = [each.message.facts for each in press.queue.waiting()]
    assert first is second is third
    assert len({id(facts) for facts in (first, *rest)}) == 3


LIES: Final = {
    "at_1": False,
    "at_2": 9,
    "at_3": 1,
    "at_4": "root",
    "at_5": "elsewhere",
    "at_6": ["other"],
    "at_7": ["hidden"],
    "at_8": True,
    "at_9": [[["q", "expired", 1, 1, 1, "", ["q"], None]], ["expired", "q", ""], ["expired", "q", ""], 7],
}


@pytest.mark.parametrize("key", ["q", "s"])
def test_nothing_is_believed_that_a_block_says_of_its_rows(press: Press, key: str) -> None:
    press.site.queue("s", x_queue_type="stream")
    press.site.queue("other")
    press.stage("7/0/1?piece=0", octets_of(said_with(**LIES, at_11=key)))  # type: ignore[arg-type]
    press.commit(7, [0, 1, 2])
    assert press.bodies(key) == "a b"
    assert press.bodies("other") == ""
    for delivery in press.host.queues[key].waiting():
        facts, notes = delivery.message.facts, delivery.message.notes
        assert fields(facts) == fields(Facts(durable=True))
        assert notes is None or (notes.deaths, notes.first_death, notes.last_death) == ((), None, None)


# Anything at all.

values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.sampled_from(["amqp091", "q", ""]),
    lambda inner: st.lists(inner, max_size=13) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=14,
)
origins = st.lists(st.integers(0, 11), max_size=3).flatmap(
    lambda places: st.tuples(*[values for _ in places]).map(
        lambda found: said_with(**{f"at_{place}": value for place, value in zip(places, found, strict=True)})
    )
)
ends = st.lists(st.integers(0, 5) | st.integers(0, (1 << 32) - 1), min_size=3, max_size=3).map(tuple)
blocks = st.builds(
    octets_of,
    origins=origins
    | st.lists(values, max_size=3)
    | values
    | st.binary(max_size=30)
    | st.just(b"[" * 200_000),
    count=st.sampled_from([2, 2, 2, 0, 1, 3, 1 << 31]),
    flags=st.integers(0, 7),
    which=st.binary(max_size=8),
    positions=st.binary(max_size=16),
    properties=st.tuples(st.binary(max_size=12), st.binary(max_size=12) | st.just(DURABLE)),
    ends=ends | st.just((0, 1, 2)),
    bodies=st.binary(min_size=2, max_size=2) | st.binary(max_size=9),
)


@given(body=st.lists(blocks, max_size=3).map(b"".join), tail=st.sampled_from([b"", rows("q", b"a"), b"x"]))
@settings(max_examples=100, deadline=None)
def test_whatever_comes_is_taken_as_a_whole_or_refused_with_a_reason(body: bytes, tail: bytes) -> None:
    press = Press()
    response = press.ask("POST", PIECE, rows("q", b"first") + body + tail)
    assert response.status in (200, 400, 403, 404, 501), response.content
    if response.status == 200:
        count = response.content["rows"]
        assert press.state()["staged"] == {"7": count}
        answer = press.ask(
            "POST", f"{BASE}/7/commit", json.dumps({"parts": [[0, 1, count]]}).encode()
        ).content
        assert answer["published"] + answer["unroutable"] == count
        assert press.queue.ready <= answer["published"]
    else:
        assert response.content["reason"]
        assert not stagings_of(press.host)


GOOD: Final = [
    rows("q", b"a", b"", b"ccc"),
    rows("", b"a", exchange="x"),
    rows("nobody", b"a"),
    octets_of([ORIGIN, *said_with(at_10="x")], flags=block.SAME | block.WHICH, which=WHICH),
    octets_of(said_with(at_11="s", at_4="root", at_2=7)),
    rows("s", b"a", b"b", properties=ENCODING.write(Properties(headers={"CC": ["q"], "BCC": ["s", "t"]}))),
    rows("s", b"a", properties=ENCODING.write(Properties(headers={"x-producer": "p", "x-sequence": 3}))),
    rows("q", b"a", properties=ENCODING.write(Properties(user_id="root"))),
    rows("q", b"", bytes(2_000_001)),
]


def outcome(press: Press, body: bytes) -> object:
    """The answer, and what comes out of a queue and a stream in the end."""
    press.host.bind(press.site.exchange("x"), press.site.queue("s", x_queue_type="stream"), "", {})
    press.host.bind(press.host.exchange("x"), press.queue, "", {})
    response = press.ask("POST", f"{PIECE}&mandatory=true", body)
    if response.status == 200:
        press.commit(7, [0, 1, response.content["rows"]])
    return (
        response.status,
        response.content,
        [told(each.message) for name in ("q", "s") for each in press.host.queues[name].waiting()],
    )


@given(body=st.lists(blocks | st.sampled_from(GOOD), max_size=3).map(b"".join))
@settings(max_examples=100, deadline=None)
def test_rows_kept_in_blocks_are_as_those_kept_one_by_one(body: bytes) -> None:
    """Whatever is wrong with them, it is said in the same words."""
    in_blocks = outcome(Press(), body)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(input_blocks, "BLOCK_OCTETS_MAX", 0)
        assert outcome(Press(), body) == in_blocks


@given(data=st.data())
@settings(max_examples=100, deadline=None)
def test_a_block_with_some_octets_changed_is_never_taken(data: st.DataObject) -> None:
    """Where its checksum is made to fit again, it is taken as a whole or refused."""
    press = Press()
    good = bytearray(rows("q", b"a", b"bb", b"ccc", properties=ENCODING.write(Properties(headers={"n": 1}))))
    for _ in range(data.draw(st.integers(1, 3))):
        good[data.draw(st.integers(0, len(good) - 1))] = data.draw(st.integers(0, 255))
    if data.draw(st.booleans()):
        struct.pack_into("<I", good, 52, crc32(memoryview(good)[block.HEADER_OCTETS :]))
        struct.pack_into("<I", good, 68, crc32(memoryview(good)[:68]))
    response = press.ask("POST", PIECE, bytes(good))
    assert response.status in (200, 400, 403, 404, 501), response.content
    assert ("job" in stagings_of(press.host)) == (response.status == 200)
