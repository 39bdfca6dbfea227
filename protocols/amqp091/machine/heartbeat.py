"""Signs of life in both directions: when one is due from us, and when the peer has been silent for too long (S013)."""


class Heartbeat:
    """The agreed interval and the time of the last signs. An interval of 0 means that nobody beats or watches."""

    __slots__ = ("beat_at", "interval_s", "received_at", "watching", "written")

    def __init__(self, now: float) -> None:
        self.interval_s = 0
        self.received_at = now  # any octet is a sign of life
        self.watching = True
        self.beat_at = now  # when to look whether we were idle
        self.written = -1

    def start(self, interval_s: int) -> None:
        self.interval_s = interval_s
        self.beat_at = self.received_at + interval_s / 2

    def deadline(self) -> float | None:
        if not self.interval_s:
            return None
        return min(self.beat_at, self._silent_at()) if self.watching else self.beat_at

    def is_missed(self, now: float) -> bool:
        """The peer was silent for two intervals, though it was being read from."""
        return self.interval_s > 0 and self.watching and now >= self._silent_at()

    def _silent_at(self) -> float:
        return self.received_at + 2 * self.interval_s

    def is_due(self, now: float, written: int) -> bool:
        """Nothing was written since half an interval ago."""
        if not self.interval_s or now < self.beat_at:
            return False
        idle = written == self.written
        self.written = written
        self.beat_at = now + self.interval_s / 2
        return idle
