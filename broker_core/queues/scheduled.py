"""Messages that wait for a time in a queue: one, and those of a queue that has none (`schedule.py` has some)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from mypy_extensions import mypyc_attr

from leveret.clock import NEVER


class Scheduled:
    """A message that waits for a time."""

    __slots__ = (
        "attempts",
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
    ) -> None:
        self.position = position
        self.size = size  # bytes of its body
        self.due = due  # monotonic seconds
        self.expires_at = expires_at
        self.wakes_at = min(due, expires_at)
        self.attempts = attempts
        self.redelivered = redelivered
        self.number = number  # in the store, if it is on disk only
        self.is_early = False  # it was made due before its time

    def __lt__(self, other: Scheduled) -> bool:
        if self.wakes_at != other.wakes_at:
            return self.wakes_at < other.wakes_at
        return self.position < other.position


@mypyc_attr(allow_interpreted_subclasses=True)
class ScheduledMessages:
    """The messages of a queue that wait for a time before they are ready; here there are none."""

    __slots__ = ("octets",)

    def __init__(self) -> None:
        self.octets = 0  # bytes of their bodies

    def __len__(self) -> int:
        return 0

    @property
    def next_due(self) -> float:
        """Return when the first of them is due or expires, in monotonic seconds; NEVER if there is none."""
        return NEVER

    def first(self, count: int) -> list[Scheduled]:
        """Return up to `count` of them, those that are due first."""
        return []

    def positions(self) -> list[int]:
        """Return the positions of all, in no order."""
        return []

    def hasten(self, positions: Iterable[int]) -> int:
        """Make messages ready now, by their positions; return how many there were."""
        return 0

    def drop(self, positions: Iterable[int]) -> int:
        """Drop messages by their positions; return how many there were."""
        return 0

    def purge(self) -> int:
        """Drop all; return how many there were."""
        return 0


NOTHING_SCHEDULED: Final = ScheduledMessages()
