"""A stand-in for a missing exchange type, for restored exchanges whose plug-in is not installed.

It routes nothing, so the alternate gets the messages (S131-S136), and keeps everything as it is: arguments, bindings,
and what the exchange holds. Once a reload brings the type, the exchange has it again.
"""

from __future__ import annotations

from typing import NoReturn

from leveret.errors import PreconditionFailed, Unsupported
from leveret.exchanges.exchange_type import ExchangeType
from leveret.exchanges.held_messages import HeldMessage
from leveret.message import Message
from leveret.values import Table


class Missing(ExchangeType):
    """The base of stand-ins, which `missing` makes. `why` says why the type cannot be used."""

    why: str

    def route(self, message: Message) -> NoReturn:
        raise Unsupported(f"exchange type '{self.name}' cannot be used: {self.why}")

    def validate_binding(self, key: str, arguments: Table) -> None:
        raise PreconditionFailed(f"exchange type '{self.name}' cannot be used: {self.why}")

    def warnings(self, arguments: Table) -> list[str]:
        return []  # the missing type would know

    def binding_warnings(self, arguments: Table) -> list[str]:
        return []

    def hold_again(self, held: HeldMessage) -> None:
        """Leave the message held until the type is there again, as only that knows what it was held for."""

    def close(self) -> None:
        if (holding := self.exchange.holding) is not None and self.exchange.type is not self:
            for held in list(holding.held):
                self.exchange.give_back(held)


def missing(name_: str, why_: str) -> type[Missing]:
    """Return a stand-in for the exchange type of this name, with the reason why it cannot be used."""

    class MissingType(Missing):
        name = name_
        why = why_

    return MissingType
