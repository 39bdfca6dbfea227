"""Signs of life in both directions: when the peer wants one, and when it has been silent for too long (S167, X049)."""


class Heartbeat:
    """Who wants a sign how often, and the time of the last ones. An interval of 0 means never."""

    __slots__ = ("beat_at", "beat_every_s", "received_at", "silence_max_s", "written")

    def __init__(self, now: float, silence_max_s: float) -> None:
        self.silence_max_s = silence_max_s
        self.beat_every_s = 0.0
        self.received_at = now  # any octet is a sign of life
        self.beat_at = now  # when to look whether we were idle
        self.written = -1

    def start(self, peer_timeout_s: float) -> None:
        """The peer gives us up when we are silent for so long; 0: never. We are not for half of it.

        What was written since we looked last may have been written right after that: so we look twice as often.
        """
        self.beat_every_s = peer_timeout_s / 4
        self.beat_at = self.received_at + self.beat_every_s

    def deadline(self) -> float | None:
        silent_at = self._silent_at()
        if not self.beat_every_s:
            return silent_at
        return self.beat_at if silent_at is None else min(self.beat_at, silent_at)

    def is_missed(self, now: float) -> bool:
        """The peer was silent for too long."""
        silent_at = self._silent_at()
        return silent_at is not None and now >= silent_at

    def _silent_at(self) -> float | None:
        return self.received_at + self.silence_max_s if self.silence_max_s else None

    def is_due(self, now: float, written: int) -> bool:
        """Nothing was written since we looked last."""
        if not self.beat_every_s or now < self.beat_at:
            return False
        idle = written == self.written
        self.written = written
        self.beat_at = now + self.beat_every_s
        return idle
