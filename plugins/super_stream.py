"""`x-super-stream`: each routing key to one partition of a super stream, by a hash, as RabbitMQ's stream clients do it.

    exchange ──"0"──> events-0        the binding keys are the numbers of the partitions
             ──"1"──> events-1        a message goes where hash(routing key) modulo the number of bindings leads

The hash is MurmurHash3 for 32 bits with the seed 104729. A number without a binding gets its messages nowhere.

Source: RabbitMQ's exchange type of this name, in its plug-in for streams; A. Appleby, MurmurHash3.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from leveret.errors import PreconditionFailed
from leveret.exchanges.destination import Destination
from leveret.exchanges.exchange_type import Binding, Exchange, ExchangeType, LooksAt
from leveret.message import Message
from leveret.values import Table, printed

SEED: Final = 104729
NUMBER: Final = re.compile(r"[+-]?[0-9]{1,9}")
MASK: Final = 0xFFFF_FFFF


class SuperStream(ExchangeType):
    name = "x-super-stream"
    looks_at = LooksAt.KEY

    def __init__(self, exchange: Exchange) -> None:
        super().__init__(exchange)
        # By binding key; None after bindings have changed.
        self._partitions: dict[str, Destination] | None = None

    def validate_binding(self, key: str, arguments: Table) -> None:
        if not NUMBER.fullmatch(key):
            raise PreconditionFailed(f"The binding key must be an integer: '{printed(key)}'")

    def bind(self, binding: Binding) -> None:
        self._partitions = None

    def unbind(self, binding: Binding) -> None:
        self._partitions = None

    def route(self, message: Message) -> Iterable[Destination]:
        partitions = self._partitions
        if partitions is None:
            partitions = {}
            for binding in self.exchange.bindings:
                partitions.setdefault(binding.key, binding.destination)  # of two with one key, the older one
            self._partitions = partitions
        if not partitions:
            return []
        hashed = murmur3(message.key.encode("utf-8", "surrogateescape"), SEED)
        found = partitions.get(str(hashed % len(self.exchange.bindings)))
        return [] if found is None else [found]


def murmur3(octets: bytes, seed: int) -> int:
    """Return the MurmurHash3 (x86, 32 bits) of some bytes."""
    hashed = seed
    whole = len(octets) & ~3
    for at in range(0, whole, 4):
        hashed ^= _mixed(int.from_bytes(octets[at : at + 4], "little"))
        hashed = (_rotated(hashed, 13) * 5 + 0xE654_6B64) & MASK
    hashed ^= _mixed(int.from_bytes(octets[whole:], "little")) ^ len(octets)
    hashed = ((hashed ^ hashed >> 16) * 0x85EB_CA6B) & MASK
    hashed = ((hashed ^ hashed >> 13) * 0xC2B2_AE35) & MASK
    return hashed ^ hashed >> 16


def _mixed(number: int) -> int:
    return (_rotated(number * 0xCC9E_2D51 & MASK, 15) * 0x1B87_3593) & MASK


def _rotated(number: int, bits: int) -> int:
    return (number << bits | number >> 32 - bits) & MASK
