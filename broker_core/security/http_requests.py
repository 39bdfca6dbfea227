"""Requests of the node to servers that decide about logins: what is asked, what comes back, and how it is bounded.

The node carries them out (`node/http_client.py`) without blocking its loop; what asks gets a response, or a reason for
the log why there is none. Neither holds a secret of the request.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Final, Protocol, TypeAlias

import attrs

from leveret.config.tls import SYSTEM, PeerTlsSettings

SIZE_MAX: Final = 64 << 10  # bytes of a response


@attrs.frozen
class HttpRequest:
    """A request. Its URL, headers and body may hold secrets: they are never logged."""

    url: str = attrs.field(repr=False)
    method: str = "GET"
    headers: tuple[tuple[str, str], ...] = attrs.field(default=(), repr=False)
    body: bytes = attrs.field(default=b"", repr=False)
    timeout_s: float = 5.0  # for all of it
    size_max: int = SIZE_MAX  # bytes of the response's body
    tls: PeerTlsSettings = SYSTEM  # for https


@attrs.frozen
class HttpResponse:
    """A whole response, whatever its status."""

    status: int
    body: bytes = attrs.field(repr=False)


@attrs.frozen
class NoResponse:
    """There is no response; `reason` is for the log."""

    reason: str


Outcome: TypeAlias = "HttpResponse | NoResponse"


class Ask(Protocol):
    """A function that sends a request and calls back in the broker's thread, never before it has returned."""

    def __call__(self, request: HttpRequest, then: Callable[[Outcome], None], /) -> None: ...


def no_network(request: HttpRequest, then: Callable[[Outcome], None]) -> None:
    """Answer at once; used without a node, which has the network."""
    then(NoResponse("there is no node that could ask"))


def json_in(outcome: Outcome) -> dict[str, object] | NoResponse:
    """Return the JSON object in a successful response, or why there is none."""
    if isinstance(outcome, NoResponse):
        return outcome
    if outcome.status != 200:
        return NoResponse(f"the status is {outcome.status}")
    try:
        content = json.loads(outcome.body.decode())
    except (ValueError, RecursionError):
        return NoResponse("the response is not JSON")
    return content if isinstance(content, dict) else NoResponse("the response is not a JSON object")
