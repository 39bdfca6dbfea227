"""Run a node: turn the configuration into a broker, listeners, and the loop that moves bytes between them.

    socket ─> Transport ─> hear: front-end.receive ─> Broker.settle ─> flush every outbox with something in it

    async with Node(config) as node:
        print(node.addresses)

One task accepts per listener, one serves each connection (`transport.py`), one reads from all that are plain
(`poller.py`; not on every system: `readers.py`), and one sleeps until the next deadline.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import socket
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import TYPE_CHECKING, Final

import trio

from leveret.clock import Clock
from leveret.config.config import Config
from leveret.config.sections import GUEST
from leveret.config.store import POSTGRES
from leveret.config.types import Address
from leveret.durable.store.contract import FencedError, Store, StoreError
from leveret.front_end import (
    FrontEnd,
    addresses_of,
    encodings_of,
    listings_of,
    queue_arguments_of,
    remote_ends_of,
)
from leveret.observability.history import History
from leveret.security.guards import Admission, descriptors_max
from leveret.server.node import assembly
from leveret.server.node.admin import NodeAdmin
from leveret.server.node.batches import Batches
from leveret.server.node.listener import (
    Listener,
    ListenerRules,
    RelayRules,
    amqp_url,
    listeners,
    welcomed,
)
from leveret.server.node.poller import Poller
from leveret.server.node.readers import TaskReaders, readers
from leveret.server.node.sweeps import Sweeps
from leveret.server.node.systemd import Handed
from leveret.server.node.transport import Transport, is_readable
from leveret.server.plugin_loader import Plugins

if TYPE_CHECKING:
    from leveret.server.node.logs import LogTargets
    from leveret.server.node.persistence import Persistence
    from leveret.server.node.term import Term
    from leveret.values import Value

log: Final = logging.getLogger("leveret.node")

TRAFFIC: Final = ("octets_received", "octets_sent", "reads", "writes")
OUT_OF_FILES: Final = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM))
SUSPENDED: Final = "this node cannot commit, and another may have taken over"
OUT_OF_FILES_PAUSE_S: Final = 0.1  # between attempts to accept a connection
# For clients to close at shutdown. With a store to close, that has to end within five seconds.
CLOSING_S: Final = 2.0


class TrioClock(Clock):
    """A clock with trio's own time, so that a mock clock moves the broker too."""

    def now(self) -> float:
        return trio.current_time()

    def wall(self) -> float:
        return time.time()


class Node(Batches):
    """One broker that listens. An async context manager: the node runs within it, and shuts down at its end."""

    admin: NodeAdmin  # set once the node has started
    poller: Poller | TaskReaders  # set once the node starts

    def __init__(
        self,
        config: Config | None = None,
        reread: Callable[[], Config] | None = None,
        closing_s: float = CLOSING_S,
        store: Store | None = None,
        handed: Handed | None = None,
        owns_loop: bool = False,
        log_targets: LogTargets | None = None,
        term: Term | None = None,
        clock: Clock | None = None,
    ) -> None:
        """`reread` reads the configuration again for `reload`; without it there is nothing to reload.

        `closing_s` is how long a shutdown waits for clients to close, in seconds. `store` takes the place of the one in
        `node.data_dir`; the node closes it. `handed` are sockets to listen on; all of them have to be used.
        `owns_loop`: nothing else runs in this trio loop, so that the node may make it wait for a millisecond.
        `log_targets`: where the log of this process goes, for a reload to change; None in a program that cares for it.
        `clock`: the broker's time, without it that of trio's loop.
        `term`: the time in which this is the node of a cluster that serves; None: there is no cluster.
        """
        super().__init__(config or Config(), owns_loop, term)
        self.listening: list[Listener] = []  # including closed ones during shutdown
        self.past: Counter[str] = Counter()  # the counters of ended connections
        self.log_targets = log_targets
        self._clock = clock or TrioClock()
        self._reread = reread
        self._closing_s = closing_s
        self._store = store
        self._handed = handed or Handed()
        self._failure: StoreError | None = None  # the reason why the node ends
        self._nursery: trio.Nursery | None = None
        self._stack = contextlib.AsyncExitStack()
        self._earlier = trio.Event()
        self._prepared: set[Callable[[], object]] = set()  # imports that were made in a thread
        self._accepting = True  # False: the last attempt to accept a connection failed
        self._empty = trio.Event()  # set when the last connection has gone
        self.admission: Admission[Transport] = Admission(descriptors_max())

    # Start and end.

    async def __aenter__(self) -> Node:
        """Load plugins, open the store, build the broker, listen.

        Raises BadPlugin, ConfigError, BadFolder, StoreError, or OSError (an address is taken).
        """
        began = trio.current_time()
        self.poller = readers(self)
        try:
            self._build(began)
            self._bind()
            if self.persistence is not None:
                self.persistence.start(self.poller.report, self._store_failed)
        except BaseException:
            self._stop_listening()
            if self.persistence is not None:
                self.persistence.give_up()
            elif self._store is not None:
                self._store.close(None)
            self.poller.close()
            raise
        self._nursery = await self._stack.enter_async_context(trio.open_nursery())
        for listener in self.listening:
            self._nursery.start_soon(self._accept, listener)
        if self.owns_loop:  # else the collector is another's
            Sweeps(self.broker).begin()
        self._nursery.start_soon(self._keep_time)
        if isinstance(self.poller, Poller):
            self._nursery.start_soon(self._go_round, self.poller)
        return self

    def _build(self, began: float) -> None:
        """Build the broker with its plug-ins, and fill it from the store and the configuration."""
        self._plugins = Plugins(self.config.plugins.folders, self.config.plugins.disabled)
        self._plugins.load()
        assembly.check_protocols(self.config, self._plugins.protocols)
        self.broker = assembly.broker(self.config, self._plugins.exchange_types, self._clock)
        self.broker.queue_arguments = queue_arguments_of(self._plugins.protocols.values())
        warnings = assembly.protocol_warnings(self.config, self._plugins.protocols)
        for warning in (*warnings, *assembly.mechanism_warnings(self.config)):
            self.broker.notices.tell(warning)
        self.broker.encodings = encodings_of(self._plugins.protocols.values())
        self.broker.remote_ends = remote_ends_of(self._plugins.protocols.values())
        self.broker.listings = listings_of(self._plugins.protocols.values())
        self.broker.addresses = addresses_of(self._plugins.protocols.values(), self.config)
        assembly.record_spans(self.broker, self.config)
        assembly.let_in(self.broker, self._plugins)
        self.persistence = self._persistence()
        self.feeds = None if self.persistence is None else self.persistence.feeds
        self.admin = NodeAdmin(self, self._plugins, self._reread, began)
        self.broker.operations = self.admin
        self.broker.access.off_thread = self.admin.compute
        self.broker.access.fetch = self.admin.fetch
        if self.persistence is not None:
            assembly.page(self.broker, self.config)
            self.persistence.restore()
        assembly.intercept(self.broker, self.config, self._plugins)
        assembly.decorate(self.broker, self._plugins)
        assembly.populate(self.broker, self.config)
        if self.persistence is not None:
            self.persistence.recover()
        assembly.observe(self.broker, self.config)
        assembly.record(self.broker, self.config)
        self.broker.alarms.listen(self._alarm)
        self.broker.timers.on_earlier = self.wake
        self.unchecked_max = self.portion()
        self._check_alarms(self.broker.tick())
        if self.config.http.enabled:
            self.broker.guest(History).start()
        self.admin.watch_plugins()

    def _persistence(self) -> Persistence | None:
        """Return the keeper of the given store, or of the data folder's; a node in memory loads none of that."""
        folder, protocols = self.config.node.data_dir, self._plugins.protocols.values()
        if self._store is None and folder is None and self.config.store.engine != POSTGRES:
            return None
        from leveret.server.node.persistence import Persistence, opened

        sources = self._plugins.protocol_sources()
        if self._store is not None:
            return Persistence(self.broker, self._store, None, protocols, sources)
        return Persistence(self.broker, opened(self.config), folder, protocols, sources)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        """Shut down. Raises StoreError if the store has failed: what was not confirmed by then may be lost."""
        assert self._nursery is not None
        crashed = self._nursery.cancel_scope.cancel_called
        with trio.CancelScope(shield=True):
            await self._close()
        self._nursery.cancel_scope.cancel()
        swallowed = None
        try:
            if crashed:  # the block was ended by our own cancellation
                swallowed = await self._stack.__aexit__(kind, error, trace)
            else:  # an exception of the block is raised as it is, not in a group
                await self._stack.aclose()
        finally:
            self.admin.close()
            self.broker.long_work.finish()
            if self.persistence is not None:
                self._close_store(self.persistence, crashed)
            self.poller.close()  # its threads have ended
            self.broker.close()
        if self._failure is not None:
            raise self._failure
        return swallowed

    async def _close(self) -> None:
        """Stop accepting, ask the clients to close, and wait until they have: for a time in which all of this is done.

        To ask is to give back what the clients have not answered, which takes a second for some 100,000 messages.
        """
        until = trio.current_time() + self._closing_s
        self._stop_listening()
        for guest in self.broker.guests:
            guest.stop()
        reason = "shutdown"
        if self._failure is not None and self.feeds is not None:
            is_fenced = isinstance(self._failure, FencedError)
            reason = "another node serves now" if is_fenced else "the store has failed"
            self.feeds.fail()
        self.admin.close_connections(f"broker forced connection closure with reason '{reason}'")
        if self.suspended:  # no timers run, and each client is told after all that it has has been given back
            self.broker.long_work.finish()
        with trio.move_on_at(until):
            if self.transports:
                await self._empty.wait()

    def _stop_listening(self) -> None:
        for listener in self.listening:
            if listener.is_open:
                trio.lowlevel.notify_closing(listener.socket)
                listener.socket.close()
        self._handed.close()

    def _close_store(self, persistence: Persistence, crashed: bool) -> None:
        if crashed:
            persistence.give_up()
            return
        try:
            persistence.close()
        except StoreError as failure:
            log.critical("the store could not be closed properly: %s", failure)
            self._failure = failure

    async def run(self) -> None:
        """Sleep until cancelled."""
        await trio.sleep_forever()

    def configure(self, config: Config) -> None:
        """Use this configuration from now on."""
        self.config = config

    # Listening.

    @property
    def addresses(self) -> list[str]:
        """Return the addresses on which the node listens, as HOST:PORT or `unix:` and a path."""
        return [listener.address for listener in self.listening]

    @property
    def url(self) -> str:
        """Return an AMQP URL for the configuration's first listener with a port, user and virtual host.

        Without such a listener it is the address of the first Unix domain socket. Raises RuntimeError without either.
        """
        if not self.listening:
            raise RuntimeError("the node has no listener")
        user = next(iter(self.config.users), GUEST)
        host = self.config.virtual_hosts[0].name
        first = next((each for each in self.listening if isinstance(each.bound, Address)), self.listening[0])
        return amqp_url(first.address, user.name, user.password or "", host, first.entrance.scheme)

    def _bind(self) -> None:
        """Open every listener. If it raises, the caller closes those that are open."""
        known = self._plugins.protocols
        entrances: dict[str, ListenerRules] = {}
        for where, entry in assembly.entries(self.config, known):
            entrance = assembly.entrance_of(self.config, entry, where, known)
            for found in self._handed.named(entry.socket or where) or listeners(entry, self._handed):
                self.listening.append(Listener(found, entrance))
            entrances[assembly.place_of(where, len(entrances))] = entrance
        self._handed.refuse_the_rest()
        if self.term is not None:
            rules = RelayRules(self.term.listener_of, entrances)
            self.listening += (
                Listener(admission, ListenerRules((), relayed=rules)) for admission in self.term.doors
            )

    async def _accept(self, listener: Listener) -> None:
        with listener.socket, contextlib.suppress(trio.ClosedResourceError):
            while listener.is_open:
                await trio.lowlevel.wait_readable(listener.socket)
                try:
                    connected, _ = listener.socket.accept()
                except OSError as failure:
                    if failure.errno in OUT_OF_FILES:
                        await self._out_of_files(failure)
                    continue
                self._accepting = True
                self._welcome(connected, listener)

    async def _out_of_files(self, failure: OSError) -> None:
        """Pause until other connections may have closed. Logged once, until a connection is accepted again."""
        if self._accepting:
            log.error("cannot accept connections: %s", failure.strerror)
        self._accepting = False
        await trio.sleep(OUT_OF_FILES_PAUSE_S)

    def _welcome(self, connected: socket.socket, listener: Listener) -> None:
        entrance = listener.entrance
        if (peer := welcomed(connected, listener)) is None:
            return
        limits, now = self.config.limits, trio.current_time()
        why = self.admission.refusal_of(connected.fileno()) or self.admission.refusal(limits, now)
        if self.suspended and entrance.relayed is None:  # what other nodes have to say is read
            why = SUSPENDED
        if not why and not entrance.names_clients:
            why = self.admission.refusal_from(peer.host, peer.loopback, limits, now)
        if why:
            connected.close()
            if line := self.admission.refuse(why, now):
                log.warning("hung up on %s: %s", peer.name, line)
            return
        transport = Transport(self, connected, peer, entrance)
        self.transports[transport.outbox] = transport
        self._let_in(transport)
        if not entrance.names_clients:
            self.admission.came_from(transport, peer.host, peer.loopback)
        self.start(transport.serve)

    def _let_in(self, transport: Transport) -> None:
        """Count the connection as not logged in; if there are too many of those, the oldest is closed."""
        surplus = self.admission.enter(transport, self.config.limits)
        if surplus is not None:
            if line := self.admission.refuse(
                "too many connections whose users have not logged in", self.broker.clock.now()
            ):
                log.warning("hung up on %s: %s", surplus.peer.name, line)
            surplus.turn_away()

    async def prepare(self, load: Callable[[], object]) -> None:
        """Import a protocol's front-end, before its first connection is served.

        Where the loop is the node's own that is done in a thread, which keeps others waiting for 6 ms at most;
        elsewhere the front-end's factory imports it.
        """
        if self.owns_loop and load not in self._prepared:
            await trio.to_thread.run_sync(load)
            self._prepared.add(load)

    def start(self, task: Callable[[], Awaitable[None]]) -> None:
        """Run a task until it ends or the node does."""
        assert self._nursery is not None
        self._nursery.start_soon(task)

    # The loop.

    def lose(self, front: FrontEnd) -> None:
        """Have the front-end of an ended connection release what it held."""
        self.broker.tick()
        self.abandon(front)
        try:
            front.lost()
        finally:
            self.settle()

    def stands(self, front: FrontEnd) -> bool:
        """Return whether a connection's input waits for the answer of a server, in the middle of a call."""
        held = self.broker.held_input
        return held is not None and held.stands(front)

    def abandon(self, front: FrontEnd) -> None:
        """Do not go on with input that waits for the answer of a server: the connection ends."""
        if self.broker.held_input is not None:
            self.broker.held_input.abandon(front)

    def forget(self, transport: Transport) -> None:
        """Remove a connection whose socket has been closed."""
        for name in TRAFFIC:
            self.past[name] += getattr(transport, name)
        del self.transports[transport.outbox]
        if not self.transports:
            self._empty.set()
            self._empty = trio.Event()

    async def quiet(self) -> None:
        """Wait until all that has arrived at the node's sockets by now has been worked through. For tests."""
        listeners = [listener.socket for listener in self.listening if listener.is_open]
        while any(map(is_readable, listeners)) or any(t.has_input() for t in self.transports.values()):
            await trio.lowlevel.checkpoint()

    def wake(self) -> None:
        self._earlier.set()

    async def _go_round(self, poller: Poller) -> None:
        """Run the rounds that read from connections, for ever."""
        number = poller.fileno()
        while True:
            if poller.has_more:
                await trio.lowlevel.checkpoint()
            else:
                await trio.lowlevel.wait_readable(number)
            poller.turn()

    async def _keep_time(self) -> None:
        """Sleep until the next deadline, an earlier one that is added, or until there is work left.

        While the node is suspended nothing is done at its time, and so nothing is waited for.
        """
        timers = self.broker.timers
        while True:
            self._earlier = trio.Event()
            while self.suspended:
                await self._earlier.wait()
                self._earlier = trio.Event()
            wait_s = 0.0 if self.broker.touched else timers.sleep_until() - self._clock.now()
            with trio.move_on_after(max(0.0, wait_s)):
                await self._earlier.wait()
            at = timers.next_at()
            if self.broker.touched or (at is not None and at <= self._clock.now()):
                self.work()

    # Cluster.

    def has_lapsed(self) -> bool:
        assert self.term is not None
        if not self.suspended and self.term.has_lapsed():
            log.warning(
                "no commit has succeeded for as long as the lease lasts: nothing is delivered or confirmed"
            )
            self._suspend()
        return self.suspended

    def _suspend(self) -> None:
        self.suspended = True
        for transport in list(self.transports.values()):
            transport.suspend()

    def look_at_term(self) -> None:
        """Suspend the node, or let it go on, as its lease demands; called from time to time."""
        if not self.has_lapsed() or self.term is None or self.term.has_lapsed() or self._failure is not None:
            return
        log.warning("commits succeed again, and nobody else has taken over: deliveries and confirms go on")
        self.suspended = False
        self.wake()
        self.broker.tick()
        for transport in list(self.transports.values()):
            transport.resume()
        self.work()

    def end_term(self, error: FencedError) -> None:
        """End this node as one from which another has taken over, even if its own store does not know that yet."""
        if self._failure is None:
            if not self.suspended:
                self._suspend()  # what is closed from here on reads its client's answer
            self._store_failed(error)

    # Store.

    def _store_failed(self, error: StoreError) -> None:
        """End the node: without a store it could not keep what it confirms."""
        if isinstance(error, FencedError):
            log.warning("nothing more is confirmed here: %s", error)
        else:
            log.critical("the store has failed, nothing more is confirmed, and the node ends: %s", error)
        assert self._nursery is not None
        self._failure = error
        self._nursery.start_soon(self._give_up)  # later: this may be called in the middle of anything

    async def _give_up(self) -> None:
        assert self._nursery is not None
        if isinstance(self._failure, FencedError) and self.term is not None:
            told = self.term.status()
            facts: dict[str, Value] = {"name": str(told["node"]), "epoch": int(str(told["epoch"]))}
            self.broker.events.happened("cluster.fenced", "", facts)
        await self._close()
        self._nursery.cancel_scope.cancel()

    # Alarms.

    def _check_alarms(self, now: float) -> None:
        self.broker.timers.at(self.broker.alarms.check(now), self._check_alarms)

    def _alarm(self, reason: str | None) -> None:
        if reason is None:
            log.info("resource alarms cleared: publishers may go on")
        else:
            log.warning("resource alarm: %s; publishers are held back", reason)
        if self.feeds is not None:
            self.feeds.alarm()
        for transport in list(self.transports.values()):
            transport.alarm(reason)
