"""A node for tests: its time can be driven, and faults can be asked of it.

    with DrivenNode() as node, fresh_broker(node) as broker:
        broker.clock.advance(3600)
        broker.faults.drop_confirm(queue="orders", after=3)

No other node has any of this: what a fault needs is put into the node when the first one is set, and taken out with the
last one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from leveret.config.config import Config
from leveret.durable.store.contract import Store
from leveret.server.node.node import Node, TrioClock
from leveret.server.node.threaded import CLOSING_S, ThreadedNode

if TYPE_CHECKING:
    from leveret.testing.faults import FaultPlan

STEPS: Final = 500  # of which a jump in time consists, at most


class DrivenClock(TrioClock):
    """The node's own time with a lead, which grows when a test advances it."""

    def __init__(self) -> None:
        self.lead_s = 0.0

    def now(self) -> float:
        return super().now() + self.lead_s

    def wall(self) -> float:
        return super().wall() + self.lead_s


class DrivenNode(ThreadedNode):
    """A `ThreadedNode` for tests, with a `clock` that they advance, and with faults."""

    def __init__(
        self, config: Config | None = None, closing_s: float = CLOSING_S, store: Store | None = None
    ) -> None:
        clock = DrivenClock()
        super().__init__(config, closing_s, store, clock)
        self.clock = NodeTime(self, clock)
        self._plan: FaultPlan | None = None

    @property
    def plan(self) -> FaultPlan:
        """The faults of this node."""
        if self._plan is None:
            from leveret.testing.faults import FaultPlan

            self._plan = FaultPlan(self)
        return self._plan


class NodeTime:
    """The time of a node of tests, which a test can advance."""

    def __init__(self, node: DrivenNode, clock: DrivenClock) -> None:
        self._node = node
        self._clock = clock

    def advance(self, seconds: float) -> None:
        """Let time pass: whatever is due within `seconds` has happened when this returns, in order.

        What clients have written to their sockets by now counts. Messages expire, delayed ones arrive, consumers time
        out; connections are not taken for dead meanwhile. A jump consists of up to 500 steps, and what begins within
        one begins at its end. Raises ValueError if `seconds` is negative.
        """
        if seconds < 0:
            raise ValueError("time does not go back")
        self._node.wait(Node.quiet)
        self._node.call(self._advance, seconds)

    def _advance(self, seconds: float) -> None:
        node, clock = self._node.node, self._clock
        timers = node.broker.timers
        until = clock.lead_s + seconds
        node.settle()
        while clock.lead_s < until:
            next_at = timers.next_at()
            wait_s = until - clock.lead_s if next_at is None else next_at - clock.now()
            clock.lead_s = min(until, clock.lead_s + max(wait_s, seconds / STEPS))
            now = node.broker.tick()
            for transport in list(node.transports.values()):
                if transport.front is not None:
                    transport.front.resume(now)  # its silence in between means nothing
            node.settle()
