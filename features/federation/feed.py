"""The feed of a link: what it asks of its upstream, and how messages from there are marked, in no protocol.

    exchange X here:   upstream X ──our bindings──> internal exchange ──> queue "federation: X -> NODE" ──> the link
    queue Q here:      upstream Q ──a consumer of priority -1, while Q here is empty and wanted──> the link

Names, arguments and headers are those of RabbitMQ's plug-in, so that either side may be a RabbitMQ. The upstream queue
of an exchange keeps messages while the link is down. Its internal exchange, whose name ends in A or B, is made anew
with each connection, so that a binding that went while the link was down is not left there; the other one goes when
the new one has all bindings.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

import attrs

from leveret.features.federation.hops import (
    BOUND_FROM,
    CLUSTER,
    DOWNSTREAM_HOST,
    DOWNSTREAM_NAME,
    HOST,
    MAX_HOPS,
    RECEIVED_FROM,
    has_been,
    may_go_on,
    records_in,
)
from leveret.values import Int16, Int64, Table, Value

if TYPE_CHECKING:
    from leveret.config.amqp_uri import Uri
    from leveret.exchanges.exchange_type import Binding, Exchange
    from leveret.features.federation.upstream import Upstream
    from leveret.message import Message
    from leveret.queues.queue import Queue

PURPOSE: Final = "x-internal-purpose"
FEDERATION: Final = "federation"
PRIORITY: Final = -1  # of the consumers that links of queues have upstream
ORIGINAL_EXCHANGE: Final = "x-original-exchange"
ORIGINAL_KEY: Final = "x-original-routing-key"
ORIGINAL_CC: Final = "x-original-cc"
CC: Final = "CC"
VISITS: Final = "visit-count"


@attrs.frozen
class Side:
    """A virtual host of a broker: the upstream, once it has told its name, or this one."""

    cluster: str | None
    virtual_host: str


@attrs.frozen
class UpstreamBinding:
    """A binding from the upstream exchange to the internal one."""

    key: str
    arguments: Table


class ExchangeFeed:
    """The feed of a federated exchange from one upstream."""

    drops: Final = frozenset[str]()  # headers

    def __init__(self, upstream: Upstream, exchange: Exchange, here: str) -> None:
        """`here` is the name of this node, as others see it."""
        self.upstream = upstream
        self.exchange = exchange
        self.name = upstream.exchange or exchange.name
        self.here = Side(here, exchange.virtual_host.name)

    def queue_name(self, virtual_host: str) -> str:
        """Return the name of the upstream queue in a virtual host there."""
        here, end = self.here, ""
        if here.virtual_host != virtual_host:
            end = f":{here.virtual_host}:{self.exchange.name}"
        elif self.exchange.name != self.name:
            end = f":{self.exchange.name}"
        return f"federation: {self.name} -> {here.cluster}{end}"

    @property
    def queue_arguments(self) -> Table:
        upstream = self.upstream
        arguments: dict[str, Value] = {PURPOSE: FEDERATION, "x-queue-type": upstream.queue_type}
        if upstream.expires_ms is not None:
            arguments["x-expires"] = upstream.expires_ms
        if upstream.ttl_ms is not None:
            arguments["x-message-ttl"] = upstream.ttl_ms
        return arguments

    @property
    def internal_arguments(self) -> Table:
        """The arguments of the internal exchange, if the upstream has a type for it."""
        return {
            MAX_HOPS: Int64(self.upstream.max_hops),
            DOWNSTREAM_NAME: self.here.cluster,
            DOWNSTREAM_HOST: self.here.virtual_host,
            PURPOSE: FEDERATION,
        }

    def headers(self, message: Message, redelivered: bool, origin: Side, uri: Uri) -> Table | None:
        """Return the headers to be added to a message that arrives; None: it has come far enough."""
        if not may_go_on(message, self.upstream.max_hops, self.here.cluster, self.here.virtual_host):
            return None
        record: dict[str, Value] = {
            "uri": uri.without_login,
            "exchange": self.exchange.name,
            "redelivered": redelivered,
            HOST: origin.virtual_host,
        }
        if origin.cluster is not None:
            record[CLUSTER] = origin.cluster
        return {RECEIVED_FROM: [record, *(records_in(message.header(RECEIVED_FROM)) or ())]}


class Propagation:
    """The bindings of an exchange as its upstream should have them. Several that ask for the same are one there."""

    def __init__(self, feed: ExchangeFeed, origin: Side, suffix: str) -> None:
        self._feed = feed
        self._origin = origin
        self._suffix = suffix  # of the internal exchange
        self._asking: dict[tuple[str, object], set[object]] = {}  # the bindings, by what they ask for

    def added(self, binding: Binding) -> UpstreamBinding | None:
        """Return the binding to be made upstream because of one here; None if there is nothing to do."""
        wanted = self._wanted(binding)
        if wanted is None or BOUND_FROM in binding.arguments:
            return wanted
        asking = self._asking.setdefault((binding.key, binding.frozen_arguments), set())
        asking.add(binding.identity)
        return wanted if len(asking) == 1 else None

    def removed(self, binding: Binding) -> UpstreamBinding | None:
        """Return the binding to be removed upstream because one here was; None if there is nothing to do."""
        wanted, key = self._wanted(binding), (binding.key, binding.frozen_arguments)
        if wanted is None or BOUND_FROM in binding.arguments:
            return wanted
        asking = self._asking.get(key, set())
        asking.discard(binding.identity)
        if asking or self._asking.pop(key, None) is None:
            return None
        return wanted

    def _wanted(self, binding: Binding) -> UpstreamBinding | None:
        """Return what a binding asks for upstream; None if it has come far enough.

        A binding goes as far up as messages come down: each link lets it go on over one less than it has left, and
        over no more than its own `max-hops`.
        """
        feed = self._feed
        before = records_in(binding.arguments.get(BOUND_FROM)) or ()
        hops = feed.upstream.max_hops
        if before:
            if has_been(before, self._origin.cluster, self._origin.virtual_host):
                return None
            hops = min(hops, _hops_in(before[0]) - 1)
        if hops <= 0:
            return None
        record: dict[str, Value] = {
            CLUSTER: feed.here.cluster,
            HOST: feed.here.virtual_host,
            "exchange": f"{feed.here.virtual_host}:{feed.exchange.name} {self._suffix}",
            "hops": Int16(hops),
        }
        return UpstreamBinding(binding.key, {**binding.arguments, BOUND_FROM: [record, *before]})


def _hops_in(record: Value) -> int:
    left = record.get("hops") if isinstance(record, Mapping) else None
    return left if isinstance(left, int) and not isinstance(left, bool) else 0


class QueueFeed:
    """The feed of a federated queue from one upstream."""

    drops: Final = frozenset({CC})  # it has been obeyed

    def __init__(self, upstream: Upstream, queue: Queue) -> None:
        self.upstream = upstream
        self.queue = queue
        self.name = upstream.queue or queue.name

    def headers(self, message: Message, redelivered: bool, origin: Side, uri: Uri) -> Table:
        """Return the headers to be added to a message that arrives."""
        before = records_in(message.header(RECEIVED_FROM))
        added: dict[str, Value] = {}
        if before is None:  # later it is known: the queue by the default exchange
            added[ORIGINAL_EXCHANGE], added[ORIGINAL_KEY] = message.exchange, message.key
        if message.facts.cc:
            added[ORIGINAL_CC] = list(message.facts.cc)
        record: dict[str, Value] = {"uri": uri.without_login, "queue": self.queue.name}
        visits, others = 1, []
        for each in before or ():
            if isinstance(each, Mapping) and all(each.get(key) == value for key, value in record.items()):
                count = each.get(VISITS)
                visits += count if isinstance(count, int) else 0
            else:
                others.append(each)
        record |= {"redelivered": redelivered, VISITS: Int64(visits)}
        added[RECEIVED_FROM] = [record, *others]
        return added
