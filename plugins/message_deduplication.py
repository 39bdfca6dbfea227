"""`x-message-deduplication`: to every bound queue, like a fanout, unless a message with the same id was there before.

The argument `x-cache-size` says how many ids are known at most, and is required; `x-cache-ttl`, `x-cache-persistence`
and `x-deduplication-header` may be added (`broker_core/arguments/deduplication_settings.py`). Names and arguments are
those of the community plug-in for RabbitMQ (noxdafox/rabbitmq-message-deduplication). Here any other exchange can drop
duplicates, too, with the argument `x-message-deduplication`.
"""

from __future__ import annotations

from collections.abc import Iterable

from leveret.arguments.deduplication_settings import SIZE
from leveret.errors import PreconditionFailed
from leveret.exchanges.destination import Destination
from leveret.exchanges.exchange_type import ExchangeType, LooksAt
from leveret.message import Message
from leveret.values import Table


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
