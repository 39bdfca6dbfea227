"""A node that a service manager starts: the sockets it is handed, and what it tells of itself."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from .served import ROOT, screen

pytestmark = pytest.mark.system

# As systemd does: the sockets from descriptor 3 on, and the number of the process that is to have them.
STARTER = """\
import os, sys
count = int(sys.argv[1])
for number, given in enumerate(map(int, sys.argv[2:2 + count])):
    os.dup2(given, 100 + number, inheritable=True)
for number in range(count):
    os.dup2(100 + number, 3 + number, inheritable=True)
    os.close(100 + number)
os.environ["LISTEN_PID"] = os.environ.get("LISTEN_PID", str(os.getpid()))
os.environ["LISTEN_FDS"] = str(count)
os.execv(sys.executable, [sys.executable, "-m", "leveret", "serve", *sys.argv[2 + count:]])
"""

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start() -> Iterator[Start]:
    started: list[subprocess.Popen[str]] = []

    def start(
        handed: Sequence[socket.socket], *flags: str, environ: Mapping[str, str] = {}
    ) -> subprocess.Popen[str]:
        numbers = [str(each.fileno()) for each in handed]
        node = subprocess.Popen(
            [sys.executable, "-c", STARTER, str(len(handed)), *numbers, *flags],
            env={**os.environ, **environ},
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            pass_fds=[each.fileno() for each in handed],
        )
        started.append(node)
        return node

    yield start
    for node in started:
        node.kill()
        node.communicate()


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[socket.socket]:
    """Where a service manager hears of the services it has started."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "notify"))
        manager.settimeout(20)
        yield manager


def at(listener: socket.socket) -> str:
    host, port = listener.getsockname()
    return f"{host}:{port}"


def greeted(connected: socket.socket) -> bytes:
    """The first octets of the answer to a client of another version: the one that is spoken here."""
    connected.settimeout(20)
    connected.sendall(b"AMQP\x00\x09\x09\x09")
    return connected.recv(8)


def heard(manager: socket.socket) -> list[str]:
    return manager.recv(4096).decode().splitlines()


HTTP = ("--http", "127.0.0.1:0")


def test_a_listener_takes_the_handed_socket_with_its_address(start: Start, listener: socket.socket):
    node = start([listener], "--listen", at(listener), *HTTP)
    assert at(listener) in screen(node)  # though the address is taken: by the socket itself
    with socket.create_connection(listener.getsockname()) as connected:
        assert greeted(connected)[:4] == b"AMQP"


def test_a_client_that_connects_before_the_node_is_there_is_served(start: Start, listener: socket.socket):
    with socket.create_connection(listener.getsockname()) as connected:
        start([listener], "--listen", at(listener), *HTTP)
        assert greeted(connected)[:4] == b"AMQP"


def test_listeners_take_handed_sockets_by_name_whatever_their_address(
    start: Start, listener: socket.socket, tmp_path: Path
):
    file = tmp_path / "leveret.toml"
    file.write_text('[[listeners]]\naddress = "127.0.0.1:1"\nsocket = "for-amqp"\n')
    with socket.create_server(("127.0.0.1", 0)) as web:
        names = {"LISTEN_FDNAMES": "http:for-amqp"}
        shown = screen(start([web, listener], "--config", str(file), environ=names))
        spoken = {line.split()[0]: line for line in shown.splitlines() if line.startswith("  127.")}
        assert "AMQP" in spoken[at(listener)]
        assert "AMQP" not in spoken[at(web)]
        assert len(spoken) == 2


def test_a_handed_socket_that_no_listener_is_for_is_told_at_the_start(start: Start, listener: socket.socket):
    node = start([listener], "--listen", "127.0.0.1:0", *HTTP, environ={"LISTEN_FDNAMES": "stray"})
    _, errors = node.communicate(timeout=60)
    assert node.returncode == 1
    assert f"was handed a socket for {at(listener)}, called 'stray'" in errors.splitlines()[-1]
    assert "Traceback" not in errors


def test_what_is_handed_and_does_not_listen_is_told_at_the_start(start: Start):
    with socket.socket() as idle:
        node = start([idle], "--listen", "127.0.0.1:0", *HTTP)
        _, errors = node.communicate(timeout=60)
    assert node.returncode == 1
    assert "handed descriptor 3, which is not a TCP or Unix socket that listens" in errors.splitlines()[-1]


def test_sockets_for_another_process_are_left_alone(start: Start, listener: socket.socket):
    node = start([listener], "--listen", "127.0.0.1:0", *HTTP, environ={"LISTEN_PID": "1"})
    assert at(listener) not in screen(node)


def test_the_service_manager_hears_of_start_reload_and_end(start: Start, manager: socket.socket):
    node = start([], "--listen", "127.0.0.1:0", *HTTP, environ={"NOTIFY_SOCKET": manager.getsockname()})
    ready, status = heard(manager)
    assert ready == "READY=1"
    assert status.removeprefix("STATUS=listening on ") in ", ".join(
        line.split()[0] for line in screen(node).splitlines() if line.startswith("  127.")
    )
    node.send_signal(signal.SIGHUP)
    reloading, when = heard(manager)
    assert reloading == "RELOADING=1"
    assert when.removeprefix("MONOTONIC_USEC=").isdecimal()
    assert heard(manager)[0] == "READY=1"
    node.send_signal(signal.SIGTERM)
    assert heard(manager)[0] == "STOPPING=1"
    node.communicate(timeout=60)
    assert node.returncode == 0


def test_a_listener_takes_the_handed_unix_socket_and_leaves_its_file(start: Start, tmp_path: Path):
    path = tmp_path / "amqp.sock"
    with socket.socket(socket.AF_UNIX) as handed:
        handed.bind(str(path))
        handed.listen()
        node = start([handed], "--listen", f"unix:{path}", *HTTP)
        assert f"unix:{path}" in screen(node)
        with socket.socket(socket.AF_UNIX) as connected:
            connected.connect(str(path))
            assert greeted(connected)[:4] == b"AMQP"
        node.send_signal(signal.SIGTERM)
        assert node.wait(60) == 0
        assert path.is_socket()


def test_a_start_that_fails_is_not_reported_as_ready(
    start: Start, manager: socket.socket, listener: socket.socket
):
    node = start([], "--listen", at(listener), *HTTP, environ={"NOTIFY_SOCKET": manager.getsockname()})
    _, errors = node.communicate(timeout=60)
    assert node.returncode == 1, errors
    manager.setblocking(False)
    with pytest.raises(BlockingIOError):
        manager.recv(4096)


def test_the_watchdog_is_fed_from_the_loop_that_serves(start: Start, manager: socket.socket):
    environ = {"NOTIFY_SOCKET": manager.getsockname(), "WATCHDOG_USEC": "200000"}
    node = start([], "--listen", "127.0.0.1:0", *HTTP, environ=environ)
    assert [heard(manager)[0] for _ in range(3)] == ["READY=1", "WATCHDOG=1", "WATCHDOG=1"]
    node.send_signal(signal.SIGTERM)
    node.communicate(timeout=60)
