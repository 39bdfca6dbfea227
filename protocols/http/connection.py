"""Read HTTP/1.1 requests with h11, and write the responses of a handler. No socket, no clock, no broker.

    waiting ──first bytes──> receiving ──end of message──> answered ──> waiting     or closed, where HTTP says so
                             │  └─ a login is being checked ─┘ └─the answer is `Later`, or too much of it unsent─┘
                                 └─malformed, too large, too slow──> refused ──> closed

Requests are answered one after the other, in the order they came, also when several came at once (pipelining). An
answer may come `Later`, and a large one takes its time to be sent: the requests behind it wait, and their size is
bounded. What this module refuses by itself it answers as JSON, like everything else: `{"error": phrase, "reason":
sentence}`.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from http import HTTPStatus
from typing import Final, TypeAlias

import attrs
import h11

from leveret.protocols.http.request_head import head_size, target_parts
from leveret.protocols.shared.machine.pieces import keep

HeaderList: TypeAlias = Sequence[tuple[str, str]]

BODILESS: Final = frozenset((HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED))


@attrs.frozen
class HttpRequest:
    """A whole request. Names of headers are in lower case; the values of a repeated header are joined by commas."""

    method: str
    path: str  # as sent, still percent-encoded
    query: str  # the part after the question mark, still encoded
    headers: Mapping[str, str] = attrs.field(repr=False)
    body: bytes = attrs.field(repr=False)


@attrs.frozen
class Response:
    """A response. The connection adds Content-Length and Connection; `close` ends the connection after it.

    A response with `sent` is a large one: the next request waits until most of it has been sent to the peer; then, or
    when the connection ends, `sent` is called, once. The long parts of a body stand in `pieces`, which are sent without
    being joined.
    """

    status: int
    body: bytes = b""
    content_type: str = "application/json"
    headers: HeaderList = ()
    close: bool = False
    sent: Callable[[], None] | None = None
    pieces: Sequence[bytes] = ()

    @property
    def size(self) -> int:
        """Return the size of the whole body in bytes."""
        return len(self.body) + sum(map(len, self.pieces))


def nothing() -> None:
    """Do nothing: the default of optional callbacks."""


class Later:
    """A response that comes later. The code that works on it calls `answer` once, in the connection's own thread.

    `dropped` is called if the connection ends before, and the response is not needed any more.
    """

    __slots__ = ("_answered", "_then", "dropped")

    def __init__(self) -> None:
        self.dropped: Callable[[], None] = nothing
        self._then: Callable[[Response, float], None] | None = None
        self._answered: tuple[Response, float] | None = None

    def answer(self, response: Response, now: float) -> None:
        """Give the response to the connection, or drop it if the connection has ended. `now` is monotonic seconds."""
        if self._then is None:
            self._answered = response, now
        else:
            self._then(response, now)

    def give_to(self, then: Callable[[Response, float], None]) -> None:
        """Have the response given to `then`, at once if it is there already."""
        self._then = then
        if self._answered is not None:
            then(*self._answered)


class Pause:
    """Returned by a handler while it checks a login: the connection asks the handler once more after `resume`.

    `dropped` is called if the connection ends before, and the check is not needed any more.
    """

    __slots__ = ("_again", "dropped")

    def __init__(self) -> None:
        self.dropped: Callable[[], None] = nothing
        self._again: Callable[[float], None] | None = None

    def resume(self, now: float) -> None:
        """Let the connection ask its handler once more. `now` is monotonic seconds."""
        again, self._again = self._again, None
        if again is not None:
            again(now)

    def give_to(self, again: Callable[[float], None]) -> None:
        self._again = again


def refusal(status: int, reason: str, headers: HeaderList = (), close: bool = False) -> Response:
    """Return a response with the reason of a refusal as JSON, with question marks for what is no UTF-8 in it."""
    content = {"error": HTTPStatus(status).phrase, "reason": reason.encode("utf-8", "replace").decode()}
    return Response(status, json.dumps(content).encode(), headers=headers, close=close)


@attrs.frozen
class Allowance:
    """The most bytes that a body may have. `end` is called when its request is answered or its connection ends."""

    octets: int
    end: Callable[[], None] = nothing
    final: bool = True  # False if the handler may allow more when this does not suffice


class Handler(ABC):
    """The part of a connection that knows the broker: it allows large bodies, and answers requests."""

    is_stranger: bool = False  # no user has logged in on this connection yet

    def allow(self, head: HttpRequest, size: int | None) -> Allowance | Response | Pause | None:
        """Called when a body is larger than usual; `size` is its size in bytes, if the head tells it.

        `head` is the request without its body. Return an `Allowance`, a response that refuses the body before it is
        read, a `Pause` to be asked again, or None if the body is too large. Must not raise.
        """
        return None

    @abstractmethod
    def on_request(self, request: HttpRequest) -> Response | Later | Pause:
        """Answer a request. Must not raise. The next request comes when this one has been answered."""

    def on_answered(self, head: h11.Request, status: int) -> None:
        """Called when a request has been answered. Must not raise."""

    def is_turn_over(self) -> bool:
        """Return whether other connections come before the next request, which is here already."""
        return False

    def go_on_soon(self) -> None:
        """Called when the connection's turn is over while it answers late: `Connection.go_on` must follow."""

    @abstractmethod
    def common_headers(self) -> HeaderList:
        """Return the headers of every response, including the connection's own refusals."""


class Writer(ABC):
    """The place where a connection writes what it sends."""

    @abstractmethod
    def write(self, data: bytes) -> None:
        """Take some bytes, to be sent in this order."""

    @abstractmethod
    def full(self) -> bool:
        """Return whether the peer leaves too much of its responses unread."""

    @abstractmethod
    def gone(self) -> int:
        """Return how many bytes of everything written have been sent to the peer."""


@attrs.frozen
class Bounds:
    """The limits of one connection, in bytes and seconds."""

    head_size_max: int = 6 * 1024  # of request line and headers; a large token takes 3 KiB
    headers_max: int = 64
    body_size_max: int = 1024 * 1024
    strangers_body_max: int = 2048  # of a body before its user has logged in
    behind_size_max: int = 128 * 1024  # of requests that come while an answer is awaited or being sent
    # From a request's first byte to its last, or to `stall_size` more of its body.
    request_timeout_s: float = 10.0
    idle_timeout_s: float = 60.0  # between requests
    stall_timeout_s: float = 30.0  # in which the reader of a large answer must take `stall_size` more of it
    stall_size: int = 256 * 1024  # the sender of a large body must send as much within `request_timeout_s`


class Connection:
    """The state machine of one connection."""

    def __init__(self, handler: Handler, writer: Writer, now: float, bounds: Bounds | None = None) -> None:
        self.closed = False
        self.halted = False  # a request is here that is to be answered after the turns of other connections
        self._handler = handler
        self._writer = writer
        self._bounds = bounds or Bounds()
        self._machine = h11.Connection(h11.SERVER, self._bounds.head_size_max)
        self._request: h11.Request | None = None
        self._body: list[bytes] = []
        self._body_size = 0
        self._body_max = 0
        self._allowance: Allowance | None = None  # for a larger body
        self._waiting = True  # between requests
        self._working = False  # `_go_on` is running further up the stack
        self._late: Later | None = None  # the response that is still to come
        self._paused: Pause | None = None  # while a login is being checked
        self._unsent: Callable[[], None] | None = None  # `sent` of a large response that is being sent
        self._over = False  # there is no request after the last answer
        self._behind_size = 0  # bytes that came while another response was awaited or being sent
        self._gone = 0  # bytes sent, or received of a body, when the present `_until` was set
        self._until = now + self._bounds.request_timeout_s

    # Bytes in.

    def receive(self, data: bytes, now: float) -> None:
        """Take bytes in any division, and answer the requests that are complete. `now` is monotonic seconds.

        b"" continues after a halt.
        """
        if self.closed or not (data or self.halted):
            return
        if not data:
            self._go_on(now)
            return
        if self._busy:
            self._behind_size += len(data)
            if self._behind_size > self._bounds.behind_size_max:
                self.end()
                return
        elif self._waiting:
            self._begin(now)
        self._machine.receive_data(data)
        self._go_on(now)

    @property
    def _busy(self) -> bool:
        return self._late is not None or self._unsent is not None or self._paused is not None

    def _begin(self, now: float) -> None:
        self._waiting = False
        self._until = now + self._bounds.request_timeout_s

    def _go_on(self, now: float) -> None:
        """Handle the events that are in the buffer until one must wait, or it is the turn of other connections."""
        self._working, self.halted = True, False
        try:
            while not self.closed and not self._busy and not self.halted and self._step(now):
                self.halted = self._request is None and not self._waiting and self._handler.is_turn_over()
        except h11.RemoteProtocolError as error:
            self._refuse(error.error_status_hint, str(error))
        finally:
            self._working = False

    def _step(self, now: float) -> bool:
        """Handle one event; return False when more bytes are needed."""
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
        self._gone = 0
        self._body_max = self._usual_body_max
        try:
            target_parts(request.target.decode("latin-1"))
        except ValueError as error:
            self._refuse(HTTPStatus.BAD_REQUEST, f"the request's target cannot be read: {error}")
            return
        if head_size(request) > self._bounds.head_size_max:  # h11 bounds only what arrives in several pieces
            self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "the headers are too long")
            return
        if len(request.headers) > self._bounds.headers_max:
            self._refuse(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "there are too many headers")
            return
        value = dict(request.headers)
        # a proxy may believe the other (RFC 9112, 6.3)
        if b"content-length" in value and b"transfer-encoding" in value:
            self._refuse(HTTPStatus.BAD_REQUEST, "the body's length is given twice")
            return
        size = int(value.get(b"content-length", b"0"))
        if size > self._body_max:
            self._ask_for_more(size)

    def _on_body(self, data: bytes) -> None:
        keep(self._body, data)
        self._body_size += len(data)
        if self._body_size > self._body_max:
            self._ask_for_more(None)

    def _ask_for_more(self, size: int | None) -> None:
        """Ask the handler to allow a body that is larger than usual: that depends on the route and the user."""
        final = self._allowance is not None and self._allowance.final
        while not final and (size or self._body_size) > self._body_max:
            assert self._request is not None
            answer = self._handler.allow(whole(self._request, b""), size)
            if isinstance(answer, Pause):
                self._pause(answer, lambda now: self._ask_for_more(size))
                return
            if isinstance(answer, Response):
                self._respond(attrs.evolve(answer, close=True))
                self.closed = True
                return
            final = answer is None or answer.final or answer.octets <= self._body_max
            if answer is not None:
                self._allowance = answer
                self._body_max = answer.octets
        if (size or self._body_size) > self._body_max:
            reason = f"the body has more than {self._body_max} octets"
            self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, reason)

    @property
    def _usual_body_max(self) -> int:
        usual = self._bounds.body_size_max
        return min(usual, self._bounds.strangers_body_max) if self._handler.is_stranger else usual

    def _end_allowance(self) -> None:
        allowance, self._allowance = self._allowance, None
        if allowance is not None:
            allowance.end()

    def _on_end(self, now: float) -> None:
        assert self._request is not None
        body = b"".join(self._body)
        self._body, self._body_size = [], 0
        self._ask(whole(self._request, body), now)

    def _ask(self, request: HttpRequest, now: float) -> None:
        answer = self._handler.on_request(request)
        if isinstance(answer, Pause):
            self._pause(answer, partial(self._ask, request))
        elif isinstance(answer, Later):
            self._late = answer
            self._until = now + self._bounds.idle_timeout_s
            answer.give_to(self._on_late)
        else:
            self._conclude(answer, now)

    def _pause(self, pause: Pause, again: Callable[[float], None]) -> None:
        self._paused = pause
        pause.give_to(partial(self._resume, again))

    def _resume(self, again: Callable[[float], None], now: float) -> None:
        self._paused = None
        if not self.closed:
            again(now)
            self._go_on(now)

    def _on_late(self, response: Response, now: float) -> None:
        """Called with the response that came `Later`."""
        self._late = None
        if self.closed:
            (response.sent or nothing)()
            return
        self._conclude(response, now)
        self.go_on(now)

    def _conclude(self, response: Response, now: float) -> None:
        """Send the response, and be ready for another request if there is room for another response."""
        self._end_allowance()
        assert self._request is not None
        self._handler.on_answered(self._request, response.status)
        self._respond(response)
        self._over = self._machine.our_state is not h11.DONE
        self._unsent = response.sent
        if response.sent is not None and self._writer.full():
            self._watch_reading(now)
        else:
            self._conclude_sent(now)

    def _watch_reading(self, now: float) -> None:
        self._gone = self._writer.gone()
        self._until = now + self._bounds.stall_timeout_s

    def _conclude_sent(self, now: float) -> None:
        self._tell_sent()
        if self._over:
            self.closed = True
        else:
            self._next(now)

    def _tell_sent(self) -> None:
        unsent, self._unsent = self._unsent, None
        (unsent or nothing)()

    def drained(self, now: float) -> bool:
        """Called when most of what was written is sent. Return True if `go_on` may find more requests."""
        if self._unsent is None or self.closed:
            return False
        self._conclude_sent(now)
        return not self.closed

    def go_on(self, now: float) -> None:
        """Answer the requests that came behind a late or a large response."""
        if not self._working:
            self._go_on(now)
            if self.halted:
                self.halted = False
                self._handler.go_on_soon()

    def end(self) -> None:
        """Called when the connection is lost: release everything that its requests hold."""
        self.closed = True
        self._body = []
        self._end_allowance()
        late, self._late = self._late, None
        if late is not None:
            late.dropped()
        paused, self._paused = self._paused, None
        if paused is not None:
            paused.dropped()
        self._tell_sent()

    def _next(self, now: float) -> None:
        """Get ready for another request, whose first bytes may be here already."""
        self._request = None
        self._behind_size = 0
        self._machine.start_next_cycle()
        self._waiting = not self._machine.trailing_data[0]
        wait_s = self._bounds.idle_timeout_s if self._waiting else self._bounds.request_timeout_s
        self._until = now + wait_s

    def _let_continue(self) -> None:
        if self._machine.they_are_waiting_for_100_continue:
            go_on = h11.InformationalResponse(status_code=HTTPStatus.CONTINUE, headers=[], reason="Continue")
            self._send(go_on)

    # Responses out.

    def _refuse(self, status: int, reason: str) -> None:
        """Send the reason why the connection cannot go on, if a response may still begin, and close."""
        if self._machine.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            self._respond(refusal(status, reason, close=True))
        self.closed = True

    def _respond(self, response: Response) -> None:
        status = HTTPStatus(response.status)
        own = {name for name, _ in response.headers}
        common = self._handler.common_headers()
        headers = [*(each for each in common if each[0] not in own), *response.headers]
        if status not in BODILESS:
            headers.append(("Content-Type", response.content_type))
            headers.append(("Content-Length", str(response.size)))
        if response.close or self._writer.full():  # the peer sends requests but does not read responses
            headers.append(("Connection", "close"))
        self._send(h11.Response(status_code=status, headers=headers, reason=status.phrase))
        if status not in BODILESS and not self._asked_for_head:
            for piece in (response.body, *response.pieces):
                self._send(h11.Data(data=piece))
        self._send(h11.EndOfMessage())

    @property
    def _asked_for_head(self) -> bool:
        return self._request is not None and self._request.method == b"HEAD"

    def _send(self, event: h11.InformationalResponse | h11.Response | h11.Data | h11.EndOfMessage) -> None:
        if data := self._machine.send(event):
            self._writer.write(data)

    # Time.

    def deadline(self) -> float | None:
        """Return when `on_deadline` is to be called, in monotonic seconds, whatever happens until then."""
        return None if self.closed else self._until

    def on_deadline(self, now: float) -> None:
        """End a connection that is idle, whose request takes too long, or that does not read its response."""
        if self.closed or now < self._until:
            return
        if self._late is not None:  # the code that works on it limits the time
            self._until = now + self._bounds.idle_timeout_s
            return
        if self._unsent is not None:
            if self._writer.gone() - self._gone >= self._bounds.stall_size:
                self._watch_reading(now)
                return
        elif self._body_size - self._gone >= self._bounds.stall_size:
            self._gone = self._body_size
            self._until = now + self._bounds.request_timeout_s
            return
        elif not self._waiting:
            self._refuse(HTTPStatus.REQUEST_TIMEOUT, "the request took too long")
        self.closed = True


def whole(request: h11.Request, body: bytes) -> HttpRequest:
    """Return a request from its head and body. Raises ValueError if the target is not a path or URL."""
    headers: dict[str, str] = {}
    for raw_name, raw_value in request.headers:
        name, value = raw_name.decode("latin-1"), raw_value.decode("latin-1")
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    path, query = target_parts(request.target.decode("latin-1"))
    return HttpRequest(request.method.decode("latin-1"), path, query, headers, body)
