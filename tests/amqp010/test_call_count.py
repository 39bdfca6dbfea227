"""The price of a message in Python calls: free of noise, and it only ever goes down."""

from __future__ import annotations

from collections import Counter

import pytest

from protocols.amqp010.codec import commands as c
from protocols.amqp010.codec.frames import append_frames, control_frame
from tests.harness.bench import ClientBench
from tests.harness.call_count import calls

from .client import ids
from .peer import Peer

MESSAGES = 100
SIZE = 256


class Line:
    """One sender, one receiver with a window, one queue."""

    def __init__(self, accept_mode: int) -> None:
        self.bench = ClientBench()
        self.accept_mode = accept_mode
        self.sender, self.receiver = Peer(self.bench).open(), Peer(self.bench).open()
        sending, receiving = self.sender.attach("out"), self.receiver.attach("in")
        sending.declare("q")
        receiving.subscribe("q", "q", 2 * MESSAGES, accept_mode=accept_mode)
        header = c.DeliveryProperties(routing_key="q").encode()
        header += c.MessageProperties(content_length=SIZE, content_type="text/plain").encode()
        out: list[bytes] = []
        for sync in (*[False] * (MESSAGES - 1), True):
            command = c.MessageTransfer("", accept_mode, 0).encode(sync)
            append_frames(out, sending.channel, command, header, bytes(SIZE), 65535)
        self.batch = b"".join(out)
        self.channel = receiving.channel
        self.received = receiving.next_incoming

    def round_trip(self) -> tuple[int, int]:
        """A batch in, its completion and deliveries out, then these completed and accepted. Octets delivered, and
        said to the sender."""
        self._take_in(self.sender, self.batch)
        delivered = len(self.receiver.take_bytes())
        told = len(self.sender.take_bytes())
        first, self.received = self.received, self.received + MESSAGES
        answer = control_frame(self.channel, c.SessionCompleted(ids((0, self.received - 1))).encode())
        if self.accept_mode == c.ACCEPT_MODE_EXPLICIT:
            out = [answer]
            accept = c.MessageAccept(ids((first, self.received - 1))).encode(sync=True)
            append_frames(out, self.channel, accept, None, None, 65535)
            answer = b"".join(out)
        self._take_in(self.receiver, answer)
        self.receiver.take_bytes()
        return delivered, told

    def _take_in(self, peer: Peer, octets: bytes) -> None:
        broker = self.bench.broker
        peer.front.receive(octets, broker.tick())
        broker.settle()

    def cost(self) -> Counter[str]:
        """The calls of one round trip, once everything has been seen before."""
        self.round_trip()
        seen: list[tuple[int, int]] = []
        counted = calls(lambda: seen.append(self.round_trip()))
        delivered, told = seen[0]
        assert delivered > MESSAGES * SIZE
        assert 0 < told < 100
        queue = self.bench.queue("q")
        assert (queue.ready, queue.unsettled, queue.accepted) == (0, 0, 2 * MESSAGES)
        return counted


@pytest.mark.parametrize(("accept_mode", "most"), [(c.ACCEPT_MODE_NONE, 13), (c.ACCEPT_MODE_EXPLICIT, 15)])
def test_a_message_costs_so_many_python_calls_at_most(accept_mode: int, most: int) -> None:
    cost = Line(accept_mode).cost()
    assert cost.total() / MESSAGES < most, cost.most_common(30)
