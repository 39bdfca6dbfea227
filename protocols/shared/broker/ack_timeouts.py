"""Acknowledgement time-outs (X028): they end channels and links whose deliveries stay unanswered for too long.

One timer is set for the delivery that will be too old first. It is set at a delivery and not moved when that is
answered: when it runs, it checks again. So an answer in time costs nothing, and a batch one comparison.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from mypy_extensions import mypyc_attr

from broker_core.clock import Timer, Timers
from broker_core.delivery import Delivery


@mypyc_attr(allow_interpreted_subclasses=True)
class AckTimeouts(ABC):
    """A watch over the unanswered deliveries of a channel or a link."""

    __slots__ = ("_timer", "_timers")

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._timer: Timer | None = None

    @abstractmethod
    def allowed_s(self, delivery: Delivery) -> float | None:
        """Return the seconds that the consumer asked for, else those of its queue, or None for no limit."""

    @abstractmethod
    def check(self, now: float) -> None:
        """End the consumers or links that are too slow, and `watch` the deliveries that are left."""

    def watch(self, delivery: Delivery) -> None:
        """Called after this delivery, and maybe others with it to the same consumer."""
        allowed = self.allowed_s(delivery)
        if allowed is None:
            return
        due, timer = delivery.given_at + allowed, self._timer
        if timer is None or due < timer.at:
            self.stop()
            self._timer = self._timers.at(due, self._run)

    def stop(self) -> None:
        self._timers.cancel(self._timer)
        self._timer = None

    def _run(self, now: float) -> None:
        self._timer = None
        self.check(now)

    def is_late(self, delivery: Delivery, now: float) -> bool:
        allowed = self.allowed_s(delivery)
        return allowed is not None and delivery.given_at + allowed <= now


def late_text(whose: str, allowed_s: float | None) -> str:
    return (
        f"delivery acknowledgement on {whose} timed out. "
        f"Timeout value used: {round((allowed_s or 0) * 1000)} ms. "
        "This timeout value can be configured, see consumer_timeout_ms"
    )
