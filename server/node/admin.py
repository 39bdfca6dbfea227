"""Operators' requests, carried out on a running node: its status, configuration, listeners, connections, plug-ins."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final, TypeVar

import attrs
import trio

from leveret.config.config import Config, ConfigError
from leveret.config.types import Address
from leveret.exchanges.exchange_type import Exchange
from leveret.operations import Connected, Listening, Operations, Program, Reloaded
from leveret.server.node import assembly
from leveret.server.node.build_info import built
from leveret.server.node.logs import TRACEBACK
from leveret.server.node.threads import gently
from leveret.server.plugin_loader import Plugins, ReloadReport
from leveret.values import Json
from leveret.version import VERSION

if TYPE_CHECKING:
    from leveret.features.recording.recordings import Plan, Recordings
    from leveret.front_end import Dial
    from leveret.security.http_requests import HttpRequest, Outcome
    from leveret.server.node.http_client import HttpClient
    from leveret.server.node.listener import Listener
    from leveret.server.node.node import Node

log: Final = logging.getLogger("leveret.node")
T = TypeVar("T")

CHANGES_MAX: Final = 100  # that are told in the status
THREADS: Final = 2  # for work that takes long, such as checking a password
WATCH_INTERVAL_S: Final = 1.0  # between two checks of the plug-in folders


class NodeAdmin(Operations):
    """Answers operators' requests for one node, and carries out the changes that they ask for."""

    def __init__(
        self, node: Node, plugins: Plugins, reread: Callable[[], Config] | None, started_at: float
    ) -> None:
        """`reread` reads the configuration again; without it there is nothing to reload."""
        self.name = node.config.node.name
        self.started_at = started_at
        self.data_folder = None if node.persistence is None else node.persistence.folder
        self.past = node.past
        self.cluster = node.term
        self._node = node
        self._broker = node.broker
        self._plugins = plugins
        self._reread = reread
        self._watching = False  # whether the plug-in folders are watched
        self._http: HttpClient | None = None  # made with the first request
        self._threads = trio.CapacityLimiter(THREADS)

    @property
    def fed(self) -> Connected | None:  # type: ignore[override]
        return None if self._broker.timers.running else self._node.fed  # a timer is due to no peer

    def listeners(self) -> list[Listening]:
        """Return the open listeners; empty once the node is shutting down."""
        return [_listening(listener) for listener in self._node.listening if listener.is_open]

    def connections(self) -> Collection[Connected]:
        return self._node.transports.values()

    def off_thread(self, work: Callable[[], T], then: Callable[[T], None]) -> None:
        async def task() -> None:
            result = await trio.to_thread.run_sync(work, abandon_on_cancel=True, limiter=self._threads)
            self._turn(partial(then, result))

        self._node.start(task)

    def dial(self, request: Dial) -> None:
        from leveret.server.node.dialling import dial  # not needed in a node without shovels

        self._node.start(partial(dial, self._node, request))

    def launch(self, program: Program) -> Callable[[], None]:
        from leveret.server.node.programs import RunningProgram  # not needed in a node without pipelines

        running = RunningProgram(program, self._turn)
        self._node.start(running.run)
        return running.end

    def _turn(self, call: Callable[[], object]) -> None:
        """Make a call as a batch of its own."""
        self._broker.tick()
        try:
            call()
        except Exception:
            log.exception("a mistake of ours after work in a thread, or of another process")
        self._node.settle()

    def compute(self, work: Callable[[], T], then: Callable[[T], None]) -> None:
        """Like `off_thread`, for work that only computes without Python's lock: its thread gives way to the loop's."""
        self.off_thread(partial(gently, work), then)

    def fetch(self, request: HttpRequest, then: Callable[[Outcome], None]) -> None:
        """Ask a server over HTTP, as `Ask` says."""
        if self._http is None:
            from leveret.server.node.http_client import HttpClient  # few nodes ask anybody

            self._http = HttpClient(self._node)
        self._http.ask(request, then)

    def close(self) -> None:
        """Release what is left open; called when the node has ended."""
        if self._http is not None:
            self._http.close()

    def status(self) -> Mapping[str, Json]:
        broker = self._broker
        queues = [queue for host in broker.hosts() for queue in host.queues.values()]
        return {
            "name": self.name,
            "version": VERSION,
            "build": str(built()),
            "uptime_s": round(trio.current_time() - self.started_at, 3),
            "listeners": [
                {
                    "address": each.address,
                    "protocols": list(each.entrance.names),
                    "tls": each.entrance.is_secured,
                    "plain": each.entrance.takes_plain,
                    "websocket": each.entrance.websocket is not None,
                }
                for each in self._node.listening
            ],
            "alarm": broker.alarms.reason,
            "warnings": [*broker.alarms.warnings],
            "storage": "memory" if self._node.persistence is None else "durable",
            "data_dir": None if self.data_folder is None else str(self.data_folder),
            "connections": len(broker.clients),
            "tasks": trio.lowlevel.current_statistics().tasks_living,  # of the loop, those of connections among them
            "virtual_hosts": sorted(broker.virtual_hosts),
            "exchanges": sum(len(host.exchanges) for host in broker.hosts()),
            "queues": len(queues),
            "queues_paused": sum(queue.paused for queue in queues),
            "consumers": sum(len(queue.consumers) for queue in queues),
            "set_back_at_restart": [
                {"object": what, "file": file}
                for what, file in islice(broker.file_objects.changed(), CHANGES_MAX)
            ],
            "messages_ready": sum(queue.ready for queue in queues),
            "messages_unacknowledged": sum(queue.unsettled for queue in queues),
        }

    def log_lines(
        self, after: int, level: int, category: str, text: str, count: int
    ) -> Mapping[str, Json] | None:
        targets = self._node.log_targets
        return None if targets is None else targets.recent.lines(after, level, category, text, count)

    def recorder(self) -> tuple[Recordings, Plan]:
        return assembly.recordings(self._broker, self._node.config)

    def reload(self) -> Reloaded:
        if self._reread is None:
            return Reloaded(
                problems=("this node was not started from a configuration that can be read again",)
            )
        try:
            new = self._reread()
            assembly.check_protocols(new, self._plugins.protocols)
        except ConfigError as failure:
            log.error("configuration not reloaded: %s", "; ".join(map(str, failure.problems)))
            return Reloaded(problems=tuple(str(problem) for problem in failure.problems))
        before = self._node.config
        report = assembly.reload(self._broker, before, new)
        new = assembly.in_force(before, new)
        self._node.configure(new)
        self._reload_log(new)
        self._plugins.configure(new.plugins.folders, new.plugins.disabled)
        self.watch_plugins()
        refused = [name for name, _ in self._reload_plugins().refused]
        refused += self._reload_interceptors()
        held = dict.fromkeys(each.entrance.certificates for each in self._node.listening)
        refused += (each.where for each in held if each is not None and not each.reload())
        renewed = tuple(
            f"{each.where} (new certificate)" for each in held if each is not None and each.is_new
        )
        report = attrs.evolve(report, changed=(*report.changed, *renewed))
        refused += self._reload_tokens()
        log.info("configuration reloaded: %s", ", ".join(report.changed) or "nothing changed")
        for key in report.needs_restart:
            log.warning("%s has changed: the new value holds after a restart", key)
        self._node.work()
        return attrs.evolve(report, refused=tuple(refused))

    def _reload_log(self, new: Config) -> None:
        if self._node.log_targets is None:
            return
        try:
            self._node.log_targets.apply(new.log)
        except OSError as failure:
            log.error("the log file stays as it was: %s: %s", new.log.file.path, failure.strerror)

    def _reload_tokens(self) -> list[str]:
        """Read the files with keys again, and return what was refused; the previous keys then stay."""
        refused: list[str] = []
        for section, put in (("oauth", assembly.put_tokens), ("kerberos", assembly.put_kerberos)):
            try:
                put(self._broker, self._node.config)
            except ConfigError as failure:
                problems = "; ".join(map(str, failure.problems))
                log.error("keys of tokens not reloaded, those from before stay: %s", problems)
                refused.append(section)
        return refused

    def plugins(self) -> Mapping[str, Json]:
        used: Counter[str] = Counter()
        errors: Counter[str] = Counter()
        slow: Counter[str] = Counter()
        slowest: dict[str, float] = {}
        for exchange in self._exchanges():
            name = exchange.type.name
            used[name] += 1
            errors[name] += exchange.route_errors
            slow[name] += exchange.slow_calls
            slowest[name] = max(slowest.get(name, 0.0), exchange.slowest_s)
        types = self._plugins.exchange_types
        return {
            "exchange_types": [
                {
                    "name": name,
                    "from": types[name].__module__,
                    "exchanges": used[name],
                    "errors": errors[name],
                    "slow_calls": slow[name],
                    "slowest_ms": round(slowest.get(name, 0.0) * 1000),
                }
                for name in sorted(types)
            ],
            "protocols": sorted(self._plugins.protocols),
            "interceptors": self._interceptors(),
            "exchange_decorators": [
                {"name": name, "from": kind.__module__}
                for name, kind in sorted(self._plugins.decorators.items())
            ],
            "guests": [
                {"name": name, "from": kind.__module__} for name, kind in sorted(self._plugins.guests.items())
            ],
            "folders": [str(folder) for folder in self._node.config.plugins.folders],
        }

    def _interceptors(self) -> list[Json]:
        """Return the registered interceptors; those in use have a place, in the order in which they are asked."""
        chain, kinds = self._broker.interceptors, self._plugins.interceptors
        links = () if chain is None else chain.links
        used: list[Json] = [
            {
                "name": link.interceptor.name,
                "from": type(link.interceptor).__module__,
                "place": place,
                "refused": link.refused,
                "errors": link.errors,
                "slow_calls": link.slow_calls,
                "slowest_ms": round(link.slowest_s * 1000),
            }
            for place, link in enumerate(links, start=1)
        ]
        names = {link.interceptor.name for link in links}
        return used + [
            {"name": name, "from": kinds[name].__module__} for name in sorted(kinds) if name not in names
        ]

    def reload_plugins(self) -> Mapping[str, Json]:
        report = self._reload_plugins()
        self._reload_interceptors()
        return {**attrs.asdict(report), "refused": [{"name": n, "traceback": t} for n, t in report.refused]}

    def _reload_plugins(self) -> ReloadReport:
        report = self._plugins.reload(self._exchanges())
        for name, trace in report.refused:
            log.error(
                "plugin refused, what was there before stays: %s", name, extra={TRACEBACK: trace.rstrip()}
            )
        assembly.decorate(self._broker, self._plugins)
        assembly.let_in(self._broker, self._plugins)
        if report.loaded:
            log.info("plugins loaded: %s", ", ".join(report.loaded))
        return report

    def _reload_interceptors(self) -> list[str]:
        """Set up the interceptors anew, and return what was refused; the previous ones then stay."""
        try:
            assembly.intercept(self._broker, self._node.config, self._plugins)
        except ConfigError as failure:
            for problem in failure.problems:
                log.error("the interceptors stay as they were: %s", problem)
            return [problem.where for problem in failure.problems]
        return []

    def watch_plugins(self) -> None:
        """Check the plug-in folders for changes from time to time, for as long as the configuration asks for it."""
        if not self._watching:
            self._look_at_plugins(self._broker.tick())

    def _look_at_plugins(self, now: float) -> None:
        self._watching = self._node.config.plugins.watch
        if not self._watching:
            return
        if self._plugins.changed():
            self.reload_plugins()
        self._broker.timers.at(now + WATCH_INTERVAL_S, self._look_at_plugins)

    def _exchanges(self) -> list[Exchange]:
        return [exchange for host in self._broker.hosts() for exchange in host.exchanges.values()]

    def close_connections(self, reason: str, virtual_host: str | None = None) -> int:
        transports = list(self._node.transports.values())
        if virtual_host is not None:
            names = {c.name for c in self._broker.clients if c.host.name == virtual_host}
            transports = [transport for transport in transports if transport.peer.name in names]
        for transport in transports:
            transport.shut_down(reason)
        self._node.work()
        return len(transports)


def _listening(listener: Listener) -> Listening:
    bound, entrance = listener.bound, listener.entrance
    host, port = (bound.host, bound.port) if isinstance(bound, Address) else (str(bound), 0)
    expires_at = None if entrance.certificates is None else entrance.certificates.expires_at
    optional = entrance.is_secured and entrance.takes_plain
    return Listening(host, port, entrance.names, entrance.is_secured, expires_at, optional)
