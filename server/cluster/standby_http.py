"""Answer what a node that stands by is asked about itself over HTTP; everything else is for the one that serves.

A load balancer asks whether the node is the owner, and Prometheus scrapes each node. Only plain listeners can be
answered for: what is inside TLS is passed on unread.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

IS_OWNER: Final = b"GET /api/health/checks/is-owner"
HEALTH: Final = b"GET /api/leveret/health"
METRICS: Final = b"GET /metrics"
HEAD_MAX: Final = 8192  # bytes read before it is decided who answers
JSON: Final = "application/json"
REASONS: Final = {200: "OK", 404: "Not Found", 503: "Service Unavailable"}
TEXT: Final = "text/plain; version=0.0.4; charset=utf-8"
HELP: Final[Mapping[str, tuple[str, str]]] = {  # type and text of each metric of a cluster's node
    "leveret_cluster_owner": ("gauge", "1 on the node that serves, 0 on those that stand by."),
    "leveret_cluster_epoch": (
        "gauge",
        "The epoch of the lease as the node knows it; one more with each takeover.",
    ),
    "leveret_cluster_suspended": ("gauge", "1 while the serving node cannot commit, and hands out nothing."),
    "leveret_cluster_takeovers_total": ("counter", "How often this node has taken over."),
    "leveret_cluster_fenced_total": ("counter", "How often another node has taken over from this one."),
    "leveret_cluster_lease_age_seconds": ("gauge", "The time since the owner's last sign of life."),
    "leveret_relay_connections": ("gauge", "Clients that this node passes on."),
    "leveret_relay_refused_total": ("counter", "Clients that were refused, as this node passes on enough."),
    "leveret_relay_bytes_total": ("counter", "Bytes passed on, in both directions."),
}


def answer(
    place: str, head: bytes, node: str, owner: str | None, metrics: Mapping[str, float]
) -> bytes | None:
    """Return the answer of a node that stands by to a request; None: it is for the node that serves.

    `place` is the listener (`http` or `prometheus`), `head` the beginning of the request.
    """
    if place == "prometheus":
        if head.startswith(METRICS):
            return response(200, TEXT, exposition(metrics))
        return response(404, JSON, json.dumps({"error": "Object Not Found", "reason": "there is /metrics"}))
    if head.startswith(HEALTH):
        return response(200, JSON, json.dumps({"status": "ok"}))
    if head.startswith(IS_OWNER):
        reason = f"node {node} stands by; {f'the owner is {owner}' if owner else 'no node serves'}"
        return response(503, JSON, json.dumps({"status": "failed", "reason": reason}))
    return None


def exposition(metrics: Mapping[str, float]) -> str:
    """Return metrics in the text format of Prometheus."""
    lines = []
    for name, value in metrics.items():
        kind, text = HELP[name]
        lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}", f"{name} {value:g}"]
    return "\n".join(lines) + "\n"


def response(status: int, kind: str, text: str, *headers: str) -> bytes:
    """Return a whole answer over HTTP, after which the connection is closed."""
    body = text.encode()
    lines = (
        f"HTTP/1.1 {status} {REASONS[status]}",
        f"Content-Type: {kind}",
        f"Content-Length: {len(body)}",
        "Cache-Control: no-cache",
        "Connection: close",
        *headers,
    )
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


def refused_request(why: str) -> bytes:
    """Return what a client of an HTTP listener is told."""
    return response(503, JSON, json.dumps({"error": "Service Unavailable", "reason": why}), "Retry-After: 1")
