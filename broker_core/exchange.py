"""The contracts of exchange types and decorators under a stable name for plug-ins; `exchanges/` defines them."""

from broker_core.arguments.exchange_arguments import ExchangeArgument
from broker_core.arguments.row import Effect, Row
from broker_core.exchanges.decorator import Attention, ExchangeDecorator
from broker_core.exchanges.exchange import (
    HANDLED,
    Binding,
    Destination,
    Exchange,
    ExchangeType,
    Handled,
    LooksAt,
)

__all__ = [
    "HANDLED",
    "Attention",
    "Binding",
    "Destination",
    "Effect",
    "Exchange",
    "ExchangeArgument",
    "ExchangeDecorator",
    "ExchangeType",
    "Handled",
    "LooksAt",
    "Row",
]
