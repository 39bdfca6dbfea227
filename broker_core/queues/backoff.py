"""The back-off of a queue: how long a message waits that a consumer gave back.

    attempt     1     2     3     4          min 1 s, max 3 s
    linear     1 s   2 s   3 s   3 s         min * attempts, as RabbitMQ's delayed retry
    factor 2   1 s   2 s   3 s   3 s         min * 2 ** (attempts - 1), as LavinMQ's x-delayed-retry-multiplier

Sources: RabbitMQ's documentation of quorum queues (delayed retry) and LavinMQ's of automatic retries. Without a type, a
minimum delays all messages, as in LavinMQ. Without a maximum, a type alone has a constant delay, as in RabbitMQ; a
multiplier, or a minimum without a type, grows up to `LONGEST_S`, as in LavinMQ.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from leveret.durability import WaitingRow
from leveret.limits import QueueLimits

LONGEST_S: Final = (1 << 32) / 1000  # 49.7 days


class Backoff:
    """Tells how long messages of one queue wait before they are delivered again."""

    __slots__ = ("delays_failed", "delays_returned", "max_s", "min_s", "multiplier")

    def __init__(self, min_ms: int, max_ms: int | None, type_: str | None, multiplier: int | None) -> None:
        self.delays_failed = type_ != "returned"
        self.delays_returned = type_ != "failed"
        self.min_s = min_ms / 1000
        self.multiplier = multiplier
        if max_ms is not None:
            self.max_s = max_ms / 1000
        else:
            self.max_s = LONGEST_S if type_ is None or multiplier is not None else self.min_s

    def wait_s(self, attempts: int, is_failure: bool) -> float:
        """Return how many seconds a message waits that has failed so often; 0 if it does not wait.

        `is_failure`: it came back as a failed delivery, not as one that the consumer merely returned.
        """
        if not (self.delays_failed if is_failure else self.delays_returned):
            return 0.0
        if self.multiplier is None:
            return min(self.min_s * max(attempts, 1), self.max_s)
        wait_s = self.min_s
        while attempts > 1 and self.multiplier > 1 and wait_s < self.max_s:  # some 40 times at the most
            wait_s *= self.multiplier
            attempts -= 1
        return min(wait_s, self.max_s)


def backoff_of(limits: QueueLimits) -> Backoff | None:
    """Return the back-off that a queue's limits ask for; None if there is none."""
    if limits.retry_min_ms is None or limits.retry_type == "disabled":
        return None
    return Backoff(limits.retry_min_ms, limits.retry_max_ms, limits.retry_type, limits.retry_multiplier)


def within(backoff: Backoff, rows: Sequence[WaitingRow], now: float) -> Sequence[WaitingRow]:
    """Return entries that waited when the node ended: those that have failed wait for a step of the back-off at most.

    That holds for those, too, whose consumer gave a time of its own, which cannot be told from the others: so it is
    only for entries whose clock is known to have been set back.
    """
    bounded: list[WaitingRow] = []
    for number, position, size, due, expires_at, attempts, redelivered in rows:
        if attempts:
            due = min(due, now + backoff.wait_s(attempts + 1, backoff.delays_failed))
        bounded.append((number, position, size, due, expires_at, attempts, redelivered))
    return bounded
