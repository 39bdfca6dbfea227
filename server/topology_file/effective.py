"""An index of a topology for rules: effective settings, existence of objects, and the paths of bindings."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from typing import Final

from leveret.selectors import pcre_translation
from leveret.selectors.pcre_translation import ExpressionError
from leveret.server.topology_file.model import (
    BINDING,
    EXCHANGE,
    OPERATOR_POLICY,
    POLICY,
    QUEUE,
    Thing,
    Topology,
)

ALTERNATE: Final = "alternate-exchange"
DEAD_LETTER: Final = "dead-letter-exchange"
DEAD_LETTER_KEY: Final = "dead-letter-routing-key"

KIND_OF_QUEUE: Final = {"classic_queues": "classic", "quorum_queues": "quorum", "streams": "stream"}


class EffectiveTopology:
    """A topology, indexed once."""

    def __init__(self, topology: Topology) -> None:
        self.topology = topology
        self._from: dict[tuple[str, str], list[Thing]] = defaultdict(list)
        for each in topology.of(BINDING):
            self._from[each.host, each.key[2]].append(each)
        self._policies = [
            (each, pattern)
            for each in sorted(topology.of(POLICY, OPERATOR_POLICY), key=_rank)
            if (pattern := compiled(each.settings.get("pattern"))) is not None
        ]

    def is_there(self, kind: str, host: str, name: str) -> bool:
        """Return whether the topology has an object, or every broker does."""
        return (kind, host, name) in self.topology.things or (
            kind == EXCHANGE and (not name or name.startswith("amq."))
        )

    def bindings_of(self, host: str, exchange: str) -> list[Thing]:
        return self._from.get((host, exchange), [])

    def setting(self, thing: Thing, name: str) -> object:
        """Return the effective setting: the object's own argument, else that of the matching policy."""
        arguments = thing.settings.get("arguments")
        if isinstance(arguments, Mapping):
            for written in (name, f"x-{name}"):
                if written in arguments:
                    return arguments[written]
        for kind in (OPERATOR_POLICY, POLICY):
            policy = self._policy(kind, thing)
            definition = policy.settings.get("definition") if policy is not None else None
            if isinstance(definition, Mapping) and name in definition:
                return definition[name]
        return None

    def _policy(self, kind: str, thing: Thing) -> Thing | None:
        for policy, pattern in self._policies:
            if policy.kind == kind and policy.host == thing.host and for_kind(policy, thing):
                if pattern.search(thing.name):
                    return policy
        return None

    def type_of(self, host: str, exchange: str) -> str:
        """Return the type of an exchange, or the name of one that every broker has without `amq.`."""
        thing = self.topology.things.get((EXCHANGE, host, exchange))
        return exchange.removeprefix("amq.") if thing is None else str(thing.settings.get("type"))

    def alternate(self, host: str, exchange: str) -> str | None:
        thing = self.topology.things.get((EXCHANGE, host, exchange))
        name = None if thing is None else self.setting(thing, ALTERNATE)
        return None if name is None else str(name)

    def led_to(self, host: str, exchange: str, key: str | None) -> set[str]:
        """Return the queues that a message may reach; `key` None: its routing key is unknown."""
        queues: set[str] = set()
        left, visited = [exchange], {exchange}
        while left:
            source = left.pop()
            for each in self.bindings_of(host, source):
                if key is not None and not self._may_match(each, key):
                    continue
                _, _, _, kind, destination, *_ = each.key
                if kind == QUEUE:
                    queues.add(destination)
                elif destination not in visited:
                    visited.add(destination)
                    left.append(destination)
        return queues

    def _may_match(self, binding: Thing, key: str) -> bool:
        """Return whether a binding may match: exact for direct and topic exchanges, true for all others."""
        name, bound = binding.key[2], binding.key[5]
        kind = self.type_of(binding.host, name)
        if kind == "direct":
            return key == bound
        return kind != "topic" or topic_matches(bound, key)


def topic_matches(bound: str, key: str) -> bool:
    """Return whether a binding key with `*` (one word) and `#` (any number) matches a routing key."""
    reached = {0}  # numbers of words that may be matched so far
    words = key.split(".") if key else []
    for part in bound.split(".") if bound else []:
        if part == "#":
            reached = set(range(min(reached), len(words) + 1))
        else:
            reached = {at + 1 for at in reached if at < len(words) and part in ("*", words[at])}
        if not reached:
            return False
    return len(words) in reached


def compiled(pattern: object) -> re.Pattern[str] | None:
    """Compile a pattern; None if it is not a regular expression."""
    try:
        return pcre_translation.compiled(str(pattern))
    except ExpressionError:
        return None


def for_kind(policy: Thing, thing: Thing) -> bool:
    """Return whether a policy applies to objects of this kind."""
    to = policy.settings.get("apply-to", "all")
    if to == "all" or to == f"{thing.kind}s":
        return True
    arguments = thing.settings.get("arguments")
    kind = arguments.get("x-queue-type", "classic") if isinstance(arguments, Mapping) else "classic"
    return thing.kind == QUEUE and KIND_OF_QUEUE.get(str(to)) == kind


def _rank(policy: Thing) -> tuple[float, str]:
    priority = policy.settings.get("priority")
    return -(priority if isinstance(priority, int | float) else 0), policy.name
