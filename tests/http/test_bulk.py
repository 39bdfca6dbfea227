"""Bulk answers in memory: who waits for messages, for the disk, or for room, and what is given back."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from leveret.durable.store import block
from leveret.durable.store.contract import DamagedError, StoreError
from leveret.message import Message
from leveret.protocols.http.bulk import arrow, bulk, streams
from leveret.queues.stream import StreamQueue
from tests.durable.site import Site
from tests.harness.bench import ENCODING
from tests.harness.http import Response, basic
from tests.http.stand import CONFIG, STREAM, Asking, HeldLog, Stand, bodies, told

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
    assert asking.response.refusal == (503, "queue 's' in vhost '/' cannot be read: the disk is gone")


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


def test_without_a_store_answers_are_small_for_they_are_made_in_between(stand: Stand, held: HeldLog) -> None:
    stand.ask("/s/blocks?from=0")
    stand.ask("/s/blocks?from=0&format=arrow")
    assert [octets for _, _, octets, _ in held.asked] == [bulk.PACKED_OCTETS, bulk.ARROW_OCTETS]


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


def test_arrow_has_only_the_columns_that_were_asked_for(stand: Stand) -> None:
    pa = pytest.importorskip("pyarrow")
    stand.publish(*(b"%d" % n for n in range(4)))
    answer = stand.blocks("from=1&until=3&format=arrow&columns=body,offset")
    assert pa.ipc.open_stream(answer.body).read_all().to_pylist() == [
        {"body": b"1", "offset": 1},
        {"body": b"2", "offset": 2},
    ]
    assert len(answer.body) < len(stand.blocks("from=1&until=3&format=arrow").body)


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
    assert stand.blocks("from=0&format=arrow").refusal == (
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
