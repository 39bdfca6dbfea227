"""Read values of the kinds that a route wants from a JSON body. Errors are worded as RabbitMQ's.

Sizes are bounded before anything is read: a body has no more bytes than the connection allows for its route.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Final, TypeAlias

from leveret.protocols.http.server.request import Refused, Request
from leveret.values import Json, Value

JsonObject: TypeAlias = Mapping[str, object]
"""A JSON object, as parsed."""

NUMBER_MAX: Final = (1 << 63) - 1
DEPTH_MAX: Final = 64  # levels of nested tables and lists
VALUES_MAX: Final = 50_000  # in a body: half a million would take a tenth of a second
STRINGS: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)


def bad(reason: Json) -> Refused:
    """Return a refusal with 400. Some of RabbitMQ's reasons are lists: the kind of error, then the value."""
    return Refused(HTTPStatus.BAD_REQUEST, str(reason), {"reason": reason})


def body_of(request: Request, *needed: str) -> JsonObject:
    """Return the body as a JSON object that has these keys; an absent body is an empty object. Raises Refused."""
    return object_in(request.body, *needed)


def object_in(body: bytes, *needed: str) -> JsonObject:
    """Return the JSON object in some bytes, like `body_of`. Raises Refused."""
    require_few_values(body)
    try:
        content: object = json.loads(body) if body.strip() else {}
    except (ValueError, RecursionError):
        raise bad("not_json") from None
    if not isinstance(content, dict):
        raise bad("not_json")
    require_keys(content, *needed)
    return content


def require_few_values(body: bytes) -> None:
    """Limit the number of values by counting brackets and commas, before parsing. Raises Refused."""
    if brackets_and_commas(body) > VALUES_MAX and brackets_and_commas(STRINGS.sub(b"", body)) > VALUES_MAX:
        raise bad("too_many_values")


def brackets_and_commas(body: bytes) -> int:
    return sum(map(body.count, b"[{,"))


def require_keys(body: JsonObject, *needed: str) -> None:
    """Check that the object has these keys. Raises Refused."""
    missing = [name for name in sorted(needed) if name not in body]
    if missing:
        raise bad("[" + ",".join(f"{{key_missing,{name}}}" for name in missing) + "]")


def text_in(body: JsonObject, name: str, otherwise: str | None = None) -> str:
    """Return a text; `otherwise` if it is absent. Raises Refused if it is not a text."""
    value = body.get(name)
    if value is None and otherwise is not None:
        return otherwise
    if not isinstance(value, str):
        raise bad(["not_string", name])
    return storable(value)


def storable(text: str) -> str:
    """Return a text that can be encoded for wire and disk. Raises Refused if it has a lone surrogate."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise bad("not_utf8") from None
    return text


def truth_in(body: JsonObject, name: str, otherwise: bool) -> bool:
    """Return a boolean, which may be written as a text, as rabbitmqadmin does. Raises Refused."""
    value = body.get(name)
    if value is None:
        return otherwise
    if value in ("true", "false"):
        return value == "true"
    if not isinstance(value, bool):
        raise bad(["not_boolean", shown(value)])
    return value


def whole_in(body: JsonObject, name: str, otherwise: int | None = None) -> int:
    """Return a whole number, which may be written as a text, as rabbitmqadmin does. Raises Refused."""
    value = body.get(name)
    if value is None and otherwise is not None:
        return otherwise
    if isinstance(value, str) and len(value) <= 20 and value.removeprefix("-").isdecimal():
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) > NUMBER_MAX:
        raise bad(["not_integer", shown(value)])
    return value


def value_in(given: object, depth: int = 0) -> Value:
    """Return a JSON value as an argument or a header. Raises Refused if it cannot go over the wire."""
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


def table_in(body: JsonObject, name: str) -> dict[str, Value]:
    """Return a table; absent, or an empty list, which some clients send, is an empty table. Raises Refused."""
    value = body.get(name)
    if value is None or value == []:
        return {}
    if not isinstance(value, dict):
        raise bad(["not_map", name])
    return {storable(key): value_in(each) for key, each in value.items()}


def words_in(body: JsonObject, name: str) -> tuple[str, ...]:
    """Return a list of words, which may be written as one text with commas between them. Raises Refused."""
    value = body.get(name)
    listed: object = value.split(",") if isinstance(value, str) else value
    if listed is None:
        return ()
    if not isinstance(listed, Sequence) or not all(isinstance(each, str) for each in listed):
        raise bad(["not_list_of_strings", name])
    return tuple(word for each in listed if (word := storable(str(each)).strip()))


def shown(value: object) -> str:
    """Return the start of a value for an error message."""
    return str(value)[:80]
