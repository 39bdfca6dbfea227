"""Listeners: where a node accepts connections, what one serves, and what it asks for before a protocol's first byte."""

from __future__ import annotations

import errno
import logging
import socket
from collections.abc import Iterable, Iterator
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from socket import socket as Socket  # noqa: N812
from struct import Struct
from typing import TYPE_CHECKING, Final, TypeAlias
from urllib.parse import quote

import attrs

from broker_core.config.listening import ListenerEntry
from broker_core.config.types import Address
from broker_core.frontend import Peer
from broker_core.node.proxy_protocol import ProxyHeader
from broker_core.node.systemd import Handed, Where

if TYPE_CHECKING:
    from broker_core.frontend import Protocol
    from broker_core.node.tls import Certificates

log: Final = logging.getLogger("leveret.node")

BACKLOG: Final = 1024  # connections that may wait to be accepted
NO_IPV6: Final = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
CLOSED: Final = -1  # the number of a socket that has been closed
HANDSHAKE_OCTETS_MAX: Final = 8192  # from a client that shows no certificate
CERTIFICATE_OCTETS_MAX: Final = 32_768  # what it may send besides, if it is asked for one
BITE: Final = 4096  # octets asked for in one read until it is known who speaks
HANDSHAKE: Final = 0x16  # how TLS begins
RECORD: Final = Struct("!3xH")  # type, version, and the octets that follow
TLS_HELLO: Final = b"\x16\x03"
Network: TypeAlias = IPv4Network | IPv6Network


class NotAdmitted(Exception):  # noqa: N818 - a peer's affair, not a mistake
    """The peer does not come in; the text says why, for the log."""


@attrs.frozen
class Entrance:
    """What one listener asks for, and serves."""

    protocols: tuple[Protocol, ...]
    certificates: Certificates | None = None  # None: connections are plain
    proxies: tuple[Network, ...] | None = None  # None: connections come straight from clients

    @property
    def is_plain(self) -> bool:
        """Whether the first octet is a protocol's."""
        return self.certificates is None and self.proxies is None

    @property
    def is_secured(self) -> bool:
        return self.certificates is not None

    @property
    def names(self) -> tuple[str, ...]:
        """Of its protocols."""
        return tuple(protocol.name for protocol in self.protocols)

    @property
    def scheme(self) -> str:
        """How a URL of AMQP begins."""
        return "amqps" if self.is_secured else "amqp"

    @property
    def octets_max(self) -> int:
        """What a handshake may take."""
        asks = self.certificates is not None and self.certificates.settings.client_certificate != "none"
        return HANDSHAKE_OCTETS_MAX + (CERTIFICATE_OCTETS_MAX if asks else 0)

    def admit_proxy(self, peer: Peer) -> None:
        """Whether the peer may say who the client is. Raises NotAdmitted."""
        assert self.proxies is not None
        address = _plain_address(peer.host)
        if not any(address in network for network in self.proxies):
            raise NotAdmitted("only proxies that proxy_from names may connect here")

    def begins_tls(self, octets: bytes) -> bool:
        """Whether they have a whole record of a handshake; before, TLS is not worth its 50 KiB. Raises NotAdmitted."""
        if octets and octets[0] != HANDSHAKE:
            raise NotAdmitted(f"TLS is spoken here, detected {self._spoken(octets)}")
        self.admit_size(len(octets))
        return len(octets) >= RECORD.size and len(octets) >= RECORD.size + RECORD.unpack_from(octets)[0]

    def admit_size(self, size: int) -> None:
        """Whether a handshake that is not over may have taken so many octets. Raises NotAdmitted."""
        if size > self.octets_max:
            raise NotAdmitted(f"a TLS handshake of more than {self.octets_max} octets")

    def undecided(self, data: bytes) -> bool:
        """Whether more bytes could still tell which protocol begins so."""
        return any(
            first.startswith(data) and len(first) > len(data)
            for protocol in self.protocols
            for first in protocol.first_bytes
        )

    def protocol_of(self, data: bytes) -> Protocol:
        """The protocol that begins so; if there is none, the one that answers in its place."""
        fallback = next((p for p in self.protocols if p.fallback), self.protocols[0])
        return next((p for p in self.protocols if data.startswith(p.first_bytes)), fallback)

    def _spoken(self, octets: bytes) -> str:
        known = (p.title or p.name for p in self.protocols if octets.startswith(p.first_bytes))
        if octets.startswith((b"PROXY ", b"\r\n\r\n\0")):
            return "a PROXY header"
        return f"{next(known, 'an unknown protocol')} without TLS"


@attrs.frozen(eq=False)
class Listener:
    """A socket that accepts connections, and what is served there."""

    socket: Socket
    entrance: Entrance
    address: str = attrs.field(init=False)  # as HOST:PORT, after it has been closed too

    @address.default
    def _shown(self) -> str:
        return str(Address(*self.socket.getsockname()[:2]))

    @property
    def is_open(self) -> bool:
        return self.socket.fileno() != CLOSED


def listeners(address: Address, handed: Handed) -> Iterator[socket.socket]:
    """One for each address that a name stands for; without that of IPv6's loopback where there is no IPv6.

    Those that were handed to this process take the place of new ones.
    """
    try:
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


def _resolved(address: Address) -> Iterable[tuple[int, Where]]:
    """The families and socket addresses, each once, in the system's order."""
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
    """The networks whose proxies a listener believes; None if it expects clients themselves."""
    return tuple(ip_network(text) for text in entry.proxy_from) if entry.proxy_protocol else None


def introduced(peer: Peer, header: ProxyHeader) -> Peer:
    """The peer that a proxy speaks of.

    From this machine is only who is so for a proxy on this machine. Where the proxy does not say, nobody is.
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
    )


def _plain_address(host: str) -> IPv4Address | IPv6Address:
    address = ip_address(host.partition("%")[0])
    return (isinstance(address, IPv6Address) and address.ipv4_mapped) or address


def amqp_url(address: str, user: str, password: str, virtual_host: str, scheme: str = "amqp") -> str:
    """`amqp://user:password@host:port/virtual_host`, whatever the parts; a client can use it as it is."""
    for everywhere, here in (("0.0.0.0:", "127.0.0.1:"), ("[::]:", "[::1]:")):
        if address.startswith(everywhere):
            address = here + address.removeprefix(everywhere)
    name, secret, host = (quote(part, safe="") for part in (user, password, virtual_host))
    return f"{scheme}://{name}:{secret}@{address}/{host}"


def peer_of(connected: socket.socket, served: tuple[str, ...]) -> Peer:
    host, port = connected.getpeername()[:2]
    local_host, local_port = connected.getsockname()[:2]
    loopback = host == "::1" or host.removeprefix("::ffff:").startswith("127.")
    return Peer(host, port, local_host, local_port, loopback, served)
