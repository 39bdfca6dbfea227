"""HTTP/1.1 on h11: bytes in, whole requests to a handler, its responses out as bytes. No socket, no clock, no broker.

    waiting ──first bytes──> receiving ──end of message──> answered ──> waiting     or closed, where HTTP says so
                                 └─malformed, too large, too slow──> refused ──> closed

Requests are answered one after the other, in the order they came, also when several came at once (pipelining). What
this file refuses by itself it answers as JSON, like everything else: `{"error": phrase, "reason": sentence}`.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Final, TypeAlias
from urllib.parse import urlsplit

import attrs
import h11

HeaderList: TypeAlias = Sequence[tuple[str, str]]

BODILESS: Final = frozenset((HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED))


@attrs.frozen
class Request:
    """A whole request. Names of headers are in lower case; one that was repeated has its values joined by commas."""

    method: str
    path: str  # as sent, still percent-encoded
    query: str  # what stands behind the question mark
    headers: Mapping[str, str]
    body: bytes


@attrs.frozen
class Response:
    """An answer. Content-Length and Connection are seen to; `close` ends the connection after it."""

    status: int
    body: bytes = b""
    content_type: str = "application/json"
    headers: HeaderList = ()
    close: bool = False


def refusal(status: int, reason: str, headers: HeaderList = (), close: bool = False) -> Response:
    """A response that says why not."""
    content = {"error": HTTPStatus(status).phrase, "reason": reason}
    return Response(status, json.dumps(content).encode(), headers=headers, close=close)


class Handler(ABC):
    """What a connection asks of the broker's side."""

    @abstractmethod
    def on_request(self, request: Request) -> Response:
        """Answer a request. Must not raise."""

    @abstractmethod
    def common_headers(self) -> HeaderList:
        """The headers of every response, the connection's own refusals included."""


class Writer(ABC):
    """Where a connection puts what it sends."""

    @abstractmethod
    def write(self, data: bytes) -> None:
        """Take some bytes; the order is kept."""

    @abstractmethod
    def full(self) -> bool:
        """Whether the peer leaves too much of its responses unread."""


@attrs.frozen
class Bounds:
    """What one connection may use up, in octets and seconds."""

    head_size_max: int = 16 * 1024  # of request line and headers
    body_size_max: int = 1024 * 1024
    request_timeout_s: float = 10.0  # from a request's first byte to its last
    idle_timeout_s: float = 60.0  # between requests


class Connection:
    """One connection's machine."""

    def __init__(self, handler: Handler, writer: Writer, now: float, bounds: Bounds | None = None) -> None:
        self.closed = False
        self._handler = handler
        self._writer = writer
        self._bounds = bounds or Bounds()
        self._machine = h11.Connection(h11.SERVER, self._bounds.head_size_max)
        self._request: h11.Request | None = None
        self._body: list[bytes] = []
        self._body_size = 0
        self._waiting = True  # between requests
        self._until = now + self._bounds.request_timeout_s

    # Bytes in.

    def receive(self, data: bytes, now: float) -> None:
        """Take bytes in any division, and answer the requests that are whole. `now` is monotonic seconds."""
        if self.closed or not data:
            return
        if self._waiting:
            self._begin(now)
        self._machine.receive_data(data)
        try:
            while not self.closed and self._step(now):
                pass
        except h11.RemoteProtocolError as error:
            self._refuse(error.error_status_hint, str(error))

    def _begin(self, now: float) -> None:
        self._waiting = False
        self._until = now + self._bounds.request_timeout_s

    def _step(self, now: float) -> bool:
        """Work off one event; False when more bytes are needed."""
        event = self._machine.next_event()
        if isinstance(event, h11.Request):
            self._on_head(event)
        elif isinstance(event, h11.Data):
            self._on_body(bytes(event.data))
        elif isinstance(event, h11.EndOfMessage):
            self._on_end(now)
        else:
            self._let_continue()
            return False
        return True

    def _on_head(self, request: h11.Request) -> None:
        self._request = request
        if head_size(request) > self._bounds.head_size_max:  # h11 bounds only what arrives in several pieces
            self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "the headers are too long")
            return
        if int(dict(request.headers).get(b"content-length", b"0")) > self._bounds.body_size_max:
            self._refuse_size()

    def _on_body(self, data: bytes) -> None:
        self._body.append(data)
        self._body_size += len(data)
        if self._body_size > self._bounds.body_size_max:
            self._refuse_size()

    def _refuse_size(self) -> None:
        self._refuse(
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the body has more than {self._bounds.body_size_max} octets"
        )

    def _on_end(self, now: float) -> None:
        assert self._request is not None
        body = b"".join(self._body)
        self._body, self._body_size = [], 0
        try:
            request = whole(self._request, body)
        except ValueError as error:
            self._refuse(HTTPStatus.BAD_REQUEST, f"the request's target cannot be read: {error}")
            return
        self._respond(self._handler.on_request(request))
        if not self.closed:
            self._next(now)

    def _next(self, now: float) -> None:
        """Be ready for another request; the first bytes of it may be here already."""
        self._request = None
        self._machine.start_next_cycle()
        self._waiting = not self._machine.trailing_data[0]
        wait_s = self._bounds.idle_timeout_s if self._waiting else self._bounds.request_timeout_s
        self._until = now + wait_s

    def _let_continue(self) -> None:
        if self._machine.they_are_waiting_for_100_continue:
            self._send(
                h11.InformationalResponse(status_code=HTTPStatus.CONTINUE, headers=[], reason="Continue")
            )

    # Responses out.

    def _refuse(self, status: int, reason: str) -> None:
        """Say why the connection cannot go on, if that can be said, and end it."""
        if self._machine.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self._respond(refusal(status, reason, close=True))
        self.closed = True

    def _respond(self, response: Response) -> None:
        status = HTTPStatus(response.status)
        headers = [*self._handler.common_headers(), *response.headers]
        if status not in BODILESS:
            headers.append(("Content-Type", response.content_type))
            headers.append(("Content-Length", str(len(response.body))))
        if response.close or self._writer.full():  # the latter asks, and asks, and does not read
            headers.append(("Connection", "close"))
        self._send(h11.Response(status_code=status, headers=headers, reason=status.phrase))
        if response.body and status not in BODILESS and not self._asked_for_head:
            self._send(h11.Data(data=response.body))
        self._send(h11.EndOfMessage())
        self.closed = self._machine.our_state is not h11.DONE

    @property
    def _asked_for_head(self) -> bool:
        return self._request is not None and self._request.method == b"HEAD"

    def _send(self, event: h11.InformationalResponse | h11.Response | h11.Data | h11.EndOfMessage) -> None:
        if data := self._machine.send(event):
            self._writer.write(data)

    # Time.

    def deadline(self) -> float | None:
        """When `on_deadline` wants to be called, whatever happens until then."""
        return None if self.closed else self._until

    def on_deadline(self, now: float) -> None:
        """End a connection that is idle, or whose request takes too long."""
        if self.closed or now < self._until:
            return
        if not self._waiting:
            self._refuse(HTTPStatus.REQUEST_TIMEOUT, "the request took too long")
        self.closed = True


def head_size(request: h11.Request) -> int:
    """Octets of request line and headers, at least."""
    line = len(request.method) + len(request.target) + len(b"  HTTP/1.1\r\n")
    return line + sum(len(name) + len(value) + len(b": \r\n") for name, value in request.headers)


def whole(request: h11.Request, body: bytes) -> Request:
    """A request from its head and body. Raises ValueError for a target that is not a path or URL."""
    headers: dict[str, str] = {}
    for raw_name, raw_value in request.headers:
        name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    path, query = target_parts(request.target.decode("latin-1"))
    return Request(request.method.decode("latin-1"), path, query, headers, body)


def target_parts(target: str) -> tuple[str, str]:
    """Path and query; the scheme and host that a proxy leaves in front are dropped (RFC 9112, 3.2)."""
    if target.startswith("/") or target == "*":
        path, _, query = target.partition("?")
        return path, query
    parts = urlsplit(target)
    if parts.scheme not in ("http", "https"):
        raise ValueError(f"'{target}'")
    return parts.path or "/", parts.query
