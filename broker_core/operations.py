"""The contract of operations on a running node; management front-ends reach them as `broker.operations`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar

import attrs

from leveret.errors import PreconditionFailed
from leveret.values import Json

if TYPE_CHECKING:
    from pathlib import Path

    from leveret.front_end import Dial, FrontEnd, Peer
    from leveret.guests import Guest

T = TypeVar("T")


@attrs.frozen
class Reloaded:
    """The result of a reload of the configuration."""

    changed: tuple[str, ...] = ()  # keys whose new value is in force now
    needs_restart: tuple[str, ...] = ()  # keys whose new value needs a restart
    problems: tuple[str, ...] = ()  # why nothing was changed
    # plugin files and certificates that could not be loaded: the earlier ones stay in force
    refused: tuple[str, ...] = ()


class Connected(ABC):
    """An open connection, as the node that owns its socket sees it. Counts of bytes are without TLS."""

    peer: Peer
    front: FrontEnd | None  # None: the peer has not chosen a protocol yet, or is gone
    connected_at: float  # seconds since the epoch
    octets_received: int
    reads: int
    writes: int

    @property
    @abstractmethod
    def octets_sent(self) -> int:
        """The number of bytes that the operating system has taken."""

    @property
    @abstractmethod
    def octets_waiting(self) -> int:
        """The number of bytes that the operating system has not taken yet."""

    @abstractmethod
    def shut_down(self, reason: str) -> None:
        """Close the connection in the protocol's way."""


@attrs.frozen
class Listening:
    """An open listener."""

    host: str  # of a Unix domain socket, its address: unix:/PATH
    port: int  # 0 for a Unix domain socket
    protocols: tuple[str, ...]
    tls: bool
    expires_at: float | None = None  # seconds since the epoch: when the first of its certificates expires
    tls_optional: bool = False  # whether connections may go without it

    @property
    def plain(self) -> bool:
        """Return whether connections may go without TLS."""
        return self.tls_optional or not self.tls


class Clustering(ABC):
    """The cluster of a node, which serves while other nodes stand by."""

    @abstractmethod
    def status(self) -> Mapping[str, Json]:
        """Return the nodes, the owner and until when it is one, the database's replication and the last takeovers."""

    @abstractmethod
    def metrics(self) -> Mapping[str, float]:
        """Return the figures of this node by the names of their metrics."""

    @abstractmethod
    def fail_over(self, heir: str) -> None:
        """Let another node serve, soon: `heir`, or any if that is empty. Raises PreconditionFailed if there is none."""


class Program(ABC):
    """A program that the node runs in a process of its own. It is to end when its standard input does."""

    arguments: Sequence[str] = ()  # the file to execute, and what it is given; others see them

    @abstractmethod
    def on_line(self, line: str) -> None:
        """Called with each line of its standard error, in the broker's thread."""

    @abstractmethod
    def on_end(self, how: str) -> None:
        """Called once when it has ended, or cannot be started, in the broker's thread; `how` says which."""


class Operations(ABC):
    """The operations of a node, which `NodeAdmin` implements."""

    name: str  # of the node
    started_at: float = 0.0  # monotonic seconds
    data_folder: Path | None = None  # of the store; None: everything is in memory only
    cluster: Clustering | None = None  # None: there is no cluster
    fed: Connected | None = None  # the connection whose input is being processed
    # The sums over connections that have ended: octets_received, octets_sent, reads, writes.
    past: Mapping[str, int] = MappingProxyType({})

    @abstractmethod
    def listeners(self) -> Sequence[Listening]:
        """Return the open listeners."""

    @abstractmethod
    def connections(self) -> Collection[Connected]:
        """Return every open connection, those of the HTTP endpoint too."""

    @abstractmethod
    def off_thread(self, work: Callable[[], T], then: Callable[[T], None]) -> None:
        """Run `work` in a thread, then pass its result to `then` in the broker's thread, as a batch of its own.

        `work` must not touch the broker, nor raise; a few run at a time, the others wait in line.
        """

    def dial(self, request: Dial) -> None:
        """Connect to another broker, in a task of its own."""
        request.failed("this node does not connect to others")

    def launch(self, program: Program) -> Callable[[], None]:
        """Start a program, in a task of its own. What is returned has it end: by itself at first, then by force."""
        program.on_end("this node runs no programs")
        return lambda: None

    @abstractmethod
    def status(self) -> Mapping[str, Json]:
        """Return version, uptime, listeners, alarms and counts, as JSON values."""

    def log_lines(
        self, after: int, level: int, category: str, text: str, count: int
    ) -> Mapping[str, Json] | None:
        """Return the last lines of the log that suit (`RecentLog.lines`); None if none are kept."""
        return None

    def recorder(self) -> tuple[Guest, object]:
        """Return the guest that records, and its plan: how the settings have it begin."""
        raise PreconditionFailed("this node records nothing")

    @abstractmethod
    def reload(self) -> Reloaded:
        """Read the configuration again and apply what can be applied without a restart."""

    @abstractmethod
    def plugins(self) -> Mapping[str, Json]:
        """Return the loaded exchange types and protocols; for each type its exchanges, and how often they failed."""

    @abstractmethod
    def reload_plugins(self) -> Mapping[str, Json]:
        """Load changed plugin files. Return `loaded`, `unchanged`, `removed` (names), `refused` (names, tracebacks)."""

    @abstractmethod
    def close_connections(self, reason: str, virtual_host: str | None = None) -> int:
        """Close the connections of all clients, or of those in one virtual host; return how many there were."""
