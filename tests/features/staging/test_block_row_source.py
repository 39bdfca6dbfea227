"""Rows drawn out of a staging's log: whichever of a block are asked for, what cannot be read, and what a row costs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.durable.store import block
from leveret.durable.store.contract import Append
from leveret.features.staging import publication
from leveret.features.staging.block_row_source import OpenedBlock
from leveret.features.staging.staging import stagings_of
from leveret.message import Facts, Message
from leveret.protocols.amqp091.broker.encoding import ENCODING
from leveret.queues.stream import StreamQueue
from leveret.values import Properties
from tests.durable.store.test_block import appends
from tests.durable.store.test_chunk import encoding_of, told
from tests.harness.call_count import calls
from tests.http.press import BASE, Press, packed, rows

HEADED = ENCODING.write(Properties(durable=True, headers={"n": 1}))


@given(appends(), st.data())
def test_any_rows_of_a_block_are_those_that_are_there(made: Append, data: st.DataObject) -> None:
    made.positions = None
    octets = block.pack(made)
    opened = OpenedBlock(block.Block(octets), memoryview(octets), encoding_of)
    everything = block.messages_of(block.Block(octets), encoding_of, noted=False)
    offset = data.draw(st.integers(made.first, made.next - 1))
    until = data.draw(st.integers(offset + 1, made.next + 1))
    quota, room = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 30))
    offsets, found = opened.read(offset, until, quota, room)
    start = offset - made.first
    assert list(offsets) == [*range(offset, offset + len(found))]
    assert list(map(told, found)) == list(map(told, everything[start : start + len(found)]))
    most = min(quota, until - offset, made.next - offset)
    assert 1 <= len(found) <= most
    sizes = [[each.size for each in found]]
    if block.Block(octets).property_ends is not None:
        sizes.append([len(each.properties) for each in found])
    assert all(sum(each[:-1]) < room for each in sizes)
    assert len(found) == most or any(sum(each) >= room for each in sizes)
    assert opened.packed().octets == octets


def test_rows_that_cannot_be_read_are_passed_over() -> None:
    press = Press()
    for piece in range(3):
        press.stage(f"7/0/1?piece={piece}", rows("q", b"%d" % piece, b"x"))
    log = stagings_of(press.host)["job"].log
    (segment,) = [each for key, each in press.site.store.content.segments.items() if key[0] == log.number]  # type: ignore[attr-defined]
    size = len(segment.octets) // 3
    segment.octets[2 * size - 1] ^= 1  # of the second block
    assert press.commit(7, [0, 1, 6]) == {"published": 4, "unroutable": 0, "repeated": False}
    assert press.bodies() == "0 x 2 x"
    assert press.stage("8/0/1?piece=0", rows("q", b"next")) == {"rows": 1}
    press.commit(8, [0, 1, 1])
    assert press.bodies() == "0 x 2 x next"


def stream_of(press: Press) -> StreamQueue:
    queue = press.host.queues["s"]
    assert isinstance(queue, StreamQueue)
    return queue


def blocks_in(stream: StreamQueue) -> bytes:
    got: list[bytes | Exception] = []
    stream.log.raw(0, stream.log.committed, 1 << 20, got.append)
    assert isinstance(got[0], bytes)
    return got[0]


def test_a_block_comes_into_a_stream_as_it_is() -> None:
    press = Press()
    press.site.queue("s", x_queue_type="stream")
    press.site.publish("", "s", b"before")
    press.stage("7/0/1?piece=0", rows("s", b"a", b"", b"ccc", properties=HEADED))
    press.commit(7, [0, 1, 3])
    press.site.publish("", "s", b"after")
    stream = stream_of(press)
    assert [(each.position, each.message.body) for each in stream.waiting()] == [
        (0, b"before"), (1, b"a"), (2, b""), (3, b"ccc"), (4, b"after")
    ]  # fmt: skip
    assert (stream.ready, stream.published, stream.log.octets) == (5, 5, 15)
    octets = blocks_in(stream)
    head = block.header(octets, block.header(octets).octets)
    at = block.header(octets).octets
    facts = Facts(durable=True, has_headers=True)
    messages = [Message(ENCODING, "", "s", HEADED, body, facts) for body in (b"a", b"", b"ccc")]
    assert octets[at : at + head.octets] == block.pack(Append(0, 0, 1, head.arrived, messages))
    assert press.host.exchanges[""].published == 5


def test_what_a_stream_must_look_at_does_not_come_in_as_a_block() -> None:
    """A number that was taken of that producer before is not taken again."""
    press = Press()
    press.site.queue("s", x_queue_type="stream")
    numbered = [
        ENCODING.write(Properties(durable=True, headers={"x-producer": "p", "x-sequence": n})) for n in (5, 5)
    ]
    for piece, properties in enumerate(numbered):
        press.stage(f"7/0/1?piece={piece}", rows("s", b"%d" % piece, properties=properties))
    press.commit(7, [0, 1, 2])
    assert press.bodies("s") == "0"


def test_a_copy_for_a_queue_has_the_messages_of_a_block_go_one_by_one() -> None:
    press = Press()
    fanout = press.site.exchange("x")
    for queue in (press.queue, press.site.queue("s", x_queue_type="stream")):
        press.host.bind(fanout, queue, "", {})
    press.stage("7/0/1?piece=0", rows("k", b"a", b"b", exchange="x"))
    press.commit(7, [0, 1, 2])
    assert (press.bodies("q"), press.bodies("s")) == ("a b", "a b")


def test_a_block_of_several_keys_comes_into_a_stream_that_gets_them_all() -> None:
    press = Press()
    press.host.bind(press.site.exchange("x"), press.site.queue("s", x_queue_type="stream"), "", {})
    facts = Facts(durable=True)
    body = packed([Message(ENCODING, "x", key, HEADED, key.encode(), facts) for key in "abca"])
    press.stage("7/0/1?piece=0", body)
    counted = calls(lambda: press.commit(7, [0, 1, 4]))
    assert press.bodies("s") == "a b c a"
    assert (counted["StreamQueue.push_block"], counted["StreamQueue.push"]) == (1, 0)


def test_rows_in_blocks_for_a_stream_cost_next_to_nothing() -> None:
    """Or the figure of rows a second is gone."""

    def cost(count: int) -> int:
        press = Press()
        press.site.queue("s", x_queue_type="stream")
        body = rows("s", *[b"x"] * count)

        def go() -> None:
            press.stage("7/0/1?piece=0", body)
            press.commit(7, [0, 1, count])

        counted = calls(go)
        assert press.host.queues["s"].ready == count
        return sum(counted.values())

    assert cost(3000) - cost(1000) < 0.1 * 2000


def test_no_more_is_poured_than_may_be_in_one_commit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or to close it would hold everybody up."""
    monkeypatch.setattr(publication, "ARRIVALS", 4)
    press = Press()
    press.stage("7/0/1?piece=0", rows("q", *[b"x"] * 50))
    stagings_of(press.host)["job"].pouring.portion = 3
    store = press.site.store
    store.held = True
    line = press.send("POST", f"{BASE}/7/commit", b'{"parts": [[0, 1, 50]]}')
    while line.waits:
        for _ in range(10):
            press.advance()
        assert len(press.site.journal.arrivals) < 4 + 3
        if store.flying is not None:
            store.land()
    assert press.queue.ready == 50
