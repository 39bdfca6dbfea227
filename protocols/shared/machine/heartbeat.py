"""Signs of life in both directions: when one is due from us, and when the peer has been silent for too long.

AMQP 0-9-1 and 0-10 agree on one interval for both directions (S013), 1.0 has an idle time-out of each (S167, X049).
"""


class Heartbeat:
    """How often a sign is due, how long the peer may be silent, and the time of the last signs; 0 is never."""

    __slots__ = ("beat_at", "beat_every_s", "received_at", "silence_max_s", "watching", "written")

    def __init__(self, now: float) -> None:
        self.beat_every_s = 0.0
        self.silence_max_s = 0.0
        self.received_at = now  # any byte is a sign of life
        self.watching = True
        self.beat_at = now  # when to look whether we were idle
        self.written = -1

    def start(self, beat_every_s: float, silence_max_s: float) -> None:
        """The limits are agreed. What was written since we looked last may have been written right after that, so the
        longest silence of ours is twice `beat_every_s`."""
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
        """The peer was silent for too long, though it was being read from."""
        return self.silence_max_s > 0 and self.watching and now >= self.received_at + self.silence_max_s

    def is_due(self, now: float, written: int) -> bool:
        """Nothing was written since we looked last."""
        if not self.beat_every_s or now < self.beat_at:
            return False
        idle = written == self.written
        self.written = written
        self.beat_at = now + self.beat_every_s
        return idle
