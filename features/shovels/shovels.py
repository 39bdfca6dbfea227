"""The shovels of a node, by virtual host and name: set, replaced, deleted, and kept in the store."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final

import attrs

from leveret.catalogue import SHOVEL
from leveret.errors import NotFound, PreconditionFailed, TooMany
from leveret.features.parameters.components import Component, Connecting, Parameter
from leveret.features.parameters.passwords import with_passwords, without_passwords
from leveret.features.shovels.definition import definition_of
from leveret.features.shovels.shovel import Shovel
from leveret.features.transfers.ends import NOBODY, Journey
from leveret.features.transfers.parameter_reader import object_in
from leveret.observability.metric import COUNTER, GAUGE, Metric
from leveret.values import Json

if TYPE_CHECKING:
    from leveret.broker import Broker

SHOVELS_MAX: Final = 1000


@attrs.frozen
class Kept:
    """A shovel, and the parameter that it was set with."""

    shovel: Shovel
    value: Mapping[str, Json] = attrs.field(repr=False)  # with passwords
    is_static: bool  # it is in the configuration file, which alone changes it

    @property
    def shown(self) -> dict[str, Json]:
        """The parameter without passwords."""
        return without_passwords(self.value)


class Shovels(Component, Connecting):
    """The shovels of a node."""

    component: ClassVar[str] = SHOVEL

    def __init__(self, broker: Broker) -> None:
        super().__init__(broker)
        self.components = (self,)
        self._kept: dict[tuple[str, str], Kept] = {}

    def set(self, virtual_host: str, name: str, value: Json, user: str) -> None:
        """Add a shovel, or replace the one of that name; it acts on this node as `user`.

        Raises NotFound, TooMany if there are `SHOVELS_MAX` others, and PreconditionFailed, also for a static shovel.
        """
        self._require_dynamic(virtual_host, name)
        kept = self._put(virtual_host, name, value, user, is_static=False)
        self._record(virtual_host, name, kept.value, user)

    def set_static(self, virtual_host: str, name: str, value: Json, user: str) -> None:
        """Add or replace a shovel of the configuration file, as long as it is there. Raises as `set` does."""
        self._put(virtual_host, name, value, user, is_static=True)

    def keep_static(self, named: Container[tuple[str, str]]) -> None:
        """Stop the static shovels that the configuration file no longer names."""
        for key, kept in list(self._kept.items()):
            if kept.is_static and key not in named:
                kept.shovel.stop()
                del self._kept[key]

    def _require_dynamic(self, virtual_host: str, name: str) -> None:
        kept = self._kept.get((virtual_host, name))
        if kept is not None and kept.is_static:
            raise PreconditionFailed(
                f"shovel '{name}' in vhost '{virtual_host}' is in the configuration file"
            )

    def _put(self, virtual_host: str, name: str, value: Json, user: str, is_static: bool) -> Kept:
        broker, key = self._broker, (virtual_host, name)
        broker.virtual_host(virtual_host)
        before = self._kept.get(key)
        if before is None and len(self._kept) >= SHOVELS_MAX:
            raise TooMany(f"there are {SHOVELS_MAX} shovels, which are the most")
        value = with_passwords(object_in(value, "a shovel"), {} if before is None else before.value)
        journey = Journey(broker, name, f"shovel {name}", virtual_host, user, definition_of(value))
        return self._begin(journey, value, is_static)

    def _begin(self, journey: Journey, value: Mapping[str, Json], is_static: bool) -> Kept:
        """Begin a shovel, in place of the one that has its name."""
        virtual_host, name = key = journey.virtual_host, journey.name
        if (before := self._kept.get(key)) is not None:
            before.shovel.stop()
        shovel = Shovel(journey, partial(self._stop_and_forget, virtual_host, name), is_static)
        kept = self._kept[key] = Kept(shovel, value, is_static)
        shovel.begin()
        return kept

    def user_deleted(self, user: str) -> None:
        """Leave the user's shovels without a user: they rest until they are set again."""
        for (virtual_host, name), kept in self._kept.items():
            if kept.shovel.journey.user == user and not kept.is_static:
                self._keep(virtual_host, name, kept.value, NOBODY)
                self._broker.timers.at(self._broker.now, partial(self._disown, kept))

    def _disown(self, kept: Kept, now: float) -> None:
        """Replace a shovel by one without a user, unless it has been set again or deleted meanwhile."""
        journey = kept.shovel.journey
        if self._kept.get((journey.virtual_host, journey.name)) is kept:
            self._begin(attrs.evolve(journey, user=NOBODY), kept.value, False)

    def delete(self, virtual_host: str, name: str) -> None:
        """Stop and delete a shovel. Raises NotFound, and PreconditionFailed for a static one."""
        self.find(virtual_host, name)
        self._require_dynamic(virtual_host, name)
        self._stop_and_forget(virtual_host, name)

    def _stop_and_forget(self, virtual_host: str, name: str) -> None:
        self.find(virtual_host, name).shovel.stop()
        del self._kept[virtual_host, name]
        self._erase(virtual_host, name)

    def find(self, virtual_host: str, name: str) -> Kept:
        """Return a shovel. Raises NotFound."""
        found = self._kept.get((virtual_host, name))
        if found is None:
            raise NotFound(f"no shovel '{name}' in vhost '{virtual_host}'")
        return found

    def __iter__(self) -> Iterator[Shovel]:
        """Yield all shovels, by virtual host and name."""
        return (kept.shovel for _, kept in sorted(self._kept.items()))

    def of(self, virtual_host: str) -> Iterator[Kept]:
        """Yield the shovels of a virtual host, by name."""
        for host, name in sorted(self._kept):
            if host == virtual_host:
                yield self._kept[host, name]

    def parameters(self, virtual_host: str) -> Iterator[Parameter]:
        for kept in self.of(virtual_host):
            if not kept.is_static:
                yield Parameter(kept.shovel.journey.name, kept.value, kept.shown)

    def metrics(self) -> Iterator[Metric]:
        """Yield how many messages each shovel has moved, and whether it runs."""
        found = [
            ({"vhost": shovel.journey.virtual_host, "shovel": shovel.journey.name}, shovel) for shovel in self
        ]
        moved, running = "Messages that a shovel has moved.", "1 while both ends of a shovel are connected."
        counts = [(labels, shovel.forwarded) for labels, shovel in found]
        yield Metric("leveret_shovel_messages_total", COUNTER, moved, counts)
        states = [(labels, int(shovel.is_running)) for labels, shovel in found]
        yield Metric("leveret_shovel_running", GAUGE, running, states)

    def virtual_host_deleted(self, name: str) -> None:
        """Stop the shovels of a virtual host that is being deleted, and forget them."""
        for kept in list(self.of(name)):
            self._stop_and_forget(name, kept.shovel.journey.name)

    def stop(self) -> None:
        """Stop all of them, when the node ends; they stay in the store."""
        for kept in self._kept.values():
            kept.shovel.stop()


def shovels_of(broker: Broker) -> Shovels:
    """Return the shovels of a node, which has none before the first is set."""
    return broker.guest(Shovels)
