"""The price of a transfer on the wire, in Python calls: free of noise, and it only ever goes down."""

from __future__ import annotations

import pytest

from leveret.protocols.amqp010.codec import commands as c
from leveret.protocols.amqp010.codec.frames import append_frames
from tests.harness.call_count import calls

from . import samples
from .heard import Ear
from .samples import GREETING

MESSAGES = 100


class Counting(Ear):
    """Hears transfers and keeps nothing."""

    def _on_command(self, *arguments: object) -> None:  # type: ignore[override]
        self.count = getattr(self, "count", 0) + 1


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
    cost = calls(lambda: ear.hear(octets * MESSAGES))
    assert ear.count == MESSAGES
    assert cost["Counting._on_command"] == MESSAGES
    assert cost.total() <= MESSAGES + 9, cost.most_common(
        9
    )  # the read costs nine, if none are taken together


def test_transfers_to_two_exchanges_in_turn_cost_three_calls_at_most() -> None:
    """The memory is asked; nothing is decoded."""
    octets = message(c.MessageTransfer("one", 1, 0)) + message(c.MessageTransfer("two", 1, 0))
    ear = listening_to(octets)
    ear.hear(octets)
    cost = calls(lambda: ear.hear(octets * MESSAGES))
    assert ear.count == 2 * MESSAGES + 2
    assert cost.total() <= 3 * 2 * MESSAGES + 8, cost.most_common(9)


def test_a_transfer_that_was_cut_in_two_costs_no_decoding() -> None:
    octets = message(c.MessageTransfer("", 1, 0))
    ear = listening_to(octets, octets)
    cost = calls(lambda: [ear.hear(octets[:40]), ear.hear(octets[40:])])
    assert ear.count == 1
    assert cost.total() < 33, cost.most_common(20)  # it is asked once whether it may be published
    assert not cost["command_at"]


def test_a_transfer_goes_out_with_one_call() -> None:
    command = c.MessageTransfer("d", 0, 0).encode()
    out: list[bytes] = []
    cost = calls(lambda: append_frames(out, 1, command, samples.HEADER, bytes(100), 65_535))
    assert cost.total() <= 2, cost.most_common(9)  # and the lambda
    assert len(out) == 1


@pytest.mark.parametrize("name", ["message.accept", "session.completed"])
def test_what_may_come_for_every_message_costs_few_calls(name: str) -> None:
    (octets,) = [sample.octets for sample in samples.VECTORS if sample.name == name]
    ear = listening_to(octets)
    cost = calls(lambda: ear.hear(octets * MESSAGES))
    assert cost.total() <= 12 * MESSAGES, cost.most_common(20)
