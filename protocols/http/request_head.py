"""What the head of a request says: its size, and where it leads. Pure functions."""

from __future__ import annotations

from urllib.parse import urlsplit

import h11


def head_size(request: h11.Request) -> int:
    """Octets of request line and headers, at least."""
    line = len(request.method) + len(request.target) + len(b"  HTTP/1.1\r\n")
    return line + sum(len(name) + len(value) + len(b": \r\n") for name, value in request.headers)


def target_parts(target: str) -> tuple[str, str]:
    """Path and query; the scheme and host that a proxy leaves in front are dropped (RFC 9112, 3.2).

    Raises ValueError for what is neither a path nor a URL.
    """
    if target.startswith("/") or target == "*":
        path, _, query = target.partition("?")
        return path, query
    parts = urlsplit(target)
    if parts.scheme not in ("http", "https"):
        raise ValueError(f"'{target}'")
    return parts.path or "/", parts.query
