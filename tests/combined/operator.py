"""Operators: over HTTP they move, return, look at and hold up what waits in queues, and lease it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from leveret.outbox import Outbox
from tests.harness.http import FakeNode, Line, Response

from .client import Client, Moves

if TYPE_CHECKING:
    from .place import Place

DEAD = "dead"  # the queue of dead letters
LOOKS = (
    "/api/overview", "/api/queues", "/api/queues/%2F", "/api/connections", "/api/channels", "/api/consumers",
    "/api/exchanges", "/api/bindings", "/api/definitions", "/api/policies", "/api/nodes",
    "/api/health/checks/alarms", "/api/leveret/leases/%2F", "/api/leveret/branches/%2F", "/metrics",
)  # fmt: skip
STEP_S = 0.001


class Operator(Client):
    """One that is always there, on connections of a request each."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        place.bench.broker.operations = FakeNode()
        self.leases: dict[str, int] = {}  # their fences, by path

    def moves(self) -> Moves:
        return {
            self._move: 2,
            self._return: 2,
            self._deliver: 2,
            self._pause: 2,
            self._get: 2,
            self._look: 4,
            self._lease: 14,
            self._forget_ids: 1,
            self._publish: 2,
            self._import: 1,
            self._complete: 2,
        }

    def ask(self, method: str, path: str, body: str = "") -> Response:
        """Return what is answered in the end, which is no mistake of the broker's."""
        bench = self.place.bench
        bench.broker.tick()
        line = Line(bench.broker, bench.config, advance=self._advance, outbox=Outbox([], 1 << 30))
        line.send(method, path, body.encode(), "guest:guest")
        bench.settle()
        response = line.answer()
        assert response.status < 500 or response.status == 503, (method, path, response.body)
        return response

    def _advance(self) -> None:
        self.place.bench.clock.advance(STEP_S)
        self.place.bench.settle()

    def _move(self) -> None:
        source, target = self.random.choice((DEAD, self.place.queue())), self.place.queue()
        if self.place.replaces(target):
            return
        count = f', "count": {self.random.choice((1, 3))}' if self.chance(0.5) else ""
        self.ask("POST", f"/api/leveret/queues/%2F/{source}/move", f'{{"to": "{target}"{count}}}')

    def _return(self) -> None:
        if any(map(self.place.replaces, self.place.queues)):
            return
        body = f'{{"count": {self.random.choice((1, 5))}}}'
        self.ask("POST", f"/api/leveret/queues/%2F/{DEAD}/return", body)

    def _deliver(self) -> None:
        self.ask("POST", f"/api/leveret/queues/%2F/{self.place.queue()}/delayed/deliver", "{}")

    def _pause(self) -> None:
        self.ask("PUT", f"/api/queues/%2F/{self.place.queue()}/{self.random.choice(('pause', 'resume'))}")

    def _get(self) -> None:
        modes = ("ack_requeue_true", "ack_requeue_false", "reject_requeue_true", "reject_requeue_false")
        mode, count = self.random.choice(modes), self.random.choice((1, 3, 10))
        body = f'{{"count": {count}, "ackmode": "{mode}", "encoding": "base64"}}'
        response = self.ask("POST", f"/api/queues/%2F/{self.place.queue()}/get", body)
        if response.status == 200 and mode == "ack_requeue_false":
            for each in response.json:
                self.ledger.settle(self.place.body_of(each))

    def _look(self) -> None:
        self.ask("GET", self.random.choice((*LOOKS, f"/api/queues/%2F/{self.place.queue()}")))

    def _lease(self) -> None:
        path = f"/api/leveret/leases/%2F/{self.place.queue()}/{self.random.choice(('ann', 'bob'))}"
        fence = self.leases.get(path)
        if fence is None:
            response = self.ask("PUT", path)
            if response.status == 200:
                self.leases[path] = response.json["fence"]
        elif self.chance(0.6):
            first = self.ask("GET", path)
            if first.status == 200:
                begin = first.json["first"]
                self.ask("POST", f"{path}/reserve?fence={fence}&from={begin}&messages=3&wait_ms=0")
        elif self.chance(0.5):
            self.ask("POST", f"{path}/release?fence={fence}")
        else:
            self.ask("DELETE", path)
            del self.leases[path]

    def _forget_ids(self) -> None:
        self.ask("DELETE", f"/api/leveret/queues/%2F/{self.place.queue()}/deduplication")

    def _publish(self) -> None:
        queue, body = self.place.publishing()
        properties = '{"delivery_mode": 2}'
        response = self.ask(
            "POST",
            "/api/exchanges/%2F/amq.default/publish",
            f'{{"routing_key": "{queue}", "payload": "{body.decode()}", "payload_encoding": "string",'
            f' "properties": {properties}}}',
        )
        if response.status == 200 and response.json["routed"]:
            self.ledger.confirmed.add(body)

    def _import(self) -> None:
        """Import what is there already, which changes nothing."""
        definitions = self.ask("GET", "/api/definitions")
        assert self.ask("POST", "/api/definitions", definitions.body.decode()).status in (200, 204)

    def _complete(self) -> None:
        """Commit or roll back what a coordinator has prepared, which is told of it when it asks."""
        prepared = [each for each in self._branches() if each["state"] == "prepared"]
        if prepared:
            branch = self.random.choice(prepared)
            for client in self.place.clients:
                self.ledger.excuse(client.in_transactions())
            verb = self.random.choice(("commit", "rollback"))
            self.ask("POST", f"/api/leveret/branches/%2F/{branch['xid']}/{verb}")

    def _branches(self) -> list[dict[str, str]]:
        found: list[dict[str, str]] = self.ask("GET", "/api/leveret/branches/%2F").json
        return found

    def hear(self) -> None: ...

    def leave(self) -> None:
        """Give back what is leased or prepared, also by those before a restart, and let all queues go on."""
        for branch in self._branches():
            if branch["state"] == "prepared":
                self.ask("POST", f"/api/leveret/branches/%2F/{branch['xid']}/rollback")
        for lease in self.ask("GET", "/api/leveret/leases/%2F").json:
            self.ask("DELETE", f"/api/leveret/leases/%2F/{lease['queue']}/{lease['reader']}")
        for queue in self.place.queues:
            self.ask("PUT", f"/api/queues/%2F/{queue}/resume")
