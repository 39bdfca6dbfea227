"""Links of both directions: attach and detach, refusals, and whose error ends what."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from leveret.protocols.amqp10.codec import performatives as p
from leveret.protocols.amqp10.codec.errors import AmqpError, Ends
from leveret.protocols.amqp10.machine.contract import Tuning
from leveret.protocols.amqp10.machine.link import Link

from .machine import MANY, Peer, begun, disposition, flow, of_error, receiver, sender, transfer

BOTH = pytest.mark.parametrize("attach", [sender, receiver])
NAMES = {sender: "in", receiver: "out"}


def error(ends: Ends = Ends.LINK, condition: str = "amqp:not-found", **info: str) -> AmqpError:
    return AmqpError(condition, "no queue 'q'", ends, info=dict(info) or None)


def link_of(peer: Peer, attach: Callable[[], p.Attach]) -> Link:
    return peer.incoming if attach is sender else peer.outgoing


def attached(attach: Callable[[], p.Attach]) -> Peer:
    peer = begun().says(attach())
    return peer.forget()


def detached(peer: Peer) -> list[bool]:
    """Whether each link that ended was said to be closed."""
    return [call[-1] for call in peer.called() if call[0] == "detached"]  # type: ignore[misc]


# Attach.


def test_a_sender_is_answered_and_gets_credit() -> None:
    peer = begun(Tuning(link_credit=170, message_size_max=5000))
    theirs = sender(handle=3, initial_delivery_count=0xFFFF_FFFF, snd_settle_mode=0, rcv_settle_mode=1)
    ours, told = peer.says(theirs).hears()
    assert ours == p.Attach(
        name="in",
        handle=3,
        role=True,
        snd_settle_mode=0,
        rcv_settle_mode=1,
        source=theirs.source,
        target=theirs.target,
        max_message_size=5000,
    )
    assert told == p.Flow(
        next_incoming_id=0,
        incoming_window=400,
        next_outgoing_id=0,
        outgoing_window=MANY,
        handle=3,
        delivery_count=0xFFFF_FFFF,
        link_credit=170,
        available=0,
    )
    assert peer.called() == [("attach_incoming", "in"), ("attached_incoming", "in")]


def test_a_sender_that_does_not_say_where_it_counts_from_is_refused() -> None:
    """Part 2, section 2.7.3: it must."""
    peer = begun().says(sender(initial_delivery_count=None))
    attach, detach = peer.hears()
    assert (attach.target, detach.error.condition) == (None, "amqp:invalid-field")  # type: ignore[attr-defined]
    assert peer.called() == []


def test_a_receiver_is_answered_and_gives_credit_itself() -> None:
    peer = begun()
    theirs = receiver(handle=3, snd_settle_mode=1, rcv_settle_mode=0, max_message_size=77)
    assert peer.says(theirs).hears() == [
        p.Attach(
            name="out",
            handle=3,
            role=False,
            snd_settle_mode=1,
            source=theirs.source,
            target=theirs.target,
            initial_delivery_count=0,
        )
    ]
    link = peer.outgoing
    assert (link.credit, link.settled, link.snd_settle_mode, link.message_size_max) == (0, True, 1, 77)
    assert not link.drain
    assert not begun().says(receiver()).outgoing.settled


@BOTH
def test_an_attach_says_what_the_owner_wants_it_to(attach: Callable[[], p.Attach]) -> None:
    peer = begun()
    states: dict[bytes, p.DeliveryState | None] = {b"tag": p.Accepted(), b"other": None}
    peer.handler.owners[0].fields = {
        "properties": {"paired": True},
        "offered_capabilities": ["X"],
        "unsettled": states,
    }
    ours = peer.says(attach()).hears()[0]
    assert isinstance(ours, p.Attach)
    assert ours.properties == {"paired": True}
    assert ours.offered_capabilities == ["X"]
    assert ours.unsettled is not None
    assert set(ours.unsettled) == {b"tag", b"other"}


def test_two_links_may_have_one_name_in_opposite_directions() -> None:
    peer = begun().says(sender("pair"), receiver("pair", handle=1), flow(1, 5), transfer(0))
    assert not any(isinstance(each, p.Detach | p.End) for each in peer.hears())
    assert len(peer.session.links) == 2


@BOTH
def test_a_link_that_is_attached_again_is_stolen_from_the_handle_it_had(
    attach: Callable[..., p.Attach],
) -> None:
    """Part 2, section 2.6.1."""
    peer = attached(attach)
    stolen, *_ = peer.says(attach(handle=1)).hears()
    text = f"link '{NAMES[attach]}' was attached again"
    assert stolen == p.Detach(
        handle=0, closed=True, error=p.Error(condition="amqp:link:stolen", description=text)
    )
    assert next(call[0] for call in peer.called()) == "detached"
    assert list(peer.session.links) == [1]
    peer.says(p.Detach(handle=0, closed=True), p.Detach(handle=1, closed=True))
    assert peer.hears_one(p.Detach) == p.Detach(handle=1, closed=True)


# Refusals.


@BOTH
def test_s177_a_refused_attach_is_answered_without_a_terminus_and_detached(
    attach: Callable[[], p.Attach],
) -> None:
    peer = begun()
    name = "attach_incoming" if attach is sender else "attach_outgoing"
    peer.notes.refusals[name] = error(queue="q")
    ours, detach = peer.says(attach()).hears()
    assert isinstance(ours, p.Attach)
    assert (ours.name, ours.handle, ours.role) == (NAMES[attach], 0, attach is sender)
    assert (ours.source, ours.target) == (None, None)
    assert detach == p.Detach(
        handle=0,
        closed=True,
        error=p.Error(condition="amqp:not-found", description="no queue 'q'", info={"queue": "q"}),
    )
    assert peer.called() == [(name, NAMES[attach])]
    del peer.notes.refusals[name]
    peer.says(transfer(0), flow(0, 5), p.Detach(handle=0, closed=True), attach())
    assert isinstance(peer.hears()[0], p.Attach)


@BOTH
def test_an_owner_that_refuses_after_it_has_attached_only_detaches(attach: Callable[[], p.Attach]) -> None:
    peer = begun()
    name = "attached_incoming" if attach is sender else "attached_outgoing"
    peer.notes.refusals[name] = error()
    ours, detach = peer.says(attach()).hears()
    assert isinstance(ours, p.Attach)
    assert ours.source is not None
    assert isinstance(detach, p.Detach)
    assert detached(peer) == []


@BOTH
@pytest.mark.parametrize(("ends", "said"), [(Ends.SESSION, p.End), (Ends.CONNECTION, p.Close)])
def test_s182_a_refusal_may_end_more(
    attach: Callable[[], p.Attach], ends: Ends, said: type[p.Record]
) -> None:
    peer = begun()
    peer.notes.refusals["attach_incoming"] = peer.notes.refusals["attach_outgoing"] = error(ends)
    told = peer.says(attach()).hears_one(said)
    assert told.error == p.Error(condition="amqp:not-found", description="no queue 'q'")  # type: ignore[attr-defined]


@BOTH
@pytest.mark.parametrize("when", ["attach", "attached"])
@pytest.mark.parametrize("how", ["detach", "end", "fail"])
def test_a_link_that_ends_while_it_is_attached_tells_the_owner_it_gets(
    attach: Callable[[], p.Attach], when: str, how: str
) -> None:
    peer = begun()
    verbs: dict[str, Callable[[], object]] = {
        "detach": lambda: link_of(peer, attach).detach(error()),
        "end": lambda: peer.session.end(error()),
        "fail": lambda: peer.connection.fail(error()),
    }
    peer.notes.doings[f"{when}_incoming"] = peer.notes.doings[f"{when}_outgoing"] = verbs[how]
    peer.says(attach())
    assert detached(peer) == [False]
    if how == "detach":
        ours, detach = peer.hears()
        assert isinstance(ours, p.Attach)
        assert (ours.source is None) == (when == "attach")
        assert isinstance(detach, p.Detach)


@BOTH
def test_an_attach_that_does_not_fit_into_the_peers_frames_is_refused(
    attach: Callable[..., p.Attach],
) -> None:
    peer = begun(max_frame_size=512).says(
        attach(source=p.Source(address="s" * 300), target=p.Target(address="t" * 300))
    )
    ours, detach = peer.hears()
    assert isinstance(ours, p.Attach)
    assert (ours.source, ours.target) == (None, None)
    assert isinstance(detach, p.Detach)
    assert of_error(detach.error)[0] == "amqp:frame-size-too-small"


@BOTH
def test_a_refusal_that_does_not_fit_into_the_peers_frames_ends_the_session(
    attach: Callable[..., p.Attach],
) -> None:
    peer = begun(max_frame_size=512)
    peer.notes.refusals["attach_incoming"] = peer.notes.refusals["attach_outgoing"] = error()
    end = peer.says(attach(name="n" * 600)).hears_one(p.End)
    assert end.error.condition == "amqp:frame-size-too-small"  # type: ignore[attr-defined]


def test_the_reason_of_a_refusal_is_cut_to_the_peers_frames() -> None:
    peer = begun(max_frame_size=512)
    peer.notes.refusals["attach_incoming"] = AmqpError("amqp:not-found", "x" * 5000)
    assert all(len(body) <= 504 for _, _, body in peer.says(sender()).frames())


# Detach.


@BOTH
@pytest.mark.parametrize("closed", [True, False])
def test_the_peers_detach_is_answered_alike(attach: Callable[[], p.Attach], closed: bool) -> None:
    peer = attached(attach)
    peer.notes.doings["detached"] = lambda: peer.notes.note("heard", peer.outbox.take())
    peer.says(p.Detach(handle=0, closed=closed))
    assert peer.called()[1:] == [("heard", b"")]
    assert peer.hears_one(p.Detach) == p.Detach(handle=0, closed=closed)
    assert peer.says(attach()).hears()


@BOTH
@pytest.mark.parametrize("closed", [True, False])
def test_a_detach_of_ours_ends_once_and_tells_the_owner_first(
    attach: Callable[[], p.Attach], closed: bool
) -> None:
    peer = attached(attach)
    link = link_of(peer, attach)
    peer.notes.doings["detached"] = lambda: peer.notes.note("heard", peer.outbox.take())
    link.detach(closed=closed)
    link.detach(error())
    assert peer.called()[1:] == [("heard", b"")]
    assert peer.hears_one(p.Detach) == p.Detach(handle=0, closed=closed)
    assert link.ended


@BOTH
def test_after_an_error_the_peer_may_come_back(attach: Callable[[], p.Attach]) -> None:
    peer = attached(attach)
    link_of(peer, attach).detach(error())
    assert detached(peer) == [False]
    peer = attached(attach)
    link_of(peer, attach).detach()
    assert detached(peer) == [True]


@BOTH
@pytest.mark.parametrize("closed", [True, False])
def test_detaches_that_cross_are_both_the_last_word(attach: Callable[[], p.Attach], closed: bool) -> None:
    peer = attached(attach)
    link_of(peer, attach).detach(error())
    peer.outbox.take()
    peer.says(p.Detach(handle=0, closed=closed))
    assert peer.hears() == []
    assert peer.says(attach()).hears()


def test_what_is_to_be_said_of_messages_is_said_before_the_detach() -> None:
    peer = attached(sender)
    peer.says(transfer(0), transfer(1))
    peer.incoming.answer(0, p.Released())
    peer.incoming.detach(error())
    told, detach = peer.hears()
    assert told == p.Disposition(role=True, first=0, last=0, settled=True, state=p.Released())
    assert isinstance(detach, p.Detach)


@pytest.mark.parametrize("said", [p.Detach(handle=0, closed=True), p.End()])
def test_what_is_to_be_said_is_said_also_when_the_peer_detaches(said: p.Record) -> None:
    peer = attached(sender)
    peer.connection.receive(transfer(0), 0.0)
    peer.incoming.accept(0)
    told = peer.says(said).hears()
    if isinstance(said, p.Detach):
        assert told == [p.Disposition(role=True, first=0, last=0, settled=True, state=p.Accepted()), said]
    else:
        assert told == [p.End()]


def test_verbs_after_the_end_do_nothing() -> None:
    peer = begun().says(sender(), receiver(handle=1), flow(1, 5), transfer(0))
    peer.outgoing.send("before", [b"m"], 1, False)
    peer.says(p.Detach(handle=0, closed=True), p.Detach(handle=1, closed=True))
    peer.outbox.take()
    incoming, outgoing = peer.incoming, peer.outgoing
    incoming.accept(0)
    incoming.accept_all([0])
    incoming.answer(0, p.Released())
    incoming.want(5)
    incoming.attach(None, None)
    outgoing.send("after", [b"m"], 1, False)
    outgoing.send("after", [bytes(200_000)], 200_000, False)
    outgoing.drained()
    outgoing.settle([0])
    outgoing.attach(None, None)
    peer.says(disposition(0, 9))
    assert peer.hears() == []
    assert not peer.session.sending.unsettled
    assert not peer.session.sending.backlog


# Errors of owners.


@pytest.mark.parametrize(
    ("ends", "said"), [(Ends.LINK, p.Detach), (Ends.SESSION, p.End), (Ends.CONNECTION, p.Close)]
)
@pytest.mark.parametrize("call", ["message", "credit", "outcomes"])
def test_an_owner_that_fails_ends_what_the_error_says(call: str, ends: Ends, said: type[p.Record]) -> None:
    peer = begun().says(sender(), receiver(handle=1), flow(1, 5))
    peer.outgoing.send("token", [b"m"], 1, False)
    peer.forget()
    peer.notes.refusals[call] = error(ends)
    happens = {"message": transfer(0), "credit": flow(1, 9), "outcomes": disposition(0)}
    told = peer.says(happens[call], happens[call]).hears_one(said)
    assert told.error == p.Error(condition="amqp:not-found", description="no queue 'q'")  # type: ignore[attr-defined]
    calls = [each[0] for each in peer.called()]
    assert calls[0] == call
    assert calls.count(call) == 1
    assert calls.count("detached") == (1 if ends is Ends.LINK else 2)


@pytest.mark.parametrize("how", ["decoded", "by heart"])
def test_a_transfer_to_a_link_on_which_the_peer_receives_ends_that_link(how: str) -> None:
    peer = attached(receiver)
    detach = peer.says(transfer(0, rcv_settle_mode=0 if how == "decoded" else None)).hears_one(p.Detach)
    assert detach.error.condition == "amqp:not-allowed"  # type: ignore[attr-defined]
    assert not peer.session.ended
