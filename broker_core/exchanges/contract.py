"""Typing protocols for what exchanges and their types need of their virtual host and of the broker behind it.

Exchange ──virtual_host──> Host ──broker──> Surroundings
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from leveret.catalogue import Catalogue
    from leveret.clock import Clock, Timers
    from leveret.durability import Durability
    from leveret.exchanges.destination import Destination
    from leveret.exchanges.exchange_type import Binding, Exchange, ExchangeType
    from leveret.exchanges.routing import Route
    from leveret.message import Message
    from leveret.policy import Policies
    from leveret.queues.queue import Queue


class Host(Protocol):
    """The virtual host that an exchange is in."""

    name: str
    revision: int  # of the topology; remembered routes hold for one revision
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
        """The tracer that makes routes which also copy their messages to the trace; None while tracing is off."""

    def destination_queue(self, key: str) -> Queue | None:
        """Return the queue to which the default exchange routes a key, if there is one."""

    def bindings_to(self, destination: Destination) -> Collection[Binding]:
        """Return the bindings that lead to a queue or an exchange."""


class Surroundings(Protocol):
    """The broker, as far as exchanges and their types need it."""

    now: float  # monotonic seconds; the same for all that is done in one batch
    slow_call_s: float  # the longest call of a plug-in's code that is not reported

    @property
    def clock(self) -> Clock: ...

    @property
    def interceptors(self) -> object:
        """The interceptors of published messages; None if there are none."""

    @property
    def timers(self) -> Timers: ...

    @property
    def exchange_types(self) -> Mapping[str, type[ExchangeType]]: ...

    @property
    def policies(self) -> Policies: ...

    @property
    def journal(self) -> Durability | None:
        """The journal, which keeps held messages; None: everything is in memory only."""

    @property
    def catalogue(self) -> Catalogue | None:
        """The catalogue, which is told when an exchange begins to hold messages; None: there is no store."""

    @property
    def retired(self) -> RetiredCounts: ...

    def route(self, exchange: Exchange, message: Message) -> Route:
        """Return the route that a message would take from an exchange now. Nothing is delivered or counted."""

    def deliver(self, message: Message, destinations: Iterable[Destination]) -> None:
        """Put a message straight into queues."""

    def release_delayed(self, exchange: Exchange, message: Message) -> None:
        """Route a message that the exchange held back, alternates included."""

    def report_route_error(self, exchange: Exchange, error: BaseException, what: str = ...) -> None:
        """Log that an exchange's type has raised, the first time."""

    def report_slow_call(self, exchange: Exchange, method: str, took_s: float) -> None:
        """Log that nothing else could run while a method of an exchange's type did."""

    def report_missing_alternate(self, exchange: Exchange, alternate: str) -> None:
        """Log that an alternate exchange does not exist, once."""


class RouteTracer(Protocol):
    def route(
        self, queues: tuple[Queue, ...], handled: bool, keepers: tuple[Exchange, ...], lasting: bool
    ) -> Route: ...


class RetiredCounts(Protocol):
    def add_exchange(self, exchange: Exchange) -> None:
        """Keep the counts of an exchange that has been deleted."""

    def add_queue(self, queue: Queue) -> None:
        """Keep the counts of a queue that has been deleted."""
