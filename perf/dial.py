"""Open a socket to a broker, and say why if that fails."""

from __future__ import annotations

import socket
import ssl
from typing import Final

from leveret.perf.errors import UNREACHABLE, PerfError
from leveret.perf.plan import Url

TIMEOUT_S: Final = 30.0
READ: Final = 65536  # bytes at a time, while setting up


def connected(url: Url) -> socket.socket:
    """Return a connected socket, with TLS if the URL asks for it. Raises PerfError."""
    try:
        made = socket.create_connection((url.host, url.port), timeout=TIMEOUT_S)
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if url.tls:
            made = url.tls_context().wrap_socket(made, server_hostname=url.host)
    except ssl.SSLCertVerificationError as unknown:
        text = f"{url}: {unknown.verify_message}; --ca-file has trusted certificates, --insecure trusts any"
        raise PerfError(text, UNREACHABLE) from None
    except OSError as refused:
        raise PerfError(f"{url} cannot be reached: {refused.strerror or refused}", UNREACHABLE) from None
    return made


def heard(made: socket.socket) -> bytes:
    """Return some bytes as soon as there are any. Raises PerfError if the connection ends or nothing comes in time."""
    try:
        octets = made.recv(READ)
    except OSError as lost:
        raise PerfError(f"the broker does not answer: {lost}", UNREACHABLE) from None
    if not octets:
        raise PerfError("the broker has closed the connection", UNREACHABLE)
    return octets
