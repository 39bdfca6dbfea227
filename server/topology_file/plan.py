"""Plans the changes that make a node match a file.

The changes are in an order in which they can be made. Queues and exchanges cannot be changed: those that differ are
replaced (deleted and declared again, with their bindings), and a queue loses its messages; so replacements are marked.
Objects are deleted only if the file manages their names; a binding belongs to its destination.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Final

import attrs

from leveret.catalogue import COMPONENTS, SHOVEL, UPSTREAM, UPSTREAM_SET
from leveret.selectors.pcre_translation import compiled
from leveret.server.topology_file.model import (
    BINDING,
    DEFAULT_TYPE,
    EXCHANGE,
    KINDS,
    OPERATOR_POLICY,
    POLICY,
    QUEUE,
    VIRTUAL_HOST,
    Key,
    Settings,
    Thing,
    Topology,
    canonical,
    meaning,
    typed,
)

CREATE: Final = "create"
CHANGE: Final = "change"
REPLACE: Final = "replace"
DELETE: Final = "delete"

# The kinds that may be deleted, in this order: what refers to others before these.
PRUNED: Final = (SHOVEL, UPSTREAM_SET, UPSTREAM, BINDING, QUEUE, EXCHANGE, POLICY, OPERATOR_POLICY)


@attrs.frozen
class Change:
    """One step: the object as it is to be (of `delete`: as it is), and as it was before."""

    action: str
    thing: Thing
    before: Thing | None = None

    @property
    def differences(self) -> list[str]:
        """The settings that differ: `durable: true -> false`. Passwords in URIs are not shown."""
        if self.before is None:
            return []
        was, to_be = _settings(self.before.settings), _settings(self.thing.settings)
        was_shown, shown = _settings(self.before.shown), _settings(self.thing.shown)
        return [
            f"{name}: {canonical(was_shown.get(name))} -> {canonical(shown.get(name))}"
            for name in (to_be | was if self.thing.kind in COMPONENTS else to_be)
            if canonical(was.get(name)) != canonical(to_be.get(name))
        ]


def _settings(settings: Settings) -> dict[str, object]:
    """Return settings by name: of the parameter of a shovel or an upstream, those in its value."""
    value = settings.get("value")
    return dict(value) if isinstance(value, Mapping) else dict(settings)


def plan(wanted: Topology, live: Topology, prune: bool = False) -> list[Change]:
    """Return the changes that turn `live` into `wanted`."""
    declared = list(_declared(wanted, live))
    deleted = list(_deleted(wanted, live)) if prune else []
    replaced = {each.thing.key for each in declared if each.action == REPLACE}
    gone = {each.thing.key for each in deleted}
    again = [
        Change(CREATE, each) for each in live.of(BINDING) if ends(each) & replaced and each.key not in gone
    ]
    return [*declared, *again, *deleted]


def _declared(wanted: Topology, live: Topology) -> Iterator[Change]:
    for kind in KINDS:
        for thing in wanted.of(kind):
            before = live.things.get(thing.key)
            if before is None:
                yield Change(CREATE, thing)
            elif canonical(_compared(before, thing)) != canonical(meaning(_asked(thing, before, live))):
                yield Change(REPLACE if kind in (QUEUE, EXCHANGE) else CHANGE, thing, before)


def _compared(before: Thing, thing: Thing) -> Settings:
    """Return the settings of an object that a file has a say in: of a virtual host, those that it names."""
    if thing.kind != VIRTUAL_HOST:
        return meaning(before)
    return {name: before.settings.get(name) for name in thing.settings}


def _asked(thing: Thing, before: Thing, live: Topology) -> Thing:
    """Return an object of the file, with what it leaves to the node.

    A queue without a type has the node's default if the existing one has got it; a URI with a mark for its password has
    the existing one's password.
    """
    if thing.kind in COMPONENTS:
        return _with_passwords(thing, before)
    host = live.things.get((VIRTUAL_HOST, thing.host))
    default = None if host is None else host.settings.get(DEFAULT_TYPE)
    arguments = before.settings.get("arguments")
    is_of_it = isinstance(arguments, Mapping) and arguments.get("x-queue-type") == default
    return typed(thing, default) if is_of_it else thing


def _with_passwords(thing: Thing, before: Thing) -> Thing:
    value, existing = thing.settings.get("value"), before.settings.get("value")
    if not isinstance(value, Mapping) or not isinstance(existing, Mapping):
        return thing
    from leveret.errors import PreconditionFailed
    from leveret.features.parameters.passwords import with_passwords

    try:
        return attrs.evolve(thing, settings={**thing.settings, "value": with_passwords(value, existing)})
    except PreconditionFailed:  # the URI is another: the node will say that its password is missing
        return thing


def _deleted(wanted: Topology, live: Topology) -> Iterator[Change]:
    patterns = {host: compiled(pattern) for host, pattern in wanted.managed.items()}
    for kind in PRUNED:
        if kind in COMPONENTS and not wanted.has_parameters:
            continue
        for thing in live.of(kind):
            if thing.key not in wanted.things and is_managed(thing, patterns):
                yield Change(DELETE, thing, thing)


def is_managed(thing: Thing, patterns: Mapping[str, re.Pattern[str]]) -> bool:
    """Return whether the file manages an object; never an auto-delete one, or one whose name begins with `amq.`."""
    pattern = patterns.get(thing.host)
    if pattern is None or thing.name.startswith("amq.") or thing.settings.get("auto_delete"):
        return False
    return pattern.search(thing.name) is not None


def ends(binding: Thing) -> set[Key]:
    """Return the source of a binding and its destination."""
    _, host, source, kind, destination, *_ = binding.key
    return {(EXCHANGE, host, source), (kind, host, destination)}
