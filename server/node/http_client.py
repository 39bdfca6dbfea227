"""Sends requests over HTTP/1.1 (RFC 9112) for the node, without blocking its loop: one task for each.

    ask ─ a place among REQUESTS_MAX ─> an idle connection, or a new one with TLS ─> request ─> response, or NoResponse

Everything is bounded: requests under way and in line, the time of each, what a server may send. Redirects are not
followed, and no proxy is asked: a decision about a login comes from the server that the configuration names.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

import h11
import trio

from leveret.config.tls import PeerTlsSettings
from leveret.config.urls import PORTS, parted
from leveret.security.http_requests import HttpRequest, HttpResponse, NoResponse, Outcome
from leveret.server.node.tls import context_of
from leveret.version import VERSION

if TYPE_CHECKING:
    from leveret.server.node.node import Node

log: Final = logging.getLogger("leveret.http_client")

REQUESTS_MAX: Final = 16  # at once
LINE_MAX: Final = 1000  # requests under way and in line
IDLE_MAX: Final = 8  # connections kept for further requests
IDLE_S: Final = 10.0  # that one is kept
HEAD_MAX: Final = 16 << 10  # bytes of a response's head
READ_SIZE: Final = 16 << 10

Stream: TypeAlias = "trio.SocketStream | trio.SSLStream[trio.SocketStream]"
Origin: TypeAlias = "tuple[str, str, int, PeerTlsSettings]"  # scheme, host, port


class ServerConnection:
    """A connection to a server."""

    __slots__ = ("http", "idle_since", "origin", "stream")

    def __init__(self, origin: Origin, stream: Stream) -> None:
        self.origin = origin
        self.stream = stream
        self.http = h11.Connection(h11.CLIENT, max_incomplete_event_size=HEAD_MAX)
        self.idle_since = 0.0

    def close(self) -> None:
        """Close the socket, without TLS's farewell: HTTP says where a response ends."""
        stream = self.stream
        (stream if isinstance(stream, trio.SocketStream) else stream.transport_stream).socket.close()


class HttpClient:
    """The requests of one node."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._places = trio.CapacityLimiter(REQUESTS_MAX)
        self._under_way = 0
        self._idle: list[ServerConnection] = []  # the one that was used last comes last
        # With the times of the files.
        self._contexts: dict[PeerTlsSettings, tuple[list[int], ssl.SSLContext]] = {}

    def ask(self, request: HttpRequest, then: Callable[[Outcome], None]) -> None:
        """Send a request and call `then` with the outcome, in the loop's thread, as a batch of its own."""
        has_room = self._under_way < LINE_MAX
        self._under_way += 1
        self._node.start(partial(self._task, request, then, has_room))

    def close(self) -> None:
        """Close the idle connections; called when the node has ended."""
        idle, self._idle = self._idle, []
        for line in idle:
            line.close()

    async def _task(self, request: HttpRequest, then: Callable[[Outcome], None], has_room: bool) -> None:
        try:
            outcome = (
                await self._outcome(request) if has_room else NoResponse("too many requests are under way")
            )
        finally:
            self._under_way -= 1
        self._node.broker.tick()
        try:
            then(outcome)
        except Exception:
            log.exception("a mistake of ours after a response")
        self._node.settle()

    async def _outcome(self, request: HttpRequest) -> Outcome:
        """Return the response, or why there is none. A reason names no URL: it may hold a secret."""
        with trio.move_on_after(request.timeout_s):
            try:
                async with self._places:
                    return await self._exchanged(request)
            except ssl.SSLCertVerificationError as failure:
                return NoResponse(f"its certificate is not trusted: {failure.verify_message}")
            except OSError as failure:
                return NoResponse(failure.strerror or type(failure).__name__)
            except (trio.BrokenResourceError, h11.RemoteProtocolError) as failure:
                cause = failure.__cause__
                if isinstance(cause, ssl.SSLCertVerificationError):
                    return NoResponse(f"its certificate is not trusted: {cause.verify_message}")
                return NoResponse("the connection was broken off, or it does not speak HTTP")
            except (ValueError, h11.LocalProtocolError):
                return NoResponse("the request or its response breaks the rules of HTTP, or is too long")
        return NoResponse(f"no response in {request.timeout_s:g} s")

    async def _exchanged(self, request: HttpRequest) -> HttpResponse:
        parts = parted(request.url)
        origin = (parts.scheme, parts.hostname or "", parts.port or PORTS[parts.scheme], request.tls)
        while (line := self._kept(origin)) is not None:
            try:
                return await self._on(line, request)
            except (OSError, trio.BrokenResourceError, h11.RemoteProtocolError):
                continue  # the server has closed it meanwhile
        return await self._on(await self._connected(origin), request)

    def _kept(self, origin: Origin) -> ServerConnection | None:
        """Return an idle connection to a server, and close those that have been idle for long."""
        now = trio.current_time()
        for line in [each for each in self._idle if each.idle_since + IDLE_S < now]:
            self._idle.remove(line)
            line.close()
        for line in reversed(self._idle):
            if line.origin == origin:
                self._idle.remove(line)
                return line
        return None

    async def _connected(self, origin: Origin) -> ServerConnection:
        scheme, host, port, tls = origin
        plain = await trio.open_tcp_stream(host, port)
        if scheme == "http":
            return ServerConnection(origin, plain)
        try:
            secured = trio.SSLStream(plain, self._context(tls), server_hostname=host)
            await secured.do_handshake()
        except BaseException:
            plain.socket.close()
            raise
        return ServerConnection(origin, secured)

    def _context(self, tls: PeerTlsSettings) -> ssl.SSLContext:
        """Return a context for TLS, made again when a file has changed. Raises OSError or ValueError."""
        changed = [each.stat().st_mtime_ns for each in tls.files]
        known = self._contexts.get(tls)
        if known is None or known[0] != changed:
            known = self._contexts[tls] = changed, context_of(tls)
        return known[1]

    async def _on(self, line: ServerConnection, request: HttpRequest) -> HttpResponse:
        """Send a request on a connection, and keep that for others if all went well."""
        try:
            response = await exchange(line, request)
        except BaseException:
            line.close()
            raise
        if line.http.our_state is line.http.their_state is h11.DONE and len(self._idle) < IDLE_MAX:
            line.http.start_next_cycle()
            line.idle_since = trio.current_time()
            self._idle.append(line)
        else:
            line.close()
        return response


async def exchange(line: ServerConnection, request: HttpRequest) -> HttpResponse:
    """Send a request and read the response, which may have `size_max` bytes. Raises ValueError if it has more."""
    parts = parted(request.url)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    headers = [
        ("Host", parts.netloc),
        ("User-Agent", f"Leveret/{VERSION}"),
        ("Accept", "application/json, text/plain, */*"),
        *request.headers,
    ]
    if request.body or request.method != "GET":
        headers.append(("Content-Length", str(len(request.body))))
    http, send = line.http, line.stream.send_all
    await send(http.send(h11.Request(method=request.method, target=target, headers=headers)) or b"")
    if request.body:
        await send(http.send(h11.Data(request.body)) or b"")
    http.send(h11.EndOfMessage())
    return await received(line, request.size_max)


async def received(line: ServerConnection, size_max: int) -> HttpResponse:
    status, body, unread = 0, bytearray(), size_max + HEAD_MAX
    while True:
        event = line.http.next_event()
        if event is h11.NEED_DATA:
            data = await line.stream.receive_some(READ_SIZE)
            unread -= len(data)
            line.http.receive_data(bytes(data))
        elif isinstance(event, h11.Response):
            status = event.status_code
        elif isinstance(event, h11.Data):
            body += event.data
        elif isinstance(event, h11.EndOfMessage):
            return HttpResponse(status, bytes(body))
        elif isinstance(event, h11.ConnectionClosed):
            raise h11.RemoteProtocolError("closed before a response")
        if len(body) > size_max or unread < 0:
            raise ValueError("the response is too long")
