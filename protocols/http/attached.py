"""What HTTP keeps of each broker, made when it is first asked for, and gone with the broker."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar, cast

from broker_core.broker import Broker

Kept = TypeVar("Kept")


class Attached(Generic[Kept]):
    """Of each broker one; `make` makes it."""

    def __init__(self, make: Callable[[], Kept]) -> None:
        self._make = make

    def __call__(self, broker: Broker) -> Kept:
        found = broker.attached.get(self)
        if found is None:
            found = broker.attached[self] = self._make()
        return cast("Kept", found)
