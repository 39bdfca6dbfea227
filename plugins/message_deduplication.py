"""`x-message-deduplication`: to every bound queue, like a fanout, unless a message with the same id was there before.

The argument `x-cache-size` says how many ids are known at most, and is required; `x-cache-ttl`, `x-cache-persistence`
and `x-deduplication-header` may be added (`broker_core/deduplication/settings.py`). Names and arguments are those of
the community plug-in for RabbitMQ (noxdafox/rabbitmq-message-deduplication). Here any other exchange can drop
duplicates, too, with the argument `x-message-deduplication`.
"""

from __future__ import annotations

from collections.abc import Iterable

from broker_core.deduplication.settings import SIZE
from broker_core.errors import PreconditionFailed
from broker_core.exchanges.exchange import Destination, ExchangeType, LooksAt
from broker_core.message import Message
from broker_core.values import Table


class MessageDeduplication(ExchangeType):
    name = "x-message-deduplication"
    looks_at = LooksAt.NOTHING
    deduplicates = True

    @classmethod
    def validate(cls, arguments: Table) -> None:
        if SIZE not in arguments:
            raise PreconditionFailed(f"Missing argument, '{SIZE}' must be an integer greater than 0")

    def route(self, message: Message) -> Iterable[Destination]:
        return [binding.destination for binding in self.exchange.bindings]
