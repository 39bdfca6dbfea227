"""List channels, or other protocols' sessions, over HTTP. Users without monitoring see those of their own
connections."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import Final

import attrs

from leveret.observability.connection_stats import ChannelFacts
from leveret.observability.counts import CHANNEL as CHANNEL_COUNTS
from leveret.observability.counts import channel_counts
from leveret.protocols.http.connection import Later, Response
from leveret.protocols.http.management.connections import (
    Open,
    connection_named,
    open_connections,
    provided_name,
)
from leveret.protocols.http.management.consumers import attached_in, is_on, rows
from leveret.protocols.http.management.lists import Fields, listed, told
from leveret.protocols.http.management.rates import TOLD_CHANNEL, Rates
from leveret.protocols.http.management.requester import host_of, not_there
from leveret.protocols.http.server.portioned_answers import PortionedAnswer, turn_of
from leveret.protocols.http.server.replies import API
from leveret.protocols.http.server.request import Level, Request, Route
from leveret.values import Json

PATH: Final = "/api/channels"
ONE: Final = PATH + "/{name}"
OF_HOST: Final = "/api/vhosts/{vhost}/channels"
OF_CONNECTION: Final = "/api/connections/{name}/channels"


@attrs.frozen
class OpenChannel:
    """A channel, the facts that it reports, and its connection."""

    connection: Open
    facts: ChannelFacts

    @property
    def name(self) -> str:
        return f"{self.connection.name} ({self.facts.number})"


def channels_in(connections: Iterable[Open | None]) -> Iterator[OpenChannel | None]:
    """Yield the channels of each connection as they are when it is reached."""
    for connection in connections:
        yield None  # a step for the connection itself
        if connection is not None:
            for facts in channel_facts(connection):
                yield OpenChannel(connection, facts)


def channel_facts(connection: Open) -> Iterable[ChannelFacts]:
    front = connection.connected.front
    return () if front is None else front.channel_facts()


CHANNEL: Final[Fields[OpenChannel]] = {
    "acks_uncommitted": lambda each: each.facts.uncommitted_outcomes,
    "confirm": lambda each: each.facts.confirming,
    "connection_details": lambda each: connection_details(each.connection),
    "consumer_count": lambda each: each.facts.consumers,
    "global_prefetch_count": lambda each: each.facts.shared_prefetch,
    "messages_unacknowledged": lambda each: each.facts.unsettled,
    "messages_uncommitted": lambda each: each.facts.uncommitted,
    "messages_unconfirmed": lambda each: each.facts.unconfirmed,
    "name": lambda each: each.name,
    "number": lambda each: each.facts.number,
    "prefetch_count": lambda each: each.facts.prefetch,
    "state": lambda each: "running" if each.facts.flowing else "flow",
    "transactional": lambda each: each.facts.transactional,
    "user": lambda each: each.connection.facts.user,
    "user_who_performed_action": lambda each: each.connection.facts.user,
    "vhost": lambda each: each.connection.facts.virtual_host,
}


def connection_details(each: Open) -> dict[str, Json]:
    peer = each.connected.peer
    return {
        "name": each.name,
        "peer_host": peer.host,
        "peer_port": peer.port,
        "user_provided_name": provided_name(each.facts),
    }


def fields(request: Request) -> Fields[OpenChannel]:
    """Return the fields of a channel. Raises PreconditionFailed for wrong parameters of rates."""
    rates, node = Rates(request), request.operations.name
    return {
        **CHANNEL,
        "message_stats": lambda each: rates.of_channel(each.connection.connected, each.facts),
        "node": lambda each: node,
    }


def order(each: OpenChannel) -> tuple[str, str, int]:
    return each.connection.facts.virtual_host, each.connection.name, each.facts.number


def shown(request: Request, connections: Iterable[Open | None]) -> Later:
    keys = Rates(request).keys(TOLD_CHANNEL, CHANNEL_COUNTS, counts_of, what_is_sampled)
    return listed(request, channels_in(connections), fields(request), order, lambda each: each.name, keys)


def counts_of(each: OpenChannel) -> Sequence[int]:
    return channel_counts(each.facts)


def what_is_sampled(each: OpenChannel) -> object:
    return each.connection.connected, each.facts.number


def channels(request: Request) -> Later:
    return shown(request, open_connections(request))


def channels_of_host(request: Request) -> Later:
    return shown(request, open_connections(request, host_of(request).name))


def channels_of_connection(request: Request) -> Later:
    return shown(request, [connection_named(request)])


def channel(request: Request) -> Later:
    """Answer with a channel and its consumers, for which all queues of the virtual host are searched."""
    return PortionedAnswer(request.broker, _channel(request), API).begin()


def _channel(request: Request) -> Generator[float, None, Response]:
    name, _, number = request.arguments["name"].rpartition(" (")
    connection = connection_named(attrs.evolve(request, arguments={"name": name}))
    found = [each for each in channel_facts(connection) if f"{each.number})" == number]
    if not found:
        raise not_there()
    turn, consumers = turn_of(request.broker), []
    host = request.broker.virtual_hosts.get(connection.facts.virtual_host)
    for each in attached_in(() if host is None else (host,)):
        if each is not None and is_on(each, connection.name, found[0].number):
            consumers.append(each)
        if turn.is_over():
            yield turn.pause_s
    details = rows(request, consumers)
    more: Fields[OpenChannel] = {**fields(request), "consumer_details": lambda each: details}
    return told(request, OpenChannel(connection, found[0]), more)


ROUTES: Final = (
    Route("GET", PATH, Level.MANAGEMENT, channels),
    Route("GET", ONE, Level.MANAGEMENT, channel),
    Route("GET", OF_HOST, Level.MANAGEMENT, channels_of_host),
    Route("GET", OF_CONNECTION, Level.MANAGEMENT, channels_of_connection),
)
