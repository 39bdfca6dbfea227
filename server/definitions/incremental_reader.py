"""Reads definitions as `reader.py` does, item by item, so that the loop can serve others in between.

    text ──parsed──> JSON ──records──> Definitions       both yield after each item of a list at the top level

An item is a queue or a user, and small; one huge item is read without a pause.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Final, TypeVar

from leveret.config.config import ConfigError
from leveret.config.records import RecordOf, keys_of
from leveret.config.types import REFUSED, Kind, ListOf, Place, Problem
from leveret.server.definitions.labels import named
from leveret.server.definitions.reader import Definitions, require_virtual_hosts

T = TypeVar("T")
Steps = Generator[None, None, T]

SPACE: Final = re.compile(r"[ \t\n\r]*")
DECODER: Final = json.JSONDecoder()
MADE: Final[Callable[..., Definitions]] = Definitions
WHOLE: Final = RecordOf(Definitions)
ITEMS: Final[Mapping[str, Kind[object]]] = {
    name: known.kind.item for name, known in keys_of(Definitions).items() if isinstance(known.kind, ListOf)
}


def parsed(text: str) -> Steps[object]:
    """Return what `json.loads` returns. Raises ValueError or RecursionError if the text is not JSON."""
    at = after_space(text, 0)
    if text[at : at + 1] != "{":
        found: object = json.loads(text)
        return found
    table: dict[str, object] = {}
    at = after_space(text, at + 1)
    if text[at : at + 1] == "}":
        at = at + 1
    else:
        at = yield from _members(text, at, table)
    if after_space(text, at) != len(text):
        raise ValueError("there is more behind the end")
    return table


def _members(text: str, at: int, table: dict[str, object]) -> Steps[int]:
    """Read the members of the table, and return the position after its end."""
    while True:
        name, at = value_at(text, at)
        if not isinstance(name, str):
            raise ValueError("a name is not a string")
        at = after_space(text, expected(text, at, ":"))
        if text[at : at + 1] == "[":
            table[name], at = yield from _list(text, after_space(text, at + 1))
        else:
            table[name], at = value_at(text, at)
            yield
        if is_end(text, at, "}"):
            return after_space(text, at) + 1
        at = after_space(text, expected(text, at, ","))


def _list(text: str, at: int) -> Steps[tuple[list[object], int]]:
    """Read the items of a list, and return them with the position after its end."""
    items: list[object] = []
    if is_end(text, at, "]"):
        return items, at + 1
    while True:
        item, at = value_at(text, at)
        items.append(item)
        yield
        if is_end(text, at, "]"):
            return items, after_space(text, at) + 1
        at = after_space(text, expected(text, at, ","))


def value_at(text: str, at: int) -> tuple[object, int]:
    """Return the value at a position, and the position after it."""
    found: tuple[object, int] = DECODER.raw_decode(text, at)
    return found


def after_space(text: str, at: int) -> int:
    space = SPACE.match(text, at)
    assert space is not None
    return space.end()


def is_end(text: str, at: int, sign: str) -> bool:
    return text.startswith(sign, after_space(text, at))


def expected(text: str, at: int, sign: str) -> int:
    """Return the position after a required sign. Raises ValueError if it is missing."""
    at = after_space(text, at)
    if not text.startswith(sign, at):
        raise ValueError(f"expected '{sign}' at {at}")
    return at + 1


def records(content: object, problems: list[Problem] | None = None) -> Steps[Definitions]:
    """Return what `read_content` returns. Raises ConfigError with every problem.

    With a list for `problems`, items with problems are left out instead, and the problems go to the list. The content
    is then still to be an object, and not the file of one virtual host.
    """
    place = Place([])
    sections: dict[str, object] = {}
    others: dict[str, object] = {}
    if not isinstance(content, Mapping):
        WHOLE.read(content, place)
        raise ConfigError(place.problems)
    require_virtual_hosts(content)
    for name, value in content.items():
        kind = ITEMS.get(name)
        if kind is None or not isinstance(value, list):
            if name not in ITEMS:
                others[str(name)] = value
            WHOLE.read({name: value}, place)  # reports the problems
            continue
        sections[name] = yield from _items(kind, value, place.at(name))
    found = list(named(place.problems, content))
    if found and problems is None:
        raise ConfigError(found)
    if problems is not None:
        problems += found
    return MADE(**sections, others=others)  # the sections have the names of the fields


def _items(kind: Kind[object], values: Sequence[object], place: Place) -> Steps[tuple[object, ...]]:
    found = []
    for index, value in enumerate(values):
        before = len(place.problems)
        item = kind.read(value, place.item(index))
        if item is not REFUSED and len(place.problems) == before:
            found.append(item)
        yield
    return tuple(found)
