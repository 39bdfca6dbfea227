"""Serve the page's files, read once, with headers that limit what the page may do and let browsers keep them.

    GET /                  the page, for clients that accept HTML (others get the index as JSON)
    GET /ui/VERSION/...    its style sheet, pictures and modules, which browsers keep without asking again
    GET /ui/...            the same, which browsers ask about each time

`VERSION` is a hash of all files, so that other files have other addresses. Browsers ask about the page with each load,
and it names the addresses of that moment: an upgraded node shows its new page at once. The page announces all modules,
as finding them by reading those that import them takes a round trip for each level of imports.

Nothing on the page is written as HTML: the modules set what comes from the broker as text, and should one of them ever
fail to, the policy below still lets no script run that is not a file from here.
"""

from __future__ import annotations

import gzip
import re
from collections.abc import Mapping, Sequence
from functools import cache
from hashlib import sha256
from http import HTTPStatus
from importlib.resources import files
from posixpath import normpath
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
MAIN: Final = "app/main.js"
IMPORT: Final = re.compile(r'^import [^;]*?"([^"]+)";', re.MULTILINE)
LATER_IMPORT: Final = re.compile(r'import\("([^"]+)"\)')
TAG_LENGTH: Final = 24  # characters of a hash
FOLDERS: Final = ("", "app", "app/views")
ASKED_ABOUT: Final = "no-cache"  # kept, but asked about before each use
KEPT: Final = "max-age=31536000, immutable"  # a year without asking (RFC 8246)


@attrs.frozen
class File:
    """A file of the page."""

    content: bytes
    content_type: str
    tag: str  # changes with the content (RFC 9110, section 8.8.3)

    @classmethod
    def of(cls, content: bytes, kind: str) -> File:
        return cls(content, TYPES[kind], sha256(content).hexdigest()[:TAG_LENGTH])


@attrs.frozen
class Shipped:
    """The files of this version by their paths below `/ui/`, and the page that names them."""

    files: Mapping[str, File]
    version: str  # a hash of all files, which is part of their addresses
    page: File

    @classmethod
    def of(cls, files: Mapping[str, File]) -> Shipped:
        told = "".join(f"{path} {each.tag}\n" for path, each in sorted(files.items()))
        version = sha256(told.encode()).hexdigest()[:TAG_LENGTH]
        links = "".join(f'<link rel="modulepreload" href="ui/{path}">\n' for path in modules(files))
        page = files["index.html"].content.decode().replace("</head>", f"{links}</head>")
        return cls(files, version, File.of(page.replace('"ui/', f'"ui/{version}/').encode(), "html"))


def modules(files: Mapping[str, File]) -> Sequence[str]:
    """Return the modules in the order in which the page needs them: what is imported only later comes last.

    Browsers ask for six at a time over HTTP/1.1, and run the first module when all that it imports is there.
    """
    found: list[str] = []
    now, later = [MAIN], list[str]()
    while now or later:
        path = now.pop(0) if now else later.pop(0)
        if path in files and path not in found:
            found.append(path)
            text = files[path].content.decode()
            now += [normpath(f"{path}/../{name}") for name in IMPORT.findall(text)]
            later += [normpath(f"{path}/../{name}") for name in LATER_IMPORT.findall(text)]
    return found


@cache
def shipped() -> Shipped:
    """Return what is shipped with this version. Requests are looked up here, and never on the disk."""
    root = files("leveret.ui")
    found = {}
    for folder in FOLDERS:
        for each in root.joinpath(folder).iterdir():
            kind = each.name.rpartition(".")[2]
            if kind in TYPES:
                found[f"{folder}/{each.name}".lstrip("/")] = File.of(each.read_bytes(), kind)
    return Shipped.of(found)


@cache
def compressed(content: bytes) -> bytes:
    """Return a file's content in gzip; each is compressed once, when it is first asked for."""
    return gzip.compress(content, mtime=0)


def is_wanted(request: Request) -> bool:
    """Return whether a browser asks for a page: programs accept anything, or JSON."""
    return "text/html" in request.headers.get("accept", "")


def page(request: Request) -> Response:
    return answer(request, shipped().page, ASKED_ABOUT, "Accept, Accept-Encoding")


def file(request: Request) -> Response:
    """Answer with the style sheet or a picture of the page."""
    return shipped_answer(request, request.arguments["file"])


def module(request: Request) -> Response:
    """Answer with a module of the page."""
    return shipped_answer(request, f"app/{request.arguments['file']}")


def view(request: Request) -> Response:
    """Answer with the module of a view."""
    return shipped_answer(request, f"app/views/{request.arguments['file']}")


def shipped_answer(request: Request, path: str) -> Response:
    """Answer with a file, to be kept if its address has the version. Raises Refused if there is no such file.

    A page of another version may ask, which was served before an upgrade, or by another node at the same address. It
    gets the file as it is here, and its browser asks about it each time.
    """
    there = shipped().files.get(path)
    if there is None:
        raise Refused(HTTPStatus.NOT_FOUND, f"there is no file '{path}'")
    kept = KEPT if request.arguments.get("version") == shipped().version else ASKED_ABOUT
    return answer(request, there, kept, "Accept-Encoding")


def answer(request: Request, there: File, kept: str, vary: str) -> Response:
    """Answer with a file, compressed for clients that take that, or that the browser has it already."""
    packs = takes_gzip(request.headers.get("accept-encoding", ""))
    tag = f'"{there.tag}-gzip"' if packs else f'"{there.tag}"'
    headers: HeaderList = (
        ("Cache-Control", kept),
        ("ETag", tag),
        ("Vary", vary),
        ("Content-Security-Policy", policy(request)),
        *GUARDS,
    )
    if tag in request.headers.get("if-none-match", ""):
        return Response(HTTPStatus.NOT_MODIFIED, headers=headers)
    if packs:
        headers = (*headers, ("Content-Encoding", "gzip"))
    content = compressed(there.content) if packs else there.content
    return Response(HTTPStatus.OK, content, there.content_type, headers)


def takes_gzip(accepted: str) -> bool:
    """Return whether a client that sends this Accept-Encoding takes gzip (RFC 9110, section 12.5.3)."""
    for each in accepted.lower().split(","):
        coding, _, weight = each.partition(";")
        if coding.strip() == "gzip":
            return weight.strip().rstrip("0.") != "q="  # a weight of 0 refuses it
    return False


def policy(request: Request) -> str:
    """Return what the page may do. It talks with the node alone, and with the issuer where users log in there."""
    tokens = request.broker.access.tokens
    login = None if tokens is None else tokens.page_login
    return POLICY if login is None else f"{POLICY} {login.origin}"


ROUTES: Final = (
    Route("GET", "/ui/{file}", Level.ANYBODY, file),
    Route("GET", "/ui/app/{file}", Level.ANYBODY, module),
    Route("GET", "/ui/app/views/{file}", Level.ANYBODY, view),
    Route("GET", "/ui/{version}/{file}", Level.ANYBODY, file),
    Route("GET", "/ui/{version}/app/{file}", Level.ANYBODY, module),
    Route("GET", "/ui/{version}/app/views/{file}", Level.ANYBODY, view),
)
