"""What an operator can ask of a node, on what the node has: its configuration, listeners, connections and plug-ins."""

from __future__ import annotations

import logging
import socket
from abc import abstractmethod
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import attrs
import trio

from broker_core.broker import Broker
from broker_core.config.load import Config, ConfigError
from broker_core.exchanges.exchange import Exchange
from broker_core.node import assembly
from broker_core.node.build_info import built
from broker_core.node.entrance import Entrance
from broker_core.node.threads import gently
from broker_core.operations import Connected, Json, Listening, Operations, Reloaded
from broker_core.outbox import Outbox
from broker_core.plugins import Plugins, ReloadReport
from broker_core.version import VERSION

if TYPE_CHECKING:
    from broker_core.frontend import Protocol
    from broker_core.node.persistence import Keeper
    from broker_core.node.transport import Transport

log: Final = logging.getLogger("leveret.node")
T = TypeVar("T")

THREADS: Final = 2  # for what takes long, such as to check a password


class Operating(Operations):
    """The part of a node that operators speak with."""

    broker: Broker
    config: Config
    keeper: Keeper | None
    listening: list[tuple[str, tuple[Protocol, ...]]]
    entrances: list[Entrance]
    _listeners: list[socket.socket]
    _plugins: Plugins
    _reread: Callable[[], Config] | None
    _started_at: float
    _threads: trio.CapacityLimiter
    _transports: dict[Outbox, Transport]

    @abstractmethod
    def start(self, task: Callable[[], Awaitable[None]]) -> None:
        """Run a task until it ends or the node does."""

    @abstractmethod
    def work(self) -> None:
        """Something besides input changed: settle and send."""

    @abstractmethod
    def settle(self) -> None:
        """Work off what the last batch caused."""

    @abstractmethod
    def _watch_or_not(self) -> None:
        """Watch the plug-in folders, if that is configured now."""

    @property
    def name(self) -> str:  # type: ignore[override]
        return self.config.node.name

    @property
    def started_at(self) -> float:  # type: ignore[override]
        return self._started_at

    @property
    def data_folder(self) -> Path | None:  # type: ignore[override]
        return None if self.keeper is None else self.keeper.folder

    def listeners(self) -> list[Listening]:
        """None any more when the node ends, and is still asked."""
        return [self._listening(*each) for each in zip(self._listeners, self.entrances, strict=False)]

    def _listening(self, listener: socket.socket, entrance: Entrance) -> Listening:
        host, port = listener.getsockname()[:2]
        names, certificates = tuple(each.name for each in entrance.protocols), entrance.certificates
        expires_at = None if certificates is None else certificates.expires_at
        return Listening(host, port, names, entrance.is_secured, expires_at)

    def connections(self) -> Collection[Connected]:
        return self._transports.values()

    def off_thread(self, work: Callable[[], T], then: Callable[[T], None]) -> None:
        async def task() -> None:
            result = await trio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=self._threads)
            self.broker.tick()
            try:
                then(result)
            except Exception:
                log.exception("a mistake of ours after work in a thread")
            self.settle()

        self.start(task)

    def compute(self, work: Callable[[], T], then: Callable[[T], None]) -> None:
        """As `off_thread`, for what only computes and has let go of Python's lock: it steps back for the loop."""
        self.off_thread(partial(gently, work), then)

    def status(self) -> Mapping[str, Json]:
        broker = self.broker
        queues = [queue for host in broker.hosts() for queue in host.queues.values()]
        return {
            "name": self.config.node.name,
            "version": VERSION,
            "build": str(built()),
            "uptime_s": round(trio.current_time() - self._started_at, 3),
            "listeners": [
                {"address": address, "protocols": [p.name for p in protocols], "tls": entrance.is_secured}
                for (address, protocols), entrance in zip(self.listening, self.entrances, strict=True)
            ],
            "alarm": broker.alarms.reason,
            "storage": "memory" if self.keeper is None else "durable",
            "data_dir": None if self.data_folder is None else str(self.data_folder),
            "connections": len(broker.clients),
            "virtual_hosts": sorted(broker.virtual_hosts),
            "exchanges": sum(len(host.exchanges) for host in broker.hosts()),
            "queues": len(queues),
            "consumers": sum(len(queue.consumers) for queue in queues),
            "messages_ready": sum(queue.ready for queue in queues),
            "messages_unacknowledged": sum(queue.unsettled for queue in queues),
        }

    def reload(self) -> Reloaded:
        if self._reread is None:
            return Reloaded(
                problems=("this node was not started from a configuration that can be read again",)
            )
        try:
            new = self._reread()
        except ConfigError as failure:
            log.error("configuration not reloaded\n%s", failure)
            return Reloaded(problems=tuple(str(problem) for problem in failure.problems))
        report = assembly.reload(self.broker, self.config, new)
        self.config = assembly.in_force(self.config, new)
        self._plugins.configure(self.config.plugins.folders, self.config.plugins.disabled)
        self._watch_or_not()
        refused = [name for name, _ in self._reload_plugins().refused]
        held = dict.fromkeys(entrance.certificates for entrance in self.entrances)
        refused += (each.where for each in held if each is not None and not each.reload())
        refused += self._reload_tokens()
        log.info("configuration reloaded: %s", ", ".join(report.changed) or "nothing changed")
        for key in report.needs_restart:
            log.warning("%s has changed: the new value holds after a restart", key)
        self.work()
        return attrs.evolve(report, refused=tuple(refused))

    def _reload_tokens(self) -> list[str]:
        """The file of the keys as well. What is refused: then those from before stay."""
        try:
            assembly.put_tokens(self.broker, self.config)
        except ConfigError as failure:
            log.error("keys of tokens not reloaded, those from before stay\n%s", failure)
            return ["oauth"]
        return []

    def plugins(self) -> Mapping[str, Json]:
        used: Counter[str] = Counter()
        errors: Counter[str] = Counter()
        for exchange in self._exchanges():
            used[exchange.type.name] += 1
            errors[exchange.type.name] += exchange.route_errors
        types = self._plugins.exchange_types
        return {
            "exchange_types": [
                {
                    "name": name,
                    "from": types[name].__module__,
                    "exchanges": used[name],
                    "errors": errors[name],
                }
                for name in sorted(types)
            ],
            "protocols": sorted(self._plugins.protocols),
            "folders": [str(folder) for folder in self.config.plugins.folders],
        }

    def reload_plugins(self) -> Mapping[str, Json]:
        report = self._reload_plugins()
        return {**attrs.asdict(report), "refused": [{"name": n, "traceback": t} for n, t in report.refused]}

    def _reload_plugins(self) -> ReloadReport:
        report = self._plugins.reload(self._exchanges())
        for name, trace in report.refused:
            log.error("plugin refused, what was there before stays: %s\n%s", name, trace)
        if report.loaded:
            log.info("plugins loaded: %s", ", ".join(report.loaded))
        return report

    def _exchanges(self) -> list[Exchange]:
        return [exchange for host in self.broker.hosts() for exchange in host.exchanges.values()]

    def close_connections(self, reason: str, virtual_host: str | None = None) -> int:
        transports = list(self._transports.values())
        if virtual_host is not None:
            names = {c.name for c in self.broker.clients if c.host.name == virtual_host}
            transports = [transport for transport in transports if transport.peer.name in names]
        for transport in transports:
            transport.shut_down(reason)
        self.work()
        return len(transports)
