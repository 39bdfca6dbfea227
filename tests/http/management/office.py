"""A broker that is managed over HTTP, in memory, from one start to the next.

office = Office()
assert office.put("/api/vhosts/shop").status == 201
office = office.again()
assert office.get("/api/vhosts/shop")["name"] == "shop"
"""

from __future__ import annotations

import json
from typing import Any

from leveret.config.config import Config, parse
from leveret.durable.store.memory import MemoryStore
from leveret.queues.queue import Queue
from leveret.security.passwords import Cost, Hashing
from leveret.values import Json
from tests.durable.site import Site
from tests.harness.http import FakeNode, Line, Response
from tests.harness.settings import EVERYTHING, user, virtual_hosts

QUEUES = {"/": {"configure": "^q", "write": "^(q|amq\\.default)", "read": "^q"}}
NOTHING = {"/": {"configure": "^none$", "write": "^none$", "read": "^none$"}}
CONFIG = parse(
    virtual_hosts("/", "closed")
    + user("boss", "sesame", EVERYTHING, "administrator")
    + user("maker", "sesame", QUEUES, "policymaker")
    + user("clerk", "sesame", NOTHING, "management")
    + user("watcher", "sesame", None, "monitoring")
    + user("plain", "sesame", EVERYTHING)
)
CHEAP = Hashing(cost=Cost(memory_kib=64, passes=1, lanes=1))
STEP_S = 0.05
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

    def asking(self, method: str, path: str, body: bytes = b"", user: str = "boss") -> Line:
        """A request on a connection of its own, whose answer is still to come."""
        line = Line(self.broker, self.config, advance=self.advance).send(method, path, body, f"{user}:sesame")
        self.broker.settle()
        return line

    def advance(self) -> None:
        self.site.advance(STEP_S)

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


def told(response: Response) -> tuple[int, object]:
    """Status and reason."""
    return response.status, response.reason
