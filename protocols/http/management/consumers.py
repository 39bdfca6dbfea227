"""List consumers over HTTP, without those that browse a work queue."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import attrs

from leveret.delivery import Consumer
from leveret.observability.connection_stats import ConsumerFacts
from leveret.protocols.http.connection import Later
from leveret.protocols.http.management.connections import Directory
from leveret.protocols.http.management.lists import Fields, listed, row
from leveret.protocols.http.management.requester import host_of, visible_hosts
from leveret.protocols.http.server.request import Level, Request, Route
from leveret.queues.queue import Queue
from leveret.queues.slow_consumers import is_slow
from leveret.values import Json, as_json
from leveret.virtual_host import VirtualHost

PATH: Final = "/api/consumers"
OF_HOST: Final = PATH + "/{vhost}"


@attrs.frozen
class AttachedConsumer:
    """A consumer, and the facts that it reports."""

    consumer: Consumer
    facts: ConsumerFacts

    @property
    def queue(self) -> Queue:
        return self.consumer.queue


def attached_to(queue: Queue) -> list[AttachedConsumer]:
    return [AttachedConsumer(consumer, consumer.facts()) for consumer in list(queue.consumers)]


def attached_in(hosts: Iterable[VirtualHost]) -> Iterator[AttachedConsumer | None]:
    """Yield the consumers of each queue as they are when it is reached."""
    for queue in [queue for host in hosts for queue in host.queues.values()]:
        yield None  # a step for the queue itself
        yield from attached_to(queue)


def is_active(each: AttachedConsumer) -> bool:
    """Return whether the consumer gets messages: with a single active consumer, the others wait."""
    queue, consumer = each.queue, each.consumer
    return queue.serves(consumer) if queue.alternates(consumer) else not consumer.suspended


def activity(each: AttachedConsumer) -> str:
    if each.queue.alternates(each.consumer):
        return "single_active" if is_active(each) else "waiting"
    return "up"


def timeout_ms(consumer: Consumer) -> int:
    """Return how long a consumer may take to answer a delivery; 0 if there is no limit."""
    if consumer.timeout_s is not None:
        return round(consumer.timeout_s * 1000)
    return consumer.queue.limits.consumer_timeout_ms or 0


CONSUMER: Final[Fields[AttachedConsumer]] = {
    "arguments": lambda each: as_json(each.consumer.arguments),
    "ack_required": lambda each: not each.consumer.settled,
    "active": is_active,
    "activity_status": activity,
    "consumer_tag": lambda each: each.facts.tag,
    "consumer_timeout": lambda each: timeout_ms(each.consumer),
    "exclusive": lambda each: each.consumer.exclusive,
    "prefetch_count": lambda each: each.facts.prefetch,
    "queue": lambda each: {"name": each.queue.name, "vhost": each.queue.virtual_host.name},
    "slow": lambda each: is_slow(each.queue, each.consumer),
    "warnings": lambda each: [*each.consumer.warnings],
}


def fields(request: Request) -> Fields[AttachedConsumer]:
    directory = Directory(request)
    return {**CONSUMER, "channel_details": lambda each: channel_details(each.facts, directory)}


def channel_details(facts: ConsumerFacts, directory: Directory) -> dict[str, Json]:
    """Return where a consumer is attached; nothing for a consumer of a session without a connection."""
    connected = directory.find(facts.connection)
    if connected is None:
        return {}
    return {
        "connection_name": facts.connection,
        "name": f"{facts.connection} ({facts.channel})",
        "node": directory.node,
        "number": facts.channel,
        "peer_host": connected.peer.host,
        "peer_port": connected.peer.port,
        "user": directory.user_of(facts.connection),
        "user_provided_name": directory.given_to(facts.connection),
    }


def rows(request: Request, consumers: Iterable[AttachedConsumer]) -> list[Json]:
    """Return all fields of some consumers, as details of a queue or channel."""
    table = fields(request)
    return [row(each, table, ()) for each in consumers]


def is_on(each: AttachedConsumer, connection: str, number: int) -> bool:
    """Return whether a consumer belongs to a channel of a connection."""
    return each.facts.connection == connection and each.facts.channel == number


def order(each: AttachedConsumer) -> tuple[str, str, str, int, str]:
    facts, queue = each.facts, each.queue
    return queue.virtual_host.name, queue.name, facts.connection, facts.channel, facts.tag


def consumers(request: Request) -> Later:
    found = attached_in(visible_hosts(request))
    return listed(request, found, fields(request), order, lambda each: each.facts.tag)


def consumers_of_host(request: Request) -> Later:
    found = attached_in([host_of(request)])
    return listed(request, found, fields(request), order, lambda each: each.facts.tag)


ROUTES: Final = (
    Route("GET", PATH, Level.MANAGEMENT, consumers),
    Route("GET", OF_HOST, Level.MANAGEMENT, consumers_of_host),
)
