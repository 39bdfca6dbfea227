"""The contract of exchange types, for their authors, under a name that stays (`broker_core/exchanges/exchange.py`)."""

from broker_core.exchanges.exchange import (
    HANDLED,
    Binding,
    Destination,
    Exchange,
    ExchangeType,
    Handled,
    LooksAt,
)

__all__ = ["HANDLED", "Binding", "Destination", "Exchange", "ExchangeType", "Handled", "LooksAt"]
