"""Define routes, the tags that they require, and the request that their functions get.

A function gets a `Request` and returns content for JSON, a whole response, or a `Later`; it raises the core's failures,
or `Refused` for a status that only HTTP has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from http import HTTPStatus
from typing import Final, TypeAlias

import attrs

from leveret.broker import Broker
from leveret.errors import PreconditionFailed
from leveret.operations import Operations
from leveret.protocols.http.connection import HeaderList, Later, Response
from leveret.security.users import User
from leveret.values import Json

DIGITS_MAX: Final = 20  # of a number; longer ones are refused unread


class Refused(Exception):  # noqa: N818 - named like the core's failures
    """Raised to answer with this status; `more` is added to the JSON beside the reason."""

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
        self.allow = allow  # the methods that the path takes
        self.headers = headers


class Level(Enum):
    """The tags of which a user needs one to use a route. `ANYBODY` needs no login, and `USER` no tag."""

    ANYBODY = frozenset[str]()
    USER = frozenset(("",))  # the route checks permissions itself
    MANAGEMENT = frozenset(("management", "policymaker", "monitoring", "administrator"))
    POLICYMAKER = frozenset(("policymaker", "administrator"))
    MONITORING = frozenset(("monitoring", "administrator"))
    ADMINISTRATOR = frozenset(("administrator",))

    def admits(self, user: User) -> bool:
        return self is Level.USER or not self.value.isdisjoint(user.tags)


@attrs.frozen
class Request:
    """A request that has been admitted."""

    broker: Broker
    arguments: Mapping[str, str]  # from the path
    query: Mapping[str, Sequence[str]]
    admitted: User | None = None
    body: bytes = attrs.field(default=b"", repr=False)  # may contain passwords
    message_size_max: int = 0  # the most bytes of a message's body, for requests that carry messages
    headers: Mapping[str, str] = attrs.field(factory=dict, repr=False)  # names in lower case

    @property
    def user(self) -> User:
        """Return the user that sent the request; routes for `ANYBODY` have none."""
        assert self.admitted is not None, "a route for anybody asks for the user"
        return self.admitted

    @property
    def operations(self) -> Operations:
        if self.broker.operations is None:
            raise Refused(HTTPStatus.SERVICE_UNAVAILABLE, "this broker does not run in a node")
        return self.broker.operations

    def only(self, *names: str) -> None:
        """Refuse other parameters, lest a misspelt one give a wrong answer. Raises PreconditionFailed."""
        for name in self.query:
            if name not in names:
                raise PreconditionFailed(
                    f"unknown parameter '{name}'; known are {', '.join(names) or 'none'}"
                )

    def one(self, name: str, otherwise: str) -> str:
        """Return a parameter that may be given once. Raises PreconditionFailed if it is repeated."""
        given = self.query.get(name, (otherwise,))
        if len(given) > 1:
            raise PreconditionFailed(f"parameter '{name}' is given {len(given)} times")
        return given[0]

    def number(self, name: str, otherwise: int | None, least: int, most: int) -> int:
        """Return a parameter that is a whole number; without `otherwise` it is required.

        Raises PreconditionFailed if it is missing, repeated, not a number or out of range.
        """
        given = self.one(name, "" if otherwise is None else str(otherwise))
        if not given:
            raise PreconditionFailed(f"parameter '{name}' is missing")
        return whole(f"parameter '{name}'", given, least, most)

    def place(self, name: str, most: int) -> int:
        """Return a whole number from the path. Raises PreconditionFailed if it is not a number or above `most`."""
        return whole(f"the {name} in the path", self.arguments[name], 0, most)

    def flag(self, name: str) -> bool:
        """Return a parameter that is `true` or `false`, false if absent. Raises PreconditionFailed for other values."""
        given = self.one(name, "false")
        if given not in ("true", "false"):
            raise PreconditionFailed(f"parameter '{name}' is '{given[:40]}', not true or false")
        return given == "true"


def whole(described: str, given: str, least: int, most: int) -> int:
    """Return the number in a text. Raises PreconditionFailed if it is not a number, or out of range."""
    is_number = given.isascii() and given.isdigit() and len(given) <= DIGITS_MAX
    if not is_number or not least <= int(given) <= most:
        raise PreconditionFailed(f"{described} is '{given[:40]}', not a whole number from {least} to {most}")
    return int(given)


Answer: TypeAlias = Callable[[Request], "Json | Later | Response"]


@attrs.frozen
class Route:
    """A row of the table of routes."""

    method: str
    path: str
    level: Level
    answer: Answer
    large: bool = False  # its body may be a bit larger than the largest message
    octets_max: int | None = None  # a stricter limit of such a body in bytes
