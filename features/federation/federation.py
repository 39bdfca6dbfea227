"""The federation of a node: its upstreams, their sets, and the links of the exchanges and queues that have policies so.

What changes - an upstream, a policy, an exchange - marks exchanges and queues, whose links are compared with those that
they should have soon after. A link whose upstream has not changed goes on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, ClassVar, Final

import attrs

from leveret.catalogue import UPSTREAM, UPSTREAM_SET
from leveret.errors import NotFound, TooMany
from leveret.exchanges.decorator import Attention, ExchangeDecorator
from leveret.exchanges.destination import Destination
from leveret.exchanges.exchange_type import Exchange
from leveret.features.federation.demand import QueueDemand
from leveret.features.federation.feed import PURPOSE, ExchangeFeed, QueueFeed
from leveret.features.federation.link import ExchangeLink, FederationLink, QueueLink
from leveret.features.federation.upstream import SetMember, Upstream, members_of, upstream_of
from leveret.features.parameters.components import Component, Connecting, Parameter
from leveret.features.parameters.passwords import with_passwords, without_passwords
from leveret.features.transfers.ends import NOBODY
from leveret.features.transfers.parameter_reader import object_in
from leveret.features.transfers.transfer import START_S
from leveret.observability.metric import COUNTER, GAUGE, Metric
from leveret.policy import quick
from leveret.queues.queue import Queue
from leveret.selectors.pcre_translation import compiled
from leveret.values import Json, Table

if TYPE_CHECKING:
    from leveret.broker import Broker
    from leveret.clock import Timer
    from leveret.exchanges.exchange_type import Binding

PARAMETERS_MAX: Final = 1000  # upstreams, and sets
PATTERN: Final = "federation-upstream-pattern"
KEYS: Final = (UPSTREAM, UPSTREAM_SET, PATTERN)  # of policies; the first two are components as well
LABELS: Final = ("vhost", "type", "name", "upstream", "from")  # of metrics
ALL: Final = "all"  # the set of all upstreams


@attrs.frozen
class KeptParameter:
    """An upstream or a set, as it was set, and whose permissions it has here."""

    value: Json = attrs.field(repr=False)
    user: str


class ParameterKind(Component):
    """The upstreams, or the sets, by virtual host and name."""

    noun: ClassVar[str]

    def __init__(self, federation: Federation, broker: Broker) -> None:
        super().__init__(broker)
        self._federation = federation
        self._kept: dict[tuple[str, str], KeptParameter] = {}

    def _checked(self, value: Json, before: Json) -> Json:
        """Return the value to be kept. Raises PreconditionFailed."""
        raise NotImplementedError

    def set(self, virtual_host: str, name: str, value: Json, user: str) -> None:
        broker, key = self._broker, (virtual_host, name)
        broker.virtual_host(virtual_host)
        before = self._kept.get(key)
        if before is None and len(self._kept) >= PARAMETERS_MAX:
            raise TooMany(f"there are {PARAMETERS_MAX} {self.noun}s, which are the most")
        value = self._checked(value, None if before is None else before.value)
        self._kept[key] = KeptParameter(value, user)
        self._record(virtual_host, name, value, user)
        self._federation.parameters_changed(virtual_host)

    def delete(self, virtual_host: str, name: str) -> None:
        if self._kept.pop((virtual_host, name), None) is None:
            raise NotFound(f"no {self.noun} '{name}' in vhost '{virtual_host}'")
        self._erase(virtual_host, name)
        self._federation.parameters_changed(virtual_host)

    def user_deleted(self, user: str) -> None:
        for (virtual_host, name), kept in list(self._kept.items()):
            if kept.user == user:
                self._kept[virtual_host, name] = KeptParameter(kept.value, NOBODY)
                self._keep(virtual_host, name, kept.value, NOBODY)
                self._federation.parameters_changed(virtual_host)

    def find(self, virtual_host: str, name: str) -> KeptParameter | None:
        return self._kept.get((virtual_host, name))

    def names(self, virtual_host: str) -> list[str]:
        """Return the names in a virtual host, in order."""
        return sorted(name for host, name in self._kept if host == virtual_host)

    def parameters(self, virtual_host: str) -> Iterator[Parameter]:
        for name in self.names(virtual_host):
            value = self._kept[virtual_host, name].value
            yield Parameter(name, value, self._shown(value))

    def _shown(self, value: Json) -> Json:
        return value


class Upstreams(ParameterKind):
    component = UPSTREAM
    noun = "upstream"

    def _checked(self, value: Json, before: Json) -> Json:
        given = with_passwords(object_in(value, "an upstream"), before if isinstance(before, Mapping) else {})
        upstream_of("", given)
        return given

    def _shown(self, value: Json) -> Json:
        return without_passwords(object_in(value, "an upstream"))


class UpstreamSets(ParameterKind):
    component = UPSTREAM_SET
    noun = "set of upstreams"

    def _checked(self, value: Json, before: Json) -> Json:
        members_of(value)
        return value


LinkKey = tuple[str, str]  # the names of the upstream, and of the exchange or queue there


class Federation(Connecting):
    """The federation of a node."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self.upstreams = Upstreams(self, broker)
        self.sets = UpstreamSets(self, broker)
        self.components = (self.upstreams, self.sets)
        self._links: dict[Destination, dict[LinkKey, FederationLink]] = {}  # of what has a policy so
        self._demands: dict[Queue, QueueDemand] = {}
        self._marked: dict[Destination, None] = {}
        self._look_at: Timer | None = None
        self._is_stopped = False

    def user_deleted(self, name: str) -> None:
        """Leave the user's upstreams and sets without a user: their links rest until these are set again."""
        for component in self.components:
            component.user_deleted(name)

    def begin(self) -> None:
        """Look at all exchanges and queues that there are, and hear of those that come."""
        self._broker.decorate((*self._broker.decorators, FederatedExchanges(self)))
        for host in self._broker.hosts():
            for queue in host.queues.values():
                definition = self._broker.policies.for_queue(host.name, queue.name, queue.type)
                self.queue_changed(queue, definition)

    # What has changed.

    def queue_changed(self, queue: Queue, definition: Table) -> None:
        """Have a queue get messages of its upstreams, or no longer, as policies say."""
        if is_federated(definition) and PURPOSE not in queue.arguments and queue.owner is None:
            if queue not in self._links:
                self._demands[queue] = QueueDemand(queue)
            self.mark(queue)
        elif queue in self._links:
            self.forget(queue)

    def queue_deleted(self, queue: Queue) -> None:
        """End the links of a deleted queue, in a moment."""
        self.forget(queue)

    def mark(self, owner: Destination) -> None:
        """Compare the links of an exchange or queue with those that it should have, soon."""
        if self._is_stopped:
            return
        self._links.setdefault(owner, {})
        self._marked[owner] = None
        if self._look_at is None:
            self._look_at = self._broker.timers.at(self._broker.now + START_S, self._look)

    def parameters_changed(self, virtual_host: str) -> None:
        for owner in list(self._links):
            if host_of(owner) == virtual_host:
                self.mark(owner)

    def forget(self, owner: Destination) -> None:
        """End the links of an exchange or queue that is gone, or has no such policy any more.

        They end soon: now is in the middle of a change of the topology.
        """
        links = self._links.pop(owner, {})
        if links:
            self._broker.timers.at(self._broker.now, lambda _now: end_all(links.values()))
        self._marked.pop(owner, None)
        if isinstance(owner, Queue) and (demand := self._demands.pop(owner, None)) is not None:
            demand.end()

    def metrics(self) -> Iterator[Metric]:
        """Yield how many messages each link has brought, and whether it is connected."""
        found = [(dict(zip(LABELS, link.names, strict=True)), link) for link in self]
        brought = "Messages that a link of a federation has brought."
        counts = [(labels, link.forwarded) for labels, link in found]
        yield Metric("leveret_federation_messages_total", COUNTER, brought, counts)
        running = "1 while a link of a federation is connected."
        states = [(labels, int(link.is_running)) for labels, link in found]
        yield Metric("leveret_federation_link_running", GAUGE, running, states)

    def virtual_host_deleted(self, name: str) -> None:
        """Forget the parameters of a virtual host that is being deleted; its exchanges and queues go by themselves."""
        for kind in (self.sets, self.upstreams):
            for each in kind.names(name):
                kind.delete(name, each)

    def stop(self) -> None:
        """Stop all links, when the node ends. What they have upstream stays, and keeps messages for the next start."""
        self._is_stopped = True
        self._broker.timers.cancel(self._look_at)
        for links in self._links.values():
            for link in links.values():
                link.end(removes=False)

    # The links.

    def _look(self, _now: float) -> None:
        self._look_at = None
        marked, self._marked = self._marked, {}
        for owner in marked:
            if owner in self._links:
                self._compare(owner)

    def _compare(self, owner: Destination) -> None:
        wanted = self._wanted(owner)
        links = self._links[owner]
        for key, link in list(links.items()):
            new = wanted.get(key)
            if new is None or new != (link.upstream, link.journey.user):
                is_other = new is None or new[0].of_its_queue != link.upstream.of_its_queue
                links.pop(key).end(removes=is_other)
                if isinstance(link, QueueLink):
                    self._demands[link.feed.queue].remove(link)
        for key, (upstream, user) in wanted.items():
            if key not in links:
                link = links[key] = self._link(owner, upstream, user)
                link.begin()

    def _link(self, owner: Destination, upstream: Upstream, user: str) -> FederationLink:
        broker = self._broker
        if isinstance(owner, Exchange):
            return ExchangeLink(broker, ExchangeFeed(upstream, owner, self._here), host_of(owner), user)
        assert isinstance(owner, Queue)
        link = QueueLink(broker, QueueFeed(upstream, owner), host_of(owner), user)
        self._demands[owner].add(link)
        return link

    @property
    def _here(self) -> str:
        operations = self._broker.operations
        return "" if operations is None else operations.name

    def _wanted(self, owner: Destination) -> dict[LinkKey, tuple[Upstream, str]]:
        """Return the upstreams that an exchange or queue should have links to, and whose permissions these have."""
        host, found = host_of(owner), dict[LinkKey, tuple[Upstream, str]]()
        for member in self._members(host, self._definition(owner)):
            kept = self.upstreams.find(host, member.upstream)
            if kept is None:
                continue
            upstream = upstream_of(member.upstream, kept.value, member.settings)
            there = upstream.exchange if isinstance(owner, Exchange) else upstream.queue
            found[member.upstream, there or owner.name] = upstream, kept.user
        return found

    def _definition(self, owner: Destination) -> Table:
        policies, host = self._broker.policies, host_of(owner)
        if isinstance(owner, Queue):
            return policies.for_queue(host, owner.name, owner.type)
        return policies.for_exchange(host, owner.name)

    def _members(self, host: str, definition: Table) -> Iterable[SetMember]:
        one, name, pattern = (definition.get(key) for key in KEYS)
        if isinstance(one, str):
            return [SetMember(one)]
        if isinstance(pattern, str):
            found_in = quick(pattern) or compiled(pattern).search
            return [SetMember(each) for each in self.upstreams.names(host) if found_in(each)]
        if name == ALL:
            return [SetMember(each) for each in self.upstreams.names(host)]
        kept = self.sets.find(host, name) if isinstance(name, str) else None
        return () if kept is None else members_of(kept.value)

    # What is asked.

    def of(self, exchange: Exchange) -> Iterable[FederationLink]:
        """Return the links of an exchange."""
        return self._links.get(exchange, {}).values()

    def __iter__(self) -> Iterator[FederationLink]:
        """Yield all links, by virtual host, kind, name and upstream."""
        links = [link for links in self._links.values() for link in links.values()]
        return iter(
            sorted(
                links, key=lambda each: (each.journey.virtual_host, each.kind, each.name, each.upstream.name)
            )
        )

    def find(self, virtual_host: str, id: str) -> FederationLink:
        """Return a link by its id. Raises NotFound."""
        for link in self:
            if link.id == id and link.journey.virtual_host == virtual_host:
                return link
        raise NotFound(f"no federation link '{id[:100]}' in vhost '{virtual_host}'")


class FederatedExchanges(ExchangeDecorator):
    """Tells the federation what happens to exchanges that have such policies."""

    name: ClassVar[str] = "federation"

    def __init__(self, federation: Federation) -> None:
        self._federation = federation

    def attention(self, exchange: Exchange, definition: Table) -> Attention:
        is_ours = is_federated(definition) and not exchange.internal and exchange.name != ""
        return Attention.EVENTS if is_ours else Attention.NOTHING

    def created(self, exchange: Exchange) -> None:
        self._federation.mark(exchange)

    def policy_changed(self, exchange: Exchange) -> None:
        self._federation.mark(exchange)

    def deleted(self, exchange: Exchange) -> None:
        self._federation.forget(exchange)

    def bound(self, binding: Binding) -> None:
        for link in self._federation.of(binding.source):
            if isinstance(link, ExchangeLink):
                link.bound(binding)

    def unbound(self, binding: Binding) -> None:
        for link in self._federation.of(binding.source):
            if isinstance(link, ExchangeLink):
                link.unbound(binding)


def end_all(links: Iterable[FederationLink]) -> None:
    for link in links:
        link.end(removes=True)


def is_federated(definition: Table) -> bool:
    """Return whether policies ask for upstreams."""
    return any(key in definition for key in KEYS)


def host_of(owner: Destination) -> str:
    assert isinstance(owner, Exchange | Queue)
    return owner.virtual_host.name


def federation_of(broker: Broker) -> Federation:
    """Return the federation of a node, which has none before the first upstream is set."""
    federation = broker.guests.find(Federation)
    if federation is None:
        federation = broker.guest(Federation)
        federation.begin()
    return federation
