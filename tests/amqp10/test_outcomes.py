"""What becomes of what we sent: outcomes by delivery, range and link; settling; the end of a link."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from leveret.protocols.amqp10.codec import performatives as p
from leveret.protocols.amqp10.codec.errors import AmqpError, Ends
from leveret.protocols.amqp10.codec.types import Described, ULong

from .machine import (
    LAST,
    Peer,
    begun,
    disposition,
    end_heard,
    flow,
    receiver,
    send,
    sender,
    sending,
    transfer,
)

ACCEPTED, RELEASED = p.Accepted(), p.Released()


def settled_by_us(first: int, last: int, state: p.DeliveryState | None = None) -> p.Disposition:
    return p.Disposition(role=False, first=first, last=last, settled=True, state=state)


@pytest.mark.parametrize("settled", [True, False])
@pytest.mark.parametrize(
    "state",
    [None, ACCEPTED, RELEASED, p.Rejected(), p.Modified(), p.TransactionalState(txn_id=b"1")],
    ids=repr,
)
def test_what_the_peer_says_of_a_delivery_is_told(state: p.DeliveryState | None, settled: bool) -> None:
    peer = sending()
    send(peer, "a", "b")
    peer.says(disposition(1, settled=settled, state=state))
    assert peer.called() == [("outcomes", "out", [1], ["b"], state, settled)]
    assert dict(peer.outgoing.unsettled.items()) == ({0: "a"} if settled else {0: "a", 1: "b"})
    peer.says(disposition(1))
    assert len(peer.called()) == (0 if settled else 1)


def test_a_range_is_told_at_once_in_the_order_of_sending() -> None:
    peer = sending()
    send(peer, *range(10))
    peer.says(disposition(2, 5))
    assert peer.called() == [("outcomes", "out", [2, 3, 4, 5], [2, 3, 4, 5], ACCEPTED, True)]
    peer.says(disposition(0, 8))
    assert peer.called() == [("outcomes", "out", [0, 1, 6, 7, 8], [0, 1, 6, 7, 8], ACCEPTED, True)]


@pytest.mark.parametrize(("first", "last"), [(0, 0x7FFF_FFFF), (LAST - 5, 0x7FFF_FFF0), (0x8000_0005, 4)])
def test_a_huge_range_costs_what_there_is(first: int, last: int) -> None:
    peer = sending()
    send(peer, *range(5))
    peer.says(disposition(first, last))
    assert peer.called() == [("outcomes", "out", [0, 1, 2, 3, 4], [0, 1, 2, 3, 4], ACCEPTED, True)]


@pytest.mark.parametrize(
    ("state", "calls"),
    [
        (None, 0),
        (p.Received(section_number=0, section_offset=0), 1),
    ],  # received renews the time for an answer
)
def test_a_range_of_which_nothing_is_said_costs_nothing(state: p.DeliveryState | None, calls: int) -> None:
    peer = sending()
    send(peer, *range(5))
    peer.says(disposition(0, 4, settled=False, state=state))
    assert len(peer.called()) == calls
    peer.says(disposition(0, 4, settled=True, state=state))
    assert len(peer.called()) == 1


@pytest.mark.parametrize(
    ("count", "last", "halts"), [(10_001, 10_000, True), (10_001, 9_999, False), (9, LAST >> 1, False)]
)
def test_reading_halts_after_a_range_of_many(count: int, last: int, halts: bool) -> None:
    peer = sending()
    send(peer, *range(count))
    peer.says(disposition(0, last, settled=False))
    assert peer.connection.halted is halts


@pytest.mark.parametrize(("first", "last"), [(1, 0), (5, 3), (0, 0x8000_0000), (0, LAST)])
@pytest.mark.parametrize("role", [True, False])
def test_a_range_that_goes_backwards_ends_the_session(role: bool, first: int, last: int) -> None:
    peer = sending()
    send(peer, *range(6))
    peer.outbox.take()
    peer.says(disposition(first, last, role=role))
    assert end_heard(peer)[0] == "amqp:invalid-field"


def test_deliveries_that_nobody_knows_are_passed_over() -> None:
    peer = sending()
    send(peer, "a")
    peer.outbox.take()
    peer.says(disposition(7), disposition(7, 9), disposition(7, 0x7FFF_FFFF, settled=False))
    assert (peer.called(), peer.hears()) == ([], [])


def two_links() -> Peer:
    """Deliveries 0, 2, 4 on `out` and 1, 3, 5 on `other`."""
    peer = begun().says(receiver(), receiver("other", handle=1), flow(0, 5), flow(1, 5))
    for number in range(6):
        peer.handler.owners[0].outgoing[number % 2].send(number, [b"x"], 1, False)
    return peer.forget()


def test_a_range_over_two_links_is_told_to_each_at_once() -> None:
    peer = two_links().says(disposition(1, 4))
    assert peer.called() == [
        ("outcomes", "other", [1, 3], [1, 3], ACCEPTED, True),
        ("outcomes", "out", [2, 4], [2, 4], ACCEPTED, True),
    ]


@pytest.mark.parametrize("settled", [True, False])
@pytest.mark.parametrize("how", ["detach", "settle", "end"])
def test_an_owner_may_end_what_the_same_disposition_tells_another_of(how: str, settled: bool) -> None:
    peer = two_links()
    one, other = peer.handler.owners[0].outgoing

    def act() -> None:
        peer.notes.doings.clear()
        if how == "detach":
            other.detach()
        elif how == "settle":
            other.settle([1, 3])
        else:
            peer.session.end()

    peer.notes.doings["outcomes"] = act
    peer.says(disposition(0, 5, settled=settled))
    calls = [call for call in peer.called() if call[0] == "outcomes"]
    expected: list[Sequence[object]] = [("outcomes", "out", [0, 2, 4], [0, 2, 4], ACCEPTED, settled)]
    if how == "settle":
        expected.append(("outcomes", "other", [5], [5], ACCEPTED, settled))
    assert calls == expected
    assert len(peer.session.sending.unsettled) == sum(
        len(link.unsettled) for link in (one, other) if not link.ended
    )


def test_x070_what_the_peer_leaves_unsettled_we_settle_when_told() -> None:
    peer = sending()
    send(peer, *range(5))
    peer.outbox.take()
    peer.says(disposition(0, 4, settled=False))
    assert peer.hears() == []
    peer.outgoing.settle([0, 1, 3])
    assert peer.says(b"").hears() == [settled_by_us(0, 1), settled_by_us(3, 3)]
    assert dict(peer.outgoing.unsettled.items()) == {2: 2, 4: 4}
    peer.outgoing.settle([0, 2], RELEASED)
    assert peer.says(b"").hears() == [settled_by_us(2, 2, RELEASED)]


def test_x070_an_owner_may_settle_at_once() -> None:
    peer = sending()
    send(peer, *range(3))
    peer.outbox.take()
    peer.notes.doings["outcomes"] = lambda: peer.outgoing.settle([0, 1, 2])
    peer.says(disposition(0, 2, settled=False))
    assert peer.hears() == [settled_by_us(0, 2)]
    assert not peer.outgoing.unsettled
    assert not peer.session.sending.unsettled


def test_what_both_sides_say_is_told_apart() -> None:
    """Delivery ids of both directions are the same numbers."""
    peer = sending().says(sender(handle=1), transfer(0, handle=1), transfer(1, handle=1))
    send(peer, *range(2))
    peer.outbox.take()
    peer.outgoing.settle([0, 1])
    peer.incoming.accept_all([0, 1])
    assert peer.says(b"").hears() == [
        settled_by_us(0, 1),
        p.Disposition(role=True, first=0, last=1, settled=True, state=ACCEPTED),
    ]


@pytest.mark.parametrize("state", [Described(ULong(0x77), []), p.Declared(txn_id=b"1")], ids=repr)
@pytest.mark.parametrize("role", [True, False])
def test_x069_a_state_that_nobody_knows_ends_the_session(role: bool, state: p.DeliveryState) -> None:
    peer = sending()
    send(peer, "a")
    peer.outbox.take()
    peer.says(disposition(0, state=state, role=role))
    condition, text = end_heard(peer)
    assert condition == "amqp:invalid-field"
    assert str(text).startswith("Unrecognised state: ")
    assert str(text).endswith(" in DISPOSITION")


# The end.


@pytest.mark.parametrize("closed", [True, False])
def test_s178_what_is_unsettled_comes_back_when_the_peer_detaches(closed: bool) -> None:
    peer = sending()
    send(peer, *range(4))
    send(peer, "settled", settled=True)
    peer.says(disposition(1), p.Detach(handle=0, closed=closed))
    assert peer.called()[1:] == [("detached", "out", [0, 2, 3], closed)]
    assert not peer.session.sending.unsettled


def test_s178_and_when_anything_else_ends() -> None:
    for ends in Ends:
        peer = sending()
        send(peer, *range(3))
        peer.outgoing.fail(AmqpError("amqp:resource-deleted", "gone", ends))
        assert ("detached", "out", [0, 1, 2], False) in peer.called()


def test_ids_can_be_told_from_tokens_while_the_end_is_told() -> None:
    peer = sending()
    send(peer, "a", "b")
    seen: list[object] = []
    peer.notes.doings["detached"] = lambda: seen.extend(peer.outgoing.unsettled.items())
    peer.says(p.Detach(handle=0))
    assert seen == [(0, "a"), (1, "b")]
