"""Heartbeats in both directions: when one is due from us, and when the peer has been silent for too long.

AMQP 0-9-1 and 0-10 agree on one interval for both directions (S013), 1.0 has an idle time-out for each (S167, X049).
Times are those of RabbitMQ: a heartbeat every half interval in which nothing else was sent, and a look once an interval
for what has come; the second look in a row that finds nothing ends the connection.
"""

from typing import Final

SILENT_LOOKS: Final = 2  # in a row


class Heartbeat:
    """The intervals of heartbeats and of looks at the peer's activity, and what was found last; 0 is never."""

    __slots__ = (
        "beat_at",
        "beat_every_s",
        "look_at",
        "look_every_s",
        "received_at",
        "seen_at",
        "silent_looks",
        "watching",
        "written",
    )

    def __init__(self, now: float) -> None:
        self.beat_every_s = 0.0
        self.look_every_s = 0.0
        self.received_at = now  # any byte counts as a heartbeat
        self.watching = True
        self.beat_at = now  # when to check next whether we were idle
        self.look_at = now  # when to look next whether anything has come
        self.seen_at = -1.0  # of what had come at the last look
        self.silent_looks = 0
        self.written = -1  # at the last check; -1: there was none

    def start(self, beat_every_s: float, look_every_s: float) -> None:
        """Set the negotiated limits.

        Output since the last check may have been written right after that check, so our longest silence is twice
        `beat_every_s`. That of the peer is two to three times `look_every_s`.
        """
        self.beat_every_s = beat_every_s
        self.look_every_s = look_every_s
        self.beat_at = self.received_at + beat_every_s
        self.look_at = self.received_at + look_every_s

    def deadline(self) -> float | None:
        beat_at = self.beat_at if self.beat_every_s else None
        if not self.look_every_s or not self.watching:
            return beat_at
        return self.look_at if beat_at is None else min(beat_at, self.look_at)

    def is_missed(self, now: float) -> bool:
        """Look, if it is time, and return whether the peer was silent for too long, though it was being read from."""
        if not self.look_every_s or not self.watching or now < self.look_at:
            return False
        self.silent_looks = self.silent_looks + 1 if self.received_at == self.seen_at else 0
        self.seen_at = self.received_at
        self.look_at = now + self.look_every_s
        return self.silent_looks >= SILENT_LOOKS

    def is_due(self, now: float, written: int) -> bool:
        """Return whether nothing was written since the last check, if it is time to check again."""
        if not self.beat_every_s or now < self.beat_at:
            return False
        is_idle = self.written in (-1, written)
        self.written = written
        self.beat_at = now + self.beat_every_s
        return is_idle

    def beaten(self, written: int) -> None:
        """Called after a heartbeat was written, which does not count as output."""
        self.written = written
