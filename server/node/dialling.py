"""Open connections to other brokers: TCP, TLS, and then a transport as for accepted ones."""

from __future__ import annotations

import contextlib
import os
import socket
import ssl
from typing import TYPE_CHECKING, Final

import trio

from leveret.front_end import Dial, Peer, TlsFacts
from leveret.server.node.listener import ListenerRules
from leveret.server.node.tls import reason
from leveret.server.node.tls_socket import TlsSocket
from leveret.server.node.transport import Transport, begin

if TYPE_CHECKING:
    from leveret.config.amqp_uri import Uri
    from leveret.server.node.node import Node

READ: Final = 65_536  # bytes at a time, during the TLS handshake
HELLO_MAX: Final = 1 << 20  # bytes of a handshake


class DialledTransport(Transport):
    """A connection that the node has opened; its front-end is there from the start, and speaks first."""

    def __init__(self, node: Node, connected: socket.socket | TlsSocket, peer: Peer) -> None:
        super().__init__(node, connected, peer, ListenerRules(()))
        self._is_stranger = False
        self._is_wrapped = isinstance(connected, TlsSocket)

    async def _first_bytes(self) -> bytes:
        return b""


async def dial(node: Node, request: Dial) -> None:
    """Connect, and serve the connection until it ends; `request.failed` is called if it does not come about."""
    try:
        with trio.fail_after(request.uri.timeout_s):
            connected = await _connected(request.uri)
    except (OSError, ssl.SSLError, trio.TooSlowError) as failure:
        node.broker.tick()
        request.failed(f"cannot connect: {_why(failure)}")
        node.settle()
        return
    with contextlib.closing(connected):
        transport = DialledTransport(node, connected, _peer_of(connected))
        front = request.front(transport.outbox, node.broker.tick(), node.config.message_size_max)
        if front is None:
            return
        begin(transport, front)
        node.transports[transport.outbox] = transport
        await transport.serve()


def _why(failure: Exception) -> str:
    if isinstance(failure, trio.TooSlowError):
        return "it took too long"
    if isinstance(failure, ssl.SSLError):
        return f"TLS: {reason(failure)}"
    cause = failure.__cause__  # of what trio says about all addresses of a host
    if isinstance(cause, ExceptionGroup):
        cause = cause.exceptions[0]
    number = (
        (cause if isinstance(cause, OSError) else failure).errno if isinstance(failure, OSError) else None
    )
    return str(failure) if number is None or isinstance(failure, socket.gaierror) else os.strerror(number)


async def _connected(uri: Uri) -> socket.socket | TlsSocket:
    context = context_of(uri) if uri.is_secured else None
    stream = await trio.open_tcp_stream(uri.host, uri.port)
    plain = socket.socket(fileno=stream.socket.detach())
    try:
        plain.setblocking(False)
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if context is None:
            return plain
        secured = TlsSocket(plain, context, uri.options.get("server_name_indication", uri.host))
        await _shake_hands(secured, plain)
    except BaseException:
        plain.close()
        raise
    return secured


def context_of(uri: Uri) -> ssl.SSLContext:
    """Return the TLS settings of a URI. Raises OSError for files that cannot be read."""
    options = uri.options
    context = ssl.create_default_context(cafile=options.get("cacertfile"))
    if options.get("verify") == "verify_none":
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if "certfile" in options:
        context.load_cert_chain(options["certfile"], options.get("keyfile"))
    return context


async def _shake_hands(secured: TlsSocket, plain: socket.socket) -> None:
    octets, size = b"", 0
    while not secured.handshake(octets):
        await _flush(secured)
        await trio.lowlevel.wait_readable(plain)
        octets = plain.recv(READ)
        size += len(octets)
        if not octets or size > HELLO_MAX:
            raise ConnectionAbortedError("it hung up during the TLS handshake")
    await _flush(secured)


async def _flush(secured: TlsSocket) -> None:
    while not secured.flush():
        await trio.lowlevel.wait_writable(secured)


def _peer_of(connected: socket.socket | TlsSocket) -> Peer:
    plain = connected if isinstance(connected, socket.socket) else connected.plain
    host, port = plain.getpeername()[:2]
    local_host, local_port = plain.getsockname()[:2]
    tls = None
    if isinstance(connected, TlsSocket):
        cipher = connected.tls.cipher()
        tls = TlsFacts(connected.tls.version() or "", "" if cipher is None else cipher[0])
    return Peer(host, port, local_host, local_port, False, tls=tls)
