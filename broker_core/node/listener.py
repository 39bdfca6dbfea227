"""Addresses to sockets: where a node listens, and what it tells of whom it has accepted there."""

from __future__ import annotations

import errno
import logging
import socket
from collections.abc import Iterable, Iterator
from typing import Final
from urllib.parse import quote

from broker_core.config.types import Address
from broker_core.frontend import Peer
from broker_core.node.activation import Handed, Where

log: Final = logging.getLogger("leveret.node")

BACKLOG: Final = 1024  # connections that may wait to be accepted
NO_IPV6: Final = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)


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


def amqp_url(address: str, user: str, password: str, virtual_host: str, scheme: str = "amqp") -> str:
    """`amqp://user:password@host:port/virtual_host`, whatever the parts; a client can use it as it is."""
    for everywhere, here in (("0.0.0.0:", "127.0.0.1:"), ("[::]:", "[::1]:")):
        if address.startswith(everywhere):
            address = here + address.removeprefix(everywhere)
    name, secret, host = (quote(part, safe="") for part in (user, password, virtual_host))
    return f"{scheme}://{name}:{secret}@{address}/{host}"


def shown(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return str(Address(host, port))


def peer_of(connected: socket.socket, served: tuple[str, ...]) -> Peer:
    host, port = connected.getpeername()[:2]
    local_host, local_port = connected.getsockname()[:2]
    loopback = host == "::1" or host.removeprefix("::ffff:").startswith("127.")
    return Peer(host, port, local_host, local_port, loopback, served)
