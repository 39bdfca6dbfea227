"""`x-consistent-hash`: each key to one queue, always the same, in proportion to the queues' weights.

The binding key is the weight: a whole number, 0 for a queue that gets nothing (X015). The exchange hashes the routing
key, or the header named by the argument `hash-header`, or the property named by `hash-property`; messages without it
all go to one queue.

Every binding draws a number for the key, from a hash of both, and the highest wins (weighted rendezvous hashing). A new
binding takes its share from all others alike, a removed one leaves its keys to all others alike, and no other key
moves. There is no ring to fill, so any weight costs the same: one hash per binding and message, 1 us. Only the names
and the key decide, so every process on every machine agrees.
"""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from math import log
from typing import Final

from leveret.arguments.checks import one_of, text_fault
from leveret.arguments.exchange_arguments import ExchangeArgument
from leveret.errors import PreconditionFailed
from leveret.exchanges.destination import Destination
from leveret.exchanges.exchange_type import Binding, Exchange, ExchangeType
from leveret.message import Message
from leveret.values import Table, Value, printed, type_name

WEIGHT_MAX: Final = 2**31 - 1
PROPERTIES: Final = ("message_id", "correlation_id", "timestamp")


class Candidate:
    """A binding that may win a key."""

    __slots__ = ("_hash", "destination", "weight")

    def __init__(self, binding: Binding) -> None:
        destination = binding.destination
        self.destination = destination
        self.weight = int(binding.key)
        seed = f"{destination.kind}\0{destination.name}\0{binding.key}\0"
        if binding.selector is not None:
            seed += f"{binding.selector.text}\0"
        self._hash = blake2b(octets(seed), digest_size=8)

    def drawn_for(self, key: bytes) -> float:
        """Return the number for a key: the probability that it is the highest is in proportion to the weight."""
        hashed = self._hash.copy()
        hashed.update(key)
        chance = ((int.from_bytes(hashed.digest(), "big") >> 12) + 0.5) / 2**52  # above 0, below 1, exact
        return self.weight / -log(chance)


class ConsistentHash(ExchangeType):
    name = "x-consistent-hash"
    arguments = (
        ExchangeArgument(
            name="hash-header",
            about="The header that is hashed instead of the routing key.",
            check=text_fault,
            example="customer",
        ),
        ExchangeArgument(
            name="hash-property",
            about="The property that is hashed instead of the routing key: message_id, correlation_id or timestamp.",
            check=one_of(*PROPERTIES),
            example="message_id",
        ),
    )

    def __init__(self, exchange: Exchange) -> None:
        super().__init__(exchange)
        self._header = text_argument(exchange.arguments, "hash-header")
        self._property = text_argument(exchange.arguments, "hash-property")
        self._candidates: dict[tuple[object, ...], Candidate] = {}  # by the binding's identity

    @classmethod
    def validate(cls, arguments: Table) -> None:
        header = text_argument(arguments, "hash-header")
        property_ = text_argument(arguments, "hash-property")
        if header is not None and property_ is not None:
            raise PreconditionFailed("hash-header and hash-property are mutually exclusive")
        if property_ is not None and property_ not in PROPERTIES:
            raise PreconditionFailed(
                f"Unsupported property: {property_}; expected one of {', '.join(PROPERTIES)}"
            )

    def validate_binding(self, key: str, arguments: Table) -> None:
        if not (key.isascii() and key.isdecimal() and len(key) <= 10 and int(key) <= WEIGHT_MAX):
            raise PreconditionFailed(
                f"The binding key of an x-consistent-hash exchange is a weight from 0 to {WEIGHT_MAX}, not '{key}'"
            )

    def bind(self, binding: Binding) -> None:
        if int(binding.key) > 0:
            self._candidates[binding.identity] = Candidate(binding)

    def unbind(self, binding: Binding) -> None:
        self._candidates.pop(binding.identity, None)

    def route(self, message: Message) -> Iterable[Destination]:
        if not self._candidates:
            return []
        key = octets(self._hashed_of(message))
        return [max(self._candidates.values(), key=lambda candidate: candidate.drawn_for(key)).destination]

    def _hashed_of(self, message: Message) -> str:
        if self._header is not None:
            return printed_or_nothing(message.header(self._header))
        if self._property is not None:
            return printed_or_nothing(message.encoding.property(message.properties, self._property))
        return message.key


def text_argument(arguments: Table, name: str) -> str | None:
    value = arguments.get(name)
    if value is None or isinstance(value, str):
        return value
    raise PreconditionFailed(f"Invalid argument {name} of type {type_name(value)}; expected longstr")


def printed_or_nothing(value: Value) -> str:
    return "" if value is None else printed(value)


def octets(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")  # text that was not UTF-8 on the wire hashes too
