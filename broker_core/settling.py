"""The settle cycle as queues see it: its time, its timers, and what a batch has gathered for its end.

    Queue ── touch, dead letters, work ──> Settling ──settle (broker.py)──> dispatch, dead letters, publishers told

The broker is one; each queue gets it when it is made, and knows nothing else of the broker.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from mypy_extensions import mypyc_attr

from leveret.clock import Clock, LongWork, SystemClock, Timer, Timers
from leveret.observability.events import Events
from leveret.queues.discarded_messages import DiscardedMessages

if TYPE_CHECKING:
    from leveret.catalogue import Catalogue
    from leveret.durability import Durability
    from leveret.exchanges.contract import RetiredCounts
    from leveret.message import Message
    from leveret.publishing.publisher import Publisher
    from leveret.queues.queue import Queue


@mypyc_attr(allow_interpreted_subclasses=True)
class Waiter:
    """A client that publishes nothing while queues are too long."""

    def released(self, overfull: Overlong) -> None:
        """Called by a queue that is shorter now, or has been deleted."""
        raise NotImplementedError


class Overlong:
    """A queue that takes every message, and whose publishers wait while it is too long."""

    __slots__ = ("clients",)

    def __init__(self) -> None:
        self.clients: dict[Waiter, None] = {}  # that wait until the queue is shorter


@mypyc_attr(allow_interpreted_subclasses=True)
class Settling:
    """The part of a broker that all its queues use. Time stands still within a batch of input."""

    def __init__(self, clock: Clock | None, retired: RetiredCounts) -> None:
        self.clock = clock or SystemClock()
        self.now = self.clock.now()  # monotonic seconds, at the beginning of the batch
        self.timers = Timers()
        self.long_work = LongWork(self.clock, self.timers)
        self.discarded = DiscardedMessages(self.timers)
        self.events = Events()
        self.retired = retired  # the counts of deleted queues and exchanges
        self.work = 0  # copies of messages made in this turn, or as much other work
        self.touched: list[Queue] = []  # queues to dispatch in the next settle
        self.dying: deque[tuple[Queue, Message, str]] = (
            deque()
        )  # to be dead-lettered in it, for these reasons
        self.publishers: list[Publisher] = []  # to be told at the end of the next settle
        # The name of the queue that refused the last message; empty: an interceptor did, or the disk lacks room,
        self.refused_by = ""
        self.refused_for = ""  # for this reason
        self.overfull: dict[Overlong, None] = {}  # queues that got too long in this batch
        self.catalogue: Catalogue | None = None  # told of changes to durable objects
        self.journal: Durability | None = None  # without one, everything is in memory only

    def later(self, delay_s: float, action: Callable[[float], None]) -> Timer:
        """Call `action(now)` once, so many seconds after the beginning of this batch."""
        return self.timers.at(self.now + delay_s, action)

    def dead_letter(self, queue: Queue, message: Message, reason: str) -> None:
        """Send a message that died in a queue on its way, in the next settle."""
        raise NotImplementedError
