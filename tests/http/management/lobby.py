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

from leveret.front_end import FrontEnd
from leveret.front_end import Peer as Address
from leveret.observability.history import History
from leveret.operations import Connected
from leveret.outbox import Outbox
from leveret.protocols.amqp091.codec import methods as m
from leveret.values import Json
from tests.amqp091.peer import Peer
from tests.harness.bench import ClientBench
from tests.harness.http import FakeNode, Line, Response
from tests.harness.settings import ALL, user, virtual_hosts

MINE = {"/": {"configure": "^mine", "write": "^mine", "read": "^mine"}}
CONFIG = (
    virtual_hosts("/", "other")
    + user("guest", "guest", {"/": ALL, "other": ALL}, "administrator")
    + user("watcher", "watcher", None, "monitoring")
    + user("clerk", "clerk", MINE, "management")
    + user("stranger", "stranger", None, "management")
)
STEP_S = 0.001
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


class Lobby(ClientBench):
    """See the top of the module."""

    def __init__(self, compat: str = "") -> None:
        super().__init__(CONFIG + compat)
        self.node = FakeNode()
        self.broker.operations = self.node
        self.history = self.broker.guest(History)
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
        self.broker.tick()
        line = Line(self.broker, self.config, advance=self._step, outbox=Outbox([], 1 << 30))
        line.send(method, path, body, f"{user}:{user}", headers)
        self.broker.settle()
        return line.answer()

    def _step(self) -> None:
        self.clock.advance(STEP_S)
        self.settle()

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
