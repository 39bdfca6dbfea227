"""A PostgreSQL with a synchronous standby in a temporary folder, from Debian's package `postgresql`.

One pair serves all workers of a run. The servers run as the user `postgres` where the tests run as root, as PostgreSQL
refuses root. A test gets a schema of its own, which is quick to make and to drop.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

import pytest

from leveret.server.cluster import trial
from leveret.server.cluster.trial import POSTGRES, account

if TYPE_CHECKING:
    from leveret.durable.store.postgres.session import Database, Session

START_S: Final = 30.0
STANDBY: Final = "standby"
HERE: Final = "127.0.0.1"
MISSING: Final = "needs PostgreSQL's servers; as root: apt-get install postgresql"
QUICK: Final = (
    "shared_buffers=64MB", "max_connections=80", "wal_level=replica", "max_wal_senders=8", "hot_standby=on",
    "wal_receiver_status_interval=1s", "wal_retrieve_retry_interval=100ms", "logging_collector=off",
    "log_min_messages=warning", "log_checkpoints=off", "max_wal_size=512MB", "min_wal_size=80MB",
)  # fmt: skip


def programs() -> Path | None:
    """The folder of PostgreSQL's programs, where there is one."""
    try:
        return trial.programs()
    except trial.TrialError:
        return None


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def run(command: list[Path | str], folder: Path) -> None:
    """Run one of PostgreSQL's programs as the servers' user, in a folder that this may read."""
    subprocess.run(
        command, check=True, user=account(), cwd=folder, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL
    )


class Server:
    """One server, by its data folder and port. It may run in another process than this one."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder = folder
        self.port = port

    @property
    def dsn(self) -> str:
        """A connection string for the database `postgres`, over TCP."""
        return f"host={HERE} port={self.port} user={POSTGRES} dbname=postgres"

    def start(self, *settings: str) -> None:
        """Start it, and wait until it answers."""
        bin_ = programs()
        assert bin_ is not None, MISSING
        options = [f"-p {self.port}", f"-k {self.folder.parent}", f"-c listen_addresses={HERE}"]
        options += [f"-c {each}" for each in (*QUICK, *settings)]
        command = [bin_ / "pg_ctl", "start", "-W", "-s", "-D", self.folder, "-l", f"{self.folder}.log"]
        run([*command, "-o", " ".join(options)], self.folder.parent)
        self._wait(lambda: self._answers("select 1") == "1")

    @property
    def pid(self) -> int:
        return int((self.folder / "postmaster.pid").read_text().splitlines()[0])

    def processes(self) -> list[int]:
        """The postmaster, and all of its children."""
        found = [self.pid]
        for each in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError, ValueError):
                if int(each.read_text().rpartition(")")[2].split()[1]) == found[0]:
                    found.append(int(each.parent.name))
        return found

    def pause(self) -> None:
        """Freeze it: its connections stay, and nothing answers."""
        self._tell(signal.SIGSTOP)

    def go_on(self) -> None:
        self._tell(signal.SIGCONT)

    def kill(self) -> None:
        """End it as a machine that loses its power does, except that the disk keeps what was written."""
        self._tell(signal.SIGKILL)

    def stop(self) -> None:
        """End it at once, without a checkpoint."""
        with contextlib.suppress(OSError, ValueError):
            os.kill(self.pid, signal.SIGQUIT)
            self._wait(lambda: not (self.folder / "postmaster.pid").exists())

    def promote(self) -> None:
        """Make a primary of a standby."""
        self.ask("select pg_promote(true, 30)")

    def ask(self, sql: str, database: str = POSTGRES) -> str:
        """The first value that a statement returns, as text; the connection is closed again."""
        import psycopg

        with psycopg.connect(self.dsn, dbname=database, autocommit=True, connect_timeout=5) as connection:
            found = connection.execute(sql.encode())
            row = found.fetchone() if found.description else None
        return "" if row is None else str(row[0])

    def _answers(self, sql: str) -> str:
        try:
            return self.ask(sql)
        except Exception:
            return ""

    def _tell(self, number: int) -> None:
        for each in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(each, number)

    def _wait(self, done: Callable[[], bool]) -> None:
        end = time.monotonic() + START_S
        while not done():
            assert time.monotonic() < end, f"see {self.folder}.log"
            time.sleep(0.02)


class Pair:
    """A primary, and a standby that each of its commits waits for."""

    def __init__(self, folder: Path, primary_port: int, standby_port: int) -> None:
        self.folder = folder
        self.primary = Server(folder / "primary", primary_port)
        self.standby = Server(folder / "standby", standby_port)

    @classmethod
    def made(cls, seen_at: str = "") -> Pair:
        """Make one in a new folder, and start it.

        `seen_at` is an address of this machine at which the standby is to reach the primary; then the primary listens
        on all addresses, and trusts everybody.
        """
        bin_ = programs()
        assert bin_ is not None, MISSING
        folder = Path(tempfile.mkdtemp(prefix="leveret-pg-", dir="/tmp"))
        folder.chmod(0o755)
        if user := account():
            shutil.chown(folder, user)
        pair = cls(folder, free_port(), free_port())
        initdb = [bin_ / "initdb", "-D", pair.primary.folder, "-A", "trust", "-U", POSTGRES, "-N"]
        run([*initdb, "--no-locale", "-E", "UTF8"], folder)
        if seen_at:
            with (pair.primary.folder / "pg_hba.conf").open("a") as rules:
                rules.write("host all,replication all 0.0.0.0/0 trust\n")
        pair.primary.start(*["listen_addresses=*"] if seen_at else [])
        copy = [bin_ / "pg_basebackup", "-D", pair.standby.folder, "-R", "-c", "fast", "-N"]
        seen = pair.primary.dsn.replace(HERE, seen_at or HERE)
        copy += ["-d", f"{seen} application_name={STANDBY}"]
        run(copy, folder)
        pair.standby.start()
        pair.require(STANDBY)
        return pair

    def wait(self) -> None:
        """Wait until commits are replicated."""
        asked = "select count(*) from pg_stat_replication where sync_state = 'sync'"
        self.primary._wait(lambda: self.primary._answers(asked) == "1")

    def require(self, standby: str) -> None:
        """Have each commit wait for a standby with this name, or for none, and wait until that is so."""
        self.primary.ask(f"alter system set synchronous_standby_names = '{standby}'")
        self.primary.ask("select pg_reload_conf()")
        if standby:
            self.wait()
        else:
            self.primary._wait(lambda: self.primary._answers("show synchronous_standby_names") == "")

    @property
    def dsn(self) -> str:
        return self.primary.dsn

    def end(self) -> None:
        """Stop both, and remove their folder."""
        for server in (self.standby, self.primary):
            with contextlib.suppress(OSError, ValueError):
                server.go_on()
            server.stop()
        shutil.rmtree(self.folder, ignore_errors=True)


class SmallDisk:
    """A server whose new tables are on a disk of some MiB, as far as sessions connect with `dsn`."""

    def __init__(self, server: Server) -> None:
        self.server = server

    @classmethod
    @contextlib.contextmanager
    def made(cls, octets: int = 48 << 20) -> Iterator[SmallDisk]:
        bin_ = programs()
        assert bin_ is not None, MISSING
        folder = Path(tempfile.mkdtemp(prefix="leveret-pg-", dir="/tmp"))
        folder.chmod(0o755)
        disk = folder / "disk"
        disk.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={octets}", "tmpfs", disk], check=True)
        try:
            for each in (folder, disk):
                shutil.chown(each, account())
            server = Server(folder / "server", free_port())
            initdb = [bin_ / "initdb", "-D", server.folder, "-A", "trust", "-U", POSTGRES, "-N"]
            run([*initdb, "--no-locale", "-E", "UTF8"], folder)
            server.start("autovacuum_naptime=1s")
            try:
                server.ask(f"create tablespace small location '{disk}'")
                yield cls(server)
            finally:
                server.stop()
        finally:
            subprocess.run(["umount", disk], check=True)
            shutil.rmtree(folder, ignore_errors=True)

    @property
    def dsn(self) -> str:
        return f"{self.server.dsn} options='-c default_tablespace=small'"

    def fill(self) -> None:
        """Fill the disk up, as somebody else's table does: nothing has room for another page."""
        import psycopg

        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute("create table if not exists ballast (octets bytea)")
            connection.execute("alter table ballast alter octets set storage plain")
            rows = 256
            while rows:
                try:
                    connection.execute(
                        "insert into ballast select decode(repeat('00', 8000), 'hex') from generate_series(1, %s)",
                        [rows],
                    )
                except psycopg.errors.DiskFull:
                    rows //= 4

    def give_back(self) -> None:
        """Give back what filled the disk."""
        self.server.ask("drop table if exists ballast")
        self.server.ask("checkpoint")


@contextlib.contextmanager
def shared(folder: Path) -> Iterator[Pair]:
    """The pair of a run: the first process that asks makes it, the last one that leaves ends it.

    `folder` is the same for all processes of the run.
    """
    note, lock = folder / "postgres.json", folder / "postgres.lock"

    @contextlib.contextmanager
    def noted() -> Iterator[dict[str, object]]:
        with lock.open("w") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            known = json.loads(note.read_text()) if note.exists() else {"users": 0}
            yield known
            note.write_text(json.dumps(known))

    with noted() as known:
        if not known["users"]:
            made = Pair.made()
            known |= {"folder": str(made.folder), "ports": [made.primary.port, made.standby.port]}
        known["users"] = int(str(known["users"])) + 1
        ports = known["ports"]
        assert isinstance(ports, list)
        pair = Pair(Path(str(known["folder"])), *ports)
    try:
        yield pair
    finally:
        with noted() as known:
            known["users"] = int(str(known["users"])) - 1
            if not known["users"]:
                pair.end()


# Fixtures.


@pytest.fixture(scope="session")
def postgres_pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """A pair for tests that leave it as it was: it is shared by all workers."""
    need_postgres()
    base = tmp_path_factory.getbasetemp()
    with shared(base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base) as pair:
        yield pair


@pytest.fixture
def own_pair() -> Iterator[Pair]:
    """A pair for a test that kills servers: nobody else uses it."""
    need_postgres()
    pair = Pair.made()
    yield pair
    pair.end()


@pytest.fixture(scope="session")
def small_disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmallDisk]:
    """A server without a standby, whose tables may be on a small disk; only root can make one."""
    need_postgres()
    if os.geteuid():
        pytest.skip("only root can mount a file system")
    with SmallDisk.made() as made:
        yield made


@pytest.fixture
def small_database(small_disk: SmallDisk) -> Iterator[Database]:
    """An empty store on the small disk."""
    with schema_in(small_disk) as made:
        yield made
    small_disk.give_back()


@pytest.fixture(scope="session")
def schema_of_worker(postgres_pair: Pair) -> Iterator[Database]:
    """A schema for the tests of this process, one after the other."""
    with schema_in(postgres_pair) as made:
        yield made


@pytest.fixture(scope="session")
def turn(postgres_pair: Pair) -> Iterator[IO[str]]:
    """A file whose lock the tests share that use the pair, but for one that interferes with it."""
    with (postgres_pair.folder / "turn").open("w") as opened:
        yield opened


@pytest.fixture
def database(schema_of_worker: Database, turn: IO[str]) -> Iterator[Database]:
    """An empty store in the shared pair."""
    from leveret.durable.store.postgres.session import Session

    fcntl.flock(turn, fcntl.LOCK_SH)
    yield schema_of_worker
    session = Session(schema_of_worker, "test")
    empty(session)
    session.close()
    fcntl.flock(turn, fcntl.LOCK_UN)


@pytest.fixture
def pair_alone(database: Database, postgres_pair: Pair, turn: IO[str]) -> Pair:
    """The shared pair, for a test that interferes with it, and leaves it as it was: no other test uses it now."""
    fcntl.flock(turn, fcntl.LOCK_EX)
    return postgres_pair


def sessions(asked: Session, condition: str, *values: str) -> list[int]:
    """The server's processes for stores and nodes of this schema, not for those of other tests in the same server.

    `condition` is of their rows in pg_stat_activity.
    """
    from leveret.durable.store.postgres.session import application_name

    prefix = application_name(asked.database, "", 0).removesuffix(":0")
    text = f"select pid from pg_stat_activity where application_name like %s and {condition}"
    return [int(str(pid)) for (pid,) in asked.rows(text, f"{prefix}%", *values)]


def empty(session: Session) -> None:
    """Have a schema as it was made: a transaction with a few rows to delete is quicker than a new one."""
    from leveret.durable.store.postgres import schema

    with session.connection.transaction():
        for name in TABLES:
            session.connection.execute(session.statement(f"delete from {{s}}.{name}"))
        session.done("insert into {s}.format values (%s)", schema.VERSION)
        session.done("insert into {s}.shard (id) values (%s)", schema.SHARD)


TABLES: Final = (
    "format", "shard", "commits", "objects", "chunks", "settled", "marks", "segments", "blocks", "producers",
)  # fmt: skip
SCHEMAS: Final = count(1)


@contextlib.contextmanager
def schema_in(pair: Pair | SmallDisk) -> Iterator[Database]:
    """An empty store in a schema of its own, which is dropped at the end."""
    from leveret.durable.store.postgres import schema
    from leveret.durable.store.postgres.session import Database, Session

    made = Database(pair.dsn, f"test_{os.getpid()}_{next(SCHEMAS)}")
    session = Session(made, "test")
    try:
        schema.create(session)
        yield made
        session.connection.execute(session.statement("drop schema {s} cascade"))
    finally:
        session.close()


def need_postgres() -> None:
    """Skip the test without PostgreSQL, which on a build server is a failure."""
    if programs() is None:
        if os.environ.get("CI"):
            pytest.fail(MISSING)
        pytest.skip(MISSING)
