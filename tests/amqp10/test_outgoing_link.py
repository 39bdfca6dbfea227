"""Links on which the peer receives: its credit, messages in frames, and what becomes of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.protocols.amqp10.codec import performatives as p
from leveret.protocols.amqp10.machine.contract import Tuning

from .machine import LAST, MANY, Peer, begun, detach_heard, disposition, flow, frames, receiver, send, sending

ACCEPTED, RELEASED = p.Accepted(), p.Released()


def flows(peer: Peer) -> list[tuple[int | None, int | None, bool]]:
    """Delivery-count, link-credit and drain of the flows heard."""
    return [
        (each.delivery_count, each.link_credit, each.drain)
        for each in peer.hears()
        if isinstance(each, p.Flow)
    ]


# Credit.


def test_credit_is_what_the_peer_gives_and_the_owner_hears_of_it() -> None:
    peer = begun().says(receiver())
    assert peer.outgoing.credit == 0
    peer.called()
    assert peer.says(flow(0, 10)).called() == [("credit", "out", 10, False)]
    assert peer.says(flow(0, 10)).called() == []
    assert peer.says(flow(0, 0)).called() == [("credit", "out", 0, False)]
    assert peer.says(flow(0, None)).called() == []  # nothing is said of credit
    assert peer.hears()[1:] == []


def test_what_is_under_way_counts_against_the_credit() -> None:
    peer = sending(10)
    send(peer, *"abc")
    assert peer.outgoing.credit == 7
    peer.says(flow(0, 5, delivery_count=1))
    assert peer.outgoing.credit == 3
    peer.says(flow(0, 2, delivery_count=0))
    assert peer.outgoing.credit == 0
    peer.says(flow(0, 5, delivery_count=None))  # it has not seen our attach
    assert peer.outgoing.credit == 2


@pytest.mark.parametrize("start", [LAST, LAST - 1, 0x7FFF_FFFF])
def test_credit_goes_round_at_the_end_of_32_bits(start: int) -> None:
    peer = sending(10)
    peer.outgoing.delivery_count = start
    send(peer, *"abc")
    assert peer.outgoing.delivery_count == start + 3 & LAST
    peer.says(flow(0, 5, delivery_count=start + 1 & LAST, next_incoming_id=1))
    assert peer.outgoing.credit == 3


def test_the_largest_credit_is_taken_and_no_larger() -> None:
    peer = sending(LAST)
    assert peer.outgoing.credit == LAST
    peer.says(flow(0, LAST, delivery_count=5))  # it counts further than we
    assert peer.outgoing.credit == LAST


def test_s180_draining_ends_with_a_flow_that_uses_all_credit_up() -> None:
    peer = sending(10)
    send(peer, *"abc")
    peer.outbox.take()
    peer.says(flow(0, 10, next_incoming_id=0, drain=True))
    assert peer.called() == [("credit", "out", 7, True)]
    peer.outgoing.drained()
    assert peer.hears() == [
        p.Flow(
            next_incoming_id=0,
            incoming_window=400,
            next_outgoing_id=3,
            outgoing_window=MANY,
            handle=0,
            delivery_count=10,
            link_credit=0,
            available=0,
            drain=True,
        )
    ]
    assert peer.outgoing.credit == 0


def test_s180_draining_goes_on_until_the_peer_says_otherwise() -> None:
    peer = sending(1)
    peer.says(flow(0, 2, drain=True), flow(0, 2, drain=True))
    assert peer.called() == [("credit", "out", 2, True)] * 2
    peer.outgoing.drained()
    peer.says(flow(0, 5, delivery_count=2))
    assert peer.called() == [("credit", "out", 5, False)]
    assert flows(peer) == [(2, 0, True)]


def test_s180_an_owner_that_drains_at_once_has_answered_the_echo() -> None:
    peer = sending(1)
    peer.notes.doings["credit"] = lambda: peer.outgoing.drained()
    peer.says(flow(0, 2, drain=True, echo=True))
    assert flows(peer) == [(2, 0, True)]
    assert not peer.outgoing.echo


def test_an_echo_is_answered_with_what_the_owner_says_is_available() -> None:
    peer = sending(5)
    send(peer, "a")
    peer.outbox.take()
    peer.notes.doings["credit"] = lambda: setattr(peer.outgoing, "available", 17)
    peer.says(flow(0, 5, next_incoming_id=1, delivery_count=1, echo=True))
    peer.says(flow(0, 5, next_incoming_id=1, delivery_count=1))
    told = peer.hears_one(p.Flow)
    assert isinstance(told, p.Flow)
    assert (told.handle, told.delivery_count, told.link_credit, told.available) == (0, 1, 5, 17)


def test_messages_are_not_acquired_in_transactions() -> None:
    peer = sending(5).says(flow(0, 9, properties={"txn-id": b"1"}))
    assert detach_heard(peer)[0] == "amqp:not-implemented"


# Messages.


def test_a_message_goes_out_in_one_frame_with_an_id_and_a_tag_of_ours() -> None:
    peer = sending()
    peer.outgoing.send("a", [b"head", b"", b"body"], 8, False)
    peer.outgoing.send("b", [], 0, True)
    first = p.Transfer(handle=0, delivery_id=0, delivery_tag=bytes(4), message_format=0, settled=False)
    other = p.Transfer(handle=0, delivery_id=1, delivery_tag=b"\0\0\0\1", message_format=0, settled=True)
    assert peer.hears_all() == [(0, first, b"headbody"), (0, other, b"")]
    assert dict(peer.outgoing.unsettled.items()) == {0: "a"}


def test_what_was_written_is_what_was_counted() -> None:
    peer = sending(max_frame_size=512)
    before = peer.outbox.written()
    send(peer, "a")
    peer.outgoing.send("b", [bytes(3000)], 3000, False)
    assert peer.outbox.written() - before == len(peer.outbox.take())


def test_ids_go_round_at_the_end_of_32_bits() -> None:
    peer = sending()
    peer.session.sending.next_delivery_id = LAST
    send(peer, "a", "b")
    assert delivery_ids(peer) == [LAST, 0]
    peer.says(disposition(LAST, 0))
    assert peer.called() == [("outcomes", "out", [LAST, 0], ["a", "b"], ACCEPTED, True)]


@given(st.lists(st.integers(0, 1200), max_size=4), st.booleans(), st.sampled_from((0, 1, 300)))
def test_a_message_of_any_size_fits_the_peers_frames(sizes: list[int], settled: bool, handle: int) -> None:
    peer = begun(Tuning(handle_max=1000), max_frame_size=512).says(receiver(handle=handle), flow(handle, 5))
    peer.outbox.take()
    pieces = [bytes([place]) * size for place, size in enumerate(sizes)]
    peer.outgoing.send("a", pieces, sum(sizes), settled)
    data = peer.outbox.take()
    found = [(*p.decode(body, 0, len(body)), body) for _, _, body in frames(data)]
    assert b"".join(body[at:] for _, at, body in found) == b"".join(pieces)
    transfers = [transfer for transfer, _, _ in found if isinstance(transfer, p.Transfer)]
    assert [transfer.more for transfer in transfers] == [True] * (len(found) - 1) + [False]
    assert all(len(body) <= 504 for _, _, body in found)
    assert all(len(body) > 480 for _, _, body in found[:-1])  # and no more frames than that takes
    assert (transfers[0].delivery_id, transfers[0].settled) == (0, settled)
    assert {transfer.delivery_id for transfer in transfers[1:]} <= {None, 0}
    assert {transfer.handle for transfer in transfers} == {handle}


def test_a_large_piece_that_fits_is_not_copied() -> None:
    peer = sending()
    large = bytes(100_000)
    peer.outgoing.send("a", [b"head", large], 100_004, False)
    assert any(piece is large for piece in peer.outbox.pieces)


def test_a_large_message_waits_in_the_middle_for_the_peers_window() -> None:
    peer = sending(incoming_window=2, max_frame_size=512)
    peer.outgoing.send("a", [bytes(2000)], 2000, False)
    send(peer, "b")
    assert len(peer.hears()) == 2
    assert peer.session.sending.room() == 0
    peer.says(flow(next_incoming_id=2, incoming_window=10))
    transfers = [each for each in peer.hears() if isinstance(each, p.Transfer)]
    assert [each.delivery_id for each in transfers][-1] == 1
    assert [each.more for each in transfers][-2:] == [False, False]


@pytest.mark.parametrize("incoming_window", [0, 1, MANY])
def test_a_large_message_is_cut_into_full_frames_whatever_its_size(incoming_window: int) -> None:
    for size in range(900, 1500):
        peer = sending(incoming_window=incoming_window, max_frame_size=512)
        peer.outgoing.send("a", [bytes(size // 2), bytes(size - size // 2)], size, False)
        bodies = [body for _, _, body in peer.frames()]
        peer.says(flow(next_incoming_id=len(bodies), incoming_window=10))
        bodies += [body for _, _, body in peer.frames()]
        heard = [p.decode(body, 0, len(body)) for body in bodies]
        assert [each.more for each, _ in heard] == [True] * (len(heard) - 1) + [False]  # type: ignore[attr-defined]
        assert sum(map(len, bodies)) - sum(at for _, at in heard) == size
        assert {len(body) for body in bodies[:-1]} == {504}


def test_a_large_message_that_waits_is_not_cut_before_it_can_go() -> None:
    peer = sending(incoming_window=1, max_frame_size=512)
    large = bytes(100_000)
    peer.outgoing.send("a", [large], 100_000, False)
    assert peer.session.sending.backlog[0]._pieces[0] is large
    assert len(peer.session.sending.backlog) == 1


@pytest.mark.parametrize("excess", [-1, 0, 1, 100])
@pytest.mark.parametrize("incoming_window", [0, MANY])
def test_a_message_that_just_fits_a_frame_takes_one(incoming_window: int, excess: int) -> None:
    peer = sending(incoming_window=incoming_window, max_frame_size=512)
    head = len(
        p.Transfer(
            handle=0, delivery_id=2**31, delivery_tag=bytes(4), message_format=0, settled=False
        ).encode()
    )
    size = 512 - 8 - head + excess
    peer.outgoing.send("a", [bytes(size)], size, False)
    peer.says(flow(incoming_window=10))
    assert [each.more for each in peer.hears()] == ([False] if excess <= 0 else [True, False])  # type: ignore[attr-defined]


def test_a_flow_waits_behind_what_waits_of_its_link() -> None:
    peer = sending(10, incoming_window=1)
    send(peer, "a", "b")
    peer.outbox.take()
    peer.outgoing.drained()
    peer.says(flow(0, 10, incoming_window=0, next_incoming_id=1, drain=True, echo=True))
    peer.outgoing.drained()
    assert peer.hears() == []
    assert len(peer.session.sending.backlog) == 2  # one flow is enough
    peer.says(flow(next_incoming_id=1, incoming_window=5))
    transfer, told = peer.hears()
    assert isinstance(transfer, p.Transfer)
    assert isinstance(told, p.Flow)
    assert (told.next_outgoing_id, told.delivery_count, told.link_credit, told.drain) == (2, 10, 0, True)
    assert peer.session.sending.room() == 4


def test_a_flow_that_waits_tells_how_it_was_when_it_was_said() -> None:
    peer = sending(10, incoming_window=1)
    send(peer, "a", "b")
    peer.outgoing.drained()
    peer.says(flow(0, 5, delivery_count=10, next_incoming_id=1, incoming_window=0))
    send(peer, "c")
    peer.outgoing.drained()
    peer.outbox.take()
    peer.says(flow(next_incoming_id=1, incoming_window=5))
    assert [each.delivery_count if isinstance(each, p.Flow) else "message" for each in peer.hears()] == [
        "message",
        10,
        "message",
        15,
    ]


def test_flows_that_are_asked_for_again_and_again_do_not_pile_up() -> None:
    peer = sending(10, incoming_window=0).says(receiver("other", handle=1), flow(1, 10, incoming_window=0))
    for link in peer.handler.owners[0].outgoing:
        link.send("a", [b"a"], 1, False)
    for _ in range(20):
        peer.says(flow(0, 10, incoming_window=0, echo=True), flow(1, 10, incoming_window=0, echo=True))
    assert len(peer.session.sending.backlog) == 4
    peer.outbox.take()
    peer.says(flow(incoming_window=5))
    assert [type(each) for each in peer.hears()] == [p.Transfer, p.Transfer, p.Flow, p.Flow]
    peer.says(flow(0, 10, echo=True))
    assert [type(each) for each in peer.hears()] == [p.Flow]


def test_the_flows_of_other_links_do_not_wait() -> None:
    peer = sending(10, incoming_window=0).says(receiver("other", handle=1))
    peer.handler.owners[0].outgoing[0].send("a", [b"a"], 1, False)
    peer.outbox.take()
    peer.says(flow(1, 5, incoming_window=0, echo=True), flow(incoming_window=0, echo=True))
    assert [each.handle for each in peer.hears() if isinstance(each, p.Flow)] == [1, None]


def test_what_waits_is_forgotten_with_its_link() -> None:
    peer = begun(incoming_window=0).says(receiver(), receiver("other", handle=1))
    peer.says(flow(0, 5, incoming_window=0), flow(1, 5, incoming_window=0))
    one, other = peer.handler.owners[0].outgoing
    one.send("a", [b"a"], 1, False)
    other.send("b", [b"b"], 1, False)
    one.send("c", [b"c"], 1, True)
    peer.called()
    one.detach()
    assert peer.called() == [("detached", "out", ["a"], True)]
    peer.outbox.take()
    peer.says(flow(next_incoming_id=0, incoming_window=5))
    assert [payload for _, _, payload in peer.hears_all()] == [b"b"]


def test_messages_of_two_links_share_the_ids_of_the_session() -> None:
    peer = begun().says(receiver(), receiver("other", handle=1), flow(0, 5), flow(1, 5))
    one, other = peer.handler.owners[0].outgoing
    for link in (one, other, one):
        link.send(0, [], 0, False)
    assert delivery_ids(peer) == [0, 1, 2]


def test_the_messages_that_go_with_their_link_leave_no_gap_in_the_ids() -> None:
    """Proton and rhea end the connection if there is one."""
    peer = begun(incoming_window=1, max_frame_size=512).says(receiver(), receiver("other", handle=1))
    peer.says(flow(0, 5, incoming_window=1), flow(1, 5, incoming_window=1))
    one, other = peer.handler.owners[0].outgoing
    one.send("begun", [bytes(1000)], 1000, False)
    one.send("waits", [b"1"], 1, False)
    other.send("waits too", [b"2"], 1, False)
    one.send("is settled", [b"3"], 1, True)
    assert delivery_ids(peer) == [0]
    peer.called()
    one.detach()
    assert peer.called() == [("detached", "out", ["begun", "waits"], True)]
    peer.says(flow(next_incoming_id=1, incoming_window=5))
    other.send("last", [b"4"], 1, False)
    assert delivery_ids(peer) == [1, 2]
    peer.says(disposition(1, 2))
    assert peer.called()[-1] == ("outcomes", "other", [1, 2], ["waits too", "last"], ACCEPTED, True)


def test_of_what_waits_the_peer_can_say_nothing() -> None:
    peer = sending(incoming_window=1)
    send(peer, "a", "b")
    peer.says(disposition(0, 1), disposition(1))
    assert peer.called() == [("outcomes", "out", [0], ["a"], ACCEPTED, True)]
    assert delivery_ids(peer.says(flow(next_incoming_id=1, incoming_window=1))) == [0, 1]
    peer.called()
    peer.says(disposition(1))
    assert peer.called() == [("outcomes", "out", [1], ["b"], ACCEPTED, True)]


def delivery_ids(peer: Peer) -> list[int | None]:
    """Of the transfers since the last look."""
    return [each.delivery_id for each in peer.hears() if isinstance(each, p.Transfer)]
