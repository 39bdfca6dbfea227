"""Large bodies of requests: who may send them, how large, how many at a time, and for how long."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from leveret.protocols.http.connection import (
    Allowance,
    Bounds,
    Connection,
    Handler,
    HeaderList,
    HttpRequest,
    Later,
    Response,
    refusal,
)
from leveret.protocols.http.server import memory_budget
from tests.harness.http import basic, request
from tests.http.press import BASE, Press, rows
from tests.http.test_connection import Wire, responses

BOUNDS = Bounds(head_size_max=512, body_size_max=10, request_timeout_s=10.0, stall_size=20)
PIECE = f"{BASE}/7/0/1?piece=0"


class Generous(Handler):
    """Allows 50 octets to paths that begin with /large, and refuses those to /refused."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.asked: list[tuple[str, int | None]] = []
        self.ended = 0
        self.late: Later | None = None

    def allow(self, head: HttpRequest, size: int | None) -> Allowance | Response | None:
        self.asked.append((head.path, size))
        assert head.body == b""
        if head.path == "/refused":
            return refusal(403, "not for you")
        return Allowance(50, self._end) if head.path.startswith("/large") else None

    def _end(self) -> None:
        self.ended += 1

    def on_request(self, request: HttpRequest) -> Response | Later:
        self.bodies.append(request.body)
        if request.path == "/large-late":
            self.late = Later()
            return self.late
        return Response(200, b"%d" % len(request.body))

    def common_headers(self) -> HeaderList:
        return ()


class Wired:
    """A connection with both its ends."""

    def __init__(self) -> None:
        self.handler, self.wire = Generous(), Wire()
        self.connection = Connection(self.handler, self.wire, 0.0, BOUNDS)

    def send(self, data: bytes, now: float = 0.0) -> Wired:
        self.connection.receive(data, now)
        return self

    @property
    def answers(self) -> list[tuple[int, bytes]]:
        return responses(self.wire.sent, ["POST"] * 9)

    @property
    def refused(self) -> tuple[int, str]:
        assert self.connection.closed
        status, body = self.answers[-1]
        return status, json.loads(body)["reason"]


def posted(path: str, body: bytes, *headers: str) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: h", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


def chunked(path: str, *chunks: bytes) -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    return head + b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"


def divisions(data: bytes) -> Iterator[list[bytes]]:
    """Whole, byte by byte, and in two pieces wherever they may end."""
    yield [data]
    yield [data[at : at + 1] for at in range(len(data))]
    for at in range(1, len(data)):
        yield [data[:at], data[at:]]


@pytest.mark.parametrize(
    "data", [posted("/large", b"x" * 50), chunked("/large", b"x" * 9, b"y" * 30, b"z" * 11)]
)
def test_a_large_body_is_taken_where_it_may_be_in_any_division(data: bytes) -> None:
    small = posted("/small", b"12")
    for pieces in divisions(data + small):
        wired = Wired()
        for piece in pieces:
            wired.send(piece)
        assert wired.answers == [(200, b"50"), (200, b"2")]
        assert [path for path, _ in wired.handler.asked] == ["/large"]
        assert wired.handler.ended == 1


def test_a_body_no_larger_than_others_asks_nobody() -> None:
    wired = Wired().send(posted("/large", b"x" * 10) + chunked("/small", b"x" * 10))
    assert wired.answers == [(200, b"10")] * 2
    assert wired.handler.asked == []


@pytest.mark.parametrize("data", [posted("/small", b"x" * 11), chunked("/small", b"x" * 5, b"y" * 6)])
def test_a_large_body_is_refused_where_it_may_not_be(data: bytes) -> None:
    for pieces in divisions(data):
        wired = Wired()
        for piece in pieces:
            wired.send(piece)
        assert wired.refused == (413, "the body has more than 10 octets")
        assert wired.handler.bodies == []


@pytest.mark.parametrize("data", [posted("/large", b"x" * 51), chunked("/large", b"x" * 50, b"y")])
def test_a_body_is_refused_that_is_larger_than_it_may_be(data: bytes) -> None:
    wired = Wired().send(data)
    assert wired.refused == (413, "the body has more than 50 octets")
    wired.connection.end()
    assert wired.handler.ended == 1


def test_a_refusal_comes_before_the_body_and_instead_of_the_word_to_go_on() -> None:
    head = posted("/refused", b"x" * 20, "Expect: 100-continue")[:-20]
    wired = Wired().send(head)
    assert wired.refused == (403, "not for you")
    assert b"100 Continue" not in wired.wire.sent
    wired = Wired().send(head.replace(b"/refused", b"/large"))
    assert wired.wire.sent == b"HTTP/1.1 100 Continue\r\n\r\n"
    assert not wired.connection.closed
    assert wired.send(b"x" * 20).answers == [(200, b"20")]


def test_what_is_allowed_ends_with_the_answer_or_the_connection() -> None:
    wired = Wired().send(posted("/large-late", b"x" * 20))
    assert wired.handler.ended == 0
    assert wired.handler.late is not None
    wired.handler.late.answer(Response(200), 0.0)
    assert wired.handler.ended == 1
    wired.connection.end()
    assert wired.handler.ended == 1
    wired = Wired().send(posted("/large", b"x" * 20)[:-1])
    wired.connection.end()
    assert wired.handler.ended == 1


def test_a_large_body_may_take_its_time_as_long_as_it_comes() -> None:
    wired = Wired().send(posted("/large", b"x" * 50)[:-50])
    for now in (9.0, 19.0):
        wired.send(b"x" * 20, now)
        wired.connection.on_deadline(now + 1)
        assert not wired.connection.closed
        assert wired.connection.deadline() == now + 11
    wired.send(b"x" * 9, 29.0)
    wired.connection.on_deadline(30.0)
    assert wired.refused == (408, "the request took too long")


# At the control endpoint.


def large_rows() -> bytes:
    return rows("q", b"x" * 1_500_000)


def test_a_message_as_large_as_any_can_be_published() -> None:
    press = Press()
    assert press.stage("7/0/1?piece=0", rows("q", b"x" * 2_000_000)) == {"rows": 1}
    assert press.commit(7, [0, 1, 1]) == {"published": 1, "unroutable": 0, "repeated": False}
    assert press.queue.ready_bytes == 2_000_000


@pytest.mark.parametrize(
    ("method", "path", "user", "expected"),
    [
        ("POST", PIECE, "spark", (413, "the body has more than 3048576 octets")),
        ("GET", BASE, "spark", (413, "the body has more than 1048576 octets")),
        ("POST", PIECE, "stranger", (401, None)),
        ("POST", "/api/leveret/nothing", "spark", (404, "there is nothing at '/api/leveret/nothing'")),
    ],
)
def test_too_large_a_body_is_refused_when_its_head_is_there(
    method: str, path: str, user: str, expected: tuple[int, str | None]
) -> None:
    line = Press().line
    head = (
        f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3048577\r\nExpect: 100-continue\r\n"
    )
    head += f"Authorization: {basic(f'{user}:sesame')}\r\n\r\n"
    line.connection.receive(head.encode(), 0.0)
    response = line.answer()
    assert response.status == expected[0]
    assert expected[1] in (None, response.content["reason"])
    assert line.connection.closed


def test_all_large_bodies_together_have_so_much_room() -> None:
    press = Press()
    bodies = memory_budget.bodies_of(press.broker)
    bodies.octets = 4_000_000
    data = request("POST", PIECE, large_rows(), "spark:sesame")
    half = [press.line for _ in range(2)]
    for line in half:
        line.connection.receive(data[:-1], press.broker.now)
    assert bodies.taken == 2 * len(large_rows())
    response = press.send("POST", PIECE, large_rows()).answer()
    assert (response.status, response.headers["Retry-After"]) == (503, "1")
    reason = "other requests take up the memory for their bodies; ask again later"
    assert response.content["reason"] == reason
    half[0].connection.lost()
    half[1].connection.receive(data[-1:], press.broker.now)
    press.site.settle()
    assert half[1].answer().content == {"rows": 1}
    assert bodies.taken == 0
    assert press.ask("POST", PIECE, large_rows()).status == 200
    bodies.octets = 1
    assert press.ask("POST", PIECE, large_rows()).status == 200  # alone it may be larger


def test_a_body_of_unknown_size_takes_up_the_most_there_can_be() -> None:
    press = Press()
    line = press.line
    data = large_rows()
    head = f"POST {PIECE} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n"
    head += f"Authorization: {basic('spark:sesame')}\r\n\r\n{len(data):x}\r\n"
    line.connection.receive(head.encode() + data, press.broker.now)
    assert memory_budget.bodies_of(press.broker).taken == 2_000_000 + (1 << 20)
    line.connection.receive(b"\r\n0\r\n\r\n", press.broker.now)
    press.site.settle()
    assert line.answer().content == {"rows": 1}
    assert memory_budget.bodies_of(press.broker).taken == 0
