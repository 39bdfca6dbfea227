"""The default exchange: routing key K goes to queue K (S053, S072). Its bindings are implied and never stored."""

from __future__ import annotations

from collections.abc import Iterable

from mypy_extensions import mypyc_attr

from broker_core.exchanges.exchange import Destination, ExchangeType, LooksAt
from broker_core.message import Message


@mypyc_attr(allow_interpreted_subclasses=True)
class ByQueueName(ExchangeType):
    name = "direct"  # the type that clients and operators are shown
    looks_at = LooksAt.KEY

    def route(self, message: Message) -> Iterable[Destination]:
        find = self.exchange.virtual_host.destination_queue
        return [queue for key in message.keys if (queue := find(key)) is not None]
