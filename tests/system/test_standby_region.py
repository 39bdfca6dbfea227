"""A standby in another region, as docs/federation.md says: what it has when the first region is killed, and later."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pika
import pytest

from leveret.server import cli
from tests.interop.conftest import wait_until
from tests.interop.management import asked_at

from .served import ROOT, Serve, port, screen

pytestmark = pytest.mark.system

COUNT = 100
PERSISTENT = pika.BasicProperties(delivery_mode=2)
PAGE = (ROOT / "docs" / "federation.md").read_text()
FIRST, OTHER, LOST = re.findall(r"```sh\n(.*?)```", PAGE.partition("## A standby")[2], re.DOTALL)

Channel = pika.adapters.blocking_connection.BlockingChannel


class SiteNode:
    """The node of a region, in a process that can be killed and started again where it was."""

    def __init__(self, serve: Serve, folder: Path, name: str) -> None:
        folder.mkdir()
        self._serve, self._folder = serve, folder
        self._config = folder / "leveret.toml"
        self._ports = "0", "0"
        self._name = name
        self.start()

    def start(self) -> None:
        clients, http = self._ports
        self._config.write_text(
            f'node.name = "{self._name}"\nlisteners = [{{ address = "127.0.0.1:{clients}" }}]\n'
            f'http = {{ enabled = true, address = "127.0.0.1:{http}" }}\n'
        )
        self.process: subprocess.Popen[str] = self._serve(
            "--config", str(self._config), "--data", str(self._folder / "data")
        )
        text = screen(self.process)
        found = re.search(r"http://127\.0\.0\.1:(\d+)", text)
        assert found is not None, text
        self._ports = str(port(text)), found[1]
        self.url = f"amqp://guest:guest@127.0.0.1:{self._ports[0]}"

    def is_linked(self) -> bool:
        """Return whether the exchange is bound to what the link of the other region takes from."""
        bindings = asked_at(f"127.0.0.1:{self._ports[1]}", "GET", "/api/exchanges/%2F/orders/bindings/source")
        return "federation: orders -> west" in str(bindings)

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def type(self, commands: str) -> None:
        """Run the commands of a block of the page here."""
        for line in commands.splitlines():
            words = [word.strip("'") for word in line.split()[1:]]
            environ = {"LEVERET_URL": f"http://127.0.0.1:{self._ports[1]}"}
            assert cli.main(words, environ) == 0, line


@pytest.fixture
def channel_at() -> Iterator[Callable[[SiteNode], Channel]]:
    connections: list[pika.BlockingConnection] = []

    def channel_at(node: SiteNode) -> Channel:
        connections.append(pika.BlockingConnection(pika.URLParameters(node.url)))
        return connections[-1].channel()

    yield channel_at
    for connection in connections:
        with suppress(pika.exceptions.AMQPError):
            connection.close()


def publish(channel: Channel, first: int) -> None:
    channel.confirm_delivery()
    for number in range(first, first + COUNT):
        channel.basic_publish("orders", "eu", b"%d" % number, PERSISTENT)


def taken(channel: Channel) -> set[int]:
    found: set[int] = set()
    while (got := channel.basic_get("orders", auto_ack=True))[0] is not None:
        found.add(int(got[2]))
    return found


def test_the_other_region_has_what_the_first_one_had_confirmed(
    serve: Serve,
    channel_at: Callable[[SiteNode], Channel],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    east, west = (SiteNode(serve, tmp_path / name, name) for name in ("east", "west"))
    channel = channel_at(east)
    channel.exchange_declare("orders", "topic", durable=True)
    channel.queue_declare("orders", durable=True)
    channel.queue_bind("orders", "orders", "#")
    (tmp_path / "east.json").write_text(json.dumps({"uri": east.url, "reconnect-delay": 0.1}))
    east.type(FIRST)
    west.type(OTHER)
    there = channel_at(west)

    def copies() -> int:
        return int(there.queue_declare("orders", passive=True).method.message_count)

    wait_until(east.is_linked, "the link")
    publish(channel, 0)
    assert len(taken(channel)) == COUNT  # acknowledged in the east, which is not copied
    wait_until(lambda: copies() == COUNT, "the copies")
    west.kill()
    publish(channel, COUNT)  # while the other region is away
    west.start()
    there = channel_at(west)
    wait_until(lambda: copies() >= 2 * COUNT, "what was published meanwhile")
    east.kill()
    west.type(LOST)
    publish(there, 2 * COUNT)  # clients go on
    assert taken(there) == set(range(3 * COUNT))
    east.start()
    channel = channel_at(east)
    publish(channel, 3 * COUNT)
    wait_until(lambda: copies() >= COUNT, "the link after the return")
    assert taken(there) >= set(range(3 * COUNT, 4 * COUNT))
