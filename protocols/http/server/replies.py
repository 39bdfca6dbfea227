"""Turn what a route returned or raised into a response.

There are two styles of refusals. The routes of RabbitMQ's API answer in its words, which its tools know:
`not_authorised` with 401 for what a user may not do, `Object Not Found` for what does not exist, `bad_request` for the
rest. Our own routes, below `/api/leveret/`, give the name of the status and the core's sentence.
"""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import Final

from leveret.errors import (
    AccessRefused,
    Failure,
    Locked,
    NotAllowed,
    NotFound,
    PreconditionFailed,
    Unsupported,
)
from leveret.observability.strict_json import strict
from leveret.protocols.http.connection import HeaderList, Response, refusal
from leveret.protocols.http.server.request import Level, Refused
from leveret.values import Json

STATUS: Final[dict[type[Failure], HTTPStatus]] = {
    NotFound: HTTPStatus.NOT_FOUND,
    AccessRefused: HTTPStatus.FORBIDDEN,
    PreconditionFailed: HTTPStatus.BAD_REQUEST,
    Locked: HTTPStatus.CONFLICT,
    NotAllowed: HTTPStatus.CONFLICT,
    Unsupported: HTTPStatus.NOT_IMPLEMENTED,
}
# By which Perl's LWP, and so Debian's plug-ins for Nagios, keep credentials.
REALM: Final = "RabbitMQ Management"
CHALLENGE: Final = (("WWW-Authenticate", f'Basic realm="{REALM}", charset="UTF-8"'),)

# RabbitMQ's words.

API: Final = "/api/"
OWN: Final = "/api/leveret/"
NOT_AUTHORISED: Final = "not_authorised"
ERRORS: Final[dict[int, str]] = {
    HTTPStatus.BAD_REQUEST: "bad_request",
    HTTPStatus.UNAUTHORIZED: NOT_AUTHORISED,
    HTTPStatus.NOT_FOUND: "Object Not Found",
    HTTPStatus.METHOD_NOT_ALLOWED: "method_not_allowed",
    HTTPStatus.NOT_ACCEPTABLE: "not_acceptable",
}
LEVELS: Final = {
    Level.MANAGEMENT: "Not management user",
    Level.MONITORING: "Not monitor user",
    Level.ADMINISTRATOR: "Not administrator user",
    Level.POLICYMAKER: "User not authorised to access object",
}


def json_response(content: Json) -> Response:
    return Response(HTTPStatus.OK, octets(content))


def refused_response(refused: Refused | Failure, path: str = OWN) -> Response:
    """Return the response for a refusal, in the style of the routes at `path`."""
    if is_rabbitmqs(path):
        refused = in_rabbitmqs_words(refused)
        error = ERRORS.get(refused.status, refused.status.phrase)
    elif isinstance(refused, Failure):
        return refusal(next(STATUS[kind] for kind in type(refused).__mro__ if kind in STATUS), str(refused))
    else:
        error = refused.status.phrase
    headers: HeaderList = (("Allow", refused.allow),) if refused.allow else refused.headers
    if refused.status == HTTPStatus.UNAUTHORIZED and not refused.more:
        headers = CHALLENGE
    content = {"error": error, "reason": str(refused), **refused.more}
    return Response(refused.status, octets(content), headers=headers)


def is_rabbitmqs(path: str) -> bool:
    """Return whether a path belongs to RabbitMQ's API, whether or not there is a route for it."""
    return path.startswith(API) and not path.startswith(OWN)


def in_rabbitmqs_words(refused: Refused | Failure) -> Refused:
    if isinstance(refused, Refused):
        if refused.status == HTTPStatus.NOT_FOUND and not refused.more:
            return Refused(HTTPStatus.NOT_FOUND, "Not Found")
        return refused
    if isinstance(refused, NotFound):
        return Refused(HTTPStatus.NOT_FOUND, "Not Found")
    if isinstance(refused, AccessRefused):
        return not_authorised(f"ACCESS_REFUSED - {refused}")
    return Refused(HTTPStatus.BAD_REQUEST, str(refused))


def not_authorised(reason: str) -> Refused:
    """Return a 401 without a challenge, for a known user: browsers are not to ask for another password."""
    return Refused(HTTPStatus.UNAUTHORIZED, reason, {"error": NOT_AUTHORISED})


def login_refused(reason: str, path: str) -> Response:
    """Return the response to a failed login, which does not tell whether the name or the password was wrong."""
    if not is_rabbitmqs(path):
        return refusal(HTTPStatus.UNAUTHORIZED, reason, CHALLENGE)
    content = {"error": "not_authorized", "reason": "Login failed"}
    return Response(HTTPStatus.UNAUTHORIZED, octets(content), headers=CHALLENGE)


def refused_level(level: Level) -> Refused:
    """Return the refusal of a user without the tags that a route needs, in RabbitMQ's words."""
    return not_authorised(LEVELS[level])


def mistake() -> Response:
    """Return the response for an internal error, which has been logged."""
    reason = "an internal error of the broker; its log has the details"
    return refusal(HTTPStatus.INTERNAL_SERVER_ERROR, reason, close=True)


def octets(content: Json) -> bytes:
    return strict(json.dumps(content, indent=2)).encode() + b"\n"
