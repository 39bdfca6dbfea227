"""A topology: objects by the keys that identify them, each with the settings that it should have.

Equal keys mean the same object; equal settings mean that it needs no change.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, TypeAlias

import attrs

from leveret.catalogue import COMPONENTS, SHOVEL, UPSTREAM, UPSTREAM_SET

Settings: TypeAlias = Mapping[str, object]
Key: TypeAlias = tuple[str, ...]  # the kind, then the virtual host if it has one, then its names

VIRTUAL_HOST: Final = "virtual host"
USER: Final = "user"
PERMISSION: Final = "permissions"
POLICY: Final = "policy"
OPERATOR_POLICY: Final = "operator policy"
EXCHANGE: Final = "exchange"
QUEUE: Final = "queue"
BINDING: Final = "binding"

DEFAULT_TYPE: Final = "default_queue_type"  # a setting of virtual hosts

# In the order of creation: each kind depends only on those before it. The kinds of parameters are their components.
KINDS: Final = (
    VIRTUAL_HOST,
    USER,
    PERMISSION,
    POLICY,
    OPERATOR_POLICY,
    EXCHANGE,
    QUEUE,
    BINDING,
    UPSTREAM,
    UPSTREAM_SET,
    SHOVEL,
)


@attrs.frozen
class Thing:
    """An object; `place` is its position in the file."""

    key: Key
    settings: Settings = attrs.field(factory=dict)
    place: str = attrs.field(default="", eq=False)

    @property
    def kind(self) -> str:
        return self.key[0]

    @property
    def host(self) -> str:
        """The virtual host; empty for a user, which is in none."""
        return "" if self.kind == USER else self.key[1]

    @property
    def name(self) -> str:
        return self.key[-1] if self.kind != BINDING else self.key[4]

    @property
    def shown(self) -> Settings:
        """The settings, with a mark in place of each password in a URI."""
        value = self.settings.get("value")
        if self.kind not in COMPONENTS or not isinstance(value, Mapping):
            return self.settings
        from leveret.features.parameters.passwords import without_passwords  # few files have shovels

        return {**self.settings, "value": without_passwords(value)}

    def __str__(self) -> str:
        if self.kind == VIRTUAL_HOST or self.kind == USER:
            return f"{self.kind} '{self.name}'"
        if self.kind == BINDING:
            _, host, source, kind, destination, key, _ = self.key
            more = f" {json.dumps(self.settings['arguments'])}" if self.settings.get("arguments") else ""
            return f"binding '{source}' -> {kind} '{destination}' key '{key}'{more} in vhost '{host}'"
        of = "of user " if self.kind == PERMISSION else ""
        return f"{self.kind} {of}'{self.name}' in vhost '{self.host}'"


@attrs.frozen
class Topology:
    """Objects by their keys, and for each virtual host the pattern of names that the file manages.

    `passed_over` are places of a file whose settings do not exist here, each with a sentence about that.
    `has_parameters`: the file can name shovels and upstreams, so that others may be deleted.
    """

    things: Mapping[Key, Thing]
    managed: Mapping[str, str] = attrs.field(factory=dict)
    passed_over: Sequence[tuple[str, str]] = ()
    has_parameters: bool = False

    def of(self, *kinds: str) -> Iterator[Thing]:
        return (each for each in self.things.values() if each.kind in kinds)

    @property
    def hosts(self) -> list[str]:
        """The virtual hosts of all objects."""
        return sorted({each.host for each in self.things.values() if each.kind != USER})


def topology(
    things: Iterator[Thing] | list[Thing],
    managed: Mapping[str, str] | None = None,
    passed_over: Sequence[tuple[str, str]] = (),
    has_parameters: bool = False,
) -> Topology:
    return Topology({each.key: each for each in things}, managed or {}, passed_over, has_parameters)


def virtual_host(name: str, default_type: str | None = None, place: str = "") -> Thing:
    """Return a virtual host, with the default type of its queues if one is given."""
    return Thing((VIRTUAL_HOST, name), {DEFAULT_TYPE: default_type} if default_type else {}, place)


def typed(thing: Thing, default_type: object) -> Thing:
    """Return a queue with the default type, if it names none and that type suits it; anything else as it is."""
    settings = thing.settings
    suits = settings.get("durable") and not settings.get("auto_delete")
    if thing.kind != QUEUE or default_type in (None, "classic") or not suits or names_type(thing):
        return thing
    given = settings.get("arguments")
    arguments = {**(given if isinstance(given, Mapping) else {}), "x-queue-type": default_type}
    return attrs.evolve(thing, settings={**settings, "arguments": arguments})


def names_type(queue: Thing) -> bool:
    """Return whether a queue's arguments name a type."""
    arguments = queue.settings.get("arguments")
    return isinstance(arguments, Mapping) and "x-queue-type" in arguments


def meaning(thing: Thing) -> Settings:
    """Return the settings to compare: a queue without a type is the same as a classic one."""
    arguments = thing.settings.get("arguments")
    if (
        thing.kind != QUEUE
        or not isinstance(arguments, Mapping)
        or arguments.get("x-queue-type") != "classic"
    ):
        return thing.settings
    kept = {name: value for name, value in arguments.items() if name != "x-queue-type"}
    return {**thing.settings, "arguments": kept}


def binding(
    host: str, source: str, kind: str, destination: str, key: str, arguments: Settings, place: str = ""
) -> Thing:
    told = canonical(arguments)
    return Thing((BINDING, host, source, kind, destination, key, told), {"arguments": arguments}, place)


def queue(
    host: str,
    name: str,
    arguments: Settings,
    kind: str | None = None,
    durable: bool = True,
    auto_delete: bool = False,
    place: str = "",
) -> Thing:
    """Return a queue. Its type is among the arguments, unless it is the default."""
    kept = {**({"x-queue-type": kind} if kind else {}), **arguments}
    if kept.get("x-queue-type") == "default":
        del kept["x-queue-type"]
    settings = {"durable": durable, "auto_delete": auto_delete, "arguments": kept}
    return Thing((QUEUE, host, name), settings, place)


def canonical(value: object) -> str:
    """Return the same text for equal JSON, also if a whole number was written as a fraction."""
    return json.dumps(_whole(value), sort_keys=True)


def _whole(value: object) -> object:
    if isinstance(value, Mapping):
        return {name: _whole(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_whole(each) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
