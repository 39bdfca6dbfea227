"""What a route returned or raised, as a response."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import Final

from broker_core.errors import (
    AccessRefused,
    Failure,
    Locked,
    NotAllowed,
    NotFound,
    PreconditionFailed,
    Unsupported,
)
from broker_core.operations import Json
from protocols.http.asked import Refused
from protocols.http.connection import HeaderList, Response, refusal

STATUS: Final[dict[type[Failure], HTTPStatus]] = {
    NotFound: HTTPStatus.NOT_FOUND,
    AccessRefused: HTTPStatus.FORBIDDEN,
    PreconditionFailed: HTTPStatus.BAD_REQUEST,
    Locked: HTTPStatus.CONFLICT,
    NotAllowed: HTTPStatus.CONFLICT,
    Unsupported: HTTPStatus.NOT_IMPLEMENTED,
}
CHALLENGE: Final = (("WWW-Authenticate", 'Basic realm="Leveret", charset="UTF-8"'),)


def json_response(content: Json) -> Response:
    return Response(HTTPStatus.OK, octets(content))


def refused_response(refused: Refused | Failure) -> Response:
    """Why not, and what belongs to it."""
    if isinstance(refused, Failure):
        return refusal(next(STATUS[kind] for kind in type(refused).__mro__ if kind in STATUS), str(refused))
    headers: HeaderList = (("Allow", refused.allow),) if refused.allow else refused.headers
    if refused.status == HTTPStatus.UNAUTHORIZED:
        headers = CHALLENGE
    content = {"error": refused.status.phrase, "reason": str(refused), **refused.more}
    return Response(refused.status, octets(content), headers=headers)


def mistake() -> Response:
    """Of ours; it has been logged."""
    reason = "a mistake of the broker's; its log tells more"
    return refusal(HTTPStatus.INTERNAL_SERVER_ERROR, reason, close=True)


def octets(content: Json) -> bytes:
    return json.dumps(content, indent=2).encode() + b"\n"
