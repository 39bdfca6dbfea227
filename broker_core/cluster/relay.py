"""Pass clients on to the node that serves: bytes of two sockets, in both directions, whatever the protocol.

All bytes go through one buffer: what was read is sent before anything else is read, and only what the other side does
not take at once is copied and kept. Nothing is read meanwhile, so a relayed connection keeps one piece at most.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import socket
from collections.abc import Callable, Iterator
from typing import Final

import trio

from broker_core.cluster.introduction import Announcement, introduction
from broker_core.config.types import Address
from broker_core.frontend import Peer
from broker_core.node.proxy_protocol import ProxiedRoute

log: Final = logging.getLogger("leveret.cluster")

PIECE: Final = 262_144  # bytes in one read
OWNER_WAIT_S: Final = 5.0  # for a node that serves, before a client is turned away
RETRY_S: Final = 0.1
KEEPALIVE: Final = (  # an owner whose machine is gone is noticed within 5 s
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    *(
        (socket.IPPROTO_TCP, getattr(socket, name), value)
        for name, value in (
            ("TCP_KEEPIDLE", 2),
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

    def __init__(self, owner: Callable[[], Announcement | None]) -> None:
        """`owner` returns where the node is that serves, as far as it is known."""
        self._owner = owner
        self._buffer = bytearray(PIECE)
        self._view = memoryview(self._buffer)
        self.connections = 0  # at the moment
        self.octets = 0  # in both directions, since the start

    async def pass_on(self, client: socket.socket, peer: Peer, listener: str, first: bytes = b"") -> None:
        """Relay a client's connection until it ends; `first` are bytes of it that were read already."""
        with self._counted(client):
            owner = await self._connected()
            if owner is None:
                log.warning("%s: turned away, no node serves", peer.name)
                return
            server, key = owner
            with server:
                hello = introduction(None if peer.is_unix else _route(peer), listener, key) + first
                if await self._send(server, memoryview(hello)):
                    async with trio.open_nursery() as both:
                        both.start_soon(self._copy, client, server, both.cancel_scope)
                        both.start_soon(self._copy, server, client, both.cancel_scope)

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

    async def _copy(self, source: socket.socket, target: socket.socket, both: trio.CancelScope) -> None:
        """Copy until the source ends. An error of either side ends both directions."""
        while True:
            await trio.lowlevel.wait_readable(
                source
            )  # one that has sent more is readable, and others have their turn
            try:
                size = source.recv_into(self._buffer)
            except (BlockingIOError, InterruptedError):
                continue
            except OSError:
                break
            if not size:
                with contextlib.suppress(OSError):
                    target.shutdown(socket.SHUT_WR)
                return
            self.octets += size
            if not await self._send(target, self._view[:size]):
                break
        both.cancel()

    async def _send(self, target: socket.socket, piece: memoryview) -> bool:
        """Send a piece; its buffer is used by others as soon as this waits. Return False if the target has gone."""
        try:
            sent = target.send(piece)
        except (BlockingIOError, InterruptedError):
            sent = 0
        except OSError:
            return False
        if sent == len(piece):
            return True
        rest = memoryview(bytes(piece[sent:]))
        while rest:
            await trio.lowlevel.wait_writable(target)
            try:
                rest = rest[target.send(rest) :]
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
