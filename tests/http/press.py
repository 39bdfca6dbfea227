"""A broker that is published to over HTTP, in memory, from one start to the next.

press = Press()
assert press.stage("7/0/1?piece=0", rows("q", b"a", b"b")) == {"rows": 2}
assert press.commit(7, [0, 1, 2]) == {"published": 2, "unroutable": 0, "repeated": False}
assert press.bodies() == "a b"
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from broker_core.config.load import parse
from broker_core.message import Facts, Message
from broker_core.outbox import Outbox
from broker_core.store import block
from broker_core.store.contract import Append
from broker_core.store.memory import MemoryStore
from broker_core.values import Json, Properties, Value
from protocols.amqp091.broker.encoding import ENCODING
from protocols.http.registration import PROTOCOL
from protocols.http.server.adapter import ControlConnection
from tests.core.fakes import waiting
from tests.http.desk import HERE, Response, basic
from tests.store.site import Site

CONFIG = parse("""
[[virtual_hosts]]
name = "/"
[[virtual_hosts]]
name = "closed"
[limits]
message_size_max = 2000000
[[users]]
name = "spark"
password = "sesame"
[users.permissions]
"/" = { write = "^(amq\\\\.default|x|topics|inner|sorter)$" }
[[users]]
name = "other"
password = "sesame"
[users.permissions]
"/" = { write = ".*" }
[[users]]
name = "boss"
password = "sesame"
tags = ["administrator"]
[users.permissions]
"/" = { configure = ".*", write = ".*", read = ".*" }
""")
BASE = "/api/leveret/staging/%2F/job"
STEP_S = 0.05
STEPS_MAX = 400
DURABLE = ENCODING.write(Properties(durable=True))


def rows(key: str, *bodies: bytes, exchange: str = "", properties: bytes = DURABLE) -> bytes:
    """A block of messages."""
    return packed(
        [Message(ENCODING, exchange, key, properties, body, Facts(durable=True)) for body in bodies]
    )


def packed(messages: list[Message], offset: int = 0) -> bytes:
    return block.pack(Append(0, 0, offset, 0, messages))


class Press:
    """One start of the broker, and a connection to it."""

    def __init__(self, site: Site | None = None, held: bool = False, **arguments: Value) -> None:
        """`arguments` of the queue `q`."""
        self.site = site or Site(MemoryStore(held), CONFIG)
        self.broker = self.site.broker
        self.host = self.site.host
        if site is None:
            self.queue = self.site.queue(**arguments)
        self.line = Line(self)

    def again(self, clean: bool = False, away_s: float = 0) -> Press:
        """The next start: after a crash, unless it is `clean`."""
        return Press(self.site.again(away_s=away_s, clean=clean))

    def advance(self, seconds: float = STEP_S) -> None:
        self.site.advance(seconds)

    def ask(self, method: str, path: str, body: bytes = b"", user: str = "spark") -> Response:
        """What is answered in the end, by a broker that has nothing else to do."""
        return Line(self).send(method, path, body, user).answer()

    def stage(self, path: str, body: bytes, user: str = "spark") -> Json:
        """The answer if it is staged."""
        return content(self.ask("POST", f"{BASE}/{path}", body, user))

    def commit(self, batch: int, *parts: Sequence[int]) -> Json:
        return content(self.ask("POST", f"{BASE}/{batch}/commit", json.dumps({"parts": parts}).encode()))

    def state(self) -> dict[str, Json]:
        return self.ask("GET", BASE).content

    def bodies(self, name: str = "q") -> str:
        """What waits in a queue."""
        return " ".join(each.message.body.decode() for each in self.host.queues[name].waiting())


class Line:
    """One connection."""

    def __init__(self, press: Press) -> None:
        self._press = press
        connection = PROTOCOL.factory(press.broker, CONFIG, Outbox([]), HERE, press.broker.now)
        assert isinstance(connection, ControlConnection)
        self.connection = connection
        self._method = ""

    def send(self, method: str, path: str, body: bytes = b"", user: str = "spark") -> Line:
        self._method = method
        self.connection.receive(request(method, path, body, user), self._press.broker.now)
        self._press.broker.settle()
        return self

    @property
    def waits(self) -> bool:
        return not self.connection.outbox.pieces

    def answer(self) -> Response:
        for _ in range(STEPS_MAX):
            if not self.waits:
                break
            self._press.advance()
        assert not self.waits, "it is never answered"
        octets = b"".join(self.connection.outbox.take())
        self.connection.outbox.sent(len(octets))
        return Response(octets, self._method)


def request(method: str, path: str, body: bytes = b"", user: str = "spark") -> bytes:
    head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
    return f"{head}Authorization: {basic(f'{user}:sesame')}\r\n\r\n".encode() + body


def content(response: Response) -> Json:
    assert response.status == 200, response.content
    return response.json


__all__ = ["BASE", "CONFIG", "Line", "Press", "content", "packed", "request", "rows", "waiting"]
