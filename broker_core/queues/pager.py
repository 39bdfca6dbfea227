"""The contract between the broker and the pager that keeps its messages within the memory (`durable/paging.py`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from leveret.delivery import Consumer


class Pager(Protocol):
    """A pager moves messages out of memory, to be on disk only, and bounds what consumers keep in memory."""

    due_at: float  # monotonic seconds: when it looks next
    budget: int | None  # bytes of waiting messages that may stay in memory
    unanswered_max: int | None  # bytes of messages that consumers may have unanswered
    watermark: int | None  # bytes of memory that the node should not exceed

    def check(self, now: float) -> None:
        """Look at the memory, and put messages away if they have too much of it."""

    def came(self, consumer: Consumer) -> None:
        """Bound what a consumer has unanswered, if memory is short. Called before it is attached."""
