"""The contents of a connection that have been received in part: bounded together, and each of them has to go on.

A content that does not go on is looked at twice, half of `STALLED_S` apart, before it is given up: a node that was
suspended itself finds what has come meanwhile in between. The time in which nothing is read from the peer does not
count.
"""

from __future__ import annotations

from typing import Final

STALLED_S: Final = 60.0  # without a byte of a content
LARGEST: Final = 8  # contents of the greatest size that may be unfinished at the same time
SIZE_MIN: Final = 1 << 20  # of these, where messages have to be smaller


class UnfinishedContents:
    """The contents of a connection that are not whole yet, by the channel or link on which each of them comes.

    Times are monotonic seconds.
    """

    __slots__ = ("_look_at", "_parts", "_seen", "size", "size_max")

    def __init__(self) -> None:
        self.size = 0  # bytes of them all
        self.size_max = LARGEST * SIZE_MIN
        # Size, and time of the last part; the one that has not gone on for longest comes first.
        self._parts: dict[object, tuple[int, float]] = {}
        self._seen = -1.0  # the time of the first one's last part, and of the last byte, at the last look
        self._look_at = 0.0

    def bound(self, message_size_max: int) -> None:
        """Set the bound for messages of up to this size."""
        self.size_max = LARGEST * max(message_size_max, SIZE_MIN)

    def add(self, owner: object, octets: int, now: float) -> bool:
        """Count a part of a content; return whether all of them are within the bound."""
        size, _ = self._parts.pop(owner, (0, now))
        self._parts[owner] = size + octets, now
        self.size += octets
        return self.size <= self.size_max

    def remove(self, owner: object) -> None:
        """Forget a content that is whole, or given up; there may be none."""
        found = self._parts.pop(owner, None)
        if found is not None:
            self.size -= found[0]

    def restart(self, now: float) -> None:
        """Let each of them have the whole time from now on."""
        for owner, (size, _) in self._parts.items():
            self._parts[owner] = size, now

    def deadline(self) -> float | None:
        """Return when to look for one that does not go on, or None if there is none at all."""
        for _, at in self._parts.values():
            return max(at + STALLED_S / 2, self._look_at)
        return None

    def stalled(self, now: float, heard_at: float) -> object | None:
        """Look, if it is time, and return the owner of a content that does not go on, or None.

        `heard_at` is the time of the last byte, if a frame is incomplete, which may belong to the content; else 0.
        """
        deadline = self.deadline()
        if deadline is None or now < deadline:
            return None
        owner, (_, at) = next(iter(self._parts.items()))
        seen, self._seen = self._seen, max(at, heard_at)
        self._look_at = now + STALLED_S / 2
        return owner if seen == self._seen else None
