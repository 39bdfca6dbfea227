"""The contracts of exchange types and decorators under a stable name for plug-ins; `exchanges/` defines them."""

from leveret.arguments.exchange_arguments import ExchangeArgument
from leveret.arguments.row import Effect, Row
from leveret.exchanges.decorator import Attention, ExchangeDecorator
from leveret.exchanges.destination import Destination
from leveret.exchanges.exchange_type import HANDLED, Binding, Exchange, ExchangeType, Handled, LooksAt

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
