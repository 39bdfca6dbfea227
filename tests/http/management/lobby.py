"""A broker with clients that speak 0-9-1, and with a history, watched over HTTP. In memory; time passes when told.

lobby = Lobby()
client = lobby.client("guest")
client.channel(1)
assert lobby.get("/api/connections")[0]["channels"] == 1
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from broker_core.frontend import FrontEnd
from broker_core.frontend import Peer as Address
from broker_core.observability.history import History
from broker_core.operations import Connected
from broker_core.outbox import Outbox
from broker_core.values import Json
from protocols.amqp091.codec import methods as m
from protocols.http.registration import PROTOCOL
from protocols.http.server.adapter import ControlConnection
from tests.amqp091.peer import Peer, World
from tests.http.desk import HERE, FakeNode, Response, basic

CONFIG = """
[[virtual_hosts]]
name = "/"
[[virtual_hosts]]
name = "other"
[[users]]
name = "guest"
password = "guest"
tags = ["administrator"]
[users.permissions]
"/" = { configure = ".*", write = ".*", read = ".*" }
other = { configure = ".*", write = ".*", read = ".*" }
[[users]]
name = "watcher"
password = "watcher"
tags = ["monitoring"]
[[users]]
name = "clerk"
password = "clerk"
tags = ["management"]
[users.permissions]
"/" = { configure = "^mine", write = "^mine", read = "^mine" }
[[users]]
name = "stranger"
password = "stranger"
tags = ["management"]
"""
STEP_S = 0.001
STEPS_MAX = 10_000
ABSENT: Json = ()


class Wire(Connected):
    """A connection as a node has it."""

    def __init__(self, peer: Address, front: FrontEnd) -> None:
        self.peer = peer
        self.front = front
        self.connected_at = 1_000_000_000.0
        self.octets_received, self.reads, self.writes = 300, 3, 2
        self.sent = 200
        self.reason = ""

    @property
    def octets_sent(self) -> int:
        return self.sent

    @property
    def octets_waiting(self) -> int:
        return 7

    def shut_down(self, reason: str) -> None:
        self.reason = reason
        assert self.front is not None
        self.front.shut_down(reason)


class Lobby(World):
    """See the top of the module."""

    def __init__(self) -> None:
        super().__init__(CONFIG)
        self.node = FakeNode()
        self.broker.operations = self.node
        self.history = self.broker.history = History(self.broker)
        self.history.start()
        self.settle()

    def client(self, user: str = "guest", virtual_host: str = "/") -> Peer:
        address = Address("127.0.0.1", 40_000 + len(self.peers), "127.0.0.1", 5672, True)
        peer = Peer(self, address).open(user, user, virtual_host)
        self.node.connected.append(Wire(address, peer.front))
        return peer

    def wire(self, peer: Peer) -> Wire:
        """The node's view of a client's connection."""
        found = next(each for each in self.node.connected if each.front is peer.front)
        assert isinstance(found, Wire)
        return found

    def ask(
        self,
        method: str,
        path: str,
        content: Json = ABSENT,
        user: str = "guest",
        headers: Mapping[str, str] | None = None,
    ) -> Response:
        return self.octets(
            method, path, b"" if content is ABSENT else json.dumps(content).encode(), user, headers
        )

    def octets(
        self,
        method: str,
        path: str,
        body: bytes,
        user: str = "guest",
        headers: Mapping[str, str] | None = None,
    ) -> Response:
        connection = PROTOCOL.factory(self.broker, self.config, Outbox([], 1 << 30), HERE, self.broker.now)
        assert isinstance(connection, ControlConnection)
        said = {
            "Host": "localhost",
            "Authorization": basic(f"{user}:{user}"),
            "Content-Length": str(len(body)),
            **(headers or {}),
        }
        head = "".join(f"{name}: {text}\r\n" for name, text in said.items())
        connection.receive(f"{method} {path} HTTP/1.1\r\n{head}\r\n".encode() + body, self.broker.tick())
        self.broker.settle()
        for _ in range(STEPS_MAX):
            if connection.outbox.pieces:
                break
            self.clock.advance(STEP_S)
            self.settle()
        return Response(b"".join(connection.outbox.take()), method)

    def get(self, path: str, user: str = "guest") -> Any:
        response = self.ask("GET", path, user=user)
        assert response.status == 200, response.content
        return response.json

    def sample(self) -> None:
        """Until the next sample has been taken."""
        before = self.history.tick
        while self.history.tick == before:
            self.advance(0.5)

    def queue_with(self, messages: int, name: str = "q") -> None:
        channel = self.client().channel(1)
        channel.call(m.QueueDeclare(name, durable=True))
        for _ in range(messages):
            channel.publish("", name, b"hello")
