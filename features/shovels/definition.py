"""The parameter of a shovel, as RabbitMQ has it, to a checked definition.

Source: RabbitMQ's documentation of dynamic shovels.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Final

import attrs

from leveret.config.amqp_uri import Uri, hidden, is_hidden, parse
from leveret.errors import PreconditionFailed
from leveret.values import Json, Table

PREFETCH: Final = 1000
PREFETCH_MAX: Final = 65_535
RECONNECT_S: Final = 5.0
RECONNECT_MAX_S: Final = 86_400
URIS_MAX: Final = 100
NAME_MAX: Final = 255
SPOKEN: Final = ("amqp091", "local")
# Older names of keys.
ALIASES: Final = {
    "prefetch-count": "src-prefetch-count",
    "delete-after": "src-delete-after",
    "add-forward-headers": "dest-add-forward-headers",
    "add-timestamp-header": "dest-add-timestamp-header",
}
KEYS: Final = (
    "ack-mode",
    "reconnect-delay",
    *(
        f"{end}-{key}"
        for end in ("src", "dest")
        for key in ("protocol", "uri", "queue", "queue-args", "predeclared")
    ),
    *(f"{end}-{key}" for end in ("src", "dest") for key in ("exchange", "exchange-key")),
    "src-consumer-args",
    "src-delete-after",
    "src-prefetch-count",
    "dest-add-forward-headers",
    "dest-add-timestamp-header",
)
UNSUPPORTED: Final = {
    "dest-publish-properties": "messages keep their properties",
    "publish-properties": "messages keep their properties",
}


class AckMode(Enum):
    """The moments at which a message may leave the source."""

    ON_CONFIRM = "on-confirm"  # when the destination has confirmed it
    ON_PUBLISH = "on-publish"  # when it has been published
    NO_ACK = "no-ack"  # when it is delivered


@attrs.frozen
class EndSettings:
    """One end of a shovel."""

    uris: tuple[Uri, ...]
    queue: str | None
    exchange: str | None
    key: str | None
    arguments: Table  # of the queue, if it has to be declared
    predeclared: bool  # a missing queue is not declared


@attrs.frozen
class Definition:
    """The settings of a shovel, checked."""

    source: EndSettings
    destination: EndSettings
    ack_mode: AckMode
    prefetch: int  # the most messages that are on their way
    consumer_arguments: Table
    delete_after: int | str | None  # messages, or "queue-length"; None: never
    reconnect_s: float | None  # None: it does not try again
    forward_headers: bool = False
    timestamp_header: bool = False
    trusts_user_id: bool = False  # what the source says about who has published a message is not checked


def definition_of(value: Json) -> Definition:
    """Read the value of a parameter. Raises PreconditionFailed for the first thing that is wrong."""
    said = _known(object_in(value, "a shovel"))
    ack_mode = said.ack_mode()
    for end in ("src", "dest"):
        said.one_of(f"{end}-protocol", "amqp091", *SPOKEN)
    source, destination = said.end("src"), said.end("dest")
    if (source.queue is None) == (source.exchange is None):
        raise PreconditionFailed("must specify either 'src-queue' or 'src-exchange'")
    if destination.queue is not None and destination.exchange is not None:
        raise PreconditionFailed("cannot specify both 'dest-queue' and 'dest-exchange'")
    reconnect_s = said.reconnect_s()
    return Definition(
        source,
        destination,
        ack_mode,
        said.prefetch("src-prefetch-count"),
        said.table("src-consumer-args"),
        said.delete_after(),
        reconnect_s,
        said.flag("dest-add-forward-headers"),
        said.flag("dest-add-timestamp-header"),
    )


def object_in(value: Json, what: str) -> Mapping[str, Json]:
    """Return the value of a parameter. Raises PreconditionFailed if it is no object."""
    if not isinstance(value, Mapping):
        raise PreconditionFailed(f"the value of {what} should be an object")
    return value


def _known(value: Mapping[str, Json]) -> ParameterReader:
    """Return the value with today's names of keys. Raises PreconditionFailed for unknown ones."""
    said: dict[str, Json] = {}
    for name, item in value.items():
        key = ALIASES.get(name, name)
        if key in UNSUPPORTED:
            raise PreconditionFailed(f"key '{key}' is not supported: {UNSUPPORTED[key]}")
        require_known(key, KEYS)
        said[key] = item
    return ParameterReader(said)


def require_known(key: str, keys: Sequence[str]) -> None:
    """Raise PreconditionFailed if there is no such key, with the one that was probably meant."""
    if key not in keys:
        close = difflib.get_close_matches(key, keys, n=1)
        meant = f"; did you mean '{close[0]}'?" if close else ""
        raise PreconditionFailed(f"key '{key[:100]}' is not known{meant}")


class ParameterReader:
    """The keys of a parameter, each read with its checks. All methods raise PreconditionFailed."""

    def __init__(self, value: Mapping[str, Json]) -> None:
        self._value = value

    def end(self, end: str) -> EndSettings:
        return EndSettings(
            self.uris(f"{end}-uri"),
            self.text(f"{end}-queue"),
            self.text(f"{end}-exchange"),
            self.text(f"{end}-exchange-key"),
            self.table(f"{end}-queue-args"),
            self.flag(f"{end}-predeclared"),
        )

    def uris(self, key: str) -> tuple[Uri, ...]:
        given = self._value.get(key)
        listed = given if isinstance(given, list | tuple) else [given]
        texts = [each for each in listed if isinstance(each, str)]
        if len(texts) != len(listed) or not 0 < len(texts) <= URIS_MAX:
            raise PreconditionFailed(f"key '{key}' should be a URI, or a list of them")
        return tuple(map(parse, texts))

    def text(self, key: str) -> str | None:
        given = self._value.get(key)
        if given is None:
            return None
        if not isinstance(given, str) or len(given.encode()) > NAME_MAX:
            raise PreconditionFailed(f"key '{key}' should be a text of at most {NAME_MAX} bytes")
        return given

    def flag(self, key: str) -> bool:
        given = self._value.get(key, False)
        if not isinstance(given, bool):
            raise PreconditionFailed(f"key '{key}' should be true or false")
        return given

    def count(self, key: str) -> int | None:
        """Return a whole number, such as of milliseconds; None if there is none."""
        given = self._value.get(key)
        if given is not None and (isinstance(given, bool) or not isinstance(given, int) or given < 0):
            raise PreconditionFailed(f"key '{key}' should be a whole number")
        return given

    def table(self, key: str) -> Table:
        given = self._value.get(key, {})
        if isinstance(given, Sequence) and not given:  # as some tools write an empty one
            return {}
        if not isinstance(given, Mapping):
            raise PreconditionFailed(f"key '{key}' should be an object")
        return dict(given)

    def number(self, key: str, otherwise: float, most: int) -> float:
        given = self._value.get(key, otherwise)
        if isinstance(given, bool) or not isinstance(given, int | float) or not 0 <= given <= most:
            raise PreconditionFailed(f"key '{key}' should be a number from 0 to {most}")
        return given

    def one_of(self, key: str, otherwise: str, *words: str) -> str:
        given = self._value.get(key, otherwise)
        if not isinstance(given, str) or given not in words:
            raise PreconditionFailed(f"key '{key}' should be one of {', '.join(words)}")
        return given

    def ack_mode(self) -> AckMode:
        return AckMode(self.one_of("ack-mode", "on-confirm", *(mode.value for mode in AckMode)))

    def prefetch(self, key: str) -> int:
        """Return the most messages on their way; 0 stands for as many as a channel may have."""
        return int(self.number(key, PREFETCH, PREFETCH_MAX)) or PREFETCH_MAX

    def reconnect_s(self) -> float | None:
        """Return the seconds until the next attempt; None: there is none."""
        return self.number("reconnect-delay", RECONNECT_S, RECONNECT_MAX_S) or None

    def delete_after(self) -> int | str | None:
        given = self._value.get("src-delete-after", "never")
        if given == "never":
            return None
        if given == "queue-length" or (isinstance(given, int) and not isinstance(given, bool) and given >= 0):
            return given
        raise PreconditionFailed(
            "key 'src-delete-after' should be 'never', 'queue-length' or a number of messages"
        )


# Passwords, which are in the URIs.


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
