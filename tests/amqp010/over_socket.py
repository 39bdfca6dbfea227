"""The client of client.py over a real socket."""

from __future__ import annotations

import socket
from collections.abc import Callable
from contextlib import suppress

from .client import Client

PATIENCE_S = 10.0


class SocketClient(Client):
    """One connection to a node at `host:port`."""

    def __init__(self, address: str, patience_s: float = PATIENCE_S) -> None:
        super().__init__()
        host, port = address.rsplit(":", 1)
        self.patience_s = patience_s
        self.socket = socket.create_connection((host.strip("[]"), int(port)), timeout=patience_s)
        self.at_end = False

    def send_bytes(self, octets: bytes) -> None:
        with suppress(ConnectionError):  # what the node said before it left is still to be read
            self.socket.sendall(octets)

    def read(self) -> None:
        """What has come already."""
        self.socket.setblocking(False)
        with suppress(BlockingIOError):
            while self._receive():
                pass
        self.socket.settimeout(self.patience_s)

    def until(self, condition: Callable[[], bool], what: str) -> None:
        while not condition() and not self.is_over:
            assert self._receive(), f"the node has left, and there is no {what}"

    def _receive(self) -> bool:
        try:
            octets = self.socket.recv(1 << 16)
        except ConnectionError:
            octets = b""
        self.hear(octets)
        self.at_end = not octets
        return bool(octets)

    def __enter__(self) -> SocketClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()
