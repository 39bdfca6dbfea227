"""Make a cluster to try in a temporary folder: a PostgreSQL with a synchronous standby, and two nodes.

The servers listen on Unix domain sockets in a folder that only their user can enter. As root they run as the user
`postgres`, since PostgreSQL refuses root. Everything ends, and the folder goes, when the trial does.
"""

from __future__ import annotations

import contextlib
import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Final

import attrs

START_S: Final = 60.0
LOOK_S: Final = 0.05
END_S: Final = 10.0
RESTART_S: Final = 3.0  # after which a node that was killed is started again
POSTGRES: Final = "postgres"
MISSING: Final = (
    "PostgreSQL's servers are not here; Debian and Ubuntu: apt-get install postgresql; "
    "macOS: brew install postgresql; or put initdb on the PATH"
)
QUICK: Final = ("shared_buffers=64MB", "max_connections=60", "wal_level=replica", "listen_addresses=")
NODES: Final = (("a", 5672, 15672, 5680), ("b", 5673, 15673, 5681))  # AMQP, HTTP, cluster


class TrialError(Exception):
    """The trial cannot be set up; the text says why, and what can be done."""


@attrs.frozen
class TrialNode:
    """One node of a trial."""

    name: str
    pid: int
    amqp: int  # ports
    http: int


def programs() -> Path:
    """Return the folder of PostgreSQL's programs, of the newest version. Raises TrialError."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda each: int(each.parts[4]))
    if found:
        return found[-1].parent
    on_path = shutil.which("initdb")
    if on_path is None:
        raise TrialError(MISSING)
    return Path(on_path).resolve().parent


def account() -> str | None:
    """Return the user that the servers run as; None: the one that runs this program. Raises TrialError."""
    if os.getuid():
        return None
    try:
        return pwd.getpwnam(POSTGRES).pw_name
    except KeyError:
        raise TrialError(
            "PostgreSQL does not run as root, and there is no user postgres: try as a user"
        ) from None


class DatabasePair:
    """A PostgreSQL server with a standby that each of its commits waits for."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._bin = programs()
        self._user = account()
        self._ports = (5432, 5433)  # names of sockets only

    @property
    def dsn(self) -> str:
        """Return a connection string for whichever server is the primary."""
        hosts = ",".join(str(self._folder) for _ in self._ports)
        ports = ",".join(map(str, self._ports))
        return f"host={hosts} port={ports} user={POSTGRES} dbname={POSTGRES} target_session_attrs=read-write"

    def start(self) -> None:
        """Make both servers, and start them. Raises TrialError."""
        self._folder.mkdir(mode=0o700)
        if self._user is not None:
            shutil.chown(self._folder, self._user)
        primary, standby = self._folder / "primary", self._folder / "standby"
        auth = ("-A", "trust", "-U", POSTGRES, "-N", "--no-locale", "-E", "UTF8")
        self._run(self._bin / "initdb", "-D", primary, *auth)
        self._start(primary, self._ports[0], "synchronous_standby_names=standby")
        here = f"host={self._folder} port={self._ports[0]} user={POSTGRES} application_name=standby"
        self._run(self._bin / "pg_basebackup", "-D", standby, "-R", "-c", "fast", "-N", "-d", here)
        self._start(standby, self._ports[1])

    def stop(self) -> None:
        """End both servers, at once."""
        for name in ("standby", "primary"):
            with contextlib.suppress(TrialError):
                self._run(self._bin / "pg_ctl", "stop", "-D", self._folder / name, "-m", "immediate", "-s")

    def _start(self, data: Path, port: int, *more: str) -> None:
        settings = " ".join(f"-c {each}" for each in (*QUICK, *more))
        options = f"-p {port} -k {self._folder} {settings}"
        log = self._folder / f"{data.name}.log"
        self._run(self._bin / "pg_ctl", "start", "-w", "-s", "-D", data, "-l", log, "-o", options)

    def _run(self, *command: Path | str) -> None:
        done = subprocess.run(
            command,
            user=self._user,
            cwd=self._folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise TrialError(f"{Path(command[0]).name} failed: {done.stderr.strip() or done.stdout.strip()}")


class Trial:
    """A database and two nodes, for as long as the `with` block lasts."""

    def __init__(self, tell: Callable[[str], None] = print) -> None:
        """`tell` is given a line about each step. Raises TrialError before anything is made."""
        programs(), account()
        self._tell = tell
        self.folder = Path(tempfile.mkdtemp(prefix="leveret-try-"))
        self.folder.chmod(0o711)  # the servers' user passes through
        self.database = DatabasePair(self.folder / "postgres")
        self._nodes: dict[str, subprocess.Popen[bytes]] = {}
        self._ports: dict[str, tuple[int, int, int]] = {}
        self._ended: dict[str, float] = {}  # nodes that have ended, and when

    def __enter__(self) -> Trial:
        try:
            self._tell("making PostgreSQL and its synchronous standby ...")
            self.database.start()
            self._make_store()
            self._tell("starting the nodes a and b ...")
            for name, *ports in NODES:
                amqp, http, cluster = map(free, ports)
                self._ports[name] = amqp, http, cluster
                self._configure(name)
                self._start(name)
            self._wait()
        except BaseException:
            self.__exit__()
            raise
        self._note()
        return self

    def __exit__(self, *error: object) -> None:
        forget(self.folder)
        for node in self._nodes.values():
            node.terminate()
        for node in self._nodes.values():
            try:
                node.wait(END_S)
            except subprocess.TimeoutExpired:
                node.kill()
                node.wait()
        self.database.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def nodes(self) -> list[TrialNode]:
        return [
            TrialNode(name, node.pid, self._ports[name][0], self._ports[name][1])
            for name, node in self._nodes.items()
        ]

    def look_after(self, now: float) -> None:
        """Start nodes again that have ended a while ago. `now` is monotonic seconds."""
        for name, node in self._nodes.items():
            if node.poll() is None:
                continue
            ended = self._ended.setdefault(name, now)
            if now - ended >= RESTART_S:
                del self._ended[name]
                self._tell(f"starting node {name} again")
                self._start(name)
                self._note()
                return

    def _make_store(self) -> None:
        from leveret.durable.store.postgres import schema
        from leveret.durable.store.postgres.session import Database, Session

        session = Session(Database(self.database.dsn), "leveret-try")
        try:
            schema.create(session)
        finally:
            session.close()

    def _configure(self, name: str) -> None:
        amqp, http, cluster = self._ports[name]
        lines = (
            "[node]", f"data_dir = {json.dumps(str(self.folder / name))}",
            "[store]", 'engine = "postgres"', "[store.postgres]", f"dsn = {json.dumps(self.database.dsn)}",
            "[cluster]", 'name = "try"', f'node = "{name}"', f'address = "127.0.0.1:{cluster}"',
            "[[listeners]]", f'address = "127.0.0.1:{amqp}"',
            "[http]", f'address = "127.0.0.1:{http}"',
            "[log.levels]", 'http = "warning"',
        )  # fmt: skip
        (self.folder / f"{name}.toml").write_text("\n".join(lines) + "\n")

    def _start(self, name: str) -> None:
        file = self.folder / f"{name}.toml"
        command = [sys.executable, "-m", "leveret", "serve", "--config", str(file)]
        with (self.folder / f"{name}.log").open("ab") as log:
            self._nodes[name] = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True
            )

    def _wait(self) -> None:
        """Wait until one node serves, and both accept connections. Raises TrialError."""
        until = time.monotonic() + START_S
        waiting = {name: ports[0] for name, ports in self._ports.items()}
        while waiting:
            for name, port in list(waiting.items()):
                if self._nodes[name].poll() is not None:
                    raise TrialError(f"node {name} has ended:\n{(self.folder / f'{name}.log').read_text()}")
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                    del waiting[name]
            if time.monotonic() > until:
                raise TrialError(f"the nodes do not start; see {self.folder}")
            time.sleep(LOOK_S)

    def _note(self) -> None:
        """Write down where the nodes are, for `leveret cluster failover --kill`."""
        content = {"folder": str(self.folder), "nodes": [attrs.asdict(each) for each in self.nodes]}
        note = note_file()
        note.write_text(json.dumps(content))
        note.chmod(0o600)


def note_file() -> Path:
    """Return the file that says where the trial of this user is."""
    folder = os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()
    return Path(folder) / f"leveret-try-{os.getuid()}.json"


def forget(folder: Path) -> None:
    """Remove the note of a trial, unless it is another's."""
    with contextlib.suppress(OSError, ValueError, KeyError):
        if json.loads(note_file().read_text())["folder"] == str(folder):
            note_file().unlink()


def noted() -> list[TrialNode]:
    """Return the nodes of the trial that runs. Raises TrialError if there is none."""
    note = note_file()
    try:
        if note.stat().st_uid != os.getuid():
            raise TrialError(f"{note} belongs to another user")
        return [TrialNode(**each) for each in json.loads(note.read_text())["nodes"]]
    except (OSError, ValueError, KeyError, TypeError):
        raise TrialError("no trial runs here: start `leveret cluster try` in another terminal") from None


def free(wanted: int) -> int:
    """Return a port that nothing listens on: the wanted one, if it is free."""
    for port in (wanted, 0):
        with socket.socket() as taken, contextlib.suppress(OSError):
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            taken.bind(("127.0.0.1", port))
            return int(taken.getsockname()[1])
    raise TrialError("no port is free")


def kill(nodes: Iterable[TrialNode], name: str) -> None:
    """End a node as a machine that loses its power does."""
    for each in nodes:
        if each.name == name:
            os.kill(each.pid, signal.SIGKILL)
