"""Staged publishing: many rows, in batches, from many tasks at a time, published as a whole or not at all, and once.

    stage ──> staged, seen by nobody ──commit──> committed ──poured, a portion at a time──> in the queues
                     └─abort, or nobody comes back─> gone

A staging has a log of its own, where rows lie until they are published. How far each batch is stands in the same
commit as what was done (`Log.note`), so that after a crash it goes on where it was.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.log import Log, MemoryLog

if TYPE_CHECKING:
    from broker_core.store.journal import Journal
    from broker_core.topology import VirtualHost


class Staging:
    """The batches of one producer, one after the other."""

    __slots__ = ("log", "name", "number", "virtual_host")

    def __init__(self, virtual_host: VirtualHost, name: str) -> None:
        self.virtual_host = virtual_host
        self.name = name
        self.number = 0  # in the store
        self.log: Log = MemoryLog()

    @property
    def described(self) -> str:
        """The staging as error texts name it."""
        return f"staging '{self.name}' in vhost '{self.virtual_host.name}'"

    def keep_in(self, journal: Journal, number: int) -> None:
        """It outlives the node. Said before it is used."""
        self.number = number
        self.log = journal.open_log(number, self.described, self._committed)

    def _committed(self) -> None:
        """The log has more to read."""

    def begin(self) -> None:
        """It has come back at a start, with its log."""

    def end(self) -> None:
        """Nobody wants it any more: what is not published goes with it."""
        catalogue = self.virtual_host.broker.catalogue
        if catalogue is not None:
            catalogue.forget_staging(self)
        self.log.end()
        self.log = MemoryLog()
