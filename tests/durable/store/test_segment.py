"""A segment looked into: what a damaged one still gives, and how little is read of a sound one."""

from __future__ import annotations

import random
from collections.abc import Container

import attrs
import pytest

from leveret.durable.store import segment
from leveret.durable.store.block import HEADER_OCTETS, pack
from leveret.durable.store.contract import BlockRange, Chunk, Reader, Span
from leveret.durable.store.segment import SegmentReader, gaps
from leveret.selectors.bloom import BloomQuery
from tests.durable.store.shelf import append, bodies_in, content_of

WHOLE = 1 << 30


@attrs.frozen
class Sample:
    """Blocks of a segment, and when they arrived."""

    octets: bytes
    ends: list[int]
    arrived: list[int]

    @property
    def span(self) -> Span:
        return Span(1, 10, 10 + 3 * len(self.ends), len(self.octets), 0, 0, 0)

    def block_at(self, at: int) -> int:
        return sum(end <= at for end in self.ends)

    def messages(self, without: Container[int] = ()) -> list[tuple[int, bytes]]:
        return [
            (offset, b"%d" % offset)
            for number in range(len(self.ends))
            if number not in without
            for offset in range(10 + 3 * number, 13 + 3 * number)
        ]


def sample(blocks: int = 6) -> Sample:
    octets, ends, arrived = b"", [], []
    for number in range(blocks):
        first = 10 + 3 * number
        arrived.append(1000 * number if number != 3 else 500)
        octets += pack(append(1, first, *(b"%d" % n for n in range(first, first + 3)), arrived=arrived[-1]))
        ends.append(len(octets))
    return Sample(octets, ends, arrived)


@pytest.fixture(params=["as they are", "small"])
def steps(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """An entry for each block, and many windows, even in a small segment."""
    if request.param == "small":
        monkeypatch.setattr(segment, "ENTRY_OCTETS", 1)
        monkeypatch.setattr(segment, "WINDOW_OCTETS", HEADER_OCTETS)
        monkeypatch.setattr(segment, "PEEK_OCTETS", HEADER_OCTETS)
        monkeypatch.setattr(segment, "SEARCH_OCTETS", 80)


class OneSegment(Reader):
    """Reads one segment, as any reader does."""

    def __init__(self, span: Span, octets: bytes) -> None:
        self.span = span
        self.octets = octets
        self.looks = SegmentReader()

    def read(self, at: int, length: int) -> bytes:
        return self.octets[at : at + length]

    def find(self, number: int) -> tuple[int, bytes]:
        raise NotImplementedError

    def messages(self, first: int, start: int, length: int) -> bytes:
        raise NotImplementedError

    def again(self, number: int) -> Chunk:
        raise NotImplementedError

    def blocks(self, stream: int, segment: int, offset: int, until: int, octets: int) -> bytes:
        return self.looks.blocks(self.span, self.read, offset, until, octets)

    def wanted(self, stream: int, segment: int, offset: int, until: int, wanted: BloomQuery) -> BlockRange:
        return self.looks.wanted(self.span, self.read, offset, until, wanted)

    def offset_since(self, stream: int, segment: int, until: int, arrived: int) -> int:
        return self.looks.offset_since(self.span, self.read, until, arrived)

    def content(self) -> list[tuple[int, bytes]]:
        return content_of(self, [self.span])[0]


def flipped(octets: bytes, *places: int) -> bytes:
    changed = bytearray(octets)
    for at in places:
        changed[at] ^= 1 << at % 8
    return bytes(changed)


@pytest.mark.usefixtures("steps")
def test_a_flipped_bit_costs_the_block_that_it_is_in():
    made = sample()
    for at in range(len(made.octets)):
        reader = OneSegment(made.span, flipped(made.octets, at))
        assert reader.content() == made.messages(without={made.block_at(at)}), at


@pytest.mark.usefixtures("steps")
def test_many_flipped_bits_cost_the_blocks_that_they_are_in():
    """And those between two damaged headers: nothing vouches for them."""
    made = sample(blocks=12)
    chance = random.Random(7)
    for _ in range(100):
        places = {chance.randrange(len(made.octets)) for _ in range(chance.randrange(2, 7))}
        damaged = {made.block_at(at) for at in places}
        headless = {
            made.block_at(at) for at in places if at - [0, *made.ends][made.block_at(at)] < HEADER_OCTETS
        }
        between = {n for n in range(1, 11) if {n - 1, n + 1} <= headless}
        reader = OneSegment(made.span, flipped(made.octets, *places))
        assert reader.content() == made.messages(without=damaged | between), places


@pytest.mark.usefixtures("steps")
def test_a_cut_costs_the_blocks_behind_it():
    made = sample()
    for at in range(len(made.octets)):
        reader = OneSegment(made.span, made.octets[:at])
        assert reader.content() == made.messages(without=range(made.block_at(at), 6)), at


@pytest.mark.usefixtures("steps")
def test_a_block_in_the_place_of_another_is_not_given_out():
    made = sample()
    begin, end, last = made.ends[1], made.ends[2], made.ends[3]
    swapped = made.octets[:begin] + made.octets[end:last] + made.octets[begin:end] + made.octets[last:]
    assert OneSegment(made.span, swapped).content() == made.messages(without={2, 3})


@pytest.mark.usefixtures("steps")
def test_a_block_that_is_the_body_of_a_message_is_not_given_out():
    """Behind a damaged header a publisher's own block is not taken for one of ours."""
    forged = pack(append(1, 11, b"forged"))
    for shift in range(8):  # until it lies where a block may
        around = pack(append(1, 10, bytes(shift) + forged, b"x"))
        if around.find(forged) % 8 == 0:
            break
    octets = flipped(around, 20) + pack(append(1, 12, b"real"))
    assert octets.find(forged) % 8 == 0
    span = Span(1, 10, 13, len(octets), 0, 0, 0)
    assert OneSegment(span, octets).content() == [(12, b"real")]


@pytest.mark.usefixtures("steps")
def test_a_time_is_found_among_the_blocks_whose_headers_can_be_read():
    made = sample()
    for at in (None, *range(0, len(made.octets), 7)):
        octets = made.octets if at is None else flipped(made.octets, at)
        lost = None
        if at is not None and at - [0, *made.ends][made.block_at(at)] < HEADER_OCTETS:
            lost = made.block_at(at)
        for arrived in (0, 400, 500, 1001, 2000, 2001, 4000, 5000, 5001):
            later = [n for n, time in enumerate(made.arrived) if n != lost and time >= arrived]
            expected = 10 + 3 * later[0] if later else 28
            for until in (28, 19):
                found = OneSegment(made.span, octets).offset_since(1, 10, until, arrived)
                assert found == min(expected, until), (at, arrived)


@pytest.mark.usefixtures("steps")
def test_what_is_known_of_a_segment_grows_with_it():
    """Though it is damaged at its end when it is looked at first."""
    made = sample()
    for lost in range(6):
        octets = flipped(made.octets, [0, *made.ends][lost] + 5)
        reader = OneSegment(attrs.evolve(made.span, next=13, octets=made.ends[0]), octets)
        for number, end in enumerate(made.ends):
            reader.span = attrs.evolve(made.span, next=13 + 3 * number, octets=end)
            expected = [each for each in made.messages(without={lost}) if each[0] < reader.span.next]
            assert reader.content() == expected
            assert reader.offset_since(1, 10, reader.span.next, 10_000) == reader.span.next


def test_what_cannot_be_read_is_told_in_offsets():
    made = sample()
    octets = flipped(made.octets, made.ends[0] + 3, made.ends[3] + HEADER_OCTETS + 3)
    reader = OneSegment(made.span, octets)
    assert [(begin, end) for begin, end, _ in gaps(made.span, reader.read)] == [(13, 16), (22, 25)]


def test_only_so_many_segments_are_remembered(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(segment, "INDEXES", 3)
    made, looks = sample(), SegmentReader()
    for stream in (*range(10), 8, 0):
        span = attrs.evolve(made.span, stream=stream)
        got = looks.blocks(span, lambda at, length: made.octets[at : at + length], 10, 28, WHOLE)
        assert bodies_in(got) == made.messages()
    assert len(looks._indexes) == 3


def test_a_long_segment_is_entered_near_the_offset_that_is_looked_for():
    """Few octets are read, once it is known where the blocks are."""
    octets, ends = b"", []
    for first in range(300):
        octets += pack(append(1, first, b"x" * 5000))
        ends.append(len(octets))
    reader = OneSegment(Span(1, 0, 300, len(octets), 0, 0, 0), octets)
    reader.blocks(1, 0, 299, 300, 1)
    lengths: list[int] = []
    look = reader.looks

    def read(at: int, length: int) -> bytes:
        lengths.append(length)
        return octets[at : at + length]

    for offset in (0, 17, 150, 299):
        lengths.clear()
        assert bodies_in(look.blocks(reader.span, read, offset, 300, 1)) == [(offset, b"x" * 5000)]
        assert sum(lengths) <= segment.WINDOW_OCTETS * 2 + 6000
