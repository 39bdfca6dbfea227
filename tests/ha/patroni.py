"""A PostgreSQL pair that Patroni looks after, with an etcd of one member: from Debian's `patroni` and `etcd-server`.

Patroni runs each server, and promotes the synchronous standby when the key of the primary has expired in etcd: after
20 s, which is the least that it takes.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from tests.harness.postgres import POSTGRES, Pair, Server, account, free_port, programs

MISSING = "needs Patroni and etcd; as root: apt-get install patroni etcd-server"
PROGRAMS = ("patroni", "etcd")
TTL_S = 20
PATIENCE_S = 120
LEADER, SYNCHRONOUS = ("master", "leader", "primary"), "sync_standby"


class Patroni:
    """One server with the Patroni that runs it."""

    def __init__(self, folder: Path, name: str, etcd: int) -> None:
        self.name = name
        self.port, self.api = free_port(), free_port()
        self.folder = folder / name
        self._log = folder / f"{name}.log"
        self._file = folder / f"{name}.json"  # which is YAML as well
        self._file.write_text(json.dumps(self._settings(etcd)))
        self._process: subprocess.Popen[bytes] | None = None

    def _settings(self, etcd: int) -> dict[str, object]:
        login = {"username": POSTGRES, "password": "none"}
        parameters = {
            "max_connections": 80,
            "shared_buffers": "64MB",
            "unix_socket_directories": str(self.folder.parent),
        }
        return {
            "scope": "leveret",
            "name": self.name,
            "restapi": {"listen": f"127.0.0.1:{self.api}", "connect_address": f"127.0.0.1:{self.api}"},
            "etcd3": {"host": f"127.0.0.1:{etcd}"},
            "bootstrap": {
                "dcs": {
                    "ttl": TTL_S,
                    "loop_wait": 2,
                    "retry_timeout": 3,
                    "synchronous_mode": True,
                    "synchronous_mode_strict": True,
                    "postgresql": {"use_pg_rewind": True, "parameters": parameters},
                },
                "initdb": ["no-sync", "no-locale", {"encoding": "UTF8"}, {"auth": "trust"}],
            },
            "postgresql": {
                "listen": f"127.0.0.1:{self.port}",
                "connect_address": f"127.0.0.1:{self.port}",
                "data_dir": str(self.folder),
                "bin_dir": str(programs()),
                "pgpass": str(self.folder.parent / f"{self.name}.pgpass"),
                "authentication": {"superuser": login, "replication": login, "rewind": login},
                "pg_hba": [
                    "local all all trust",
                    "host all all 127.0.0.1/32 trust",
                    "host replication all 127.0.0.1/32 trust",
                ],
            },
        }

    def start(self) -> None:
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                ["patroni", self._file], stdout=log, stderr=log, user=account(), cwd=self.folder.parent
            )

    def kill(self) -> None:
        """End it, and its server, as a machine that loses its power does."""
        server = Server(self.folder, self.port)
        assert self._process is not None
        self._process.kill()
        server.kill()
        self._process.wait()

    def stop(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(20)
            except subprocess.TimeoutExpired:
                self.kill()

    def role(self) -> str:
        """Return what it is now; empty if it does not answer."""
        line = http.client.HTTPConnection("127.0.0.1", self.api, timeout=2)
        with contextlib.suppress(OSError, http.client.HTTPException, ValueError):
            line.request("GET", "/patroni")
            told = json.loads(line.getresponse().read())
            line.close()
            return SYNCHRONOUS if told.get("sync_standby") else str(told.get("role", ""))
        line.close()
        return ""


class PatroniPair(Pair):
    """A primary and a synchronous standby; either may be either."""

    def __init__(self) -> None:
        """Start all of it, and wait until commits are replicated."""
        folder = Path(tempfile.mkdtemp(prefix="leveret-patroni-", dir="/tmp"))
        folder.chmod(0o755)
        if user := account():
            shutil.chown(folder, user)
        port, peers = free_port(), f"http://127.0.0.1:{free_port()}"
        clients = f"http://127.0.0.1:{port}"
        with (folder / "etcd.log").open("ab") as log:
            self._etcd = subprocess.Popen(
                ["etcd", "--name", "one", "--data-dir", folder / "etcd", "--listen-client-urls", clients,
                 "--advertise-client-urls", clients, "--listen-peer-urls", peers,
                 "--initial-advertise-peer-urls", peers, "--initial-cluster", f"one={peers}"],
                stdout=log, stderr=log, user=account(), cwd=folder,
            )  # fmt: skip
        self.members = [Patroni(folder, name, port) for name in ("primary", "standby")]  # at the beginning
        super().__init__(folder, *(each.port for each in self.members))
        for each in self.members:
            each.start()
        self.wait()

    @property
    def dsn(self) -> str:
        ports = ",".join(str(each.port) for each in self.members)
        return f"host=127.0.0.1,127.0.0.1 port={ports} user={POSTGRES} dbname=postgres target_session_attrs=read-write"

    def leader(self) -> Patroni | None:
        return next((each for each in self.members if each.role() in LEADER), None)

    def is_led_by_another(self, leader: Patroni) -> bool:
        """Return whether there is a primary, which is not this one."""
        return self.leader() not in (None, leader)

    def is_replicated(self) -> bool:
        """Return whether the primary has a synchronous standby, without which nothing is committed."""
        leader = self.leader()
        asked = "select count(*) from pg_stat_replication where sync_state = 'sync'"
        return leader is not None and Server(leader.folder, leader.port)._answers(asked) == "1"

    def wait(self) -> None:
        """Wait until there are a primary and a synchronous standby."""
        self._wait(
            lambda: {each.role() for each in self.members} >= {SYNCHRONOUS} and self.leader() is not None
        )

    def _wait(self, done: Callable[[], bool]) -> None:
        end = time.monotonic() + PATIENCE_S
        while not done():
            assert time.monotonic() < end, f"see {self.folder}"
            time.sleep(0.2)

    def end(self) -> None:
        for each in self.members:
            each.stop()
        self._etcd.send_signal(signal.SIGTERM)
        self._etcd.wait()
        if "HA_KEEP" not in os.environ:
            shutil.rmtree(self.folder, ignore_errors=True)
