"""`x-json-schema`: an interceptor that lets only such messages into an exchange whose bodies fit a JSON Schema.

    [[interceptors]]
    name = "x-json-schema"
    exchange = "orders"                    # its name, or with patterns: "orders.*"; without it every exchange
    schema = "/etc/leveret/order.json"     # a file, or the schema itself as a table

Needs the extra `schema`. Source: JSON Schema 2020-12 and the earlier drafts that a schema may name in `$schema`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Final

from leveret.errors import PreconditionFailed
from leveret.interceptors.contract import Interceptor
from leveret.values import Table

if TYPE_CHECKING:
    from jsonschema_rs import Validator

    from leveret.exchanges.exchange_type import Exchange
    from leveret.message import Message

OPTIONS: Final = ("exchange", "virtual_host", "keys", "schema", "size_max")
SIZE_MAX: Final = 1 << 20  # bytes of a body that is looked at: it is parsed while nothing else runs
TEXT_MAX: Final = 300  # characters of what a publisher is told


class JsonSchema(Interceptor):
    """Refuses messages whose bodies are no JSON, or do not fit the schema; bodies over `size_max` bytes, too.

    `exchange`, `virtual_host` and `keys` are shell patterns for the messages that it is about. Those of other protocols
    than 0-9-1 are read as their consumers over 0-9-1 would get them.
    """

    name = "x-json-schema"

    def __init__(self, options: Table, node: str) -> None:
        for option in options:
            if option not in OPTIONS:
                raise ValueError(f"'{option}' is no option of '{self.name}'; there are {', '.join(OPTIONS)}")
        self._exchange = pattern(options, "exchange")
        self._virtual_host = pattern(options, "virtual_host")
        self._keys = pattern(options, "keys")
        size_max = options.get("size_max", SIZE_MAX)
        if not isinstance(size_max, int) or isinstance(size_max, bool) or size_max < 1:
            raise ValueError("`size_max` is a number of bytes")
        self._size_max = size_max
        self._validator = validator(schema_in(options))

    def incoming(self, message: Message, exchange: Exchange, now: float) -> Message:
        if not (
            fnmatchcase(exchange.name, self._exchange)
            and fnmatchcase(exchange.virtual_host.name, self._virtual_host)
            and fnmatchcase(message.key, self._keys)
        ):
            return message
        if message.size > self._size_max:
            raise PreconditionFailed(
                f"the body has {message.size} bytes, of which {self._size_max} are looked at"
            )
        try:
            document = json.loads(message.encoding.octets(message.body))
        except (ValueError, RecursionError):
            raise PreconditionFailed("the body is no JSON") from None
        for error in self._validator.iter_errors(document):
            where = "".join(f"/{step}" for step in error.instance_path) or "the body"
            raise PreconditionFailed(f"{where}: {error.message}"[:TEXT_MAX])
        return message


def pattern(options: Table, name: str) -> str:
    """Return a pattern; one that fits everything if there is none. Raises ValueError."""
    found = options.get(name, "*")
    if not isinstance(found, str):
        raise ValueError(f"`{name}` is a name, in which * stands for any text")
    return found


def schema_in(options: Table) -> str:
    """Return the schema that the options have, or name the file of, as JSON. Raises ValueError."""
    given = options.get("schema")
    if isinstance(given, str):
        try:
            return Path(given).read_text("utf-8")
        except OSError as failure:
            raise ValueError(f"`schema`: {given}: {failure.strerror}") from None
        except UnicodeError:
            raise ValueError(f"`schema`: {given} is no UTF-8") from None
    if isinstance(given, Mapping):
        return json.dumps(given)
    raise ValueError("`schema` is the path of a file, or the schema as a table")


def validator(schema: str) -> Validator:
    """Return what checks documents. Raises ValueError for a schema that is none, or if the package is missing.

    Schemas elsewhere, which this one may refer to, are not fetched: a node does not ask others while it starts.
    """
    try:
        import jsonschema_rs
    except ImportError:
        raise ValueError("JSON Schema needs another package: pip install 'leveret[schema]'") from None
    try:
        return jsonschema_rs.validator_for(schema, offline=True)
    except (ValueError, jsonschema_rs.ReferencingError) as error:
        text = error.message if isinstance(error, jsonschema_rs.ValidationError) else str(error)
        raise ValueError(f"`schema`: {text}"[:TEXT_MAX]) from None
