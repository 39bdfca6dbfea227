"""What a request's body says: JSON to values of the kinds that a route wants. What is wrong is said as RabbitMQ does.

Sizes are bounded before anything is read: a body has no more octets than the connection allows for its route.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Final, TypeAlias

from broker_core.operations import Json
from broker_core.values import Value
from protocols.http.server.request import Asked, Refused

Said: TypeAlias = Mapping[str, object]
"""A JSON object, as it came."""

NUMBER_MAX: Final = (1 << 63) - 1
DEPTH_MAX: Final = 64  # of tables and lists in one another
VALUES_MAX: Final = 50_000  # of a body: half a million would take a tenth of a second
STRINGS: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)


def bad(reason: Json) -> Refused:
    """400. RabbitMQ says some reasons as lists: the kind of mistake, then what was given."""
    return Refused(HTTPStatus.BAD_REQUEST, str(reason), {"reason": reason})


def body_of(asked: Asked, *needed: str) -> Said:
    """The body as a JSON object that has these keys; without a body, an empty one. Raises Refused."""
    return object_in(asked.body, *needed)


def object_in(body: bytes, *needed: str) -> Said:
    """As `body_of`."""
    require_few_values(body)
    try:
        said: object = json.loads(body) if body.strip() else {}
    except (ValueError, RecursionError):
        raise bad("not_json") from None
    if not isinstance(said, dict):
        raise bad("not_json")
    require_keys(said, *needed)
    return said


def require_few_values(body: bytes) -> None:
    """Each value but the first is behind a bracket or a comma. Raises Refused."""
    if brackets_and_commas(body) > VALUES_MAX and brackets_and_commas(STRINGS.sub(b"", body)) > VALUES_MAX:
        raise bad("too_many_values")


def brackets_and_commas(body: bytes) -> int:
    return sum(map(body.count, b"[{,"))


def require_keys(said: Said, *needed: str) -> None:
    """Raises Refused."""
    missing = [name for name in sorted(needed) if name not in said]
    if missing:
        raise bad("[" + ",".join(f"{{key_missing,{name}}}" for name in missing) + "]")


def text_in(said: Said, name: str, otherwise: str | None = None) -> str:
    """Raises Refused."""
    value = said.get(name)
    if value is None and otherwise is not None:
        return otherwise
    if not isinstance(value, str):
        raise bad(["not_string", name])
    return storable(value)


def storable(text: str) -> str:
    """The text, if it can stand on the wire and on disk: halves of pairs cannot. Raises Refused."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise bad("not_utf8") from None
    return text


def truth_in(said: Said, name: str, otherwise: bool) -> bool:
    """`true` and `false`, also written as a text, which rabbitmqadmin does. Raises Refused."""
    value = said.get(name)
    if value is None:
        return otherwise
    if value in ("true", "false"):
        return value == "true"
    if not isinstance(value, bool):
        raise bad(["not_boolean", shown(value)])
    return value


def whole_in(said: Said, name: str, otherwise: int | None = None) -> int:
    """A whole number, also written as a text, which rabbitmqadmin does. Raises Refused."""
    value = said.get(name)
    if value is None and otherwise is not None:
        return otherwise
    if isinstance(value, str) and len(value) <= 20 and value.removeprefix("-").isdecimal():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) > NUMBER_MAX:
        raise bad(["not_integer", shown(value)])
    return value


def value_in(given: object, depth: int = 0) -> Value:
    """What JSON has, as an argument or a header. Raises Refused for what cannot go over the wire."""
    if depth > DEPTH_MAX:
        raise bad("too_deep")
    if isinstance(given, str):
        return storable(given)
    if isinstance(given, dict):
        return {storable(name): value_in(each, depth + 1) for name, each in given.items()}
    if isinstance(given, list):
        return [value_in(each, depth + 1) for each in given]
    if isinstance(given, int) and not isinstance(given, bool) and abs(given) > NUMBER_MAX:
        raise bad(["not_integer", shown(given)])
    if given is None or isinstance(given, bool | int | float):
        return given
    raise bad("not_json")


def table_in(said: Said, name: str) -> dict[str, Value]:
    """A table; absent, or an empty list, which some clients write for it, is an empty one. Raises Refused."""
    value = said.get(name)
    if value is None or value == []:
        return {}
    if not isinstance(value, dict):
        raise bad(["not_map", name])
    return {storable(key): value_in(each) for key, each in value.items()}


def words_in(said: Said, name: str) -> tuple[str, ...]:
    """A list of texts, or one text with commas between them. Raises Refused."""
    value = said.get(name)
    listed: object = value.split(",") if isinstance(value, str) else value
    if listed is None:
        return ()
    if not isinstance(listed, Sequence) or not all(isinstance(each, str) for each in listed):
        raise bad(["not_list_of_strings", name])
    return tuple(word for each in listed if (word := storable(str(each)).strip()))


def shown(value: object) -> str:
    """What was given, in short."""
    return str(value)[:80]
