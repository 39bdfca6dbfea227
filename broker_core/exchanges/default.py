"""The default exchange: routing key K goes to queue K (S053, S072). These bindings are implied and never stored.

Where the profile permits it, queues are bound to it with further keys, as to any direct exchange (AMQP 0-9-1,
queue.bind: a blank name of an exchange means the default exchange).
"""

from __future__ import annotations

from collections.abc import Iterable

from mypy_extensions import mypyc_attr

from leveret.exchanges.destination import Destination
from leveret.exchanges.direct import Direct
from leveret.exchanges.exchange_type import Binding, Exchange, ExchangeType, LooksAt
from leveret.message import Message


@mypyc_attr(allow_interpreted_subclasses=True)
class DefaultExchange(ExchangeType):
    name = "direct"  # the type that clients and operators are shown
    looks_at = LooksAt.KEY

    def __init__(self, exchange: Exchange) -> None:
        super().__init__(exchange)
        self._bound: Direct | None = None  # further bindings, once there are any

    def bind(self, binding: Binding) -> None:
        if self._bound is None:
            self._bound = Direct(self.exchange)
        self._bound.bind(binding)

    def unbind(self, binding: Binding) -> None:
        assert self._bound is not None, "only what is bound is unbound"
        self._bound.unbind(binding)

    def route(self, message: Message) -> Iterable[Destination]:
        find = self.exchange.virtual_host.destination_queue
        queues = [queue for key in message.keys if (queue := find(key)) is not None]
        return queues if self._bound is None else [*queues, *self._bound.route(message)]
