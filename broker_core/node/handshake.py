"""What a connection is before it is anybody's: who it comes from, TLS, and the little time that a stranger has.

    accepted ─> a PROXY header, if proxies stand before it ─> a handshake, if it has TLS ─> a stranger ─> acquainted

The time to log in runs from the moment a connection was accepted; nothing that its peer sends moves its end. Until then
the peer is read from in bites, so that it cannot have us keep more than a few of them.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import ssl
from abc import abstractmethod
from typing import TYPE_CHECKING, Final

import attrs
import trio

from broker_core.frontend import Peer
from broker_core.node.listener import BITE, Entrance, NotAdmitted, introduced
from broker_core.node.proxy_protocol import BadHeader, header_in
from broker_core.node.tls import reason
from broker_core.node.tls_socket import SecuredSocket
from broker_core.operations import Connected

if TYPE_CHECKING:
    from broker_core.clock import Timer
    from broker_core.node.node import Node

log: Final = logging.getLogger("leveret.connection")

READ_SIZE: Final = 262_144  # octets asked for in one read: hundreds of small messages, or a few large ones
GOODBYE_S: Final = 2.0  # for the peer to take the last bytes and hang up


class Arriving(Connected):
    """The part of a connection that lets its peer in."""

    node: Node
    _socket: socket.socket | SecuredSocket

    def __init__(self, node: Node, peer: Peer, entrance: Entrance) -> None:
        self.node = node
        self.peer = peer
        self.front = None
        self._entrance = entrance
        self._connected_since = node.broker.clock.now()
        self._is_stranger = True
        self._is_turned_away = False
        self._stranger_timer: Timer | None = None
        self._read_size = BITE

    @abstractmethod
    async def _read(self) -> bytes:
        """The next bytes; empty at the end."""

    @abstractmethod
    def hang_up(self) -> None:
        """End the conversation."""

    @abstractmethod
    def mistakes_end_it(self) -> contextlib.AbstractContextManager[None]:
        """What is raised here is a mistake of ours."""

    async def _enter(self) -> bytes:
        """What comes before a protocol's first bytes; those that came along. Raises NotAdmitted."""
        data = b""
        if self._entrance.proxies is not None:
            self._entrance.admit_proxy(self.peer)
            data = await self._introduce()
        if self._entrance.certificates is not None:
            await self._shake_hands(data)
            data = b""
        return data

    async def _introduce(self) -> bytes:
        """Let the proxy say whose connection it is."""
        data = b""
        while True:
            try:
                header = header_in(data)
            except BadHeader as problem:
                raise NotAdmitted(str(problem)) from None
            if header is not None:
                self._come_from(introduced(self.peer, header))
                return data[header.size :]
            data += await self._more("before the end of the PROXY header")

    def _come_from(self, peer: Peer) -> None:
        """It is known now who the client is. Raises NotAdmitted."""
        self.peer = peer
        door, limits = self.node.door, self.node.config.limits
        if why := door.refusal_from(peer.host, peer.loopback, limits, self.node.broker.clock.now()):
            raise NotAdmitted(why)
        door.came_from(self, peer.host, peer.loopback)

    async def _more(self, when: str) -> bytes:
        data = await self._read()
        if not data:
            raise NotAdmitted(f"it hung up {when}")
        return data

    async def _shake_hands(self, data: bytes) -> None:
        """From here on the socket speaks TLS."""
        certificates = self._entrance.certificates
        assert certificates is not None
        assert isinstance(self._socket, socket.socket)
        while not self._entrance.begins_tls(data):
            data += await self._more("during the TLS handshake" if data else "before TLS began")
        secured = SecuredSocket(self._socket, certificates.context)
        size = len(data)
        while not self._hands_shaken(secured, data):
            await self._all_flushed(secured)
            data = await self._more("during the TLS handshake")
            size += len(data)
            self._entrance.admit_size(size)
        await self._all_flushed(secured)
        self._socket = secured
        self.peer = attrs.evolve(self.peer, tls=certificates.facts(secured.tls))

    def _hands_shaken(self, secured: SecuredSocket, data: bytes) -> bool:
        try:
            return secured.handshake(data)
        except ssl.SSLError as error:
            with contextlib.suppress(OSError):
                secured.flush()  # it is told why
            raise NotAdmitted(f"no TLS: {reason(error)}") from None

    async def _all_flushed(self, secured: SecuredSocket) -> None:
        try:
            while not secured.flush():
                await trio.lowlevel.wait_writable(secured)
        except OSError:
            raise NotAdmitted("it hung up during the TLS handshake") from None

    # Strangers.

    @property
    def is_proxied(self) -> bool:
        """Whether a proxy says, or is still to say, whose connection it is."""
        return self._entrance.proxies is not None

    def _has_until(self) -> float:
        """When the time to log in is over."""
        return self._connected_since + self.node.config.limits.handshake_timeout_s

    def _begin_time(self) -> None:
        """See to it that it is not longer, whatever the peer does."""
        timers = self.node.broker.timers
        self._stranger_timer = timers.at(self._has_until(), self._took_too_long)

    def _end_time(self) -> None:
        self.node.door.strangers.leave(self)
        self.node.broker.timers.cancel(self._stranger_timer)

    def _acquainted(self) -> None:
        """Its user has logged in."""
        self._is_stranger = False
        self._read_size = READ_SIZE
        self._end_time()

    def turn_away(self) -> None:
        """Others need the place: hang up, and do not wait for anything."""
        self._is_turned_away = True
        self._end_time()
        self.hang_up()

    def _took_too_long(self, now: float) -> None:
        """The time to log in is over, whatever it does meanwhile."""
        if self.front is None or not self.front.is_stranger:
            return
        with self.mistakes_end_it():
            self.front.on_deadline(now)
        self.hang_up()

    @property
    def _goodbye_until(self) -> float:
        """How long it may take to read our last bytes: strangers no longer than to log in."""
        until = trio.current_time() + (0.0 if self._is_turned_away else GOODBYE_S)
        return min(until, self._has_until()) if self._is_stranger else until
