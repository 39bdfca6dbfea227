"""Octets that nobody would send: nothing but MalformedError, no memory beyond what came, and never twice."""

from __future__ import annotations

import tracemalloc
from contextlib import suppress

from hypothesis import example, given
from hypothesis import strategies as st

from leveret.protocols.amqp010.codec import commands as c
from leveret.protocols.amqp010.codec.types import (
    MalformedError,
    array_at,
    encode,
    list_at,
    map_at,
    struct32_at,
    value_at,
)

from . import samples
from .heard import Ear
from .samples import GREETING

EVERY_CLASS: list[type[c.Packed]] = [getattr(c, name) for name in samples.PACKED]
EVERY_STRUCT = [of for of in EVERY_CLASS if issubclass(of, c.Struct)]
READERS = (value_at, map_at, list_at, array_at, struct32_at, c.struct_at, c.control_at, c.command_at)


@st.composite
def mutated(draw: st.DrawFn, octets: bytes) -> bytes:
    """The octets with a few of them changed, cut out, or put in."""
    spoilt = bytearray(octets)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(spoilt)))
        how = draw(st.sampled_from(("change", "cut", "put", "end")))
        if how == "change" and at < len(spoilt):
            spoilt[at] = draw(st.sampled_from((0, 1, 0x7F, 0x80, 0xAA, 0xF0, 0xFF)) | st.integers(0, 255))
        elif how == "cut":
            del spoilt[at : at + draw(st.integers(1, 8))]
        elif how == "put":
            spoilt[at:at] = draw(st.binary(min_size=1, max_size=8))
        else:
            del spoilt[at:]
    return bytes(spoilt)


def attempt(read, octets: bytes) -> None:
    with suppress(MalformedError):
        read(octets, 0, len(octets))


@given(st.binary(max_size=200))
@example(bytes.fromhex("aa 00000005 f0 ffffffff"))
def test_any_octets_are_read_or_malformed(octets: bytes) -> None:
    for read in READERS:
        attempt(read, octets)
    for of in EVERY_STRUCT:
        attempt(of.at, octets)


@given(samples.values.map(encode).flatmap(mutated))
def test_a_value_that_was_spoilt_is_read_or_malformed(octets: bytes) -> None:
    for read in READERS:
        attempt(read, octets)


@given(samples.values.map(encode).flatmap(mutated))
def test_a_value_that_could_be_read_can_be_written_and_read_again(octets: bytes) -> None:
    """Whatever came in can go out: not always to the same octets (keys that came twice), but to the same value."""
    try:
        value, _ = value_at(octets, 0, len(octets))
    except MalformedError:
        return
    again = encode(value)
    assert encode(value_at(again, 0, len(again))[0]) == again


@given(st.data())
def test_a_command_that_was_spoilt_is_read_or_malformed(data: st.DataObject) -> None:
    of = data.draw(st.sampled_from(EVERY_CLASS))
    made = data.draw(samples.packed(of))
    assert isinstance(made, c.Control | c.Command | c.Struct)
    octets = data.draw(mutated(made.encode()))
    for read in READERS:
        attempt(read, octets)
    for struct in EVERY_STRUCT:
        attempt(struct.at, octets)


STREAM = b"".join(sample.octets for sample in samples.SAMPLES)


@given(mutated(STREAM), st.integers(1, 400))
def test_frames_that_were_spoilt_are_heard_alike_however_they_are_read(octets: bytes, step: int) -> None:
    """What is read in pieces is what is read at once, and a framing error is told once."""
    at_once, in_pieces = Ear(body_size_max=100), Ear(body_size_max=100)
    at_once.hear(GREETING + octets)
    in_pieces.hear(GREETING)
    for at in range(0, len(octets), step):
        in_pieces.hear(octets[at : at + step])
    assert at_once.said == in_pieces.said
    assert at_once.lost == in_pieces.lost
    assert [each[:2] for each in at_once.wrong] == [each[:2] for each in in_pieces.wrong]
    assert at_once.large == in_pieces.large


frames = st.builds(
    lambda flags, of, channel, octets: (
        bytes((flags, of))
        + (12 + len(octets)).to_bytes(2, "big")
        + bytes((0, of > 0, 0, channel, 0, 0, 0, 0))
        + octets
    ),
    st.integers(0, 15),
    st.integers(0, 3),
    st.integers(0, 1),
    st.sampled_from([c.MessageTransfer().encode(), c.SessionFlush().encode(), b""]) | st.binary(max_size=20),
)


@given(st.lists(frames, max_size=12), st.integers(1, 40))
def test_any_order_of_good_frames_is_heard_alike_however_it_is_read(those: list[bytes], step: int) -> None:
    octets = b"".join(those)
    at_once, in_pieces = Ear(), Ear()
    at_once.hear(GREETING + octets)
    in_pieces.hear(GREETING)
    for at in range(0, len(octets), step):
        in_pieces.hear(octets[at : at + step])
    assert (at_once.said, at_once.lost) == (in_pieces.said, in_pieces.lost)


def test_no_size_and_no_count_makes_us_take_memory_that_did_not_come() -> None:
    """Every sample with four octets of 0xff at every place, in every reader."""
    spoilt = []
    for octets in [each for _, each in samples.VALUES] + [each.payload for each in samples.VECTORS]:
        for at in range(len(octets)):
            spoilt.append(octets[:at] + b"\xff\xff\xff\xff" + octets[at + 4 :])
            spoilt.append(octets[:at] + b"\x00\x00\xff\xff" + octets[at + 4 :])
    for octets in spoilt:  # what is made once, at the first use, is not counted
        read_at_its_word(octets)
    most = 0
    tracemalloc.start()
    try:
        for octets in spoilt:
            tracemalloc.reset_peak()
            before = tracemalloc.get_traced_memory()[0]
            read_at_its_word(octets)
            most = max(most, tracemalloc.get_traced_memory()[1] - before)
    finally:
        tracemalloc.stop()
    assert most < 50_000


def read_at_its_word(octets: bytes) -> None:
    """Read it as a value, a control and a command."""
    attempt(value_at, octets)
    attempt(c.control_at, octets)
    attempt(c.command_at, octets)
