"""The table of everything that HTTP serves: methods and paths, the tags required, and the functions that answer.

A new route is a line in `ROUTES` and a function. In a path `{name}` stands for one segment, percent-decoded after the
path was split, so that a virtual host called `/` is `%2F`.
"""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus
from typing import Final

from leveret.config.types import free_value
from leveret.errors import NotFound, PreconditionFailed
from leveret.exchanges.explain import explain
from leveret.observability import log_levels
from leveret.protocols.http import management, metrics, web_page
from leveret.protocols.http.bulk import branches, leases, pipelines, publish, staging, streams, super_streams
from leveret.protocols.http.connection import Response
from leveret.protocols.http.management.requester import sees_all, visible_hosts
from leveret.protocols.http.server.request import Level, Refused, Request, Route
from leveret.protocols.http.server.route_tree import RouteTree
from leveret.values import Json, Value

LOG_LINES: Final = 200  # unless the request has a count
LOG_LINES_MAX: Final = 2000
LOG_ID_MAX: Final = (1 << 63) - 1

# The functions.


def index(request: Request) -> Json | Response:
    """Answer browsers with the web page, and programs with the list of routes."""
    if web_page.is_wanted(request):
        return web_page.page(request)
    routes = [{"method": r.method, "path": r.path, "for": r.level.name.lower()} for r in ROUTES]
    return {"product": "Leveret", "routes": routes}


def health(request: Request) -> Json:
    """Answer `ok`, which shows that the node works."""
    return {"status": "ok"}


def status(request: Request) -> Json:
    """Return the status of the node; users that may not see everything get counts of their own virtual hosts only."""
    told = request.operations.status()
    if sees_all(request):
        return told
    hosts = visible_hosts(request)
    queues = [queue for host in hosts for queue in host.queues.values()]
    return {
        **{name: told[name] for name in ("name", "version", "uptime_s", "alarm", "storage") if name in told},
        "virtual_hosts": [host.name for host in hosts],
        "exchanges": sum(len(host.exchanges) for host in hosts),
        "queues": len(queues),
        "queues_paused": sum(queue.paused for queue in queues),
        "consumers": sum(len(queue.consumers) for queue in queues),
        "messages_ready": sum(queue.ready for queue in queues),
        "messages_unacknowledged": sum(queue.unsettled for queue in queues),
    }


def reload(request: Request) -> Json:
    report = request.operations.reload()
    if report.problems:
        more: dict[str, Json] = {"problems": report.problems}
        raise Refused(HTTPStatus.CONFLICT, "the configuration cannot be used; nothing was changed", more)
    return {"changed": report.changed, "needs_restart": report.needs_restart, "refused": report.refused}


def plugins(request: Request) -> Json:
    return request.operations.plugins()


def reload_plugins(request: Request) -> Json:
    return request.operations.reload_plugins()


def log(request: Request) -> Json:
    """Return the levels of the log: of the whole, and of each category."""
    return {"level": log_levels.level(), "levels": log_levels.levels()}


def log_lines(request: Request) -> Json:
    """Return the last lines of the log, which are kept in memory. Raises NotFound if this node keeps none."""
    request.only("after", "level", "category", "text", "count")
    level = request.one("level", "debug")
    if level not in log_levels.LEVELS:
        raise no_level(level)
    found = request.operations.log_lines(
        request.number("after", 0, 0, LOG_ID_MAX),
        log_levels.number(level),
        request.one("category", ""),
        request.one("text", "").lower(),
        request.number("count", LOG_LINES, 1, LOG_LINES_MAX),
    )
    if found is None:
        raise NotFound("this node runs in a program of its own log, and keeps no lines of it")
    return {**found}


def no_level(level: str) -> PreconditionFailed:
    return PreconditionFailed(f"'{level[:40]}' is no level of the log; {', '.join(log_levels.LEVELS)} are")


def set_log_level(request: Request) -> Json:
    """Set the level of the log, or of one category, until the next reload or start."""
    request.only("category")
    level, category = request.arguments["level"], request.one("category", "")
    if level not in log_levels.LEVELS:
        raise no_level(level)
    if category and category not in log_levels.CATEGORIES:
        known = ", ".join(log_levels.CATEGORIES)
        raise NotFound(f"the log has no category '{category[:40]}'; it has {known}")
    log_levels.set_level(category or None, level)
    return log(request)


def logins(request: Request) -> Json:
    """Return how many logins are remembered."""
    return {**request.broker.access.remembered_logins()}


def forget_logins(request: Request) -> Json:
    """Forget them, and return how many there were."""
    return {**request.broker.access.forget_logins()}


def explained(request: Request) -> Json:
    request.only("vhost", "exchange", "key", "header", "user", "protocol", "address")
    host = request.broker.virtual_host(request.one("vhost", "/"))
    headers = dict(map(header, request.query.get("header", ())))
    user = None
    if "user" in request.query:
        user = request.broker.access.user(name := request.one("user", ""))
        if user is None:
            raise NotFound(f"no user '{name}'")
    exchange, key = addressed(request)
    return explain(host, exchange, key, headers, user=user).to_json()


def addressed(request: Request) -> tuple[str, str]:
    """Return the exchange and the key that a request names, or those of an address in a protocol's words.

    Raises PreconditionFailed.
    """
    protocol = request.one("protocol", "")
    if not protocol and "address" not in request.query:
        return request.one("exchange", ""), request.one("key", "")
    if "exchange" in request.query or "key" in request.query:
        raise PreconditionFailed("an address stands for exchange and key: name it, or these")
    known = request.broker.addresses
    if protocol not in known:
        raise PreconditionFailed(
            f"protocol '{protocol[:40]}' has no addresses of its own; {', '.join(known) or 'none'} has"
        )
    try:
        return known[protocol](request.one("address", ""))
    except ValueError as error:
        raise PreconditionFailed(f"the address: {error}") from None


def header(text: str) -> tuple[str, Value]:
    """Read NAME=VALUE, the value written as in the configuration file (`2`, `true`, `"2"`) or else text.

    Raises PreconditionFailed if the text has no name or no equals sign.
    """
    name, equals, written = text.partition("=")
    if not name or not equals:
        raise PreconditionFailed(f"header '{text}' is not NAME=VALUE")
    return name, free_value(written)


# The table.

ROUTES: Final = (
    Route("GET", "/", Level.ANYBODY, index),
    Route("GET", "/api/leveret/health", Level.ANYBODY, health),
    Route("GET", "/api/leveret/status", Level.MANAGEMENT, status),
    Route("POST", "/api/leveret/reload", Level.ADMINISTRATOR, reload),
    Route("GET", "/api/leveret/plugins", Level.MONITORING, plugins),
    Route("POST", "/api/leveret/plugins/reload", Level.ADMINISTRATOR, reload_plugins),
    Route("GET", "/api/leveret/log", Level.MONITORING, log),
    Route("GET", "/api/leveret/log/lines", Level.ADMINISTRATOR, log_lines),
    Route("PUT", "/api/leveret/log/level/{level}", Level.ADMINISTRATOR, set_log_level),
    Route("GET", "/api/leveret/logins", Level.MONITORING, logins),
    Route("DELETE", "/api/leveret/logins", Level.ADMINISTRATOR, forget_logins),
    Route("GET", "/api/leveret/explain", Level.MONITORING, explained),
    *streams.ROUTES,
    *super_streams.ROUTES,
    *staging.ROUTES,
    *publish.ROUTES,
    *leases.ROUTES,
    *pipelines.ROUTES,
    *branches.ROUTES,
    *management.ROUTES,
    *metrics.ROUTES,
    *web_page.ROUTES,
)


TREE: Final = RouteTree(ROUTES)


def find(method: str, path: str, tree: RouteTree = TREE) -> tuple[Route, dict[str, str]]:
    """Return the route and the arguments in the path. Raises Refused: 404, or 405 if another method would do.

    HEAD is GET without the body. A slash at the end is ignored unless there is a route with it.
    """
    there = list(tree.of(path)) or list(tree.of(path.removesuffix("/")))
    wanted = "GET" if method == "HEAD" else method
    for route, arguments in there:
        if route.method == wanted:
            return route, arguments
    if not there:
        raise Refused(HTTPStatus.NOT_FOUND, f"there is nothing at '{path}'")
    allow = allowed(route for route, _ in there)
    raise Refused(HTTPStatus.METHOD_NOT_ALLOWED, f"'{path}' takes {allow}, not {method}", allow=allow)


def allowed(routes: Iterable[Route]) -> str:
    """Return the methods of routes with the same path, for the header Allow."""
    methods = {route.method for route in routes}
    return ", ".join(sorted({*methods, "OPTIONS"} | ({"HEAD"} if "GET" in methods else set())))
