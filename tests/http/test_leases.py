"""Leases over HTTP in memory: whose they are, what is reserved, settled and released, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from broker_core.work_queue import WorkQueue
from tests.http.stand import Asking, Stand, bodies, told

LEASES = "leases"


class LeaseStand(Stand):
    """A broker with a work queue `sw`, and whoever asks for leases of it."""

    def __init__(self) -> None:
        super().__init__()
        self.fence = 0
        queue = self.host.declare_queue("sw", durable=True)
        assert isinstance(queue, WorkQueue)
        self.queue = queue

    def lease(self, method: str, path: str = "/sw/r", user: str = "reader", host: str = "%2F") -> Asking:
        asking = Asking(self.broker)
        asking.ask(path, user, method, host, LEASES)
        self.broker.settle()
        self.broker.settle()
        return asking

    def content(self, method: str, path: str = "/sw/r") -> dict[str, Any]:
        asking = self.lease(method, path)
        while asking.waits:
            self.advance(0)
        response = asking.response
        assert response.status == 200, response.body
        return response.content

    def open(self, reader: str = "r") -> int:
        self.fence = self.content("PUT", f"/sw/{reader}")["fence"]
        return self.fence

    def post(self, verb: str, **said: object) -> dict[str, Any]:
        query = "&".join(f"{name.rstrip('_')}={value}" for name, value in said.items())
        return self.content("POST", f"/sw/r/{verb}?fence={self.fence}&{query}".rstrip("&"))


@pytest.fixture
def stand() -> LeaseStand:
    return LeaseStand()


def test_what_is_reserved_can_be_read_again_and_again_until_it_is_settled(stand: LeaseStand) -> None:
    stand.publish(b"a", b"b", b"c", to="sw")
    stand.open()
    state = stand.post("reserve", from_=0, messages=2)
    assert (state["first"], state["next"], state["messages"], state["octets"], state["ready"]) == (
        0,
        2,
        2,
        2,
        1,
    )
    for _ in range(2):
        response = stand.lease("GET", "/sw/r/blocks?from=0").response
        assert bodies(response) == [(0, b"a"), (1, b"b")]
        assert told(response) == (0, 2, 2)
    state = stand.post("settle", to=1)
    assert (state["first"], state["next"]) == (1, 2)
    assert stand.lease("GET", "/sw/r/blocks?from=0").response.status == 410
    assert bodies(stand.lease("GET", "/sw/r/blocks?from=1").response) == [(1, b"b")]
    assert (stand.queue.ready, stand.queue.unsettled, stand.queue.accepted) == (1, 1, 1)
