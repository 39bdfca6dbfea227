"""The guest that has exchanges and queues drop duplicates where arguments and policies ask for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from leveret.arguments.deduplication_settings import DeduplicationSettings, settings_in, settings_of
from leveret.features.deduplication.deduplication import Deduplication, fits, new_deduplication
from leveret.guests import Guest

if TYPE_CHECKING:
    from leveret.broker import Broker
    from leveret.exchanges.exchange_type import Exchange
    from leveret.queues.queue import Queue
    from leveret.values import Table


class Deduplications(Guest):
    """Makes what exchanges and queues need to drop duplicates, and ends it, as arguments and policies say."""

    rank: ClassVar[int] = 0  # others see exchanges and queues as they are then

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def exchange_changed(self, exchange: Exchange, definition: Table) -> None:
        """Have an exchange drop duplicates from now on, or no longer, as its arguments and policies say."""
        settings = settings_of(exchange.arguments, definition, exchange.type.deduplicates)
        if settings is not None or exchange.deduplication is not None:
            self._obey(exchange, settings)

    def exchange_deleted(self, exchange: Exchange) -> None:
        """Forget the ids that a deleted exchange knew, also those on disk."""
        self._forget(exchange)

    def queue_changed(self, queue: Queue, definition: Table) -> None:
        """Have a queue drop duplicates from now on, or no longer, as its arguments and policies say."""
        if queue.limits.deduplicates is not None or queue.deduplication is not None:
            self._obey(queue, settings_in(queue.limits))

    def queue_deleted(self, queue: Queue) -> None:
        """Forget the ids that a deleted queue knew, also those on disk."""
        self._forget(queue)

    def _obey(self, owner: Exchange | Queue, settings: DeduplicationSettings | None) -> None:
        """Have an exchange or a queue drop duplicates by these settings from now on, or no longer."""
        known = known_to(owner)
        if known is not None and (settings is None or not fits(known, owner, settings)):
            self._forget(owner)
            known = None
            owner.deduplicate(None)
        if settings is None:
            return
        if known is None:
            known = new_deduplication(owner.virtual_host, owner, settings)
            owner.deduplicate(known)
        known.obey(settings)
        if self._broker.catalogue is not None:
            self._broker.catalogue.keep(known)

    def _forget(self, owner: Exchange | Queue) -> None:
        """Remove the ids that an exchange or a queue has in the store."""
        known = known_to(owner)
        if known is not None and self._broker.catalogue is not None:
            self._broker.catalogue.forget(known)
            known.end()


def known_to(owner: Exchange | Queue) -> Deduplication | None:
    """Return what an exchange or a queue has to drop duplicates, if it does."""
    known = owner.deduplication
    assert known is None or isinstance(known, Deduplication), "nothing else makes them"
    return known
