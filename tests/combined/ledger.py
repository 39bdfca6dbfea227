"""The ledger of a run: what publishers were promised, what is done with, and what may be gone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

BODY = len(b"m000001")  # bytes of a body; what stands before it in a message of AMQP 1.0 is its sections


class Ledger:
    """Knows each body that was published, which is that of one message."""

    def __init__(self) -> None:
        self.confirmed: set[bytes] = set()
        self.settled: set[bytes] = set()  # and come never again
        self.excused: set[bytes] = set()  # may be gone: deleted, purged, replaced, or of an unknown outcome
        self._of: dict[str, set[bytes]] = {}  # what was published to each queue
        self._count = 0

    def new(self, queue: str) -> bytes:
        """Return the body of the next message, which is published to this queue."""
        self._count += 1
        body = b"m%06d" % self._count
        self._of.setdefault(queue, set()).add(body)
        return body

    def came(self, body: bytes) -> None:
        assert body not in self.settled, f"{body!r} comes again, and was settled"

    def settle(self, body: bytes) -> None:
        self.came(body)
        self.settled.add(body)

    def excuse(self, bodies: Iterable[bytes]) -> None:
        self.excused.update(bodies)

    def excuse_all(self) -> None:
        self.excuse(body for bodies in self._of.values() for body in bodies)

    def close(self, found: Iterable[bytes]) -> None:
        """Compare with all that was in queues at the end."""
        counts = Counter(found)
        twice = sorted(body for body, count in counts.items() if count > 1)
        assert not twice, f"twice in queues: {twice}"
        back = sorted(self.settled & counts.keys())
        assert not back, f"settled, and still in a queue: {back}"
        missing = sorted(self.confirmed - counts.keys() - self.settled - self.excused)
        assert not missing, f"confirmed, and nowhere: {missing}"
