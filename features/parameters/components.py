"""The components whose parameters connect brokers: shovels, and the upstreams of a federation with their sets.

A component sets, keeps and shows its parameters. What it does with them is not imported before it has any.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar

import attrs

from leveret.catalogue import SHOVEL, UPSTREAM, Named
from leveret.guests import Guest
from leveret.values import Json

if TYPE_CHECKING:
    from leveret.broker import Broker


@attrs.frozen
class Parameter:
    """A parameter of a component: as it was set, and without passwords."""

    name: str
    value: Json = attrs.field(repr=False)
    shown: Json


class Component(ABC):
    """The parameters of one component, by virtual host and name."""

    component: ClassVar[str]

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def _record(self, virtual_host: str, name: str, value: Json, user: str) -> None:
        """Keep a parameter that was set in the store, and tell of it."""
        self._keep(virtual_host, name, value, user)
        self._tell("parameter.set", virtual_host, name)

    def _keep(self, virtual_host: str, name: str, value: Json, user: str) -> None:
        if self._broker.catalogue is not None:
            self._broker.catalogue.keep(Named((self.component, virtual_host, name), (value, user)))

    def _erase(self, virtual_host: str, name: str) -> None:
        """Have the store forget a parameter that was deleted, and tell of it."""
        if self._broker.catalogue is not None:
            self._broker.catalogue.forget(Named((self.component, virtual_host, name), None))
        self._tell("parameter.cleared", virtual_host, name)

    def _tell(self, event: str, virtual_host: str, name: str) -> None:
        self._broker.events.happened(event, virtual_host, {"component": self.component, "name": name})

    @abstractmethod
    def set(self, virtual_host: str, name: str, value: Json, user: str) -> None:
        """Add or replace a parameter, which acts on this node as `user`.

        Raises NotFound for the virtual host, PreconditionFailed, TooMany.
        """

    @abstractmethod
    def delete(self, virtual_host: str, name: str) -> None:
        """Delete a parameter. Raises NotFound."""

    @abstractmethod
    def user_deleted(self, user: str) -> None:
        """Leave the parameters that a user has set without one, also where there is a new user of that name.

        Called in the middle of the deletion: what changes the topology waits for a timer.
        """

    @abstractmethod
    def parameters(self, virtual_host: str) -> Iterable[Parameter]:
        """Return the parameters in a virtual host, by name."""


class Connecting(Guest):
    """A guest whose parameters connect brokers."""

    components: Sequence[Component]


def component_of(broker: Broker, name: str) -> Component:
    """Return a component by its name, one of `catalogue.COMPONENTS`."""
    if name == SHOVEL:
        from leveret.features.shovels.shovels import shovels_of

        return shovels_of(broker)
    from leveret.features.federation.federation import federation_of

    federation = federation_of(broker)
    return federation.upstreams if name == UPSTREAM else federation.sets


def parameters_of(broker: Broker, virtual_host: str) -> Iterator[tuple[str, Parameter]]:
    """Yield each component's name with each of its parameters in a virtual host."""
    for guest in broker.guests:
        for component in guest.components if isinstance(guest, Connecting) else ():
            yield from ((component.component, each) for each in component.parameters(virtual_host))


def require_valid(component: str, value: Json) -> None:
    """Check the value of a parameter. Raises PreconditionFailed for the first thing that is wrong."""
    if component == SHOVEL:
        from leveret.features.shovels.definition import definition_of

        definition_of(value)
        return
    from leveret.features.federation.upstream import members_of, upstream_of

    if component == UPSTREAM:
        upstream_of("", value)
    else:
        members_of(value)
