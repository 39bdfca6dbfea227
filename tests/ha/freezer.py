"""A TCP relay that a test freezes: connections stay, and nothing gets through, as when a network is cut."""

from __future__ import annotations

import contextlib
import select
import socket
import threading


class Freezer:
    """Copies bytes between those that connect to `port` and a server on this machine."""

    def __init__(self, to_port: int) -> None:
        self._to = to_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._open = threading.Event()
        self._open.set()
        self._is_over = False
        self._partners: dict[socket.socket, socket.socket] = {}
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def freeze(self) -> None:
        self._open.clear()

    def thaw(self) -> None:
        self._open.set()

    def end(self) -> None:
        self._is_over = True
        self._open.set()
        self._thread.join()
        for each in (self._listener, *self._partners):
            each.close()

    def _run(self) -> None:
        while not self._is_over:
            self._open.wait()
            readable, _, _ = select.select([self._listener, *self._partners], [], [], 0.05)
            for each in readable:
                if not self._open.is_set():
                    break
                if each is self._listener:
                    self._accept()
                elif each in self._partners:
                    self._move(each)

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        try:
            server = socket.create_connection(("127.0.0.1", self._to), 5)
        except OSError:
            client.close()
            return
        self._partners[client], self._partners[server] = server, client

    def _move(self, source: socket.socket) -> None:
        target = self._partners[source]
        octets = b""
        with contextlib.suppress(OSError):
            if octets := source.recv(1 << 18):
                target.sendall(octets)
                return
        for each in (source, target):
            self._partners.pop(each, None)
            each.close()
