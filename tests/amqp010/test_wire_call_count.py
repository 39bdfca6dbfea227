"""The price of a transfer on the wire, in Python calls: free of noise, and it only ever goes down."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from types import FrameType

import pytest

from protocols.amqp010.codec import commands as c
from protocols.amqp010.codec.frames import append_frames

from . import samples
from .heard import Ear
from .samples import GREETING

MESSAGES = 100


class Counting(Ear):
    """Hears transfers and keeps nothing."""

    def _on_command(self, *arguments: object) -> None:  # type: ignore[override]
        self.count = getattr(self, "count", 0) + 1


def calls_of(action: Callable[[], object]) -> Counter[str]:
    counted: Counter[str] = Counter()

    def count(frame: FrameType, event: str, argument: object) -> None:
        if event == "call":
            counted[frame.f_code.co_qualname] += 1

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        action()
    finally:
        sys.setprofile(before)
    return counted


def message(
    command: c.MessageTransfer, header: bytes | None = samples.HEADER, body: bytes = bytes(100)
) -> bytes:
    out: list[bytes] = []
    append_frames(out, 1, command.encode(), header, body, 65_535)
    return b"".join(out)


def listening_to(*messages: bytes) -> Counting:
    ear = Counting()
    ear.hear(GREETING)
    for each in messages:
        ear.hear(each)
    ear.count = 0
    return ear


def test_a_transfer_whose_frames_came_in_one_read_costs_one_call() -> None:
    octets = message(c.MessageTransfer("", 1, 0))
    ear = listening_to(octets, octets)
    calls = calls_of(lambda: ear.hear(octets * MESSAGES))
    assert ear.count == MESSAGES
    assert calls["Counting._on_command"] == MESSAGES
    assert calls.total() <= MESSAGES + 5, calls.most_common(9)


def test_transfers_to_two_exchanges_in_turn_cost_three_calls_at_most() -> None:
    """The memory is asked; nothing is decoded."""
    octets = message(c.MessageTransfer("one", 1, 0)) + message(c.MessageTransfer("two", 1, 0))
    ear = listening_to(octets)
    ear.hear(octets)
    calls = calls_of(lambda: ear.hear(octets * MESSAGES))
    assert ear.count == 2 * MESSAGES + 2
    assert calls.total() <= 3 * 2 * MESSAGES + 8, calls.most_common(9)


def test_a_transfer_that_was_cut_in_two_costs_no_decoding() -> None:
    octets = message(c.MessageTransfer("", 1, 0))
    ear = listening_to(octets, octets)
    calls = calls_of(lambda: [ear.hear(octets[:40]), ear.hear(octets[40:])])
    assert ear.count == 1
    assert calls.total() < 30, calls.most_common(20)
    assert not calls["command_at"]


def test_a_transfer_goes_out_with_one_call() -> None:
    command = c.MessageTransfer("d", 0, 0).encode()
    out: list[bytes] = []
    calls = calls_of(lambda: append_frames(out, 1, command, samples.HEADER, bytes(100), 65_535))
    assert calls.total() <= 2, calls.most_common(9)  # and the lambda
    assert len(out) == 1


@pytest.mark.parametrize("name", ["message.accept", "session.completed"])
def test_what_may_come_for_every_message_costs_few_calls(name: str) -> None:
    (octets,) = [sample.octets for sample in samples.VECTORS if sample.name == name]
    ear = listening_to(octets)
    calls = calls_of(lambda: ear.hear(octets * MESSAGES))
    assert calls.total() <= 12 * MESSAGES, calls.most_common(20)
