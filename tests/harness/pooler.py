"""A pooler before a PostgreSQL, as PgBouncer is one: clients share sessions of the server, which trusts everybody."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from struct import pack, unpack

from psycopg import conninfo

SSL_REQUEST, GSS_REQUEST = 80877103, 80877104
IDLE = b"Z\x00\x00\x00\x05I"  # ready for a query, in no transaction


class Pooler:
    """Listens on a port. A client has a session of the server for a transaction, or as long as it is connected."""

    def __init__(self, dsn: str, lends: bool, in_turn: bool = False) -> None:
        self.dsn = dsn
        self.lends = lends
        self.in_turn = in_turn  # it lends the session that has been free for the longest time, as some do
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.listener.getsockname()[1]
        self.free: list[socket.socket] = []
        self.greeting = b""  # what the server says of itself, but for its process

    def run(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self.listener.accept()
                threading.Thread(target=self.serve, args=(client,), daemon=True).start()

    def serve(self, client: socket.socket) -> None:
        with closing(client), suppress(OSError, EOFError):
            startup = self.startup_of(client)
            self.give_back(self.taken(startup))
            client.sendall(self.greeting + b"K\x00\x00\x00\x0c" + pack(">ii", 1, 1) + IDLE)
            server: socket.socket | None = None
            while octets := client.recv(1 << 16):
                server = server or self.taken(startup)
                server.sendall(octets)
                if (
                    octets.endswith((b"S\x00\x00\x00\x04", b"\x00"))
                    and self.answered(server, client)
                    and self.lends
                ):
                    self.give_back(server)
                    server = None
            if server is not None:
                server.close()

    def startup_of(self, client: socket.socket) -> bytes:
        while True:
            length = client.recv(4, socket.MSG_WAITALL)
            rest = client.recv(unpack(">i", length)[0] - 4, socket.MSG_WAITALL)
            if unpack(">i", rest[:4])[0] not in (SSL_REQUEST, GSS_REQUEST):
                return length + rest
            client.sendall(b"N")

    def taken(self, startup: bytes) -> socket.socket:
        """A session that is free, else a new one."""
        if self.free:
            return self.free.pop(0 if self.in_turn else -1)
        known = conninfo.conninfo_to_dict(self.dsn)
        server = socket.create_connection((str(known["host"]), int(str(known["port"]))))
        server.sendall(startup)
        told = b""
        while not told.endswith(IDLE):
            told += server.recv(1 << 16)
        self.greeting = told[: told.rindex(b"K\x00\x00\x00\x0c")]
        return server

    def give_back(self, server: socket.socket) -> None:
        self.free.append(server)

    def answered(self, server: socket.socket, client: socket.socket) -> bool:
        """Pass on what the server answers. Return whether no transaction is open."""
        end = b""
        while end[:5] != IDLE[:5]:
            octets = server.recv(1 << 16)
            if not octets:
                raise EOFError
            client.sendall(octets)
            end = (end + octets)[-6:]
        return end == IDLE


@contextmanager
def pooler(dsn: str, lends: bool, in_turn: bool = False) -> Iterator[str]:
    """Start one, and yield the connection string that leads through it."""
    made = Pooler(dsn, lends, in_turn)
    threading.Thread(target=made.run, daemon=True).start()
    try:
        yield conninfo.make_conninfo(dsn, host="127.0.0.1", port=made.port)
    finally:
        made.listener.close()
        for each in made.free:
            each.close()
