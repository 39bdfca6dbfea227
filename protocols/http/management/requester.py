"""On whose behalf a route acts, and where: a user's `Client`, the virtual host in the path, those that he may see.

What is done to messages, queues and exchanges goes through the `Client`, where permissions are checked. A user who may
not enter a virtual host is told so, administrators may look into each, and who monitors sees all of them.
"""

from __future__ import annotations

from collections.abc import Generator
from http import HTTPStatus
from typing import Final

import attrs

from broker_core.client import Client
from broker_core.errors import NotFound
from broker_core.operations import Json
from broker_core.virtual_host import VirtualHost
from protocols.http.connection import Later, Response, nothing
from protocols.http.server.replies import API, json_response, not_authorised, refused_level
from protocols.http.server.request import Asked, Level
from protocols.http.server.turns import InPortions

ADMINISTRATOR: Final = "administrator"
SEES_ALL: Final = Level.MONITORING.value
UNTIL_RESTART: Final = (("Leveret-Holds", "until restart; the configuration file says otherwise"),)
CREATED: Final = Response(HTTPStatus.CREATED)
DONE: Final = Response(HTTPStatus.NO_CONTENT)


def client_of(asked: Asked, host: VirtualHost) -> Client:
    """The user, in a virtual host that was looked up with `host_of`. It counts as no connection."""
    client = Client(asked.broker, asked.user, "HTTP")
    client.host = host
    return client


def host_of(asked: Asked) -> VirtualHost:
    """The virtual host in the path, to look at: for who may enter it, and who sees all. Raises NotFound, Refused."""
    return _host_if(asked, sees_all(asked), "User not authorised to access virtual host")


def own_host_of(asked: Asked) -> VirtualHost:
    """As `host_of`, for changes: who does not administer must be able to enter."""
    is_administrator = ADMINISTRATOR in asked.user.tags
    return _host_if(asked, is_administrator, "User not authorised to access object")


def entered(asked: Asked) -> VirtualHost:
    """As `host_of`, for messages: nobody touches them without being let in."""
    return _host_if(asked, False, "User not authorised to access virtual host")


def _host_if(asked: Asked, anyway: bool, reason: str) -> VirtualHost:
    """Who may not enter is not told whether it is there."""
    name = asked.arguments["vhost"]
    if not (anyway or asked.broker.access.may_enter(asked.user, name)):
        raise not_authorised(reason)
    return asked.broker.virtual_host(name)


def visible_hosts(asked: Asked) -> list[VirtualHost]:
    """Those that the user may see, by name."""
    hosts = sorted(asked.broker.hosts(), key=lambda host: host.name)
    if sees_all(asked):
        return hosts
    return [host for host in hosts if asked.broker.access.may_enter(asked.user, host.name)]


def sees_all(asked: Asked) -> bool:
    return not SEES_ALL.isdisjoint(asked.user.tags)


def require_level(asked: Asked, level: Level) -> None:
    """Raises Refused, for what only some may ask of a route that is for more."""
    if not level.admits(asked.user):
        raise refused_level(level)


def not_there() -> NotFound:
    """There is no such thing: said in two words, as RabbitMQ does."""
    return NotFound("Not Found")


def changed(asked: Asked, created: bool, *names: str) -> Response:
    """What has been done is answered when it is on disk. `created`: it was not there before.

    `names`: the kind and the names of what may stand in the configuration file (`catalogue.py`), which is then the
    owner: that such a change ends with the node is told in a header.
    """
    asked.broker.hold_answer()
    response, catalogue = CREATED if created else DONE, asked.broker.catalogue
    if names and catalogue is not None and catalogue.is_of_file(*names):
        return attrs.evolve(response, headers=UNTIL_RESTART)
    return response


def to_the_end(asked: Asked, steps: Generator[float, None, Json | Response]) -> Later:
    """A portion a turn, also if nobody waits for the answer any more: what has begun is not left half done."""
    later = InPortions(asked.broker, steps, API).begin()
    later.dropped = nothing
    return later


def answered(asked: Asked, content: Json) -> Response:
    """As `changed`, with something to tell."""
    asked.broker.hold_answer()
    return json_response(content)
