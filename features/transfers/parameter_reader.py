"""The reader of a parameter's keys, with the checks that shovels and upstreams share."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Final

from leveret.config.amqp_uri import Uri, parse
from leveret.errors import PreconditionFailed
from leveret.features.transfers.definition import AckMode, EndSettings
from leveret.values import Json, Table

PREFETCH: Final = 1000
PREFETCH_MAX: Final = 65_535
RECONNECT_S: Final = 5.0
RECONNECT_MAX_S: Final = 86_400
URIS_MAX: Final = 100
QUEUE_LENGTH: Final = "queue-length"
NAME_MAX: Final = 255


def object_in(value: Json, what: str) -> Mapping[str, Json]:
    """Return the value of a parameter. Raises PreconditionFailed if it is no object."""
    if not isinstance(value, Mapping):
        raise PreconditionFailed(f"the value of {what} should be an object")
    return value


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

    def text(self, key: str, size_max: int = NAME_MAX) -> str | None:
        given = self._value.get(key)
        if given is None:
            return None
        if not isinstance(given, str) or len(given.encode()) > size_max:
            raise PreconditionFailed(f"key '{key}' should be a text of at most {size_max} bytes")
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
        if given == QUEUE_LENGTH or (isinstance(given, int) and not isinstance(given, bool) and given >= 0):
            return given
        raise PreconditionFailed(
            "key 'src-delete-after' should be 'never', 'queue-length' or a number of messages"
        )
