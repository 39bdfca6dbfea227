"""What a route is, who may ask for it, and what its function gets and gives.

A function gets what was `Asked` and returns what becomes JSON, a whole response, or the promise of one; it raises the
core's failures, or `Refused` for what only HTTP has a word for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from http import HTTPStatus
from typing import Final, TypeAlias

import attrs

from broker_core.broker import Broker
from broker_core.errors import PreconditionFailed
from broker_core.operations import Json, Operations
from broker_core.security.access import User
from protocols.http.connection import HeaderList, Later, Response

DIGITS_MAX: Final = 20  # of a number; more are not looked at


class Refused(Exception):  # noqa: N818 - said like the core's failures
    """Answered with this status; `more` joins the reason in the JSON."""

    def __init__(
        self,
        status: HTTPStatus,
        reason: str,
        more: Mapping[str, Json] | None = None,
        allow: str = "",
        headers: HeaderList = (),
    ) -> None:
        super().__init__(reason)
        self.status = status
        self.more: Mapping[str, Json] = more or {}
        self.allow = allow  # the methods that would have been fine
        self.headers = headers


class Level(Enum):
    """Who may ask: users with one of these tags. Nobody needs a name for `ANYBODY`, and no user a tag for `USER`."""

    ANYBODY = frozenset[str]()
    USER = frozenset(("",))  # the route asks for permissions
    MANAGEMENT = frozenset(("management", "policymaker", "monitoring", "administrator"))
    POLICYMAKER = frozenset(("policymaker", "administrator"))
    MONITORING = frozenset(("monitoring", "administrator"))
    ADMINISTRATOR = frozenset(("administrator",))

    def admits(self, user: User) -> bool:
        return self is Level.USER or not self.value.isdisjoint(user.tags)


@attrs.frozen
class Asked:
    """A request that has been let in."""

    broker: Broker
    arguments: Mapping[str, str]  # from the path
    query: Mapping[str, Sequence[str]]
    admitted: User | None = None
    body: bytes = attrs.field(default=b"", repr=False)  # there may be passwords in it
    message_size_max: int = 0  # octets of a message's body, if the request brings any
    headers: Mapping[str, str] = attrs.field(factory=dict, repr=False)  # names in lower case

    @property
    def user(self) -> User:
        """Who asks; somebody does, unless the route is for anybody."""
        assert self.admitted is not None, "a route for anybody asks for the user"
        return self.admitted

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

    def number(self, name: str, otherwise: int | None, least: int, most: int) -> int:
        """A parameter that is a whole number; without `otherwise` it must be given. Raises PreconditionFailed."""
        given = self.one(name, "" if otherwise is None else str(otherwise))
        if not given:
            raise PreconditionFailed(f"parameter '{name}' is missing")
        return whole(f"parameter '{name}'", given, least, most)

    def place(self, name: str, most: int) -> int:
        """What stands in the path, a whole number. Raises PreconditionFailed."""
        return whole(f"the {name} in the path", self.arguments[name], 0, most)

    def flag(self, name: str) -> bool:
        """A parameter that is `true` or, unless said, `false`. Raises PreconditionFailed."""
        given = self.one(name, "false")
        if given not in ("true", "false"):
            raise PreconditionFailed(f"parameter '{name}' is '{given[:40]}', not true or false")
        return given == "true"


def whole(described: str, given: str, least: int, most: int) -> int:
    """Raises PreconditionFailed."""
    is_number = given.isascii() and given.isdigit() and len(given) <= DIGITS_MAX
    if not is_number or not least <= int(given) <= most:
        raise PreconditionFailed(f"{described} is '{given[:40]}', not a whole number from {least} to {most}")
    return int(given)


Answer: TypeAlias = Callable[[Asked], "Json | Later | Response"]


@attrs.frozen
class Route:
    """One line of the table."""

    method: str
    path: str
    level: Level
    answer: Answer
    large: bool = False  # its body may have as many octets as a message, and some
    octets_max: int | None = None  # of such a body, if that is too many
