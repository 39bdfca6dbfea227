"""Show and set limits of virtual hosts and of users, one number each. As in RabbitMQ, a negative number is no limit."""

from __future__ import annotations

from typing import Final

import attrs

from leveret.catalogue import USER, VIRTUAL_HOST
from leveret.protocols.http.connection import Later, Response
from leveret.protocols.http.management.policies import invalid
from leveret.protocols.http.management.request_body import bad, body_of, shown
from leveret.protocols.http.management.requester import changed, host_of, not_there, sees_all, visible_hosts
from leveret.protocols.http.management.short_lists import table
from leveret.protocols.http.server.replies import not_authorised
from leveret.protocols.http.server.request import Level, Request, Route
from leveret.security.users import User
from leveret.server.definitions.exporter import Item, limits_json, user_limits_json
from leveret.values import Json
from leveret.virtual_host import VirtualHost

HOSTS: Final = "/api/vhost-limits"
USERS: Final = "/api/user-limits"
RATE: Final = "max-publish-rate"
OF_HOSTS: Final = {
    "max-connections": "max_connections", "max-queues": "max_queues", RATE: "max_publish_rate",
}  # fmt: skip
OF_USERS: Final = {
    "max-connections": "max_connections", "max-channels": "max_channels", RATE: "max_publish_rate",
}  # fmt: skip
COUNT_MAX: Final = (1 << 31) - 1


def of_virtual_hosts(request: Request) -> Later:
    rows = [told for host in visible_hosts(request) if (told := of_host(host))["value"]]
    return table(request, rows, "vhost")


def of_virtual_host(request: Request) -> Json:
    told = of_host(host_of(request))
    return [told] if told["value"] else []


def of_host(host: VirtualHost) -> Item:
    return {"vhost": host.name, "value": limits_json(host.limits)}


def put_of_virtual_host(request: Request) -> Response:
    host = request.broker.virtual_host(request.arguments["vhost"])
    name, value = request.arguments["name"], body_of(request, "value")["value"]
    if name not in OF_HOSTS:
        raise invalid(f'Unrecognised terms [{{<<"{name}">>,{shown(value)}}}] in limits')
    host.set_limits(attrs.evolve(host.limits, **{OF_HOSTS[name]: count(name, value)}))
    return changed(request, False, VIRTUAL_HOST, host.name)


def delete_of_virtual_host(request: Request) -> Response:
    host = request.broker.virtual_host(request.arguments["vhost"])
    if (field := OF_HOSTS.get(request.arguments["name"])) is not None:
        host.set_limits(attrs.evolve(host.limits, **{field: None}))
    return changed(request, False, VIRTUAL_HOST, host.name)


def of_users(request: Request) -> Later:
    """List the limits of all users for requesters that may see all, or else those of the requester."""
    users = [
        user for user in request.broker.access.users() if is_own(request, user.name) or sees_all(request)
    ]
    return table(request, [told for user in users if (told := of_one(user))["value"]], "user")


def of_user(request: Request) -> Json:
    """Answer with the limits of a user. Requesters that may not see them do not learn whether the user exists."""
    if not (is_own(request, request.arguments["user"]) or sees_all(request)):
        raise not_authorised("User not authorised to access object")
    told = of_one(known(request))
    return [told] if told["value"] else []


def is_own(request: Request, user: str) -> bool:
    return request.user.name == user


def of_one(user: User) -> Item:
    return {"user": user.name, "value": user_limits_json(user.limits)}


def put_of_user(request: Request) -> Response:
    name, value = request.arguments["name"], body_of(request, "value")["value"]
    user = request.broker.access.user(request.arguments["user"])
    if user is None:
        raise bad(["no_such_user", request.arguments["user"]])
    if name not in OF_USERS:
        raise bad(f'Unrecognised terms [{{<<"{name}">>,{shown(value)}}}] in user-limits')
    return put_limit(request, user, OF_USERS[name], count(name, value))


def delete_of_user(request: Request) -> Response:
    user, field = known(request), OF_USERS.get(request.arguments["name"])
    return changed(request, False) if field is None else put_limit(request, user, field, None)


def put_limit(request: Request, user: User, field: str, limit: int | None) -> Response:
    limits = attrs.evolve(user.limits, **{field: limit})
    request.broker.access.put_user(attrs.evolve(user, limits=limits))
    request.broker.events.happened("user.limits.set", "", {"name": user.name, **attrs.asdict(limits)})
    return changed(request, False, USER, user.name)


def known(request: Request) -> User:
    """Return the user in the path. Raises NotFound."""
    user = request.broker.access.user(request.arguments["user"])
    if user is None:
        raise not_there()
    return user


def count(name: str, value: object) -> int:
    """Return the value of a limit. Raises Refused if it is not a number within bounds."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise invalid(f'{name} should be a number, actually was <<"{shown(value)}">>')
    if name == RATE and not value:
        raise invalid(f"{name} should be at least 1, or negative for no limit")
    if abs(value) > COUNT_MAX:
        raise invalid(f"{name} should be at most {COUNT_MAX}")
    return value


ROUTES: Final = (
    Route("GET", HOSTS, Level.MANAGEMENT, of_virtual_hosts),
    Route("GET", HOSTS + "/{vhost}", Level.MANAGEMENT, of_virtual_host),
    Route("PUT", HOSTS + "/{vhost}/{name}", Level.ADMINISTRATOR, put_of_virtual_host),
    Route("DELETE", HOSTS + "/{vhost}/{name}", Level.ADMINISTRATOR, delete_of_virtual_host),
    Route("GET", USERS, Level.MANAGEMENT, of_users),
    Route("GET", USERS + "/{user}", Level.MANAGEMENT, of_user),
    Route("PUT", USERS + "/{user}/{name}", Level.ADMINISTRATOR, put_of_user),
    Route("DELETE", USERS + "/{user}/{name}", Level.ADMINISTRATOR, delete_of_user),
)
