"""Global parameters: named JSON values that operators' tools keep in the broker, such as the cluster's name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from leveret.catalogue import PARAMETER, Named
from leveret.errors import TooMany
from leveret.observability.events import Events
from leveret.values import Json

if TYPE_CHECKING:
    from leveret.catalogue import Catalogue

PARAMETERS_MAX: Final = 1000


class Parameters:
    """The global parameters of a node."""

    def __init__(self) -> None:
        self.catalogue: Catalogue | None = None  # told of changes, to keep them
        self.events = Events()
        self._said: dict[str, Json] = {}

    def set(self, name: str, value: Json) -> None:
        """Add or replace a parameter. Raises TooMany if there are `PARAMETERS_MAX` others."""
        if name not in self._said and len(self._said) >= PARAMETERS_MAX:
            raise TooMany(f"there are {PARAMETERS_MAX} global parameters, which are the most")
        self._said[name] = value
        if self.catalogue is not None:
            self.catalogue.keep(Named((PARAMETER, name), value))
        self.events.happened("parameter.set", "", {"component": "", "name": name})

    def clear(self, name: str) -> bool:
        """Remove a parameter. False if there was none."""
        if name not in self._said:
            return False
        value = self._said.pop(name)
        if self.catalogue is not None:
            self.catalogue.forget(Named((PARAMETER, name), value))
        self.events.happened("parameter.cleared", "", {"component": "", "name": name})
        return True

    def has(self, name: str) -> bool:
        return name in self._said

    def get(self, name: str) -> Json:
        """Return a parameter's value; None also if there is no such parameter."""
        return self._said.get(name)

    def all(self) -> list[tuple[str, Json]]:
        """Return names and values, in order of name."""
        return sorted(self._said.items(), key=lambda each: each[0])
