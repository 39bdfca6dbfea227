"""Acknowledgement time-outs (X028): deliveries that stay unanswered for too long go back to their queue.

One timer is set for the delivery that will be too old first. It is set at a delivery and not moved when that is
answered or renewed: when it runs, it checks again. So an answer in time costs nothing, and a batch one comparison.

A delivery is renewed by another `given_at` (`Queue.renew`): its time begins anew.

By default only the late delivery is requeued; its consumer goes on, and its late answer is ignored. A single active
consumer is replaced by another then (`Queue.timed_out`). One that keeps all others away, an exclusive one, is ended.
The compat row `consumer_timeout_response` has RabbitMQ's answers instead: the channel is closed, or the consumer
cancelled.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Final, Protocol, TypeVar

from mypy_extensions import mypyc_attr

from leveret.clock import Timer, Timers
from leveret.delivery import Consumer, Delivery

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

# The least time between checks of one watch, each of which walks over all that is unanswered.
CHECK_S: Final = 1.0

log: Final = logging.getLogger("leveret.timeouts")


@mypyc_attr(allow_interpreted_subclasses=True)
class AckTimeouts(ABC):
    """A watch over the unanswered deliveries of a channel, a link or a session."""

    __slots__ = ("_not_before", "_timer", "_timers")

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._timer: Timer | None = None
        self._not_before = 0.0  # when the next check may be

    @abstractmethod
    def check(self, now: float) -> None:
        """Deal with the deliveries that are late, and `watch` those that are left."""

    def watch(self, delivery: Delivery) -> None:
        """Called after this delivery, and maybe others with it to the same consumer."""
        allowed = delivery.allowed_s
        if allowed is None:
            return
        due, timer = delivery.given_at + allowed, self._timer
        if due < self._not_before:
            due = self._not_before
        if timer is None or due < timer.at:
            self.stop()
            self._timer = self._timers.at(due, self._run)

    @abstractmethod
    def end(self) -> None:
        """Forget what was watched, for good: in a cycle with this, it would wait for the collector."""

    def stop(self) -> None:
        self._timers.cancel(self._timer)
        self._timer = None

    def _run(self, now: float) -> None:
        self._timer = None
        self._not_before = now + CHECK_S
        self.check(now)


class Tagged(Protocol[T_co]):
    """A table by tags or ids, such as a dict."""

    def get(self, tag: int, /) -> T_co | None: ...

    def items(self) -> Iterable[tuple[int, T_co]]: ...


def tagged(held: Tagged[T], tag: int | None) -> Iterable[tuple[int, T]]:
    """Return what is held under this tag or id, if it is; without one, all. See `FrontEnd.unsettled`."""
    if tag is None:
        return held.items()
    found = held.get(tag)
    return () if found is None else [(tag, found)]


def is_exclusive(delivery: Delivery) -> bool:
    """Return whether no other consumer can get a delivery while the one that has it is there."""
    return delivery.consumer is not None and delivery.consumer.exclusive


def is_late(delivery: Delivery, now: float) -> bool:
    allowed = delivery.allowed_s
    return allowed is not None and delivery.given_at + allowed <= now


def report(late: Iterable[Delivery], connection: str, whose: str) -> None:
    """Report late deliveries that are about to be released: to their queues, and to the log, a line for each queue."""
    counts: dict[str, int] = {}
    told: dict[Consumer, None] = {}
    for delivery in late:
        if (consumer := delivery.consumer) is not None and consumer not in told:
            told[consumer] = None
            consumer.queue.timed_out(consumer)
        counts[delivery.queue.described] = counts.get(delivery.queue.described, 0) + 1
    for described, count in counts.items():
        log.warning(
            "%s: requeued %d of %s, which %s did not acknowledge in time", connection, count, described, whose
        )


def late_text(whose: str, allowed_s: float | None) -> str:
    return (
        f"delivery acknowledgement on {whose} timed out. "
        f"Timeout value used: {round((allowed_s or 0) * 1000)} ms. "
        "This timeout value can be configured, see consumer_timeout_ms"
    )
