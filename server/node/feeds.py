"""Delay what depends on the disk: the answers to a batch of input, and the next reads of peers that are too fast.

    input processed ─> does an answer promise something? ─> its transport holds it until that is on disk
                    └> did it publish, and is the disk behind? ─> its transport is read from again a while later

It is compiled, as it is asked before and after each read.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from leveret.broker import Broker
    from leveret.durable.journal import Journal
    from leveret.server.node.transport import Transport


class Feeds:
    """The input of one node, from its processing until what it has caused is on disk."""

    def __init__(self, broker: Broker, journal: Journal) -> None:
        self._broker = broker
        self._journal = journal
        self._gathered = 0  # messages in the open commit when the last feed began
        # transport, whether it published, and the commit that its answers need; of this batch
        self.fed: list[tuple[Transport, bool, int]] = []
        self.delayed: dict[Transport, None] = {}  # those that hold answers, or are ahead of the disk

    def begins(self) -> None:
        """Called before a peer's input is processed."""
        journal = self._journal
        journal.holds = False
        self._gathered = journal.gathered

    def ends(self, transport: Transport) -> None:
        """Called after a peer's input was processed; notes whether its answers have to wait until `conclude`."""
        journal = self._journal
        published = journal.gathered != self._gathered
        needed = (journal.open if journal.dirty else journal.open - 1) if journal.holds else 0
        if published or needed:
            self.fed.append((transport, published, needed))

    def conclude(self, settle: Callable[[], None]) -> None:
        """Have `settle` settle the batch; each peer is answered, or read from again, once the disk is ready.

        Where nothing is `fed`, `settle` is all that this does.
        """
        journal = self._journal
        fed, self.fed = self.fed, []
        journal.holds = any(needed for _, _, needed in fed)
        settle()
        for transport, published, needed in fed:
            if needed > journal.durable:
                transport.hold(needed)
                self.delayed[transport] = None
            if published and journal.behind and self._broker.alarms.reason is None:
                transport.ahead = True  # during an alarm the front-end itself holds publishers back
                self.delayed[transport] = None

    def landed(self) -> None:
        """Answer, and read on, as far as the disk has come."""
        durable, behind = self._journal.durable, self._journal.behind
        for transport in list(self.delayed):
            if not transport.landed(durable, behind):
                del self.delayed[transport]

    def alarm(self) -> None:
        """Called when an alarm was raised or cleared: from here on the front-ends decide who waits."""
        for transport in self.delayed:
            transport.keep_reading()

    def fail(self) -> None:
        """Drop the held answers after the store has failed: what they promise will never be on disk."""
        for transport in self.delayed:
            transport.drop_held()
