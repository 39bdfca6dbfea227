"""Show the one node and its resources, without RabbitMQ's facts about its virtual machine."""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from leveret.alarms import DiskMonitor, MemoryMonitor
from leveret.observability.counts import CHURN, NODE
from leveret.observability.resource_usage import measured
from leveret.operations import Listening, Operations
from leveret.protocols.http.connection import Later, Response
from leveret.protocols.http.management.lists import Fields, listed, told
from leveret.protocols.http.management.rates import Rates
from leveret.protocols.http.management.requester import not_there
from leveret.protocols.http.server.request import Level, Request, Route
from leveret.values import Json
from leveret.version import VERSION

if TYPE_CHECKING:
    from leveret.broker import Broker
    from leveret.exchanges.exchange_type import ExchangeType

PATH: Final = "/api/nodes"
ONE: Final = PATH + "/{name}"
MEMORY: Final = ONE + "/memory"
DESCRIPTION: Final = "Leveret management"
HTTP: Final = "http"


def limits(broker: Broker) -> tuple[int, int]:
    """Return the bytes at which the alarms for memory and disk begin; 0 where there is none."""
    memory = disk = 0
    for monitor in broker.alarms.monitors:
        if isinstance(monitor, MemoryMonitor):
            memory = monitor.limit() or 0
        elif isinstance(monitor, DiskMonitor):
            disk = monitor.limit() or 0
    return memory, disk


def is_low(broker: Broker, monitor: type[MemoryMonitor | DiskMonitor]) -> bool:
    return monitor.reason in (broker.alarms.reason or "")


def limit_of(number: int) -> int:
    """Return a limit of the operating system; 0 if it is infinite."""
    limit = resource.getrlimit(number)[0]
    return 0 if limit == resource.RLIM_INFINITY else limit


def exchange_types(broker: Broker) -> list[Json]:
    """List the types of exchanges, with their own descriptions or the first lines of their docstrings."""
    return [
        {"name": name, "description": described(broker.exchange_types[name]), "enabled": True}
        for name in sorted(broker.exchange_types)
    ]


def described(type_: type[ExchangeType]) -> str:
    written = type_.__doc__ or getattr(sys.modules.get(type_.__module__), "__doc__", None) or ""
    return type_.description or written.strip().partition("\n")[0]


def contexts(operations: Operations) -> list[Json]:
    """List the listeners that serve this API."""
    return [
        {
            "node": operations.name,
            "description": DESCRIPTION,
            "path": "/",
            "ip": listening.host,
            "port": str(listening.port),
            "protocol": protocol,
        }
        for listening in operations.listeners()
        if HTTP in listening.protocols
        for protocol in protocols_of(HTTP, listening)
    ]


def protocols_of(name: str, listening: Listening) -> list[str]:
    """Return RabbitMQ's names of a protocol on a listener, plain and with TLS: all versions of AMQP share one."""
    plain = "amqp" if name.startswith("amqp") else name
    secured = "https" if name == HTTP else f"{plain}/ssl"
    return [plain] * listening.plain + [secured] * listening.tls


def node_fields(request: Request) -> Fields[Operations]:
    """Return the fields of the node, which are read now. Raises PreconditionFailed for wrong parameters of rates."""
    broker, rates = request.broker, Rates(request)
    now = measured(request.operations)
    memory_limit, disk_limit = limits(broker)
    used = resource.getrusage(resource.RUSAGE_SELF)
    plain: Mapping[str, Json] = {
        "applications": [{"name": "leveret", "description": "Leveret", "version": VERSION}],
        "auth_mechanisms": [],
        "being_drained": False,
        "config_files": [],
        "context_switches": used.ru_nvcsw + used.ru_nivcsw,
        "contexts": contexts(request.operations),
        "db_dir": str(request.operations.data_folder or ""),
        "disk_free": now.disk_free,
        "disk_free_alarm": is_low(broker, DiskMonitor),
        "disk_free_limit": disk_limit,
        "enabled_plugins": [],
        "exchange_types": exchange_types(broker),
        "fd_total": now.descriptors_max,
        "fd_used": now.descriptors,
        "log_files": [],
        "mem_alarm": is_low(broker, MemoryMonitor),
        "mem_calculation_strategy": "rss",
        "mem_limit": memory_limit,
        "mem_used": now.memory,
        "name": request.operations.name,
        "os_pid": str(os.getpid()),
        "partitions": [],
        "proc_total": limit_of(resource.RLIMIT_NPROC),
        "proc_used": now.threads,
        "processor_ms": now.processor_ms,
        "processors": os.cpu_count(),
        "rates_mode": "basic",
        "run_queue": len(broker.touched),
        "running": True,
        "sockets_total": now.descriptors_max,
        "sockets_used": now.sockets,
        "type": "ram" if request.operations.data_folder is None else "disc",
        "uptime": round((broker.now - request.operations.started_at) * 1000),
    }
    details = {name: value for name, value in rates.of_node(NODE).items() if name.endswith("_details")}
    every = {**plain, **details, **churn(broker, rates)}
    return {name: constant(value) for name, value in every.items()}


def churn(broker: Broker, rates: Rates) -> dict[str, Json]:
    """Return how often things came and went. Declaring an existing thing again is not counted."""
    told = {**rates.of_total(CHURN), **{name: broker.events.counts[name.replace("_", ".")] for name in CHURN}}
    told["queue_declared"], told["queue_declared_details"] = (
        told["queue_created"],
        told["queue_created_details"],
    )
    return told


def constant(value: Json) -> Callable[[Operations], Json]:
    return lambda operations: value


def nodes(request: Request) -> Later:
    return listed(
        request, [request.operations], node_fields(request), lambda each: (each.name,), lambda each: each.name
    )


def node(request: Request) -> Response:
    return told(request, named(request), node_fields(request))


def named(request: Request) -> Operations:
    """Return the node in the path. Raises NotFound."""
    if request.arguments["name"] != request.operations.name:
        raise not_there()
    return request.operations


def memory(request: Request) -> Json:
    """Answer with the node's memory as one sum, because its use is not broken down."""
    return {"memory": {"strategy": "rss", "total": {"rss": measured(named(request)).memory}}}


ROUTES: Final = (
    Route("GET", PATH, Level.MONITORING, nodes),
    Route("GET", ONE, Level.MONITORING, node),
    Route("GET", MEMORY, Level.MONITORING, memory),
)
