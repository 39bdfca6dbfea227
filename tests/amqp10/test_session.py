"""The session machine: begin and end, channels and handles, windows of both sides."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from leveret.protocols.amqp10.codec import performatives as p
from leveret.protocols.amqp10.codec.errors import AmqpError, Ends
from leveret.protocols.amqp10.machine.connection import State
from leveret.protocols.amqp10.machine.contract import Tuning

from .machine import (
    LAST,
    MANY,
    Peer,
    begin,
    begun,
    close_heard,
    disposition,
    end_heard,
    flow,
    opened,
    receiver,
    sender,
    transfer,
)


def error(ends: Ends, condition: str = "amqp:not-allowed") -> AmqpError:
    return AmqpError(condition, "for the test", ends)


# Begin.


def test_a_begin_is_answered_on_the_channel_the_peer_chose() -> None:
    peer = opened(Tuning(incoming_window=400, handle_max=255)).says((7, begin(next_outgoing_id=LAST)))
    [(channel, ours, _)] = peer.hears_all()
    assert channel == 7
    assert ours == p.Begin(
        remote_channel=7, next_outgoing_id=0, incoming_window=400, outgoing_window=MANY, handle_max=255
    )
    assert peer.called() == [("begin", 7)]
    assert peer.connection.sessions[7] is peer.session


def test_x051_a_channel_above_channel_max_is_a_framing_error() -> None:
    peer = opened(Tuning(channel_max=63)).says((63, begin()))
    assert isinstance(peer.hears_one(p.Begin), p.Begin)
    peer.says((64, begin()))
    text = "channel number (64) exceeds maximum channel number (63)"
    assert close_heard(peer) == ("amqp:connection:framing-error", text)


def test_a_channel_has_one_session() -> None:
    assert close_heard(begun().says(begin())) == ("amqp:illegal-state", "channel 0 has a session")


def test_a_begin_cannot_answer_a_session_that_we_never_began() -> None:
    theirs = begin()
    theirs.remote_channel = 0
    assert close_heard(opened().says(theirs)) == ("amqp:illegal-state", "no session of ours to answer")


@pytest.mark.parametrize("ends", [Ends.LINK, Ends.SESSION])
def test_a_begin_that_is_refused_is_answered_and_ended(ends: Ends) -> None:
    peer = opened()
    peer.notes.refusals["begin"] = error(ends)
    ours, end = peer.says(begin()).hears()
    assert isinstance(ours, p.Begin)
    assert end == p.End(error=p.Error(condition="amqp:not-allowed", description="for the test"))
    assert peer.called() == [("begin", 0)]
    assert not peer.connection.sessions


def test_a_begin_may_end_the_connection() -> None:
    peer = opened()
    peer.notes.refusals["begin"] = error(Ends.CONNECTION)
    assert close_heard(peer.says(begin())) == ("amqp:not-allowed", "for the test")
    assert peer.called() == [("begin", 0), ("closed",)]


@pytest.mark.parametrize(
    "verb",
    [lambda peer: peer.session.end(), lambda peer: peer.connection.fail(error(Ends.CONNECTION))],
    ids=["end", "fail"],
)
def test_a_session_that_ends_while_it_begins_tells_the_owner_it_gets(verb: Callable[[Peer], None]) -> None:
    peer = opened()
    peer.notes.doings["begin"] = lambda: verb(peer)
    peer.says(begin())
    assert peer.called().count(("ended", 0)) == 1
    assert not peer.connection.sessions


# End.


def test_the_peers_end_is_answered_and_the_channel_is_free_at_once() -> None:
    peer = begun().says(sender(), receiver(handle=1))
    peer.called()
    peer.outbox.take()
    peer.notes.doings["ended"] = lambda: peer.notes.note("heard", peer.outbox.take())
    peer.says(p.End())
    assert peer.called() == [
        ("detached", "in", False),
        ("detached", "out", [], False),
        ("ended", 0),
        ("heard", b""),
    ]
    assert peer.hears_one(p.End) == p.End()
    assert isinstance(peer.says(begin()).hears_one(p.Begin), p.Begin)


def test_after_our_end_everything_is_dropped_until_the_peers() -> None:
    peer = begun().says(sender(), receiver(handle=1))
    peer.called()
    peer.outbox.take()
    peer.session.end(error(Ends.SESSION))
    assert end_heard(peer) == ("amqp:not-allowed", "for the test")
    assert peer.called() == [("detached", "in", False), ("detached", "out", [], False), ("ended", 0)]
    peer.says(
        transfer(0), flow(1, 5, echo=True), disposition(0, 5), sender(handle=9), p.Detach(handle=0), begin()
    )
    peer.says(
        transfer(0, handle=77), p.Flow(incoming_window=1, next_outgoing_id=1, outgoing_window=1, handle=4)
    )
    assert (peer.hears(), peer.called()) == ([], [])
    peer.says(p.End())
    assert (peer.hears(), peer.called()) == ([], [])
    assert isinstance(peer.says(begin()).hears_one(p.Begin), p.Begin)


def test_an_end_ends_once() -> None:
    peer = begun()
    peer.session.end()
    peer.session.end(error(Ends.SESSION))
    assert peer.hears_one(p.End) == p.End()
    assert peer.called() == [("ended", 0)]


def test_other_sessions_go_on() -> None:
    peer = begun().says((1, begin()), (1, sender()))
    peer.handler.sessions[0].end(error(Ends.SESSION))
    peer.called()
    peer.says(transfer(0, channel=1))
    assert peer.called() == [("message", "in", 0, b"tag", b"hello", False, None)]


# Handles.


def test_x053_a_handle_above_handle_max_is_a_framing_error() -> None:
    peer = begun(Tuning(handle_max=255)).says(sender(handle=255))
    assert peer.connection.state is State.OPEN
    peer.says(sender("other", handle=256))
    text = "link handle value (256) exceeds maximum link handle value (255)"
    assert close_heard(peer) == ("amqp:connection:framing-error", text)


@pytest.mark.parametrize(
    "second", [sender("other"), receiver("other"), sender()], ids=["sender", "receiver", "again"]
)
def test_s168_a_handle_has_one_link(second: p.Attach) -> None:
    peer = begun().says(sender(), second)
    text = "handle 0 is already associated with a link"
    assert end_heard(peer) == ("amqp:session:handle-in-use", text)


def test_s168_a_handle_that_we_detached_is_in_use_until_the_peer_detaches() -> None:
    peer = begun().says(sender())
    peer.incoming.detach()
    assert end_heard(peer.says(sender("other")))[0] == "amqp:session:handle-in-use"


def test_a_handle_above_the_peers_own_handle_max_ends_the_session() -> None:
    peer = opened().says(begin(handle_max=3), sender(handle=3))
    assert isinstance(peer.hears()[1], p.Attach)
    condition, _ = end_heard(peer.says(sender("other", handle=4)))
    assert condition == "amqp:resource-limit-exceeded"


@pytest.mark.parametrize(
    "said",
    [
        transfer(0, handle=4),
        flow(4, 1),
        p.Flow(incoming_window=1, next_outgoing_id=0, outgoing_window=1, handle=4),
        p.Detach(handle=4),
        p.Detach(handle=4, closed=True),
    ],
    ids=["transfer", "credit", "flow", "detach", "close"],
)
def test_s169_a_handle_that_nothing_is_attached_to_ends_the_session(said: bytes | p.Record) -> None:
    peer = begun().says(sender(), said)
    assert end_heard(peer) == ("amqp:session:unattached-handle", "Unattached link handle: 4")


def test_what_is_said_of_a_link_that_we_detached_is_dropped_until_the_peer_detaches() -> None:
    peer = begun().says(sender(), receiver(handle=1), flow(1, 5))
    peer.incoming.detach()
    peer.outgoing.detach()
    peer.forget()
    peer.says(transfer(0), flow(0), flow(1, 9, echo=True), disposition(0))
    assert (peer.hears(), peer.called()) == ([], [])
    peer.says(p.Detach(handle=0, closed=True), p.Detach(handle=1))
    assert (peer.hears(), peer.called()) == ([], [])
    peer.says(p.Detach(handle=1))
    assert end_heard(peer)[0] == "amqp:session:unattached-handle"


def test_handles_are_used_again() -> None:
    peer = begun()
    for _ in range(3):
        peer.says(sender(), p.Detach(handle=0, closed=True), receiver(), p.Detach(handle=0, closed=True))
    assert peer.connection.state is State.OPEN
    assert not peer.session.links
    assert not peer.session.ended


# The peer's transfers, our window.


def test_s170_more_transfers_than_the_window_are_a_violation() -> None:
    peer = begun(Tuning(incoming_window=4, link_credit=100)).says(sender())
    peer.called()
    peer.connection.receive(b"".join(transfer(number) for number in range(4)), 0.0)
    assert len(peer.called()) == 4
    peer = begun(Tuning(incoming_window=4, link_credit=100)).says(sender())
    peer.says(b"".join(transfer(number) for number in range(5)))
    assert end_heard(peer)[0] == "amqp:session:window-violation"
    assert len([call for call in peer.called() if call[0] == "message"]) == 4


@pytest.mark.parametrize("last", [{}, {"handle": 1}, {"aborted": True}, {"more": True}])
def test_s170_every_transfer_counts_also_those_that_are_decoded_or_dropped(last: dict[str, int]) -> None:
    peer = begun(Tuning(incoming_window=4, link_credit=100)).says(sender(), sender("other", handle=1))
    peer.handler.owners[0].incoming[1].detach()
    peer.says(
        transfer(0, more=True)
        + transfer(None, tag=None, more=True)
        + transfer(None, tag=None)
        + transfer(1, handle=1)
        + transfer(2, **last)  # type: ignore[arg-type]
    )
    assert end_heard(peer)[0] == "amqp:session:window-violation"


def test_the_window_is_opened_again_when_half_of_it_is_used_up() -> None:
    peer = begun(Tuning(incoming_window=10, link_credit=100), next_outgoing_id=LAST - 1).says(sender())
    peer.outbox.take()
    for number in range(4):
        peer.says(transfer(number))
    assert peer.hears() == []
    peer.says(transfer(4))
    assert peer.hears_one(p.Flow) == p.Flow(
        next_incoming_id=3,  # the last, the very last, 0, 1, 2
        incoming_window=10,
        next_outgoing_id=0,
        outgoing_window=MANY,
    )
    for number in range(10):
        peer.says(transfer(number))
    assert not peer.session.ended


def test_the_window_is_opened_again_in_the_middle_of_a_message() -> None:
    peer = begun(Tuning(incoming_window=10, link_credit=100)).says(sender())
    peer.outbox.take()
    peer.says(transfer(0, more=True), transfer(None, tag=None, more=True) * 4)
    told = peer.hears_one(p.Flow)
    assert (told.next_incoming_id, told.incoming_window, told.handle) == (5, 10, None)  # type: ignore[attr-defined]


def test_s162_a_session_that_is_held_tells_a_window_of_0_and_takes_what_is_under_way() -> None:
    peer = begun(Tuning(incoming_window=4, link_credit=100)).says(sender())
    peer.outbox.take()
    peer.session.hold()
    assert peer.hears_one(p.Flow).incoming_window == 0  # type: ignore[attr-defined]
    peer.session.hold()
    peer.says(*(transfer(number) for number in range(4)))
    assert peer.hears() == []
    assert not peer.session.ended
    peer.session.unhold()
    told = peer.hears_one(p.Flow)
    assert (told.next_incoming_id, told.incoming_window) == (4, 4)  # type: ignore[attr-defined]
    peer.session.unhold()
    assert peer.hears() == []


def test_s162_what_comes_beyond_that_is_a_violation_while_held() -> None:
    peer = begun(Tuning(incoming_window=4, link_credit=100)).says(sender())
    peer.session.hold()
    assert (
        end_heard(peer.says(*(transfer(number) for number in range(5))))[0] == "amqp:session:window-violation"
    )


def test_s162_every_flow_of_a_session_that_is_held_tells_a_window_of_0() -> None:
    peer = begun().says(sender())
    peer.outbox.take()
    peer.session.hold()
    peer.says(flow(echo=True), receiver(handle=1), flow(1, 5, echo=True))
    peer.incoming.want(3)
    assert [each.incoming_window for each in peer.hears() if isinstance(each, p.Flow)] == [0] * 4


def test_s163_a_session_may_begin_with_a_window_of_0() -> None:
    peer = opened(Tuning(incoming_window=400))
    peer.notes.doings["begin"] = lambda: peer.session.hold()
    assert peer.says(begin()).hears_one(p.Begin).incoming_window == 0  # type: ignore[attr-defined]
    peer.says(sender(), transfer(0))
    assert end_heard(peer)[0] == "amqp:session:window-violation"


def test_s163_a_session_that_began_held_goes_on_when_it_is_not() -> None:
    peer = opened(Tuning(incoming_window=400))
    peer.notes.doings["begin"] = lambda: peer.session.hold()
    peer.says(begin(), sender())
    peer.outbox.take()
    peer.session.unhold()
    assert peer.hears_one(p.Flow).incoming_window == 400  # type: ignore[attr-defined]
    peer.called()
    assert peer.says(transfer(0)).called() == [("message", "in", 0, b"tag", b"hello", False, None)]


# Our transfers, the peer's window.


def sending(window: int, **fields: int) -> Peer:
    """A session whose peer takes so many transfers, and a link with plenty of credit."""
    peer = begun(incoming_window=window, **fields).says(receiver())
    peer.says(flow(0, 1000, incoming_window=window))
    return peer.forget()


def send(peer: Peer, *numbers: int, settled: bool = True) -> None:
    for number in numbers:
        peer.outgoing.send(number, [b"m%d" % number], 2, settled)


def payloads(peer: Peer) -> list[bytes]:
    return [payload for _, each, payload in peer.hears_all() if isinstance(each, p.Transfer)]


def test_room_is_what_the_peer_takes_and_what_is_beyond_waits_in_order() -> None:
    peer = sending(2)
    assert peer.session.sending.room() == 2
    send(peer, 1)
    assert peer.session.sending.room() == 1
    send(peer, 2, 3, 4)
    assert peer.session.sending.room() == 0
    assert payloads(peer) == [b"m1", b"m2"]
    peer.says(flow(next_incoming_id=2, incoming_window=1))
    assert payloads(peer) == [b"m3"]
    assert peer.called() == []
    peer.says(flow(next_incoming_id=3, incoming_window=3))
    assert payloads(peer) == [b"m4"]
    assert peer.session.sending.room() == 2
    assert peer.called() == [("window", 2)]
    peer.says(flow(next_incoming_id=4, incoming_window=5))
    assert peer.called() == []  # it had room before


def test_what_is_under_way_counts_against_the_window() -> None:
    peer = sending(5)
    send(peer, 1, 2, 3)
    peer.says(flow(next_incoming_id=1, incoming_window=4))
    assert peer.session.sending.room() == 2
    peer.says(flow(next_incoming_id=1, incoming_window=1))
    assert peer.session.sending.room() == 0


@pytest.mark.parametrize("start", [LAST, LAST - 1, 0x7FFF_FFFF, 0])
def test_windows_go_round_at_the_end_of_32_bits(start: int) -> None:
    peer = sending(3)
    peer.session.sending.next_outgoing_id = start
    send(peer, 1, 2, 3, 4)
    assert payloads(peer) == [b"m1", b"m2", b"m3"]
    peer.says(flow(next_incoming_id=start + 1 & LAST, incoming_window=3))
    assert payloads(peer) == [b"m4"]
    assert peer.session.sending.room() == 0
    assert peer.session.sending.next_outgoing_id == start + 4 & LAST


def test_the_largest_window_is_taken_whole() -> None:
    peer = sending(LAST)
    send(peer, 1)
    peer.says(flow(next_incoming_id=0, incoming_window=LAST))
    assert peer.session.sending.room() == LAST - 1


@pytest.mark.parametrize("ahead", [1, 100, 0x7FFF_FFFF])
@pytest.mark.parametrize("start", [0, LAST])
def test_x054_a_next_incoming_id_ahead_of_ours_is_a_violation(start: int, ahead: int) -> None:
    peer = sending(5)
    peer.session.sending.next_outgoing_id = start
    peer.says(flow(next_incoming_id=start + ahead & LAST))
    assert end_heard(peer)[0] == "amqp:session:window-violation"


def test_a_flow_before_the_peer_knows_our_begin_counts_from_the_beginning() -> None:
    peer = sending(5)
    send(peer, 1, 2)
    peer.says(flow(next_incoming_id=None, incoming_window=5))
    assert peer.session.sending.room() == 3


def test_a_session_that_takes_nothing_at_first_tells_when_it_does() -> None:
    peer = sending(0)
    send(peer, 1)
    assert payloads(peer) == []
    peer.says(flow(next_incoming_id=0, incoming_window=1))
    assert payloads(peer) == [b"m1"]
    assert peer.called() == []  # that was all the room there was
    peer.says(flow(next_incoming_id=1, incoming_window=1))
    assert peer.called() == [("window", 1)]


@pytest.mark.parametrize(
    ("ends", "said"), [(Ends.LINK, p.End), (Ends.SESSION, p.End), (Ends.CONNECTION, p.Close)]
)
def test_an_owner_that_fails_when_there_is_room_ends_the_session_or_more(
    ends: Ends, said: type[p.Record]
) -> None:
    peer = sending(0)
    peer.notes.refusals["window"] = error(ends)
    peer.says(flow(0, 7, incoming_window=1, echo=True))
    assert isinstance(peer.hears_one(said), said)
    assert ("credit", "out", 7, False) not in peer.called()


def test_s180_an_echo_is_answered_with_how_the_session_stands() -> None:
    peer = sending(5)
    send(peer, 1, 2)
    peer.outbox.take()
    peer.says(flow(next_incoming_id=2, incoming_window=5, next_outgoing_id=0, echo=True))
    assert peer.hears_one(p.Flow) == p.Flow(
        next_incoming_id=0, incoming_window=400, next_outgoing_id=2, outgoing_window=MANY
    )
    peer.says(flow(next_incoming_id=2, incoming_window=5))
    assert peer.hears() == []


def test_a_session_that_ends_forgets_what_waits() -> None:
    peer = sending(0)
    send(peer, 1, 2, settled=False)
    peer.says(p.End())
    assert peer.hears_one(p.End) == p.End()
    assert peer.called() == [("detached", "out", [1, 2], False), ("ended", 0)]
    assert not peer.session.sending.backlog
