"""Answers that come later, and large ones that take their time: what stands behind them waits, and is bounded."""

from __future__ import annotations

import pytest

from leveret.protocols.http.connection import (
    Bounds,
    Connection,
    Handler,
    HeaderList,
    HttpRequest,
    Later,
    Response,
)
from tests.http.test_connection import Wire, responses

BOUNDS = Bounds(behind_size_max=200, idle_timeout_s=60.0, stall_timeout_s=30.0, stall_size=10)
GET = b"GET /%s HTTP/1.1\r\nHost: h\r\n\r\n"


class Slow(Handler):
    """Promises an answer for paths that begin with /late, and answers others at once. A /large one wants to be told."""

    def __init__(self) -> None:
        self.paths: list[str] = []
        self.promised: list[Later] = []
        self.sent: list[str] = []
        self.dropped: list[str] = []

    def on_request(self, request: HttpRequest) -> Response | Later:
        path = request.path
        self.paths.append(path)
        if path.startswith("/late"):
            later = Later()
            later.dropped = lambda: self.dropped.append(path)
            self.promised.append(later)
            return later
        return self.response(path)

    def response(self, path: str) -> Response:
        sent = (lambda: self.sent.append(path)) if "large" in path else None
        return Response(200, path.encode(), sent=sent)

    def common_headers(self) -> HeaderList:
        return ()


class Narrow(Wire):
    """Full as long as anything of a response is unsent, if so told."""

    narrow = False

    def full(self) -> bool:
        return self.narrow and len(self.sent) > self.size_gone


class Line:
    def __init__(self) -> None:
        self.handler, self.wire = Slow(), Narrow()
        self.connection = Connection(self.handler, self.wire, 0.0, BOUNDS)

    def ask(self, *paths: bytes, now: float = 0.0) -> Line:
        self.connection.receive(b"".join(GET % path for path in paths), now)
        return self

    def answer(self, text: str = "/x", now: float = 0.0) -> None:
        self.handler.promised.pop(0).answer(self.handler.response(text), now)

    @property
    def bodies(self) -> list[bytes]:
        return [body for _, body in responses(self.wire.sent, ["GET"] * len(self.handler.paths))]


def test_requests_behind_an_answer_that_is_to_come_wait_for_it() -> None:
    line = Line().ask(b"1", b"late", b"2", b"3")
    assert line.bodies == [b"/1"]
    assert line.handler.paths == ["/1", "/late"]
    line.ask(b"4")
    line.answer("/now")
    assert line.bodies == [b"/1", b"/now", b"/2", b"/3", b"/4"]


def test_several_late_answers_come_in_the_order_of_their_requests() -> None:
    line = Line().ask(b"late1", b"late2", b"1")
    line.answer("/a")
    assert line.bodies == [b"/a"]
    line.answer("/b")
    assert line.bodies == [b"/a", b"/b", b"/1"]


def test_an_answer_that_is_there_before_anybody_waits_is_given_at_once() -> None:
    class Prompt(Slow):
        def on_request(self, request: HttpRequest) -> Response | Later:
            self.paths.append(request.path)
            later = Later()
            later.answer(self.response(request.path), 0.0)
            return later

    line = Line()
    line.handler = Prompt()
    line.connection = Connection(line.handler, line.wire, 0.0, BOUNDS)
    assert line.ask(b"1", b"2").bodies == [b"/1", b"/2"]


def test_who_waits_for_an_answer_is_not_idle() -> None:
    line = Line().ask(b"late", now=5.0)
    assert line.connection.deadline() == 65.0
    line.connection.on_deadline(65.0)
    assert not line.connection.closed
    assert line.connection.deadline() == 125.0
    line.answer(now=70.0)
    assert line.connection.deadline() == 130.0
    line.connection.on_deadline(130.0)
    assert line.connection.closed


def test_whoever_works_on_an_answer_is_told_when_nobody_waits_any_more() -> None:
    line = Line().ask(b"late")
    line.connection.end()
    assert line.handler.dropped == ["/late"]
    line.answer("/large")
    assert line.bodies == []
    assert line.handler.sent == ["/large"]  # what it took up is free again


def test_what_is_sent_behind_a_late_answer_is_bounded() -> None:
    line = Line().ask(b"late")
    line.connection.receive(b"x" * 200, 0.0)
    assert not line.connection.closed
    line.connection.receive(b"x", 0.0)
    assert line.connection.closed
    assert line.handler.dropped == ["/late"]


def test_a_connection_that_ends_with_a_late_answer_ends_after_it() -> None:
    line = Line()
    line.connection.receive(b"GET /late HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n", 0.0)
    assert not line.connection.closed
    line.answer("/x")
    assert line.connection.closed
    assert line.bodies == [b"/x"]


@pytest.mark.parametrize("late", [False, True])
def test_behind_a_large_answer_the_next_waits_until_most_of_it_is_sent(late: bool) -> None:
    line = Line()
    line.wire.narrow = True
    line.ask(b"late" if late else b"large", b"2")
    if late:
        line.answer("/large")
    assert line.bodies == [b"/large"]
    assert line.handler.sent == []
    line.wire.size_gone = len(line.wire.sent)
    assert line.connection.drained(1.0)
    assert line.handler.sent == ["/large"]
    assert line.bodies == [b"/large"]  # it is not the moment to write
    line.connection.go_on(1.0)
    assert line.bodies == [b"/large", b"/2"]
    assert not line.connection.closed
    assert not line.connection.drained(1.0)


def test_a_large_answer_that_leaves_at_once_is_sent() -> None:
    line = Line().ask(b"large", b"2")
    assert (line.handler.sent, line.bodies) == (["/large"], [b"/large", b"/2"])


def test_the_last_large_answer_leaves_before_the_connection_ends() -> None:
    line = Line()
    line.wire.narrow = True
    line.connection.receive(b"GET /large HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n", 0.0)
    assert not line.connection.closed
    assert not line.connection.drained(0.0)
    assert line.connection.closed
    assert line.handler.sent == ["/large"]


def test_who_does_not_read_a_large_answer_is_let_go() -> None:
    line = Line()
    line.wire.narrow = True
    line.ask(b"large", now=5.0)
    assert line.connection.deadline() == 35.0
    line.wire.size_gone = 10
    line.connection.on_deadline(35.0)
    assert not line.connection.closed
    line.wire.size_gone = 19
    line.connection.on_deadline(65.0)
    assert line.connection.closed
    line.connection.end()
    assert line.handler.sent == ["/large"]


def test_bad_bytes_behind_a_late_answer_are_refused_after_it() -> None:
    line = Line().ask(b"late")
    line.connection.receive(b"rubbish\r\n\r\n", 0.0)
    assert line.wire.sent == b""
    line.answer("/x")
    line.handler.paths.append("refused")
    assert [status for status, _ in responses(line.wire.sent, ["GET", "GET"])] == [200, 400]
    assert line.connection.closed
