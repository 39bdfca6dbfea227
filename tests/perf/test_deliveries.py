"""What a broker sends, at every split, is counted as if it came in one piece."""

from __future__ import annotations

import random
from struct import pack

import pytest

from leveret.perf.amqp091 import delivery_shape
from leveret.perf.deliveries import Run, Shape, Strides
from leveret.perf.errors import PerfError
from leveret.protocols.amqp091.codec import methods as m
from leveret.protocols.amqp091.codec import wire
from leveret.protocols.amqp091.codec.wire import BasicProperties

OTHER = wire.method_frame(1, m.BasicConsumeOk("c").encode())


def delivery(
    number: int, size: int = 30, channel: int = 1, frame_max: int = 131072, key: str = "perf-0"
) -> bytes:
    out: list[bytes] = []
    body = pack("<QIQ", 1000 + number, 3, number) + b"x" * (size - 20)
    method = m.BasicDeliver("c", number + 1, number % 7 == 0, "", key).encode()
    wire.append_content(out, channel, method, BasicProperties(delivery_mode=1).encode(), body, frame_max)
    return b"".join(out)


class Heard:
    """Every delivery that runs are made of, and the other frames."""

    def __init__(self) -> None:
        self.found: list[tuple[int, int, int, int]] = []
        self.others = self.shapes = self.runs = 0
        self.strides = Strides(self.shape_at, self.on_run)
        self.tail = b""

    def shape_at(self, octets: bytearray, at: int, end: int) -> Shape | int:
        self.shapes += 1
        if octets.startswith(OTHER, at, end):
            self.others += 1
            return len(OTHER)
        if OTHER.startswith(octets[at:end]):
            return 0
        return delivery_shape(octets, at, end)

    def on_run(self, run: Run) -> None:
        self.runs += 1
        numbers, stamps = run.numbers(), run.stamps()
        assert numbers is not None
        assert stamps is not None
        self.found += zip(run.channels(), stamps, run.publishers(), numbers, strict=True)

    def hear(self, octets: bytes) -> None:
        held = bytearray(self.tail + octets)
        done = self.strides.take(held, len(held))
        self.tail = bytes(held[done:])


def expected(numbers: range, channel_of=lambda number: 1) -> list[tuple[int, int, int, int]]:
    return [(channel_of(number), 1000 + number, 3, number) for number in numbers]


def test_deliveries_alike_are_one_run():
    heard = Heard()
    heard.hear(b"".join(map(delivery, range(2000))))
    assert heard.found == expected(range(2000))
    assert heard.shapes < 12  # 8, 16, 32 ... at a time


def test_every_split():
    octets = (
        delivery(0) + delivery(1) + OTHER + delivery(2, size=70) + delivery(3, size=70) + delivery(4, size=20)
    )
    for split in range(len(octets) + 1):
        heard = Heard()
        heard.hear(octets[:split])
        heard.hear(octets[split:])
        assert (heard.found, heard.others, heard.tail) == (expected(range(5)), 1, b"")


def test_octet_by_octet():
    heard = Heard()
    for octet in delivery(0) + OTHER + delivery(1, size=5000, frame_max=4096) + delivery(2):
        heard.hear(bytes((octet,)))
    assert (heard.found, heard.others) == (expected(range(3)), 1)


def test_traffic_of_mixed_sizes_channels_and_other_frames_is_read_right():
    chance = random.Random(5)
    octets, others = b"", 0
    for number in range(400):
        if chance.random() < 0.05:
            octets, others = octets + OTHER, others + 1
        size = chance.choice([20, 30, 30, 30, 286, 9000])
        octets += delivery(
            number, size, channel=1 + number % 3, key="perf-0" * chance.choice([1, 1, 1, 2]), frame_max=4096
        )
    heard = Heard()
    heard.hear(octets)
    assert heard.found == expected(range(400), lambda number: 1 + number % 3)
    assert heard.others == others


@pytest.mark.parametrize("frame", [OTHER, wire.heartbeat_frame(), wire.header_frame(2, 60, 5, b"\0\0")])
def test_frames_of_others_between_those_of_a_delivery_are_refused_not_miscounted(frame: bytes):
    octets = delivery(0)
    method = 8 + int.from_bytes(octets[3:7])
    mixed = bytearray(octets[:method] + frame + octets[method:])
    with pytest.raises(PerfError, match="mixed"):
        delivery_shape(mixed, 0, len(mixed))
