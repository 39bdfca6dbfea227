"""The client of peer.py over a real socket."""

from __future__ import annotations

import socket

from leveret.protocols.mqtt.codec.packets import ConnAck, Connect, Disconnect, Publish
from leveret.protocols.mqtt.codec.properties import NONE, Properties
from leveret.protocols.mqtt.codec.reader import AckRun, PublishRun, Reader

PATIENCE_S = 10.0


class SocketClient:
    """One connection to a node at `host:port`, which sends packets and waits for packets."""

    def __init__(self, address: str, version: int = 5) -> None:
        host, port = address.rsplit(":", 1)
        self.version = version
        self.socket = socket.create_connection((host.strip("[]"), int(port)), timeout=PATIENCE_S)
        self.reader = Reader(from_client=False, version=version)
        self.heard: list[object] = []
        self.at_end = False

    def send(self, packet: object) -> None:
        self.socket.sendall(packet.encode(self.version))  # type: ignore[attr-defined]

    def connect(self, client_id: str = "me", clean: bool = True, **said: object) -> ConnAck:
        properties = Properties(**said) if said else NONE  # type: ignore[arg-type]
        self.send(Connect(self.version, client_id, clean, 0, "guest", b"guest", None, properties))
        found = self.next(ConnAck)
        assert isinstance(found, ConnAck)
        return found

    def next(self, kind: type) -> object:
        """Wait for the next packet of a kind, and take it."""
        while True:
            for each in self.heard:
                if isinstance(each, kind):
                    self.heard.remove(each)
                    return each
            self.hear()

    def hear(self) -> None:
        """Wait for bytes, and read what packets they complete."""
        data = self.socket.recv(1 << 16)
        assert data, f"the node has left; heard {self.heard}"
        self.reader.push(data)
        while (packet := self.reader.take()) is not None:
            if isinstance(packet, PublishRun):
                self.heard += packet.packets()
            elif isinstance(packet, AckRun):
                self.heard += [packet]
            else:
                self.heard.append(packet)

    def message(self) -> Publish:
        found = self.next(Publish)
        assert isinstance(found, Publish)
        return found

    def until_end(self) -> Disconnect | None:
        """Wait until the node closes the connection, and return its last words."""
        try:
            while data := self.socket.recv(1 << 16):
                self.reader.push(data)
        except ConnectionError:
            pass
        last = None
        while (packet := self.reader.take()) is not None:
            last = packet
        return last if isinstance(last, Disconnect) else None

    def __enter__(self) -> SocketClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()
