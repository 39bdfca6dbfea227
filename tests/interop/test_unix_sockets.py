"""Clients that connect over a Unix domain socket: py-amqp with a transport of its own, rhea, and curl."""

from __future__ import annotations

import json
import socket
import subprocess
from pathlib import Path

import pytest

from tests.interop.conftest import TIMEOUT_S, RunningNode, Start, missing, need_command, need_module

pytestmark = pytest.mark.interop
HERE = Path(__file__).parent
amqp = need_module("amqp")
transport = need_module("amqp.transport")


class UnixTransport(transport.TCPTransport):  # type: ignore[name-defined,misc]
    """py-amqp's transport on another kind of socket; `host` is its path."""

    def _connect(self, host: str, port: int, timeout: float) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(timeout)
        self.sock.connect(host)

    def _set_socket_options(self, socket_settings: object) -> None:
        """Leave out the options of TCP."""


class UnixConnection(amqp.Connection):  # type: ignore[name-defined,misc]
    def Transport(self, *given: object, **named: object) -> UnixTransport:  # noqa: N802 - py-amqp's name
        return UnixTransport(self.path, TIMEOUT_S)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "leveret.sock"


@pytest.fixture
def node_there(node_with: Start, path: Path) -> RunningNode:
    listeners = f'[{{ address = "unix:{path}" }}, {{ address = "unix:{path}.http", protocols = ["http"] }}]'
    return node_with(f"listeners = {listeners}")


def test_py_amqp_publishes_and_consumes(node_there: RunningNode, path: Path):
    connection = UnixConnection()
    connection.path = str(path)
    connection.connect()
    channel = connection.channel()
    channel.queue_declare("q", auto_delete=False)
    bodies = ["small", "x" * 500_000]
    for body in bodies:
        channel.basic_publish(amqp.Message(body), routing_key="q")
    found = []
    channel.basic_consume(
        "q", callback=lambda message: (found.append(message.body), channel.basic_ack(message.delivery_tag))
    )
    while len(found) < 2:
        connection.drain_events(timeout=TIMEOUT_S)
    assert found == bodies
    connection.close()
    assert node_there.ready("q") == 0


def test_rhea_publishes_and_consumes(node_there: RunningNode, path: Path):
    command = need_command("node", "nodejs npm")
    if not (HERE / "node_modules" / "rhea").is_dir():
        missing("rhea", "run `make test`, or npm ci --prefix tests/interop")
    node_there.declare("q")
    ran = subprocess.run(
        [command, HERE / "rhea_client.js", path, "publish_and_consume"],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert (ran.returncode, ran.stderr) == (0, ""), ran.stderr
    assert json.loads(ran.stdout)["bodies"] == ["0", *map(str, range(100))]


def test_curl_asks_the_management_api(node_there: RunningNode, path: Path):
    node_there.declare("q")
    command = [need_command("curl", "curl"), "-sS", "-u", "guest:guest", "--unix-socket", f"{path}.http"]
    ran = subprocess.run(
        [*command, "http://localhost/api/queues/%2F/q"],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert json.loads(ran.stdout)["name"] == "q"
