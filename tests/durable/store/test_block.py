"""The format of a block: what goes in comes out, arrays lie well, and no changed octet is believed."""

from __future__ import annotations

import json
import struct
import zlib
from array import array
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.durable.store import block
from leveret.durable.store.contract import Append, DamagedError
from leveret.message import Facts, Message, Notes
from tests.durable.store.test_chunk import MESSAGES, encoding_of, fields, told
from tests.harness.bench import ENCODING

ARRIVED = 1_700_000_000_000


def append(*messages: Message, first: int = 0) -> Append:
    return Append(1, 0, first, ARRIVED, list(messages))


def message(body: bytes = b"body", properties: bytes = b"", key: str = "key") -> Message:
    return Message(ENCODING, "", key, properties, body)


@st.composite
def appends(draw: st.DrawFn) -> Append:
    kinds = draw(st.lists(MESSAGES, min_size=1, max_size=2))
    made = append(
        *draw(st.lists(st.sampled_from(kinds), min_size=1, max_size=5)), first=draw(st.integers(0, 1 << 60))
    )
    if draw(st.booleans()):
        made.positions = array("Q", range(7, 7 + 3 * len(made.messages), 3))
        if draw(st.booleans()):
            made.arrivals = array("Q", range(ARRIVED - len(made.messages), ARRIVED))
    return made


def expected(made: Append) -> list[object]:
    """What is to be read: offsets are those of the block, and messages of streams go nowhere from there."""
    rows = []
    for offset, each in enumerate(made.messages, made.first):
        notes = each.notes or Notes()
        *own, _ = told(each)
        deaths = [fields(death) for death in notes.deaths]
        rows.append((*own, (deaths, notes.first_death, notes.last_death, offset, (), False)))
    return rows


@given(appends())
def test_what_is_packed_is_read_again(made: Append) -> None:
    read = block.Block(block.pack(made))
    assert [told(each) for each in block.messages_of(read, encoding_of)] == expected(made)
    head = read.header
    assert (head.first, head.count, head.arrived) == (made.first, len(made.messages), ARRIVED)
    assert head.next == made.first + len(made.messages)
    assert (read.positions is None) == (made.positions is None)
    if read.positions is not None and made.positions is not None:
        assert read.positions.tolist() == made.positions.tolist()
    assert (read.arrivals and read.arrivals.tolist()) == (made.arrivals and made.arrivals.tolist())


@given(appends(), st.integers(0, 1 << 62), st.integers(0, 1 << 50))
def test_a_block_with_another_place_and_time_is_as_if_it_had_been_packed_so(
    made: Append, first: int, arrived: int
) -> None:
    before = block.pack(made)
    made.first, made.arrived = first, arrived
    assert block.addressed(before, first, arrived) == block.pack(made)


@given(st.lists(st.lists(st.binary(max_size=9), min_size=1, max_size=3), min_size=2, max_size=4))
def test_blocks_in_a_row_are_found_by_their_headers(made: list[list[bytes]]) -> None:
    blocks = [block.pack(append(*map(message, bodies), first=at)) for at, bodies in enumerate(made)]
    octets, at, found = b"".join(blocks), 0, []
    while at < len(octets):
        head = block.header(octets, at)
        found.append([each.body for each in block.messages_of(block.Block(octets, at), encoding_of)])
        at += head.octets
    assert found == made
    assert block.range_of(octets) == (0, len(made) - 1 + len(made[-1]))
    assert block.range_of(blocks[1]) == (1, 1 + len(made[1]))


@given(appends())
def test_the_octets_lie_where_the_page_says(made: Append) -> None:
    """Read by hand, as another tool would: every list begins at a multiple of 8."""
    octets, messages = block.pack(made), made.messages
    magic, version, flags, _, size, count, first, _, origins, *lengths = struct.unpack_from(
        "<4sBBHIIQQIIII", octets
    )
    assert (magic, version, size, count, first) == (
        b"LvrB",
        1 if made.arrivals is None else 2,
        len(octets),
        len(messages),
        made.first,
    )
    origins_octets, properties_octets, bodies_octets = lengths
    at = 72

    def take(length: int) -> bytes:
        nonlocal at
        assert at % 8 == 0
        taken = octets[at : at + length]
        at += -(-length // 8) * 8
        return taken

    kinds = json.loads(take(origins_octets))
    assert len(kinds) == origins
    which = struct.unpack(f"<{count}I", take(4 * count)) if flags & 1 else (0,) * count
    assert [tuple(kinds[place][-2:]) for place in which] == [(each.exchange, each.key) for each in messages]
    if made.positions is not None:
        assert flags & 2
        assert list(struct.unpack(f"<{count}Q", take(8 * count))) == made.positions.tolist()
    if made.arrivals is not None:
        assert flags & 16
        assert list(struct.unpack(f"<{count}Q", take(8 * count))) == made.arrivals.tolist()
    if flags & 4:
        assert {take(properties_octets)} == {each.properties for each in messages}
    else:
        ends = struct.unpack(f"<{count + 1}I", take(4 * count + 4))
        octets_of_all = take(properties_octets)
        assert [octets_of_all[a:b] for a, b in pairwise(ends)] == [each.properties for each in messages]
    ends = struct.unpack(f"<{count + 1}I", take(4 * count + 4))
    octets_of_all = take(bodies_octets)
    assert [octets_of_all[a:b] for a, b in pairwise(ends)] == [each.body for each in messages]
    assert at == len(octets)


def small() -> bytes:
    made = append(message(b"a", b"p"), message(b"bc", b"", "other"), first=41)
    made.positions = array("Q", [5, 9])
    return block.pack(made)


def test_every_changed_octet_is_found() -> None:
    octets = small()
    for at in range(len(octets)):
        for flip in (1, 0x80, 0xFF):
            changed = bytearray(octets)
            changed[at] ^= flip
            with pytest.raises(DamagedError):
                block.Block(changed)


def test_every_cut_is_found() -> None:
    octets = small()
    for length in range(len(octets)):
        with pytest.raises(DamagedError, match="cut off"):
            block.Block(octets[:length])


def resealed(octets: bytes, at: int, value: int, size: int = 1) -> bytes:
    """A block that says something else in its header, whose checksum fits."""
    changed = bytearray(octets)
    changed[at : at + size] = value.to_bytes(size, "little")
    changed[68:72] = zlib.crc32(changed[:68]).to_bytes(4, "little")
    return bytes(changed)


@pytest.mark.parametrize(
    ("at", "value", "size", "said"),
    [
        (0, 0x58, 1, "no block"),
        (4, 2, 1, "format 2"),
        (5, 0x10, 1, "format 1 with flags 16"),
        (8, 71, 4, "contradicts"),
        (8, 75, 4, "contradicts"),
        (12, 0, 4, "contradicts"),
        (12, 1 << 31, 4, "shorter"),
        (40, 1 << 31, 4, "shorter"),
        (44, 40, 4, "shorter"),
        (44, 0, 4, "longer"),
    ],
)
def test_a_header_that_lies_is_not_believed(at: int, value: int, size: int, said: str) -> None:
    with pytest.raises(DamagedError, match=said):
        block.Block(resealed(small(), at, value, size))


def test_a_message_of_a_protocol_that_is_not_there_is_not_given_out() -> None:
    read = block.Block(block.pack(append(message())))
    with pytest.raises(DamagedError, match="fake"):
        block.messages_of(read, lambda name: None)


def test_like_messages_have_one_origin_and_their_properties_once() -> None:
    like = [message(b"1", b"same"), message(b"22", b"same")]
    read = block.Block(block.pack(append(*like)))
    assert (read.which, read.property_ends, bytes(read.properties)) == (None, None, b"same")
    assert len(read.origins) == 1
    unlike = block.Block(block.pack(append(*like, message(b"333", b"own", "other"))))
    assert unlike.which is not None
    assert unlike.which.tolist() == [0, 0, 1]
    assert unlike.property_ends is not None
    assert unlike.property_ends.tolist() == [0, 4, 8, 11]


def test_offsets_that_messages_had_elsewhere_make_no_kinds_of_their_own() -> None:
    made = append(*(message(b"x") for _ in range(3)))
    for at, each in enumerate(made.messages):
        each.notes = Notes()
        each.notes.offset = 1000 + at
    assert len(block.Block(block.pack(made)).origins) == 1


def test_facts_alone_make_a_kind() -> None:
    plain, durable = (Message(ENCODING, "", "q", b"", b"x", Facts(durable=each)) for each in (False, True))
    read = block.messages_of(block.Block(block.pack(append(plain, durable, plain))), encoding_of)
    assert [each.facts.durable for each in read] == [False, True, False]


def test_a_large_commit_becomes_several_blocks() -> None:
    half = bytes(block.BLOCK_OCTETS // 2)
    made = append(*(message(half) for _ in range(5)), first=10)
    made.positions = array("Q", range(5))
    made.arrivals = array("Q", range(7, 12))
    pieces = list(block.split(made))
    assert [(each.first, len(each.messages)) for each in pieces] == [(10, 2), (12, 2), (14, 1)]
    assert [each.positions.tolist() for each in pieces if each.positions is not None] == [[0, 1], [2, 3], [4]]
    assert [each.arrivals.tolist() for each in pieces if each.arrivals is not None] == [[7, 8], [9, 10], [11]]
    assert {(each.stream, each.segment, each.arrived) for each in pieces} == {(1, 0, ARRIVED)}


def test_many_small_messages_become_several_blocks() -> None:
    made = append(*[message(b"")] * (2 * block.BLOCK_MESSAGES + 1))
    assert [len(each.messages) for each in block.split(made)] == [block.BLOCK_MESSAGES] * 2 + [1]


def test_properties_count_for_a_block_as_bodies_do() -> None:
    headed = message(b"", bytes(block.BLOCK_OCTETS))
    assert [len(each.messages) for each in block.split(append(headed, headed))] == [1, 1]


def test_a_small_commit_is_not_taken_to_pieces() -> None:
    made = append(message(), message())
    assert next(block.split(made)) is made


def test_more_than_a_header_can_say_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    size = len(block.pack(append(message(bytes(500)))))
    for octets_max in (200, 500, size):
        monkeypatch.setattr(block, "OCTETS_MAX", octets_max)
        with pytest.raises(ValueError, match="2 GiB"):
            block.pack(append(message(bytes(500))))
    monkeypatch.setattr(block, "OCTETS_MAX", size + 1)
    assert len(block.pack(append(message(bytes(500))))) == size


def test_remembered_origins_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(block, "ORIGINS_MAX", 3)
    block.origins.clear()
    for number in range(10):
        block.pack(append(message(b"", b"", f"key{number}")))
        assert len(block.origins) <= 3
