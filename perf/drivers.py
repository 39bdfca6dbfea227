"""The protocols that a load can be in: a row for each, whose modules are imported when a load runs in it.

A driver is a module with two functions: `publishing(plan, numbers, inbox, tally, block_max)` and `consuming(plan,
numbers, inbox, tally, seen)` return a `Connection` with these publishers, or consumers. A function
`preparation(plan)` returns what is made before a load and removed after it. All of them raise PerfError. A further
protocol is a further row.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, cast

if TYPE_CHECKING:
    from leveret.perf.connection import Connection, Inbox
    from leveret.perf.ends import Tally
    from leveret.perf.plan import Plan
    from leveret.perf.shares import SeenBy


class Preparation(Protocol):
    """The queues, exchanges or sessions of one plan."""

    def declare(self) -> None:
        """Make them. Raises PerfError."""

    def remove(self) -> None:
        """Delete those that were made, unless the plan keeps them. Raises PerfError."""


class Ends(Protocol):
    """The functions of a driver. See the top of the module."""

    def publishing(
        self, plan: Plan, numbers: Sequence[int], inbox: Inbox, tally: Tally, block_max: int, /
    ) -> Connection: ...

    def consuming(
        self, plan: Plan, numbers: Sequence[int], inbox: Inbox, tally: Tally, seen: SeenBy, /
    ) -> Connection: ...


class Driver(NamedTuple):
    """The row of a protocol. `module` has its ends, and `prepares` its preparation; both are in this package.

    A protocol that is `by_topic` has no queues for clients: publishers name topics, and each consumer subscribes.
    """

    module: str
    prepares: str
    by_topic: bool = False
    scheme: str = "amqp"  # of URLs, without the s of TLS

    def ends(self) -> Ends:
        """Import the driver."""
        return cast("Ends", import_module(f"leveret.perf.{self.module}"))

    def preparation(self, plan: Plan) -> Preparation:
        """Return what is made before a load."""
        return cast("Preparation", import_module(f"leveret.perf.{self.prepares}").preparation(plan))


DRIVERS: Final[Mapping[str, Driver]] = {
    "0-9-1": Driver("amqp091", "topology"),
    "1.0": Driver("amqp10", "topology"),
    "mqtt": Driver("mqtt", "mqtt", by_topic=True, scheme="mqtt"),
    "mqtt5": Driver("mqtt", "mqtt", by_topic=True, scheme="mqtt"),
}


def name_for(scheme: str) -> str:
    """Return the protocol of a URL's scheme, where none is named."""
    plain = scheme.removesuffix("s")
    return next((name for name, each in DRIVERS.items() if each.scheme == plain), "0-9-1")
