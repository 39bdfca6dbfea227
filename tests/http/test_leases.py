"""Leases over HTTP in memory: whose they are, what is answered when, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from leveret.durable.store import block
from leveret.features.leases.lease import LEASES_MAX, leases_of, opened
from leveret.features.leases.reservation import PORTION
from leveret.queues.work_queue import WorkQueue
from leveret.security.users import Permissions
from leveret.values import Json
from tests.features.leases.leased import settle_down
from tests.harness.http import Response, no_number
from tests.http.stand import Asking, Stand, bodies, told


class LeaseStand(Stand):
    """A broker with a work queue `sw`, and whoever asks for leases of it."""

    def __init__(self) -> None:
        super().__init__()
        queue = self.host.declare_queue("sw", durable=True)
        assert isinstance(queue, WorkQueue)
        self.queue = queue

    def begin(self, method: str, path: str = "/sw/r", user: str = "reader", host: str = "%2F") -> Asking:
        """Ask, and let everything happen that happens at once."""
        asking = Asking(self.broker)
        asking.ask(path, user, method, host, "leases")
        settle_down(self.broker)
        return asking

    def lease(self, method: str, path: str = "/sw/r", user: str = "reader", host: str = "%2F") -> Response:
        return self.begin(method, path, user, host).response

    def state(self, method: str, path: str = "/sw/r") -> Mapping[str, Json]:
        response = self.lease(method, path)
        assert response.status == 200, response.reason
        return response.content

    def open(self, reader: str = "r") -> int:
        fence = self.state("PUT", f"/sw/{reader}")["fence"]
        assert isinstance(fence, int)
        return fence


@pytest.fixture
def stand() -> LeaseStand:
    return LeaseStand()


def test_what_is_reserved_can_be_read_again_and_again_until_it_is_settled(stand: LeaseStand) -> None:
    stand.publish(b"a", b"b", b"c", to="sw")
    fence = stand.open()
    state = stand.state("POST", f"/sw/r/reserve?fence={fence}&from=0&messages=2")
    assert state == {
        "queue": "sw",
        "reader": "r",
        "incarnation": leases_of(stand.host)["sw", "r"].incarnation,
        "first": 0,
        "next": 2,
        "messages": 2,
        "octets": 2,
        "ready": 1,
    }
    for _ in range(2):
        response = stand.lease("GET", "/sw/r/blocks?from=0")
        assert bodies(response) == [(0, b"a"), (1, b"b")]
        assert told(response) == (0, 2, 2)
        assert response.headers["Leveret-Incarnation"] == state["incarnation"]
    settled = stand.state("POST", f"/sw/r/settle?fence={fence}&to=1")
    assert settled == {**state, "first": 1, "messages": 1, "octets": 1}
    assert stand.state("POST", f"/sw/r/settle?fence={fence}&to=0") == settled == stand.state("GET")
    assert bodies(stand.lease("GET", "/sw/r/blocks?from=1")) == [(1, b"b")]
    assert (stand.queue.ready, stand.queue.unsettled, stand.queue.accepted) == (1, 1, 1)


def test_blocks_of_a_lease_tell_places_in_the_queue(stand: LeaseStand) -> None:
    stand.publish(b"a", b"b", to="sw")
    delivery = stand.queue.take_one(settled=False)
    assert delivery is not None
    stand.queue.release(delivery)
    fence = stand.open()
    stand.state("POST", f"/sw/r/reserve?fence={fence}&from=0")
    positions = block.Block(stand.lease("GET", "/sw/r/blocks?from=0").body).positions
    assert positions is not None
    failed_once, delivered_before = 1 << 48, 1  # the first is at position 0, the second at 1
    assert positions.tolist() == [failed_once | delivered_before, 2]


def test_a_lease_is_read_as_arrow(stand: LeaseStand) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    stand.publish(b"a", b"b", to="sw")
    fence = stand.open()
    stand.state("POST", f"/sw/r/reserve?fence={fence}&from=0")
    response = stand.lease("GET", "/sw/r/blocks?from=1&format=arrow")
    rows = pyarrow.ipc.open_stream(response.body).read_all().to_pylist()
    assert [(row["offset"], row["body"]) for row in rows] == [(1, b"b")]


def test_each_opening_has_a_fence_of_its_own_and_shuts_out_the_last(stand: LeaseStand) -> None:
    stand.publish(b"a", to="sw")
    first = stand.open()
    stand.state("POST", f"/sw/r/reserve?fence={first}&from=0")
    assert stand.open() == first + 1
    for path in ("reserve?from=0&", "settle?to=0&", "release?", "blocks?from=0&"):
        method = "GET" if path.startswith("blocks") else "POST"
        response = stand.lease(method, f"/sw/r/{path}fence={first}")
        assert (response.status, response.content["fenced"]) == (409, True)
        assert response.reason == "somebody else has opened lease 'r' of queue 'sw' in vhost '/'"
    assert bodies(stand.lease("GET", f"/sw/r/blocks?from=0&fence={first + 1}")) == [(0, b"a")]


def test_who_waits_for_messages_is_told_that_somebody_else_has_come(stand: LeaseStand) -> None:
    fence = stand.open()
    reserving = stand.begin("POST", f"/sw/r/reserve?fence={fence}&from=0&wait_ms=1000")
    reading = stand.begin("GET", f"/sw/r/blocks?fence={fence}&from=0&wait_ms=1000")
    assert reserving.waits
    assert reading.waits
    unconcerned = stand.begin("GET", "/sw/r/blocks?from=0&wait_ms=1000")
    stand.open()
    for asking in (reserving, reading):
        response = asking.response
        assert (response.status, response.content["fenced"]) == (409, True)
    assert unconcerned.waits


def test_a_reservation_waits_as_long_as_it_was_asked_to(stand: LeaseStand) -> None:
    fence = stand.open()
    path = f"/sw/r/reserve?fence={fence}&from=0&wait_ms=1000"
    asking = stand.begin("POST", path)
    stand.advance(0.9)
    assert asking.waits
    stand.advance(0.1)
    stand.advance(0)
    assert asking.response.content["messages"] == 0
    asking = stand.begin("POST", path)
    stand.publish(b"a", to="sw")
    settle_down(stand.broker)
    assert asking.response.content["messages"] == 1


def test_who_reads_waits_for_what_is_reserved_next(stand: LeaseStand) -> None:
    fence = stand.open()
    asking = stand.begin("GET", "/sw/r/blocks?from=0&wait_ms=1000")
    stand.publish(b"a", to="sw")
    assert asking.waits
    stand.state("POST", f"/sw/r/reserve?fence={fence}&from=0")
    assert bodies(asking.response) == [(0, b"a")]


def test_a_connection_that_is_lost_takes_nothing_more(stand: LeaseStand) -> None:
    fence = stand.open()
    asking = stand.begin("POST", f"/sw/r/reserve?fence={fence}&from=0&wait_ms=1000")
    asking.connection.lost()
    stand.publish(b"a", to="sw")
    assert (stand.queue.ready, len(stand.queue.consumers)) == (1, 0)


def test_two_requests_in_one_go_are_answered_one_after_the_other(stand: LeaseStand) -> None:
    stand.publish(b"a", b"b", to="sw")
    fence = stand.open()
    asking = Asking(stand.broker)
    for begin in (0, 1):
        path = f"/sw/r/reserve?fence={fence}&from={begin}&messages=1"
        asking.ask(path, "reader", "POST", "%2F", "leases")
    settle_down(stand.broker)
    octets = b"".join(asking.connection.outbox.take())
    assert octets.count(b"HTTP/1.1 200") == 2
    assert stand.queue.accepted == 1


def test_what_is_released_is_in_the_queue_again(stand: LeaseStand) -> None:
    stand.publish(*[b"x"] * (2 * PORTION), to="sw")
    fence = stand.open()
    path = f"/sw/r/reserve?fence={fence}&from=0"
    assert stand.state("POST", path)["messages"] == 2 * PORTION
    state = stand.state("POST", f"/sw/r/release?fence={fence}")
    assert (state["first"], state["next"], state["ready"]) == (2 * PORTION, 2 * PORTION, 2 * PORTION)
    assert stand.lease("POST", path).status == 410


def test_an_operator_needs_no_fence_to_end_a_lease(stand: LeaseStand) -> None:
    stand.publish(b"a", b"b", to="sw")
    fence = stand.open()
    stand.state("POST", f"/sw/r/reserve?fence={fence}&from=0")
    stand.state("POST", f"/sw/r/settle?fence={fence}&to=1")
    assert stand.state("DELETE") == {"released": 1}
    assert (stand.queue.ready, leases_of(stand.host)) == (1, {})
    for method, path in (("DELETE", ""), ("GET", ""), ("POST", f"/reserve?fence={fence}&from=0")):
        assert stand.lease(method, f"/sw/r{path}").refusal == (404, "no lease 'r' of queue 'sw' in vhost '/'")


def test_while_a_lease_is_released_it_can_be_asked_again_later(stand: LeaseStand) -> None:
    stand.publish(b"a", to="sw")
    fence = stand.open()
    stand.state("POST", f"/sw/r/reserve?fence={fence}&from=0")
    first, second = Asking(stand.broker), Asking(stand.broker)
    first.ask("/sw/r", "reader", "DELETE", "%2F", "leases")
    second.ask("/sw/r", "reader", "DELETE", "%2F", "leases")
    response = second.response
    assert (response.status, response.headers["Retry-After"]) == (503, "1")
    settle_down(stand.broker)
    assert first.response.content == {"released": 1}


def test_who_waits_for_a_queue_that_is_deleted_is_told(stand: LeaseStand) -> None:
    fence = stand.open()
    reserving = stand.begin("POST", f"/sw/r/reserve?fence={fence}&from=0&wait_ms=1000")
    reading = stand.begin("GET", "/sw/r/blocks?from=0&wait_ms=1000")
    stand.host.delete_queue(stand.queue)
    settle_down(stand.broker)
    assert (reserving.response.status, reading.response.status) == (404, 404)


def test_who_may_read_no_longer_is_not_told_what_was_reserved(stand: LeaseStand) -> None:
    fence = stand.open()
    asking = stand.begin("POST", f"/sw/r/reserve?fence={fence}&from=0&wait_ms=1000")
    stand.broker.access.add_permissions("reader", "/", Permissions("", "", ""))
    stand.publish(b"a", to="sw")
    settle_down(stand.broker)
    assert asking.response.status == 403


def test_leases_of_queues_that_the_user_may_read_are_listed(stand: LeaseStand) -> None:
    stand.open("one")
    stand.open("other")
    opened(stand.host.declare_queue("private"), "r")
    response = stand.lease("GET", "")
    content = response.json
    assert isinstance(content, list)
    assert [(each["queue"], each["reader"]) for each in content] == [("sw", "one"), ("sw", "other")]
    assert content[0] == stand.state("GET", "/sw/one")
    assert stand.lease("GET", "", user="writer").json == []


def test_names_may_have_any_characters(stand: LeaseStand) -> None:
    stand.host.declare_queue("s/ä?", durable=True)
    state = stand.state("PUT", "/s%2F%C3%A4%3F/r%2F1%20%25")
    assert (state["queue"], state["reader"]) == ("s/ä?", "r/1 %")
    assert stand.state("GET", "/s%2F%C3%A4%3F/r%2F1%20%25")["first"] == 0


NO_OFFSET_3 = 416, "lease 'r' of queue 'sw' in vhost '/' has no offset 3 yet; its next is 2"
LAST_OFFSET = 2**63 - 1
REFUSED = {
    "PUT /private/r": (403, "read access to queue 'private' in vhost '/' refused for user 'reader'"),
    "PUT /sold-out/r": (404, "no queue 'sold-out' in vhost '/'"),
    "PUT /s/r": (400, "queue 's' in vhost '/' is a stream: it is read as it is, without a lease"),
    "PUT /s-auto/r": (
        400,
        "queue 's-auto' in vhost '/' is auto-delete: it would go when the first reading ends",
    ),
    "PUT /sw/": (404, "there is nothing at '/api/leveret/leases/%2F/sw/'"),
    "PUT /sw/r?fence=1": (400, "unknown parameter 'fence'; known are none"),
    "GET /sw/other": (404, "no lease 'other' of queue 'sw' in vhost '/'"),
    "GET /sold-out/r": (404, "no queue 'sold-out' in vhost '/'"),
    "POST /sw/r/reserve?from=0": (400, "parameter 'fence' is missing"),
    "POST /sw/r/reserve?fence=F": (400, "parameter 'from' is missing"),
    "POST /sw/r/reserve?fence=F&from=0&messages=0": no_number("messages", "0", 1, 1000000),
    "POST /sw/r/reserve?fence=F&from=0&octets=1073741825": no_number("octets", "1073741825", 1, 1073741824),
    "POST /sw/r/reserve?fence=F&from=0&wait_ms=30001": no_number("wait_ms", "30001", 0, 30000),
    "POST /sw/r/reserve?fence=F&from=0": (
        410,
        "offset 0 of lease 'r' of queue 'sw' in vhost '/' is settled; its first is 1",
    ),
    "POST /sw/r/reserve?fence=F&from=3": NO_OFFSET_3,
    "POST /sw/r/settle?fence=F": (400, "parameter 'to' is missing"),
    "POST /sw/r/settle?fence=F&to=3": NO_OFFSET_3,
    "GET /sw/r/blocks?from=0": (
        410,
        "offset 0 of lease 'r' of queue 'sw' in vhost '/' is gone; the first is 1",
    ),
    "GET /sw/r/blocks?from=3": NO_OFFSET_3,
    "GET /sw/r/blocks?from=1&incarnation=x": (
        409,
        "lease 'r' of queue 'sw' in vhost '/' has another incarnation than 'x'",
    ),
    "GET /sw/r/blocks?from=1&fence=-1": no_number("fence", "-1", 0, LAST_OFFSET),
}


@pytest.mark.parametrize("asked", REFUSED)
def test_what_cannot_be_done_is_refused_in_words(stand: LeaseStand, asked: str) -> None:
    stand.host.declare_queue("s-auto", auto_delete=True)
    stand.publish(b"a", b"b", to="sw")
    fence = stand.open()
    stand.state("POST", f"/sw/r/reserve?fence={fence}&from=0")
    stand.state("POST", f"/sw/r/settle?fence={fence}&to=1")
    method, path = asked.replace("=F", f"={fence}").split(" ")
    response = stand.lease(method, path)
    assert response.refusal == REFUSED[asked]
    if response.status in (410, 416):
        assert (response.content["first"], response.content["next"]) == (1, 2)


def test_who_may_do_everything_but_read_is_told_nothing(stand: LeaseStand) -> None:
    fence = stand.open()
    for method, path in (
        ("PUT", "/sw/r"),
        ("GET", "/sw/r"),
        ("DELETE", "/sw/r"),
        ("POST", f"/sw/r/reserve?fence={fence}&from=0"),
        ("POST", f"/sw/r/settle?fence={fence}&to=0"),
        ("POST", f"/sw/r/release?fence={fence}"),
        ("GET", "/sw/r/blocks?from=0"),
        ("PUT", "/none/r"),
    ):
        assert stand.lease(method, path, user="writer").status == 403
    assert stand.lease("PUT", host="closed").status == 403


def test_an_exclusive_queue_of_somebody_is_locked(stand: LeaseStand) -> None:
    queue = stand.host.declare_queue("s-mine")
    queue.owner = object()  # type: ignore[assignment]
    assert stand.lease("PUT", "/s-mine/r").status == 409


def test_there_are_no_more_leases_than_there_may_be(stand: LeaseStand) -> None:
    for n in range(LEASES_MAX):
        opened(stand.queue, str(n))
    assert stand.lease("PUT", "/sw/r").refusal == (400, "vhost '/' has 1000 leases, and cannot have more")
