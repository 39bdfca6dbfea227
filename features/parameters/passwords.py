"""Passwords in the URIs of parameters, which are shown with a mark in their place."""

from __future__ import annotations

from collections.abc import Mapping

from leveret.config.amqp_uri import hidden, is_hidden
from leveret.errors import PreconditionFailed
from leveret.values import Json


def without_passwords(value: Mapping[str, Json]) -> dict[str, Json]:
    """Return the value of a parameter with a mark in place of each password."""
    return {name: _hidden(item) if is_address(name) else item for name, item in value.items()}


def is_address(key: str) -> bool:
    """Return whether a key of a parameter has a URI, or a list of them."""
    return key == "uri" or key.endswith("-uri")


def _hidden(item: Json) -> Json:
    if isinstance(item, str):
        return hidden(item)
    return [_hidden(each) for each in item] if isinstance(item, list | tuple) else item


def with_passwords(value: Mapping[str, Json], before: Mapping[str, Json]) -> dict[str, Json]:
    """Return the value of a parameter with the passwords of the one it replaces, where it has the mark.

    So what was read can be changed and written again. Raises PreconditionFailed for a mark of an unknown URI.
    """
    known = {hidden(text): text for key, item in before.items() if is_address(key) for text in _texts(item)}
    return {name: _known_again(item, known) if is_address(name) else item for name, item in value.items()}


def _texts(item: Json) -> list[str]:
    return [each for each in (item if isinstance(item, list | tuple) else [item]) if isinstance(each, str)]


def _known_again(item: Json, known: Mapping[str, str]) -> Json:
    if isinstance(item, list | tuple):
        return [_known_again(each, known) for each in item]
    if not isinstance(item, str) or not is_hidden(item):
        return item
    if item not in known:
        raise PreconditionFailed(f"the password of the URI '{item[:200]}' is missing")
    return known[item]
