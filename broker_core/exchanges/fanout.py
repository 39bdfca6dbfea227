"""The exchange type `fanout` routes to every bound destination, whatever the key."""

from __future__ import annotations

from collections.abc import Iterable

from mypy_extensions import mypyc_attr

from leveret.exchanges.destination import Destination
from leveret.exchanges.exchange_type import ExchangeType, LooksAt
from leveret.message import Message


@mypyc_attr(allow_interpreted_subclasses=True)
class Fanout(ExchangeType):
    name = "fanout"
    description = "every bound destination, whatever the key"
    looks_at = LooksAt.NOTHING

    def route(self, message: Message) -> Iterable[Destination]:
        return [binding.destination for binding in self.exchange.bindings]
