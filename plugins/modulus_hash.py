"""`x-modulus-hash`: each routing key to one queue, spread evenly; binding keys do not matter.

The bound destinations are sorted by name, and the hash of the key modulo their number picks one. Cheap and even, but
most keys move when a queue comes or goes: `x-consistent-hash` avoids that.
"""

from __future__ import annotations

from collections.abc import Iterable
from zlib import crc32

from leveret.exchanges.destination import Destination
from leveret.exchanges.exchange_type import Binding, Exchange, ExchangeType, LooksAt
from leveret.message import Message


class ModulusHash(ExchangeType):
    name = "x-modulus-hash"
    looks_at = LooksAt.KEY

    def __init__(self, exchange: Exchange) -> None:
        super().__init__(exchange)
        self._destinations: list[Destination] | None = None  # sorted; None after bindings have changed

    def bind(self, binding: Binding) -> None:
        self._destinations = None

    def unbind(self, binding: Binding) -> None:
        self._destinations = None

    def route(self, message: Message) -> Iterable[Destination]:
        if self._destinations is None:
            self._destinations = in_order(self.exchange.bindings)
        if not self._destinations:
            return []
        hashed = crc32(message.key.encode("utf-8", "surrogatepass"))  # the same in every process
        return [self._destinations[hashed % len(self._destinations)]]


def in_order(bindings: Iterable[Binding]) -> list[Destination]:
    """Return the bound destinations, each once, independent of the order in which they were bound."""
    distinct = {binding.destination for binding in bindings}
    return sorted(distinct, key=lambda destination: (destination.kind, destination.name))
