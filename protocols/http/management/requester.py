"""Act for the user of a request: as a `Client`, in the virtual host in the path, and among those that the user may see.

Whatever a request does to messages, queues and exchanges goes through the `Client`, where permissions are checked. A
user that may not enter a virtual host is told so; administrators may change each, and users that may monitor see all of
them.
"""

from __future__ import annotations

from collections.abc import Generator
from http import HTTPStatus
from typing import Final

import attrs

from leveret.client import Client
from leveret.config.file_objects import CONFIGURATION
from leveret.errors import NotFound
from leveret.protocols.http.connection import Later, Response, nothing
from leveret.protocols.http.server.portioned_answers import PortionedAnswer
from leveret.protocols.http.server.replies import API, json_response, not_authorised
from leveret.protocols.http.server.request import Level, Request
from leveret.values import Json
from leveret.virtual_host import VirtualHost

ADMINISTRATOR: Final = "administrator"
SEES_ALL: Final = Level.MONITORING.value
HOLDS: Final = "Leveret-Holds"
CREATED: Final = Response(HTTPStatus.CREATED)
DONE: Final = Response(HTTPStatus.NO_CONTENT)


def client_of(request: Request, host: VirtualHost) -> Client:
    """Return the user as a client in a virtual host found with `host_of`. It does not count as a connection."""
    client = Client(request.broker, request.user, "HTTP")
    client.host = host
    return client


def host_of(request: Request) -> VirtualHost:
    """Return the virtual host in the path, for users that may enter it or see all. Raises NotFound, Refused."""
    return _host_if(request, sees_all(request), "User not authorised to access virtual host")


def own_host_of(request: Request) -> VirtualHost:
    """Return the virtual host in the path, for changes: others than administrators must be able to enter it."""
    is_administrator = ADMINISTRATOR in request.user.tags
    return _host_if(request, is_administrator, "User not authorised to access object")


def entered(request: Request) -> VirtualHost:
    """Return the virtual host in the path, for messages: every user must be able to enter it."""
    return _host_if(request, False, "User not authorised to access virtual host")


def _host_if(request: Request, anyway: bool, reason: str) -> VirtualHost:
    """Return the virtual host in the path. Users that may not enter it do not learn whether it exists."""
    name = request.arguments["vhost"]
    if not (anyway or request.broker.access.may_enter(request.user, name)):
        raise not_authorised(reason)
    return request.broker.virtual_host(name)


def visible_hosts(request: Request) -> list[VirtualHost]:
    """Return the virtual hosts that the user may see, by name."""
    hosts = sorted(request.broker.hosts(), key=lambda host: host.name)
    if sees_all(request):
        return hosts
    return [host for host in hosts if request.broker.access.may_enter(request.user, host.name)]


def sees_all(request: Request) -> bool:
    return not SEES_ALL.isdisjoint(request.user.tags)


def not_there() -> NotFound:
    """Return a failure with RabbitMQ's reason for a thing that does not exist."""
    return NotFound("Not Found")


def changed(request: Request, created: bool, *names: str) -> Response:
    """Answer that something has been done, once it is on disk; with 201 if it is new.

    `names` are the kind and the names of a thing that a file may set back at the next start (`file_objects.py`). If
    one does, a header tells that the change lasts until then.
    """
    request.broker.hold_answer()
    response = CREATED if created else DONE
    file = request.broker.file_objects.change(*names) if names else ""
    if not file:
        return response
    is_told = ADMINISTRATOR in request.user.tags and file.isascii() and file.isprintable()
    name = file if is_told or file == CONFIGURATION else "a file of definitions"
    return attrs.evolve(response, headers=((HOLDS, f"until restart; {name} says otherwise"),))


def to_the_end(request: Request, steps: Generator[float, None, Json | Response]) -> Later:
    """Do work in portions, to its end even if the client disconnects, so that nothing is left half done."""
    later = PortionedAnswer(request.broker, steps, API).begin()
    later.dropped = nothing
    return later


def answered(request: Request, content: Json) -> Response:
    """Answer with content, once the changes are on disk."""
    request.broker.hold_answer()
    return json_response(content)
