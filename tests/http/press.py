"""A broker that is published to over HTTP, in memory, from one start to the next.

press = Press()
assert press.stage("7/0/1?piece=0", rows("q", b"a", b"b")) == {"rows": 2}
assert press.commit(7, [0, 1, 2]) == {"published": 2, "unroutable": 0, "repeated": False}
assert press.bodies() == "a b"
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from leveret.config.config import parse
from leveret.durable.store import block
from leveret.durable.store.contract import Append
from leveret.durable.store.memory import MemoryStore
from leveret.message import Facts, Message
from leveret.protocols.amqp091.broker.encoding import ENCODING
from leveret.values import Json, Properties, Value
from tests.durable.site import Site
from tests.harness.http import Line, Response
from tests.harness.settings import EVERYTHING, user, virtual_hosts

CONFIG = parse(
    "limits.message_size_max = 2000000\n"
    + virtual_hosts("/", "closed")
    + user("spark", "sesame", {"/": {"write": "^(amq\\.default|x|topics|inner|sorter)$"}})
    + user("other", "sesame", {"/": {"write": ".*"}})
    + user("boss", "sesame", EVERYTHING, "administrator")
)
BASE = "/api/leveret/staging/%2F/job"
STEP_S = 0.05
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

    def again(self, clean: bool = False, away_s: float = 0) -> Press:
        """The next start: after a crash, unless it is `clean`."""
        return Press(self.site.again(away_s=away_s, clean=clean))

    def advance(self, seconds: float = STEP_S) -> None:
        self.site.advance(seconds)

    def land(self) -> None:
        """All that is on its way gets to disk."""
        while self.site.store.flying is not None:
            self.site.store.land()

    def ask(self, method: str, path: str, body: bytes = b"", user: str = "spark") -> Response:
        """What is answered in the end, by a broker that has nothing else to do."""
        return self.send(method, path, body, user).answer()

    def send(self, method: str, path: str, body: bytes = b"", user: str = "spark") -> Line:
        """The same, on a line whose answer is still to come."""
        line = self.line.send(method, path, body, f"{user}:sesame")
        self.broker.settle()
        return line

    @property
    def line(self) -> Line:
        """A new connection."""
        return Line(self.broker, CONFIG, advance=self.advance)

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


def content(response: Response) -> Json:
    assert response.status == 200, response.content
    return response.json
