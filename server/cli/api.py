"""A node's HTTP API as functions: paths of names, JSON in and out, lists page by page, and refusals in words."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final, TypeAlias
from urllib.parse import quote, unquote, urlencode

from leveret.server.cli.text import plain

if TYPE_CHECKING:
    from leveret.server.cli.control_client import Answer, ControlClient

Row: TypeAlias = Mapping[str, object]

PAGE: Final = 500  # rows of one request
WORK_TIMEOUT_S: Final = 600.0  # for requests that may concern millions of messages, or thousands of objects
SINGULAR: Final = {
    "queues": "queue",
    "exchanges": "exchange",
    "vhosts": "virtual host",
    "users": "user",
    "policies": "policy",
    "operator-policies": "operator policy",
    "connections": "connection",
    "channels": "channel",
    "streams": "stream",
    "super-streams": "super stream",
    "leases": "lease",
    "shovels": "shovel",
    "definitions": "virtual host",
}
ALONE: Final = frozenset({"vhosts", "users", "connections", "channels"})  # in no virtual host
LISTED: Final = frozenset(SINGULAR) - {"super-streams", "leases", "definitions"}  # by `leveret list`
LIMITED: Final = {"vhost-limits": "vhosts", "user-limits": "users"}
FORBIDDEN: Final = ("reserved prefix", "system exchange", "the default exchange")  # for all users


class Refused(Exception):  # noqa: N818 - a condition, not a mistake
    """Raised if the node refuses a request; the text says why, `status` is HTTP's."""

    def __init__(self, reason: str, status: int = 0) -> None:
        super().__init__(reason)
        self.status = status


def path(*names: str) -> str:
    """Return the path of names: `path("queues", "/", "a b")` is `/api/queues/%2F/a%20b`."""
    return "/api/" + "/".join(quote(name, safe="") for name in names)


def own_path(*names: str) -> str:
    """Return a path as `path` does, below the part of the API that only Leveret has."""
    return "/api/leveret/" + "/".join(quote(name, safe="") for name in names)


class Api:
    """The API of the node that `client` asks. All methods raise Refused, and Unreachable as `client` does."""

    def __init__(self, client: ControlClient) -> None:
        self._client = client
        self._told: set[str] = set()  # how long changes hold

    def get(
        self, path: str, query: Mapping[str, str] | None = None, timeout_s: float | None = None
    ) -> object:
        return self._asked("GET", f"{path}?{urlencode(query)}" if query else path, timeout_s=timeout_s)

    def put(self, path: str, content: object) -> object:
        return self._asked("PUT", path, content)

    def create(self, path: str, content: object) -> bool:
        """Put something, and return whether it is new."""
        return self._answer("PUT", path, content).status == 201

    def post(self, path: str, content: object, timeout_s: float | None = None) -> object:
        return self._asked("POST", path, content, timeout_s=timeout_s)

    def delete(
        self, path: str, query: Mapping[str, str] | None = None, headers: Mapping[str, str] | None = None
    ) -> object:
        target = f"{path}?{urlencode(query)}" if query else path
        return self._asked("DELETE", target, headers=headers, timeout_s=WORK_TIMEOUT_S)

    def rows(
        self, path: str, query: Mapping[str, str] | None = None, limit: int | None = None
    ) -> Iterator[Row]:
        """Yield the rows of a list, at most `limit`, page by page."""
        size = PAGE if limit is None else max(1, min(limit, PAGE))
        page, left = 1, limit
        while True:
            fields = {**(query or {}), "page": str(page), "page_size": str(size)}
            content = self.get(path, fields, WORK_TIMEOUT_S)
            found = rows_of(content)
            yield from found if left is None else found[:left]
            left = None if left is None else left - len(found)
            if (left is not None and left <= 0) or page >= _pages(content):
                return
            page += 1

    def whole(self, path: str) -> list[Row]:
        """Return all rows of a list without pages."""
        return rows_of(self.get(path, timeout_s=WORK_TIMEOUT_S))

    def _asked(
        self,
        method: str,
        path: str,
        content: object = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> object:
        return self._answer(method, path, content, headers, timeout_s).content

    def _answer(
        self,
        method: str,
        path: str,
        content: object = None,
        headers: Mapping[str, str] | None = None,
        timeout_s: float | None = None,
    ) -> Answer:
        body = None if content is None else json.dumps(content).encode()
        answer = self._client.ask(method, path, timeout_s, body, headers or {})
        if answer.refused:
            raise Refused(reason(answer, path, method), answer.status)
        if answer.holds and answer.holds not in self._told:
            self._told.add(answer.holds)
            print(f"leveret: warning: this holds {plain(answer.holds)}", file=sys.stderr)
        return answer


def rows_of(content: object) -> list[Row]:
    """Return the rows of a list, or of a page of one."""
    listed = content.get("items") if isinstance(content, Mapping) else content
    return [row for row in listed if isinstance(row, Mapping)] if isinstance(listed, list) else []


def _pages(content: object) -> int:
    count = content.get("page_count") if isinstance(content, Mapping) else None
    return count if isinstance(count, int) else 1


def reason(answer: Answer, path: str, method: str = "GET") -> str:
    """Return why the node refused. RabbitMQ's `Not Found` names no object, so it is taken from the path."""
    reply = answer.reason
    unknown = f"the node does not have {path}: it may be older than this command, or a RabbitMQ"
    if path.partition("?")[0].endswith("/"):  # the last name of what is asked for
        unknown = "the name is empty"
    if answer.lacks_right and not any(each in reply for each in FORBIDDEN):
        return f"{reply}: another --user may do this, or this one with more tags or permissions"
    if answer.status == 405 or not answer.text:
        return unknown
    if reply == "vhost_or_user_not_found":
        host, name = [unquote(part) for part in path.split("/")[3:5]]
        return f"there is no user '{name}' or no virtual host '{host}'"
    if answer.status == 404 and reply.lower() in ("not found", "object not found", "not_found"):
        return missing(path, is_put=method == "PUT") or unknown
    return reply


def missing(path: str, is_put: bool = False) -> str:
    """Say in words which object of a path does not exist; empty if the path names none.

    What is put need not exist, but its virtual host.
    """
    section, *names = [unquote(name) for name in path.partition("?")[0].split("/")[2:]]
    if section == "leveret":  # the part of the API that only Leveret has
        section, *names = names
    if section in LIMITED:
        section, names = LIMITED[section], names[:1]
    if section == "shovels" and names[:1] == ["vhost"]:
        names = names[1:]
    if section == "bindings" and len(names) > 4:
        host, _, source, _, destination, *_ = names
        return f"there is no exchange '{source}' or no '{destination}' in vhost '{host}' for it to lead to"
    is_host_missing = len(names) == 1 or (is_put and len(names) == 2) or section == "bindings"
    if names and section not in ALONE and is_host_missing:
        return f"there is no virtual host '{names[0]}'; `leveret list vhosts` shows those that there are"
    if section in ("permissions", "topic-permissions") and len(names) > 1:
        return f"there is no user '{names[1]}' with permissions in vhost '{names[0]}'"
    kind = SINGULAR.get(section)
    if kind is None or not names:
        return ""
    where = "" if section in ALONE else f" in vhost '{names[0]}'"
    name = names[0] if section in ALONE else names[1]
    shows = f"; `leveret list {section}` shows those that there are" if section in LISTED else ""
    return f"there is no {kind} '{name}'{where}{shows}"
