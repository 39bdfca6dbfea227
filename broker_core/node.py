"""A running node: the configuration becomes a broker, listeners, and the loop that feeds one from the other.

    socket ─> Transport ─> feed: front-end.receive ─> Broker.settle ─> flush every outbox with something in it

    async with Node(config) as node:
        print(node.addresses)

Everything that waits is here or in `transport.py`. One task accepts per listener, one reads per connection, and one
sleeps until the next deadline.
"""

from __future__ import annotations

import contextlib
import errno
import gc
import logging
import signal
import socket
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from types import TracebackType
from typing import Final

import attrs
import trio

from broker_core import composition
from broker_core.broker import Broker
from broker_core.clock import Clock
from broker_core.config import Config, ConfigError
from broker_core.config_sections import ListenerEntry
from broker_core.exchange import Exchange
from broker_core.frontend import Peer, Protocol
from broker_core.kinds import Address
from broker_core.operations import Json, Operations, Reloaded
from broker_core.outbox import Outbox
from broker_core.plugins import Plugins
from broker_core.transport import Transport
from broker_core.version import VERSION

log: Final = logging.getLogger("leveret.node")

BACKLOG: Final = 1024  # connections that may wait to be accepted
OUT_OF_FILES: Final = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM))
WATCH_INTERVAL_S: Final = 1.0  # between looks at the plugin folders
CLOSING_S: Final = 5.0  # for clients to say goodbye at shutdown


class TrioClock(Clock):
    """trio's own time, so that a mock clock moves the broker too."""

    def now(self) -> float:
        return trio.current_time()

    def wall(self) -> float:
        return time.time()


class Node(Operations):
    """One broker that listens. An async context manager: inside it runs, at its end it shuts down."""

    def __init__(self, config: Config | None = None, reread: Callable[[], Config] | None = None) -> None:
        """`reread` gives the configuration again for `reload`; without it there is nothing to reload."""
        self.config = config or Config()
        self.ready: list[Outbox] = []  # outboxes with something to send
        self.listening: list[tuple[str, tuple[Protocol, ...]]] = []
        self._reread = reread
        self._transports: dict[Outbox, Transport] = {}
        self._nursery: trio.Nursery | None = None
        self._stack = contextlib.AsyncExitStack()
        self._earlier = trio.Event()
        self._empty = trio.Event()  # set when the last connection has gone while the node closes

    # ---- life ------------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Node:
        """Load plugins, build the broker, listen. Raises BadPlugin, ConfigError or OSError (an address is taken)."""
        self._started_at = trio.current_time()
        self._plugins = Plugins(self.config.plugins.folders)
        self._plugins.load()
        self.broker: Broker = composition.broker(self.config, self._plugins.exchange_types, TrioClock())
        self.broker.operations = self
        composition.populate(self.broker, self.config)
        self.broker.alarms.listen(self._alarm)
        self.broker.timers.on_earlier = self._wake
        sockets = self._bind()
        self._nursery = await self._stack.enter_async_context(trio.open_nursery())
        for listener, protocols in sockets:
            self._nursery.start_soon(self._accept, listener, protocols)
        self._nursery.start_soon(self._keep_time)
        self._check_alarms(self.broker.tick())
        if self.config.plugins.watch and self.config.plugins.folders:
            self._watch_plugins(self.broker.tick())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._nursery is not None
        with trio.CancelScope(shield=True):
            await self._close()
        self._nursery.cancel_scope.cancel()
        await self._stack.__aexit__(kind, error, trace)

    async def _close(self) -> None:
        """Tell the clients, and give them a moment to agree."""
        self.close_connections("broker forced connection closure with reason 'shutdown'")
        self._empty = trio.Event()
        if not self._transports:
            self._empty.set()
        with trio.move_on_after(CLOSING_S):
            await self._empty.wait()

    async def run(self) -> None:
        """Sleep until cancelled."""
        await trio.sleep_forever()

    # ---- listening -------------------------------------------------------------------------------------------------

    @property
    def addresses(self) -> list[str]:
        """Where the node listens, as HOST:PORT."""
        return [address for address, _ in self.listening]

    def _bind(self) -> list[tuple[socket.socket, tuple[Protocol, ...]]]:
        """Open every listener, or none. The default IPv6 listener is left out where there is no IPv6."""
        bound: list[tuple[socket.socket, tuple[Protocol, ...]]] = []
        try:
            for entry in self._listeners():
                protocols = self._protocols_of(entry)
                try:
                    listener = _listener(entry.address)
                except OSError as failure:
                    if (
                        failure.errno in (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
                        and entry.address.host == "::1"
                    ):
                        log.info("no IPv6 here: not listening on %s", entry.address)
                        continue
                    raise OSError(
                        failure.errno, f"cannot listen on {entry.address}: {failure.strerror}"
                    ) from None
                bound.append((listener, protocols))
                self.listening.append((_shown(listener), protocols))
        except BaseException:
            for listener, _ in bound:
                listener.close()
            raise
        return bound

    def _listeners(self) -> Iterable[ListenerEntry]:
        yield from self.config.listeners
        if self.config.http.enabled and "http" in self._plugins.protocols:
            yield ListenerEntry(address=self.config.http.address, protocols=("http",))

    def _protocols_of(self, entry: ListenerEntry) -> tuple[Protocol, ...]:
        known = self._plugins.protocols
        if entry.protocols is None:
            chosen = [p for p in known.values() if p.shared and self.config.protocols.enabled(p.name)]
        else:
            composition.require_protocols(entry, known)
            chosen = [known[name] for name in entry.protocols]
        return tuple(sorted(chosen, key=lambda protocol: protocol.fallback))

    async def _accept(self, listener: socket.socket, protocols: tuple[Protocol, ...]) -> None:
        with listener:
            while True:
                await trio.lowlevel.wait_readable(listener)
                try:
                    connected, _ = listener.accept()
                except OSError as failure:
                    if failure.errno in OUT_OF_FILES:
                        log.error("cannot accept a connection: %s", failure.strerror)
                        await trio.sleep(0.1)
                    continue
                self._welcome(connected, protocols)

    def _welcome(self, connected: socket.socket, protocols: tuple[Protocol, ...]) -> None:
        try:
            connected.setblocking(False)
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            peer = _peer(connected)
        except OSError:  # it has gone already
            connected.close()
            return
        transport = Transport(self, connected, peer, protocols)
        self._transports[transport.outbox] = transport
        self.start(transport.serve)

    def start(self, task: Callable[[], Awaitable[None]]) -> None:
        """Run a task of a connection until it ends or the node does."""
        assert self._nursery is not None
        self._nursery.start_soon(task)

    # ---- the loop --------------------------------------------------------------------------------------------------

    def feed(self, transport: Transport, data: bytes) -> None:
        """Bytes from one peer, and everything they cause."""
        assert transport.front is not None
        now = self.broker.tick()
        try:
            transport.front.receive(data, now)
        except Exception:
            log.exception("%s: closed because of a mistake of ours", transport.peer.name)
            transport.hang_up()
        transport.watch_deadline()
        self.settle()

    def work(self) -> None:
        """Something besides input changed: settle and send."""
        self.broker.tick()
        self.settle()

    def settle(self) -> None:
        try:
            self.broker.settle()
        except Exception:
            log.exception("a mistake of ours while delivering")
        while self.ready:
            ready, self.ready[:] = self.ready[:], []
            for outbox in ready:
                transport = self._transports.get(outbox)
                if transport is not None:
                    transport.flush()
            if self.broker.touched:
                self.broker.settle()

    def forget(self, transport: Transport) -> None:
        """A connection has ended: its front-end releases what it held."""
        del self._transports[transport.outbox]
        if transport.front is not None:
            self.broker.tick()
            try:
                transport.front.lost()
            except Exception:
                log.exception("%s: a mistake of ours while closing", transport.peer.name)
            self.settle()
        if not self._transports:
            self._empty.set()

    def _wake(self) -> None:
        self._earlier.set()

    async def _keep_time(self) -> None:
        """Sleep until the next deadline, or until there is an earlier one."""
        timers = self.broker.timers
        while True:
            self._earlier = trio.Event()
            at = timers.next_at()
            with trio.move_on_at(float("inf") if at is None else at):
                await self._earlier.wait()
            if (at := timers.next_at()) is not None and at <= trio.current_time():
                self.work()

    # ---- alarms and plugins ----------------------------------------------------------------------------------------

    def _check_alarms(self, now: float) -> None:
        self.broker.timers.at(self.broker.alarms.check(now), self._check_alarms)

    def _alarm(self, reason: str | None) -> None:
        if reason is None:
            log.info("resource alarms cleared: publishers may go on")
        else:
            log.warning("resource alarm: %s; publishers are held back", reason)
        for transport in list(self._transports.values()):
            transport.alarm(reason)

    def _watch_plugins(self, now: float) -> None:
        if self._plugins.changed():
            self.reload_plugins()
        self.broker.timers.at(now + WATCH_INTERVAL_S, self._watch_plugins)

    # ---- operations ------------------------------------------------------------------------------------------------

    def status(self) -> Mapping[str, Json]:
        broker = self.broker
        queues = [queue for host in broker.hosts() for queue in host.queues.values()]
        return {
            "name": self.config.node.name,
            "version": VERSION,
            "uptime_s": round(trio.current_time() - self._started_at, 3),
            "listeners": [
                {"address": address, "protocols": [p.name for p in protocols]}
                for address, protocols in self.listening
            ],
            "alarm": broker.alarms.reason,
            "storage": "memory",
            "connections": len(self._transports),
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
        report = composition.reload(self.broker, self.config, new)
        self.config = composition.merged(self.config, new)
        self.reload_plugins()
        log.info("configuration reloaded: %s", ", ".join(report.changed) or "nothing changed")
        for key in report.needs_restart:
            log.warning("%s has changed: the new value holds after a restart", key)
        self.work()
        return report

    def plugins(self) -> Mapping[str, Json]:
        used: dict[str, int] = {}
        for exchange in self._exchanges():
            used[exchange.type.name] = used.get(exchange.type.name, 0) + 1
        types = self._plugins.exchange_types
        return {
            "exchange_types": [
                {"name": name, "from": types[name].__module__, "exchanges": used.get(name, 0)}
                for name in sorted(types)
            ],
            "protocols": sorted(self._plugins.protocols),
            "folders": [str(folder) for folder in self.config.plugins.folders],
        }

    def reload_plugins(self) -> Mapping[str, Json]:
        report = self._plugins.reload(self._exchanges())
        for host in self.broker.hosts():
            host.revision += 1  # remembered routes are the old types' answers
        for name, trace in report.refused:
            log.error("plugin refused, what was there before stays: %s\n%s", name, trace)
        if report.loaded:
            log.info("plugins loaded: %s", ", ".join(report.loaded))
        return {**attrs.asdict(report), "refused": [{"name": n, "traceback": t} for n, t in report.refused]}

    def _exchanges(self) -> list[Exchange]:
        return [exchange for host in self.broker.hosts() for exchange in host.exchanges.values()]

    def close_connections(self, reason: str) -> int:
        transports = list(self._transports.values())
        for transport in transports:
            if transport.front is not None:
                transport.front.shut_down(reason)
                transport.watch_deadline()
            if transport.front is None or transport.front.closed:
                transport.hang_up()
        self.work()
        return len(transports)


def _listener(address: Address) -> socket.socket:
    family, kind, number, _, where = socket.getaddrinfo(
        address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    listener = socket.socket(family, kind, number)
    try:
        listener.setblocking(False)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        listener.bind(where)
        listener.listen(BACKLOG)
    except BaseException:
        listener.close()
        raise
    return listener


def _shown(listener: socket.socket) -> str:
    host, port = listener.getsockname()[:2]
    return str(Address(host, port))


def _peer(connected: socket.socket) -> Peer:
    host, port = connected.getpeername()[:2]
    local_host, local_port = connected.getsockname()[:2]
    loopback = host == "::1" or host.removeprefix("::ffff:").startswith("127.")
    return Peer(host, port, local_host, local_port, loopback)


# ---- as a process --------------------------------------------------------------------------------------------------


def run(config: Config, reread: Callable[[], Config], source: str = "") -> None:
    """Run a node until SIGINT or SIGTERM; SIGHUP reloads. Prints where it listens."""
    composition.logging_to_stderr(config)
    trio.run(_run, config, reread, source)


async def _run(config: Config, reread: Callable[[], Config], source: str) -> None:
    async with Node(config, reread) as node:
        print(composition.welcome(node, source), flush=True)
        gc.collect()
        gc.freeze()  # what is here now stays: later collections need not look at it
        with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
            async for received in signals:
                if received != signal.SIGHUP:
                    log.info("%s: shutting down", signal.Signals(received).name)
                    return
                node.reload()
