"""Transfers of a broker, at every split, are counted as if they came in one piece."""

from __future__ import annotations

from struct import pack

import pytest

from leveret.perf.amqp10 import body_in, transfer_shape
from leveret.perf.deliveries import Run, Shape
from leveret.protocols.amqp10.codec import performatives as p
from leveret.protocols.amqp10.codec import wire
from tests.perf import test_deliveries


def message(number: int, size: int) -> bytes:
    body = pack("<QIQ", 1000 + number, 3, number) + b"x" * (size - 20)
    length = bytes((0xA0, size)) if size < 256 else b"\xb0" + pack(">I", size)
    return p.Header(durable=True).encode() + b"\x00\x53\x75" + length + body


def delivery(number: int, size: int = 30, channel: int = 0) -> bytes:
    """As most brokers write it: numbers as short as they can be."""
    fields = p.Transfer(
        handle=0, delivery_id=number, delivery_tag=pack(">H", number), message_format=0, settled=False
    )
    return wire.frame(channel, fields.encode() + message(number, size))


class Heard(test_deliveries.Heard):
    ended = 0

    def shape_at(self, octets: bytearray, at: int, end: int) -> Shape | int:
        self.shapes += 1
        size = int.from_bytes(octets[at : at + 4]) if end - at >= 8 else 1 << 30
        if at + size > end:
            return 0
        frame = bytes(octets[at : at + size])
        transfer, payload = wire.performative_at(frame, 8, size)
        assert isinstance(transfer, p.Transfer)
        return transfer_shape(frame, 8, transfer, size - len(payload))

    def on_run(self, run: Run) -> None:
        self.ended += run.count if run.shape.ends else 0
        numbers, stamps = run.numbers(), run.stamps()
        if numbers is not None and stamps is not None:
            self.found += zip(run.channels(), stamps, run.publishers(), numbers, strict=True)


def expected(numbers: range) -> list[tuple[int, int, int, int]]:
    return [(0, 1000 + number, 3, number) for number in numbers]


def test_deliveries_alike_are_one_run():
    heard = Heard()
    heard.hear(b"".join(delivery(number) for number in range(300, 2000)))
    assert heard.found == expected(range(300, 2000))
    assert heard.shapes < 12


def test_numbers_that_grow_longer_part_runs():
    heard = Heard()
    heard.hear(b"".join(delivery(number) for number in range(600)))
    assert heard.found == expected(range(600))


def test_every_split():
    octets = delivery(0) + delivery(1) + delivery(2) + delivery(3, size=300) + delivery(4, size=20)
    for split in range(len(octets) + 1):
        heard = Heard()
        heard.hear(octets[:split])
        heard.hear(octets[split:])
        assert (heard.found, heard.tail) == (expected(range(5)), b"")


def test_a_delivery_in_several_transfers_is_one():
    whole = message(0, 500)
    first = p.Transfer(handle=0, delivery_id=0, delivery_tag=b"t", message_format=0, more=True).encode()
    octets = wire.frame(0, first + whole[:100])
    octets += wire.frame(0, wire.continuation(0, True) + whole[100:300])
    octets += wire.frame(0, wire.continuation(0, False) + whole[300:])
    heard = Heard()
    heard.hear(octets + delivery(1))
    assert (heard.found, heard.ended) == (expected(range(2)), 2)


@pytest.mark.parametrize(
    ("octets", "found"),
    [
        (b"", (0, 0)),
        (b"\x00\x53\x75\xa0\x03abc", (5, 3)),
        (b"\x00\x53\x75\xb0\x00\x00\x00\x03abc", (8, 3)),
        (p.Header(durable=True).encode() + b"\x00\x53\x75\xa0\x01a", (12, 1)),
        (b"\x00\x53\x77\xa1\x03abc", (0, 0)),  # a value is no octets
        (b"\x00\x53\x75\xa0", (0, 0)),
        (b"\x00\x53\x75", (0, 0)),
        (b"nonsense", (0, 0)),
    ],
)
def test_where_a_body_is(octets: bytes, found: tuple[int, int]):
    assert body_in(octets, 0) == found
