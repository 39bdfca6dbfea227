"""The contract of exchange types under a stable name for plug-ins; it is defined in `exchanges/exchange.py`."""

from broker_core.arguments.exchange_arguments import ExchangeArgument
from broker_core.arguments.row import Effect, Row
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
    "Binding",
    "Destination",
    "Effect",
    "Exchange",
    "ExchangeArgument",
    "ExchangeType",
    "Handled",
    "LooksAt",
    "Row",
]
