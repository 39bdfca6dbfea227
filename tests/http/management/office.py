"""A broker that is managed over HTTP, in memory, from one start to the next.

office = Office()
assert office.put("/api/vhosts/shop").status == 201
office = office.again()
assert office.get("/api/vhosts/shop")["name"] == "shop"
"""

from __future__ import annotations

import json
from typing import Any

from broker_core.config.load import Config, parse
from broker_core.outbox import Outbox
from broker_core.queues.queue import Queue
from broker_core.security.passwords import Cost, Hashing
from broker_core.store.memory import MemoryStore
from broker_core.values import Json
from protocols.http.registration import PROTOCOL
from protocols.http.server.adapter import ControlConnection
from tests.http.desk import HERE, FakeNode, Response, basic
from tests.store.site import Site

CONFIG = parse("""
[[virtual_hosts]]
name = "/"
[[virtual_hosts]]
name = "closed"
[[users]]
name = "boss"
password = "sesame"
tags = ["administrator"]
[users.permissions]
"/" = { configure = ".*", write = ".*", read = ".*" }
[[users]]
name = "maker"
password = "sesame"
tags = ["policymaker"]
[users.permissions]
"/" = { configure = "^q", write = "^(q|amq\\\\.default)", read = "^q" }
[[users]]
name = "clerk"
password = "sesame"
tags = ["management"]
[users.permissions]
"/" = { configure = "^none$", write = "^none$", read = "^none$" }
[[users]]
name = "watcher"
password = "sesame"
tags = ["monitoring"]
[[users]]
name = "plain"
password = "sesame"
[users.permissions]
"/" = { configure = ".*", write = ".*", read = ".*" }
""")
CHEAP = Hashing(cost=Cost(memory_kib=64, passes=1, lanes=1))
STEP_S = 0.05
STEPS_MAX = 2000
ABSENT: Json = ()


class Office:
    """One start."""

    def __init__(self, site: Site | None = None, config: Config = CONFIG) -> None:
        self.config = config
        self.site = site or Site(MemoryStore(), config)
        self.broker = self.site.broker
        self.host = self.site.host
        self.node = self.broker.operations = FakeNode()
        self.broker.access.hashing = CHEAP

    def again(self) -> Office:
        """The next start, after a crash."""
        return Office(self.site.again(), self.config)

    def ask(self, method: str, path: str, content: Json = ABSENT, user: str = "boss") -> Response:
        """The answer, from a broker that has nothing else to do."""
        body = b"" if content is ABSENT else json.dumps(content).encode()
        return self.asking(method, path, body, user).answer()

    def asking(self, method: str, path: str, body: bytes = b"", user: str = "boss") -> Asking:
        return Asking(self, method, path, body, user)

    def get(self, path: str, user: str = "boss") -> Any:
        """What is told."""
        response = self.ask("GET", path, user=user)
        assert response.status == 200, response.content
        return response.json

    def put(self, path: str, content: Json = ABSENT, user: str = "boss") -> Response:
        return self.ask("PUT", path, content, user)

    def post(self, path: str, content: Json = ABSENT, user: str = "boss") -> Response:
        return self.ask("POST", path, content, user)

    def delete(self, path: str, content: Json = ABSENT, user: str = "boss") -> Response:
        return self.ask("DELETE", path, content, user)

    def queue(self, name: str = "q", **arguments: Any) -> Queue:
        return self.site.queue(name, **arguments)

    def bodies(self, name: str = "q") -> str:
        """What waits in a queue."""
        return " ".join(each.message.body.decode() for each in self.host.queues[name].waiting())


class Asking:
    """One request, on a connection of its own."""

    def __init__(self, office: Office, method: str, path: str, body: bytes, user: str) -> None:
        self._office = office
        self._method = method
        connection = PROTOCOL.factory(office.broker, office.config, Outbox([]), HERE, office.broker.now)
        assert isinstance(connection, ControlConnection)
        self.connection = connection
        head = f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n"
        octets = f"{head}Authorization: {basic(f'{user}:sesame')}\r\n\r\n".encode() + body
        connection.receive(octets, office.broker.now)
        office.broker.settle()

    @property
    def waits(self) -> bool:
        """Whether nothing has been answered yet."""
        return not self.connection.outbox.pieces

    def hang_up(self) -> None:
        self.connection.lost()
        self._office.broker.settle()

    def answer(self) -> Response:
        for _ in range(STEPS_MAX):
            if not self.waits:
                break
            self._office.site.advance(STEP_S)
        assert not self.waits, "it is never answered"
        outbox = self.connection.outbox
        octets = b"".join(outbox.take())
        outbox.sent(len(octets))
        return Response(octets, self._method)


def told(response: Response) -> tuple[int, object]:
    """Status and reason."""
    return response.status, response.reason
