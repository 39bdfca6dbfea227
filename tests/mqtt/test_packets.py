"""Each packet of MQTT is read and written as the specification says."""

from __future__ import annotations

import pytest

from leveret.protocols.mqtt.codec.packets import AnyPacket, Connect
from leveret.protocols.mqtt.codec.reader import AckRun, PublishRun, Reader
from tests.mqtt.samples import SAMPLES, Sample

by_name = pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: sample.name)


def reader(sample: Sample) -> Reader:
    version = 0 if isinstance(sample.packet, Connect) else sample.version
    return Reader(from_client=sample.from_client, version=version)


def taken(reader: Reader) -> list[AnyPacket]:
    """Return all whole packets one by one, the runs dissolved."""
    found: list[AnyPacket] = []
    while (packet := reader.take()) is not None:
        if isinstance(packet, PublishRun | AckRun):
            found += packet.packets()
        else:
            found.append(packet)
    return found


@by_name
def test_a_packet_is_written_as_the_specification_says(sample: Sample) -> None:
    assert sample.packet.encode(sample.version).hex(" ") == sample.octets.hex(" ")


@by_name
def test_a_packet_is_read_in_one_piece_and_with_a_tail(sample: Sample) -> None:
    read = reader(sample)
    read.push(sample.octets + b"\x30")
    assert taken(read) == [sample.packet]
    assert read.waiting == 1


@by_name
def test_a_packet_is_read_byte_by_byte(sample: Sample) -> None:
    read = reader(sample)
    for at in range(len(sample.octets)):
        assert taken(read) == []
        read.push(sample.octets[at : at + 1])
    assert taken(read) == [sample.packet]
    assert read.waiting == 0
