"""Listeners on Unix domain sockets: their files, what becomes of old ones, and how their peers are known."""

from __future__ import annotations

import os
import signal
import socket
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import h11
import pytest

from leveret.config.config import ConfigError
from leveret.protocols.amqp091.codec import methods as m
from leveret.protocols.amqp091.codec import wire
from leveret.server.node import start_check
from leveret.server.node.threaded import ThreadedNode, embedded

from .served import Serve, screen

pytestmark = pytest.mark.system

HEADER = b"AMQP\x00\x00\x09\x01"
TIMEOUT_S = 60
OPEN_OK = b"\x00\x0a\x00\x29"  # connection.open-ok


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "amqp.sock"


def node_at(*listeners: dict[str, object], **settings: object) -> ThreadedNode:
    return ThreadedNode(embedded({"listeners": list(listeners), **settings}))


def at(path: Path, **more: object) -> dict[str, object]:
    return {"address": f"unix:{path}", **more}


def dial(path: str | Path) -> socket.socket:
    connected = socket.socket(socket.AF_UNIX)
    connected.settimeout(TIMEOUT_S)
    connected.connect(str(path))
    return connected


def is_opened(connected: socket.socket, password: str = "guest") -> bool:
    """Log in as guest over 0-9-1; return whether the virtual host was opened, rather than the connection ended."""
    login = (
        m.ConnectionStartOk({}, "PLAIN", f"\0guest\0{password}".encode(), "en_US"),
        m.ConnectionTuneOk(2047, 131_072, 0),
        m.ConnectionOpen("/"),
    )
    connected.sendall(HEADER + b"".join(wire.method_frame(0, method.encode()) for method in login))
    data = b""
    while more := connected.recv(65536):
        data += more
        while len(data) >= 11 and len(data) >= (size := int.from_bytes(data[3:7]) + 8):
            if data[7:11] == OPEN_OK:
                return True
            data = data[size:]
    return False


def is_served(path: str | Path) -> bool:
    with dial(path) as connected:
        return is_opened(connected)


# The file.


def test_the_file_has_its_mode_and_ends_with_the_node(path: Path):
    with node_at(at(path, socket_mode="0640")) as node:
        assert stat.S_IMODE(path.stat().st_mode) == 0o640
        assert node.socket_path == str(path)
        assert is_served(path)
    assert not path.exists()


def test_without_a_setting_others_may_not_connect(path: Path):
    with node_at(at(path)):
        assert stat.S_IMODE(path.stat().st_mode) == 0o660


@pytest.mark.skipif(os.getuid() != 0, reason="only root may give files away")
def test_the_file_belongs_to_the_user_and_group_of_the_settings(path: Path):
    with node_at(at(path, socket_owner="nobody:daemon")):
        assert (path.owner(), path.group()) == ("nobody", "daemon")
    with node_at(at(path, socket_owner=":daemon")):
        assert (path.owner(), path.group()) == ("root", "daemon")


def test_an_unknown_owner_is_told_before_anything_is_bound(path: Path):
    config = embedded({"listeners": [at(path, socket_owner="nobody-knows-this-user")]})
    for step in (lambda: start_check.rehearse(config), ThreadedNode(config).start):
        with pytest.raises(ConfigError, match="nobody-knows-this-user"):
            step()
    assert not path.exists()


def test_the_file_of_a_killed_node_is_replaced(serve: Serve, path: Path):
    killed = serve("--listen", f"unix:{path}")
    screen(killed)
    killed.send_signal(signal.SIGKILL)
    killed.wait()
    assert path.is_socket()
    assert f"unix:{path}" in screen(serve("--listen", f"unix:{path}"))
    assert is_served(path)


def test_the_file_of_a_living_node_is_not(path: Path):
    with node_at(at(path)):
        with pytest.raises(OSError, match=r"cannot listen on unix:.*another process listens there"):
            node_at(at(path)).start()
        assert is_served(path)


def test_a_file_that_is_no_socket_is_left_alone(path: Path):
    path.write_text("letters")
    with pytest.raises(OSError, match=r"cannot listen on unix:.*the file there is no socket"):
        node_at(at(path)).start()
    assert path.read_text() == "letters"


def test_a_link_to_a_stale_socket_is_left_alone(path: Path, tmp_path: Path):
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(tmp_path / "stale"))
    path.symlink_to(tmp_path / "stale")
    with pytest.raises(OSError, match="the file there is no socket"):
        node_at(at(path)).start()
    assert path.is_symlink()


def test_the_file_of_another_that_took_the_place_stays_at_the_end(path: Path):
    with node_at(at(path)), socket.socket(socket.AF_UNIX) as other:
        path.unlink()
        other.bind(str(path))
    assert path.is_socket()


def test_of_nodes_that_start_at_once_one_gets_a_stale_path(path: Path):
    """However the starts overlap, the others are refused, and the one that listens keeps its file."""
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(path))
    nodes = [node_at(at(path)) for _ in range(4)]
    refused: list[Exception] = []

    def start(node: ThreadedNode) -> None:
        try:
            node.start()
        except OSError as failure:
            refused.append(failure)

    threads = [threading.Thread(target=start, args=(node,)) for node in nodes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(refused) == 3
    assert all("another process listens there" in str(each) for each in refused)
    assert is_served(path)
    for node in nodes:
        node.stop()
    assert not path.exists()


def test_a_start_that_fails_later_leaves_no_file(path: Path):
    with pytest.raises(OSError, match="cannot listen on"):
        node_at(at(path), {"address": "192.0.2.1:1"}).start()
    assert not path.exists()


def test_an_abstract_name_has_no_file():
    name = f"leveret-test-{os.getpid()}"
    with node_at({"address": f"unix:@{name}"}) as node:
        assert node.socket_path == f"@{name}"
        assert is_served(f"\0{name}")
        with pytest.raises(RuntimeError, match="no such listener"):
            _ = node.port


# Peers.


def test_a_peer_is_known_by_its_process_and_is_from_this_machine(path: Path):
    with node_at(at(path), {"address": "127.0.0.1:0"}) as node, dial(path) as connected:
        assert is_opened(connected)  # guest may log in
        ((name, process),) = node.call(
            lambda: [(each.peer.name, each.peer.process) for each in node.node.admin.connections()]
        )
        assert name == f"unix:1 -> unix:{path}"
        assert (process.pid, process.uid, process.gid) == (os.getpid(), os.getuid(), os.getgid())
        assert node.url.startswith("amqp://guest:guest@127.0.0.1:")
        assert node.node.addresses == [f"unix:{path}", f"127.0.0.1:{node.port}"]


@pytest.mark.parametrize(
    ("host", "is_let_in"), [("127.0.0.1", True), ("192.0.2.7", False)], ids=["local", "remote"]
)
def test_behind_a_proxy_the_client_counts_that_it_names(path: Path, host: str, is_let_in: bool):
    """Guest is let in from this machine only: of a remote client the socket's own place does not matter."""
    with node_at(at(path, proxy_protocol=True)) as node, dial(path) as connected:
        connected.sendall(f"PROXY TCP4 {host} 198.51.100.1 40000 5672\r\n".encode())
        assert is_opened(connected) is is_let_in
        if is_let_in:
            ((name, process),) = node.call(
                lambda: [(each.peer.name, each.peer.process) for each in node.node.admin.connections()]
            )
            assert (name, process) == ("127.0.0.1:40000 -> 198.51.100.1:5672", None)


def test_proxies_on_a_socket_need_loopback_among_the_trusted(path: Path):
    with (
        node_at(at(path, proxy_protocol=True, proxy_from=["192.0.2.0/24"])),
        dial(path) as connected,
    ):
        connected.sendall(b"PROXY TCP4 192.0.2.7 198.51.100.1 40000 5672\r\n")
        assert connected.recv(1) == b""


def test_a_wrong_password_is_refused_there_too(path: Path):
    with node_at(at(path)), dial(path) as connected:
        assert not is_opened(connected, "wrong")


# HTTP.


def asked(path: Path, target: str, host: str = "localhost") -> tuple[int, bytes]:
    client = h11.Connection(h11.CLIENT)
    headers = [("Host", host), ("Authorization", "Basic Z3Vlc3Q6Z3Vlc3Q="), ("Connection", "close")]
    with dial(path) as connected:
        connected.sendall(client.send(h11.Request(method="GET", target=target, headers=headers)))
        connected.sendall(client.send(h11.EndOfMessage()))
        status, body = 0, b""
        while True:
            event = client.next_event()
            if event is h11.NEED_DATA:
                client.receive_data(connected.recv(65536))
            elif isinstance(event, h11.Response):
                status = event.status_code
            elif isinstance(event, h11.Data):
                body += event.data
            else:
                return status, body


def test_http_is_served_and_shows_sockets_and_processes(path: Path, tmp_path: Path):
    web = tmp_path / "http.sock"
    with (
        node_at(at(path), at(web, protocols=["http"])),
        dial(path) as connected,
    ):
        assert is_opened(connected)
        status, listed = asked(web, "/api/connections")
        assert status == 200
        assert f'"peer_process":{{"pid":{os.getpid()},'.encode() in listed.replace(b" ", b"")
        status, overview = asked(web, "/api/overview")
        assert f'"ip_address":"unix:{web}"'.encode() in overview.replace(b" ", b"")
        assert asked(web, "/api/health/checks/port-listener/0")[0] == 503
        assert asked(web, "/api/overview", "evil.example")[0] == 421


@pytest.mark.parametrize("flag", ["--url", "LEVERET_URL"])
def test_the_command_line_asks_over_a_socket(
    serve: Serve, tmp_path: Path, run_leveret: Callable[..., tuple[int, str]], flag: str
):
    web = tmp_path / "http.sock"
    shown = screen(serve("--listen", "127.0.0.1:0", "--http", f"unix:{web}"))
    assert f"unix:{web}" in shown
    flags = ("--url", f"unix:{web}") if flag == "--url" else ()
    environ = {} if flags else {flag: f"unix:{web}"}
    code, said = run_leveret("status", *flags, **environ)
    assert code == 0
    assert f"unix:{web}" in said
    code, said = run_leveret("status", "--url", f"unix:{tmp_path}/nowhere")
    assert code != 0
    assert f"no node answers at unix:{tmp_path}/nowhere" in said


@pytest.fixture
def run_leveret(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    from leveret.server import cli

    def run(*arguments: str, **environ: str) -> tuple[int, str]:
        code = cli.main(list(arguments), environ)
        told = capsys.readouterr()
        return code, told.out + told.err

    return run
