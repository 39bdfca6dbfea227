"""A broker with a node of no sockets, and somebody who scrapes it in memory.

stand = Stand()
stand.publish("q", b"a")
assert stand.scrape()["rabbitmq_queue_messages_ready", ()] == 1
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from prometheus_client import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as open_metrics
from prometheus_client.parser import text_string_to_metric_families as plain

from leveret.config.config import Config
from leveret.front_end import FrontEnd, Peer
from leveret.observability.connection_stats import ChannelFacts, ConnectionFacts
from leveret.operations import Connected
from leveret.outbox import Outbox
from leveret.protocols.http.metrics.adapter import MetricsAdapter
from leveret.protocols.http.registration import PROMETHEUS
from tests.harness.bench import CoreBench
from tests.harness.http import HERE, FakeNode, Response, answered

Labels = tuple[tuple[str, str], ...]
Samples = dict[tuple[str, Labels], float]

OPEN = "application/openmetrics-text; version=1.0.0, text/plain; q=0.5"


class Front(FrontEnd):
    """A connection with channels."""

    def __init__(self, facts: ConnectionFacts | None, channels: Iterable[ChannelFacts] = ()) -> None:
        self._facts = facts
        self._channels = channels

    def receive(self, data: bytes, now: float) -> None:
        raise AssertionError("nobody sends anything")

    def lost(self) -> None:
        raise AssertionError("nobody leaves")

    def facts(self) -> ConnectionFacts | None:
        return self._facts

    def channel_facts(self) -> Iterable[ChannelFacts]:
        return self._channels


class Link(Connected):
    """As a node would show it."""

    octets_sent = 200  # type: ignore[assignment]
    octets_waiting = 7  # type: ignore[assignment]

    def __init__(self, port: int, front: FrontEnd | None) -> None:
        self.peer = Peer("127.0.0.1", port, "127.0.0.1", 5672, loopback=True)
        self.front = front
        self.connected_at = 0.0
        self.octets_received, self.reads, self.writes = 100, 3, 2

    def shut_down(self, reason: str) -> None:
        raise AssertionError("nobody ends it")


class Stand(CoreBench):
    """A broker that is scraped."""

    def __init__(self) -> None:
        super().__init__()
        self.node = self.broker.operations = FakeNode()

    def connect(self, peer: Peer = HERE) -> MetricsAdapter:
        connection = PROMETHEUS.factory(self.broker, Config(), Outbox([]), peer, self.broker.now)
        assert isinstance(connection, MetricsAdapter)
        return connection

    def ask(
        self, target: str = "/metrics", accept: str = "", method: str = "GET", host: str = "localhost"
    ) -> Scrape:
        scrape = Scrape(self)
        octets = f"{method} {target} HTTP/1.1\r\nHost: {host}\r\nAccept: {accept}\r\n\r\n"
        scrape.connection.receive(octets.encode(), self.broker.now)
        self.settle()
        return scrape

    def text(self, target: str = "/metrics", accept: str = "") -> str:
        scrape = self.ask(target, accept)
        scrape.finish()
        response = scrape.response
        assert response.status == 200
        return response.body.decode()

    def scrape(self, target: str = "/metrics", accept: str = "") -> Samples:
        """All samples, as Prometheus' own parser reads them."""
        return samples(families(self.text(target, accept), accept))


class Scrape:
    """One request, and what comes of it."""

    def __init__(self, stand: Stand) -> None:
        self._stand = stand
        self.connection = stand.connect()
        self.turns = 0

    @property
    def waits(self) -> bool:
        return not self.connection.outbox.pieces

    def finish(self, between: Callable[[], object] = lambda: None) -> None:
        """Let it have its turns, and others theirs."""
        while self.waits:
            between()
            self.turns += 1
            self._stand.advance(0.01)

    @property
    def response(self) -> Response:
        """The answer, which the peer reads at once."""
        return answered(self.connection, "GET")


def families(text: str, accept: str = "") -> list[Metric]:
    return list((open_metrics if accept == OPEN else plain)(text))


def samples(found: Iterable[Metric]) -> Samples:
    every = [
        (each.name, tuple(sorted(each.labels.items())), each.value) for one in found for each in one.samples
    ]
    by = {(name, labels): value for name, labels, value in every}
    assert len(by) == len(every), "something is said twice"
    return by
