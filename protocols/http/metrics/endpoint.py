"""Answer Prometheus' scrapes with sums of everything, a line for each object, or a choice of either.

    /metrics              sums only: the answer stays small
    /metrics/per-object   a line for each queue, exchange, connection and channel, under the same names
    /metrics/detailed     a choice: ?family=GROUP, ?vhost=NAME, each any number of times

An answer is made in portions, with turns of other work between. Its size is bounded, and so is the number of answers
that are made at once.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, Final, TypeVar

from leveret.broker import Broker
from leveret.guests import Guest
from leveret.observability.metric import COUNTER, GAUGE
from leveret.protocols.http.connection import Response
from leveret.protocols.http.metrics import node
from leveret.protocols.http.metrics.collection import (
    PAUSE_S,
    SampleRows,
    connected_sums,
    exchange_sums,
    queue_sums,
    walk_all,
)
from leveret.protocols.http.metrics.exposition import (
    Exposition,
    Family,
    sample,
    wants_open_metrics,
)
from leveret.protocols.http.metrics.objects import CONNECTIONS, DEDUPLICATED, IDS, QUEUES, Subject
from leveret.protocols.http.server.portioned_answers import PortionedAnswer
from leveret.protocols.http.server.request import Refused

if TYPE_CHECKING:
    from leveret.protocols.http.connection import Later
    from leveret.protocols.http.server.request import Request
    from leveret.values import Json
    from leveret.virtual_host import VirtualHost

T = TypeVar("T")

OCTETS_MAX: Final = 32 << 20  # bytes of an answer: half a million lines
AT_ONCE: Final = 4  # answers that are being made or sent

# The same sums under the names that dashboards ask for.
GLOBAL: Final = (
    ("rabbitmq_global_messages_routed", "publish", "Messages put into queues, counted in each."),
    ("rabbitmq_global_messages_delivered_consume_manual_ack", "deliver", "Deliveries to be acknowledged."),
    (
        "rabbitmq_global_messages_delivered_consume_auto_ack",
        "deliver_no_ack",
        "Deliveries settled at once.",
    ),
    ("rabbitmq_global_messages_delivered_get_manual_ack", "get", "Fetched messages to be acknowledged."),
    ("rabbitmq_global_messages_delivered_get_auto_ack", "get_no_ack", "Fetched messages settled at once."),
    ("rabbitmq_global_messages_get_empty", "get_empty", "Fetches from empty queues."),
    ("rabbitmq_global_messages_redelivered", "redeliver", "Messages delivered once more."),
    ("rabbitmq_global_messages_acknowledged", "ack", "Deliveries that consumers have accepted."),
)
DELIVERED: Final = ("deliver", "deliver_no_ack", "get", "get_no_ack")

Answer = Generator[float, None, "Json | Response"]


def metrics(request: Request) -> Later:
    """Answer with sums of everything."""

    def steps(exposition: Exposition) -> Generator[float, None, None]:
        yield from write_sums(request.broker, exposition)

    return scraped(request, steps)


def per_object(request: Request) -> Later:
    """Answer with a line for each object."""

    def steps(exposition: Exposition) -> Generator[float, None, None]:
        write_node(request.broker, exposition, None, detailed=False)
        yield from write_objects(
            request.broker, exposition, None, list(request.broker.hosts()), detailed=False
        )

    return scraped(request, steps)


def detailed(request: Request) -> Later:
    """Answer with the families and virtual hosts asked for. Unknown groups are ignored: other brokers have them."""
    request.only("family", "vhost")
    groups = frozenset(request.query.get("family", ()))
    names = frozenset(request.query.get("vhost", ()))
    hosts = [host for host in request.broker.hosts() if not names or host.name in names]

    def steps(exposition: Exposition) -> Generator[float, None, None]:
        write_node(request.broker, exposition, groups, detailed=True)
        yield from write_objects(request.broker, exposition, groups, hosts, detailed=True)

    return scraped(request, steps)


# Shared by the routes.


class ScrapeCount(Guest):
    """The number of a broker's scrapes that are under way."""

    def __init__(self, broker: Broker) -> None:
        self.count = 0

    def end(self) -> None:
        self.count -= 1


def scraped(request: Request, steps: Callable[[Exposition], Generator[float, None, None]]) -> Later:
    """Return the answer to come, in the format that the client prefers. Raises Refused if too many are under way."""
    scrapes = request.broker.guest(ScrapeCount)
    if scrapes.count >= AT_ONCE:
        reason = f"{AT_ONCE} scrapes are under way; ask again later"
        raise Refused(HTTPStatus.SERVICE_UNAVAILABLE, reason, headers=(("Retry-After", "1"),))
    exposition = Exposition(wants_open_metrics(request.headers.get("accept", "")))
    return PortionedAnswer(request.broker, _answer(request.broker, scrapes, exposition, steps)).begin()


def _answer(
    broker: Broker,
    scrapes: ScrapeCount,
    exposition: Exposition,
    steps: Callable[[Exposition], Generator[float, None, None]],
) -> Answer:
    scrapes.count += 1
    made = False
    try:
        yield from steps(exposition)
        for family, samples in node.identity(broker):
            exposition.family(family, [sample(family.name, *each) for each in samples])
        made = True
    finally:
        if not made:
            scrapes.end()
    pieces = exposition.pieces()
    return Response(HTTPStatus.OK, b"", exposition.content_type, sent=scrapes.end, pieces=pieces)


def write_node(broker: Broker, exposition: Exposition, groups: frozenset[str] | None, detailed: bool) -> None:
    for plain, samples in node.families(broker, groups):
        family = plain.detailed if detailed else plain
        exposition.family(family, [sample(family.name, *each) for each in samples])


def write_sums(broker: Broker, exposition: Exposition) -> Generator[float, None, None]:
    """Write sums of everything, under RabbitMQ's names for queues and connections, and its `global` names."""
    write_node(broker, exposition, None, detailed=False)
    yield PAUSE_S
    queues = yield from queue_sums(broker)
    _write(exposition, QUEUES, queues)
    for name, column, text in GLOBAL:
        _write_one(exposition, Family(name + "_total", COUNTER, text), queues[column])
    total = sum(queues[column] for column in DELIVERED)
    text = "Messages that consumers got, delivered or fetched."
    _write_one(exposition, Family("rabbitmq_global_messages_delivered_total", COUNTER, text), total)
    for name in ("rabbitmq_consumers", "rabbitmq_global_consumers"):
        _write_one(exposition, Family(name, GAUGE, "Consumers."), queues["consumers"])
    yield PAUSE_S
    exchanges = yield from exchange_sums(broker)
    text = "Messages published to exchanges, dead letters too."
    received = Family("rabbitmq_global_messages_received_total", COUNTER, text)
    _write_one(exposition, received, exchanges["publish_in"])
    for name, text, value in (
        ("leveret_messages_unroutable", "Messages that found no queue.", exchanges["drop_unroutable"]),
        ("leveret_exchange_messages_deduplicated", DEDUPLICATED, exchanges["dedup_exchange"]),
        ("rabbitmq_global_messages_confirmed", "Publishes that were confirmed.", broker.confirmed),
        (
            "rabbitmq_global_messages_unroutable_returned",
            "Messages returned because no queue took them.",
            broker.returned,
        ),
    ):
        _write_one(exposition, Family(name + "_total", COUNTER, text), value)
    ids = Family("leveret_exchange_deduplication_ids", GAUGE, IDS)
    _write_one(exposition, ids, exchanges["ids"])
    yield PAUSE_S
    connections = yield from connected_sums(broker)
    if connections:
        _write(exposition, CONNECTIONS, connections)


def _write(exposition: Exposition, subject: Subject[T], found: dict[str, float]) -> None:
    for measure in subject.measures:
        _write_one(exposition, measure.family, found[measure.column])


def _write_one(exposition: Exposition, family: Family, value: float) -> None:
    exposition.family(family, [sample(family.name, "", value)])


def write_objects(
    broker: Broker,
    exposition: Exposition,
    groups: frozenset[str] | None,
    hosts: Sequence[VirtualHost],
    detailed: bool,
) -> Generator[float, None, None]:
    """Write a line for each object. Raises Refused if the answer becomes too long."""
    rows = SampleRows(detailed)
    for pause_s in walk_all(broker, rows, groups, hosts):
        if rows.octets > OCTETS_MAX:
            reason = "there is too much for one answer; ask /metrics/detailed for a family or a virtual host"
            raise Refused(HTTPStatus.SERVICE_UNAVAILABLE, reason)
        yield pause_s
    yield from rows.write(exposition)
