"""`leveret serve --data DIR`: what it says, what it refuses, and what a signal in the middle of work leaves behind."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import AMQPError
from proton import Message
from proton.utils import BlockingConnection

from leveret.durable.store.folder import META

from .served import ROOT, Serve, port, screen

pytestmark = pytest.mark.system

PERSISTENT = pika.BasicProperties(delivery_mode=2)
LOCAL = ("--listen", "127.0.0.1:0")


@contextmanager
def channel_at(at: int) -> Iterator[BlockingChannel]:
    """A channel that confirms, of a connection of its own."""
    connection = pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", at))
    try:
        channel = connection.channel()
        channel.confirm_delivery()
        yield channel
    finally:
        if connection.is_open:
            connection.close()


def ended(node: subprocess.Popen[str], code: int) -> list[str]:
    """The lines that a node has logged until its end."""
    _, errors = node.communicate(timeout=60)
    assert node.returncode == code, errors
    assert "Traceback" not in errors
    return errors.splitlines()


def test_a_node_says_where_its_data_is_and_what_it_has_found_there(serve: Serve, tmp_path: Path):
    folder = tmp_path / "not" / "made"
    node = serve(*LOCAL, "--data", str(folder))
    shown = screen(node)
    assert f"{folder} (durable)" in shown
    with channel_at(port(shown)) as channel:
        channel.queue_declare("q", durable=True)
        for _ in range(3):
            channel.basic_publish("", "q", b"x", PERSISTENT)
    status = ["status", "--url", shown.split("HTTP")[0].split()[-1].join(("http://", ""))]
    told = subprocess.run(
        [sys.executable, "-m", "leveret", *status],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert f"data dir                 {folder}" in told
    assert "storage                  durable" in told
    node.send_signal(signal.SIGTERM)
    assert any("recovered 0 durable queues with 0 messages" in line for line in ended(node, 0))
    node = serve(*LOCAL, "--data", str(folder))
    screen(node)
    node.send_signal(signal.SIGTERM)
    lines = ended(node, 0)
    assert any(f"recovered 1 durable queue with 3 messages from {folder} in" in line for line in lines)
    assert not any("WARNING" in line for line in lines)


def test_after_a_kill_what_is_recovered_counts_as_delivered(serve: Serve, tmp_path: Path):
    node = serve(*LOCAL, "--data", str(tmp_path))
    with channel_at(port(screen(node))) as channel:
        channel.queue_declare("q", durable=True)
        channel.basic_publish("", "q", b"x", PERSISTENT)
    node.kill()
    node.wait()
    node = serve(*LOCAL, "--data", str(tmp_path))
    with channel_at(port(screen(node))) as channel:
        method, _, body = channel.basic_get("q", auto_ack=True)
    assert (method.redelivered, body) == (True, b"x")
    node.send_signal(signal.SIGTERM)
    assert sum("unclean shutdown" in line for line in ended(node, 0)) == 1


@pytest.mark.skipif(sys.platform != "linux", reason="it takes away what only Linux has")
def test_a_node_keeps_messages_of_both_protocols_without_what_macos_lacks(serve: Serve, tmp_path: Path):
    flags = (*LOCAL, "--data", str(tmp_path))
    node = serve(*flags, program="tests.harness.macos")
    at = port(screen(node))
    with channel_at(at) as channel:
        channel.queue_declare("q", durable=True)
        for body in (b"taken", b"kept"):
            channel.basic_publish("", "q", body, PERSISTENT)  # raises unless it is confirmed
        assert channel.basic_get("q", auto_ack=True)[2] == b"taken"
    client = BlockingConnection(f"amqp://127.0.0.1:{at}", timeout=60, user="guest", password="guest")
    client.create_sender("/queues/q").send(Message(body=b"sent", inferred=True, durable=True))
    client.close()
    node.send_signal(signal.SIGTERM)
    ended(node, 0)
    node = serve(*flags, program="tests.harness.macos")
    at = port(screen(node))
    client = BlockingConnection(f"amqp://127.0.0.1:{at}", timeout=60, user="guest", password="guest")
    receiver = client.create_receiver("/queues/q", credit=1)
    assert bytes(receiver.receive().body) == b"kept"
    receiver.accept()
    client.close()
    with channel_at(at) as channel:
        assert channel.basic_get("q", auto_ack=True)[2] == b"sent"
    node.send_signal(signal.SIGTERM)
    assert any("recovered 1 durable queue with 2 messages" in line for line in ended(node, 0))


# What is refused, in one line.


def test_a_second_node_on_the_same_folder_is_refused(serve: Serve, tmp_path: Path):
    first = serve(*LOCAL, "--data", str(tmp_path))
    screen(first)
    last = ended(serve(*LOCAL, "--data", str(tmp_path)), 1)[-1]
    assert last.startswith(f"leveret: the data folder {tmp_path} is in use by the process {first.pid}")


def test_a_file_in_the_place_of_the_folder_is_refused(serve: Serve, tmp_path: Path):
    file = tmp_path / "file"
    file.touch()
    assert str(file) in ended(serve(*LOCAL, "--data", str(file)), 1)[-1]


def test_data_of_a_newer_format_are_refused(serve: Serve, tmp_path: Path):
    node = serve(*LOCAL, "--data", str(tmp_path))
    screen(node)
    node.send_signal(signal.SIGTERM)
    ended(node, 0)
    database = sqlite3.connect(tmp_path / META)
    database.execute("pragma user_version = 99")
    database.close()
    last = ended(serve(*LOCAL, "--data", str(tmp_path)), 1)[-1]
    assert last.startswith("leveret: ")
    assert "99" in last


# In the middle of work.


class Publisher(threading.Thread):
    """Publishes numbers to a queue of its own, one by one, until the node has gone."""

    def __init__(self, at: int, queue: str, enough: threading.Event) -> None:
        super().__init__()
        self.at = at
        self.queue = queue
        self.enough = enough
        self.confirmed = 0

    def run(self) -> None:
        try:
            with channel_at(self.at) as channel:
                channel.queue_declare(self.queue, durable=True)
                while True:
                    channel.basic_publish("", self.queue, b"%d" % self.confirmed, PERSISTENT)
                    self.confirmed += 1
                    if self.confirmed == 50:
                        self.enough.set()
        except AMQPError:
            pass


def test_a_node_that_is_stopped_under_load_keeps_what_it_has_confirmed(serve: Serve, tmp_path: Path):
    """In order, once, and not as if somebody had had it before. One message may have come that was not confirmed."""
    node = serve(*LOCAL, "--data", str(tmp_path))
    at, enough = port(screen(node)), threading.Event()
    publishers = [Publisher(at, f"q{number}", enough) for number in range(3)]
    for publisher in publishers:
        publisher.start()
    assert enough.wait(20)
    node.send_signal(signal.SIGTERM)
    for publisher in publishers:
        publisher.join()
    ended(node, 0)
    node = serve(*LOCAL, "--data", str(tmp_path))
    with channel_at(port(screen(node))) as channel:
        for publisher in publishers:
            found = []
            while (got := channel.basic_get(publisher.queue, auto_ack=True))[0] is not None:
                assert not got[0].redelivered
                found.append(int(got[2]))
            assert found == list(range(len(found)))
            assert publisher.confirmed <= len(found) <= publisher.confirmed + 1


def test_a_paused_queue_is_paused_after_a_kill(serve: Serve, tmp_path: Path):
    command = (*LOCAL, "--data", str(tmp_path / "data"))
    node = serve(*command)
    shown = screen(node)
    with channel_at(port(shown)) as channel:
        channel.queue_declare("q", durable=True)
        channel.basic_publish("", "q", b"x", PERSISTENT)
        control(shown, "pause", "q")
    node.kill()
    node.wait()
    again = serve(*command)
    shown = screen(again)
    with channel_at(port(shown)) as channel:
        assert channel.basic_get("q") == (None, None, None)
        control(shown, "resume", "q")
        assert channel.basic_get("q", auto_ack=True)[2] == b"x"


def control(shown: str, *command: str) -> None:
    """Run a command against the node that has printed this."""
    url = "http://" + shown.split("HTTP")[0].split()[-1]
    whole = [sys.executable, "-m", "leveret", *command, "--url", url]
    subprocess.run(whole, cwd=ROOT, capture_output=True, check=True)
