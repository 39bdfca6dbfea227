"""Pass clients on to the node that serves: bytes of two sockets, in both directions, whatever the protocol.

The loop connects and introduces the client; `copier.py` copies from then on, in a thread of its own.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import socket
from collections.abc import Callable, Iterator
from typing import Final

import trio

from leveret.config.types import Address
from leveret.front_end import Peer
from leveret.server.cluster.copier import Copier
from leveret.server.cluster.introduction import NAME_SIZE, Announcement, Serials, introduction
from leveret.server.node.proxy_protocol import ProxiedRoute

log: Final = logging.getLogger("leveret.cluster")

OWNER_WAIT_S: Final = 5.0  # for a node that serves, before a client is turned away
RETRY_S: Final = 0.1
KEEPALIVE: Final = (  # a node whose machine is gone is noticed within 5 s, by either end of a relayed connection
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    *(
        (socket.IPPROTO_TCP, getattr(socket, name), value)
        for name, value in (
            ("TCP_KEEPIDLE", 2),
            ("TCP_KEEPALIVE", 2),  # the same on macOS
            ("TCP_KEEPINTVL", 1),
            ("TCP_KEEPCNT", 3),
            ("TCP_USER_TIMEOUT", 5000),
        )
        if hasattr(socket, name)
    ),
)
UNFINISHED: Final = (errno.EINPROGRESS, errno.EWOULDBLOCK)


class Relay:
    """Relayed connections of one node, and their figures."""

    def __init__(
        self, owner: Callable[[], Announcement | None], random_octets: Callable[[int], bytes] = os.urandom
    ) -> None:
        """`owner` returns where the node is that serves, as far as it is known."""
        self._owner = owner
        self._serials = Serials(random_octets(NAME_SIZE))
        self._copier: Copier | None = None  # from the first client on
        self.connections = 0  # at the moment

    @property
    def octets(self) -> int:
        """Return how many bytes were copied since the start, in both directions."""
        return 0 if self._copier is None else self._copier.octets

    def close(self) -> None:
        """End the thread, once no client is relayed any more."""
        if self._copier is not None:
            self._copier.close()

    async def pass_on(self, client: socket.socket, peer: Peer, listener: str, first: bytes = b"") -> None:
        """Relay a client's connection until it ends; `first` are bytes of it that were read already."""
        with self._counted(client):
            owner = await self._connected()
            if owner is None:
                log.warning("%s: turned away, no node serves", peer.name)
                return
            server, key = owner
            with server:
                route = None if peer.is_unix else _route(peer)
                hello = introduction(route, listener, key, self._serials.next()) + first
                if await self._send(server, memoryview(hello)):
                    await self._copied(client, server)

    async def _copied(self, client: socket.socket, server: socket.socket) -> None:
        """Have bytes copied until both sides have ended, or one has failed."""
        self._copier = copier = self._copier or Copier()
        over, token = trio.Event(), trio.lowlevel.current_trio_token()
        line = copier.add(client, server, lambda: token.run_sync_soon(over.set))
        try:
            await over.wait()
        finally:
            copier.drop(line)
            with trio.CancelScope(shield=True):  # the sockets are the thread's until then
                await over.wait()

    @contextlib.contextmanager
    def _counted(self, client: socket.socket) -> Iterator[None]:
        self.connections += 1
        try:
            with client:
                yield
        finally:
            self.connections -= 1

    async def _connected(self) -> tuple[socket.socket, bytes] | None:
        """Return a connection to the owner, and the key for it; None if there is none in time."""
        with trio.move_on_after(OWNER_WAIT_S):
            while True:
                owner = self._owner()
                if owner is not None:
                    with contextlib.suppress(OSError):
                        return await connected(owner.address), owner.key
                await trio.sleep(RETRY_S)
        return None

    async def _send(self, target: socket.socket, piece: memoryview) -> bool:
        """Send a piece. Return False if the target has gone."""
        while piece:
            await trio.lowlevel.wait_writable(target)
            try:
                piece = piece[target.send(piece) :]
            except (BlockingIOError, InterruptedError):
                continue
            except OSError:
                return False
        return True


async def connected(address: Address) -> socket.socket:
    """Return a connection to an address, with options that notice a dead machine. Raises OSError."""
    failure: OSError = OSError(errno.EADDRNOTAVAIL, f"no address for {address}")
    found = await trio.socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    for family, _, _, _, where in found:
        made = socket.socket(family, socket.SOCK_STREAM)
        try:
            made.setblocking(False)
            for option in KEEPALIVE:
                made.setsockopt(*option)
            began = made.connect_ex(where)
            if began in UNFINISHED:
                await trio.lowlevel.wait_writable(made)
                began = made.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if began:
                raise OSError(began, f"cannot connect to {address}")
        except OSError as error:
            made.close()
            failure = error
        except BaseException:
            made.close()
            raise
        else:
            return made
    raise failure


def _route(peer: Peer) -> ProxiedRoute:
    def plain(host: str) -> str:
        return host.partition("%")[0]

    return ProxiedRoute(plain(peer.host), peer.port, plain(peer.local_host), peer.local_port)
