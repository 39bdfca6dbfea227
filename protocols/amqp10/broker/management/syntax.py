"""The syntax of management requests: paths, queries, names, locations of bindings, fields of bodies. Pure functions.

Malformed input raises Refused, with the status and the text of the answer.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64encode
from collections.abc import Mapping
from hashlib import sha256
from typing import Final
from urllib.parse import parse_qsl, unquote_to_bytes

import attrs

from leveret import values
from leveret.exchanges.exchange_type import Binding
from leveret.protocols.amqp10.broker.addresses import NAME_SIZE_MAX, encoded
from leveret.protocols.amqp10.broker.core_values import neutral, printed, wire
from leveret.protocols.amqp10.codec.types import Value, encode

URI_SIZE_MAX: Final = 8192
SHOWN_MAX: Final = 500  # characters of the peer's input, in a refusal

URI: Final = re.compile(r"(?:[A-Za-z0-9\-._~!$&'()*+,;=:@/?]|%[0-9A-Fa-f]{2})*")
LOCATION: Final = re.compile(
    r"src=([0-9A-Za-z\-._~%]+);dst([eq])=([0-9A-Za-z\-._~%]+);key=([0-9A-Za-z\-._~%]*);args=([0-9A-Za-z\-_]*)"
)


@attrs.frozen
class Response:
    """An answer. The body of a refusal is a text."""

    status: int
    body: Value = None


class Refused(Exception):  # noqa: N818 - an answer as good as any other
    """Raised for a status that is not success, with its text."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.response = Response(status, why)


def split(target: str) -> tuple[list[str], dict[str, str]]:
    """Split a target into the segments of its path, still encoded, and its query (X085)."""
    if len(target) > URI_SIZE_MAX:
        raise Refused(400, f"the URI has more than {URI_SIZE_MAX} characters")
    path, _, query = target.partition("?")
    if not path.startswith("/") or URI.fullmatch(target) is None:
        raise Refused(400, f"failed to normalize URI '{cut(target)}': invalid_uri \"{cut(target)}\"")
    try:
        pairs = parse_qsl(query, keep_blank_values=True, strict_parsing=query != "", errors="strict")
    except ValueError:
        raise Refused(400, f"failed to dissect query '{cut(query)}'") from None
    return path.split("/")[1:], dict(pairs)


def decoded(encoded: str) -> str:
    """Decode a percent-encoded name from a path."""
    octets = unquote_to_bytes(encoded)
    try:
        return bounded(octets.decode())
    except UnicodeDecodeError:
        raise Refused(400, f"'{cut(encoded)}' is not UTF-8") from None


def bounded(name: str) -> str:
    if len(name.encode()) > NAME_SIZE_MAX:
        raise Refused(400, f"'{cut(name)}' has more than {NAME_SIZE_MAX} octets")
    return name


def location(segment: str) -> tuple[str, str, bool, str, str]:
    """Parse a binding's location: source, destination and whether that is an exchange, key, digest of arguments."""
    match = LOCATION.fullmatch(segment)
    if match is None:
        raise Refused(400, f"bad binding path segment '{cut(segment)}'")
    source, kind, destination, key, arguments = match.groups()
    return decoded(source), decoded(destination), kind == "e", decoded(key), arguments


def location_of(binding: Binding) -> str:
    """Return the location of a binding."""
    source, destination, key = (
        encoded(name) for name in (binding.source.name, binding.end.name, binding.key)
    )
    kind = "e" if binding.end.is_exchange else "q"
    return f"/bindings/src={source};dst{kind}={destination};key={key};args={digest(binding.arguments)}"


def digest(arguments: values.Table) -> str:
    """Return a digest that tells the arguments of a binding from those of others; empty if there are none."""
    if not arguments:
        return ""
    told = repr(sorted(arguments.items(), key=lambda pair: pair[0])).encode("utf-8", "surrogatepass")
    return urlsafe_b64encode(sha256(told).digest()[:12]).decode()


def fields_of(body: Value, known: Mapping[str, tuple[type, ...]], what: str) -> dict[str, Value]:
    """Return the fields of a body, and check their names and types (X078)."""
    if not isinstance(body, dict):
        raise Refused(400, "the request needs a map as its body")
    fields: dict[str, Value] = {}
    for key, value in body.items():
        of = known.get(key) if type(key) is str else None
        if of is None or not isinstance(value, of):
            raise Refused(400, f"bad {what} {cut(f'{{{printed(key)},{printed(value)}}}')}")
        fields[str(key)] = value
    return fields


def text_of(fields: Mapping[str, Value], name: str) -> str:
    text = fields.get(name)
    if not isinstance(text, str):
        raise Refused(400, f"missing {name}")
    return bounded(text)


def arguments_of(fields: Mapping[str, Value]) -> values.Table:
    arguments = fields.get("arguments")
    if not isinstance(arguments, dict):
        return {}
    found: dict[str, values.Value] = {}
    for key, value in arguments.items():
        try:
            if not isinstance(key, str):
                raise ValueError
            found[str(key)] = neutral(value)
        except ValueError:
            why = f"unsupported argument {cut(f'{{{printed(key)},{printed(value)}}}')}"
            raise Refused(400, why) from None
    return found


def shown(arguments: values.Table) -> dict[str, Value]:
    """Return arguments as a body shows them, without values that AMQP 1.0 cannot express."""
    shown: dict[str, Value] = {}
    for name, value in arguments.items():
        try:
            encode(name)
            shown[name] = wire(value)
        except ValueError:
            continue
    return shown


def shown_binding(binding: Binding) -> dict[str, Value]:
    destination = binding.end
    return {
        "source": binding.source.name,
        f"destination_{destination.kind}": destination.name,
        "binding_key": binding.key,
        "arguments": shown(binding.arguments),
        "location": location_of(binding),
    }


def cut(text: str) -> str:
    return text[:SHOWN_MAX]
