"""Show and set users' permissions in virtual hosts, and topic permissions on routing keys, for administrators."""

from __future__ import annotations

from typing import Final

from leveret.catalogue import PERMISSIONS, TOPIC_PERMISSIONS
from leveret.protocols.http.connection import Later, Response
from leveret.protocols.http.management.request_body import JsonObject, bad, body_of, text_in
from leveret.protocols.http.management.requester import changed, not_there
from leveret.protocols.http.management.short_lists import table
from leveret.protocols.http.server.request import Level, Request, Route
from leveret.security.permission_book import DEFAULT_EXCHANGE
from leveret.server.definitions.exporter import permission_json, topic_permission_json
from leveret.values import Json

PATH: Final = "/api/permissions"
ONE: Final = PATH + "/{vhost}/{user}"
TOPICS: Final = "/api/topic-permissions"
ONES_TOPICS: Final = TOPICS + "/{vhost}/{user}"


def permissions(request: Request) -> Later:
    rows = [permission_json(*each) for each in request.broker.access.permissions()]
    return table(request, rows, "user", "vhost")


def permission(request: Request) -> Json:
    user, host = ends(request)
    found = [each for each in request.broker.access.permissions() if each[:2] == (user, host)]
    if not found:
        raise not_there()
    return permission_json(*found[0])


def put_permission(request: Request) -> Response:
    user, host = known_ends(request)
    body = body_of(request, "configure", "write", "read")
    configure, write, read = (text_in(body, name) for name in ("configure", "write", "read"))
    access = request.broker.access
    created = not any(each[:2] == (user, host) for each in access.permissions())
    access.set_permissions(user, host, configure, write, read)
    return changed(request, created, PERMISSIONS, user, host)


def delete_permission(request: Request) -> Response:
    user, host = ends(request)
    if not request.broker.access.clear_permissions(user, host):
        raise not_there()
    return changed(request, False, PERMISSIONS, user, host)


def in_virtual_host(request: Request) -> Json:
    host = request.broker.virtual_host(request.arguments["vhost"]).name
    return [permission_json(*each) for each in request.broker.access.permissions() if each[1] == host]


# Topic permissions.


def topic_permissions(request: Request) -> Later:
    rows = [topic_permission_json(*each) for each in request.broker.access.topic_permissions()]
    return table(request, rows, "user", "vhost", "exchange")


def topic_permissions_in_virtual_host(request: Request) -> Json:
    host = request.broker.virtual_host(request.arguments["vhost"]).name
    return [
        topic_permission_json(*each) for each in request.broker.access.topic_permissions() if each[1] == host
    ]


def ones_topic_permissions(request: Request) -> Json:
    found = [
        topic_permission_json(*each)
        for each in request.broker.access.topic_permissions()
        if each[:2] == ends(request)
    ]
    if not found:
        raise not_there()
    return found


def put_topic_permission(request: Request) -> Response:
    user, host = known_ends(request)
    body = body_of(request, "exchange", "write", "read")
    exchange = text_in(body, "exchange") or DEFAULT_EXCHANGE
    access = request.broker.access
    created = not any(each[:3] == (user, host, exchange) for each in access.topic_permissions())
    access.set_topic_permissions(user, host, exchange, text_in(body, "write"), text_in(body, "read"))
    return changed(request, created, TOPIC_PERMISSIONS, user, host, exchange)


def delete_topic_permissions(request: Request) -> Response:
    """Delete a user's topic permissions on the exchange in the body, or on all exchanges."""
    user, host = ends(request)
    if not request.broker.access.clear_topic_permissions(user, host, exchange_in(body_of(request))):
        raise not_there()
    return changed(request, False)


def delete_topic_permission(request: Request) -> Response:
    """Delete a user's topic permissions on the exchange in the path."""
    user, host = ends(request)
    exchange = request.arguments["exchange"]
    if not request.broker.access.clear_topic_permissions(user, host, exchange):
        raise not_there()
    return changed(request, False, TOPIC_PERMISSIONS, user, host, exchange)


def exchange_in(body: JsonObject) -> str | None:
    return text_in(body, "exchange") if "exchange" in body else None


def ends(request: Request) -> tuple[str, str]:
    """Return the user and the virtual host in the path. Raises NotFound."""
    user, host = request.arguments["user"], request.arguments["vhost"]
    if request.broker.access.user(user) is None or host not in request.broker.virtual_hosts:
        raise not_there()
    return user, host


def known_ends(request: Request) -> tuple[str, str]:
    """Return the user and the virtual host in the path of a PUT. Raises Refused (400), as RabbitMQ does here."""
    user, host = request.arguments["user"], request.arguments["vhost"]
    if request.broker.access.user(user) is None or host not in request.broker.virtual_hosts:
        raise bad("vhost_or_user_not_found")
    return user, host


ROUTES: Final = (
    Route("GET", PATH, Level.ADMINISTRATOR, permissions),
    Route("GET", ONE, Level.ADMINISTRATOR, permission),
    Route("PUT", ONE, Level.ADMINISTRATOR, put_permission),
    Route("DELETE", ONE, Level.ADMINISTRATOR, delete_permission),
    Route("GET", "/api/vhosts/{vhost}/permissions", Level.ADMINISTRATOR, in_virtual_host),
    Route("GET", TOPICS, Level.ADMINISTRATOR, topic_permissions),
    Route("GET", ONES_TOPICS, Level.ADMINISTRATOR, ones_topic_permissions),
    Route("PUT", ONES_TOPICS, Level.ADMINISTRATOR, put_topic_permission),
    Route("DELETE", ONES_TOPICS, Level.ADMINISTRATOR, delete_topic_permissions),
    Route("DELETE", ONES_TOPICS + "/{exchange}", Level.ADMINISTRATOR, delete_topic_permission),
    Route(
        "GET", "/api/vhosts/{vhost}/topic-permissions", Level.ADMINISTRATOR, topic_permissions_in_virtual_host
    ),
)
