"""Brokers to measure, each started fresh on a port of its own and stopped afterwards."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import attrs

import leveret as package

DESCRIBE = [sys.executable, "-c", "from setuptools import setup; setup()", "-q", "egg_info", "--egg-base"]
START_S = 600.0  # for a broker to accept connections, perhaps with 100,000 queues, on a busy machine
STOP_S = 300.0  # for it to end
ROOT = Path(__file__).resolve().parents[1]
TREE = Path(package.__file__).resolve().parents[1]  # what is measured, perhaps compiled
RABBITMQ = Path("/usr/lib/rabbitmq/bin/rabbitmq-server")  # what Debian's script runs as a user of its own
MOSQUITTO = shutil.which("mosquitto") or "/usr/sbin/mosquitto"  # not on the path of users
AMQP_HELLO = b"AMQP\x00\x00\x09\x01"
MQTT_HELLO = b"\x10\x13\0\x04MQTT\x04\x02\0\0\0\x07waiting"  # a CONNECT of 3.1.1
SERVE = "import sys; from leveret.server.cli import main; sys.exit(main())"


@attrs.frozen
class Running:
    """A broker that accepts connections on `port`; `process` is its main process."""

    name: str
    port: int
    process: int


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@contextlib.contextmanager
def leveret(
    *flags: str,
    name: str = "Leveret",
    tree: Path = TREE,
    configured_port: int | None = None,
    group: Path | None = None,
) -> Iterator[Running]:
    """Run this project's node, with its defaults except for the ports; `tree` is a source folder, perhaps older.

    `configured_port` is the one that a configuration among the flags gives; the node runs in the control `group`.
    """
    port = configured_port or free_port()
    listen = [] if configured_port else ["--listen", f"127.0.0.1:{port}"]
    command = [
        sys.executable,
        "-P",
        "-c",
        SERVE,
        "serve",
        *listen,
        "--http",
        f"127.0.0.1:{free_port()}",
        *flags,
    ]
    if group is not None:  # it joins before there is an interpreter
        command = ["sh", "-c", 'echo $$ > "$0"; exec "$@"', str(group / "cgroup.procs"), *command]
    with _path(tree.resolve()) as path, _process(command, {"PYTHONPATH": path}, port) as process:
        yield Running(name, port, process)


@contextlib.contextmanager
def _path(tree: Path) -> Iterator[str]:
    """Return PYTHONPATH for that version, with its entry points: the installed ones name the front-ends of this one."""
    if tree == ROOT or not (tree / "pyproject.toml").exists():
        yield str(tree)
        return
    with tempfile.TemporaryDirectory() as told:
        subprocess.run([*DESCRIBE, told], cwd=tree, capture_output=True, check=True)
        subprocess.run([sys.executable, "setup.py", "-q", "link"], cwd=tree, capture_output=True, check=True)
        yield f"{tree / 'build/linked'}{os.pathsep}{told}"


def has_rabbitmq() -> bool:
    return shutil.which("rabbitmq-server") is not None


@contextlib.contextmanager
def rabbitmq(*plugins: str, settings: str = "") -> Iterator[Running]:
    """Run the system's RabbitMQ, with its defaults except for the port, its folders, the plug-ins and the settings."""
    port = free_port()
    name = f"bench{port}@localhost"
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o777)  # the package's wrapper runs the server as a user of its own
        enabled = Path(folder, "enabled_plugins")
        enabled.write_text(f"[{','.join(plugins)}].")
        configured = Path(folder, "rabbitmq.conf")
        configured.write_text(settings)
        environment = {
            "RABBITMQ_CONFIG_FILE": str(configured),
            "RABBITMQ_NODE_PORT": str(port),
            "RABBITMQ_NODENAME": name,
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_MNESIA_BASE": f"{folder}/data",
            "RABBITMQ_LOG_BASE": f"{folder}/log",
            "RABBITMQ_PID_FILE": f"{folder}/pid",
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(enabled),
        }
        try:
            with _rabbitmq_process(environment, port) as process:
                yield Running("RabbitMQ", port, process)
        finally:
            subprocess.run(["rabbitmqctl", "-n", name, "stop"], capture_output=True, check=False, timeout=60)


def _rabbitmq_process(environment: Mapping[str, str], port: int) -> contextlib.AbstractContextManager[int]:
    """Start the server. Debian's script would limit it to 1024 descriptors; root can avoid that."""
    if os.geteuid() == 0 and RABBITMQ.exists():
        home = pwd.getpwnam("rabbitmq").pw_dir
        return _process([str(RABBITMQ)], {**environment, "HOME": home}, port, user="rabbitmq")
    return _process(["rabbitmq-server"], environment, port)


@contextlib.contextmanager
def lavinmq() -> Iterator[Running]:
    """Run the LavinMQ on the path, with its defaults except for the ports and the folder."""
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        ports = ["--bind", "127.0.0.1", "--amqp-port", str(port), "--http-port", str(free_port())]
        with _process(["lavinmq", "--data-dir", folder, *ports], {}, port) as process:
            yield Running("LavinMQ", port, process)


def has_mosquitto() -> bool:
    return os.access(MOSQUITTO, os.X_OK)


@contextlib.contextmanager
def mosquitto(*settings: str) -> Iterator[Running]:
    """Run the system's mosquitto, with its defaults except for the port, anonymous clients and the settings."""
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)  # a server that root starts is a user of its own
        configured = Path(folder, "mosquitto.conf")
        lines = (f"listener {port} 127.0.0.1", "allow_anonymous true", "log_dest none", *settings)
        configured.write_text("\n".join(lines) + "\n")
        with _process([MOSQUITTO, "-c", str(configured)], {}, port, hello=MQTT_HELLO) as process:
            yield Running("mosquitto", port, process)


@contextlib.contextmanager
def _process(
    command: list[str],
    environment: Mapping[str, str],
    port: int,
    user: str | None = None,
    hello: bytes = AMQP_HELLO,
) -> Iterator[int]:
    quiet = subprocess.DEVNULL
    # What is installed has its bytecode beside it.
    kept = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    started = subprocess.Popen(
        command, env={**kept, **environment}, stdout=quiet, stderr=quiet, user=user, group=user
    )
    try:
        wait_for(port, hello)
        yield started.pid
    finally:
        started.terminate()
        started.wait(STOP_S)


def wait_for(port: int, hello: bytes = AMQP_HELLO) -> None:
    """Return once something answers these bytes on the port."""
    until = time.monotonic() + START_S
    while True:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=5) as probe:
                probe.sendall(hello)
                if probe.recv(8):
                    return
        except OSError:
            pass
        if time.monotonic() > until:
            raise SystemExit(f"nothing listens on port {port} after {START_S:.0f} s")
        time.sleep(0.002)


def resident_kib(process: int) -> int:
    """Return the memory of a process, without its children (Linux)."""
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") // 1024


def processor_s(process: int) -> float:
    """Return the processor time of a process so far, over all its threads (Linux)."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def family_processor_s(process: int) -> float:
    """Return the processor time of a process with its children: RabbitMQ's main process is a script (Linux)."""
    return sum(processor_s(each) for each in family(process))


def family(process: int) -> list[int]:
    """Return a process and those below it."""
    children = Path(f"/proc/{process}/task").glob("*/children")
    try:
        found = [int(each) for file in children for each in file.read_text().split()]
    except OSError:
        return [process]
    return [process, *(member for child in found for member in family(child))]


def peak_kib(process: int) -> int:
    """Return the most memory that a process ever had (Linux)."""
    status = Path(f"/proc/{process}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmHWM")).split()[1])
