"""Serve the page's files, read once, with headers that limit what the page may do and let browsers keep them.

    GET /            the page, for clients that accept HTML (others get the index as JSON)
    GET /ui/...      its style sheet, pictures and modules

Nothing on the page is written as HTML: the modules set what comes from the broker as text, and should one of them ever
fail to, the policy below still lets no script run that is not a file from here.
"""

from __future__ import annotations

from functools import cache
from hashlib import sha256
from http import HTTPStatus
from importlib.resources import files
from typing import Final

import attrs

from leveret.protocols.http.connection import HeaderList, Response
from leveret.protocols.http.server.request import Level, Refused, Request, Route

TYPES: Final = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
POLICY: Final = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "connect-src 'self'",
    )
)
GUARDS: Final = (
    ("Referrer-Policy", "no-referrer"),
    ("X-Frame-Options", "DENY"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
)
FOLDERS: Final = ("", "app", "app/views")


@attrs.frozen
class File:
    """A file of the page."""

    content: bytes
    content_type: str
    tag: str  # changes with the content (RFC 9110, section 8.8.3)

    def headers(self, policy: str) -> HeaderList:
        """Let browsers keep the file but ask whether it has changed: an upgraded node has an upgraded page."""
        kept = (("Cache-Control", "no-cache"), ("ETag", self.tag), ("Vary", "Accept"))
        return (*kept, ("Content-Security-Policy", policy), *GUARDS)


@cache
def shipped() -> dict[str, File]:
    """Return the files by their paths below `/ui/`. Requests are looked up here, and never on the disk."""
    root = files("leveret.ui")
    found = {}
    for folder in FOLDERS:
        for each in root.joinpath(folder).iterdir():
            kind = each.name.rpartition(".")[2]
            if kind in TYPES:
                content = each.read_bytes()
                path = f"{folder}/{each.name}".lstrip("/")
                found[path] = File(content, TYPES[kind], f'"{sha256(content).hexdigest()[:24]}"')
    return found


def is_wanted(request: Request) -> bool:
    """Return whether a browser asks for a page: programs accept anything, or JSON."""
    return "text/html" in request.headers.get("accept", "")


def page(request: Request) -> Response:
    return answer(request, "index.html")


def file(request: Request) -> Response:
    return answer(request, request.arguments["file"])


def module(request: Request) -> Response:
    return answer(request, f"app/{request.arguments['file']}")


def view(request: Request) -> Response:
    return answer(request, f"app/views/{request.arguments['file']}")


def answer(request: Request, path: str) -> Response:
    """Answer with a file, or that the browser has it already. Raises Refused if there is no such file."""
    there = shipped().get(path)
    if there is None:
        raise Refused(HTTPStatus.NOT_FOUND, f"there is no file '{path}'")
    headers = there.headers(policy(request))
    if there.tag in request.headers.get("if-none-match", ""):
        return Response(HTTPStatus.NOT_MODIFIED, headers=headers)
    return Response(HTTPStatus.OK, there.content, there.content_type, headers)


def policy(request: Request) -> str:
    """Return what the page may do. It talks with the node alone, and with the issuer where users log in there."""
    tokens = request.broker.access.tokens
    login = None if tokens is None else tokens.page_login
    return POLICY if login is None else f"{POLICY} {login.origin}"


ROUTES: Final = (
    Route("GET", "/ui/{file}", Level.ANYBODY, file),
    Route("GET", "/ui/app/{file}", Level.ANYBODY, module),
    Route("GET", "/ui/app/views/{file}", Level.ANYBODY, view),
)
