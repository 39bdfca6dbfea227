"""Names for the items of a definitions file, so that a problem says whose it is, not only where it stands.

users[1].password_hash: found ...    becomes    user 'shop' (users[1].password_hash): found ...
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Final

import attrs

from leveret.arguments.names import shown
from leveret.config.types import Problem

KINDS: Final = {
    "users": "user",
    "vhosts": "vhost",
    "permissions": "permissions of user",
    "topic_permissions": "topic permissions of user",
    "parameters": "parameter",
    "global_parameters": "global parameter",
    "policies": "policy",
    "queues": "queue",
    "exchanges": "exchange",
    "bindings": "binding from exchange",
}
NAMED_BY: Final = {"permissions": "user", "topic_permissions": "user", "bindings": "source"}
ITEM: Final = re.compile(r"(\w+)\[(\d+)\]")
PLACED: Final = re.compile(r"(?:^| \()(\w+)\[\d+\][^ ]*$")

Get = Callable[[str], object]  # the value of a key of an item


def label(section: str, get: Get) -> str:
    """Return a name for an item: `queue 'q' in vhost '/'`; empty if it has none."""
    name, host = get(NAMED_BY.get(section, "name")), get("vhost")
    if section not in KINDS or not isinstance(name, str):
        return ""
    more = f" to '{shown(str(get('destination')))}'" if section == "bindings" else ""
    within = f" in vhost '{shown(host)}'" if isinstance(host, str) else ""
    return f"{KINDS[section]} '{shown(name)}'{more}{within}"


def of_record(section: str, item: object) -> str:
    """Return the name of a record."""
    return label(section, lambda key: getattr(item, key, None))


def placed(name: str, where: str) -> str:
    """Return a place in a file with the name of what is there."""
    return f"{name} ({where})" if name else where


def section_of(problem: Problem) -> str:
    """Return the section of a file that a problem is in; empty if it is in none."""
    match = PLACED.search(problem.where)
    return match[1] if match else ""


def named(problems: Iterable[Problem], content: object) -> Iterator[Problem]:
    """Yield problems of parsed JSON with the names of the items that they are in."""
    for each in problems:
        match = ITEM.match(each.where)
        item = _item(content, match[1], int(match[2])) if match else None
        name = label(match[1], item.get) if match and isinstance(item, Mapping) else ""
        yield attrs.evolve(each, where=placed(name, each.where))


def _item(content: object, section: str, index: int) -> object:
    items = content.get(section) if isinstance(content, Mapping) else None
    return items[index] if isinstance(items, list) and index < len(items) else None
