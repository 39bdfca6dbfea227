"""Read the size and the target of a request's head. Pure functions."""

from __future__ import annotations

from urllib.parse import urlsplit

import h11


def head_size(request: h11.Request) -> int:
    """Return the least number of bytes that request line and headers took on the wire."""
    line = len(request.method) + len(request.target) + len(b"  HTTP/1.1\r\n")
    return line + sum(len(name) + len(value) + len(b": \r\n") for name, value in request.headers)


def target_parts(target: str) -> tuple[str, str]:
    """Split a request target into path and query; scheme and host, which a proxy leaves in front, are dropped (RFC
    9112, 3.2).

    Raises ValueError if the target is neither a path nor an HTTP URL.
    """
    if target.startswith("/") or target == "*":
        path, _, query = target.partition("?")
        return path, query
    parts = urlsplit(target)
    if parts.scheme not in ("http", "https"):
        raise ValueError(f"'{target}'")
    return parts.path or "/", parts.query
