"""Two nodes as processes on a PostgreSQL pair, clients of every kind, and the count of what is found afterwards."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import count, pairwise
from pathlib import Path

import attrs
import pika

from leveret.durable.store.postgres import schema
from leveret.durable.store.postgres.session import Database, Session
from leveret.durable.store.postgres.shard import Shard
from tests.ha.forks import Fork, Forks
from tests.ha.freezer import Freezer
from tests.ha.publishers import KINDS, Place, Publisher, connected
from tests.harness.postgres import HERE, Pair, Server, free_port, programs, run

ROOT = Path(__file__).parents[2]
PATIENCE_S = 40
TTL_S = 3.0
PAUSE_S = 0.01  # of a client, between two messages: it is the nodes that are to get the processor
NODE = ("-m", "leveret")
SCHEMAS = count(1)
FULL = (
    """create function {s}.is_full() returns trigger language plpgsql as $$ begin
    raise exception 'could not extend file: No space left on device' using errcode = 'disk_full'; end $$""",
    "create trigger is_full before insert on {s}.chunks execute function {s}.is_full()",
    "create trigger is_full before insert on {s}.blocks execute function {s}.is_full()",
)
LOGIN = {"Authorization": "Basic Z3Vlc3Q6Z3Vlc3Q="}


def wait_until(done: Callable[[], bool], what: str, patience_s: float = PATIENCE_S) -> None:
    end = time.monotonic() + patience_s
    while not done():
        assert time.monotonic() < end, f"there is no {what}"
        time.sleep(0.03)


@attrs.frozen
class Machine:
    """Where a node runs: the address of its own, that of the database, and the command that begins a program there."""

    host: str = HERE
    database: str = HERE
    command: tuple[str, ...] = ()


class HaNode:
    """One node, which reaches a database on its own machine through a relay that can be frozen."""

    def __init__(
        self,
        folder: Path,
        name: str,
        schema_name: str,
        ports: list[int],
        machine: Machine,
        forks: Forks,
        ttl_s: float = TTL_S,
        settings: str = "",
    ) -> None:
        """`ttl_s` is that of its lease; `settings` are more sections of its configuration, as TOML."""
        self.name = name
        self._forks = forks
        self.machine = machine
        self.log = folder / f"{name}.log"
        self.log.touch()
        self.relays = [Freezer(port) for port in ports if machine.database == HERE]
        self.amqp, self.http = Place(machine.host, free_port()), Place(machine.host, free_port())
        hosts = ",".join(machine.database for _ in ports)
        at = ",".join(str(each) for each in [relay.port for relay in self.relays] or ports)
        dsn = f"host={hosts} port={at} user=postgres dbname=postgres target_session_attrs=read-write"
        self._clock = folder / f"{name}.clock"
        self.jump(0)
        self._file = folder / f"{name}.toml"
        self._file.write_text(
            f"""
            [node]
            data_dir = "{folder}/{name}"
            [store]
            engine = "postgres"
            postgres = {{ dsn = "{dsn}", schema = "{schema_name}" }}
            [cluster]
            name = "ha"
            node = "{name}"
            address = "{machine.host}:{free_port()}"
            lease_ttl = {ttl_s}
            suspend_close = 120
            [[listeners]]
            address = "{self.amqp}"
            protocols = ["amqp091", "amqp10", "amqp010", "mqtt"]
            [http]
            address = "{self.http}"
            [protocols.amqp010]
            enabled = true
            [log.levels]
            http = "error"
            [security]
            loopback_users = []
            {settings}
            """
        )
        self.process: subprocess.Popen[bytes] | Fork | None = None

    def start(self, program: Sequence[str] = NODE, is_forked: bool = False) -> None:
        """Start it with the code that is tested, compiled or not.

        Without a program of its own it is forked, and else if that is said: `HA_CLOCK` is nothing to it then.
        """
        arguments = ("serve", "--config", str(self._file))
        if (program == NODE or is_forked) and not self.machine.command:
            self.process = self._forks.start(self._file.parent, self.log, *program[1:], *arguments)
            return
        command = [*self.machine.command, sys.executable, *program, *arguments]
        path = [each for each in (os.environ.get("PYTHONPATH"), str(ROOT)) if each]
        environ = {**os.environ, "PYTHONPATH": os.pathsep.join(path), "HA_CLOCK": str(self._clock)}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, cwd=self._file.parent, env=environ
            )

    def jump(self, seconds: float) -> None:
        """Have the time of day of a node that runs `jumping` be wrong."""
        moved = self._clock.with_suffix(".moved")
        moved.write_text(str(seconds))
        moved.rename(self._clock)

    def tell(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def kill(self) -> None:
        self.tell(signal.SIGKILL)
        assert self.process is not None
        self.process.wait()

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def ask(self, path: str, method: str = "GET", body: str | None = None) -> object:
        """Ask over HTTP; None if there is no answer."""
        line = http.client.HTTPConnection(self.http.host, self.http.port, timeout=3)
        with contextlib.suppress(OSError, http.client.HTTPException, ValueError):
            line.request(method, path, body, LOGIN)
            found = json.loads(line.getresponse().read())
            line.close()
            return found
        line.close()
        return None

    def stands_by_for(self, owner: HaNode) -> bool:
        """Whether it says itself that it stands by, and that this other node serves."""
        found = self.ask("/api/health/checks/is-owner")
        return isinstance(found, dict) and f"the owner is {owner.name}" in str(found.get("reason", ""))

    def standing_by(self) -> list[object]:
        """The nodes that stand by, as this owner sees them; earlier takeovers name others, too."""
        found = self.ask("/api/cluster")
        standby = found.get("standby") if isinstance(found, dict) else None
        return [each["name"] for each in standby] if isinstance(standby, list) else []

    def text(self) -> str:
        return self.log.read_text()

    def end(self) -> None:
        if self.is_running:
            self.tell(signal.SIGCONT)
            self.kill()
        for relay in self.relays:
            relay.end()


@attrs.frozen
class Outcome:
    """What became of the messages of a round, over all clients."""

    confirmed: int
    lost: list[str]
    unconfirmed: int  # found nevertheless
    pause_s: float  # the longest time without a confirm
    opened: int  # connections, over all clients
    disordered: list[str]  # found before another one that its client has published earlier, or found twice
    misflagged: list[str]  # redelivered and not flagged so, or the other way round
    flagged: int


@attrs.frozen
class Found:
    """What is in the queue of one client afterwards."""

    client: Publisher
    names: list[str]
    flags: list[bool]  # redelivered

    def disordered(self) -> list[str]:
        """Return the names that are not in the order in which the client has published them."""
        keys = [[int(part) for part in name.partition("-")[2].split(".")] for name in self.names]
        return [
            name for name, (before, key) in zip(self.names[1:], pairwise(keys), strict=True) if key <= before
        ]

    def misflagged(self, crashed_at: float | None) -> list[str]:
        """Return the names with a wrong flag.

        After a node that did not end properly all that was there counts as delivered; nothing else does here.
        """
        if self.client.kind == "stream" or crashed_at is None:
            return [name for name, flag in zip(self.names, self.flags, strict=True) if flag]
        last = max(self.client.confirmed, key=self.client.confirmed.__getitem__)
        edge = self.flags.index(False) if False in self.flags else len(self.flags)
        wrong = [name for name, flag in zip(self.names[edge:], self.flags[edge:], strict=True) if flag]
        old = {name for name, at in self.client.confirmed.items() if at < crashed_at}
        wrong += old & {*self.names[edge:]}
        return wrong + ([last] if last in self.names[:edge] else [])


class HaScene:
    """The pair, the nodes and the clients."""

    def __init__(
        self,
        folder: Path,
        pair: Pair,
        machines: Sequence[Machine] = (Machine(), Machine()),
        ttl_s: float = TTL_S,
        settings: str = "",
    ) -> None:
        self.pair = pair
        self.database = Database(pair.dsn, f"ha_{os.getpid()}_{next(SCHEMAS)}")
        session = Session(self.database, "test")
        schema.create(session)
        session.close()
        ports = [pair.primary.port, pair.standby.port]
        self._forks = Forks()
        self.nodes = [
            HaNode(folder, name, self.database.schema, ports, machine, self._forks, ttl_s, settings)
            for name, machine in zip("ab", machines, strict=True)
        ]
        self.shard = Shard(self.database, "test")
        self.promoted_s = 0.0
        self.crashed_at: float | None = None  # when the owner of this round's beginning did not end properly
        self._rounds = count(1)

    def start(self) -> None:
        """Have both nodes run, one of them serve, and the other one know that.

        One that has been fenced and has not noticed yet would answer what needs no commit: to a message that no queue
        takes there, although the owner has such a queue by now.
        """
        self._start_missing()
        owner = self.wait_for_owner()
        wait_until(lambda: self.other(owner).stands_by_for(owner), "node that stands by")

    def _start_missing(self) -> None:
        for node in self.nodes:
            if not node.is_running:
                node.start()

    def wait_for_owner(self, other_than: str | None = None) -> HaNode:
        """Wait until a node serves, and answers."""

        def answers() -> bool:
            found = self.owner
            return found is not None and found.name != other_than and self._serves(found)

        wait_until(answers, f"owner (other than {other_than}): {[n.text()[-1500:] for n in self.nodes]}")
        owner = self.owner
        assert owner is not None
        return owner

    def _serves(self, node: HaNode) -> bool:
        found = node.ask("/api/cluster")
        return isinstance(found, dict) and found.get("node") == node.name and found.get("state") == "serving"

    @property
    def owner(self) -> HaNode | None:
        """The node in the row."""
        name = self.shard.observe().owner
        return next((node for node in self.nodes if node.name == name), None)

    @property
    def epoch(self) -> int:
        return self.shard.observe().epoch

    def other(self, node: HaNode) -> HaNode:
        return next(each for each in self.nodes if each is not node)

    @contextlib.contextmanager
    def load(
        self, *kinds: str, outcomes: list[Outcome], at: HaNode | None = None, pause_s: float = PAUSE_S
    ) -> Iterator[list[Publisher]]:
        """Publish by clients of these kinds, or of all; afterwards count what is there.

        They connect to both nodes in turn, or to one only, and pause between messages. `crashed_at` is when an owner
        did not end properly.
        """
        self.crashed_at = None
        number = next(self._rounds)
        names = {kind: f"{kind}{number}" for kind in kinds or KINDS}
        self._declare(names)
        places = [node.amqp for node in self.nodes if at in (None, node)]
        clients = [
            KINDS[kind](places[n % 2 :] + places[: n % 2], kind, name, pause_s)
            for n, (kind, name) in enumerate(names.items())
        ]
        for client in clients:
            client.start()
        try:
            wait_until(lambda: all(client.confirmed for client in clients), "first confirm of each client")
            yield clients
        finally:
            for client in clients:
                client.stop()
        self._start_missing()  # for the next round, while this one is counted
        for client in clients:
            client.join()
        outcomes.append(self._counted(clients))

    def all_confirm_again(
        self, clients: list[Publisher], since: float, patience_s: float = PATIENCE_S
    ) -> float:
        """Wait until each client was confirmed something after `since`; return how long the first one took."""
        ports = "all clients to be confirmed again"
        wait_until(
            lambda: all(max(client.confirmed.values()) > since for client in clients), ports, patience_s
        )
        after = [at for client in clients for at in client.confirmed.values() if at > since]
        return min(after) - since

    def lose_owner(
        self,
        outcomes: list[Outcome],
        lose: Callable[[HaNode], None],
        bring_back: Callable[[HaNode], None],
        away_s: float = 0.0,
    ) -> float:
        """Have the other node take over, and the old owner stand by when it is back, after at least `away_s`.

        Returns how long clients of the other node were not confirmed, in seconds.
        """
        owner, epoch = self.wait_for_owner(), self.epoch
        heir = self.other(owner)
        with self.load(outcomes=outcomes, at=heir) as clients:
            self.crashed_at = at = time.monotonic()
            lose(owner)
            try:
                assert self.wait_for_owner(other_than=owner.name) is heir
                took_s = self.all_confirm_again(clients, at + 1) + 1
                time.sleep(max(0.0, at + away_s - time.monotonic()))
            finally:
                bring_back(owner)
            wait_until(lambda: owner.stands_by_for(heir), "old owner that stands by")
        assert self.epoch == epoch + 1
        return took_s

    def kill_owner(self, clients: list[Publisher]) -> None:
        """Kill the node that serves, and wait until all clients are confirmed again by the other."""
        owner = self.wait_for_owner()
        self.crashed_at = time.monotonic()
        owner.kill()
        self.all_confirm_again(clients, time.monotonic())

    def _declare(self, names: dict[str, str]) -> None:
        with self._channel() as channel:
            for kind, name in names.items():
                arguments = {"x-queue-type": "stream"} if kind == "stream" else {}
                channel.queue_declare(name, durable=True, arguments=arguments)

    def _counted(self, clients: list[Publisher]) -> Outcome:
        found: list[Found] = []
        with self._channel() as channel:
            for client in clients:
                found.append(self._content(channel, client))
                channel.queue_delete(client.queue)
        confirmed = {name: at for client in clients for name, at in client.confirmed.items()}
        there = {name for each in found for name in each.names}
        times = sorted(confirmed.values())
        return Outcome(
            len(confirmed),
            sorted(confirmed.keys() - there),
            len(there - confirmed.keys()),
            max((b - a for a, b in pairwise(times)), default=0.0),
            sum(client.opened for client in clients),
            [name for each in found for name in each.disordered()],
            [name for each in found for name in each.misflagged(self.crashed_at)],
            sum(sum(each.flags) for each in found),
        )

    def _content(
        self, channel: pika.adapters.blocking_connection.BlockingChannel, client: Publisher
    ) -> Found:
        """All messages of a queue, in its order."""
        queue = client.queue
        count = channel.queue_declare(queue, passive=True).method.message_count
        arguments = {"x-stream-offset": "first"} if client.kind == "stream" else {}
        channel.basic_qos(prefetch_count=1000)
        names: list[str] = []
        flags: list[bool] = []
        for method, _, body in channel.consume(queue, inactivity_timeout=5, arguments=arguments):
            if body is None:
                break
            channel.basic_ack(method.delivery_tag)
            names.append(body.decode())
            flags.append(method.redelivered)
            if len(names) == count:
                break
        channel.cancel()
        return Found(client, names, flags)

    @contextlib.contextmanager
    def _channel(self) -> Iterator[pika.adapters.blocking_connection.BlockingChannel]:
        owner = self.wait_for_owner()
        connection = connected(owner.amqp)
        try:
            yield connection.channel()
        finally:
            connection.close()

    def promote(self) -> None:
        """Make the standby the primary, and give it a standby of its own."""
        began = time.monotonic()
        standby = self.pair.standby
        standby.promote()
        standby.ask("alter system set synchronous_standby_names = 'again'")
        standby.ask("select pg_reload_conf()")
        bin_ = programs()
        assert bin_ is not None
        third = Server(self.pair.folder / "third", free_port())
        copy = [bin_ / "pg_basebackup", "-D", third.folder, "-R", "-c", "fast", "-N"]
        run([*copy, "-d", f"{standby.dsn} application_name=again"], self.pair.folder)
        third.start()
        self.pair.primary, self.pair.standby = standby, third
        self.pair.wait()
        self.shard.close()
        self.database = Database(standby.dsn, self.database.schema)
        self.shard = Shard(self.database, "test")
        self.promoted_s = time.monotonic() - began

    def fill_database(self) -> None:
        """Have every commit with messages fail as PostgreSQL's do when its disk is full."""
        self._execute(*FULL)

    def empty_database(self) -> None:
        self._execute("drop function {s}.is_full cascade")

    def _execute(self, *texts: str) -> None:
        session = Session(self.database, "test")
        with session.connection.transaction():
            for text in texts:
                session.connection.execute(session.statement(text))
        session.close()

    def end(self) -> None:
        for node in self.nodes:
            node.end()
        self._forks.end()
        self.shard.close()


def at_once(*functions: Callable[[], object]) -> list[object]:
    """What functions return that begin at the same moment, each in a thread."""
    results: list[object] = [None] * len(functions)
    gate = threading.Barrier(len(functions))

    def run(at: int) -> None:
        gate.wait()
        results[at] = functions[at]()

    threads = [threading.Thread(target=run, args=(at,)) for at in range(len(functions))]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    return results
