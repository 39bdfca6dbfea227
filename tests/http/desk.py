"""A broker in memory with a node that is pretended, and connections to its control endpoint."""

from __future__ import annotations

import base64
import http.client
import io
import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from broker_core.broker import Broker
from broker_core.clock import ManualClock
from broker_core.config.load import parse
from broker_core.frontend import Peer
from broker_core.node.assembly import populate
from broker_core.operations import Connected, Listening, Operations, Reloaded
from broker_core.outbox import Outbox
from broker_core.values import Json
from protocols.http.registration import PROTOCOL
from protocols.http.server.adapter import ControlConnection

TAGS = ("administrator", "monitoring", "policymaker", "management", "impersonator", "none")
USERS = "".join(
    f'[[users]]\nname = "{tag}"\npassword = "sesame"\ntags = {[] if tag == "none" else [tag]}\n'
    for tag in TAGS
)
CONFIG = parse(
    USERS
    + '[[users]]\nname = "guest"\npassword = "guest"\ntags = ["administrator"]\n'
    + '[[users]]\nname = "größe"\npassword = "pässe:wort"\ntags = ["management"]\n'
    + '[[users]]\nname = "keyless"\ntags = ["administrator"]\n'
    + '[users.permissions]\n"/" = { write = "^amq.topic$" }\n'
)
HERE = Peer("127.0.0.1", 40000, "127.0.0.1", 15672, loopback=True)
ELSEWHERE = Peer("192.0.2.7", 40000, "192.0.2.1", 15672, loopback=False)


R = TypeVar("R")


class FakeNode(Operations):
    """What a node would answer."""

    name = "leveret"

    def __init__(self) -> None:
        self.connected: list[Connected] = []
        self.reloaded = Reloaded(changed=("log.level",), needs_restart=("listeners",))

    def status(self) -> Mapping[str, Json]:
        return {"name": "leveret"}

    def reload(self) -> Reloaded:
        return self.reloaded

    def plugins(self) -> Mapping[str, Json]:
        return {"exchange_types": []}

    def reload_plugins(self) -> Mapping[str, Json]:
        return {"loaded": ("x-a",), "refused": [{"name": "b.py", "traceback": "why"}]}

    def close_connections(self, reason: str, virtual_host: str | None = None) -> int:
        return 0

    def listeners(self) -> list[Listening]:
        return [Listening("127.0.0.1", 5672, ("amqp091", "amqp10"), False)]

    def connections(self) -> list[Connected]:
        return self.connected

    def off_thread(self, work: Callable[[], R], then: Callable[[R], None]) -> None:
        then(work())


class Desk:
    """A broker, and connections to its control endpoint."""

    def __init__(self) -> None:
        self.broker = Broker(ManualClock())
        populate(self.broker, CONFIG)
        self.node = self.broker.operations = FakeNode()

    def connect(self, peer: Peer = HERE) -> ControlConnection:
        connection = PROTOCOL.factory(self.broker, CONFIG, Outbox([]), peer, 0.0)
        assert isinstance(connection, ControlConnection)
        return connection

    def ask(
        self,
        target: str,
        method: str = "GET",
        user: str | None = "administrator:sesame",
        peer: Peer = HERE,
        **headers: str,
    ) -> Response:
        """One request on a connection of its own. Headers by name with underscores."""
        given = {
            "Host": "localhost:15672",
            **{name.replace("_", "-"): text for name, text in headers.items()},
        }
        if user is not None:
            given.setdefault("Authorization", basic(user))
        lines = "".join(f"{name}: {text}\r\n" for name, text in given.items())
        connection = self.connect(peer)
        connection.receive(f"{method} {target} HTTP/1.1\r\n{lines}\r\n".encode(), 0.0)
        return Response(b"".join(connection.outbox.take()), method)


def basic(credentials: str) -> str:
    return "Basic " + base64.b64encode(credentials.encode()).decode()


class Response:
    """What came back, as Python's own client reads it."""

    def __init__(self, octets: bytes, method: str) -> None:
        response = http.client.HTTPResponse(Pretended(octets), method=method)  # type: ignore[arg-type]
        response.begin()
        self.status = response.status
        self.headers = response.headers
        self.body = response.read()

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def content(self) -> dict[str, object]:
        content = self.json
        assert isinstance(content, dict)
        return content

    @property
    def reason(self) -> object:
        assert "error" in self.content
        return self.content["reason"]


class Pretended:
    """Octets as the socket that `http.client` wants."""

    def __init__(self, octets: bytes) -> None:
        self._octets = octets

    def makefile(self, mode: str) -> io.BytesIO:
        return io.BytesIO(self._octets)
