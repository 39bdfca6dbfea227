"""What can be asked over HTTP: a table of methods and paths, who may ask, and a function for each that answers.

A new route is a line in `ROUTES` and a function. In a path `{name}` stands for one segment, percent-decoded after the
path was split, so that a virtual host called `/` is `%2F`. A function gets what was `Asked` and returns what becomes
JSON; it raises the core's failures, or `Refused` for what only HTTP has a word for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import Enum
from http import HTTPStatus
from typing import Final
from urllib.parse import unquote

import attrs

from broker_core.access import User
from broker_core.broker import Broker
from broker_core.errors import NotFound, PreconditionFailed
from broker_core.explain import explain
from broker_core.kinds import REFUSED, AnyValue, Place, toml_value
from broker_core.operations import Json, Operations
from broker_core.values import Value


class Refused(Exception):  # noqa: N818 - said like the core's failures
    """Answered with this status; `more` joins the reason in the JSON."""

    def __init__(
        self, status: HTTPStatus, reason: str, more: Mapping[str, Json] | None = None, allow: str = ""
    ) -> None:
        super().__init__(reason)
        self.status = status
        self.more: Mapping[str, Json] = more or {}
        self.allow = allow  # the methods that would have been fine


class Level(Enum):
    """Who may ask: users with one of these tags. Nobody needs a name for `ANYBODY`."""

    ANYBODY = frozenset[str]()
    MANAGEMENT = frozenset(("management", "policymaker", "monitoring", "administrator"))
    MONITORING = frozenset(("monitoring", "administrator"))
    ADMINISTRATOR = frozenset(("administrator",))

    def admits(self, user: User) -> bool:
        return not self.value.isdisjoint(user.tags)


@attrs.frozen
class Asked:
    """A request that has been let in."""

    broker: Broker
    arguments: Mapping[str, str]  # from the path
    query: Mapping[str, Sequence[str]]

    @property
    def operations(self) -> Operations:
        if self.broker.operations is None:
            raise Refused(HTTPStatus.SERVICE_UNAVAILABLE, "this broker does not run in a node")
        return self.broker.operations

    def only(self, *names: str) -> None:
        """Refuse other parameters: a misspelt one would be a wrong answer. Raises PreconditionFailed."""
        for name in self.query:
            if name not in names:
                raise PreconditionFailed(
                    f"unknown parameter '{name}'; known are {', '.join(names) or 'none'}"
                )

    def one(self, name: str, otherwise: str) -> str:
        """A parameter that is given once at most. Raises PreconditionFailed."""
        given = self.query.get(name, (otherwise,))
        if len(given) > 1:
            raise PreconditionFailed(f"parameter '{name}' is given {len(given)} times")
        return given[0]


Answer = Callable[[Asked], Json]


@attrs.frozen
class Route:
    """One line of the table."""

    method: str
    path: str
    level: Level
    answer: Answer

    def arguments_in(self, path: str) -> dict[str, str] | None:
        """The values of the pattern's `{names}`, or None if the path is another one."""
        wanted, given = self.path.split("/"), path.split("/")
        if len(wanted) != len(given):
            return None
        pairs = [(name, unquote(segment)) for name, segment in zip(wanted, given, strict=True)]
        if any(name != segment for name, segment in pairs if not name.startswith("{")):
            return None
        return {name[1:-1]: segment for name, segment in pairs if name.startswith("{")}


# The functions.


def index(asked: Asked) -> Json:
    """What there is."""
    routes = [{"method": r.method, "path": r.path, "for": r.level.name.lower()} for r in ROUTES]
    return {"product": "Leveret", "routes": routes}


def health(asked: Asked) -> Json:
    """An answer at all is the answer."""
    return {"status": "ok"}


def status(asked: Asked) -> Json:
    return asked.operations.status()


def reload(asked: Asked) -> Json:
    report = asked.operations.reload()
    if report.problems:
        more: dict[str, Json] = {"problems": report.problems}
        raise Refused(HTTPStatus.CONFLICT, "the configuration cannot be used; nothing was changed", more)
    return {"changed": report.changed, "needs_restart": report.needs_restart, "refused": report.refused}


def plugins(asked: Asked) -> Json:
    return asked.operations.plugins()


def reload_plugins(asked: Asked) -> Json:
    return asked.operations.reload_plugins()


def explained(asked: Asked) -> Json:
    asked.only("vhost", "exchange", "key", "header", "user")
    host = asked.broker.virtual_host(asked.one("vhost", "/"))
    headers = dict(map(header, asked.query.get("header", ())))
    user = None
    if "user" in asked.query:
        user = asked.broker.access.user(name := asked.one("user", ""))
        if user is None:
            raise NotFound(f"no user '{name}'")
    return explain(host, asked.one("exchange", ""), asked.one("key", ""), headers, user=user).to_json()


def header(text: str) -> tuple[str, Value]:
    """NAME=VALUE, the value written as in the configuration file: `2`, `true`, `"2"`; anything else is text."""
    name, equals, written = text.partition("=")
    if not name or not equals:
        raise PreconditionFailed(f"header '{text}' is not NAME=VALUE")
    value = AnyValue().read(toml_value(written), Place([]))
    return name, written if value is REFUSED else value


# The table.

ROUTES: Final = (
    Route("GET", "/", Level.ANYBODY, index),
    Route("GET", "/api/leveret/health", Level.ANYBODY, health),
    Route("GET", "/api/leveret/status", Level.MANAGEMENT, status),
    Route("POST", "/api/leveret/reload", Level.ADMINISTRATOR, reload),
    Route("GET", "/api/leveret/plugins", Level.MONITORING, plugins),
    Route("POST", "/api/leveret/plugins/reload", Level.ADMINISTRATOR, reload_plugins),
    Route("GET", "/api/leveret/explain", Level.MONITORING, explained),
)


def find(method: str, path: str, routes: Iterable[Route] = ROUTES) -> tuple[Route, dict[str, str]]:
    """The route and the arguments in the path. Raises Refused: 404, or 405 where another method would do.

    HEAD is GET without the body.
    """
    there = [(route, arguments) for route in routes if (arguments := route.arguments_in(path)) is not None]
    wanted = "GET" if method == "HEAD" else method
    for route, arguments in there:
        if route.method == wanted:
            return route, arguments
    if not there:
        raise Refused(HTTPStatus.NOT_FOUND, f"there is nothing at '{path}'")
    allow = allowed(route for route, _ in there)
    raise Refused(HTTPStatus.METHOD_NOT_ALLOWED, f"'{path}' takes {allow}, not {method}", allow=allow)


def allowed(routes: Iterable[Route]) -> str:
    """The methods of routes with the same path, for the header Allow."""
    methods = {route.method for route in routes}
    return ", ".join(sorted({*methods, "OPTIONS"} | ({"HEAD"} if "GET" in methods else set())))
