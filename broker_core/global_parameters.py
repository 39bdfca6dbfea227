"""Global parameters: names to whatever operators' tools want to remember, such as what they call the cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from broker_core.errors import TooMany
from broker_core.observability.events import Events
from broker_core.values import Json

if TYPE_CHECKING:
    from broker_core.durable_objects import Catalogue

PARAMETERS_MAX: Final = 1000


class Parameters:
    """All of a node's."""

    def __init__(self) -> None:
        self.catalogue: Catalogue | None = None  # told of what outlives the node
        self.events = Events()
        self._said: dict[str, Json] = {}

    def set(self, name: str, value: Json) -> None:
        """Add one, or replace it. Raises TooMany."""
        if name not in self._said and len(self._said) >= PARAMETERS_MAX:
            raise TooMany(f"there are {PARAMETERS_MAX} global parameters, which are the most")
        self._said[name] = value
        if self.catalogue is not None:
            self.catalogue.keep_parameter(name, value)
        self.events.happened("parameter.set", "", {"component": "", "name": name})

    def clear(self, name: str) -> bool:
        """Forget one. False if there was none."""
        if name not in self._said:
            return False
        del self._said[name]
        if self.catalogue is not None:
            self.catalogue.forget_parameter(name)
        self.events.happened("parameter.cleared", "", {"component": "", "name": name})
        return True

    def has(self, name: str) -> bool:
        return name in self._said

    def get(self, name: str) -> Json:
        """What it says; None also if there is none."""
        return self._said.get(name)

    def all(self) -> list[tuple[str, Json]]:
        """Names and values, by name."""
        return sorted(self._said.items(), key=lambda each: each[0])
