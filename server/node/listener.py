"""Listeners: the sockets on which a node accepts connections, and what each of them serves and requires."""

from __future__ import annotations

import errno
import logging
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from itertools import count
from socket import socket as Socket  # noqa: N812
from struct import Struct
from typing import TYPE_CHECKING, Final, TypeAlias
from urllib.parse import quote

import attrs

from leveret.config.listener import ListenerEntry
from leveret.config.types import Address, AnyAddress, UnixAddress
from leveret.front_end import Peer, ProcessFacts
from leveret.server.node.proxy_protocol import ProxyHeader
from leveret.server.node.systemd import Handed, Where, address_of

if TYPE_CHECKING:
    from leveret.front_end import Protocol
    from leveret.server.node.tls import Certificates

log: Final = logging.getLogger("leveret.node")

BACKLOG: Final = 1024  # connections that may wait to be accepted
NO_IPV6: Final = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
CLOSED: Final = -1  # the file descriptor of a closed socket
HANDSHAKE_OCTETS_MAX: Final = 8192  # from a client that shows no certificate
CERTIFICATE_OCTETS_MAX: Final = 32_768  # what a client may send in addition if it is asked for a certificate
BITE: Final = 4096  # bytes asked for in one read until the client has logged in
HANDSHAKE: Final = 0x16  # the content type of a TLS handshake record
RECORD: Final = Struct("!3xH")  # type, version, and the number of bytes that follow
TLS_HELLO: Final = b"\x16\x03"
HERE: Final = IPv4Address("127.0.0.1")  # the address that the peers of a Unix domain socket count as
CREDENTIALS: Final = Struct("3i")  # `ucred` of unix(7)
Network: TypeAlias = IPv4Network | IPv6Network


class NotAdmitted(Exception):  # noqa: N818 - the peer's failure, not ours
    """The peer is refused; the text says why, for the log."""


@attrs.frozen
class WebSocketRules:
    """The WebSockets of a listener: what they carry, and which pages may open them."""

    inside: ListenerRules  # of what is in their frames
    origins: tuple[str, ...]  # sites whose pages may connect, besides pages of the same host
    own_name: str  # the configured name of the address
    beside_http: bool  # those of one path only; other requests are for HTTP

    @property
    def subprotocols(self) -> tuple[str, ...]:
        """The names by which clients may ask for what is in the frames."""
        return tuple(dict.fromkeys(name for each in self.inside.protocols for name in each.subprotocols))


@attrs.frozen
class RelayRules:
    """A listener for the clients that other nodes of the cluster pass on."""

    # the listener that such a node's header names; it may raise BadHeader
    listener_of: Callable[[bytes], str]
    entrances: Mapping[str, ListenerRules]  # of all other listeners, by those names


@attrs.frozen
class ListenerRules:
    """The protocols that one listener serves, and what it requires before their first byte."""

    protocols: tuple[Protocol, ...]
    certificates: Certificates | None = None  # None: connections are plain
    proxies: tuple[Network, ...] | None = None  # None: connections come straight from clients
    websocket: WebSocketRules | None = None  # None: there are none
    relayed: RelayRules | None = None  # None: connections are not those of other nodes
    virtual_host: str | None = None  # of clients that name none

    @property
    def is_plain(self) -> bool:
        """Return whether the first byte of a connection belongs to a protocol."""
        plain = self.certificates is None and self.proxies is None and self.websocket is None
        return plain and self.relayed is None

    @property
    def names_clients(self) -> bool:
        """Return whether the peer is not the client, which a header names."""
        return self.proxies is not None or self.relayed is not None

    @property
    def is_secured(self) -> bool:
        return self.certificates is not None

    @property
    def takes_plain(self) -> bool:
        """Return whether a connection may go without TLS."""
        return self.certificates is None or not self.certificates.settings.required

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the protocols."""
        return tuple(protocol.name for protocol in self.protocols)

    @property
    def scheme(self) -> str:
        """Return the scheme of the listener's AMQP URL."""
        return "amqps" if self.is_secured else "amqp"

    @property
    def octets_max(self) -> int:
        """Return the largest size of a client's side of the handshake, in bytes."""
        asks = self.certificates is not None and self.certificates.settings.client_certificate != "none"
        return HANDSHAKE_OCTETS_MAX + (CERTIFICATE_OCTETS_MAX if asks else 0)

    def admit_proxy(self, peer: Peer) -> None:
        """Check that the peer is a proxy that is trusted to name its client. Raises NotAdmitted."""
        assert self.proxies is not None
        address = HERE if peer.is_unix else _plain_address(peer.host)
        if not any(address in network for network in self.proxies):
            raise NotAdmitted("only proxies that proxy_from names may connect here")

    def begins_tls(self, octets: bytes) -> bool:
        """Return whether the bytes hold a whole record: TLS costs 50 KiB only from then on. Raises NotAdmitted."""
        if octets and octets[0] != HANDSHAKE:
            raise NotAdmitted(f"TLS is spoken here, detected {self._spoken(octets)}")
        self.admit_size(len(octets))
        return len(octets) >= RECORD.size and len(octets) >= RECORD.size + RECORD.unpack_from(octets)[0]

    def admit_size(self, size: int) -> None:
        """Check that an unfinished handshake is not too large. Raises NotAdmitted."""
        if size > self.octets_max:
            raise NotAdmitted(f"a TLS handshake of more than {self.octets_max} octets")

    def undecided(self, data: bytes) -> bool:
        """Return whether more bytes could still decide which protocol begins like this."""
        return any(
            first.startswith(data) and len(first) > len(data)
            for protocol in self.protocols
            for first in protocol.first_bytes
        )

    def protocol_of(self, data: bytes) -> Protocol:
        """Return the protocol that begins like this, or the most fitting one that answers in its place."""
        found = next((p for p in self.protocols if data.startswith(p.first_bytes)), None)
        if found is not None:
            return found
        nearest = max(self.protocols, key=lambda p: p.kinship(data))
        if nearest.kinship(data):
            return nearest
        return next((p for p in self.protocols if p.fallback), self.protocols[0])

    def _spoken(self, octets: bytes) -> str:
        known = (p.title or p.name for p in self.protocols if octets.startswith(p.first_bytes))
        if octets.startswith((b"PROXY ", b"\r\n\r\n\0")):
            return "a PROXY header"
        return f"{next(known, 'an unknown protocol')} without TLS"


@attrs.frozen(eq=False)
class Listener:
    """A socket that accepts connections, and what is served there."""

    socket: Socket
    entrance: ListenerRules
    bound: AnyAddress = attrs.field(init=False)  # still known after the socket has been closed
    # of peers without a port of their own
    numbers: Iterator[int] = attrs.field(init=False, factory=partial(count, 1))

    @bound.default
    def _bound(self) -> AnyAddress:
        return address_of(self.socket)

    @property
    def address(self) -> str:
        """Return the address as HOST:PORT, or `unix:` and the path."""
        return str(self.bound)

    @property
    def is_open(self) -> bool:
        return self.socket.fileno() != CLOSED


def welcomed(accepted: Socket, listener: Listener) -> Peer | None:
    """Return the peer of a connection that was accepted, prepared; None: it has gone already, and is closed."""
    try:
        prepare(accepted)
        return peer_of(accepted, listener)
    except OSError:
        accepted.close()
        return None


def listeners(entry: ListenerEntry, handed: Handed) -> Iterator[socket.socket]:
    """Yield a listening socket for each address that a name stands for; IPv6's loopback is skipped without IPv6.

    Sockets that were handed to this process take the place of new ones. Raises OSError, or ConfigError for an unknown
    owner of a Unix domain socket.
    """
    address = entry.address
    try:
        if isinstance(address, UnixAddress):
            yield from handed.at(socket.AF_UNIX, address.name) or [_unix_listener(entry)]
            return
        for family, where in _resolved(address):
            try:
                yield from handed.at(family, where) or [_listener(family, where)]
            except OSError as failure:
                if where[0] != "::1" or failure.errno not in NO_IPV6:
                    raise
                log.info("no IPv6 here: not listening on %s", address)
    except (OSError, UnicodeError) as failure:
        number, reason = failure.args if isinstance(failure, OSError) else (errno.EINVAL, "not a host name")
        raise OSError(number, f"cannot listen on {address}: {reason}") from None


def _unix_listener(entry: ListenerEntry) -> socket.socket:
    from leveret.server.node.unix_socket import unix_listener  # most nodes have none

    return unix_listener(entry, BACKLOG)


def _resolved(address: Address) -> Iterable[tuple[int, Where]]:
    """Return the families and socket addresses, each once, in the system's order."""
    found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    return dict.fromkeys((family, where) for family, _, _, _, where in found)


def _listener(family: int, where: Where) -> socket.socket:
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setblocking(False)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind(where)
        listener.listen(BACKLOG)
    except BaseException:
        listener.close()
        raise
    return listener


def proxies_of(entry: ListenerEntry) -> tuple[Network, ...] | None:
    """Return the networks whose proxies a listener trusts; None if clients connect to it directly."""
    return tuple(ip_network(text) for text in entry.proxy_from) if entry.proxy_protocol else None


def introduced(peer: Peer, header: ProxyHeader) -> Peer:
    """Return the client that a proxy names, as the peer.

    The client counts as local only if both it and the proxy are on this machine; never if the proxy does not name it.
    """
    route = header.route
    if route is None:
        return attrs.evolve(peer, loopback=False)
    return attrs.evolve(
        peer,
        host=route.host,
        port=route.port,
        local_host=route.local_host,
        local_port=route.local_port,
        loopback=peer.loopback and route.from_loopback,
        process=None,
    )


def _plain_address(host: str) -> IPv4Address | IPv6Address:
    address = ip_address(host.partition("%")[0])
    return (isinstance(address, IPv6Address) and address.ipv4_mapped) or address


def amqp_url(address: str, user: str, password: str, virtual_host: str, scheme: str = "amqp") -> str:
    """Return `amqp://user:password@host:port/virtual_host`, with its parts quoted; a wildcard becomes loopback.

    No URL of AMQP names a Unix domain socket: its address is returned as it is.
    """
    if address.startswith("unix:"):
        return address
    for everywhere, here in (("0.0.0.0:", "127.0.0.1:"), ("[::]:", "[::1]:")):
        if address.startswith(everywhere):
            address = here + address.removeprefix(everywhere)
    name, secret, host = (quote(part, safe="") for part in (user, password, virtual_host))
    return f"{scheme}://{name}:{secret}@{address}/{host}"


def peer_of(connected: socket.socket, listener: Listener) -> Peer:
    """Return the peer of an accepted socket. Raises OSError if it has disconnected already."""
    served, virtual_host = listener.entrance.names, listener.entrance.virtual_host
    if connected.family == socket.AF_UNIX:
        address, number = str(listener.bound), next(listener.numbers)
        process = _process(connected)
        return Peer("unix", number, address, 0, True, served, process=process, virtual_host=virtual_host)
    host, port = connected.getpeername()[:2]
    local_host, local_port = connected.getsockname()[:2]
    loopback = host == "::1" or host.removeprefix("::ffff:").startswith("127.")
    return Peer(host, port, local_host, local_port, loopback, served, virtual_host=virtual_host)


def _process(connected: socket.socket) -> ProcessFacts | None:
    if not hasattr(socket, "SO_PEERCRED"):  # not on Linux
        return None
    octets = connected.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size)
    return ProcessFacts(*CREDENTIALS.unpack(octets))


def prepare(connected: socket.socket) -> None:
    """Set the options of an accepted socket. Raises OSError if its peer has disconnected already."""
    connected.setblocking(False)
    if connected.family != socket.AF_UNIX:
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
