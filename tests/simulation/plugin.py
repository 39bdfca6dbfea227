"""An exchange type that misbehaves: it raises, answers nonsense, or wants to end the node."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from leveret.exchanges.destination import Destination
from leveret.exchanges.exchange_type import ExchangeType
from leveret.message import Message

MOODS: Final = ("work", "raise", "exit", "nonsense", "stop")


class Moody(ExchangeType):
    """Routes to all its bindings, unless the key asks for something else."""

    name = "x-moody"

    def route(self, message: Message) -> Iterable[Destination]:
        mood: Any = message.key
        if mood == "raise":
            raise ValueError("a plug-in that fails")
        if mood == "exit":
            raise SystemExit(3)
        if mood == "nonsense":
            return 5  # type: ignore[return-value]
        if mood == "stop":
            return self._half()
        return [each.destination for each in self.exchange.bindings]

    def _half(self) -> Iterable[Destination]:
        for each in self.exchange.bindings:
            yield each.destination
            raise RuntimeError("a plug-in that fails half-way")
