"""Keep a node's objects and messages on disk.

    start   store opened ─> queues restored, their messages recovered ─> commits
    end     last commit ─> store closed

Confirms wait in the journal. Every other answer that promises something (to a declaration, a commit, an HTTP request)
waits in the transport, whatever the protocol (`feeds.py`): no front-end knows of it.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from leveret.alarms import DiskMonitor
from leveret.arguments.names import counted
from leveret.config.store import POSTGRES
from leveret.durable import recovery, restoration
from leveret.durable.journal import Journal
from leveret.durable.missing_protocols import MissingProtocols
from leveret.durable.store.contract import Store, StoreError
from leveret.durable.stored_catalogue import StoredCatalogue
from leveret.features.kinds import KINDS
from leveret.front_end import encodings_of
from leveret.memory_tuning import no_collection
from leveret.server.node.feeds import Feeds

if TYPE_CHECKING:
    from leveret.broker import Broker
    from leveret.config.config import Config
    from leveret.front_end import Protocol

log: Final = logging.getLogger("leveret.store")

# With Python's own 5 ms a busy loop keeps the writer waiting: 200 ms a commit.
SWITCH_INTERVAL_S: Final = 1e-4
PATIENCE_S: Final = 0.002
QUICK_S: Final = 0.001
LOOK_SHARE: Final = 16  # part of the room on the disk that is read between two checks of the alarms
PROGRESS_S: Final = 1.0  # between two lines about a long recovery

Soon: TypeAlias = Callable[[Callable[[], None]], None]


def opened(config: Config) -> Store:
    """Open the store that the configuration names. Raises BadFolder, StoreError."""
    if config.store.engine == POSTGRES:
        from leveret.durable.store.postgres import opening

        return opening.opened(config.store.postgres, config.node.name, config.node.data_dir)
    from leveret.durable.store.redo_policy import REDO_OCTETS  # a node in memory need not load these
    from leveret.durable.store.reserve import drain_octets
    from leveret.durable.store.sqlite import SqliteStore

    assert config.node.data_dir is not None, "a node in memory opens no store"
    return SqliteStore(config.node.data_dir, drain_octets(config.node.data_dir), REDO_OCTETS)


class Persistence:
    """The store of one node, from its start to its end."""

    def __init__(
        self,
        broker: Broker,
        store: Store,
        folder: Path | None,
        protocols: Iterable[Protocol],
        sources: Mapping[str, str] | None = None,
    ) -> None:
        """`folder` is the store's data folder, if it has one.

        `sources` tells of the protocols that do not come with Leveret where each comes from.
        """
        self._protocols = tuple(protocols)
        self._sources = sources or {}
        self._missing: MissingProtocols | None = None
        self.folder = folder
        self.journal = Journal(store, broker, encodings_of(self._protocols))
        self.journal.patience_s = PATIENCE_S
        self.journal.quick_s = QUICK_S
        for monitor in broker.alarms.monitors:
            if isinstance(monitor, DiskMonitor):
                monitor.ahead = self.journal.ahead
        self._broker = broker
        self.feeds = Feeds(broker, self.journal)
        self.journal.on_durable = self.feeds.landed
        self._switch_interval_s = sys.getswitchinterval()

    # Start.

    def restore(self) -> None:
        """Restore the declared objects; the configuration is laid over them later. Raises StoreError."""
        restoration.restore(self._broker, self.journal, KINDS)

    def recover(self) -> None:
        """Return the stored messages to the restored queues, and let these begin to work. Raises StoreError."""
        began = told = time.monotonic()

        def progress(messages: int) -> None:
            nonlocal told
            if time.monotonic() - told >= PROGRESS_S:
                told = time.monotonic()
                log.info("recovering: %s so far", counted(messages, "message"))

        with no_collection():
            found = recovery.messages(self._broker, self.journal, progress)
        queues = sum(
            queue.journal is not None for host in self._broker.hosts() for queue in host.queues.values()
        )
        log.info(
            "recovered %s with %s%s in %.2f s",
            counted(queues, "durable queue"),
            counted(found.messages, "message"),
            f" from {self.folder}" if self.folder else "",
            time.monotonic() - began,
        )
        for text in self.journal.store.damage:
            log.error("the store is damaged: %s", text)
        if not self.journal.store.was_clean:
            log.warning(
                "unclean shutdown: the node before this one did not stop by itself; what it had confirmed is here, and"
                " messages of queues count as delivered before"
            )
        if isinstance(catalogue := self._broker.catalogue, StoredCatalogue):
            durable = {each.name for each in self._protocols if each.encoding is not None}
            sources = {name: source for name, source in self._sources.items() if name in durable}
            self._missing = MissingProtocols(self._broker, self.journal, catalogue.protocols, sources)
        restoration.begin(self._broker, KINDS)
        for protocol in self._protocols:
            if protocol.restored is not None:
                protocol.restored(self._broker)

    def start(self, soon: Soon, failed: Callable[[StoreError], None]) -> None:
        """Commit from now on. `soon` runs a function in this thread, then has the broker settle. Raises StoreError."""
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        self.journal.on_failed = failed
        self.journal.start(soon)
        if self._missing is not None:
            self._missing.count()

    # Running.

    def portion(self) -> int:
        """Return how many bytes may be read before it has to be known again how much room the disk has."""
        return self.journal.store.room // LOOK_SHARE

    # End.

    def close(self) -> None:
        """Commit what is open, and close the store. Raises StoreError."""
        sys.setswitchinterval(self._switch_interval_s)
        self.journal.close()

    def give_up(self) -> None:
        """Leave the store as it is; if it was not started yet, as if it had never been opened."""
        sys.setswitchinterval(self._switch_interval_s)
        self.journal.give_up()
