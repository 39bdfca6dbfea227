"""HTTP in memory: a connection to a broker's control endpoint, what it answers, and a node that is pretended.

Line(broker, config).send("GET", "/api/overview", login="guest:guest").response.content
"""

from __future__ import annotations

import base64
import http.client
import io
import json
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from leveret.broker import Broker
from leveret.config.config import Config
from leveret.front_end import Peer
from leveret.operations import Connected, Json, Listening, Operations, Reloaded
from leveret.outbox import Outbox
from leveret.protocols.http.registration import PROTOCOL
from leveret.protocols.http.server.adapter import ControlAdapter

HERE = Peer("127.0.0.1", 40000, "127.0.0.1", 15672, loopback=True)
ELSEWHERE = Peer("192.0.2.7", 40000, "192.0.2.1", 15672, loopback=False)
STEPS_MAX = 10_000

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


class Line:
    """One connection."""

    def __init__(
        self,
        broker: Broker,
        config: Config,
        peer: Peer = HERE,
        advance: Callable[[], object] = lambda: None,
        outbox: Outbox | None = None,
    ) -> None:
        """`advance` lets time pass, until there is an answer."""
        self.broker = broker
        connection = PROTOCOL.factory(broker, config, outbox or Outbox([]), peer, broker.now)
        assert isinstance(connection, ControlAdapter)
        self.connection = connection
        self._advance = advance
        self._method = ""

    def send(
        self,
        method: str,
        target: str,
        body: bytes | None = None,
        login: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Line:
        self._method = method
        self.connection.receive(request(method, target, body, login, headers), self.broker.now)
        return self

    @property
    def waits(self) -> bool:
        """Whether nothing has been answered yet."""
        return not self.connection.outbox.pieces

    @property
    def response(self) -> Response:
        """The answer, which the peer reads at once."""
        return answered(self.connection, self._method)

    def answer(self) -> Response:
        """What is answered in the end, by a broker that has nothing else to do."""
        for _ in range(STEPS_MAX):
            if not self.waits:
                return self.response
            self._advance()
        raise AssertionError("it is never answered")

    def hang_up(self) -> None:
        self.connection.lost()
        self.broker.settle()


def request(
    method: str,
    target: str,
    body: bytes | None = None,
    login: str | None = None,
    headers: Mapping[str, str] | None = None,
) -> bytes:
    """A request in bytes; `login` is a name and a password with a colon between them."""
    said = {"Host": "localhost"}
    if body is not None:
        said["Content-Length"] = str(len(body))
    if login is not None:
        said["Authorization"] = basic(login)
    lines = "".join(f"{name}: {text}\r\n" for name, text in {**said, **(headers or {})}.items())
    return f"{method} {target} HTTP/1.1\r\n{lines}\r\n".encode() + (body or b"")


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

    @property
    def refusal(self) -> tuple[int, object]:
        """The status and its reason."""
        return self.status, self.reason


def answered(connection: Any, method: str) -> Response:
    """What the connection has answered, which the peer reads at once."""
    octets = b"".join(connection.outbox.take())
    if connection.outbox.sent(len(octets)):
        connection.drained()
    return Response(octets, method)


def no_number(parameter: str, value: str, least: int, most: int) -> tuple[int, str]:
    """The refusal of what is not a whole number within these bounds."""
    return 400, f"parameter '{parameter}' is '{value}', not a whole number from {least} to {most}"


class Pretended:
    """Octets as the socket that `http.client` wants."""

    def __init__(self, octets: bytes) -> None:
        self._octets = octets

    def makefile(self, mode: str) -> io.BytesIO:
        return io.BytesIO(self._octets)
