"""A small HTTP server in a thread, for what the node asks: answers by path, and a list of what was asked.

with WebServer({"/keys": b"{}"}) as server: ...  # `server.url`, `server.asked`, `server.pages["/keys"] = b"..."`

A page is a body, a status, or a function of the request that returns either.
"""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self, TypeAlias
from urllib.parse import parse_qsl, urlsplit

import attrs


@attrs.frozen
class Seen:
    """A request: `fields` are those of a form, or of the query."""

    method: str
    path: str
    fields: Mapping[str, str]
    headers: Mapping[str, str]
    port: int  # of the client


Page: TypeAlias = "bytes | int | Callable[[Seen], bytes | int]"


class WebServer:
    def __init__(self, pages: Mapping[str, Page], tls: ssl.SSLContext | None = None) -> None:
        self.pages = dict(pages)
        self.asked: list[Seen] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        if tls is not None:
            self._server.socket = tls.wrap_socket(self._server.socket, server_side=True)
        scheme = "http" if tls is None else "https"
        self.url = f"{scheme}://localhost:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def asked_for(self, path: str) -> list[Seen]:
        return [each for each in self.asked if each.path == path]

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = 30

            def do_GET(self) -> None:
                self._answer(urlsplit(self.path).query)

            def do_POST(self) -> None:
                self._answer(self.rfile.read(int(self.headers["content-length"])).decode())

            def _answer(self, fields: str) -> None:
                path = urlsplit(self.path).path
                known = dict(parse_qsl(fields, keep_blank_values=True))
                seen = Seen(self.command, path, known, dict(self.headers.items()), self.client_address[1])
                server.asked.append(seen)
                page = server.pages.get(path, 404)
                found = page(seen) if callable(page) else page
                status, body = (found, b"") if isinstance(found, int) else (200, found)
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *said: object) -> None:
                pass

        return Handler
