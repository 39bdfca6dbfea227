"""Measure the node as a whole, without looking at each object in it."""

from __future__ import annotations

import resource
import time
from collections import Counter
from collections.abc import Iterator
from functools import cache
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Final

from leveret.alarms import DiskMonitor, MemoryMonitor
from leveret.observability.metric import COUNTER, GAUGE, UNTYPED
from leveret.observability.resource_usage import measured
from leveret.protocols.http.metrics.exposition import Family, labelled
from leveret.version import VERSION

if TYPE_CHECKING:
    from leveret.broker import Broker
    from leveret.interceptors.chain import Chain
    from leveret.operations import Clustering, Operations

CHURN: Final = "connection_churn_metrics"
COARSE: Final = "node_coarse_metrics"
NODE: Final = "node_metrics"
AUTH: Final = "auth_attempt_metrics"
OVERVIEW: Final = "overview_metrics"
GROUPS: Final = frozenset((CHURN, COARSE, NODE, AUTH, OVERVIEW))

Found = tuple[str, Family, float | None]  # group, family, value, which is None if it is unknown
Sample = tuple[str, float]  # labels, value


def families(broker: Broker, groups: frozenset[str] | None) -> Iterator[tuple[Family, list[Sample]]]:
    """Yield the families of these groups, or all if None, each with its samples."""
    for group, family, value in (*_counted(broker), *_read(broker)):
        if value is not None and (groups is None or group in groups):
            yield family, [("", value)]
    if groups is None or OVERVIEW in groups:
        counts = sorted(broker.events.counts.items())
        yield EVENTS, [(labelled({"event": name}), count) for name, count in counts]
        if broker.interceptors is not None:
            yield from _intercepted(broker.interceptors)
        told = [metric for guest in broker.guests for metric in guest.metrics()]
        if broker.journal is not None:
            told += broker.journal.metrics()
        for each in told:
            family = Family(each.name, each.kind, each.help)
            yield family, [(labelled(labels), value) for labels, value in each.samples]


EVENTS: Final = Family("leveret_events_total", COUNTER, "Events by name, such as queue.created.")


INTERCEPTED: Final = (
    (
        Family(
            "leveret_interceptor_messages_refused_total", COUNTER, "Messages that an interceptor refused."
        ),
        attrgetter("refused"),
    ),
    (
        Family(
            "leveret_interceptor_errors_total", COUNTER, "Failures of an interceptor, each a refused message."
        ),
        attrgetter("errors"),
    ),
    (
        Family(
            "leveret_interceptor_slow_calls_total", COUNTER, "Calls of an interceptor that held the node up."
        ),
        attrgetter("slow_calls"),
    ),
)


def _intercepted(chain: Chain) -> Iterator[tuple[Family, list[Sample]]]:
    """Yield what the interceptors have done, by name."""
    for family, count_of in INTERCEPTED:
        counts: Counter[str] = Counter()
        for link in chain.links:
            counts[link.interceptor.name] += count_of(link)
        yield family, [(labelled({"interceptor": name}), count) for name, count in counts.items()]


def _counted(broker: Broker) -> Iterator[Found]:
    happened = broker.events.counts
    for name, event in (
        ("connections_opened", "connection.created"),
        ("connections_closed", "connection.closed"),
        ("channels_opened", "channel.created"),
        ("channels_closed", "channel.closed"),
        ("queues_created", "queue.created"),
        ("queues_deleted", "queue.deleted"),
    ):
        text = f"Events {event} since the start."
        yield CHURN, Family(f"rabbitmq_{name}_total", COUNTER, text), happened[event]
    good, bad = happened["user.authentication.success"], happened["user.authentication.failure"]
    yield AUTH, Family("rabbitmq_auth_attempts_total", COUNTER, "Attempts to log in."), good + bad
    yield AUTH, Family("rabbitmq_auth_attempts_succeeded_total", COUNTER, "Logins."), good
    yield AUTH, Family("rabbitmq_auth_attempts_failed_total", COUNTER, "Refused logins."), bad
    yield from _tokens(broker)
    hosts = list(broker.hosts())
    for name, text, value in (
        ("rabbitmq_connections", "Connections in a virtual host.", len(broker.clients)),
        ("rabbitmq_channels", "Channels, sessions and their like.", sum(broker.channels_of.values())),
        ("rabbitmq_queues", "Queues.", sum(len(host.queues) for host in hosts)),
        ("leveret_exchanges", "Exchanges.", sum(len(host.exchanges) for host in hosts)),
        ("leveret_virtual_hosts", "Virtual hosts.", len(hosts)),
        ("leveret_store_behind", "1 while publishers wait for the disk.", int(broker.is_behind)),
        ("leveret_store_stalled", "1 while commits wait for a database.", int(broker.is_stalled)),
    ):
        yield OVERVIEW, Family(name, GAUGE, text), value


def _tokens(broker: Broker) -> Iterator[Found]:
    """Yield the families of what servers decide about logins, and of the keys of tokens."""
    known = broker.access.remembered_logins()
    for subject, part in (
        ("token", "opaque tokens"),
        ("http_user", "passwords that a server checks"),
        ("http_permission", "permissions that a server decides about"),
        ("ldap_user", "passwords that a directory checks"),
    ):
        if f"{subject}s" not in known:
            continue
        for name, kind, text in (
            (f"{subject}s", GAUGE, f"Answers about {part} that are remembered."),
            (f"{subject}_hits", COUNTER, f"Questions to which an answer was remembered, of {part}."),
            (f"{subject}_requests", COUNTER, f"Requests about {part}."),
            (f"{subject}_requests_failed", COUNTER, f"Requests about {part} that got no answer."),
        ):
            end = "_remembered" if kind is GAUGE else "_total"
            yield AUTH, Family(f"leveret_auth_{name}{end}", kind, text), known[name]
    sources = [] if broker.access.tokens is None else broker.access.tokens.asked_sources()
    if not sources:
        return
    ages = [source.age_s() for source in sources]
    oldest = None if None in ages else max(age for age in ages if age is not None)
    for name, kind, text, value in (
        ("keys_age_seconds", GAUGE, "How long ago the keys of tokens were fetched.", oldest),
        (
            "keys_fetched_total",
            COUNTER,
            "Successful requests for the keys of tokens.",
            sum(source.fetched for source in sources),
        ),
        (
            "fetches_failed_total",
            COUNTER,
            "Requests for the keys of tokens that failed.",
            sum(source.failed for source in sources),
        ),
    ):
        yield AUTH, Family(f"leveret_oauth_{name}", kind, text), value


def _read(broker: Broker) -> Iterator[Found]:
    yield from _alarms(broker)
    usage = resource.getrusage(resource.RUSAGE_SELF)
    processor_s = usage.ru_utime + usage.ru_stime
    yield COARSE, Family("process_start_time_seconds", GAUGE, "When the process began, since 1970."), began()
    yield (
        COARSE,
        Family("process_cpu_seconds_total", COUNTER, "Processor time, user and system."),
        processor_s,
    )
    if broker.operations is not None:
        yield from _process(broker.operations)
        if broker.operations.cluster is not None:
            yield from _cluster(broker.operations.cluster)


def _cluster(cluster: Clustering) -> Iterator[Found]:
    from leveret.server.cluster.standby_http import HELP  # most nodes have no cluster

    for name, value in cluster.metrics().items():
        kind, text = HELP[name]
        yield NODE, Family(name, kind, text), value


def _alarms(broker: Broker) -> Iterator[Found]:
    raised = (broker.alarms.reason or "").split(" & ")
    memory = next((each for each in broker.alarms.monitors if isinstance(each, MemoryMonitor)), None)
    disk = next((each for each in broker.alarms.monitors if isinstance(each, DiskMonitor)), None)
    for name, monitor, text in (
        ("memory_used_watermark", MemoryMonitor, "1 while the process has more memory than it should."),
        ("free_disk_space_watermark", DiskMonitor, "1 while the disk has less space than it should."),
    ):
        family = Family(f"rabbitmq_alarms_{name}", UNTYPED, text)
        yield NODE, family, int(monitor.reason in raised)
    unreadable = 0 if broker.journal is None else broker.journal.unreadable.count
    text = "Messages of all queues that cannot be read from the store."
    yield NODE, Family("leveret_messages_unreadable", GAUGE, text), unreadable
    limit = None if memory is None else memory.limit()
    yield NODE, Family("rabbitmq_resident_memory_limit_bytes", GAUGE, "Memory that raises the alarm."), limit
    limit = None if disk is None else disk.limit()
    text = "Free space below which the alarm is raised."
    yield NODE, Family("rabbitmq_disk_space_available_limit_bytes", GAUGE, text), limit


def _process(operations: Operations) -> Iterator[Found]:
    found = measured(operations)
    for group, name, text, value in (
        (COARSE, "process_open_fds", "Open files and sockets.", found.descriptors),
        (NODE, "process_max_fds", "Files and sockets that may be open.", found.descriptors_max),
        (COARSE, "process_resident_memory_bytes", "Memory of the process.", found.memory),
    ):
        yield group, Family(name, GAUGE, text), value  # as every process exports it
        yield group, Family(f"rabbitmq_{name}", GAUGE, text), value
    for group, name, text, value in (
        (COARSE, "rabbitmq_process_open_tcp_sockets", "Open sockets.", found.sockets),
        (NODE, "rabbitmq_process_max_tcp_sockets", "Sockets that may be open.", found.descriptors_max),
        (COARSE, "rabbitmq_disk_space_available_bytes", "Free space on the disk.", found.disk_free),
    ):
        yield group, Family(name, GAUGE, text), value


def identity(broker: Broker) -> Iterator[tuple[Family, list[Sample]]]:
    """Yield metrics of product and node, which dashboards join others with, named alike at every endpoint."""
    name = "" if broker.operations is None else broker.operations.name
    build = Family("rabbitmq_build_info", UNTYPED, "What this node is.")
    labels = labelled({"rabbitmq_version": VERSION, "product": "Leveret", "product_version": VERSION})
    yield build, [(labels, 1)]
    node = Family("rabbitmq_identity_info", UNTYPED, "Which node this is.")
    labels = labelled(
        {"rabbitmq_node": name, "rabbitmq_cluster": name, "rabbitmq_cluster_permanent_id": name}
    )
    yield node, [(labels, 1)]


@cache
def began(root: Path = Path("/")) -> float:
    """Return when the process began, in seconds since 1970; if the system does not tell, the time of the first call."""
    try:
        ticks = int((root / "proc/self/stat").read_text().rpartition(")")[2].split()[19])
        lines = (root / "proc/stat").read_text().splitlines()
        booted = next(int(line.split()[1]) for line in lines if line.startswith("btime "))
    except (OSError, ValueError, IndexError, StopIteration):
        return time.time()
    return round(booted + ticks / 100, 2)
