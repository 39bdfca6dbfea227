"""A node's HTTP endpoint in memory with one of everything, and a user who may do as little as a test says.

counter = Counter("monitoring", read="^q$")
counter.ask("GET", "/api/leveret/status") -> the response, when there is one
counter.state()                           -> all that a request may change
"""

from __future__ import annotations

import json

import attrs

from leveret.config.config import parse
from leveret.durable.store.memory import MemoryStore
from leveret.exchanges.super_streams import add_super_stream
from leveret.features.leases.lease import leases_of, opened
from leveret.features.shovels.shovels import shovels_of
from leveret.features.staging.staging import stagings_of
from leveret.features.xa.branch import Verb
from leveret.features.xa.branches import Branches
from leveret.observability.connection_stats import ChannelFacts, ConnectionFacts
from leveret.operations import Reloaded
from leveret.policy import Policy
from leveret.server.definitions.exporter import everything
from leveret.values import Json
from tests.durable.site import Site
from tests.features.xa.branching import Crew
from tests.harness.http import FakeNode, Line, Response
from tests.harness.settings import ALL, user, virtual_hosts
from tests.http.press import rows
from tests.metrics.stand import Front, Link

from .http_routes import BATCH, NAMES
from .rows import Row

SECRET = "canary-8b1f2c"  # everybody's password
CONFIG = parse(
    virtual_hosts("/", "blue")
    + user("root", SECRET, {"/": ALL, "blue": ALL}, "administrator")
    + user("bob", SECRET, {"blue": ALL})
    + '[users.topic_permissions.blue]\n"amq.topic" = { write = ".*", read = ".*" }\n'
    + user("u", SECRET)
    + '[[policies]]\nname = "p"\npattern = "^limited$"\ndefinition = { max-length = 10 }\n'
)
SHOVEL: Json = {
    "src-uri": "amqp://",
    "src-queue": "no",
    "dest-uri": f"amqp://u:{SECRET}@h",
    "dest-queue": "no",
}
STEP_S = 0.05


class Node(FakeNode):
    """Remembers what it was told to do."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[str] = []

    def reload(self) -> Reloaded:
        self.told.append("reload")
        return super().reload()

    def reload_plugins(self) -> dict[str, Json]:
        self.told.append("reload plugins")
        return dict(super().reload_plugins())

    def close_connections(self, reason: str, virtual_host: str | None = None) -> int:
        self.told.append("close")
        return super().close_connections(reason, virtual_host)


class Open(Link):
    """A connection of somebody's, which tells when it is ended."""

    def __init__(self, node: Node, port: int, user: str) -> None:
        facts = ConnectionFacts(protocol="AMQP 0-9-1", user=user, virtual_host="/")
        super().__init__(port, Front(facts, [ChannelFacts(number=1)]))
        self._node, self._user = node, user

    def shut_down(self, reason: str) -> None:
        self._node.told.append(f"end the connection of {self._user}")


class Counter:
    """Where the user `u` asks."""

    def __init__(self, tag: str = "none", configure: str = "", write: str = "", read: str = "") -> None:
        self.site = Site(MemoryStore(), CONFIG)
        self.broker, self.host = self.site.broker, self.site.host
        self.node = self.broker.operations = Node()
        self.node.connected = [Open(self.node, 1, "bob"), Open(self.node, 2, "u")]
        self._furnish()
        access = self.broker.access
        access.add_user("u", SECRET, () if tag == "none" else (tag,))
        if configure or write or read:
            access.set_permissions("u", "/", configure, write, read)
        self.site.settle()

    def _furnish(self) -> None:
        """One of everything."""
        host = self.host
        host.declare_exchange("x", "direct", durable=True)
        queue = host.declare_queue("q", durable=True)
        host.bind(host.exchange("x"), queue, "k", {})
        host.declare_queue("other", durable=True)
        host.declare_exchange("y", "fanout", durable=True)
        host.bind(host.exchange("x"), host.exchange("y"), "k", {})
        host.declare_queue("s", durable=True, arguments={"x-queue-type": "stream"})
        add_super_stream(host, "super", 2)
        self.fence = opened(queue, "r").fence
        access = self.broker.access
        access.set_permissions("u", "/", ".*", ".*", ".*")
        user = access.user("u")
        assert user is not None
        for name, end in (("a", None), ("b", Verb.COMMIT)):
            crew = Crew(host, user)
            crew.work(name, sends=[("q", b"1")])
            crew.ask(name, Verb.PREPARE)
            if end is not None:
                crew.branch(name).complete(commit=True)
        self.site.settle()
        batch = rows("k", b"m", exchange="x")
        assert self.ask("POST", "/api/leveret/staging/%2F/job/0/0/0?piece=0", batch).status == 200
        self.broker.policies.set_operator(Policy("op", "/", "^limited$", {"max-length": 5}))
        shovels_of(self.broker).set("/", "moves", SHOVEL, "root")
        self.broker.parameters.set("mine", "v")
        host.set_limits(attrs.evolve(host.limits, max_connections=100))
        bob = access.user("bob")
        assert bob is not None
        access.put_user(attrs.evolve(bob, limits=attrs.evolve(bob.limits, max_connections=100)))
        access.clear_permissions("u", "/")

    def ask(
        self, method: str, target: str, body: bytes = b"", credentials: str | None = f"u:{SECRET}"
    ) -> Response:
        """What is answered in the end, by a broker that has nothing else to do."""
        line = Line(self.broker, CONFIG, advance=lambda: self.site.advance(STEP_S))
        line.send(method, target, body, credentials)
        self.broker.settle()
        return line.answer()

    def state(self) -> object:
        """All there is that a request may change."""
        return (
            [(name, list(items)) for name, items in everything(self.broker)],
            [(host.name, *self._things_in(host)) for host in self.broker.hosts()],
            list(self.node.told),
        )

    def _things_in(self, host: object) -> list[object]:
        assert hasattr(host, "queues")
        return [
            sorted(
                (each.name, each.ready, each.unsettled, len(each.consumers)) for each in host.queues.values()
            ),
            sorted((key, lease.first, lease.fence) for key, lease in leases_of(host).items()),
            sorted((name, sorted(staging.staged.items())) for name, staging in stagings_of(host).items()),
            [(str(branch.xid), branch.state.value) for branch in host.guest(Branches).all()],
        ]


def target_of(counter: Counter, name: str, row: Row) -> str:
    """The names filled in."""
    target = row.target or name.partition(" ")[2]
    if row.query:
        target += f"?{row.query}"
    for each, text in {**NAMES, "name": row.name or "{name}", "fence": str(counter.fence)}.items():
        target = target.replace(f"{{{each}}}", text)
    assert "{" not in target, target
    return target


def asked(counter: Counter, name: str, row: Row, credentials: str | None = f"u:{SECRET}") -> Response:
    body = batch() if row.body is BATCH else octets_of(row.body)
    return counter.ask(name.partition(" ")[0], target_of(counter, name, row), body, credentials)


def let_in(status: int, row: Row) -> bool:
    return status == row.otherwise if row.otherwise else status < 400


def batch() -> bytes:
    """What bulk publishing sends."""
    return rows("k", b"m", exchange="x")


def octets_of(body: object) -> bytes:
    if body is None:
        return b""
    return body if isinstance(body, bytes) else json.dumps(body).encode()
