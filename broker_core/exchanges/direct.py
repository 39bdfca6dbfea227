"""The exchange type `direct` routes to the queues whose binding key equals the routing key."""

from __future__ import annotations

from collections.abc import Iterable

from mypy_extensions import mypyc_attr

from leveret.exchanges.destination import Destination
from leveret.exchanges.exchange_type import Binding, Exchange, ExchangeType, LooksAt
from leveret.message import Message


@mypyc_attr(allow_interpreted_subclasses=True)
class Direct(ExchangeType):
    name = "direct"
    description = "the queues whose binding key equals the routing key"
    looks_at = LooksAt.KEY

    def __init__(self, exchange: Exchange) -> None:
        super().__init__(exchange)
        self._bindings: dict[str, dict[tuple[object, ...], Destination]] = {}

    def bind(self, binding: Binding) -> None:
        self._bindings.setdefault(binding.key, {})[binding.identity] = binding.destination

    def unbind(self, binding: Binding) -> None:
        bound = self._bindings[binding.key]
        del bound[binding.identity]
        if not bound:
            del self._bindings[binding.key]

    def route(self, message: Message) -> Iterable[Destination]:
        return [destination for key in message.keys for destination in self._bindings.get(key, {}).values()]
