"""`leveret` and a node in a process of its own, over real sockets."""

from __future__ import annotations

import json
import re
import socket
import threading

import pika
import pika.exceptions
import pytest

from leveret.server import cli
from leveret.server.cli.control_client import ControlClient

from .served import Serve, port, screen

pytestmark = pytest.mark.system

Captured = pytest.CaptureFixture[str]


class Here:
    """A node, and commands that ask it."""

    def __init__(self, shown: str) -> None:
        found = re.search(r"(127\.0\.0\.1:\d+) +HTTP", shown)
        assert found is not None
        self.url = f"http://{found[1]}"
        self.amqp_port = port(shown)

    def run(self, *arguments: str) -> int:
        return cli.main(arguments, {"LEVERET_URL": self.url})


@pytest.fixture
def here(serve: Serve) -> Here:
    return Here(screen(serve("--listen", "127.0.0.1:0", "--memory")))


def rows(here: Here, capsys: Captured, what: str) -> list[dict[str, object]]:
    assert here.run("list", what, "--json") == cli.DONE
    found: list[dict[str, object]] = json.loads(capsys.readouterr().out)
    return found


def test_a_client_is_listed_with_its_channels_and_consumers_and_closed(here: Here, capsys: Captured):
    named = {"connection_name": "worker"}
    connection = pika.BlockingConnection(
        pika.ConnectionParameters("127.0.0.1", here.amqp_port, client_properties=named)
    )
    channel = connection.channel()
    channel.queue_declare("q")
    channel.basic_consume("q", lambda *_: None)
    (listed,) = rows(here, capsys, "connections")
    assert [row["user"] for row in rows(here, capsys, "channels")] == ["guest"]
    assert len(rows(here, capsys, "consumers")) == 1
    for what in ("connections", "channels", "consumers"):
        assert here.run("list", what) == cli.DONE
        heading, line = capsys.readouterr().out.splitlines()
        at = heading.index("client")
        assert line[at:].startswith("worker ")
        assert here.run("list", what, "--columns", "client", "--sort", "client") == cli.DONE
        assert capsys.readouterr() == ("client\nworker\n", "")
    assert here.run("top", "--once") == cli.DONE
    assert "\nworker (127.0.0.1:" in capsys.readouterr().out
    closing = threading.Thread(
        target=here.run, args=("close", "connection", str(listed["name"]), "--reason", "tidying up")
    )
    closing.start()
    with pytest.raises(pika.exceptions.ConnectionClosedByBroker) as caught:
        connection.process_data_events(time_limit=20)
    closing.join()
    del connection, channel
    assert "tidying up" in str(caught.value)
    assert "is closed" in capsys.readouterr().out


def test_one_connection_serves_many_questions_and_a_lost_one_is_made_again(here: Here):
    with ControlClient(here.url, "guest", "guest") as client:
        assert client.ask("GET", "/api/whoami").status == 200
        first = client._kept
        assert first is not None
        assert client.ask("GET", "/api/whoami").status == 200
        assert client._kept is first
        first.sock.shutdown(socket.SHUT_RDWR)
        assert client.ask("PUT", "/api/vhosts/prod", body=b"{}").status in (201, 204)
    assert client._kept is None


def test_a_client_that_asks_once_leaves_nothing_open(here: Here):
    client = ControlClient(here.url, "guest", "guest")
    assert client.ask("GET", "/api/whoami").status == 200
    assert client._kept is None
