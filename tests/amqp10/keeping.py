"""A world with a store, and its next start.

before = KeptWorld()
after = before.again()          # connections, sessions and links have ended; what was on disk is there
"""

from __future__ import annotations

from broker_core.durability import recovery
from broker_core.durability.journal import Journal
from broker_core.durability.restore import restore
from broker_core.store.memory import MemoryStore
from protocols.amqp10.broker.encoding import ENCODING
from protocols.amqp10.broker.registration import restored
from tests.amqp10.peer import World
from tests.amqp10.subscribing import PATIENT


class KeptWorld(World):
    """A world with a store."""

    def __init__(self, store: MemoryStore | None = None) -> None:
        super().__init__(PATIENT)
        self.store = store or MemoryStore()
        self.journal = Journal(self.store, self.broker, {ENCODING.name: lambda: ENCODING})
        restore(self.broker, self.journal)
        recovery.messages(self.broker, self.journal)
        restored(self.broker)
        self.journal.start(lambda told: told())
        self.settle()

    def again(self) -> KeptWorld:
        """The node was killed, and starts again."""
        self.settle()
        return KeptWorld(self.store.reopened())
