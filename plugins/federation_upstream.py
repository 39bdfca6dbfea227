"""`x-federation-upstream`: the internal exchanges that links of federated exchanges declare at their upstream.

Such an exchange passes on all messages but those that the other side would drop: they have come over `x-max-hops`
links, or from there. A link could declare a fanout exchange as well; then these messages would travel for nothing. The
name and the arguments are those of RabbitMQ's plug-in, so that its links find what they ask for.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from leveret.arguments.checks import text, text_fault, whole, whole_fault
from leveret.arguments.exchange_arguments import ExchangeArgument
from leveret.errors import PreconditionFailed
from leveret.exchanges.destination import Destination
from leveret.exchanges.exchange_type import Binding, Exchange, ExchangeType
from leveret.features.federation.hops import (
    DOWNSTREAM_HOST,
    DOWNSTREAM_NAME,
    INTERNAL_TYPE,
    MAX_HOPS,
    may_go_on,
)
from leveret.message import Message
from leveret.values import Table


class FederationUpstream(ExchangeType):
    name = INTERNAL_TYPE
    arguments: ClassVar[tuple[ExchangeArgument, ...]] = (
        ExchangeArgument(
            name=MAX_HOPS, about="How many links a message may go over.", check=whole_fault, example=1
        ),
        ExchangeArgument(
            name=DOWNSTREAM_NAME,
            about="The broker that gets the messages.",
            check=text_fault,
            example="leveret@b",
        ),
        ExchangeArgument(
            name=DOWNSTREAM_HOST,
            about="The virtual host that gets the messages.",
            check=text_fault,
            example="/",
        ),
    )

    def __init__(self, exchange: Exchange) -> None:
        super().__init__(exchange)
        self._max_hops = whole(exchange.arguments.get(MAX_HOPS)) or 0
        self._there = (
            text(exchange.arguments.get(DOWNSTREAM_NAME)),
            text(exchange.arguments.get(DOWNSTREAM_HOST)),
        )
        self._ends: list[Destination] | None = None  # each once; None after bindings have changed

    @classmethod
    def validate(cls, arguments: Table) -> None:
        if whole(arguments.get(MAX_HOPS)) is None:
            raise PreconditionFailed(f"Argument {MAX_HOPS} missing, or no whole number")

    def bind(self, binding: Binding) -> None:
        self._ends = None

    def unbind(self, binding: Binding) -> None:
        self._ends = None

    def route(self, message: Message) -> Iterable[Destination]:
        if not may_go_on(message, self._max_hops, *self._there):
            return ()
        if self._ends is None:
            self._ends = list(dict.fromkeys(binding.destination for binding in self.exchange.bindings))
        return self._ends
