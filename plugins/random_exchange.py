"""`x-random`: one of the bound queues at random, each with the same probability; keys do not matter."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

from leveret.exchanges.destination import Destination
from leveret.exchanges.exchange_type import Exchange, ExchangeType
from leveret.message import Message


class RandomExchange(ExchangeType):
    name = "x-random"

    def __init__(self, exchange: Exchange, random: Random | None = None) -> None:
        super().__init__(exchange)
        self._random = random or Random()

    def route(self, message: Message) -> Iterable[Destination]:
        # A queue that is bound twice counts once. A dict keeps the order, so that a seeded Random repeats itself.
        distinct = list(dict.fromkeys(binding.destination for binding in self.exchange.bindings))
        return [self._random.choice(distinct)] if distinct else []
