"""Read what comes before a protocol's first byte on a connection: a PROXY header, a TLS handshake, and
the request for a WebSocket.

accepted ─> a PROXY header of a node that relays ─> a PROXY header, if proxies stand before the listener
    ─> a handshake, if it has TLS ─> a request for a WebSocket, if it serves those ─> a protocol's bytes
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import attrs
import trio

from leveret.front_end import Peer
from leveret.server.node.listener import (
    HANDSHAKE,
    ListenerRules,
    NotAdmitted,
    RelayRules,
    WebSocketRules,
    introduced,
)
from leveret.server.node.proxy_protocol import BadHeader, ProxyHeader, header_in
from leveret.server.node.tls import Certificates, reason

if TYPE_CHECKING:
    from leveret.server.node.tls_socket import TlsSocket
    from leveret.server.node.websocket import WebSocketStream


class Handshake:
    """Does the steps that a listener's entrance asks for. The socket's owner reads, and hands it over for TLS."""

    def __init__(
        self, entrance: ListenerRules, read: Callable[[], Awaitable[bytes]], data: bytes = b""
    ) -> None:
        """`read` returns the next bytes; empty at the end. `data` was read already."""
        self.data = data  # bytes that were read and belong to what follows
        self._entrance = entrance
        self._read = read

    async def introduce(self, proxy: Peer) -> Peer:
        """Read the PROXY header, and return the client that it names as the peer. Raises NotAdmitted."""
        self._entrance.admit_proxy(proxy)
        header = await self._header()
        self.data = self.data[header.size :]
        return introduced(proxy, header)

    async def relayed(self, node: Peer, rules: RelayRules) -> tuple[Peer, ListenerRules]:
        """Read the header of another node of the cluster, and return its client and the listener that this used.

        Raises NotAdmitted.
        """
        header = await self._header()
        try:
            name = rules.listener_of(self.data[: header.size])
        except BadHeader as problem:
            raise NotAdmitted(str(problem)) from None
        entrance = rules.entrances.get(name)
        if entrance is None:
            raise NotAdmitted(f"it was relayed from a listener '{name}', which this node does not have")
        self.data = self.data[header.size :]
        peer = introduced(node, header)
        return attrs.evolve(peer, served=entrance.names, virtual_host=entrance.virtual_host), entrance

    async def _header(self) -> ProxyHeader:
        """Read until a PROXY header is whole, and return it. Raises NotAdmitted."""
        while True:
            try:
                header = header_in(self.data)
            except BadHeader as problem:
                raise NotAdmitted(str(problem)) from None
            if header is not None:
                return header
            self.data += await self._more("before the end of the PROXY header")

    async def begins_tls(self) -> bool:
        """Return whether the first byte is that of TLS. Raises NotAdmitted."""
        if not self.data:
            self.data = await self._more("before its first byte")
        return self.data[0] == HANDSHAKE

    async def secure(self, connected: socket.socket, certificates: Certificates) -> TlsSocket:
        """Do the TLS handshake, and return the socket that takes the plain one's place. Raises NotAdmitted."""
        from leveret.server.node.tls_socket import TlsSocket  # not needed in a node without TLS

        while not self._entrance.begins_tls(self.data):
            self.data += await self._more("during the TLS handshake" if self.data else "before TLS began")
        secured = TlsSocket(connected, certificates.context)
        data, self.data = self.data, b""
        size = len(data)
        while not _hands_shaken(secured, data):
            await _all_flushed(secured)
            data = await self._more("during the TLS handshake")
            size += len(data)
            self._entrance.admit_size(size)
        await _all_flushed(secured)
        return secured

    async def open_websocket(
        self, line: socket.socket | TlsSocket, rules: WebSocketRules, peer: Peer
    ) -> WebSocketStream | None:
        """Answer the request for a WebSocket, and return the stream that takes the socket's place.

        Returns None if the request is for HTTP; nothing of it is lost. Raises NotAdmitted.
        """
        from leveret.server.node import websocket  # most nodes have none

        if rules.beside_http:
            more = b"..."
            while more and (is_opening := websocket.is_opening(self.data)) is None:
                self.data += (more := await self._read())
            if not (more and is_opening):
                return None
        while websocket.HEAD_END not in self.data:
            if len(self.data) > websocket.HEAD_MAX:
                raise NotAdmitted(f"a request for a WebSocket of more than {websocket.HEAD_MAX} bytes")
            self.data += await self._more("during its request for a WebSocket")
        head, end, behind = self.data.partition(websocket.HEAD_END)
        is_here = peer.loopback and not peer.is_unix
        own_name = rules.own_name if is_here else None
        opening = websocket.opened(head + end, rules.origins, own_name, rules.subprotocols)
        await _all_sent(line, memoryview(opening.answer))
        if opening.connection is None:
            raise NotAdmitted(f"no WebSocket: {opening.reason}")
        self.data = b""
        return websocket.WebSocketStream(line, opening.connection, behind)

    async def _more(self, when: str) -> bytes:
        data = await self._read()
        if not data:
            raise NotAdmitted(f"it hung up {when}")
        return data


def _hands_shaken(secured: TlsSocket, data: bytes) -> bool:
    try:
        return secured.handshake(data)
    except ssl.SSLError as error:
        with contextlib.suppress(OSError):
            secured.flush()  # send the alert that tells the peer why
        raise NotAdmitted(f"no TLS: {reason(error)}") from None


async def _all_flushed(secured: TlsSocket) -> None:
    try:
        while not secured.flush():
            await trio.lowlevel.wait_writable(secured)
    except OSError:
        raise NotAdmitted("it hung up during the TLS handshake") from None


async def _all_sent(line: socket.socket | TlsSocket, rest: memoryview) -> None:
    try:
        while rest:
            try:
                rest = rest[line.send(rest) :]
            except BlockingIOError:
                await trio.lowlevel.wait_writable(line)
    except OSError:
        raise NotAdmitted("it hung up before its request was answered") from None
