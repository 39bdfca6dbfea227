"""`x-recent-history`: to every bound queue, and the last messages also to each queue that is bound later.

The argument `x-recent-history-length` says how many messages are remembered (20); a message with the header
`x-recent-history-no-store: true` is not. They are remembered in memory, until the node ends, and given to queues, not
to exchanges: an exchange that is bound has a history of its own or none.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

from leveret.arguments.checks import between
from leveret.arguments.exchange_arguments import ExchangeArgument
from leveret.errors import PreconditionFailed
from leveret.exchanges.destination import Destination
from leveret.exchanges.exchange_type import Binding, Exchange, ExchangeType, LooksAt
from leveret.message import Message
from leveret.values import Table, printed

LENGTH: Final = "x-recent-history-length"
LENGTH_DEFAULT: Final = 20
NO_STORE: Final = "x-recent-history-no-store"


class RecentHistory(ExchangeType):
    name = "x-recent-history"
    looks_at = LooksAt.NOTHING
    arguments = (
        ExchangeArgument(
            name=LENGTH,
            about="How many messages are remembered for queues that are bound later.",
            check=between(1),
            example=5,
        ),
    )

    def __init__(self, exchange: Exchange) -> None:
        super().__init__(exchange)
        self._recent: deque[Message] = deque(maxlen=length_in(exchange.arguments))

    @classmethod
    def validate(cls, arguments: Table) -> None:
        length_in(arguments)

    def route(self, message: Message) -> Iterable[Destination]:
        return [binding.destination for binding in self.exchange.bindings]

    def keep(self, message: Message) -> None:
        if message.header(NO_STORE) is not True:
            self._recent.append(message)

    def bind(self, binding: Binding) -> None:
        if not binding.destination.is_exchange:
            for message in self._recent:  # empty when bindings are restored after a reload
                self.exchange.broker.deliver(message, [binding.destination])

    def state(self) -> object:
        return list(self._recent)

    def restore(self, state: object) -> None:
        assert isinstance(state, list)
        self._recent.extend(state)


def length_in(arguments: Table) -> int:
    length = arguments.get(LENGTH, LENGTH_DEFAULT)
    if isinstance(length, int) and not isinstance(length, bool) and length > 0:
        return length
    raise PreconditionFailed(f"Invalid argument '{printed(length)}', '{LENGTH}' must be a positive integer")
