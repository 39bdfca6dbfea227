"""What --verify says of brokers that lose, double or reorder messages, and one that does not."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from leveret.perf.command import perf
from tests.perf.conftest import options
from tests.perf.peers import fake_broker

pytestmark = pytest.mark.interop


class Queue:
    """Counts the messages, so that one of them can be treated in its own way."""

    def __init__(self, at: int, treat: Callable[[Queue, bytes], list[bytes]]) -> None:
        self.count = 0
        self.held: list[bytes] = []
        self._at = at
        self._treat = treat

    def deliver(self, bodies: list[bytes]) -> list[bytes]:
        out: list[bytes] = []
        for body in bodies:
            self.count += 1
            out += self._treat(self, body) if self.count >= self._at else [body]
        return out


def right(queue: Queue, body: bytes) -> list[bytes]:
    return [body]


def lose(queue: Queue, body: bytes) -> list[bytes]:
    return [] if queue.count in (5, 6) else [body]


def double(queue: Queue, body: bytes) -> list[bytes]:
    return [body, body] if queue.count == 5 else [body]


def swap(queue: Queue, body: bytes) -> list[bytes]:
    if queue.count == 5:
        queue.held.append(body)
        return []
    held, queue.held = queue.held, []
    return [body, *held]


@pytest.mark.parametrize(
    ("treat", "found", "code"),
    [
        (right, {"lost": 0, "duplicated": 0, "reordered": 0}, 0),
        (lose, {"lost": 2, "duplicated": 0, "reordered": 0}, 1),
        (double, {"lost": 0, "duplicated": 1, "reordered": 0}, 1),
        (swap, {"lost": 0, "duplicated": 0, "reordered": 1}, 1),
    ],
)
def test_what_is_not_right_is_found_and_fails(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    treat: Callable[..., list[bytes]],
    found: dict[str, int],
    code: int,
):
    file = tmp_path / "told.json"
    with fake_broker(Queue(5, treat).deliver) as broker:
        said = f"--url {broker.url} --messages 40 --confirms 5 --predeclared --verify --quiet --drain 0.3 --json {file}"
        assert perf(options(said)) == code
    assert json.loads(file.read_text())["verified"] == found
    assert f"{found['lost']} lost, {found['duplicated']} duplicated" in capsys.readouterr().out
