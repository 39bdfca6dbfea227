"""`x-local-random`: one of the bound classic queues at random, for requests to many servers with a queue each.

As in RabbitMQ's documentation of the local random exchange, which chooses among the queues on the node of the
publisher; here there is one node, so every queue is local. Binding keys have to be empty, and of queues only classic
ones can be bound. Routing keys do not matter.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

from leveret.errors import PreconditionFailed
from leveret.exchanges.destination import Destination
from leveret.exchanges.exchange_type import Binding, Exchange, ExchangeType
from leveret.limits import QueueType
from leveret.message import Message
from leveret.queues.queue import Queue
from leveret.values import Table, printed


class LocalRandom(ExchangeType):
    name = "x-local-random"

    def __init__(self, exchange: Exchange, random: Random | None = None) -> None:
        super().__init__(exchange)
        self._random = random or Random()
        self._queues: list[Destination] | None = None  # each once; None after bindings have changed

    def validate_binding(self, key: str, arguments: Table) -> None:
        if key:
            raise PreconditionFailed(f"Non empty binding '{printed(key)}' key not permitted")

    def bind(self, binding: Binding) -> None:
        target = binding.end
        if target.is_exchange:
            raise PreconditionFailed("Destination not found")
        if isinstance(target, Queue) and target.type is not QueueType.CLASSIC:
            raise PreconditionFailed(f"Queue type {target.type.module} not valid for this exchange type")
        self._queues = None

    def unbind(self, binding: Binding) -> None:
        self._queues = None

    def route(self, message: Message) -> Iterable[Destination]:
        if self._queues is None:
            self._queues = list(dict.fromkeys(binding.destination for binding in self.exchange.bindings))
        return [self._random.choice(self._queues)] if self._queues else []
