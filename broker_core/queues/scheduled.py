"""A message that waits for a time in a queue (`schedule.py`)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from leveret.delivery import Delivery


class Scheduled:
    """A message that waits for a time. Without `delivery`, it is on disk only."""

    __slots__ = (
        "attempts",
        "delivery",
        "due",
        "expires_at",
        "is_early",
        "number",
        "position",
        "redelivered",
        "size",
        "wakes_at",
    )

    def __init__(
        self,
        position: int,
        size: int,
        due: float,
        expires_at: float,
        attempts: int,
        redelivered: bool,
        number: int = 0,
        delivery: Delivery | None = None,
    ) -> None:
        self.position = position
        self.size = size  # bytes of its body
        self.due = due  # monotonic seconds
        self.expires_at = expires_at
        self.wakes_at = min(due, expires_at)
        self.attempts = attempts
        self.redelivered = redelivered
        self.number = number  # in the store, if it is on disk only
        self.delivery = delivery
        self.is_early = False  # it was made due before its time

    def __lt__(self, other: Scheduled) -> bool:
        if self.wakes_at != other.wakes_at:
            return self.wakes_at < other.wakes_at
        return self.position < other.position
