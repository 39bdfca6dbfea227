"""Encode durable objects as text, and decode them: the key of each in the store, and its record.

    ["queue","/","orders"]    {"number":7,"auto_delete":false,"arguments":{"x-max-length":5}}

A key is the object's kind and its names, a value its record; `null` marks a default object that was deleted. Unknown
fields of a record are skipped: they come from a later version. Passwords are kept as their salted hashes only.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Final, TypeAlias

from leveret.durable.store.typed_json import Unreadable, read_table, read_text, written_text
from leveret.values import Json, Table

Names: TypeAlias = tuple[str, ...]

NUMBER_MAX: Final = (1 << 32) - 1  # the largest that fits in a chunk

# Kinds and names, besides those in catalogue.py.
LAST_NUMBER: Final = "last-number"  # of the queues': no number is used twice
PROTOCOL: Final = "protocol"  # name: one that does not come with Leveret, and that messages may be of
UNREADABLE: Final = "unreadable"  # key, checksum of its value: set aside because another object has its name


def key_of(*names: str) -> str:
    """Return the key of an object: its kind, then its names."""
    return text_of([written_text(name) for name in names])


def names_in(key: str) -> Names:
    """Return the kind and the names in a key. Raises Unreadable."""
    names = json_in(key)
    if not isinstance(names, list) or not names:
        raise Unreadable("the key is no list of names")
    return tuple(read_text(name) for name in names)


def text_of(json_: Json) -> str:
    """Return JSON on one line, in ASCII."""
    return json.dumps(json_, separators=(",", ":"))


def json_in(text: str) -> Json:
    """Parse JSON. Raises Unreadable."""
    try:
        loaded: Json = json.loads(text)
    except (ValueError, RecursionError):
        raise Unreadable("it is not JSON") from None
    return loaded


class ObjectRecord:
    """The stored record of an object, with a method for each type of field. All of them may raise Unreadable."""

    __slots__ = ("_said",)

    def __init__(self, value: Json) -> None:
        if not isinstance(value, dict):
            raise Unreadable("it is no record")
        self._said: dict[str, Json] = value

    def has(self, name: str) -> bool:
        return name in self._said

    def json(self, name: str) -> Json:
        if name not in self._said:
            raise Unreadable(f"'{name}' is missing")
        return self._said[name]

    def text(self, name: str) -> str:
        return read_text(self.json(name))

    def optional_text(self, name: str) -> str | None:
        return None if self.json(name) is None else self.text(name)

    def texts(self, name: str) -> list[str]:
        value = self.json(name)
        if isinstance(value, str) or not isinstance(value, Sequence):
            raise Unreadable(f"'{name}' is no list")
        return [read_text(each) for each in value]

    def table(self, name: str) -> Table:
        return read_table(self.json(name))

    def flag(self, name: str, otherwise: bool | None = None) -> bool:
        """Return a boolean field; `otherwise` is its value if an earlier version has not written it."""
        value = self.json(name) if otherwise is None else self._said.get(name, otherwise)
        if not isinstance(value, bool):
            raise Unreadable(f"'{name}' is neither true nor false")
        return value

    def whole(self, name: str) -> int:
        value = self.json(name)
        if isinstance(value, bool) or not isinstance(value, int):
            raise Unreadable(f"'{name}' is no whole number")
        return value

    def optional_whole(self, name: str) -> int | None:
        return None if self.json(name) is None else self.whole(name)

    def number(self, name: str, least: int) -> int:
        """Return the number under which an object keeps messages in the store; 0 if it keeps none."""
        number = self.whole(name)
        if not least <= number <= NUMBER_MAX:
            raise Unreadable(f"'{name}' is out of range")
        return number
