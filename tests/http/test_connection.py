"""The HTTP machine: whole requests out of any division of bytes, bounds, time, and what bad bytes are answered."""

from __future__ import annotations

import json

import attrs
import h11
import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.protocols.http.connection import (
    Bounds,
    Connection,
    Handler,
    HeaderList,
    HttpRequest,
    Response,
    Writer,
)
from leveret.protocols.http.request_head import target_parts

BOUNDS = Bounds(head_size_max=512, body_size_max=100, request_timeout_s=10.0, idle_timeout_s=60.0)


class Wire(Writer):
    def __init__(self) -> None:
        self.sent = b""
        self.is_full = False
        self.size_gone = 0

    def write(self, data: bytes) -> None:
        self.sent += data

    def gone(self) -> int:
        return self.size_gone

    def full(self) -> bool:
        return self.is_full


class Echo(Handler):
    """Remembers requests and tells the path."""

    def __init__(self) -> None:
        self.requests: list[HttpRequest] = []

    def on_request(self, request: HttpRequest) -> Response:
        self.requests.append(request)
        return Response(204 if request.path == "/nothing" else 200, request.path.encode(), "text/plain")

    def common_headers(self) -> HeaderList:
        return (("Server", "test"),)


class Line:
    """A connection with both its ends."""

    def __init__(self) -> None:
        self.echo, self.wire = Echo(), Wire()
        self.connection = Connection(self.echo, self.wire, 0.0, BOUNDS)

    def send(self, *pieces: bytes, now: float = 0.0) -> Line:
        for piece in pieces:
            self.connection.receive(piece, now)
        return self

    @property
    def responses(self) -> list[tuple[int, bytes]]:
        refused = self.connection._request
        methods = [request.method for request in self.echo.requests]
        return responses(self.wire.sent, [*methods, "GET" if refused is None else refused.method.decode()])

    @property
    def refusal(self) -> tuple[int, str]:
        """The last response, a refusal as JSON on a connection that has ended."""
        status, body = self.responses[-1]
        content = json.loads(body)
        assert set(content) == {"error", "reason"}
        assert b"connection: close" in self.wire.sent.lower()
        assert self.connection.closed
        return status, content["reason"]


def responses(sent: bytes, methods: list[str]) -> list[tuple[int, bytes]]:
    """Status and body of each response, read by a client's h11. `methods` may have one more, for a refusal."""
    read: list[tuple[int, bytes]] = []
    for method in methods:
        if not sent:
            break
        client = h11.Connection(h11.CLIENT)
        client.send(h11.Request(method=method, target="/", headers=[("Host", "x")]))
        client.send(h11.EndOfMessage())
        client.receive_data(sent)
        client.receive_data(b"")
        event = client.next_event()
        while isinstance(event, h11.InformationalResponse):
            event = client.next_event()
        assert isinstance(event, h11.Response)
        status, body = event.status_code, b""
        while isinstance(event := client.next_event(), h11.Data):
            body += event.data
        read.append((status, body))
        sent = client.trailing_data[0]
    return read


@attrs.frozen
class Sample:
    sent: bytes
    expected: tuple[tuple[int, bytes], ...]
    requests: tuple[tuple[str, str, str, bytes], ...]
    closed: bool = False


SAMPLES = {
    "get": Sample(
        b"GET /a%20b?x=1&y HTTP/1.1\r\nHost: h\r\n\r\n",
        ((200, b"/a%20b"),),
        (("GET", "/a%20b", "x=1&y", b""),),
    ),
    "head": Sample(b"HEAD /a HTTP/1.1\r\nHost: h\r\n\r\n", ((200, b""),), (("HEAD", "/a", "", b""),)),
    "no content": Sample(
        b"GET /nothing HTTP/1.1\r\nHost: h\r\n\r\n", ((204, b""),), (("GET", "/nothing", "", b""),)
    ),
    "post": Sample(
        b"POST /p HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello",
        ((200, b"/p"),),
        (("POST", "/p", "", b"hello"),),
    ),
    "chunked": Sample(
        b"PUT /p HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3;x=y\r\nllo\r\n0\r\nT: t\r\n\r\n",
        ((200, b"/p"),),
        (("PUT", "/p", "", b"hello"),),
    ),
    "absolute": Sample(
        b"GET http://h:1/a?b HTTP/1.1\r\nHost: h:1\r\n\r\n", ((200, b"/a"),), (("GET", "/a", "b", b""),)
    ),
    "asterisk": Sample(
        b"OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n", ((200, b"*"),), (("OPTIONS", "*", "", b""),)
    ),
    "pipelined": Sample(
        b"POST /1 HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\nokGET /2 HTTP/1.1\r\nHost: h\r\n\r\n"
        b"HEAD /3 HTTP/1.1\r\nHost: h\r\n\r\nGET /4 HTTP/1.1\r\nHost: h\r\n\r\n",
        ((200, b"/1"), (200, b"/2"), (200, b""), (200, b"/4")),
        (("POST", "/1", "", b"ok"), ("GET", "/2", "", b""), ("HEAD", "/3", "", b""), ("GET", "/4", "", b"")),
    ),
    "close": Sample(
        b"GET /1 HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\nGET /2 HTTP/1.1\r\nHost: h\r\n\r\n",
        ((200, b"/1"),),
        (("GET", "/1", "", b""),),
        closed=True,
    ),
    "http/1.0": Sample(b"GET /1 HTTP/1.0\r\n\r\n", ((200, b"/1"),), (("GET", "/1", "", b""),), closed=True),
    "upgrade": Sample(
        b"GET /1 HTTP/1.1\r\nHost: h\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
        ((200, b"/1"),),
        (("GET", "/1", "", b""),),
    ),
}


def require(sample: Sample, line: Line) -> None:
    assert tuple(line.responses) == sample.expected
    told = [(each.method, each.path, each.query, each.body) for each in line.echo.requests]
    assert tuple(told) == sample.requests
    assert line.connection.closed is sample.closed


@pytest.mark.parametrize("name", SAMPLES)
def test_requests_are_answered_whole_byte_by_byte_and_in_two_pieces(name: str) -> None:
    sample = SAMPLES[name]
    require(sample, Line().send(sample.sent))
    require(sample, Line().send(*(bytes([octet]) for octet in sample.sent)))
    for at in range(1, len(sample.sent)):
        require(sample, Line().send(sample.sent[:at], sample.sent[at:]))


def test_headers_are_told_in_lower_case_and_repeated_ones_joined() -> None:
    line = Line().send(b"GET / HTTP/1.1\r\nHOST: h\r\nX-A: 1\r\nx-a: 2\r\n\r\n")
    assert line.echo.requests[0].headers == {"host": "h", "x-a": "1, 2"}


def test_every_response_has_the_common_headers_and_its_length() -> None:
    head = Line().send(b"HEAD /abc HTTP/1.1\r\nHost: h\r\n\r\n").wire.sent
    assert head == (
        b"HTTP/1.1 200 OK\r\nServer: test\r\nContent-Type: text/plain\r\nContent-Length: 4\r\n\r\n"
    )


MALFORMED = {
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n": 400,
    b"AMQP\x00\x00\x09\x01\r\n\r\n": 400,
    b"GET\r\n\r\n": 400,
    b"GET / HTTP/1.1\r\n\r\n": 400,
    b"GET / HTTP/1.1\r\nHost: h\r\nHost: i\r\n\r\n": 400,
    b"GET / HTTP/1.1\r\nHost: h\r\nno colon\r\n\r\n": 400,
    b"GET / HTTP/1.1\r\nHost: h\r\nX: a\x00b\r\n\r\n": 400,
    b"GET / HTTP/1.1\r\nHost : h\r\n\r\n": 400,
    b"GET mailto:x HTTP/1.1\r\nHost: h\r\n\r\n": 400,
    b"GET http://[ HTTP/1.1\r\nHost: h\r\n\r\n": 400,
    b"CONNECT h:1 HTTP/1.1\r\nHost: h\r\n\r\n": 400,
    b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: x\r\n\r\n": 400,
    b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: -1\r\n\r\n": 400,
    b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1, 2\r\n\r\n": 400,
    b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: gzip\r\n\r\n": 501,
    b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n": 400,
    b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n": 400,
    b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 101\r\n\r\n": 413,
    b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 99999999999999999999\r\n\r\n": 413,
    b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 9" + b"9" * 40 + b"\r\n\r\n": 400,
    b"POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n65\r\n" + b"x" * 0x65 + b"\r\n": 413,
    b"GET /" + b"a" * 600 + b" HTTP/1.1\r\nHost: h\r\n\r\n": 431,
    b"GET / HTTP/1.1\r\nHost: h\r\nX: " + b"a" * 600 + b"\r\n\r\n": 431,
}


@pytest.mark.parametrize("sent", MALFORMED, ids=lambda sent: repr(sent[:40]))
def test_what_is_malformed_or_too_large_is_refused_and_ends_the_connection(sent: bytes) -> None:
    for pieces in ([sent], [bytes([octet]) for octet in sent]):
        line = Line().send(*pieces)
        assert line.refusal[0] == MALFORMED[sent]
        assert line.echo.requests == []
        before = line.wire.sent
        line.send(b"GET / HTTP/1.1\r\nHost: h\r\n\r\n")
        assert line.wire.sent == before


def test_what_was_answered_before_bad_bytes_stays_answered() -> None:
    line = Line().send(b"GET /1 HTTP/1.1\r\nHost: h\r\n\r\nrubbish\r\n\r\n")
    assert line.responses[0] == (200, b"/1")
    assert line.refusal[0] == 400


def test_a_client_that_waits_for_it_is_told_to_continue_once() -> None:
    head = b"POST /p HTTP/1.1\r\nHost: h\r\nContent-Length: 4\r\nExpect: 100-continue\r\n\r\n"
    line = Line().send(head)
    assert line.wire.sent == b"HTTP/1.1 100 Continue\r\n\r\n"
    assert line.send(b"bo", b"dy").responses == [(200, b"/p")]
    assert line.wire.sent.count(b"100 Continue") == 1


def test_a_client_that_waits_with_too_much_is_refused_at_once() -> None:
    line = Line().send(b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 400\r\nExpect: 100-continue\r\n\r\n")
    assert line.refusal == (413, "the body has more than 100 octets")
    assert b"Continue" not in line.wire.sent


def test_who_asks_for_the_head_only_is_refused_without_a_body() -> None:
    line = Line().send(b"HEAD nowhere HTTP/1.1\r\nHost: h\r\n\r\n")
    assert line.responses == [(400, b"")]
    assert line.connection.closed


def test_a_client_that_does_not_read_is_let_go() -> None:
    line = Line()
    line.wire.is_full = True
    line.send(b"GET /1 HTTP/1.1\r\nHost: h\r\n\r\nGET /2 HTTP/1.1\r\nHost: h\r\n\r\n")
    assert line.responses == [(200, b"/1")]
    assert line.connection.closed


def test_a_request_has_ten_seconds_and_says_when_they_are_over() -> None:
    line = Line().send(b"GET / HTTP", now=5.0).send(b"/1.1\r\n", now=14.0)
    assert line.connection.deadline() == 15.0
    line.connection.on_deadline(14.9)
    assert not line.connection.closed
    line.connection.on_deadline(15.0)
    assert line.refusal == (408, "the request took too long")
    assert line.connection.deadline() is None


def test_an_idle_connection_ends_after_a_minute_without_a_word() -> None:
    line = Line().send(SAMPLES["get"].sent, now=5.0)
    assert line.connection.deadline() == 65.0
    sent = line.wire.sent
    line.connection.on_deadline(65.0)
    assert (line.connection.closed, line.wire.sent) == (True, sent)


def test_the_beginning_of_a_pipelined_request_starts_its_time() -> None:
    line = Line().send(SAMPLES["get"].sent + b"GET", now=5.0)
    assert line.connection.deadline() == 15.0


def test_targets() -> None:
    assert target_parts("/a?b?c") == ("/a", "b?c")
    assert target_parts("//evil/path") == ("//evil/path", "")
    assert target_parts("http://h") == ("/", "")


@given(st.lists(st.sampled_from([*(s.sent for s in SAMPLES.values()), *MALFORMED]), max_size=3), st.data())
def test_no_bytes_whatever_raise_or_leave_a_refusal_open(sent: list[bytes], data: st.DataObject) -> None:
    octets = bytearray(b"".join(sent))
    for _ in range(data.draw(st.integers(0, 4)) if octets else 0):
        octets[data.draw(st.integers(0, len(octets) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(octets)))
    line, split = Line().send(bytes(octets)), Line().send(bytes(octets[:cut]), bytes(octets[cut:]))
    assert line.connection.closed is split.connection.closed
    assert statuses(line) == statuses(split)


def statuses(line: Line) -> list[int]:
    """A head that is too long and malformed as well (431, 400) is refused for whichever is seen first."""
    return [400 if status == 431 else status for status, _ in line.responses]
