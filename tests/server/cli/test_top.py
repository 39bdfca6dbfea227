"""`leveret top`: samples to lines of any size, and a terminal that is given back as it was."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time

import pytest

from leveret.server import cli
from leveret.server.cli.text import width
from leveret.server.cli.top import Sample, frame, number
from tests.server.cli.answering import serving
from tests.server.cli.node import Node

OVERVIEW = {
    "product_name": "Leveret",
    "product_version": "1.0",
    "node": "leveret@here",
    "object_totals": {"connections": 2, "channels": 3, "queues": 40, "consumers": 5},
    "queue_totals": {"messages_ready": 12345, "messages_unacknowledged": 0},
    "message_stats": {"publish_details": {"rate": 1500.0}, "deliver_get_details": {"rate": 0.4}},
}


NAMED = {
    "name": "10.0.0.7:4 -> 10.0.0.1:5672",
    "user_provided_name": "worker",
    "user": "guest",
    "protocol": "AMQP 0-9-1",
    "state": "running",
    "channels": 1,
}


def queue(name: str, ready: int = 0) -> dict[str, object]:
    return {
        "name": name,
        "vhost": "/",
        "messages_ready": ready,
        "messages_unacknowledged": 1,
        "consumers": 2,
        "message_stats": {"publish_details": {"rate": 3.25}},
    }


def connection(name: str) -> dict[str, object]:
    return {"name": name, "user": "guest", "protocol": "AMQP 0-9-1", "state": "running", "channels": 1}


FOUND = Sample(
    OVERVIEW, [queue(f"q{i}", i) for i in range(40)], [connection(f"127.0.0.1:{i}") for i in range(20)]
)


def test_a_frame_tells_totals_queues_and_connections():
    lines = frame(Sample(OVERVIEW, [queue("orders", 7)], [NAMED]), 100, 20, "rate")
    assert lines[0] == "Leveret 1.0  leveret@here"
    assert lines[1] == "connections 2  channels 3  queues 40  consumers 5"
    assert lines[2] == "ready 12.3k  unacknowledged 0  in 1500.0/s  out 0.4/s  ack -/s"
    assert lines[6].split() == ["orders", "/", "7", "1", "2", "3.2", "-", "-"]
    assert lines[9].split() == ["worker", "(10.0.0.7:4)", "guest", "AMQP", "0-9-1", "running", "1", "-", "-"]


@pytest.mark.parametrize(("width", "height"), [(40, 12), (80, 24), (100, 30), (300, 100)])
def test_a_frame_never_leaves_its_screen(width: int, height: int):
    lines = frame(FOUND, width, height, "length")
    assert len(lines) <= height
    assert max(map(len, lines)) <= width
    assert any(line.startswith("q0") for line in lines)
    assert any(line.startswith("127.0") for line in lines)


def test_wide_letters_and_marks_keep_the_columns():
    names = ["注文キュー", "e\u0301te\u0301", "plain", "注文" * 40]
    lines = frame(Sample(OVERVIEW, [queue(name, 7) for name in names], []), 100, 30, "rate")
    assert len({width(line[: line.rindex(" 7 ")]) for line in lines[6:10]}) == 1
    assert max(map(width, lines)) <= 100
    assert lines[9].startswith("注文注文")
    assert "…  /" in lines[9]


def test_queues_get_what_connections_leave_free():
    alone = frame(Sample(OVERVIEW, FOUND.queues, []), 100, 30, "rate")
    both = frame(FOUND, 100, 30, "rate")
    assert [sum(line.startswith("q") for line in lines[5:]) for lines in (alone, both)] == [22, 15]
    assert sum(line.startswith("127") for line in both) == 7


def test_names_cannot_draw():
    evil = Sample(OVERVIEW, [queue("\x1b[2J\nhop")], [connection("\r\x9b")])
    text = "".join(frame(evil, 100, 30, "rate"))
    assert text.isprintable()
    assert r"\x1b[2J\nhop" in text


def test_a_node_that_does_not_answer_is_told_in_the_frame():
    assert "no node answers" in frame(Sample({}, [], []), 80, 24, "rate", "no node answers")[3]


NUMBERS = [
    (None, "-"), (0, "0"), (9999, "9999"), (12345, "12.3k"), (2_500_000, "2.5M"), (3e9, "3.0G"), (0.25, "0.2"),
    (True, "-"), ("x", "-"),
]  # fmt: skip


@pytest.mark.parametrize(("value", "text"), NUMBERS)
def test_numbers_stay_short(value: object, text: str):
    assert number(value) == text


def test_once_prints_a_single_frame_of_a_node(capsys: pytest.CaptureFixture[str]):
    node = Node()
    node.host.declare_queue("orders")
    assert node.run("top", "--once") == cli.DONE
    out = capsys.readouterr().out
    assert "\norders" in out
    assert "\x1b" not in out
    assert node.run("top", "--once", "--json") == cli.DONE
    assert [row["name"] for row in json.loads(capsys.readouterr().out)["queues"]] == ["orders"]


def test_without_a_terminal_it_says_what_to_do(capsys: pytest.CaptureFixture[str]):
    assert Node().run("top") == cli.REFUSED
    assert "--once" in capsys.readouterr().err


class Terminal:
    """A process at a terminal of its own, and what it has written."""

    def __init__(self, *command: str, lines: int, columns: int) -> None:
        self._ours, theirs = pty.openpty()
        self.before = termios.tcgetattr(theirs)
        self._theirs = theirs
        self.resize(lines, columns)
        self._process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=subprocess.PIPE)
        self.text = ""

    def resize(self, lines: int, columns: int) -> None:
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def until(self, words: str) -> None:
        """Read what is written until the words come."""
        deadline = time.monotonic() + 20
        while words not in self.text:
            assert time.monotonic() < deadline, self.text
            if select.select([self._ours], [], [], 0.1)[0]:
                self.text += os.read(self._ours, 65536).decode()

    def type(self, keys: str) -> None:
        self.text = ""
        os.write(self._ours, keys.encode())

    def end(self) -> int:
        try:
            return self._process.wait(10)
        finally:
            self._process.kill()
            self._process.communicate()

    @property
    def settings(self) -> list[object]:
        return termios.tcgetattr(self._theirs)

    def close(self) -> None:
        os.close(self._ours)
        os.close(self._theirs)


@pytest.mark.system
def test_top_draws_on_a_terminal_follows_its_size_and_gives_it_back():
    with serving([queue("orders")]) as url:
        command = [sys.executable, "-m", "leveret", "top", "--url", url, "--interval", "30"]
        terminal = Terminal(*command, lines=24, columns=80)
        try:
            terminal.until("queues by rate")
            terminal.until("\x1b[J")
            assert terminal.text.startswith("\x1b[?1049h")
            terminal.text = ""
            terminal.resize(40, 200)
            terminal.until("orders" + " " * 100)
            terminal.type("s")
            terminal.until("queues by length")
            terminal.type("q")
            terminal.until("\x1b[?1049l")
            assert (terminal.end(), terminal.settings) == (cli.DONE, terminal.before)
        finally:
            terminal.close()
