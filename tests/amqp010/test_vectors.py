"""The samples through every door: decoded to what they say, encoded to the same octets, whatever way they come."""

from __future__ import annotations

import pytest

from leveret.protocols.amqp010.codec import commands as c
from leveret.protocols.amqp010.codec.frames import append_frames, control_frame
from leveret.protocols.amqp010.codec.types import Datetime, encode

from . import samples
from .heard import Ear, heard
from .samples import Sample

by_name = pytest.mark.parametrize("sample", samples.SAMPLES, ids=lambda sample: sample.name)


@pytest.mark.parametrize("sample", samples.VECTORS, ids=lambda sample: sample.name)
def test_a_vector_is_encoded_to_its_octets(sample: Sample) -> None:
    said = sample.said
    if isinstance(said, c.Control):
        assert control_frame(sample.channel, said.encode()) == sample.octets
        return
    out: list[bytes] = []
    octets = append_frames(out, 1, said.encode(sample.sync), sample.header, sample.body, 65_535)
    assert b"".join(out) == sample.octets
    assert octets == len(sample.octets)


@pytest.mark.parametrize("sample", samples.VECTORS, ids=lambda sample: sample.name)
def test_a_payload_is_decoded_to_what_the_vector_says(sample: Sample) -> None:
    data = b"front" + sample.payload + b"tail"
    at, end = 5, len(data) - 4
    if isinstance(sample.said, c.Control):
        assert c.control_at(data, at, end) == sample.said
    else:
        assert c.command_at(data, at, end) == (sample.said, sample.sync)


def test_the_header_segment_of_the_vector_is_two_structs() -> None:
    delivery, at = c.struct_at(samples.HEADER, 0, len(samples.HEADER))
    message, end = c.struct_at(samples.HEADER, at, len(samples.HEADER))
    assert (delivery, message) == (samples.DELIVERY_PROPERTIES, samples.MESSAGE_PROPERTIES)
    assert end == len(samples.HEADER)
    assert samples.DELIVERY_PROPERTIES.encode() + samples.MESSAGE_PROPERTIES.encode() == samples.HEADER


def test_a_datetime_has_eight_octets() -> None:
    assert encode(Datetime(1000))[1:] == bytes.fromhex("00000000000003e8")


@by_name
def test_a_sample_is_heard_whole(sample: Sample) -> None:
    assert heard(sample.octets) == [sample]


@by_name
def test_a_sample_is_heard_octet_by_octet(sample: Sample) -> None:
    ear = Ear()
    for octet in samples.GREETING + sample.octets:
        assert ear.said == []
        ear.hear(bytes((octet,)))
    assert ear.said == [sample]


@by_name
def test_a_sample_is_heard_in_any_two_pieces(sample: Sample) -> None:
    for cut in range(len(sample.octets)):
        ear = Ear()
        ear.hear(samples.GREETING + sample.octets[:cut])
        ear.hear(sample.octets[cut:])
        assert ear.said == [sample], cut


@by_name
def test_a_sample_is_heard_with_a_tail(sample: Sample) -> None:
    ear = Ear()
    ear.hear(samples.GREETING + sample.octets + sample.octets[:11])
    assert ear.said == [sample]
    ear.hear(sample.octets[11:])
    assert ear.said == [sample, sample]


def test_all_samples_are_heard_in_one_read_and_octet_by_octet() -> None:
    octets = b"".join(sample.octets for sample in samples.SAMPLES * 2)
    assert heard(octets) == samples.SAMPLES * 2
    assert heard(octets, step=1) == samples.SAMPLES * 2
    assert heard(octets, step=7) == samples.SAMPLES * 2
