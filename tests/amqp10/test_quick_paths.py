"""What is known by heart does the same as what is decoded, whatever the encoding, and comes apart anywhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.protocols.amqp10.codec import performatives as p
from leveret.protocols.amqp10.machine.contract import Tuning
from leveret.protocols.amqp10.machine.incoming_link import IncomingLink
from leveret.protocols.amqp10.machine.session import Session
from leveret.server.node.build_info import built
from tests.harness.call_count import calls
from tests.harness.plain import plain_only

from .machine import (
    LOGIN,
    IncomingRecorder,
    OutgoingRecorder,
    Peer,
    begin,
    begun,
    disposition,
    flow,
    frame,
    octets,
    open_,
    receiver,
    sender,
    transfer,
)


def encoded(code: int, fields: Sequence[bytes], count: int, form: int) -> bytes:
    """A list of fields with its descriptor: forms 0 and 1 are what the quick paths know, 2 is decoded."""
    content = b"".join(fields)
    if form == 0:
        return bytes((0, 0x53, code, 0xC0, len(content) + 1, count)) + content
    descriptor = bytes((0, 0x53, code)) if form == 1 else bytes((0, 0x80, 0, 0, 0, 0, 0, 0, 0, code))
    return descriptor + b"\xd0" + (len(content) + 4).to_bytes(4) + count.to_bytes(4) + content


NULL, TRUE, FALSE = b"\x40", b"\x41", b"\x42"
BOOLEANS = st.sampled_from((NULL, TRUE, FALSE, b"\x56\x00", b"\x56\x01"))
NUMBERS = st.sampled_from(
    (b"\x43", b"\x52\x00", b"\x52\x01", b"\x70\x00\x00\x00\x01", NULL, b"\x52\x07", b"\x41")
)
TAGS = st.sampled_from(
    (
        b"\xa0\x01t",
        b"\xa0\x00",
        b"\xb0\x00\x00\x00\x01t",
        NULL,
        b"\xa0\x20" + bytes(32),
        b"\xa0\x21" + bytes(33),
    )
)
FORMATS = st.sampled_from((b"\x43", NULL, b"\x52\x00", b"\x52\x01", b"\x70\x00\x00\x00\x00"))
REST = st.sampled_from((NULL, NULL, NULL, b"\x50\x00", b"\x50\x01", b"\x00\x53\x24\x45", FALSE, TRUE))
TRANSFERS = st.tuples(
    st.tuples(NUMBERS, NUMBERS, TAGS, FORMATS, BOOLEANS, BOOLEANS, REST, REST, REST, REST, BOOLEANS),
    st.integers(1, 11),
    st.sampled_from((0, 0, 0, 0, 0, 1, -1)),
    st.binary(max_size=4),
)


def linked(**fields: object) -> Peer:
    """An incoming link with handle 0, an outgoing one with handle 1 that has three deliveries unsettled."""
    peer = begun(Tuning(link_credit=3, message_size_max=10)).says(
        sender(**fields), receiver(handle=1), flow(1, 10)
    )
    for number in range(3):
        peer.outgoing.send(number, [b"x"], 1, False)
    return peer.forget()


def aftermath(peer: Peer, form: int, code: int, frames: list[tuple[Sequence[bytes], int, bytes]]) -> object:
    for fields, count, payload in frames:
        peer.says(frame(encoded(code, fields, count, form), payload))
    return peer.called(), peer.hears(), peer.connection.state


@given(st.lists(TRANSFERS, min_size=1, max_size=3), st.sampled_from((0, 1, 2)), st.sampled_from((0, 1)))
def test_transfers_known_by_heart_do_what_decoded_ones_do(
    transfers: list[tuple[tuple[bytes, ...], int, int, bytes]], snd_settle_mode: int, rcv_settle_mode: int
) -> None:
    frames = [(fields[:count], count + wrong, payload) for fields, count, wrong, payload in transfers]
    modes = {"snd_settle_mode": snd_settle_mode, "rcv_settle_mode": rcv_settle_mode}
    decoded = aftermath(linked(**modes), 2, 0x14, frames)
    assert aftermath(linked(**modes), 0, 0x14, frames) == decoded
    assert aftermath(linked(**modes), 1, 0x14, frames) == decoded


STATES = st.sampled_from((NULL, b"\x00\x53\x24\x45", b"\x00\x53\x26\xc0\x01\x00", b"\x00\x53\x77\x45", TRUE))
DISPOSITIONS = st.tuples(
    st.tuples(BOOLEANS, NUMBERS, NUMBERS, BOOLEANS, STATES, BOOLEANS),
    st.integers(1, 6),
    st.sampled_from((0, 0, 0, 0, 0, 1, -1)),
)


@given(st.lists(DISPOSITIONS, min_size=1, max_size=3))
def test_dispositions_known_by_heart_do_what_decoded_ones_do(
    dispositions: list[tuple[tuple[bytes, ...], int, int]],
) -> None:
    frames = [(fields[:count], count + wrong, b"") for fields, count, wrong in dispositions]
    decoded = aftermath(linked(), 2, 0x15, frames)
    assert aftermath(linked(), 0, 0x15, frames) == decoded
    assert aftermath(linked(), 1, 0x15, frames) == decoded


FLOWS = st.tuples(
    st.tuples(*[NUMBERS] * 8, BOOLEANS, BOOLEANS, st.sampled_from((NULL, b"\xc1\x01\x00"))),
    st.integers(1, 11),
    st.sampled_from((0, 0, 0, 0, 0, 1, -1)),
)


@given(st.lists(FLOWS, min_size=1, max_size=3))
def test_flows_known_by_heart_do_what_decoded_ones_do(
    flows: list[tuple[tuple[bytes, ...], int, int]],
) -> None:
    frames = [(fields[:count], count + wrong, b"") for fields, count, wrong in flows]
    decoded = aftermath(linked(), 2, 0x13, frames)
    assert aftermath(linked(), 0, 0x13, frames) == decoded
    assert aftermath(linked(), 1, 0x13, frames) == decoded


# What comes apart.


CONVERSATION = octets(
    LOGIN,
    open_(idle_time_out=5000),
    begin(),
    sender(),
    receiver(handle=1),
    transfer(0),
    frame(b""),
    transfer(1, b"begun", more=True),
    transfer(None, b", done", tag=None),
    transfer(2, bytes(300), settled=True),
    flow(1, 5, next_incoming_id=0, next_outgoing_id=4, echo=True),
    disposition(0, 3),
    p.Detach(handle=0, closed=True),
    p.End(),
    p.Close(),
)


def heard(pieces: Sequence[bytes]) -> tuple[object, bytes]:
    peer = Peer()
    for piece in pieces:
        peer.says(piece)
    return peer.called(), peer.outbox.take()


WHOLE = heard([CONVERSATION])


def test_a_conversation_in_one_piece_is_understood() -> None:
    names = [call[0] for call in WHOLE[0]]  # type: ignore[attr-defined]
    assert names.count("message") == 3
    assert names[-3:] == ["detached", "ended", "closed"]


def test_a_conversation_octet_by_octet_is_the_same_conversation() -> None:
    assert heard([CONVERSATION[at : at + 1] for at in range(len(CONVERSATION))]) == WHOLE


@pytest.mark.parametrize("at", range(1, len(CONVERSATION), 5))
def test_a_conversation_in_two_pieces_is_the_same_conversation(at: int) -> None:
    assert heard([CONVERSATION[:at], CONVERSATION[at:]]) == WHOLE


@given(st.lists(st.integers(0, len(CONVERSATION)), max_size=6).map(sorted))
def test_a_conversation_in_any_pieces_is_the_same_conversation(cuts: list[int]) -> None:
    edges = [0, *cuts, len(CONVERSATION)]
    assert heard([CONVERSATION[a:b] for a, b in pairwise(edges)]) == WHOLE


# What it costs, in Python calls.


@plain_only
def test_the_pieces_of_a_large_frame_are_joined_once() -> None:
    peer = linked()
    octets = transfer(0, bytes(10))[:-10] + bytes(5000)
    octets = len(octets).to_bytes(4) + octets[4:]
    calls: Counter[str] = Counter()
    for at in range(0, len(octets), 10):
        calls += calls_of(peer, octets[at : at + 10])
    assert calls["Reader._take_frames"] == 2  # to see how large it is, and when it is there


class Gathering(IncomingRecorder):
    """Keeps what is to be answered, as one does until the broker has settled."""

    ids: list[int]

    def on_message(
        self, delivery_id: int, tag: bytes, payload: bytes, settled: bool, state: p.DeliveryState | None
    ) -> None:
        self.ids.append(delivery_id)


class Unheeding(OutgoingRecorder):
    def on_outcomes(
        self, ids: Sequence[int], tokens: list[object], state: p.DeliveryState | None, settled: bool
    ) -> None:
        pass


def calls_of(peer: Peer, *data: bytes) -> Counter[str]:
    """The Python functions called while the machine takes this, by their qualified names."""
    return calls(partial(peer.connection.receive, b"".join(data), 0.0)) + calls(peer.connection.flush)


MESSAGES = 100


@plain_only
def test_a_transfer_that_comes_costs_two_calls_of_ours_and_one_of_its_owner() -> None:
    peer = begun(Tuning(incoming_window=1000, link_credit=1000)).says(sender())
    peer.incoming.owner = owner = Gathering(peer.notes, peer.incoming)
    owner.ids = []
    peer.outbox.take()
    cost = calls_of(peer, *(transfer(number, bytes(100), tag=bytes((number,))) for number in range(MESSAGES)))
    for each in (Session.take_transfer_at, IncomingLink.take, Gathering.on_message):
        assert cost[each.__qualname__] == MESSAGES
    assert cost.total() - 3 * MESSAGES < 25, cost.most_common(20)
    peer.incoming.accept_all(owner.ids)
    cost = calls_of(peer)
    assert cost.total() < 20, cost.most_common(20)
    assert peer.hears() == [p.Disposition(role=True, first=0, last=99, settled=True, state=p.Accepted())]


# As proton (lists of 8 bits) and rhea (of 32) write them: the number of fields, and the fields.
OF_CLIENTS = [
    (0x14, 4, "43 5201 a0027430 43"),
    (0x14, 5, "5200 70000000ff a00130 43 41"),
    (0x14, 6, "43 5201 a00131 43 42 42"),
    (0x15, 5, "41 43 43 41 00532445"),
    (0x15, 5, "41 43 5202 41 00532645"),
    (0x15, 5, "41 70000000ff 40 42 00532445"),
    (0x13, 4, "43 707fffffff 43 707fffffff"),
    (0x13, 7, "43 7000000800 5202 70ffffffff 5201 43 70000003e8"),
    (0x13, 10, "43 7000000800 5202 70ffffffff 5201 43 520a 43 41 42"),
]


@plain_only
@pytest.mark.parametrize("form", [0, 1])
@pytest.mark.parametrize(("code", "count", "fields"), OF_CLIENTS)
def test_what_clients_send_all_the_time_is_not_decoded(code: int, count: int, fields: str, form: int) -> None:
    octets = encoded(code, [bytes.fromhex(fields)], count, form)
    assert p.decode(octets, 0, len(octets))[1] == len(octets)
    cost = calls_of(linked(), frame(octets, b"body" if code == 0x14 else b""))
    assert "decode" not in cost
    assert cost.total() > (4 if built().compiled == 0 else 0)


@plain_only
@pytest.mark.parametrize(("settled", "most"), [(True, 3), (False, 6)])
def test_a_transfer_that_goes_alone_costs_a_call_two_of_the_outbox_and_three_to_be_noted(
    settled: bool, most: int
) -> None:
    peer = begun().says(receiver(), flow(0, MESSAGES))
    send, body = peer.outgoing.send_all, bytes(100)
    each = [partial(send, [number], [b"head"], [b""], [body], settled) for number in range(MESSAGES)]
    cost = sum((calls(one) for one in each), Counter())
    assert cost.total() == most * MESSAGES, cost


@plain_only
def test_transfers_that_go_together_cost_no_more_calls_than_one() -> None:
    peer = begun().says(receiver(), flow(0, MESSAGES))
    tokens: list[object] = [*range(MESSAGES)]
    columns = [b"head"] * MESSAGES, [b""] * MESSAGES, [bytes(100)] * MESSAGES
    assert calls(partial(peer.outgoing.send_all, tokens, *columns, False)).total() == 6


def test_a_disposition_of_a_hundred_deliveries_costs_a_call_for_all_of_them() -> None:
    peer = begun().says(receiver(), flow(0, MESSAGES))
    peer.outgoing.owner = Unheeding(peer.notes, peer.outgoing)
    for number in range(MESSAGES):
        peer.outgoing.send(number, [b"x"], 1, False)
    cost = calls_of(peer, frame(disposition(0, MESSAGES - 1)))
    assert cost["Unheeding.on_outcomes"] == 1
    assert cost.total() < 20, cost.most_common(20)
    assert not peer.outgoing.unsettled


# Dispositions in a row.

ACKS = st.lists(
    st.tuples(
        st.integers(-1, 2),  # where it begins, from the end of the one before
        st.integers(0, 3),  # how many more deliveries it covers
        st.sampled_from([p.Accepted(), p.Released(), p.Accepted(), None]),
        st.sampled_from([True, True, True, False]),
    ),
    max_size=12,
)


@given(ACKS)
def test_dispositions_in_a_row_do_what_each_does_by_itself(
    acks: list[tuple[int, int, p.DeliveryState | None, bool]],
) -> None:
    said: list[p.Record] = []
    last = -1
    for gap, more, state, settled in acks:
        first = max(0, last + 1 + gap)
        last = first + more
        said.append(p.Disposition(role=True, first=first, last=last, settled=settled, state=state))
    found = []
    for reads in ([said], [[each] for each in said]):
        peer = begun().says(receiver(), flow(0, 100))
        for number in range(30):
            peer.outgoing.send(number, [b"x"], 1, False)
        for read in reads:
            peer.says(*read)
        outcomes = [
            (number, call[4], call[5])
            for call in peer.notes.calls
            if call[0] == "outcomes"
            for number in call[3]
        ]
        found.append((outcomes, list(peer.outgoing.unsettled), peer.session.ended))
    assert found[0] == found[1]
