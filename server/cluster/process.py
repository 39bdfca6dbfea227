"""Run a node of a cluster as a process: what `leveret serve` does where the configuration has a `[cluster]`."""

from __future__ import annotations

import logging
import signal
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Final

import trio

from leveret.config.config import Config
from leveret.durable.store.contract import Store
from leveret.durable.store.postgres.opening import scratch_in
from leveret.durable.store.postgres.schema import SHARD
from leveret.durable.store.postgres.session import Database, Session, standby_name
from leveret.durable.store.postgres.shard import Shard
from leveret.durable.store.postgres.store import PostgresStore
from leveret.front_end import Protocol
from leveret.memory_tuning import give_back_memory, spare_the_collector
from leveret.server.cluster import overview
from leveret.server.cluster.member import Member, name_of
from leveret.server.node import persistence  # noqa: F401 - so that a takeover need not load it
from leveret.server.node.build_info import built
from leveret.server.node.process import feed_watchdog
from leveret.server.node.systemd import Handed, Notifier
from leveret.version import VERSION

if TYPE_CHECKING:
    from leveret.server.node.logs import LogTargets
    from leveret.values import Json

log: Final = logging.getLogger("leveret.cluster")

SETTLED_S: Final = 2.0  # when a start counts as over


def member_of(
    config: Config,
    reread: Callable[[], Config] | None = None,
    handed: Handed | None = None,
    targets: LogTargets | None = None,
) -> Member:
    """Return the node that a configuration describes, with the database that it names."""
    settings = config.store.postgres
    database = Database(settings.dsn or "", settings.schema)

    earlier: list[PostgresStore] = []

    def open_store(epoch: int) -> tuple[Store, Callable[[], float]]:
        while earlier:  # it may have waited for a database that did not answer
            earlier.pop().wait_until_ended()
        scratch = scratch_in(config.node.data_dir)
        opened = PostgresStore(database, epoch, scratch, settings.require_replicated, ends_aside=True)
        earlier.append(opened)
        return opened, lambda: opened.renewed_at

    name = name_of(config.cluster)
    notes = ClusterNotes(database, name)
    return Member(
        config,
        lambda: Shard(database, name),
        open_store,
        reread,
        handed,
        targets,
        notes.of_cluster,
        notes.note,
    )


class ClusterNotes:
    """Reads and writes about the cluster that the serving node does beside its store."""

    def __init__(self, database: Database, name: str) -> None:
        self._database = database
        self._name = name

    def of_cluster(self) -> Mapping[str, Json]:
        """Return the other nodes and what is known of the database. Raises UnreachableError, BadDatabase."""
        session = self._session()
        try:
            return overview.of_cluster(session, SHARD)
        finally:
            session.close()

    def note(self, epoch: int, why: str, seconds: float) -> None:
        """Write a takeover down. Raises UnreachableError, BadDatabase."""
        session = self._session()
        try:
            overview.note_takeover(session, SHARD, epoch, self._name, why, seconds)
        finally:
            session.close()

    def _session(self) -> Session:
        return Session(self._database, standby_name(self._database, self._name))


async def serve(
    config: Config,
    reread: Callable[[], Config],
    source: str,
    handed: Handed,
    tells: Notifier,
    targets: LogTargets,
) -> None:
    """Run the node until SIGINT or SIGTERM; SIGHUP reloads its configuration. Raises what `Member.run` raises."""
    member = member_of(config, reread, handed, targets)
    failure: Exception | None = None
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(feed_watchdog, tells)
            nursery.start_soon(_started, member, source, tells)

            async def hear() -> None:
                async for received in signals:
                    if received == signal.SIGHUP:
                        member.reload()
                        continue
                    log.info("%s: shutting down", signal.Signals(received).name)
                    tells.stopping("shutting down")
                    member.stop()

            nursery.start_soon(hear)
            try:
                await member.run()
            except Exception as error:  # raised as it is, not in a group
                failure = error
            nursery.cancel_scope.cancel()
    if failure is not None:
        raise failure


async def _started(member: Member, source: str, tells: Notifier) -> None:
    await member.started.wait()
    print(welcome(member, source), flush=True)
    spare_the_collector()
    give_back_memory()
    tells.ready(f"node {member.name} of cluster {member.settings.name}")
    await prepare(member.protocols)


async def prepare(protocols: Iterable[Protocol]) -> None:
    """Import what the start has left out, so that no client waits for it at a takeover."""
    await trio.sleep(SETTLED_S)
    for protocol in {each.name: each for each in protocols}.values():
        try:
            if protocol.prepare is not None:
                await trio.to_thread.run_sync(protocol.prepare)
        except Exception:
            log.exception("a mistake of the protocol '%s' while it was prepared", protocol.name)


def welcome(member: Member, source: str) -> str:
    """Return the text that `leveret serve` prints when the listeners of a cluster's node are open."""
    lines = [f"Leveret {VERSION}, {built()}", ""]
    lines += [f"  {address:24} {names}" for address, names in member.served()]
    stands_by = "passes its clients on" if member.settings.relay else "turns its clients away"
    lines += [
        "",
        f"  cluster                  {member.settings.name}, node {member.name} at {member.address}",
    ]
    lines.append(f"                           until it serves, it stands by and {stands_by}")
    lines.append(f"  configuration            {source or 'defaults'}")
    lines += ["", "  Ctrl-C stops it; SIGHUP reads the configuration again."]
    return "\n".join(lines)
