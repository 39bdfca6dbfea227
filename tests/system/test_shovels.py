"""A shovel between two nodes with data folders, of which each is killed while messages are on their way."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pika
import pytest

from tests.interop.conftest import wait_until

from .served import Serve, port, screen

pytestmark = pytest.mark.system

COUNT = 300
PERSISTENT = pika.BasicProperties(delivery_mode=2)


Channels = Callable[[int], "pika.adapters.blocking_connection.BlockingChannel"]


@pytest.fixture
def channel_at() -> Iterator[Channels]:
    """`channel_at(port)` is a channel of a connection of its own."""
    connections: list[pika.BlockingConnection] = []

    def channel_at(at: int) -> pika.adapters.blocking_connection.BlockingChannel:
        connections.append(pika.BlockingConnection(pika.URLParameters(f"amqp://guest:guest@127.0.0.1:{at}")))
        return connections[-1].channel()

    yield channel_at
    for connection in connections:
        with suppress(pika.exceptions.AMQPError):
            connection.close()


def ready(channel: pika.adapters.blocking_connection.BlockingChannel, queue: str) -> int:
    return int(channel.queue_declare(queue, durable=True).method.message_count)


def test_nothing_is_lost_when_either_side_is_killed(serve: Serve, channel_at: Channels, tmp_path: Path):
    there = serve("--listen", "127.0.0.1:0", "--data", str(tmp_path / "there"))
    far = port(screen(there))
    shovel = {
        "src-uri": "amqp://",
        "src-queue": "from",
        "dest-uri": f"amqp://guest:guest@127.0.0.1:{far}",
        "dest-queue": "to",
        "src-prefetch-count": 50,
        "reconnect-delay": 0.05,
    }
    parameter = {"component": "shovel", "vhost": "/", "name": "s", "value": shovel}
    (tmp_path / "shovel.json").write_text(json.dumps({"parameters": [parameter]}))
    config = tmp_path / "here.toml"
    config.write_text(
        f'definitions.load = ["{tmp_path}/shovel.json"]\nlisteners = [{{ address = "127.0.0.1:0" }}]\n'
    )
    run_here = ("--config", str(config), "--data", str(tmp_path / "here"))
    here = serve(*run_here)
    near = port(screen(here))
    channel = channel_at(near)
    channel.queue_declare("from", durable=True)
    channel.tx_select()
    for part in range(2):
        for number in range(part * COUNT, (part + 1) * COUNT):
            channel.basic_publish("", "from", b"%d" % number, PERSISTENT)
        channel.tx_commit()
        if part == 0:
            there.send_signal(signal.SIGKILL)
            there.wait()
    there = serve("--listen", f"127.0.0.1:{far}", "--data", str(tmp_path / "there"))
    screen(there)
    counting = channel_at(far)
    wait_until(lambda: ready(counting, "to") > COUNT // 2, "some after the kill")
    here.send_signal(signal.SIGKILL)
    here.wait()
    channel = channel_at(port(screen(serve(*run_here))))
    wait_until(lambda: ready(channel, "from") == 0 and ready(counting, "to") >= 2 * COUNT, "all of them")
    found: set[int] = set()
    while (got := counting.basic_get("to", auto_ack=True))[0] is not None:
        found.add(int(got[2]))
    assert found == set(range(2 * COUNT))
