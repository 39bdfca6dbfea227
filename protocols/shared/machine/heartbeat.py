"""Heartbeats in both directions: when one is due from us, and when the peer has been silent for too long.

AMQP 0-9-1 and 0-10 agree on one interval for both directions (S013), 1.0 has an idle time-out for each (S167, X049).
"""


class Heartbeat:
    """The intervals of heartbeats, the longest silence of the peer, and the times of the last activity; 0 is never."""

    __slots__ = ("beat_at", "beat_every_s", "received_at", "silence_max_s", "watching", "written")

    def __init__(self, now: float) -> None:
        self.beat_every_s = 0.0
        self.silence_max_s = 0.0
        self.received_at = now  # any byte counts as a heartbeat
        self.watching = True
        self.beat_at = now  # when to check next whether we were idle
        self.written = -1

    def start(self, beat_every_s: float, silence_max_s: float) -> None:
        """Set the negotiated limits. Output since the last check may have been written right after that check, so our
        longest silence is twice `beat_every_s`."""
        self.beat_every_s = beat_every_s
        self.silence_max_s = silence_max_s
        self.beat_at = self.received_at + beat_every_s

    def deadline(self) -> float | None:
        beat_at = self.beat_at if self.beat_every_s else None
        if not self.silence_max_s or not self.watching:
            return beat_at
        silent_at = self.received_at + self.silence_max_s
        return silent_at if beat_at is None else min(beat_at, silent_at)

    def is_missed(self, now: float) -> bool:
        """Return whether the peer was silent for too long, though it was being read from."""
        return self.silence_max_s > 0 and self.watching and now >= self.received_at + self.silence_max_s

    def is_due(self, now: float, written: int) -> bool:
        """Return whether nothing was written since the last check, if it is time to check again."""
        if not self.beat_every_s or now < self.beat_at:
            return False
        idle = written == self.written
        self.written = written
        self.beat_at = now + self.beat_every_s
        return idle
