"""Frames and the octets known by heart: each agrees with what the composite types say."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.protocols.amqp10.codec import performatives as p
from leveret.protocols.amqp10.codec import wire
from leveret.protocols.amqp10.codec.errors import AmqpError
from leveret.protocols.amqp10.codec.types import DecodeError, Symbol, UInt, encode

from .machine import frames

UINTS = (0, 1, 255, 256, 0x7FFF_FFFF, 0xFFFF_FFFF)


def said(octets: bytes, channel: int = 7) -> p.Record:
    """The performative of the only frame in there, which has nothing behind it."""
    [(kind, number, body)] = frames(octets)
    assert (kind, number) == (0, channel)
    performative, at = p.decode(body, 0, len(body))
    assert at == len(body)
    return performative


# Numbers that wrap round.


@pytest.mark.parametrize(
    ("to", "since", "between"),
    [(0, 0, 0), (5, 3, 2), (3, 5, -2), (0, 0xFFFF_FFFF, 1), (0xFFFF_FFFF, 0, -1), (2, 0xFFFF_FFFE, 4)],
)
def test_distance_goes_round_at_the_end_of_32_bits(to: int, since: int, between: int) -> None:
    assert wire.distance(to, since) == between


@pytest.mark.parametrize("number", UINTS)
def test_a_uint_is_as_short_as_can_be(number: int) -> None:
    assert wire.uint(number) == encode(UInt(number))


@given(st.lists(st.integers(0, 30)))
def test_runs_are_the_numbers_in_their_order(numbers: list[int]) -> None:
    found = wire.runs(numbers)
    assert [each for first, last in found for each in range(first, last + 1)] == numbers
    assert all(last + 1 != first for (_, last), (first, _) in pairwise(found))


# Frames.


def test_a_frame_has_its_size_an_offset_of_two_words_a_type_and_a_channel() -> None:
    assert wire.frame(0x102, b"body") == b"\0\0\0\x0c\x02\0\x01\x02body"
    assert wire.frame(0, b"", kind=1) == b"\0\0\0\x08\x02\x01\0\0"
    assert wire.EMPTY_FRAME == b"\0\0\0\x08\x02\0\0\0"


def test_a_payload_stands_behind_a_transfer_and_behind_nothing_else() -> None:
    transfer = p.Transfer(handle=1)
    body = transfer.encode() + b"payload"
    assert wire.performative_at(body, 0, len(body)) == (transfer, b"payload")
    body = p.End().encode() + b"payload"
    with pytest.raises(DecodeError, match="7 octets follow amqp:end:list"):
        wire.performative_at(body, 0, len(body))


# Flows, dispositions and transfers that are made without the composite types.


@pytest.mark.parametrize("number", UINTS)
def test_a_session_flow_says_what_a_flow_says(number: int) -> None:
    assert said(wire.session_flow(7, number, 400, number)) == p.Flow(
        next_incoming_id=number,
        incoming_window=400,
        next_outgoing_id=number,
        outgoing_window=wire.OUTGOING_WINDOW,
    )


@pytest.mark.parametrize("drain", [True, False])
@pytest.mark.parametrize("number", UINTS)
def test_a_link_flow_says_what_a_flow_says(number: int, drain: bool) -> None:
    assert said(wire.link_flow(7, 1, 2, 3, number, 4, number, 5, drain)) == p.Flow(
        next_incoming_id=1,
        incoming_window=2,
        next_outgoing_id=3,
        outgoing_window=wire.OUTGOING_WINDOW,
        handle=number,
        delivery_count=4,
        link_credit=number,
        available=5,
        drain=drain,
    )


STATES: list[p.DeliveryState | None] = [
    None,
    p.Accepted(),
    p.Released(),
    p.Modified(delivery_failed=True),
    p.Rejected(error=p.Error(condition="amqp:not-found", description="no queue 'q'")),
    p.Rejected(error=p.Error(condition="amqp:not-found", description="x" * 300)),
    p.TransactionalState(txn_id=b"1", outcome=p.Accepted()),
]


@pytest.mark.parametrize("state", STATES, ids=repr)
@pytest.mark.parametrize("settled", [True, False])
@pytest.mark.parametrize("receiver", [True, False])
def test_a_disposition_frame_says_what_a_disposition_says(
    receiver: bool, settled: bool, state: p.DeliveryState | None
) -> None:
    end = wire.disposition_end(settled, state, 1000)
    assert said(wire.disposition_frame(7, receiver, 1, 0xFFFF_FFFF, end)) == p.Disposition(
        role=receiver, first=1, last=0xFFFF_FFFF, settled=settled, state=state
    )


@pytest.mark.parametrize("prefix", [b"", b"prefixed"])
@pytest.mark.parametrize("handle", UINTS)
def test_the_head_of_a_transfer_says_what_a_transfer_says(handle: int, prefix: bytes) -> None:
    head = wire.TransferHead(7, handle, prefix)
    assert head.tag(0x0102_0304) == prefix + b"\x01\x02\x03\x04"
    for settled, end in ((True, wire.SETTLED), (False, wire.UNSETTLED)):
        expected = p.Transfer(
            handle=handle,
            delivery_id=0x0102_0304,
            delivery_tag=prefix + b"\x01\x02\x03\x04",
            message_format=0,
            settled=settled,
        )
        octets = head.pack(head.size, head.start, 0x0102_0304, head.tag_begin, 0x0102_0304, end)
        assert len(octets) == head.size
        assert said(octets) == expected
        assert head.body(0x0102_0304, settled, more=False) == octets[8:]
        expected.more = True
        body = head.body(0x0102_0304, settled, more=True)
        assert p.decode(body, 0, len(body)) == (expected, len(body))


@pytest.mark.parametrize("more", [True, False])
@pytest.mark.parametrize("handle", UINTS)
def test_a_continuation_says_its_handle_and_whether_there_is_more(handle: int, more: bool) -> None:
    octets = wire.continuation(handle, more)
    assert p.decode(octets, 0, len(octets)) == (p.Transfer(handle=handle, more=more), len(octets))
    assert len(octets) == len(wire.continuation(handle, not more)) <= 16


@given(st.lists(st.binary(max_size=5), max_size=5), st.integers(0, 12), st.integers(0, 26))
def test_cut_takes_the_octets_between_whatever_pieces_they_lie_in(
    pieces: list[bytes], at: int, end: int
) -> None:
    assert b"".join(wire.cut(pieces, at, end)) == b"".join(pieces)[at:end]


@pytest.mark.parametrize(("at", "end"), [(3, 2), (3, 0), (9, 1), (9, 6), (12, 3), (5, 5), (3, 3), (0, 0)])
def test_cut_takes_nothing_where_the_end_is_not_behind_the_beginning(at: int, end: int) -> None:
    assert wire.cut([b"first", b"second"], at, end) == []


def test_cut_does_not_copy_a_piece_that_it_takes_whole() -> None:
    piece = bytes(1000)
    assert wire.cut([b"first", piece, b"last"], 3, 1007)[1] is piece


# The ends of transfers, dispositions and flows that are known by heart.


def composite(code: int, fields: bytes, count: int, wide: bool) -> bytes:
    if wide:
        return bytes((0, 0x53, code, 0xD0)) + (len(fields) + 4).to_bytes(4) + count.to_bytes(4) + fields
    return bytes((0, 0x53, code, 0xC0, len(fields) + 1, count)) + fields


def test_every_end_of_a_transfer_says_what_it_says_when_decoded() -> None:
    assert len(wire.TRANSFER_ENDS) > 500
    for end, (count, settled, more) in wire.TRANSFER_ENDS.items():
        octets = composite(0x14, b"\x43\x43\xa0\x01t" + end, count, wide=False)
        transfer, _ = p.decode(octets, 0, len(octets))
        assert isinstance(transfer, p.Transfer)
        assert (transfer.settled, transfer.more) == (settled, more), end
        transfer.settled, transfer.more, transfer.batchable, transfer.message_format = (
            None,
            False,
            False,
            None,
        )
        assert transfer == p.Transfer(handle=0, delivery_id=0, delivery_tag=b"t"), end


def test_every_end_of_a_disposition_says_what_it_says_when_decoded() -> None:
    for end, (count, settled, state) in wire.DISPOSITION_ENDS.items():
        octets = composite(0x15, b"\x41\x43\x40" + end, count, wide=False)
        disposition, _ = p.decode(octets, 0, len(octets))
        assert isinstance(disposition, p.Disposition)
        disposition.batchable = False
        assert disposition == p.Disposition(role=True, first=0, settled=settled, state=state), end


FIELDS = st.sampled_from(
    (
        *(b"\x40", b"\x41", b"\x42", b"\x43", b"\x52\x00", b"\x52\x05", b"\x56\x01", b"\x60\x00\x01"),
        *(b"\x70\x00\x00\x00\x09", b"\x70\xff\xff\xff\xff", b"\xc1\x01\x00"),
        *(b"\x00\x53\x24\x45", b"\x00\x53\x24\xc0\x01\x00", b"\x00\x53\x25\x45"),
    )
)


def decoded(octets: bytes) -> p.Record | None:
    try:
        return wire.performative_at(octets, 0, len(octets))[0]
    except AmqpError:
        return None


@given(st.lists(FIELDS, max_size=12), st.booleans(), st.integers(-1, 1))
def test_a_flow_read_by_heart_is_the_flow_decoded(fields: list[bytes], wide: bool, wrong: int) -> None:
    octets = composite(0x13, b"".join(fields), max(0, len(fields) + wrong), wide)
    flow = wire.flow_at(octets, 0, len(octets))
    assert flow is None or flow == decoded(octets)


@given(st.lists(FIELDS, min_size=2, max_size=6), st.booleans(), st.integers(-1, 1))
def test_a_disposition_read_by_heart_is_the_disposition_decoded(
    fields: list[bytes], wide: bool, wrong: int
) -> None:
    octets = composite(0x15, b"\x41" + b"".join(fields), len(fields) + 1 + wrong, wide)
    found = wire.disposition_at(octets, 0, len(octets))
    if found is not None:
        expected = decoded(octets)
        assert isinstance(expected, p.Disposition)
        last = expected.first if expected.last is None else expected.last
        assert found == (expected.first, last, expected.state, expected.settled)
        assert expected.role


@pytest.mark.parametrize(
    "flow",
    [
        p.Flow(next_incoming_id=0, incoming_window=2048, next_outgoing_id=1, outgoing_window=9),
        p.Flow(
            incoming_window=2048,
            next_outgoing_id=1,
            outgoing_window=9,
            handle=0,
            delivery_count=0,
            link_credit=10,
        ),
        p.Flow(
            incoming_window=1,
            next_outgoing_id=1,
            outgoing_window=9,
            handle=3,
            link_credit=300,
            drain=True,
            echo=True,
        ),
    ],
    ids=["session", "credit", "drain"],
)
def test_the_flows_that_clients_send_are_known_by_heart(flow: p.Flow) -> None:
    octets = flow.encode()
    assert wire.flow_at(octets, 0, len(octets)) == flow


@pytest.mark.parametrize("wide", [True, False])
@pytest.mark.parametrize("last", [b"\x40", b"\x43", b"\x52\x07", b"\x70\x00\x00\x01\x00"])
def test_the_dispositions_that_clients_send_are_known_by_heart(last: bytes, wide: bool) -> None:
    octets = composite(0x15, b"\x41\x43" + last + b"\x41\x00\x53\x24\x45", 5, wide)
    assert wire.disposition_at(octets, 0, len(octets)) is not None


# Errors.


def test_an_error_that_fits_is_told_whole() -> None:
    error = AmqpError("amqp:not-found", "no queue 'q'", info={"queue": "q"})
    told = p.Error(condition="amqp:not-found", description="no queue 'q'", info={"queue": "q"})
    assert wire.error_of(error, 100) == told


@given(st.text(max_size=600), st.integers(60, 600), st.booleans())
def test_an_error_is_cut_to_the_size_there_is(description: str, size_max: int, has_info: bool) -> None:
    info = {Symbol("queue"): "q" * 300} if has_info else None
    told = wire.error_of(AmqpError("amqp:not-found", description, info=info), size_max)
    assert len(told.encode()) <= size_max
    assert description.startswith(told.description or "")
    assert told.info in (None, info)


def test_a_sentence_that_is_no_unicode_is_told_as_far_as_it_is() -> None:
    assert wire.error_of(AmqpError("amqp:not-found", "no \udce9 queue"), 100).description == "no ? queue"


def test_the_error_of_a_rejected_message_is_cut_as_well() -> None:
    state = p.Rejected(error=p.Error(condition="amqp:not-found", description="é" * 1000))
    assert len(wire.disposition_end(True, state, 400)) < 420
