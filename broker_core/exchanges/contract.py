"""What exchanges and their types see of the virtual host that they are in, and of the broker behind it.

Exchange ──virtual_host──> Host ──broker──> Surroundings
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from broker_core.clock import Clock, Timers
    from broker_core.durability.contract import Durability
    from broker_core.exchanges.exchange import Binding, Destination, Exchange, ExchangeType
    from broker_core.exchanges.routing import Route
    from broker_core.message import Message
    from broker_core.policy import Policies
    from broker_core.queues.queue import Queue


class Host(Protocol):
    """The virtual host that an exchange is in."""

    name: str
    revision: int  # of the topology; another one makes remembered routes worthless
    routes_remembered: int  # by all of its exchanges
    connections: int

    @property
    def broker(self) -> Surroundings: ...

    @property
    def exchanges(self) -> Mapping[str, Exchange]: ...

    @property
    def queues(self) -> Mapping[str, Queue]: ...

    @property
    def tracer(self) -> RouteTracer | None:
        """What makes routes whose messages are copied to somewhere else, too."""

    def destination_queue(self, key: str) -> Queue | None:
        """Where the default exchange leads for a key."""

    def bindings_to(self, destination: Destination) -> Collection[Binding]:
        """Return the bindings that lead to a queue or an exchange."""


class Surroundings(Protocol):
    """The broker, as far as exchanges and their types need it."""

    now: float  # monotonic seconds; the same for all that is done in one batch

    @property
    def clock(self) -> Clock: ...

    @property
    def timers(self) -> Timers: ...

    @property
    def exchange_types(self) -> Mapping[str, type[ExchangeType]]: ...

    @property
    def policies(self) -> Policies: ...

    @property
    def journal(self) -> Durability | None:
        """What keeps held messages; None: everything is in memory only."""

    @property
    def catalogue(self) -> Holdings | None:
        """What is told that an exchange begins to hold messages."""

    @property
    def bygone(self) -> RetiredCounts: ...

    def route(self, exchange: Exchange, message: Message) -> Route:
        """Return where a message would go from an exchange now; does not change anything."""

    def deliver(self, message: Message, destinations: Iterable[Destination]) -> None:
        """Put a message straight into queues."""

    def release_delayed(self, exchange: Exchange, message: Message) -> None:
        """Route a message that the exchange held back, alternates included."""

    def report_route_error(self, exchange: Exchange, error: Exception, what: str = ...) -> None:
        """Log that an exchange's type has raised, the first time."""

    def report_missing_alternate(self, exchange: Exchange, alternate: str) -> None:
        """Log that an alternate exchange does not exist, once."""


class RouteTracer(Protocol):
    def route(
        self, queues: tuple[Queue, ...], handled: bool, keepers: tuple[Exchange, ...], lasting: bool
    ) -> Route: ...


class Holdings(Protocol):
    def keep_holding(self, exchange: Exchange) -> None: ...


class RetiredCounts(Protocol):
    def add_exchange(self, exchange: Exchange) -> None:
        """Keep the counts of an exchange that has been deleted."""
