"""The gathered dispositions of an AMQP 1.0 session: consecutive delivery ids become a single disposition."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from leveret.protocols.amqp10.codec.wire import disposition_frame, runs

SETTLED_ACCEPTED: Final = b"\x41\x00\x53\x24\x45"  # settled: true, state: accepted


class Dispositions:
    """The gathered answers of a session; `accepted` holds the peer's deliveries that are accepted and settled."""

    __slots__ = ("_channel", "_others", "accepted")

    def __init__(self, channel: int) -> None:
        self._channel = channel
        self.accepted: list[int] = []
        self._others: list[tuple[bool, int, bytes]] = []

    def add(self, receiver: bool, delivery_id: int, end: bytes) -> None:
        """Add an answer to a delivery: the peer's if we are the `receiver`. `end` has the disposition's last fields."""
        self._others.append((receiver, delivery_id, end))

    def clear(self) -> None:
        self.accepted = []
        self._others = []

    def tell(self, write: Callable[[bytes], None]) -> None:
        """Write the dispositions, if there are any, and clear them."""
        if self._others:
            self._tell_all(write)
        elif self.accepted:
            accepted, self.accepted = self.accepted, []
            accepted.sort()
            for first, last in runs(accepted):
                write(disposition_frame(self._channel, True, first, last, SETTLED_ACCEPTED))

    def _tell_all(self, write: Callable[[bytes], None]) -> None:
        others = [*self._others, *[(True, each, SETTLED_ACCEPTED) for each in self.accepted]]
        others.sort(key=_delivery)  # stable: two answers for one delivery stay in their order
        self.clear()
        at = 0
        while at < len(others):
            receiver, first, end = others[at]
            last = first
            at += 1
            while at < len(others) and others[at] == (receiver, last + 1, end):
                last += 1
                at += 1
            write(disposition_frame(self._channel, receiver, first, last, end))


def _delivery(answer: tuple[bool, int, bytes]) -> tuple[bool, int]:
    return answer[:2]
