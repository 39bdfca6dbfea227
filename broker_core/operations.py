"""What an operator can ask of a running node; management front-ends reach it as `broker.operations`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import TypeAlias

import attrs

from broker_core.values import Value, printed

Json: TypeAlias = "str | int | float | bool | Sequence[Json] | Mapping[str, Json] | None"


def as_json(value: Value) -> Json:
    """A header or argument as JSON has it: octets and decimals as text, and numbers that JSON cannot say too."""
    if isinstance(value, Mapping):
        return {name: as_json(item) for name, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes | bytearray):
        return [as_json(item) for item in value]
    if value is None or isinstance(value, bool | int | str) or (isinstance(value, float) and isfinite(value)):
        return value
    return printed(value)


@attrs.frozen
class Reloaded:
    """What a reload of the configuration did."""

    changed: tuple[str, ...] = ()  # keys that hold their new value now
    needs_restart: tuple[str, ...] = ()  # keys whose new value only holds after a restart
    problems: tuple[str, ...] = ()  # why nothing was changed
    refused: tuple[
        str, ...
    ] = ()  # plugin files and certificates that could not be loaded: those from before stay


class Operations(ABC):
    """Implemented by the node."""

    @abstractmethod
    def status(self) -> Mapping[str, Json]:
        """Version, uptime, listeners, alarms and counts, as JSON values."""

    @abstractmethod
    def reload(self) -> Reloaded:
        """Read the configuration again and apply what can be applied without a restart."""

    @abstractmethod
    def plugins(self) -> Mapping[str, Json]:
        """The exchange types and protocols that are loaded; of each type its exchanges, and how often they failed."""

    @abstractmethod
    def reload_plugins(self) -> Mapping[str, Json]:
        """Take in changed plugin files: `loaded`, `unchanged`, `removed` (names), `refused` (name and traceback)."""

    @abstractmethod
    def close_connections(self, reason: str, virtual_host: str | None = None) -> int:
        """Say goodbye to every client, or to those in one virtual host. Returns how many there were."""
