"""The connection machine: every state against every performative, and against anything else."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.protocols.amqp10.codec import performatives as p
from leveret.protocols.amqp10.machine.connection import State

from .machine import (
    AMQP_HEADER,
    SASL_HEADER,
    Peer,
    begin,
    begun,
    close_heard,
    closed,
    closing,
    disposition,
    flow,
    frame,
    linked,
    octets,
    open_,
    opened,
    opening,
    receiver,
    sasl,
    sender,
    transfer,
)

SAID: dict[type[p.Record], p.Record] = {
    p.Open: open_(),
    p.Begin: begin(),
    p.Attach: sender(handle=5),
    p.Flow: flow(),
    p.Transfer: p.Transfer(handle=0, delivery_id=0, delivery_tag=b"t"),
    p.Disposition: disposition(0),
    p.Detach: p.Detach(handle=0, closed=True),
    p.End: p.End(),
    p.Close: p.Close(),
    p.SaslInit: p.SaslInit(mechanism="PLAIN"),
    p.Error: p.Error(condition="amqp:not-found"),
    p.Source: p.Source(),
}
OF_FRAMES = pytest.mark.parametrize("of", SAID, ids=lambda of: of.__name__)


# Every state against every performative.


@OF_FRAMES
def test_before_the_open_everything_else_is_out_of_place(of: type[p.Record]) -> None:
    peer = opening().says(SAID[of])
    if of is p.Open:
        assert peer.connection.state is State.OPEN
        return
    text = f"unexpected {of.NAME} on channel 0 in connection state opening"
    assert close_heard(peer) == ("amqp:illegal-state", text)
    assert peer.connection.state is State.CLOSING


@OF_FRAMES
def test_without_a_session_only_begin_and_close_are_in_place(of: type[p.Record]) -> None:
    peer = opened().says((3, SAID[of]))
    if of is p.Begin:
        assert isinstance(peer.hears_one(p.Begin), p.Begin)
    elif of is p.Close:
        assert peer.hears_one(p.Close) == p.Close()
        assert peer.gone()
    else:
        text = f"unexpected {of.NAME} on channel 3 in connection state open"
        assert close_heard(peer) == ("amqp:illegal-state", text)


@OF_FRAMES
def test_in_a_session_what_is_about_no_session_is_out_of_place(of: type[p.Record]) -> None:
    peer = begun().says(sender()).says(SAID[of])
    if of in (p.Open, p.SaslInit, p.Error, p.Source):
        condition = "amqp:illegal-state"
        assert peer.hears()[-1].error.condition == condition  # type: ignore[attr-defined]
        assert peer.connection.state is State.CLOSING
    elif of is p.Begin:
        assert peer.connection.state is State.CLOSING
    else:
        assert peer.connection.state is (State.CLOSED if of is p.Close else State.OPEN)


@OF_FRAMES
def test_x052_after_our_close_only_the_peers_counts(of: type[p.Record]) -> None:
    peer = closing().says(SAID[of], (1, SAID[of]))
    assert peer.hears() == []
    assert peer.called() == []
    assert peer.gone() == (of is p.Close)


@OF_FRAMES
def test_when_closed_nothing_is_heard(of: type[p.Record]) -> None:
    peer = closed().says(SAID[of])
    assert (peer.outbox.take(), peer.called()) == (b"", [])


@pytest.mark.parametrize("body", [b"\xff", b"\x00\x53\x11\xc0\x02\x05", b"\x00\x53\x18\x45\x00"])
def test_after_our_close_what_cannot_be_read_is_passed_over(body: bytes) -> None:
    assert not closing().says(frame(body)).gone()


@pytest.mark.parametrize(
    ("body", "condition"),
    [
        (b"\xff", "amqp:decode-error"),
        (b"\x00\x53\x11\xc0\x02\x05", "amqp:decode-error"),
        (b"\x00\x53\x99\x45", "amqp:decode-error"),
        (b"\x00\x53\x18\x45\x00", "amqp:decode-error"),  # an octet behind a close
        (b"\x00\x53\x11\x45", "amqp:invalid-field"),  # a begin without what it must have
    ],
)
@pytest.mark.parametrize("reach", [opening, opened, begun])
def test_what_cannot_be_read_ends_the_connection(reach: type[Peer], body: bytes, condition: str) -> None:
    assert close_heard(reach().says(frame(body)))[0] == condition


# Anything.

STATES = {
    "opening": opening,
    "opened": opened,
    "begun": begun,
    "linked": linked,
    "closing": closing,
    "closed": closed,
}


@pytest.mark.parametrize("reach", STATES.values(), ids=STATES)
@given(data=st.binary(max_size=80), cut=st.integers(0, 80))
def test_random_octets_in_any_state_are_never_an_exception(reach: type[Peer], data: bytes, cut: int) -> None:
    reach().says(data[:cut]).says(data[cut:])


BODIES = st.binary(max_size=30) | st.builds(
    lambda code, fields, count: bytes((0, 0x53, code, 0xC0, len(fields) + 1, count)) + fields,
    st.integers(0x10, 0x18),
    st.binary(max_size=30),
    st.integers(0, 12),
)


@pytest.mark.parametrize("reach", STATES.values(), ids=STATES)
@given(bodies=st.lists(st.tuples(BODIES, st.integers(0, 2)), max_size=8))
def test_random_frames_in_any_state_are_never_an_exception(
    reach: type[Peer], bodies: list[tuple[bytes, int]]
) -> None:
    reach().says(*(frame(body, channel=channel) for body, channel in bodies))


CONVERSATION = octets(
    SASL_HEADER,
    sasl(p.SaslInit(mechanism="PLAIN", initial_response=b"\0guest\0guest")),
    AMQP_HEADER,
    open_(idle_time_out=5000, properties={"product": "test"}),
    begin(incoming_window=2),
    sender(),
    receiver(handle=1),
    transfer(0),
    transfer(1, b"begun", more=True),
    transfer(None, b", done", tag=None),
    flow(1, 5, next_outgoing_id=3, echo=True),
    p.Disposition(role=False, first=0, last=3, settled=True),
    disposition(0, 3),
    p.Detach(handle=0, closed=True),
    p.End(),
    p.Close(),
)


@given(
    st.lists(st.tuples(st.integers(0, len(CONVERSATION) - 1), st.integers(0, 255)), min_size=1, max_size=4),
    st.integers(1, 600),
)
def test_a_conversation_with_mutated_octets_is_never_an_exception(
    changes: list[tuple[int, int]], step: int
) -> None:
    data = bytearray(CONVERSATION)
    for at, value in changes:
        data[at] = value
    peer = Peer()
    for at in range(0, len(data), step):
        peer.says(bytes(data[at : at + step]))
    peer.connection.lost()
    calls = Counter(call[0] for call in peer.called())
    assert calls["closed"] == 1
    assert calls["ended"] == calls["begin"]
    assert calls["detached"] == calls["attached_incoming"] + calls["attached_outgoing"]
