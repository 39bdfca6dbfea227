"""Leases: messages of a work queue, set aside for one reader, to be read as often as it likes until it settles them.

A lease has a log of its own. To reserve messages is to take them out of the queue and to append them to the log, in
one commit: so they have offsets, and a reader that begins again reads the same ones. What is settled is gone; what is
released goes back to its old place in the queue.

Who opens a lease gets its `fence`, and whoever had it before is shut out.
"""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING

from broker_core.log import Log, MemoryLog

if TYPE_CHECKING:
    from broker_core.store.journal import Journal
    from broker_core.work_queue import WorkQueue


class Lease:
    """What one reader has of one queue."""

    __slots__ = ("fence", "incarnation", "log", "number", "queue", "reader")

    def __init__(self, queue: WorkQueue, reader: str) -> None:
        self.queue = queue
        self.reader = reader
        self.fence = 0  # rises each time it is opened; only who knows the last one may change anything
        self.incarnation = secrets.token_hex(8)  # another one for another lease of the same name
        self.number = 0  # in the store
        self.log: Log = MemoryLog()

    @property
    def described(self) -> str:
        """The lease as error texts name it."""
        return f"lease '{self.reader}' of {self.queue.described}"

    def keep_in(self, journal: Journal, number: int) -> None:
        """It outlives the node. Said before it is used."""
        self.number = number
        self.log = journal.open_log(number, self.described, self._committed)

    def _committed(self) -> None:
        """The log has more for readers."""

    def begin(self) -> None:
        """It has come back at a start, with its log."""

    def end(self) -> None:
        """The queue is deleted, or nobody wants the lease any more: what it has goes with it."""
        catalogue = self.queue.virtual_host.broker.catalogue
        if catalogue is not None:
            catalogue.forget_lease(self)
        self.log.end()
        self.log = MemoryLog()
