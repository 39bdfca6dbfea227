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
from collections.abc import Callable, Iterator
from itertools import count, pairwise
from pathlib import Path

import attrs
import pika

from broker_core.store.postgres import schema
from broker_core.store.postgres.session import Database, Session
from broker_core.store.postgres.shard import Shard
from tests.ha.freezer import Freezer
from tests.ha.publishers import KINDS, Publisher, connected
from tests.harness.postgres import Pair, Server, free_port, programs, run

ROOT = Path(__file__).parents[2]
PATIENCE_S = 40
TTL_S = 3.0
NODE = ("-m", "broker_core.cli")
SCHEMAS = count(1)
LOGIN = {"Authorization": "Basic Z3Vlc3Q6Z3Vlc3Q="}


def wait_until(done: Callable[[], bool], what: str, patience_s: float = PATIENCE_S) -> None:
    end = time.monotonic() + patience_s
    while not done():
        assert time.monotonic() < end, f"there is no {what}"
        time.sleep(0.02)


class HaNode:
    """One node, which reaches the database through a relay that can be frozen."""

    def __init__(self, folder: Path, name: str, pair: Pair, schema_name: str, ports: list[int]) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        self.relays = [Freezer(port) for port in ports]
        self.amqp, self.http, self.door = free_port(), free_port(), free_port()
        hosts, at = ",".join("127.0.0.1" for _ in ports), ",".join(str(each.port) for each in self.relays)
        dsn = f"host={hosts} port={at} user=postgres dbname=postgres target_session_attrs=read-write"
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
            address = "127.0.0.1:{self.door}"
            lease_ttl = {TTL_S}
            [[listeners]]
            address = "127.0.0.1:{self.amqp}"
            [http]
            address = "127.0.0.1:{self.http}"
            [protocols.amqp010]
            enabled = true
            [log.levels]
            http = "error"
            """
        )
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, program: tuple[str, ...] = NODE) -> None:
        command = [sys.executable, *program, "serve", "--config", str(self._file)]
        environ = {**os.environ, "PYTHONPATH": str(ROOT)}
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, cwd=ROOT, env=environ)

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
        line = http.client.HTTPConnection("127.0.0.1", self.http, timeout=3)
        with contextlib.suppress(OSError, http.client.HTTPException, ValueError):
            line.request(method, path, body, LOGIN)
            found = json.loads(line.getresponse().read())
            line.close()
            return found
        line.close()
        return None

    def is_ready(self) -> bool:
        found = self.ask("/api/health/checks/is-owner")
        return isinstance(found, dict) and "no node serves" not in str(found.get("reason", ""))

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


class HaScene:
    """The pair, the nodes and the clients."""

    def __init__(self, folder: Path, pair: Pair) -> None:
        self.pair = pair
        self.database = Database(pair.dsn, f"ha_{os.getpid()}_{next(SCHEMAS)}")
        session = Session(self.database, "test")
        schema.create(session)
        session.close()
        ports = [pair.primary.port, pair.standby.port]
        self.nodes = [HaNode(folder, name, pair, self.database.schema, ports) for name in "ab"]
        self.shard = Shard(self.database, "test")
        self.promoted_s = 0.0
        self._rounds = count(1)

    def start(self) -> None:
        """Have both nodes run, and one of them serve."""
        for node in self.nodes:
            if not node.is_running:
                node.start()
        self.wait_for_owner()
        wait_until(lambda: all(node.is_ready() for node in self.nodes), "readiness of both nodes")

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
        self, *kinds: str, outcomes: list[Outcome], at: HaNode | None = None
    ) -> Iterator[list[Publisher]]:
        """Publish by clients of these kinds, or of all; afterwards count what is there.

        They connect to both nodes in turn, or to one only.
        """
        number = next(self._rounds)
        names = {kind: f"{kind}{number}" for kind in kinds or KINDS}
        self._declare(names)
        ports = [node.amqp for node in self.nodes if at in (None, node)]
        clients = [
            KINDS[kind](ports[n % 2 :] + ports[: n % 2], name) for n, (kind, name) in enumerate(names.items())
        ]
        for client in clients:
            client.start()
        wait_until(lambda: all(client.confirmed for client in clients), "first confirm of each client")
        yield clients
        for client in clients:
            client.stop()
        for client in clients:
            client.join()
        outcomes.append(self._counted(clients, names))

    def all_confirm_again(self, clients: list[Publisher], since: float) -> float:
        """Wait until each client was confirmed something after `since`; return how long the first one took."""
        ports = "all clients to be confirmed again"
        wait_until(lambda: all(max(client.confirmed.values()) > since for client in clients), ports)
        after = [at for client in clients for at in client.confirmed.values() if at > since]
        return min(after) - since

    def _declare(self, names: dict[str, str]) -> None:
        with self._channel() as channel:
            for kind, name in names.items():
                arguments = {"x-queue-type": "stream"} if kind == "stream" else {}
                channel.queue_declare(name, durable=True, arguments=arguments)

    def _counted(self, clients: list[Publisher], names: dict[str, str]) -> Outcome:
        found: set[str] = set()
        with self._channel() as channel:
            for kind, name in names.items():
                found |= self._content(channel, name, kind == "stream")
                channel.queue_delete(name)
        confirmed = {name: at for client in clients for name, at in client.confirmed.items()}
        times = sorted(confirmed.values())
        pause_s = max((b - a for a, b in pairwise(times)), default=0.0)
        lost = sorted(confirmed.keys() - found)
        opened = sum(client.opened for client in clients)
        return Outcome(len(confirmed), lost, len(found - confirmed.keys()), pause_s, opened)

    def _content(
        self, channel: pika.adapters.blocking_connection.BlockingChannel, queue: str, is_stream: bool
    ) -> set[str]:
        """All messages of a queue, by name."""
        arguments = {"x-stream-offset": "first"} if is_stream else {}
        channel.basic_qos(prefetch_count=1000)
        found = set()
        for _, _, body in channel.consume(queue, inactivity_timeout=0.5, arguments=arguments):
            if body is None:
                break
            found.add(body.decode())
        channel.cancel()
        return found

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

    def end(self) -> None:
        for node in self.nodes:
            node.end()
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
