"""Turns the changes of a plan into requests to the HTTP API."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from leveret.catalogue import COMPONENTS
from leveret.server.cli.api import path
from leveret.server.cli.objects import between, properties_key
from leveret.server.topology_file.model import (
    BINDING,
    EXCHANGE,
    OPERATOR_POLICY,
    PERMISSION,
    POLICY,
    QUEUE,
    USER,
    VIRTUAL_HOST,
    Thing,
)
from leveret.server.topology_file.plan import CHANGE, DELETE, REPLACE, Change

if TYPE_CHECKING:
    from leveret.server.cli.api import Api

SECTIONS: Final = {
    VIRTUAL_HOST: "vhosts",
    USER: "users",
    PERMISSION: "permissions",
    POLICY: "policies",
    OPERATOR_POLICY: "operator-policies",
    EXCHANGE: "exchanges",
    QUEUE: "queues",
}


def perform(change: Change, api: Api) -> None:
    """Make the change. Raises as `Api` does."""
    if change.action in (DELETE, REPLACE):
        _delete(change.thing, api)
    if change.action != DELETE:
        MADE.get(change.thing.kind, _put)(change, api)


def _put(change: Change, api: Api) -> None:
    api.put(_path(change.thing), change.thing.settings)


def _path(thing: Thing) -> str:
    if thing.kind in COMPONENTS:
        return path("parameters", *thing.key)
    return path(SECTIONS[thing.kind], *thing.key[1:])


def _put_user(change: Change, api: Api) -> None:
    """Create or change a user. A new one has no password; an existing one keeps it, because its hash is sent back."""
    kept: Mapping[str, object] = {}
    if change.action == CHANGE:
        user = api.get(path("users", change.thing.name))
        kept = user if isinstance(user, Mapping) else {}
    names = ("password_hash", "hashing_algorithm")
    login = {name: kept[name] for name in names if name in kept} or {"password_hash": ""}
    tags = change.thing.settings["tags"]
    api.put(path("users", change.thing.name), {**login, "tags": ",".join(tags)})  # type: ignore[arg-type]


def _bind(change: Change, api: Api) -> None:
    _, host, source, kind, destination, key, _ = change.thing.key
    content = {"routing_key": key, "arguments": change.thing.settings["arguments"]}
    api.post(path(*between(host, source, kind, destination)), content)


def _delete(thing: Thing, api: Api) -> None:
    if thing.kind == BINDING:
        _unbind(thing, api)
    else:
        api.delete(_path(thing))


def _unbind(thing: Thing, api: Api) -> None:
    _, host, source, kind, destination, key, _ = thing.key
    ends = between(host, source, kind, destination)
    name = properties_key(api.whole(path(*ends)), key, thing.settings["arguments"])
    if name is not None:  # otherwise it was deleted with its source or destination
        api.delete(path(*ends, name))


MADE: Final[Mapping[str, Callable[[Change, Api], None]]] = {USER: _put_user, BINDING: _bind}
