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
            return _response(200, TEXT, exposition(metrics))
        return _response(404, JSON, json.dumps({"error": "Object Not Found", "reason": "there is /metrics"}))
    if head.startswith(HEALTH):
        return _response(200, JSON, json.dumps({"status": "ok"}))
    if head.startswith(IS_OWNER):
        reason = f"node {node} stands by; {f'the owner is {owner}' if owner else 'no node serves'}"
        return _response(503, JSON, json.dumps({"status": "failed", "reason": reason}))
    return None


def exposition(metrics: Mapping[str, float]) -> str:
    """Return metrics in the text format of Prometheus."""
    lines = []
    for name, value in metrics.items():
        kind, text = HELP[name]
        lines += [f"# HELP {name} {text}", f"# TYPE {name} {kind}", f"{name} {value:g}"]
    return "\n".join(lines) + "\n"


def _response(status: int, kind: str, text: str) -> bytes:
    reason = {200: "OK", 404: "Not Found", 503: "Service Unavailable"}[status]
    body = text.encode()
    head = f"HTTP/1.1 {status} {reason}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
    return head.encode() + b"Cache-Control: no-cache\r\nConnection: close\r\n\r\n" + body
