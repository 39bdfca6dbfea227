"""Links on which the peer sends: credit, messages from their transfers, and our answers."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.protocols.amqp10.codec import performatives as p
from leveret.protocols.amqp10.machine.contract import Tuning

from .machine import (
    LAST,
    begun,
    credits_heard,
    detach_heard,
    flow,
    message,
    octets,
    receiving,
    sender,
    transfer,
)

ACCEPTED = p.Accepted()
RELEASED = p.Released()


# Credit.


def test_x055_credit_is_topped_up_at_half() -> None:
    peer = receiving(Tuning(link_credit=10))
    for number in range(4):
        peer.says(transfer(number, settled=True))
    assert credits_heard(peer) == []
    assert credits_heard(peer.says(transfer(4, settled=True))) == [(5, 10)]


def test_x055_but_not_while_as_many_are_unanswered() -> None:
    peer = receiving(Tuning(link_credit=10))
    peer.says(*(transfer(number) for number in range(5)))
    assert credits_heard(peer) == [(5, 10)]  # 5 unanswered
    peer.says(*(transfer(number) for number in range(5, 12)))
    assert credits_heard(peer) == []  # 12 unanswered, 3 credits left
    peer.incoming.accept_all([0, 1])
    assert credits_heard(peer.says(b"")) == []
    peer.incoming.answer(2, RELEASED)
    assert credits_heard(peer.says(b"")) == [(12, 10)]


def test_credit_goes_round_at_the_end_of_32_bits() -> None:
    peer = receiving(Tuning(link_credit=2), initial_delivery_count=LAST)
    peer.says(transfer(LAST, settled=True), transfer(0, settled=True))
    assert credits_heard(peer) == [(1, 2)]


def test_a_link_with_a_credit_of_one_gets_the_next_for_each() -> None:
    peer = receiving(Tuning(link_credit=1))
    for number in range(3):
        peer.says(transfer(number))
        peer.incoming.accept(number)
        assert credits_heard(peer.says(b"")) == [(number + 1, 1)]


@pytest.mark.parametrize(
    "fields", [{}, {"settled": True}, {"more": True}, {"aborted": True}, {"state": ACCEPTED}]
)
def test_s171_a_transfer_without_credit_ends_the_receiving(fields: dict[str, object]) -> None:
    peer = receiving(Tuning(link_credit=2))
    peer.connection.receive(transfer(0) + transfer(1) + transfer(2, **fields), 0.0)
    assert detach_heard(peer)[0] == "amqp:link:transfer-limit-exceeded"
    assert peer.called() == [message(0), message(1), ("detached", "in", False)]


def test_a_message_of_several_transfers_takes_one_credit() -> None:
    peer = receiving(Tuning(link_credit=1))
    peer.connection.receive(
        transfer(0, b"a", more=True)
        + transfer(None, b"b", tag=None, more=True)
        + transfer(None, b"c", tag=None),
        0.0,
    )
    assert peer.called() == [message(0, b"abc")]
    assert peer.incoming.credit == 0
    assert peer.incoming.delivery_count == 1


def test_an_aborted_message_has_taken_its_credit() -> None:
    peer = receiving(Tuning(link_credit=4))
    peer.says(transfer(0, b"a", more=True), transfer(None, tag=None, aborted=True), transfer(1, aborted=True))
    assert peer.called() == []
    assert credits_heard(peer) == [(2, 4)]


def test_an_owner_may_want_another_credit() -> None:
    peer = receiving(Tuning(link_credit=10))
    peer.incoming.want(2)
    assert credits_heard(peer) == [(0, 2)]
    peer.says(*(transfer(number, settled=True) for number in range(8)))  # under way when it was told
    assert credits_heard(peer) == []
    assert credits_heard(peer.says(transfer(8, settled=True))) == [(9, 2)]
    peer.incoming.want(100)
    assert credits_heard(peer) == [(9, 100)]


def test_an_owner_may_want_nothing_for_a_while() -> None:
    peer = receiving(Tuning(link_credit=2))
    peer.incoming.want(0)
    assert credits_heard(peer) == [(0, 0)]
    peer.says(transfer(0, settled=True), transfer(1, settled=True))
    assert len(peer.called()) == 2
    assert credits_heard(peer) == []
    peer.incoming.want(2)
    assert credits_heard(peer) == [(2, 2)]


def test_wanting_more_waits_for_answers() -> None:
    peer = receiving(Tuning(link_credit=4))
    peer.says(transfer(0), transfer(1), transfer(2))
    peer.outbox.take()
    peer.incoming.want(2)
    peer.outbox.take()
    peer.says(transfer(3), transfer(4), transfer(5), transfer(6))
    peer.incoming.want(3)
    peer.outbox.take()
    peer.incoming.accept_all([0, 1, 2, 3])
    assert credits_heard(peer.says(b"")) == []
    peer.incoming.accept(4)
    assert credits_heard(peer.says(b"")) == [(7, 3)]


def test_a_link_may_be_wanted_nothing_from_before_it_begins() -> None:
    peer = begun()
    peer.notes.doings["attached_incoming"] = lambda: peer.incoming.want(0)
    assert [type(each) for each in peer.says(sender()).hears()] == [p.Attach]
    assert detach_heard(peer.says(transfer(0)))[0] == "amqp:link:transfer-limit-exceeded"


def test_a_sender_that_gives_up_credit_gets_it_again() -> None:
    peer = receiving(Tuning(link_credit=10))
    peer.says(flow(0, delivery_count=5, available=3))
    assert credits_heard(peer) == [(5, 10)]
    assert peer.incoming.available == 3
    peer.says(flow(0, delivery_count=2), flow(0, delivery_count=None))  # older news
    assert peer.incoming.delivery_count == 5


def test_a_sender_cannot_give_up_more_than_it_has() -> None:
    peer = receiving(Tuning(link_credit=10))
    peer.connection.receive(octets(flow(0, delivery_count=0x7FFF_FFFF)), 0.0)
    assert peer.incoming.credit == 0


def test_an_echo_is_answered_with_how_the_link_stands() -> None:
    peer = receiving(Tuning(link_credit=10))
    peer.says(transfer(0))
    assert credits_heard(peer.says(flow(0, delivery_count=1, next_outgoing_id=1, echo=True))) == [(1, 9)]


# Messages.


@pytest.mark.parametrize("settled", [None, False, True])
def test_a_message_in_one_transfer(settled: bool | None) -> None:
    peer = receiving().says(transfer(7, b"payload", tag=b"t", settled=settled))
    assert peer.called() == [message(7, b"payload", settled is True, b"t")]
    assert peer.incoming.unanswered == (0 if settled else 1)


def test_a_message_may_be_empty() -> None:
    peer = receiving().says(transfer(0, b""), transfer(1, b"", more=True), transfer(None, b"", tag=None))
    assert peer.called() == [message(0, b""), message(1, b"")]


def test_a_message_says_in_which_state_it_is() -> None:
    state = p.TransactionalState(txn_id=b"1")
    peer = receiving().says(
        transfer(0, state=state),
        transfer(1, b"a", more=True, state=state),
        transfer(None, b"b", tag=None),
        transfer(2, b"a", more=True),
        transfer(None, b"b", tag=None, state=state),
    )
    assert peer.called() == [
        message(0, state=state),
        message(1, b"ab", state=state),
        message(2, b"ab", state=state),
    ]


@given(st.lists(st.binary(max_size=6), min_size=1, max_size=8), st.booleans())
def test_a_message_may_come_in_any_pieces(pieces: list[bytes], repeating: bool) -> None:
    peer = receiving()
    for place, piece in enumerate(pieces):
        first = place == 0 or repeating
        more = place < len(pieces) - 1
        peer.says(transfer(5 if first else None, piece, tag=b"t" if first else None, more=more))
    assert peer.called() == [message(5, b"".join(pieces), tag=b"t")]
    assert peer.connection.unfinished.size == 0


def test_messages_of_different_links_may_be_mixed() -> None:
    peer = receiving().says(sender("other", handle=1))
    peer.called()
    peer.says(
        transfer(0, b"a", more=True),
        transfer(1, b"x", handle=1, more=True),
        transfer(None, b"b", tag=None),
        transfer(None, b"y", handle=1, tag=None),
    )
    assert [call[1:5] for call in peer.called()] == [("in", 0, b"tag", b"ab"), ("other", 1, b"tag", b"xy")]


@pytest.mark.parametrize("first", [None, False, True])
@pytest.mark.parametrize("later", [None, False, True])
def test_x056_settled_must_be_what_it_was_at_first(first: bool | None, later: bool | None) -> None:
    peer = receiving().says(transfer(0, b"a", settled=first, more=True), transfer(0, b"b", settled=later))
    if later is None or later == bool(first):
        assert peer.called() == [message(0, b"ab", bool(first))]
        assert peer.hears() == []
    else:
        assert detach_heard(peer)[0] == "amqp:invalid-field"
        assert peer.called() == [("detached", "in", False)]


@pytest.mark.parametrize(
    ("delivery_id", "tag", "field"),
    [(1, b"tag", "delivery-id"), (0, b"other", "delivery-tag"), (1, None, "delivery-id")],
)
def test_x056_a_delivery_is_not_begun_before_the_last_is_done(
    delivery_id: int, tag: bytes | None, field: str
) -> None:
    peer = receiving().says(transfer(0, b"a", more=True), transfer(delivery_id, b"b", tag=tag))
    condition, text = detach_heard(peer)
    assert condition == "amqp:invalid-field"
    assert field in str(text)


@pytest.mark.parametrize(("delivery_id", "tag"), [(None, b"tag"), (0, None), (None, None), (0, bytes(33))])
def test_a_delivery_begins_with_an_id_and_a_tag(delivery_id: int | None, tag: bytes | None) -> None:
    assert detach_heard(receiving().says(transfer(delivery_id, tag=tag)))[0] == "amqp:invalid-field"


def test_an_aborted_message_is_forgotten() -> None:
    peer = receiving().says(
        transfer(0, b"a", more=True),
        transfer(None, b"b", tag=None, more=True, aborted=True),
        transfer(1, b"c", aborted=True),
        transfer(2, b"d"),
    )
    assert peer.called() == [message(2, b"d")]
    assert peer.connection.unfinished.size == 0
    assert peer.incoming.unanswered == 1


@pytest.mark.parametrize("mode", [0, 1, 2])
@pytest.mark.parametrize("settled", [True, False, None])
def test_an_aborted_message_is_settled_whatever_was_said_of_it(mode: int, settled: bool | None) -> None:
    """Part 2, section 2.7.5. Qpid Proton says so in the transfer that aborts."""
    first = transfer(0, b"a", more=True, settled=mode == 1)
    peer = receiving(snd_settle_mode=mode).says(
        first,
        transfer(None, tag=None, settled=settled, aborted=True),
        transfer(1, settled=settled, aborted=True),
    )
    assert (peer.called(), peer.hears()) == ([], [])


def test_a_part_of_a_message_is_forgotten_with_its_receiving() -> None:
    for last in (p.Detach(handle=0, closed=True), p.End()):
        peer = receiving().says(transfer(0, b"abc", more=True))
        assert peer.connection.unfinished.size == 3
        peer.says(last)
        assert peer.connection.unfinished.size == 0


@pytest.mark.parametrize("mode", [0, 1, 2])
@pytest.mark.parametrize("settled", [None, False, True])
@pytest.mark.parametrize("more", [True, False])
def test_s173_what_is_sent_must_fit_the_senders_settle_mode(
    mode: int, settled: bool | None, more: bool
) -> None:
    peer = receiving(snd_settle_mode=mode).says(transfer(0, settled=settled, more=more))
    if mode == 2 or bool(settled) == (mode == 1):
        assert peer.hears() == []
        return
    names = {0: "unsettled", 1: "settled"}
    text = (
        f"sender settle mode is '{names[mode]}' but transfer settled flag is interpreted as being "
        f"'{str(bool(settled)).lower()}'"
    )
    assert detach_heard(peer) == ("amqp:invalid-field", text)
    assert peer.called() == [("detached", "in", False)]


# Sizes.


@pytest.mark.parametrize("pieces", [[11], [10, 1], [3, 3, 5], [11, 0]])
def test_s172_a_message_above_the_maximum_ends_the_link_as_soon_as_it_is(pieces: Sequence[int]) -> None:
    peer = receiving(Tuning(message_size_max=10))
    for place, size in enumerate(pieces):
        first = place == 0
        peer.says(transfer(0 if first else None, bytes(size), tag=b"t" if first else None, more=True))
    text = "message size (11 bytes) > maximum message size (10 bytes) (limits.message_size_max)"
    assert detach_heard(peer) == ("amqp:link:message-size-exceeded", text)
    assert peer.called() == [("detached", "in", False)]
    peer.says(transfer(None, bytes(5), more=False))  # what is under way is dropped
    assert peer.hears_all() == []
    assert peer.connection.unfinished.size == 0


def test_s172_a_message_of_the_maximum_is_taken() -> None:
    peer = receiving(Tuning(message_size_max=10))
    peer.says(transfer(0, bytes(10)), transfer(1, bytes(5), more=True), transfer(None, bytes(5), tag=None))
    assert len(peer.called()) == 2


def test_no_maximum_is_none() -> None:
    tuning = Tuning(message_size_max=0)
    peer = begun(tuning)
    assert peer.says(sender()).hears()[0].max_message_size == 0  # type: ignore[attr-defined]
    peer.called()
    assert peer.says(transfer(0, bytes(100_000))).called() == [message(0, bytes(100_000))]


def test_unfinished_messages_of_all_links_together_are_bounded() -> None:
    tuning = Tuning(message_size_max=1000)
    peer = begun(tuning)
    peer.connection.unfinished.size_max = 2500
    for handle in range(3):
        peer.says(sender(str(handle), handle=handle))
    peer.outbox.take()
    for handle in range(3):
        peer.says(transfer(handle, bytes(1000), handle=handle, more=True))
    condition, text = detach_heard(peer)
    assert (condition, text) == (
        "amqp:resource-limit-exceeded",
        "unfinished messages of the connection exceed 2500 octets",
    )
    assert peer.connection.unfinished.size == 2000
    peer.says(transfer(None, b"", handle=0, tag=None))
    assert peer.connection.unfinished.size == 1000


def test_a_large_message_in_many_small_transfers_does_not_take_for_ever() -> None:
    """Each octet is copied a few times, not once for each transfer behind it: that would be 10 GB."""
    tuning = Tuning(incoming_window=40_000)
    peer = begun(tuning).says(sender())
    peer.called()
    parts = 20_000
    between = transfer(None, bytes(50), tag=None, more=True) * (parts - 2)
    last = transfer(None, b"end", tag=None)
    peer.connection.receive(transfer(0, bytes(50), more=True) + between + last, 0.0)
    assert peer.called() == [message(0, bytes(50 * (parts - 1)) + b"end")]
