"""Run one node of a cluster: it stands by and passes clients on, serves when its turn comes, and stands by again.

    bind ─> stand by: observe the row, relay ── due ─> claim ─> recover ─> serve ─> (another has taken over) ─┐
                 ^─────────────────────────────────────────────────────────────────────────────────────────────┘

The listeners are open all the time: while a `Node` serves, it has copies of their descriptors. All calls that wait for
the database are made by threads. While the store is read, which keeps the loop busy, a thread of its own beats; from
then on every commit is a sign of life, and the store beats when there is none.
"""

from __future__ import annotations

import contextlib
import logging
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

import trio

from leveret.config.cluster import NODE_NAME_MAX, ClusterSettings
from leveret.config.config import Config
from leveret.config.listener import ListenerEntry
from leveret.config.types import Address
from leveret.durable.store.contract import FencedError, NoSpaceError, Store, StoreError
from leveret.durable.store.folder import BadFolder
from leveret.durable.store.postgres.session import UnreachableError, boottime
from leveret.errors import PreconditionFailed
from leveret.security.guards import Admission, descriptors_max
from leveret.server.cluster.contract import HEIR, RowView, ShardView
from leveret.server.cluster.introduction import KEY_SIZE, Announcement, SeenSerials, Succession, listener_of
from leveret.server.cluster.lease import LOOK_S, NodeEvent, NodeLease, NodeState, OwnLease, Watch
from leveret.server.cluster.refusal import refused
from leveret.server.cluster.relay import KEEPALIVE, OWNER_WAIT_S, Relay
from leveret.server.cluster.standby_http import HEAD_MAX, answer, refused_request
from leveret.server.cluster.succession import tell
from leveret.server.node import assembly
from leveret.server.node.listener import Listener, ListenerRules, listeners, welcomed
from leveret.server.node.node import Node
from leveret.server.node.proxy_protocol import BadHeader
from leveret.server.node.systemd import Handed
from leveret.server.node.term import Term
from leveret.server.plugin_loader import Plugins

if TYPE_CHECKING:
    from leveret.front_end import Peer, Protocol
    from leveret.server.node.logs import LogTargets
    from leveret.values import Json, Value

log: Final = logging.getLogger("leveret.cluster")
T = TypeVar("T")

BEAT_S: Final = 1.0  # between signs of life while the store is read
ASKED_S: Final = 5.0  # for the beginning of a request over HTTP
CLOSING_S: Final = 1.0  # for clients to close before another node serves
OVERVIEW_S: Final = 2.0  # between two looks at the other nodes
OUT_OF_FILES_S: Final = 0.1
REFUSED_AT_ONCE: Final = 64  # clients that are told why; further ones are hung up on


def name_of(settings: ClusterSettings) -> str:
    """Return the name of this node: the host's, if the configuration has none."""
    return settings.node or socket.gethostname()[:NODE_NAME_MAX]


class Beats:
    """A thread that gives signs of life while nothing is committed yet."""

    def __init__(self, shard: ShardView, own: OwnLease) -> None:
        """`shard` is for the thread alone, which closes it."""
        self._shard, self._own = shard, own
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="leveret-beats", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._over.wait(BEAT_S):
            sent_at = boottime()
            try:
                if not self._shard.beat(self._own.epoch):
                    break  # the first commit will tell
                self._own.renew(sent_at)
            except (UnreachableError, BadFolder) as error:
                log.warning("no sign of life could be given: %s", error)
        self._shard.close()

    def stop(self) -> None:
        """Have the thread end, after a beat that is on its way."""
        self._over.set()


class OwnTerm(Term):
    """The term of this node, from its claim to its end."""

    def __init__(self, member: Member, own: OwnLease, renewed_at: Callable[[], float], key: bytes) -> None:
        self.doors = [socket.socket(fileno=os.dup(each.fileno())) for each in member.doors]
        self.own = own
        self.overview: dict[str, Json] = {"standby": [], "replication": [], "takeovers": []}
        self.handing_over: trio.Event = trio.Event()
        self.heir = ""
        self._member = member
        self._renewed_at = renewed_at
        self._key = key
        self._seen = SeenSerials()

    def has_lapsed(self) -> bool:
        self.own.renew(self._renewed_at())
        return self.own.has_lapsed(boottime())

    def listener_of(self, header: bytes) -> str:
        listener = listener_of(header, self._key, self._seen, self._member.hear)
        if self.has_lapsed():
            raise BadHeader("this node cannot commit, and takes no clients")
        return listener

    def status(self) -> Mapping[str, Json]:
        member = self._member
        return {
            "name": member.settings.name,
            "node": member.name,
            "state": member.lease.state.value,
            "owner": member.name,
            "address": str(member.address),
            "epoch": self.own.epoch,
            "lease_ttl_s": member.settings.lease_ttl,
            "lease_age_s": round(self.own.age_s(boottime()), 3),
            **self.overview,
        }

    def metrics(self) -> Mapping[str, float]:
        return self._member.metrics()

    def fail_over(self, heir: str) -> None:
        standby = self.overview["standby"]
        assert isinstance(standby, list)
        names = {each["name"] for each in standby if isinstance(each, dict)} - {self._member.name}
        if heir and heir not in names:
            raise PreconditionFailed(f"no node '{heir}' stands by")
        if not names:
            raise PreconditionFailed("no other node stands by")
        self.heir = heir
        self.handing_over.set()


class Member:
    """One node of a cluster, from its start to its end."""

    def __init__(
        self,
        config: Config,
        shard: Callable[[], ShardView],
        open_store: Callable[[int], tuple[Store, Callable[[], float]]],
        reread: Callable[[], Config] | None = None,
        handed: Handed | None = None,
        log_targets: LogTargets | None = None,
        look: Callable[[], Mapping[str, Json]] | None = None,
        note: Callable[[int, str, float], None] | None = None,
    ) -> None:
        """Prepare; `run` begins.

        `shard` makes an access to the row, which connects when it is used.
        `open_store` opens the store for an epoch, in a thread; with it comes a function that returns when the last
        successful commit or beat was sent (`boottime`). `look` returns what the database tells about the other
        nodes, `note(epoch, why, seconds)` writes a takeover down; both in threads, and both may raise UnreachableError.
        """
        assert isinstance(config.cluster.address, Address)
        self.config = config
        self.settings = config.cluster
        self.name = name_of(self.settings)
        self.lease = NodeLease()
        self.address = self.settings.address
        self.doors: list[socket.socket] = []  # for clients that other nodes pass on
        self.node: Node | None = None  # while this one serves
        self.started = trio.Event()  # the listeners are open
        self.serving = trio.Event()  # for tests: set by each takeover
        self.protocols: list[Protocol] = []
        self._new_shard = shard
        self._shard = shard()
        self._open_store = open_store
        self._reread = reread
        self._handed = handed or Handed()
        self._log_targets = log_targets
        self._look = look
        self._note = note
        self._listeners: list[tuple[str, str, Listener]] = []  # name for sockets, name in the cluster
        self._relay = Relay(lambda: self._owner)
        self._owner: Announcement | None = None
        self._owner_name: str | None = None
        self._known = trio.Event()  # set while an owner is known
        self._epoch = 0
        self._open: set[trio.CancelScope] = set()  # of relayed connections
        self._door: Admission[None] = Admission(descriptors_max())
        self._refusing = 0  # clients that are being told so
        self._watch = Watch(self.name, self.settings.lease_ttl)
        self._takeovers = self._fenced = 0
        self._own: OwnLease | None = None
        # Of the node that has taken over from this one, if it has told so.
        self._news: Succession | None = None
        self._term: OwnTerm | None = None  # while this node serves, or is about to
        self._stopping = trio.Event()
        self._said = ""  # the last problem that was logged

    async def run(self) -> None:
        """Be a node of the cluster until `stop`. Raises what `Node` raises at its start, StoreError.

        To cancel it is to crash: another node takes over when this one's session has gone.
        """
        try:
            self._bind()
            self.started.set()
            while not self._stopping.is_set():
                due = await self._stand_by()
                if due is not None:
                    await self._take_over(*due)
        finally:
            for _, _, listener in self._listeners:
                listener.socket.close()
            for door in self.doors:
                door.close()
            self._handed.close()
            self._shard.close()
            self._relay.close()

    def stop(self) -> None:
        """Have `run` end soon; a node that serves leaves the row to the others."""
        self._stopping.set()
        if self._term is not None:
            self._term.handing_over.set()

    @property
    def addresses(self) -> list[str]:
        """Return the addresses on which clients are accepted."""
        return [listener.address for _, _, listener in self._listeners]

    def metrics(self) -> Mapping[str, float]:
        """Return the figures of this node by the names of their metrics."""
        now = boottime()
        own = self._own if self.lease.is_owner else None
        age_s = self._watch.quiet_s(time.monotonic()) if own is None else own.age_s(now)
        return {
            "leveret_cluster_owner": int(self.lease.is_owner),
            "leveret_cluster_epoch": self._epoch,
            "leveret_cluster_suspended": int(self.lease.state is NodeState.SUSPENDED),
            "leveret_cluster_takeovers_total": self._takeovers,
            "leveret_cluster_fenced_total": self._fenced,
            "leveret_cluster_lease_age_seconds": round(age_s, 3),
            "leveret_relay_connections": self._relay.connections,
            "leveret_relay_refused_total": self._door.refused,
            "leveret_relay_bytes_total": self._relay.octets,
        }

    def hear(self, news: Succession) -> None:
        """End the term of this node, as another has taken over; told by that one, whatever the database says here."""
        if self.node is None or self._own is None or news.epoch <= self._own.epoch:
            return
        self._news = news
        self.node.end_term(FencedError(f"node {news.node} has taken over in epoch {news.epoch}"))

    def reload(self) -> None:
        """Read the configuration again: at once while this node serves, else for when it does."""
        if self.node is not None:
            self.node.admin.reload()
            self.config = self.node.config
        elif self._reread is not None:
            try:
                self.config = assembly.in_force(self.config, self._reread())
            except Exception as failure:  # a mistake in the file must not end a node
                log.error("configuration not reloaded\n%s", failure)

    def served(self) -> list[tuple[str, str]]:
        """Return each address with the names of its protocols."""
        return [
            (
                listener.address,
                ", ".join(sorted(each.title or each.name for each in listener.entrance.protocols)),
            )
            for _, _, listener in self._listeners
        ]

    # Listeners.

    def _bind(self) -> None:
        """Open every listener. Raises ConfigError, BadPlugin, OSError."""
        plugins = Plugins(self.config.plugins.folders, self.config.plugins.disabled)
        plugins.load()
        for index, (where, entry) in enumerate(assembly.entries(self.config, plugins.protocols)):
            entrance = assembly.entrance_of(self.config, entry, where, plugins.protocols)
            self.protocols += entrance.protocols
            for found in self._handed.named(entry.socket or where) or listeners(entry, self._handed):
                place = assembly.place_of(where, index)
                self._listeners.append((entry.socket or where, place, Listener(found, entrance)))
        self._handed.refuse_the_rest()
        assert isinstance(self.address, Address)
        self.doors += listeners(ListenerEntry(address=self.address), Handed())
        for door in self.doors:
            for option in KEEPALIVE:
                door.setsockopt(*option)  # accepted connections inherit it
        self.address = Address(self.address.host, self.doors[0].getsockname()[1])

    def _copies(self) -> Handed:
        """Return the listeners' sockets for a node that closes them at its end."""
        return Handed(
            [
                (name, socket.socket(fileno=os.dup(listener.socket.fileno())))
                for name, _, listener in self._listeners
            ]
        )

    # Standing by.

    async def _stand_by(self) -> tuple[RowView, str] | None:
        """Pass clients on until the row is to be claimed; return it, and why. None: this node is to end."""
        due = None
        async with trio.open_nursery() as nursery:
            for _, place, listener in self._listeners:
                nursery.start_soon(self._accept, nursery, place, listener)
            for door in self.doors:
                nursery.start_soon(self._turn_away, door)
            nursery.start_soon(self._until_stopped, nursery.cancel_scope)
            due = await self._due()
            nursery.cancel_scope.cancel()
        return due

    async def _until_stopped(self, scope: trio.CancelScope) -> None:
        await self._stopping.wait()
        scope.cancel()

    async def _due(self) -> tuple[RowView, str]:
        while True:
            try:
                row = await self._in_thread(self._shard.observe)
            except (UnreachableError, BadFolder) as error:
                self._watch.forget()
                self._say(f"the database cannot be asked: {error}")
            else:
                self._say("")
                self._know(row)
                why = self._watch.see(row, time.monotonic())
                if why is not None:
                    return row, why
            await trio.sleep(LOOK_S)

    def _know(self, row: RowView) -> None:
        """Note where the owner is. Relayed connections to an earlier one end."""
        if row.epoch != self._epoch:
            for scope in list(self._open):
                scope.cancel()
        if row.owner is not None and (row.epoch, row.owner) != (self._epoch, self._owner_name):
            log.info("node %s stands by: %s serves, in epoch %d", self.name, row.owner, row.epoch)
        self._epoch, self._owner_name = row.epoch, row.owner
        self._owner = None if row.owner is None else Announcement.parse(row.address)
        if self._owner is not None:
            self._known.set()
        elif self._known.is_set():
            self._known = trio.Event()

    def _say(self, problem: str) -> None:
        """Log a problem once, until there is another or none."""
        if problem and problem != self._said:
            log.warning("%s", problem)
        self._said = problem

    async def _accept(self, nursery: trio.Nursery, place: str, listener: Listener) -> None:
        while True:
            await trio.lowlevel.wait_readable(listener.socket)
            if self._owner is None and self.settings.relay:
                # in the system's queue, for this node if it takes over
                with trio.move_on_after(OWNER_WAIT_S):
                    await self._known.wait()
            try:
                accepted, _ = listener.socket.accept()
            except BlockingIOError:
                continue
            except OSError:
                await trio.sleep(OUT_OF_FILES_S)
                continue
            if (peer := welcomed(accepted, listener)) is None:
                continue
            if why := self._refusal(accepted.fileno()):
                if line := self._door.refuse(why, trio.current_time()):
                    log.warning("%s is not passed on: %s", peer.name, line)
                if self._refusing == REFUSED_AT_ONCE:
                    accepted.close()
                else:
                    nursery.start_soon(self._refuse, accepted, peer, place, listener.entrance, why)
                continue
            nursery.start_soon(self._serve_standing_by, accepted, peer, place, listener.entrance)

    def _refusal(self, descriptor: int) -> str:
        """Return why a client is not passed on; empty if it is."""
        most = self.settings.relay_connections_max
        if most is not None and len(self._open) >= most:
            return f"node {self.name} stands by, and passes on {most} clients already"
        return self._door.refusal_of(descriptor)

    async def _refuse(
        self, client: socket.socket, peer: Peer, place: str, entrance: ListenerRules, why: str
    ) -> None:
        """Tell a client why it is not passed on; what can be answered here is."""
        self._refusing += 1
        try:
            with client:
                if place not in assembly.HTTP_PROTOCOLS:
                    first = await _beginning_of(client, entrance)
                    told = refused(self.config, entrance, peer, first, why)
                elif entrance.is_plain:
                    _, answered = await self._answered(client, place)
                    told = answered or refused_request(why)
                else:
                    return
                await _last_words(client, told)
        finally:
            self._refusing -= 1

    async def _answered(self, client: socket.socket, place: str) -> tuple[bytes, bytes | None]:
        """Return the beginning of a request, and the answer of a node that stands by, if it has one."""
        head = await _head_of(client)
        return head, answer(place, head, self.name, self._owner_name, self.metrics())

    async def _serve_standing_by(
        self, client: socket.socket, peer: Peer, place: str, entrance: ListenerRules
    ) -> None:
        with client, trio.CancelScope() as scope:
            self._open.add(scope)
            try:
                first = b""
                if place in assembly.HTTP_PROTOCOLS and entrance.is_plain:
                    first, told = await self._answered(client, place)
                    if told is not None:
                        await _last_words(client, told)
                        return
                if self.settings.relay:
                    await self._relay.pass_on(client, peer, place, first)
            finally:
                self._open.discard(scope)

    async def _turn_away(self, door: socket.socket) -> None:
        """Close the connections of nodes that take this one for the owner."""
        while True:
            await trio.lowlevel.wait_readable(door)
            with contextlib.suppress(OSError):
                door.accept()[0].close()

    # Serving.

    async def _take_over(self, row: RowView, why: str) -> None:
        """Claim the row; serve if no other node was quicker, until another one does."""
        self.lease.on(NodeEvent.DUE)
        self._watch.forget()
        self._owner = self._owner_name = None
        self._known = trio.Event()
        key, sent_at = secrets.token_bytes(KEY_SIZE), boottime()
        assert isinstance(self.address, Address)
        announced = str(Announcement(self.address, key))
        try:
            epoch = await self._in_thread(partial(self._shard.claim, row.epoch, self.name, announced))
        except (UnreachableError, BadFolder) as error:
            self._say(f"the claim of epoch {row.epoch + 1} is in doubt: {error}")
            epoch = None
        if epoch is None:
            self.lease.on(NodeEvent.LOST)
            return
        self.lease.on(NodeEvent.CLAIMED)
        self._epoch = epoch
        log.info("node %s takes over in epoch %d: %s", self.name, epoch, f"{row.owner or 'the row'}, {why}")
        self._own = OwnLease(epoch, self.settings.lease_ttl, sent_at)
        predecessor = Announcement.parse(row.address) if row.owner not in (None, self.name) else None
        try:
            await self._serve(self._own, key, why, sent_at, predecessor)
        except FencedError:
            self._fenced += 1
            log.warning("node %s was fenced: another node serves now", self.name)
        except UnreachableError as error:
            log.error("node %s could not serve in epoch %d: %s", self.name, epoch, error)
        finally:
            self.node = self._term = None
            self.lease.on(NodeEvent.ENDED)
            self._watch = Watch(self.name, self.settings.lease_ttl)
            self._watch.stands_back = True
            if self._news is not None:
                news, self._news = self._news, None
                self._owner, self._owner_name, self._epoch = news.announcement, news.node, news.epoch
                self._known.set()

    async def _serve(
        self, own: OwnLease, key: bytes, why: str, began: float, predecessor: Announcement | None
    ) -> None:
        beats = Beats(self._new_shard(), own)
        try:
            store, renewed_at = await self._in_thread(partial(self._open_store, own.epoch))
            self._term = term = OwnTerm(self, own, renewed_at, key)
            if self._stopping.is_set():
                term.handing_over.set()
            made = Node(
                self.config,
                self._reread,
                CLOSING_S,
                store,
                self._copies(),
                owns_loop=True,
                log_targets=self._log_targets,
                term=term,
            )
            async with made as self.node, trio.open_nursery() as nursery:
                beats.stop()
                self.lease.on(NodeEvent.RECOVERED)
                took_s = boottime() - began
                self._takeovers += 1
                log.info("node %s serves in epoch %d, %.2f s after its claim", self.name, own.epoch, took_s)
                facts: dict[str, Value] = {"name": self.name, "epoch": own.epoch, "reason": why}
                made.broker.events.happened("cluster.takeover", "", facts)
                nursery.start_soon(self._keep_overview, term, own.epoch, why, took_s)
                if predecessor is not None:
                    assert isinstance(self.address, Address)
                    news = Succession(self.name, own.epoch, Announcement(self.address, key))
                    nursery.start_soon(tell, predecessor, news)
                self.serving.set()
                await self._reign(made, term)
                nursery.cancel_scope.cancel()
        finally:
            beats.stop()
            self.serving = trio.Event()

    async def _reign(self, node: Node, term: OwnTerm) -> None:
        """Look after the lease until this node is told to hand over."""
        has_closed = False
        while True:
            with trio.move_on_after(LOOK_S):
                await term.handing_over.wait()
                break
            node.look_at_term()
            if node.suspended is (self.lease.state is NodeState.SERVING):
                self.lease.on(NodeEvent.LAPSED if node.suspended else NodeEvent.RENEWED)
            is_long = node.suspended and term.own.age_s(boottime()) > self.settings.suspend_close_s
            if is_long and not has_closed:
                node.admin.close_connections("the database has been away for too long")
            has_closed = is_long
        log.info("node %s hands over%s", self.name, f" to {term.heir}" if term.heir else "")
        node.broker.events.happened("cluster.handover", "", {"name": self.name, "heir": term.heir})
        if term.heir:
            await self._in_thread(partial(self._shard.bequeath, term.own.epoch, HEIR + term.heir))

    async def _keep_overview(self, term: OwnTerm, epoch: int, why: str, took_s: float) -> None:
        """Write the takeover down, and look at the other nodes from time to time."""
        if self._note is not None:
            with contextlib.suppress(UnreachableError, StoreError, NoSpaceError, BadFolder):
                await self._in_thread(partial(self._note, epoch, why, took_s))
        while self._look is not None:
            with contextlib.suppress(UnreachableError, StoreError, NoSpaceError, BadFolder):
                term.overview.update(await self._in_thread(self._look))
            await trio.sleep(OVERVIEW_S)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        return await trio.to_thread.run_sync(work, abandon_on_cancel=True)


async def _head_of(client: socket.socket) -> bytes:
    """Return the beginning of a request; what has come until its line ends, or time is up."""
    return await _read_until(client, lambda head: b"\n" in head)


async def _beginning_of(client: socket.socket, entrance: ListenerRules) -> bytes:
    """Return what a client has sent once that tells its protocol, or time is up."""
    return await _read_until(client, lambda head: bool(head) and not entrance.undecided(head))


async def _read_until(client: socket.socket, is_enough: Callable[[bytes], bool]) -> bytes:
    head = b""
    with trio.move_on_after(ASKED_S):
        while not is_enough(head) and len(head) < HEAD_MAX:
            try:
                more = client.recv(HEAD_MAX)
            except BlockingIOError:
                await trio.lowlevel.wait_readable(client)
                continue
            except OSError:
                break
            if not more:
                break
            head += more
    return head


async def _last_words(client: socket.socket, octets: bytes) -> None:
    """Send an answer, and wait a moment until the client has read it and hung up."""
    with trio.move_on_after(ASKED_S), contextlib.suppress(OSError):
        client.send(octets)
        client.shutdown(socket.SHUT_WR)
        while True:
            await trio.lowlevel.wait_readable(client)
            if not client.recv(HEAD_MAX):
                return
