"""A broker's staged publishing as the sink needs it, in memory, with the faults of `FakeBroker`."""

from __future__ import annotations

import json
from urllib.parse import parse_qsl, unquote, urlsplit

from leveret.durable.store.block import Block, header, messages_of
from leveret.message import Message
from leveret.protocols.amqp091.broker.encoding import ENCODING as AMQP091
from tests.pipeline.bulk import FakeBroker, said

STAGING = "/api/leveret/staging/"
Reply = tuple[int, dict[str, str], bytes]
Part = tuple[int, int, int]  # batch, partition, attempt


def messages_in(octets: bytes) -> list[Message]:
    found, at = [], 0
    while at < len(octets):
        found += messages_of(Block(octets, at), {"amqp091": AMQP091}.get)
        at += header(octets, at).octets
    return found


class FakeStaging:
    """One name."""

    def __init__(self) -> None:
        self.committed = -1
        self.parts: dict[Part, list[list[Message]]] = {}
        self.publishing: list[Message] = []

    def rows(self, part: Part) -> int:
        return sum(map(len, self.parts.get(part, ())))


class FakeExchanges(FakeBroker):
    """Exchanges that remember what was published, `room` of it at a commit."""

    def __init__(self) -> None:
        super().__init__()
        self.exchanges = {"", "shop"}
        self.unbound = {"nowhere"}  # keys
        self.published: list[Message] = []
        self.stagings: dict[str, FakeStaging] = {}
        self.room = 10**9

    def answer(self, target: str) -> Reply:
        return self.change("GET", target)

    def change(self, method: str, target: str) -> Reply:
        parts = urlsplit(target)
        query = dict(parse_qsl(parts.query))
        if parts.path.startswith("/api/leveret/publish/"):
            return self._refusal(query) or said(200, self._publish(messages_in(self.body)))
        _, name, *path = map(unquote, parts.path.removeprefix(STAGING).split("/"))
        if method == "POST" and len(path) == 3:
            return self._stage(self.stagings.setdefault(name, FakeStaging()), *map(int, path), query)  # type: ignore[arg-type]
        staging = self.stagings.get(name)
        if staging is None:
            return said(404, {"reason": f"no staging '{name}'"})
        if method == "POST":
            return self._commit(staging, int(path[0]))
        if method == "DELETE":
            return self._drop(name, staging, *map(int, path))
        return said(200, {"batch": staging.committed, "publishing": len(staging.publishing)})

    def _refusal(self, query: dict[str, str]) -> Reply | None:
        for each in messages_in(self.body):
            if each.exchange not in self.exchanges:
                return said(404, {"reason": f"no exchange '{each.exchange}' in vhost '/'"})
            if query.get("mandatory") == "true" and each.key in self.unbound:
                reason = f"no queue for exchange '{each.exchange}' with key '{each.key}'"
                return said(422, {"reason": reason, "key": each.key})
        return None

    def _stage(
        self, staging: FakeStaging, batch: int, partition: int, attempt: int, query: dict[str, str]
    ) -> Reply:
        if batch <= staging.committed:
            return said(200, {"rows": 0, "repeated": True})
        part = batch, partition, attempt
        piece, pieces = int(query["piece"]), staging.parts.get(part, [])
        if piece > len(pieces):
            return said(409, {"reason": f"piece {len(pieces)} is next", "piece": len(pieces)})
        refusal = self._refusal(query)
        if refusal is not None:
            return refusal
        if piece == len(pieces):
            staging.parts.setdefault(part, []).append(messages_in(self.body))
        return said(200, {"rows": staging.rows(part)})

    def _commit(self, staging: FakeStaging, batch: int) -> Reply:
        repeated = batch <= staging.committed
        if not repeated:
            parts = json.loads(self.body)["parts"]
            for partition, attempt, rows in parts:
                if staging.rows((batch, partition, attempt)) != rows:
                    return said(409, {"reason": "a part is missing", "missing": [partition, attempt]})
            for partition, attempt, _ in sorted(parts):
                for piece in staging.parts[batch, partition, attempt]:
                    staging.publishing += piece
            staging.committed = batch
            staging.parts = {part: each for part, each in staging.parts.items() if part[0] > batch}
        now, staging.publishing = staging.publishing[: self.room], staging.publishing[self.room :]
        done = self._publish(now)
        if staging.publishing:
            return said(503, {"reason": f"{len(staging.publishing)} rows are still to be published"})
        return said(200, {**done, "repeated": repeated})

    def _publish(self, messages: list[Message]) -> dict[str, object]:
        taken = [each for each in messages if each.key not in self.unbound]
        self.published += taken
        return {"published": len(taken), "unroutable": len(messages) - len(taken)}

    def _drop(self, name: str, staging: FakeStaging, batch: int | None = None) -> Reply:
        if batch is None:
            del self.stagings[name]
        elif batch <= staging.committed:
            return said(409, {"reason": f"batch {batch} is committed"})
        else:
            staging.parts = {part: each for part, each in staging.parts.items() if part[0] != batch}
        return said(200, {"dropped": 0})


def bodies(broker: FakeExchanges) -> list[bytes]:
    return [each.body for each in broker.published]
