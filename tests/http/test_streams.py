"""Bulk access to streams in memory: who may read what, where answers begin and end, and who waits for what."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from urllib.parse import quote

import pytest

from broker_core.broker import Broker
from broker_core.clock import ManualClock
from broker_core.composition import populate
from broker_core.config import parse
from broker_core.log import MemoryLog, Raw
from broker_core.message import Message
from broker_core.outbox import Outbox
from broker_core.store import block
from broker_core.store.contract import DamagedError, StoreError
from broker_core.stream import StreamQueue
from broker_core.values import Table
from protocols.http import arrow, bulk, room, streams
from protocols.http.adapter import PROTOCOL, ControlConnection
from tests.core.fakes import ENCODING
from tests.http.test_adapter import HERE, Response, basic
from tests.store.site import Site

CONFIG = parse("""
[[virtual_hosts]]
name = "/"
[[virtual_hosts]]
name = "closed"
[[users]]
name = "reader"
password = "sesame"
[users.permissions]
"/" = { read = "^s" }
[[users]]
name = "writer"
password = "sesame"
tags = ["administrator"]
[users.permissions]
"/" = { write = ".*", configure = ".*" }
""")
STREAM: Table = {"x-queue-type": "stream"}
SUPER: Table = {"x-super-stream": True}


class HeldLog(MemoryLog):
    """Answers when told, as one that has to read from a disk."""

    __slots__ = ("asked",)

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[int, int, int, Raw]] = []

    def raw(self, offset: int, until: int, octets: int, then: Raw) -> None:
        self.asked.append((offset, until, octets, then))

    def land(self) -> None:
        """What was asked for first is there."""
        offset, until, octets, then = self.asked.pop(0)
        super().raw(offset, until, octets, then)

    def fail(self, error: Exception) -> None:
        self.asked.pop(0)[-1](error)


class Stand:
    """A broker with a stream `s`, and connections to it."""

    def __init__(self) -> None:
        self.broker = Broker(ManualClock())
        populate(self.broker, CONFIG)
        self.host = self.broker.virtual_host("/")
        self.stream = self.declare("s")

    def declare(self, name: str) -> StreamQueue:
        queue = self.host.declare_queue(name, durable=True, arguments=STREAM)
        assert isinstance(queue, StreamQueue)
        return queue

    def publish(self, *bodies: bytes, to: str = "s") -> None:
        for body in bodies:
            self.broker.publish(self.host.exchange(""), Message(ENCODING, "", to, b"", body))
        self.broker.settle()

    def advance(self, seconds: float) -> None:
        clock = self.broker.clock
        assert isinstance(clock, ManualClock)
        clock.advance(seconds)
        self.broker.tick()
        self.broker.settle()

    def ask(self, path: str, user: str = "reader", method: str = "GET", host: str = "%2F") -> Asking:
        asking = Asking(self.broker)
        asking.ask(path, user, method, host)
        return asking

    def blocks(self, query: str) -> Response:
        return self.ask(f"/s/blocks?{query}").response

    @property
    def room(self) -> room.Room:
        return room.room_of(self.broker)


class Asking:
    """A connection."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        connection = PROTOCOL.factory(broker, CONFIG, Outbox([]), HERE, broker.now)
        assert isinstance(connection, ControlConnection)
        self.connection = connection
        self._method = ""

    def ask(self, path: str, user: str = "reader", method: str = "GET", host: str = "%2F") -> None:
        self._method = method
        head = f"{method} /api/leveret/streams/{host}{path} HTTP/1.1\r\nHost: localhost\r\n"
        octets = f"{head}Authorization: {basic(f'{user}:sesame')}\r\n\r\n".encode()
        self.connection.receive(octets, self.broker.now)

    @property
    def waits(self) -> bool:
        """Whether nothing has been answered yet."""
        return not self.connection.outbox.pieces

    @property
    def response(self) -> Response:
        """The answer, which the peer reads at once."""
        outbox = self.connection.outbox
        octets = b"".join(outbox.take())
        if outbox.sent(len(octets)):
            self.connection.drained()
        return Response(octets, self._method)


@pytest.fixture
def stand() -> Stand:
    return Stand()


def bodies(response: Response) -> list[tuple[int, bytes]]:
    """Offsets and bodies of an answer with blocks."""
    assert (response.status, response.headers["Content-Type"]) == (200, "application/vnd.leveret.blocks")
    return list(unpacked(response.body))


def unpacked(octets: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at < len(octets):
        read = block.Block(octets, at)
        at += read.header.octets
        for message in block.messages_of(read, lambda name: ENCODING):
            assert message.notes is not None
            assert message.notes.offset is not None
            yield message.notes.offset, message.body


def told(response: Response) -> tuple[int, int, int]:
    """First, next, committed."""
    first, following, committed = (
        int(response.headers[f"Leveret-{name}"]) for name in ("First", "Next", "Committed")
    )
    return first, following, committed


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


REFUSED = {
    "/private": (403, "read access to queue 'private' in vhost '/' refused for user 'reader'"),
    "/none": (403, "read access to queue 'none' in vhost '/' refused for user 'reader'"),
    "/sold-out": (404, "no queue 'sold-out' in vhost '/'"),
    "/simple/offset?timestamp=1": (400, "queue 'simple' in vhost '/' is no stream"),
    "/s/offset": (400, "parameter 'timestamp' is missing"),
    "/s/offset?timestamp=1&x=1": (400, "unknown parameter 'x'; known are timestamp"),
    "/s/blocks": (400, "parameter 'from' is missing"),
    "/s/blocks?from=-1": (
        400,
        "parameter 'from' is '-1', not a whole number from 0 to 9223372036854775807",
    ),
    "/s/blocks?from=%C2%B2": (
        400,
        "parameter 'from' is '²', not a whole number from 0 to 9223372036854775807",
    ),
    "/s/blocks?from=1&until=1": (
        400,
        "parameter 'until' is '1', not a whole number from 2 to 9223372036854775807",
    ),
    "/s/blocks?from=0&max_octets=16777217": (
        400,
        "parameter 'max_octets' is '16777217', not a whole number from 1 to 16777216",
    ),
    "/s/blocks?from=0&wait_ms=30001": (
        400,
        "parameter 'wait_ms' is '30001', not a whole number from 0 to 30000",
    ),
    "/s/blocks?from=0&format=csv": (400, "parameter 'format' is 'csv', not one of blocks, arrow"),
    "/s/blocks?from=2": (416, "queue 's' in vhost '/' has no offset 2 yet; its next is 1"),
    "/s/blocks?from=0&incarnation=x": (
        409,
        "queue 's' in vhost '/' is another one than that with the incarnation 'x'",
    ),
}


@pytest.mark.parametrize("path", REFUSED)
def test_what_cannot_be_read_is_refused_in_words(stand: Stand, path: str) -> None:
    stand.host.declare_queue("simple", durable=True)
    stand.publish(b"x")
    response = stand.ask(path).response
    assert (response.status, response.reason) == REFUSED[path]


def test_who_may_do_everything_but_read_is_told_nothing(stand: Stand) -> None:
    assert stand.ask("", user="writer").response.json == []
    for path in ("/s", "/s/offset?timestamp=1", "/s/blocks?from=0", "/none"):
        assert stand.ask(path, user="writer").response.status == 403


@pytest.mark.parametrize("name", ["closed", "none"])
def test_a_virtual_host_that_is_closed_to_the_user_is_as_one_that_is_not_there(
    stand: Stand, name: str
) -> None:
    response = stand.ask("", host=name).response
    assert (response.status, response.reason) == (403, f"access to vhost '{name}' refused for user 'reader'")


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


# Waiting for more.


def test_who_waits_is_told_when_there_is_something(stand: Stand) -> None:
    asking = stand.ask("/s/blocks?from=0&wait_ms=1000")
    stand.advance(0.5)
    assert asking.waits
    stand.publish(b"new")
    assert bodies(asking.response) == [(0, b"new")]
    stand.advance(1)
    assert asking.waits  # it is not answered twice
    assert stand.stream.lookouts == {}


def test_who_waits_in_vain_is_told_that_there_is_nothing(stand: Stand) -> None:
    asking = stand.ask("/s/blocks?from=0&wait_ms=1000")
    stand.advance(0.999)
    assert asking.waits
    stand.advance(0.001)
    response = asking.response
    assert (bodies(response), told(response)) == ([], (0, 0, 0))
    assert stand.stream.lookouts == {}


def test_who_waits_goes_on_waiting_while_there_is_nothing_for_him(stand: Stand) -> None:
    asking = stand.ask("/s/blocks?from=0&wait_ms=1000")
    stand.stream.touch()
    stand.broker.settle()
    assert asking.waits
    stand.publish(b"new")
    assert not asking.waits


def test_nothing_is_left_of_who_went_away_while_waiting(stand: Stand) -> None:
    asking = stand.ask("/s/blocks?from=0&wait_ms=1000")
    asking.connection.lost()
    assert stand.stream.lookouts == {}
    assert stand.broker.timers.next_at() is None


def test_who_waits_learns_that_the_stream_is_gone(stand: Stand) -> None:
    asking = stand.ask("/s/blocks?from=0&wait_ms=1000")
    stand.host.delete_queue(stand.stream)
    stand.broker.settle()
    assert asking.response.status == 404


def test_who_waits_learns_that_he_may_not_read_any_more(stand: Stand) -> None:
    asking = stand.ask("/s/blocks?from=0&wait_ms=1000")
    stand.broker.access.set_permissions("reader", "/", "", "", "")
    stand.publish(b"secret")
    response = asking.response
    assert (response.status, b"secret" in response.body) == (403, False)


# Reading from a disk, and the room for it.


@pytest.fixture
def held(stand: Stand) -> HeldLog:
    """The stream's log, which answers when told."""
    log = stand.stream.log = HeldLog()
    stand.publish(*[b"x" * 1000] * 9)
    return log


def test_requests_behind_one_that_is_read_wait(stand: Stand, held: HeldLog) -> None:
    asking = stand.ask("/s/blocks?from=0&max_octets=1500")
    asking.ask("/s")
    assert asking.waits
    held.land()
    octets = b"".join(asking.connection.outbox.take())
    assert octets.count(b"HTTP/1.1 200 OK") == 2
    assert octets.index(b"LvrB") < octets.index(b'incarnation": ')


def test_what_is_read_counts_until_it_is_sent(stand: Stand, held: HeldLog) -> None:
    asking = stand.ask("/s/blocks?from=0&max_octets=4000")
    assert stand.room.taken == 4000
    asking.connection.outbox.limit = 1000
    held.land()
    taken = stand.room.taken
    assert 4000 < taken < 6000  # as much as it turned out to be
    assert len(bodies(asking.response)) == 4
    assert stand.room.taken == 0


def test_a_peer_that_goes_away_gives_room_back(stand: Stand, held: HeldLog) -> None:
    unread, unanswered = stand.ask("/s/blocks?from=0"), stand.ask("/s/blocks?from=0")
    unread.connection.outbox.limit = 1000
    held.land()
    unread.connection.lost()
    unanswered.connection.lost()
    assert stand.room.taken == streams.OCTETS  # a thread is still reading it
    held.land()
    assert stand.room.taken == 0
    assert unanswered.waits


def test_who_finds_no_room_waits_for_it_in_turn(stand: Stand, held: HeldLog) -> None:
    stand.room.octets = 9000
    asked = [stand.ask(f"/s/blocks?from=0&max_octets={size}") for size in (8000, 4000, 500)]
    assert [octets for _, _, octets, _ in held.asked] == [8000]  # the small one does not overtake
    held.land()
    assert bodies(asked[0].response)
    stand.broker.settle()
    assert [octets for _, _, octets, _ in held.asked] == [4000, 500]
    held.land()
    held.land()
    assert len(bodies(asked[1].response)) == 4
    assert len(bodies(asked[2].response)) == 1
    assert (stand.room.taken, stand.room.line) == (0, {})


def test_who_finds_no_room_for_long_is_told_to_come_again(stand: Stand, held: HeldLog) -> None:
    stand.room.octets = 9000
    stand.ask("/s/blocks?from=0&max_octets=8000")
    asking = stand.ask("/s/blocks?from=0&max_octets=8000")
    stand.advance(bulk.ROOM_WAIT_S - 1)
    assert asking.waits
    stand.advance(1)
    response = asking.response
    assert (response.status, response.headers["Retry-After"]) == (503, "5")
    assert stand.room.line == {}


def test_an_answer_larger_than_the_room_is_given_alone(stand: Stand, held: HeldLog) -> None:
    stand.room.octets = 100
    asking = stand.ask("/s/blocks?from=0")
    held.land()
    assert len(bodies(asking.response)) == 9


def test_what_is_damaged_is_gone_and_the_next_to_be_read_is_told(stand: Stand, held: HeldLog) -> None:
    asking = stand.ask("/s/blocks?from=2")
    held.fail(DamagedError("a checksum does not fit", 7))
    response = asking.response
    assert (response.status, response.content["first"], response.content["next"]) == (410, 7, 9)
    assert response.reason == "offset 2 of queue 's' in vhost '/' is damaged: a checksum does not fit"
    assert stand.room.taken == 0


def test_what_went_while_it_was_read_is_not_said_to_be_damaged(stand: Stand, held: HeldLog) -> None:
    asking = stand.ask("/s/blocks?from=2")
    held.retain(3000, None)
    held.fail(DamagedError("the segment has gone", 9))
    response = asking.response
    assert (response.status, response.content["first"]) == (410, 6)
    assert "damaged" not in str(response.reason)


def test_a_store_that_has_failed_is_said_to_have(
    stand: Stand, held: HeldLog, caplog: pytest.LogCaptureFixture
) -> None:
    asking = stand.ask("/s/blocks?from=2")
    held.fail(StoreError("the disk is gone"))
    response = asking.response
    assert (response.status, response.reason) == (
        503,
        "queue 's' in vhost '/' cannot be read: the disk is gone",
    )


def test_a_mistake_of_ours_is_answered_and_does_not_go_further(
    stand: Stand, held: HeldLog, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(octets: bytes) -> tuple[int, int]:
        raise RuntimeError("a secret")

    asking = stand.ask("/s/blocks?from=0")
    monkeypatch.setattr(block, "range_of", broken)
    with caplog.at_level(logging.CRITICAL + 1, "leveret.http"):
        held.land()
    response = asking.response
    assert (response.status, response.headers["Connection"]) == (500, "close")
    assert b"secret" not in response.body
    assert stand.room.taken == 0


def test_the_node_is_told_of_a_connection_that_a_late_answer_ends(stand: Stand, held: HeldLog) -> None:
    asking = Asking(stand.broker)
    head = "GET /api/leveret/streams/%2F/s/blocks?from=0 HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    asking.connection.receive(f"{head}Authorization: {basic('reader:sesame')}\r\n\r\n".encode(), 0.0)
    deadline = asking.connection.deadline()
    assert deadline is not None
    assert deadline > stand.broker.now
    held.land()
    assert asking.connection.closed
    assert asking.connection.deadline() == stand.broker.now


def test_the_next_request_is_answered_when_there_is_room_in_the_outbox(stand: Stand, held: HeldLog) -> None:
    asking = stand.ask("/s/blocks?from=0")
    asking.connection.outbox.limit = 1000
    asking.ask("/s")
    held.land()
    outbox = asking.connection.outbox
    octets = b"".join(outbox.take())
    assert octets.count(b"HTTP/1.1") == 1
    assert outbox.sent(len(octets))
    asking.connection.drained()
    assert asking.waits  # the transport is in the middle of sending
    stand.broker.settle()
    assert asking.response.content["name"] == "s"


def test_names_are_percent_decoded(stand: Stand) -> None:
    stand.declare("s/ö")
    assert stand.ask("/" + quote("s/ö", safe="")).response.content["name"] == "s/ö"


# Arrow.


def table(response: Response) -> list[tuple[int, bytes]]:
    pa = pytest.importorskip("pyarrow")
    assert (response.status, response.headers["Content-Type"]) == (200, "application/vnd.apache.arrow.stream")
    rows = pa.ipc.open_stream(response.body).read_all().to_pylist()
    return [(row["offset"], row["body"]) for row in rows]


def test_arrow_has_exactly_what_was_asked_for(stand: Stand) -> None:
    stand.publish(b"a", b"b", b"c", b"d")
    response = stand.blocks("from=1&until=3&format=arrow")
    assert (table(response), told(response)[1:]) == ([(1, b"b"), (2, b"c")], (3, 4))


def test_arrow_is_made_in_the_thread_that_reads() -> None:
    pytest.importorskip("pyarrow")
    site = Site(config=CONFIG)
    stream = site.host.declare_queue("s", durable=True, arguments=STREAM)
    assert isinstance(stream, StreamQueue)
    site.broker.publish(site.host.exchange(""), Message(ENCODING, "", "s", b"", b"x"))
    site.settle()
    jobs: list[tuple[Callable[..., object], Callable[[object], None]]] = []
    site.store.read_soon = lambda job, then: jobs.append((job, then))  # type: ignore[method-assign, assignment]
    asking = Asking(site.broker)
    asking.ask("/s/blocks?from=0&format=arrow")
    with site.store.reader() as reader:
        while jobs:
            job, then = jobs.pop(0)
            assert asking.waits
            then(job(reader))
    assert table(asking.response) == [(0, b"x")]


def test_without_pyarrow_there_is_no_arrow(stand: Stand, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrow, "is_there", lambda: False)
    response = stand.blocks("from=0&format=arrow")
    assert (response.status, response.reason) == (
        501,
        "format=arrow needs pyarrow: pip install 'leveret[arrow]'",
    )


def test_with_a_store_what_is_on_its_way_to_the_disk_is_not_read() -> None:
    site = Site(config=CONFIG)
    stream = site.host.declare_queue("s", durable=True, arguments=STREAM)
    site.broker.publish(site.host.exchange(""), Message(ENCODING, "", "s", b"", b"x"))
    asking = Asking(site.broker)
    asking.ask("/s/blocks?from=0&wait_ms=1000")
    assert asking.waits
    site.settle()
    site.settle()  # the store has reported meanwhile
    assert bodies(asking.response) == [(0, b"x")]
    assert stream.ready == 1
