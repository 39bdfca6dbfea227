"""`leveret serve` with TLS: as a process, from its file, with a signal for new certificates."""

from __future__ import annotations

import re
import signal
import socket
import ssl
import time
from pathlib import Path

import pytest

from tests.tls.pki import Pki, toml

from .served import Serve, port, screen

pytestmark = pytest.mark.system

TIMEOUT_S = 60


@pytest.fixture
def pki(tmp_path: Path) -> Pki:
    return Pki(tmp_path)


@pytest.fixture
def file(pki: Pki) -> Path:
    path = pki.folder / "leveret.toml"
    path.write_text(f'listeners = [{{ address = "127.0.0.1:0", tls = {toml(pki.settings())} }}]')
    return path


def opened(address: int, context: ssl.SSLContext) -> ssl.SSLSocket:
    plain = socket.create_connection(("127.0.0.1", address), TIMEOUT_S)
    return context.wrap_socket(plain, server_hostname="localhost")


def names(connection: ssl.SSLSocket) -> str:
    return str(connection.getpeercert())


def test_a_signal_brings_a_new_certificate_and_drops_nobody(pki: Pki, file: Path, serve: Serve):
    node = serve("--config", str(file))
    told = screen(node)
    assert re.search(r"127\.0\.0\.1:\d+ +AMQP .*, with TLS\n", told)
    context = pki.trusting()
    with opened(port(told), context) as before:
        before.sendall(b"AMQP")
        pki.serve("localhost", "new.example")
        node.send_signal(signal.SIGHUP)
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            with opened(port(told), context) as after:
                if "new.example" in names(after):
                    break
            assert time.monotonic() < deadline
        before.sendall(b"\0\0\x09\x01")
        assert before.recv(1) == b"\x01"  # connection.start
        assert "new.example" not in names(before)


def test_a_node_with_a_certificate_that_cannot_be_read_does_not_start(pki: Pki, file: Path, serve: Serve):
    (pki.folder / "server.key").unlink()
    node = serve("--config", str(file))
    _, errors = node.communicate(timeout=TIMEOUT_S)
    assert node.returncode not in (0, None)
    assert "listeners[0].tls.key: found" in errors
    assert "(no such file or directory), accepted: a private key" in errors
    assert "Traceback" not in errors
