"""A node in memory for commands: a broker, and a client that talks to its control endpoint without a socket.

node = Node()
assert node.run("declare", "queue", "orders") == 0
"""

from __future__ import annotations

import io
from collections.abc import Mapping

from leveret.broker import Broker
from leveret.clock import ManualClock
from leveret.config.config import parse
from leveret.features.standard import equip
from leveret.protocols.amqp091.broker.encoding import ENCODING
from leveret.protocols.http.server.adapter import ControlAdapter
from leveret.security.passwords import Cost, Hashing
from leveret.server import cli
from leveret.server.cli.api_commands import Working
from leveret.server.cli.control_client import ControlClient
from leveret.server.node.assembly import populate
from tests.harness.http import FakeNode, Line, Response
from tests.harness.settings import EVERYTHING, user, virtual_hosts

CONFIG = parse(virtual_hosts("/") + user("guest", "guest", EVERYTHING, "administrator"))


class Node:
    """A broker, and commands that ask it."""

    def __init__(self) -> None:
        self.broker = equip(Broker(ManualClock()))
        populate(self.broker, CONFIG)
        self.broker.operations = FakeNode()
        self.broker.encodings = {"amqp091": lambda: ENCODING}
        self.broker.access.hashing = Hashing(cost=Cost(memory_kib=64, passes=1, lanes=1))
        self.requests_left = 1_000_000  # then it does not answer any more
        self.host = self.broker.virtual_host("/")

    def run(self, *arguments: str) -> int:
        """The exit code of a command; what it prints is captured by pytest."""
        options = cli.parser({}).parse_args(arguments)
        assert isinstance(options.command, Working)
        return options.command.answer(options, lambda: Memory(self, f"{options.user}:guest"))


class Typed(io.StringIO):
    """A terminal at which somebody types."""

    def isatty(self) -> bool:
        return True


class Memory(ControlClient):
    """A client whose requests go straight to an endpoint."""

    def __init__(self, node: Node, user: str = "guest:guest") -> None:
        super().__init__("http://localhost:15672", *user.split(":"))
        self._node = node
        self._login = user

    def _exchanged(
        self, method: str, target: str, timeout_s: float, body: bytes | None, headers: Mapping[str, str]
    ) -> tuple[int, str, str]:
        broker = self._node.broker
        if not self._node.requests_left:
            raise ConnectionRefusedError("gone")
        self._node.requests_left -= 1
        given = {"Host": "localhost:15672", **headers}
        line = Line(broker, CONFIG).send(method, target, body or b"", self._login, given)
        response = Response(self._answer(line.connection), method)
        return response.status, response.body.decode(), response.headers.get("Leveret-Holds", "")

    def _answer(self, connection: ControlAdapter) -> bytes:
        """What is answered in portions comes as time goes by."""
        broker = self._node.broker
        clock = broker.clock
        assert isinstance(clock, ManualClock)
        octets = b""
        for _ in range(10_000):
            broker.settle()
            taken = b"".join(connection.outbox.take())
            if taken and connection.outbox.sent(len(taken)):
                connection.drained()
            octets += taken
            if octets and not taken:
                return octets
            clock.advance(0.001)
            broker.tick()
        raise AssertionError("no answer")
