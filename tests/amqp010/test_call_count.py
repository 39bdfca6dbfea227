"""The price of a message in Python calls: free of noise, and it only ever goes down."""

from __future__ import annotations

from collections import Counter
from uuid import UUID

import pytest

from leveret.protocols.amqp010.codec import commands as c
from leveret.protocols.amqp010.codec.frames import append_frames, control_frame
from tests.harness.bench import ClientBench
from tests.harness.call_count import calls

from .client import ids
from .peer import Peer

MESSAGES = 100
SIZE = 256


HEADER = (
    c.DeliveryProperties(routing_key="q").encode()
    + c.MessageProperties(content_length=SIZE, content_type="text/plain").encode()
)


def own_header(number: int) -> bytes:
    """Return the header segment of a message as applications send them."""
    headers = {"traceparent": f"00-{number:032x}-01", "attempt": 1}
    return (
        c.DeliveryProperties(routing_key="q", timestamp=1_700_000_000 + number).encode()
        + c.MessageProperties(
            content_length=SIZE,
            message_id=UUID(int=number),
            correlation_id=b"c%d" % number,
            content_type="application/json",
            application_headers=headers,
        ).encode()
    )


class Line:
    """One sender, one receiver with a window, one queue. Messages are alike, or have ids, a time and headers of their
    own."""

    def __init__(self, accept_mode: int, own: bool = False) -> None:
        self.bench = ClientBench()
        self.accept_mode = accept_mode
        self.sender, self.receiver = Peer(self.bench).open(), Peer(self.bench).open()
        sending, receiving = self.sender.attach("out"), self.receiver.attach("in")
        sending.declare("q")
        receiving.subscribe("q", "q", 2 * MESSAGES, accept_mode=accept_mode)
        self.sending = sending.channel
        self.own = own
        self.batch = self._batch(0)
        self.channel = receiving.channel
        self.received = receiving.next_incoming

    def _batch(self, begin: int) -> bytes:
        out: list[bytes] = []
        for number in range(begin, begin + MESSAGES):
            header = own_header(number) if self.own else HEADER
            command = c.MessageTransfer("", self.accept_mode, 0).encode(number == begin + MESSAGES - 1)
            append_frames(out, self.sending, command, header, bytes(SIZE), 65535)
        return b"".join(out)

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
        peer.intake.receive(octets, broker.tick())
        broker.settle()

    def cost(self) -> Counter[str]:
        """The calls of one round trip, once everything has been seen before."""
        self.round_trip()
        self.batch = self._batch(MESSAGES)
        seen: list[tuple[int, int]] = []
        counted = calls(lambda: seen.append(self.round_trip()))
        delivered, told = seen[0]
        assert delivered > MESSAGES * SIZE
        assert 0 < told < 100
        queue = self.bench.queue("q")
        assert (queue.ready, queue.unsettled, queue.accepted) == (0, 0, 2 * MESSAGES)
        return counted


@pytest.mark.parametrize(("accept_mode", "most"), [(c.ACCEPT_MODE_NONE, 5.3), (c.ACCEPT_MODE_EXPLICIT, 7.3)])
def test_a_message_costs_so_many_python_calls_at_most(accept_mode: int, most: float) -> None:
    cost = Line(accept_mode).cost()
    assert cost.total() / MESSAGES < most, cost.most_common(30)


def test_ids_times_and_headers_of_its_own_cost_a_message_a_few_calls_more() -> None:
    alike = Line(c.ACCEPT_MODE_NONE).cost().total()
    own = Line(c.ACCEPT_MODE_NONE, own=True).cost()
    assert (own.total() - alike) / MESSAGES < 9.5, own.most_common(30)


def test_a_run_of_which_a_part_is_taken_again_and_again_is_not_read_each_time() -> None:
    """Every second message is for a queue with a limit, and goes by itself: what follows is not read for each anew."""
    bench = ClientBench()
    bench.host.declare_queue("free")
    bench.host.declare_queue("short", arguments={"x-max-length": 1000})
    sender = Peer(bench).open()
    session = sender.attach("out")
    out: list[bytes] = []
    for number in range(MESSAGES):
        header = c.DeliveryProperties(routing_key=("free", "short")[number % 2]).encode()
        command = c.MessageTransfer("", c.ACCEPT_MODE_NONE, 0).encode()
        append_frames(out, session.channel, command, header, bytes(SIZE), 65535)
    octets = b"".join(out)
    sender.send_bytes(octets)
    cost = calls(lambda: sender.send_bytes(octets))
    assert cost["Broker.publish_run"] <= 2
    assert cost["envelope_of"] <= 3 * MESSAGES
    assert [bench.queue(name).ready for name in ("free", "short")] == [MESSAGES, MESSAGES]
