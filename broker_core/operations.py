"""What an operator can ask of a running node; management front-ends reach it as `broker.operations`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from math import isfinite
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar

import attrs

from broker_core.values import Json, Value, printed

if TYPE_CHECKING:
    from pathlib import Path

    from broker_core.frontend import FrontEnd, Peer

T = TypeVar("T")


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


class Connected(ABC):
    """One open connection, as the node that owns its socket sees it. Octets are those of the protocol, without TLS."""

    peer: Peer
    front: FrontEnd | None  # None: the peer has not said yet what it speaks, or is gone
    connected_at: float  # seconds since the epoch
    octets_received: int
    reads: int
    writes: int

    @property
    @abstractmethod
    def octets_sent(self) -> int:
        """With the operating system by now."""

    @property
    @abstractmethod
    def octets_waiting(self) -> int:
        """That the operating system has not taken yet."""

    @abstractmethod
    def shut_down(self, reason: str) -> None:
        """Say goodbye in the protocol's way, and hang up."""


@attrs.frozen
class Listening:
    """One open listener."""

    host: str
    port: int
    protocols: tuple[str, ...]
    tls: bool
    expires_at: float | None = None  # seconds since the epoch: when the first of its certificates ends


class Operations(ABC):
    """Implemented by `NodeAdmin` for a node."""

    name: str  # of the node
    started_at: float = 0.0  # monotonic seconds
    data_folder: Path | None = None  # what it keeps; None: in memory only
    fed: Connected | None = None  # the connection whose input is being worked off
    # What connections that have ended had counted: octets_received, octets_sent, reads, writes.
    past: Mapping[str, int] = MappingProxyType({})

    @abstractmethod
    def listeners(self) -> Sequence[Listening]:
        """Where it accepts connections."""

    @abstractmethod
    def connections(self) -> Collection[Connected]:
        """Every open connection, those of the HTTP endpoint too."""

    @abstractmethod
    def off_thread(self, work: Callable[[], T], then: Callable[[T], None]) -> None:
        """Do something that takes long in a thread, then tell in the broker's own, as a batch of its own.

        `work` must not touch the broker, nor raise; a few run at a time, the others wait in line.
        """

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
