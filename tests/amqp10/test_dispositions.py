"""What becomes of what the peer sent: answers, gathered into runs; settling first or second; resuming."""

from __future__ import annotations

from leveret.protocols.amqp10.codec import performatives as p
from leveret.protocols.amqp10.machine.contract import Tuning

from .machine import (
    LAST,
    SECOND,
    Peer,
    begun,
    credits_heard,
    detach_heard,
    message,
    receiving,
    sender,
    transfer,
)

ACCEPTED, RELEASED = p.Accepted(), p.Released()


def told(
    first: int, last: int, state: p.DeliveryState | None = ACCEPTED, settled: bool = True
) -> p.Disposition:
    return p.Disposition(role=True, first=first, last=last, settled=settled, state=state)


def test_answers_are_gathered_into_runs() -> None:
    peer = receiving().says(*(transfer(number) for number in range(6)))
    for number in (0, 1, 4, 2):
        peer.incoming.accept(number)
    assert peer.hears() == []
    assert peer.says(b"").hears() == [told(0, 2), told(4, 4)]
    assert peer.says(b"").hears() == []


def test_answers_of_different_kinds_are_told_in_the_order_of_the_deliveries() -> None:
    peer = receiving().says(*(transfer(number) for number in range(6)))
    rejected = p.Rejected(error=p.Error(condition="amqp:not-found", description="no exchange 'x'"))
    peer.incoming.accept(5)
    peer.incoming.answer(1, rejected)
    peer.incoming.answer(2, rejected)
    peer.incoming.answer(4, RELEASED)
    peer.incoming.accept_all([0, 3])
    assert peer.says(b"").hears() == [
        told(0, 0),
        told(1, 2, rejected),
        told(3, 3),
        told(4, 4, RELEASED),
        told(5, 5),
    ]


def test_x063_three_hundred_rejections_are_one_disposition() -> None:
    peer = receiving(Tuning(link_credit=300)).says(*(transfer(number) for number in range(300)))
    for number in range(300):
        peer.incoming.answer(number, p.Rejected(error=p.Error(condition="amqp:not-found", description="no")))
    peer.outbox.take()
    dispositions = [each for each in peer.says(b"").hears() if isinstance(each, p.Disposition)]
    assert [(each.first, each.last) for each in dispositions] == [(0, 299)]
    assert peer.incoming.unanswered == 0
    assert peer.incoming.credit == 300


def test_answers_go_round_at_the_end_of_32_bits() -> None:
    peer = receiving().says(*(transfer(number) for number in (LAST - 1, LAST, 0, 1)))
    peer.incoming.accept_all([LAST - 1, LAST, 0, 1])
    assert peer.says(b"").hears() == [told(0, 1), told(LAST - 1, LAST)]


def test_an_answer_that_is_not_settled_is_followed_by_another() -> None:
    peer = receiving().says(transfer(0))
    state = p.TransactionalState(txn_id=b"1", outcome=ACCEPTED)
    peer.incoming.answer(0, state, settled=False)
    assert peer.incoming.unanswered == 1
    peer.incoming.answer(0, state)
    assert peer.incoming.unanswered == 0
    assert peer.says(b"").hears() == [told(0, 0, state, settled=False), told(0, 0, state)]


def test_the_error_of_an_answer_is_cut_to_the_peers_frames() -> None:
    peer = begun(max_frame_size=512).says(sender())
    peer.says(transfer(0)).outbox.take()
    peer.incoming.answer(0, p.Rejected(error=p.Error(condition="amqp:not-found", description="x" * 1000)))
    peer.says(b"")
    data = peer.outbox.take()
    assert len(data) <= 512
    assert b"x" * 300 in data


# The receiver settles second (part 2, section 2.6.12).


def settled_by_peer(first: int, last: int, settled: bool = True) -> p.Disposition:
    return p.Disposition(role=False, first=first, last=last, settled=settled)


def second(**tuning: int) -> Peer:
    return receiving(Tuning(**tuning), rcv_settle_mode=SECOND)  # type: ignore[arg-type]


def test_s174_where_the_receiver_settles_second_an_answer_is_not_settled() -> None:
    peer = second().says(transfer(0), transfer(1), transfer(2, settled=True))
    peer.incoming.accept_all([0, 1])
    assert peer.says(b"").hears() == [told(0, 1, settled=False)]
    assert peer.incoming.unanswered == 2
    assert {number: each.state for number, each in peer.incoming.unsettled.items()} == {
        0: ACCEPTED,
        1: ACCEPTED,
    }
    peer.says(settled_by_peer(0, 1))
    assert peer.hears() == []
    assert peer.incoming.unanswered == 0
    assert not peer.incoming.unsettled


def test_s174_unless_the_peer_has_settled_already() -> None:
    peer = second().says(
        transfer(0), transfer(1), settled_by_peer(0, 0), settled_by_peer(1, 1, settled=False)
    )
    assert peer.incoming.unanswered == 1
    peer.incoming.answer(0, RELEASED)
    peer.incoming.answer(1, RELEASED)
    assert peer.says(b"").hears() == [told(1, 1, RELEASED, settled=False)]


def test_s174_what_the_peer_has_not_settled_counts_against_credit() -> None:
    peer = second(link_credit=2).says(transfer(0), transfer(1))
    peer.outbox.take()
    peer.incoming.accept_all([0, 1])
    assert credits_heard(peer.says(b"")) == []
    assert credits_heard(peer.says(settled_by_peer(0, 0))) == [(2, 2)]


def test_s174_also_after_a_message_in_several_transfers() -> None:
    peer = second().says(transfer(0, more=True), transfer(None, tag=None), transfer(1))
    peer.incoming.accept_all([0, 1])
    assert peer.says(b"").hears() == [told(0, 1, settled=False)]


def test_s174_a_delivery_may_be_settled_first_nevertheless() -> None:
    peer = second().says(transfer(0, rcv_settle_mode=0), transfer(1, rcv_settle_mode=SECOND))
    peer.incoming.accept_all([0, 1])
    assert peer.says(b"").hears() == [told(0, 0), told(1, 1, settled=False)]
    assert peer.incoming.unanswered == 1


def test_s174_but_not_second_on_a_link_where_the_receiver_settles_first() -> None:
    peer = receiving().says(transfer(0, rcv_settle_mode=0))
    assert peer.called() == [message(0)]
    assert detach_heard(peer.says(transfer(1, rcv_settle_mode=SECOND)))[0] == "amqp:invalid-field"


def test_what_the_peer_settles_of_its_own_does_not_matter_where_we_settle_first() -> None:
    peer = receiving().says(transfer(0), settled_by_peer(0, 0), settled_by_peer(5, 9))
    assert peer.hears() == []
    peer.incoming.accept(0)
    assert peer.says(b"").hears() == [told(0, 0)]


def test_what_was_not_settled_can_be_seen_while_the_end_is_told() -> None:
    peer = second().says(transfer(0, tag=b"t"))
    peer.incoming.accept(0)
    seen: list[object] = []
    peer.notes.doings["detached"] = lambda: seen.extend(
        (each.tag, each.state) for each in peer.incoming.unsettled.values()
    )
    peer.says(p.Detach(handle=0))
    assert seen == [(b"t", ACCEPTED)]


# Resuming.


def test_s176_a_resumed_delivery_of_which_we_know_nothing_ends_the_receiving() -> None:
    peer = receiving().says(transfer(0, resume=True))
    assert detach_heard(peer) == ("amqp:not-implemented", "Link recovery not supported")


def test_a_delivery_that_we_declared_to_know_is_handed_on() -> None:
    peer = begun()
    peer.handler.owners[0].fields = {"unsettled": {b"known": None}}
    peer.says(sender())
    peer.called()
    peer.says(transfer(0, b"again", tag=b"known", resume=True))
    assert peer.called() == [message(0, b"again", tag=b"known")]
    assert peer.says(transfer(1, tag=b"unknown", resume=True)).called() == [("detached", "in", False)]
