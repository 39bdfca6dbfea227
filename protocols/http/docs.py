"""Prints docs/http.md from the table of routes: everything that HTTP serves, on one page.

`python -m leveret.protocols.http.docs` prints the page. What a route does is the first sentence of the function that
answers.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Sequence
from typing import Final

from leveret.protocols.http.server.request import Level, Route
from leveret.protocols.http.server.routes import ROUTES

INTRODUCTION: Final = """\
<!-- Printed by `python -m leveret.protocols.http.docs` (or `make docs`); edit the tables of routes and the docstrings
of their functions instead. -->

# HTTP: every route

All that a node answers on its HTTP endpoint (`http.address`, 127.0.0.1:15672 unless said otherwise); `GET /` tells the
same as JSON. Requests log in with a name and a password (`curl -u guest:guest`), or with a
[token](security.md#tokens-oauth-2). In paths, names are percent-encoded: the virtual host `/` is `%2F`. Bodies and
answers are JSON, except where the page of a section says otherwise. Refusals have `error` and `reason` ([words and
codes](http-api.md#refusals)).

Who may ask is a tag, or one that is more: *management* is every tag, *policymaker* and *monitoring* are that tag or
*administrator*. *user* is everybody with a login, and *anybody* needs none. Permissions in virtual hosts come on top.
Where nothing stands beside a request, its path says it: `GET` lists or shows, `PUT` makes or replaces, `POST` adds,
`DELETE` deletes.
"""
# Heading, the page that tells more, and the beginnings of paths; a route is in the first section that has one of its.
SECTIONS: Final[Sequence[tuple[str, str, tuple[str, ...]]]] = (
    (
        "The node",
        "[The control endpoint](control-endpoint.md)",
        (
            "/api/leveret/health",
            "/api/leveret/status",
            "/api/leveret/reload",
            "/api/leveret/plugins",
            "/api/leveret/log",
            "/api/leveret/explain",
            "/api/cluster",
        ),
    ),
    ("Metrics", "[Monitoring](monitoring.md#metrics)", ("/metrics",)),
    ("Health", "[The HTTP API](http-api.md#changing-things)", ("/api/health", "/api/aliveness-test")),
    (
        "Streams, leases, pipelines, staged and bulk publishing",
        "[Bulk access](bulk-access.md), [streams](streams.md)",
        (
            "/api/leveret/streams",
            "/api/leveret/super-streams",
            "/api/leveret/staging",
            "/api/leveret/publish",
            "/api/leveret/leases",
            "/api/leveret/pipelines",
        ),
    ),
    ("Recordings", "[Time travel](time-travel.md)", ("/api/leveret/recordings", "/api/leveret/replays")),
    (
        "Branches of distributed transactions",
        "[AMQP 0-10](amqp-0-10.md#distributed-transactions)",
        ("/api/leveret/branches",),
    ),
    (
        "Queues and messages",
        "[The HTTP API](http-api.md#messages)",
        ("/api/queues", "/api/leveret/queues", "/api/leveret/{what}"),
    ),
    ("Exchanges and bindings", "[The HTTP API](http-api.md#looking)", ("/api/exchanges", "/api/bindings")),
    (
        "Connections, channels, consumers",
        "[The HTTP API](http-api.md#looking)",
        ("/api/connections", "/api/channels", "/api/consumers", "/api/leveret/channels"),
    ),
    (
        "Virtual hosts, users, permissions, limits",
        "[The HTTP API](http-api.md#changing-things)",
        (
            "/api/vhost",
            "/api/user",
            "/api/permissions",
            "/api/topic-permissions",
            "/api/whoami",
            "/api/auth",
        ),
    ),
    (
        "Policies, parameters, definitions",
        "[The HTTP API](http-api.md#definitions)",
        (
            "/api/policies",
            "/api/operator-policies",
            "/api/parameters",
            "/api/global-parameters",
            "/api/definitions",
            "/api/leveret/definitions",
        ),
    ),
    ("Shovels", "[Shovels](shovels.md)", ("/api/shovels",)),
    ("Federation", "[Federation](federation.md)", ("/api/federation-links",)),
    ("Everything else", "[The HTTP API](http-api.md)", ("/api",)),
    ("The web page", "[The web page](web-ui.md)", ("/",)),
)


def documentation(routes: Sequence[Route] = ROUTES) -> str:
    """Return the whole page, in Markdown."""
    parts = [INTRODUCTION]
    for heading, pages, _ in SECTIONS:
        rows = [row for route in routes if section(route.path) == heading for row in _row(route)]
        parts += [f"## {heading}\n", f"More: {pages}.\n", "| request | for | |", "|---|---|---|", *rows, ""]
    return "\n".join(parts)


def section(path: str) -> str:
    """Return the heading of the section that a path belongs to."""
    return next(heading for heading, _, beginnings in SECTIONS if path.startswith(beginnings))


def _row(route: Route) -> Iterator[str]:
    level = "anybody" if route.level is Level.ANYBODY else route.level.name.lower()
    yield f"| `{route.method} {route.path}` | {level} | {_said(route)} |"


def _said(route: Route) -> str:
    """Return the first sentence of the docstring of the function that answers."""
    text = " ".join((inspect.getdoc(route.answer) or "").partition("\n\n")[0].split())
    return re.split(r"(?<=\.) (?=[A-Z])", text)[0].replace("|", "\\|") if text else ""


def main() -> None:
    print(documentation(), end="")


if __name__ == "__main__":
    main()
