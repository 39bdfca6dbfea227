"""List and close connections of every protocol over HTTP.

Users see their own connections; those that may monitor see all. Administrators may close any.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from typing import Final

import attrs

from leveret.observability.connection_stats import ConnectionFacts
from leveret.operations import Connected
from leveret.protocols.http.connection import Later, Response
from leveret.protocols.http.management.lists import Fields, listed, told
from leveret.protocols.http.management.rates import Rates
from leveret.protocols.http.management.requester import (
    ADMINISTRATOR,
    DONE,
    host_of,
    not_there,
    sees_all,
)
from leveret.protocols.http.server.replies import not_authorised
from leveret.protocols.http.server.request import Level, Request, Route
from leveret.values import Json, as_json

PATH: Final = "/api/connections"
ONE: Final = PATH + "/{name}"
OF_USER: Final = PATH + "/username/{user}"
OF_HOST: Final = "/api/vhosts/{vhost}/connections"
REASON: Final = "Closed via management plugin"
REASON_MAX: Final = 200  # characters; every protocol has room for as many


@attrs.frozen
class Open:
    """A connection, and the facts that its front-end reports."""

    connected: Connected
    facts: ConnectionFacts

    @property
    def name(self) -> str:
        return self.connected.peer.name


def open_connections(
    request: Request, virtual_host: str | None = None, user: str | None = None
) -> Iterator[Open | None]:
    """Yield the connections that the user may see, as they are when they are reached, and None for each other one."""
    own = None if sees_all(request) else request.user.name
    for connected in list(request.operations.connections()):
        facts = None if connected.front is None else connected.front.facts()
        is_wanted = (
            facts is not None
            and own in (None, facts.user)
            and user in (None, facts.user)
            and virtual_host in (None, facts.virtual_host)
        )
        yield Open(connected, facts) if facts is not None and is_wanted else None


def connection_named(request: Request) -> Open:
    """Return the connection in the path. Raises NotFound, or Refused if it is another user's."""
    name = request.arguments["name"]
    for connected in request.operations.connections():
        if connected.peer.name == name and connected.front is not None:
            facts = connected.front.facts()
            if facts is not None:
                require_own(request, facts.user, sees_all(request))
                return Open(connected, facts)
    raise not_there()


def require_own(request: Request, user: str, or_else: bool) -> None:
    """Raise Refused unless the user is the given one, or `or_else` is true."""
    if not or_else and request.user.name != user:
        raise not_authorised("User not authorised to access object")


# Fields.


def timestamp_ms(connected: Connected) -> int:
    return round(connected.connected_at * 1000)


def provided_name(facts: ConnectionFacts) -> Json:
    """Return the client's own name for the connection."""
    return as_json(facts.client_properties.get("connection_name"))


CONNECTION: Final[Fields[Open]] = {
    "auth_mechanism": lambda each: each.facts.mechanism,
    "channel_max": lambda each: each.facts.channel_max,
    "channels": lambda each: each.facts.channels,
    "client_properties": lambda each: as_json(each.facts.client_properties),
    "container_id": lambda each: each.facts.container_id,
    "connected_at": lambda each: timestamp_ms(each.connected),
    "frame_max": lambda each: each.facts.frame_max,
    "host": lambda each: each.connected.peer.local_host,
    "name": lambda each: each.name,
    "peer_cert_issuer": lambda each: None,
    "peer_cert_subject": lambda each: tls_fact(each, "subject"),
    "peer_cert_validity": lambda each: None,
    "peer_host": lambda each: each.connected.peer.host,
    "peer_port": lambda each: each.connected.peer.port,
    "peer_process": lambda each: process(each),
    "port": lambda each: each.connected.peer.local_port,
    "protocol": lambda each: each.facts.protocol,
    "recv_cnt": lambda each: each.connected.reads,
    "recv_oct": lambda each: each.connected.octets_received,
    "send_cnt": lambda each: each.connected.writes,
    "send_oct": lambda each: each.connected.octets_sent,
    "send_pend": lambda each: each.connected.octets_waiting,
    "unfinished_bytes": lambda each: each.facts.unfinished_bytes,
    "ssl": lambda each: each.connected.peer.tls is not None,
    "ssl_cipher": lambda each: tls_fact(each, "cipher"),
    "ssl_hash": lambda each: None,
    "ssl_key_exchange": lambda each: None,
    "ssl_protocol": lambda each: tls_fact(each, "version"),
    "state": lambda each: state(each.facts),
    "timeout": lambda each: round(each.facts.heartbeat_s),
    "type": lambda each: "network",
    "user": lambda each: each.facts.user,
    "user_provided_name": lambda each: provided_name(each.facts),
    "user_who_performed_action": lambda each: each.facts.user,
    "vhost": lambda each: each.facts.virtual_host,
    "websocket": lambda each: each.connected.peer.websocket,
}


def state(facts: ConnectionFacts) -> str:
    """Return RabbitMQ's word: `flow` while the connection waits for a rate."""
    return "blocked" if facts.blocked else "flow" if facts.throttled else "running"


def process(each: Open) -> Json:
    """Return the process at the other end of a Unix domain socket; None for others."""
    found = each.connected.peer.process
    return None if found is None else {"pid": found.pid, "uid": found.uid, "gid": found.gid}


def tls_fact(each: Open, name: str) -> str | None:
    tls = each.connected.peer.tls
    found: str | None = None if tls is None else getattr(tls, name)
    return found


def fields(request: Request) -> Fields[Open]:
    """Return the fields of a connection. Raises PreconditionFailed for wrong parameters of rates."""
    rates, node = Rates(request), request.operations.name
    return {
        **CONNECTION,
        "node": lambda each: node,
        "recv_oct_details": lambda each: rates.details(each.connected, "recv_oct"),
        "send_oct_details": lambda each: rates.details(each.connected, "send_oct"),
    }


def order(each: Open) -> tuple[str, str]:
    return each.facts.virtual_host, each.name


# Routes.


def connections(request: Request) -> Later:
    return shown(request, open_connections(request))


def connections_of_host(request: Request) -> Later:
    return shown(request, open_connections(request, host_of(request).name))


def what_is_sampled(each: Open) -> object:
    return each.connected


def shown(request: Request, found: Iterable[Open | None]) -> Later:
    keys: Fields[Open] = Rates(request).details_keys(("recv_oct", "send_oct"), what_is_sampled)
    return listed(request, found, fields(request), order, lambda each: each.name, keys)


def connection(request: Request) -> Response:
    return told(request, connection_named(request), fields(request))


def connections_of_user(request: Request) -> Later:
    """Answer with the few fields that RabbitMQ has for the connections of a user, which it tracks separately."""
    found, node = open_connections(request, user=request.arguments["user"]), request.operations.name
    few: Fields[Open] = {
        **{name: CONNECTION[name] for name in ("name", "vhost", "user")},
        "node": lambda each: node,
    }
    return listed(request, found, few, order, lambda each: each.name)


def close(request: Request) -> Response:
    """Close the connection in the path, with the reason in the header X-Reason."""
    found = connection_named(request)
    require_own(request, found.facts.user, ADMINISTRATOR in request.user.tags)
    found.connected.shut_down(reason(request))
    return DONE


def close_all_of_user(request: Request) -> Response:
    """Close all connections of a user, however many there are."""
    user, why = request.arguments["user"], reason(request)
    require_own(request, user, ADMINISTRATOR in request.user.tags)
    for connected in list(request.operations.connections()):
        facts = None if connected.front is None else connected.front.facts()
        if facts is not None and facts.user == user:
            connected.shut_down(why)
    return DONE


def reason(request: Request) -> str:
    return request.headers.get("x-reason", "")[:REASON_MAX] or REASON


class Directory:
    """An index of connections by their names, for one request."""

    def __init__(self, request: Request) -> None:
        operations = request.broker.operations
        self.node = "" if operations is None else operations.name
        self._connected = (
            {} if operations is None else {each.peer.name: each for each in operations.connections()}
        )
        self.user_of = cache(self._user_of)
        self.given_to = cache(self._given_to)

    def find(self, name: str) -> Connected | None:
        return self._connected.get(name)

    def _user_of(self, name: str) -> str:
        facts = self._facts_of(name)
        return "" if facts is None else facts.user

    def _given_to(self, name: str) -> Json:
        """Return the client's own name for a connection."""
        facts = self._facts_of(name)
        return None if facts is None else provided_name(facts)

    def _facts_of(self, name: str) -> ConnectionFacts | None:
        connected = self.find(name)
        return None if connected is None or connected.front is None else connected.front.facts()


ROUTES: Final = (
    Route("GET", PATH, Level.MANAGEMENT, connections),
    Route("GET", ONE, Level.MANAGEMENT, connection),
    Route("DELETE", ONE, Level.MANAGEMENT, close),
    Route("GET", OF_USER, Level.MANAGEMENT, connections_of_user),
    Route("DELETE", OF_USER, Level.MANAGEMENT, close_all_of_user),
    Route("GET", OF_HOST, Level.MANAGEMENT, connections_of_host),
)
