"""List, declare and delete queues over HTTP.

RabbitMQ's facts about processes and the places of messages have no meaning here and are left out. Streams list their
readers, and how far behind each is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from itertools import islice
from typing import Final

from leveret.clock import NEVER
from leveret.config.file_objects import QUEUE as QUEUE_KIND
from leveret.errors import MISTAKES
from leveret.features.deduplication.deduplications import known_to
from leveret.observability.counts import QUEUE as QUEUE_COUNTS
from leveret.observability.counts import queue_counts
from leveret.policy import Policy
from leveret.protocols.http.connection import Later, Response
from leveret.protocols.http.management.consumers import AttachedConsumer, attached_to, rows
from leveret.protocols.http.management.deduplication import told_of
from leveret.protocols.http.management.delayed import ms_of
from leveret.protocols.http.management.lists import Fields, listed, told
from leveret.protocols.http.management.rates import LENGTH_NAMES, TOLD_QUEUE, Rates
from leveret.protocols.http.management.request_body import bad, body_of, table_in, text_in, truth_in
from leveret.protocols.http.management.requester import (
    changed,
    client_of,
    host_of,
    not_there,
    own_host_of,
    visible_hosts,
)
from leveret.protocols.http.server.request import Level, Request, Route
from leveret.queues.queue import Queue
from leveret.queues.stream import StreamQueue
from leveret.values import Json, as_json

PATH: Final = "/api/queues"
DETAILED: Final = PATH + "/detailed"  # in RabbitMQ the list whose rows have everything, as ours always have
OF_HOST: Final = PATH + "/{vhost}"
ONE: Final = OF_HOST + "/{name}"
DETAILS_MAX: Final = 1000  # consumers told of one queue


# Fields.


def next_delayed_at(queue: Queue) -> int | None:
    """Return when the next message that waits for a time is due, in ms since 1970; None if none waits."""
    return None if (due := queue.later.next_due) == NEVER else ms_of(queue, due)


def exclusive_tag(queue: Queue) -> str | None:
    return next((each.facts().tag for each in islice(queue.consumers, 1) if each.exclusive), None)


def active_tag(queue: Queue) -> str | None:
    """Return the consumer tag of the single active consumer."""
    active = (each for each in queue.consumers if queue.limits.single_active and queue.serves(each))
    return next((each.facts().tag for each in active), None)


def idle_since(queue: Queue) -> str:
    """Return the time when the queue was last declared, consumed or fetched from."""
    broker = queue.virtual_host.broker
    at = datetime.fromtimestamp(broker.clock.wall() - (broker.now - queue.used_at), UTC)
    return at.isoformat(timespec="milliseconds")


def policies_of(queue: Queue) -> tuple[Policy | None, Policy | None]:
    policies = queue.virtual_host.broker.policies
    return policies.queue_policies(queue.virtual_host.name, queue.name, queue.type)


def memory(queue: Queue) -> int:
    """Return about how many bytes of memory the queue takes: bodies that are there, and so much for each message."""
    away, away_octets = queue.on_disk()
    messages = queue.ready - away + queue.unsettled + queue.delayed
    bodies = queue.ready_bytes - away_octets + queue.unsettled_bytes + queue.later.octets
    return QUEUE_OCTETS + messages * MESSAGE_OCTETS + bodies


def head_timestamp(queue: Queue) -> int | None:
    """Return the timestamp that the publisher gave the first message, in seconds since 1970; None without one."""
    if (message := queue.head_message()) is None:
        return None
    try:
        found = message.encoding.property(message.properties, "timestamp")
    except MISTAKES:  # the encoding may raise anything
        return None
    return int(found) if isinstance(found, int) else None


def utilisation(queue: Queue) -> float:
    """Return 1 if a message that comes now is delivered at once, as far as consumers go, else 0.

    RabbitMQ tells the share of time for which this was so; monitors take the mean of what they have read.
    """
    return float(any(each.credit > 0 and each.room() > 0 for each in queue.consumers))


def dead_letters(queue: Queue) -> int:
    """Return how many dead letters the queue holds until their targets take them."""
    return 0 if queue.dead_letters is None else queue.dead_letters.count


def dead_letter_octets(queue: Queue) -> int:
    return 0 if queue.dead_letters is None else queue.dead_letters.octets


def unreadable(queue: Queue) -> int:
    """Return how many messages of the queue, and dead letters that it holds, cannot be read from the store."""
    return queue.unreadable + (0 if queue.dead_letters is None else queue.dead_letters.unreadable)


def why_held(queue: Queue) -> str | None:
    """Return why the first of its dead letters is held; None if none is."""
    return None if queue.dead_letters is None else queue.dead_letters.why or None


def named(policy: Policy | None) -> str | None:
    return None if policy is None else policy.name


def effective_definition(queue: Queue) -> Json:
    host = queue.virtual_host
    return as_json(host.broker.policies.for_queue(host.name, queue.name, queue.type))


QUEUE: Final[Fields[Queue]] = {
    "arguments": lambda queue: as_json(queue.arguments),
    "dead_letters_wait": why_held,
    "auto_delete": lambda queue: queue.auto_delete,
    "consumer_capacity": utilisation,
    "consumer_utilisation": utilisation,
    "consumers": lambda queue: len(queue.consumers),
    "durable": lambda queue: queue.durable,
    "effective_policy_definition": effective_definition,
    "exclusive": lambda queue: queue.exclusive,
    "exclusive_consumer_tag": exclusive_tag,
    "head_message_timestamp": head_timestamp,
    "idle_since": idle_since,
    "memory": memory,
    "message_bytes": lambda queue: queue.ready_bytes + queue.unsettled_bytes,
    "message_bytes_dlx": dead_letter_octets,
    "message_bytes_delayed": lambda queue: queue.later.octets,
    "message_bytes_paged_out": lambda queue: queue.on_disk()[1],
    "message_bytes_ready": lambda queue: queue.ready_bytes,
    "message_bytes_unacknowledged": lambda queue: queue.unsettled_bytes,
    "messages": lambda queue: queue.ready + queue.unsettled + queue.delayed + queue.unreadable,
    "messages_dlx": dead_letters,
    "messages_delayed": lambda queue: queue.delayed,
    "messages_paged_out": lambda queue: queue.on_disk()[0],
    "messages_ram": lambda queue: queue.ready - queue.on_disk()[0],
    "messages_ready": lambda queue: queue.ready,
    "messages_unacknowledged": lambda queue: queue.unsettled,
    "messages_unreadable": unreadable,
    "name": lambda queue: queue.name,
    "next_delayed_at": next_delayed_at,
    "operator_policy": lambda queue: named(policies_of(queue)[1]),
    "policy": lambda queue: named(policies_of(queue)[0]),
    "single_active_consumer_tag": active_tag,
    "state": lambda queue: "paused" if queue.paused else "running",
    "type": lambda queue: queue.type.value,
    "vhost": lambda queue: queue.virtual_host.name,
    "warnings": lambda queue: [*queue.virtual_host.queue_warnings(queue)],
}
QUEUE_OCTETS: Final = 4096  # of memory, for a queue
MESSAGE_OCTETS: Final = 512  # and for a message besides its body
FEW: Final = (
    "arguments", "auto_delete", "durable", "exclusive", "messages", "messages_ready", "messages_unacknowledged", "name",
    "state", "type", "vhost",
)  # fmt: skip


def fields(request: Request) -> Fields[Queue]:
    """Return the fields of a queue, few with `disable_stats`. Raises PreconditionFailed for wrong parameters."""
    operations = request.broker.operations
    node = "" if operations is None else operations.name
    if is_terse(request):
        return {**{name: QUEUE[name] for name in FEW}, "node": lambda queue: node}
    rates = Rates(request)
    return {
        **QUEUE,
        **{f"{name}_details": length_details(rates, name) for name in LENGTH_NAMES},
        "message_stats": rates.of_queue,
        "node": lambda queue: node,
    }


def is_terse(request: Request) -> bool:
    return request.one("disable_stats", "false") == "true"


def length_details(rates: Rates, name: str) -> Callable[[Queue], Json]:
    return lambda queue: rates.details(queue, name)


def detailed(request: Request, queue: Queue) -> Fields[Queue]:
    """Return the fields of a single queue: also up to a thousand consumers and, of a stream, how far each has read."""
    consumers = list(islice(attached_to(queue), DETAILS_MAX))
    more: dict[str, Json] = {"consumer_details": rows(request, consumers), "deliveries": [], "incoming": []}
    if queue.owner is not None:
        more["owner_pid_details"] = {"name": queue.owner.name}
    if (known := known_to(queue)) is not None:
        more["deduplication"] = told_of(known)
    if isinstance(queue, StreamQueue):
        more["readers"] = [reader(queue, each) for each in consumers]
    return {**fields(request), **{name: constant(value) for name, value in more.items()}}


def constant(value: Json) -> Callable[[Queue], Json]:
    return lambda queue: value


def reader(stream: StreamQueue, each: AttachedConsumer) -> dict[str, Json]:
    """Return the next offset of a stream's reader, and how many messages it is behind."""
    lag = stream.available_to(each.consumer)
    return {
        "tag": each.facts.tag,
        "connection": each.facts.connection,
        "channel": each.facts.channel,
        "offset": stream.log.committed - lag,
        "lag": lag,
    }


def order(queue: Queue) -> tuple[str, str]:
    return queue.virtual_host.name, queue.name


def keys(request: Request) -> Fields[Queue]:
    """Return parts of fields to sort by. Raises PreconditionFailed for wrong parameters of rates."""
    if is_terse(request):
        return {}
    rates = Rates(request)
    return {
        **rates.keys(TOLD_QUEUE, QUEUE_COUNTS, queue_counts, itself),
        **rates.details_keys(LENGTH_NAMES, itself),
    }


def itself(queue: Queue) -> Queue:
    return queue


def shown(request: Request, found: Sequence[Queue]) -> Later:
    return listed(request, found, fields(request), order, lambda queue: queue.name, keys(request))


# Routes.


def queues(request: Request) -> Later:
    return shown(request, [queue for host in visible_hosts(request) for queue in host.queues.values()])


def queues_of_host(request: Request) -> Later:
    return shown(request, list(host_of(request).queues.values()))


def queue(request: Request) -> Response:
    found = host_of(request).queues.get(request.arguments["name"])
    if found is None:
        raise not_there()
    return told(request, found, detailed(request, found))


def put_queue(request: Request) -> Response:
    """Declare a queue, durable by default, as in RabbitMQ. Raises what `Client.declare_queue` raises."""
    host, name, body = own_host_of(request), request.arguments["name"], body_of(request)
    require_node(request, text_in(body, "node", ""))
    is_there = name in host.queues
    client_of(request, host).declare_queue(
        name,
        durable=truth_in(body, "durable", True),
        auto_delete=truth_in(body, "auto_delete", False),
        arguments=table_in(body, "arguments"),
    )
    return changed(request, not is_there)


def require_node(request: Request, node: str) -> None:
    """Check that a queue is to be declared on this node. Raises Refused."""
    operations = request.broker.operations
    if node and operations is not None and node != operations.name:
        raise bad(f"there is no node '{node[:100]}' here")


def delete_queue(request: Request) -> Response:
    """Delete a queue with its messages. Raises NotFound, and what `Client.delete_queue` raises."""
    host, name = own_host_of(request), request.arguments["name"]
    client = client_of(request, host)
    client.require_declarable("queue", name)
    if name not in host.queues:
        raise not_there()
    client.delete_queue(name, if_unused=request.flag("if-unused"), if_empty=request.flag("if-empty"))
    return changed(request, False, QUEUE_KIND, host.name, name)


def pause(request: Request) -> Response:
    """Pause a queue, as LavinMQ does: its consumers get nothing, and publishing to it goes on. Raises NotFound."""
    return paused(request, True)


def resume(request: Request) -> Response:
    return paused(request, False)


def paused(request: Request, on: bool) -> Response:
    host, name = own_host_of(request), request.arguments["name"]
    client_of(request, host).pause_queue(name, on)
    return changed(request, False)


def reread(request: Request) -> Json:
    """Have messages of a queue read again that could not be read, and answer how many. Raises NotFound."""
    return {"rereading": client_of(request, own_host_of(request)).reread_queue(request.arguments["name"])}


ROUTES: Final = (
    Route("GET", PATH, Level.MANAGEMENT, queues),
    Route("GET", DETAILED, Level.MANAGEMENT, queues),
    Route("GET", OF_HOST, Level.MANAGEMENT, queues_of_host),
    Route("GET", ONE, Level.MANAGEMENT, queue),
    Route("PUT", ONE, Level.MANAGEMENT, put_queue),
    Route("DELETE", ONE, Level.MANAGEMENT, delete_queue),
    Route("PUT", ONE + "/pause", Level.MANAGEMENT, pause),
    Route("PUT", ONE + "/resume", Level.MANAGEMENT, resume),
    Route("PUT", ONE + "/reread", Level.MANAGEMENT, reread),
)
