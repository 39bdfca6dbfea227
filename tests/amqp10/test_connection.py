"""The connection machine: open, frames, endings and time, every state against every performative."""

from __future__ import annotations

from collections import Counter

import pytest

from leveret.protocols.amqp10.codec import performatives as p
from leveret.protocols.amqp10.codec.errors import AmqpError, Ends
from leveret.protocols.amqp10.codec.types import Symbol
from leveret.protocols.amqp10.machine.connection import State
from leveret.protocols.amqp10.machine.contract import Tuning
from tests.harness.machine import must_end_at

from .machine import (
    LOGIN,
    Peer,
    begin,
    begun,
    close_heard,
    frame,
    frames,
    linked,
    open_,
    opened,
    opening,
    sender,
    transfer,
)

# Open.


def test_an_open_is_answered_with_what_we_offer_and_insist_on() -> None:
    tuning = Tuning(
        container_id="node",
        frame_size_max=4096,
        channel_max=7,
        idle_timeout_s=30,
        offered_capabilities=("X",),
    )
    peer = Peer(tuning).says(LOGIN)
    peer.outbox.take()
    theirs = open_(max_frame_size=1024, channel_max=3)
    assert peer.says(theirs).hears() == [
        p.Open(
            container_id="node",
            max_frame_size=4096,
            channel_max=7,
            idle_time_out=15_000,
            offered_capabilities=["X"],
            properties={"product": "machine"},
        )
    ]
    assert peer.called()[1:] == [("open", theirs)]
    assert peer.connection.peer == theirs
    assert peer.connection.frame_size_max == 1024


def test_s167_half_of_our_idle_timeout_is_told_and_none_if_there_is_none() -> None:
    for idle_timeout_s, told in ((60, 30_000), (1, 500), (0, None)):
        peer = Peer(Tuning(idle_timeout_s=idle_timeout_s)).says(LOGIN)
        peer.outbox.take()
        ours = peer.says(open_()).hears_one(p.Open)
        assert ours.idle_time_out == told


def test_what_we_send_in_a_frame_is_bounded_by_both_sides() -> None:
    assert opened(Tuning(frame_size_max=4096)).connection.frame_size_max == 4096
    assert opened(max_frame_size=512).connection.frame_size_max == 512


@pytest.mark.parametrize("size", [0, 1, 511])
def test_x048_a_max_frame_size_that_nobody_can_work_with_is_refused(size: int) -> None:
    peer = opening().says(open_(max_frame_size=size))
    text = f"max_frame_size ({size}) < minimum maximum frame size (512)"
    assert close_heard(peer) == ("amqp:frame-size-too-small", text)
    assert peer.called() == [("closed",)]


@pytest.mark.parametrize("idle_time_out", [1, 999])
def test_s167_an_idle_time_out_below_a_second_is_refused(idle_time_out: int) -> None:
    peer = opening().says(open_(idle_time_out=idle_time_out))
    text = f"idle-time-out ({idle_time_out} ms) < minimum idle-time-out (1000 ms)"
    assert close_heard(peer) == ("amqp:not-allowed", text)


@pytest.mark.parametrize("idle_time_out", [None, 0, 1000])
def test_s167_an_idle_time_out_of_a_second_or_none_is_taken(idle_time_out: int | None) -> None:
    assert opening().says(open_(idle_time_out=idle_time_out)).connection.state is State.OPEN


def test_an_open_on_another_channel_is_a_framing_error() -> None:
    assert close_heard(opening().says((1, open_()))) == ("amqp:connection:framing-error", "open on channel 1")


def test_an_open_that_is_refused_is_answered_and_then_closed() -> None:
    peer = opening()
    peer.notes.refusals["open"] = AmqpError(
        "amqp:unauthorized-access", "virtual host 'v' does not exist", Ends.LINK
    )
    peer.says(open_(hostname="vhost:v"))
    ours, close = peer.hears()
    assert isinstance(ours, p.Open)
    assert close == p.Close(
        error=p.Error(condition="amqp:unauthorized-access", description="virtual host 'v' does not exist")
    )
    assert [call[0] for call in peer.called()] == ["open", "closed"]
    assert peer.connection.state is State.CLOSING
    assert peer.says(begin(), p.Close()).gone()


def test_who_ends_the_connection_while_it_is_opened_is_not_overruled() -> None:
    peer = opening()
    peer.notes.doings["open"] = lambda: peer.connection.fail(AmqpError("amqp:connection:forced", "shut down"))
    peer.says(open_())
    assert close_heard(peer) == ("amqp:connection:forced", "shut down")


def test_before_the_open_a_frame_has_at_most_the_initial_size() -> None:
    tuning = Tuning(initial_frame_size_max=600)
    peer = Peer(tuning).says(LOGIN)
    peer.outbox.take()
    peer.says(frame(open_(container_id="c" * 600))[:8])
    assert (
        close_heard(peer)[1]
        == f"frame size ({len(frame(open_(container_id='c' * 600)))} bytes) > maximum frame size (600 bytes)"
    )
    large = sender(name="n", properties={Symbol("x"): "n" * 2000})
    assert begun(tuning).says(large).called()[0] == ("attach_incoming", "n")


# Frames.


@pytest.mark.parametrize("reach", [opening, opened, begun])
@pytest.mark.parametrize(
    ("start", "text"),
    [
        (b"\x00\x00\x00\x07\x02\x00\x00\x00", "frame size (7 bytes) < minimum frame size (8 bytes)"),
        (b"\x00\x00\x00\x00\x02\x00\x00\x00", "frame size (0 bytes) < minimum frame size (8 bytes)"),
        (b"\x00\x00\x00\x08\x01\x00\x00\x00", "data offset (1) < minimum data offset (2)"),
        (b"\x00\x00\x00\x08\x00\x00\x00\x00", "data offset (0) < minimum data offset (2)"),
        (b"\x00\x00\x00\x08\x02\x01\x00\x00", "frame type (1) is not that of an AMQP frame (0)"),
        (b"\x00\x00\x00\x0b\x03\x00\x00\x00", "data offset (3) is behind the end of the frame (11 bytes)"),
    ],
)
def test_x052_what_is_no_frame_is_a_framing_error(reach: type[Peer], start: bytes, text: str) -> None:
    peer = reach().says(start)
    assert close_heard(peer) == ("amqp:connection:framing-error", text)
    assert peer.gone()  # where the next frame begins is not known any more


def test_x052_a_frame_larger_than_agreed_is_refused_by_its_size_alone() -> None:
    peer = begun(Tuning(frame_size_max=4096))
    peer.says(b"\x00\x00\x10\x01\x02\x00\x00\x00")
    text = "frame size (4097 bytes) > maximum frame size (4096 bytes)"
    assert close_heard(peer) == ("amqp:connection:framing-error", text)
    assert peer.gone()


def test_a_frame_as_large_as_agreed_is_taken() -> None:
    peer = begun(Tuning(frame_size_max=4096)).says(sender())
    peer.called()
    size = 4096 - len(transfer(payload=b""))
    assert peer.says(transfer(payload=bytes(size))).called() == [
        ("message", "in", 0, b"tag", bytes(size), False, None)
    ]


def test_an_extended_header_is_passed_over() -> None:
    peer = opened().says(frame(begin(), extended=b"\xff" * 8), frame(sender(), extended=b"1234"))
    body = p.Transfer(handle=0, delivery_id=0, delivery_tag=b"t").encode()
    peer.says(frame(body, b"payload", extended=bytes(4 * 253)))
    assert peer.called()[-1] == ("message", "in", 0, b"t", b"payload", False, None)


def test_an_empty_frame_is_a_sign_of_life_on_any_channel() -> None:
    peer = begun().says(frame(b""), frame(b"", channel=9), frame(b"", extended=b"1234"), frame(b"")[:7])
    assert (peer.outbox.take(), peer.called(), peer.gone()) == (b"", [], False)


def test_an_empty_frame_does_not_borrow_from_the_next() -> None:
    """Its successor's size may begin with the octets of a transfer."""
    peer = begun(Tuning(frame_size_max=0x0060_0000))
    peer.says(frame(b""), b"\x00\x53\x14\x00\x02\x00\x00\x00")
    assert not peer.gone()
    assert peer.hears() == []


# The end.


ENDED = [("detached", "in", False), ("detached", "out", [], False), ("detached", "other", False)]


def endings(peer: Peer) -> list[object]:
    """What was called, which must be links before their session, and the connection last."""
    calls = peer.called()
    assert calls[-1] == ("closed",)
    for channel, links in ((0, ENDED[:2]), (1, ENDED[2:])):
        assert all(calls.index(link) < calls.index(("ended", channel)) for link in links)
    assert len(calls) == len(ENDED) + 3
    return calls


def test_the_peers_close_is_answered_when_all_has_ended() -> None:
    peer = linked()
    peer.notes.doings["closed"] = lambda: peer.notes.note("heard", peer.outbox.take())
    peer.says(p.Close())
    assert peer.called()[-2:] == [("closed",), ("heard", b"")]
    assert peer.hears_all() == [(0, p.Close(), b"")]
    assert peer.gone()
    assert peer.connection.ended_because == "the client closed it"


def test_what_the_peer_closed_for_is_remembered() -> None:
    peer = begun().says(p.Close(error=p.Error(condition="amqp:internal-error", description="sorry")))
    assert peer.connection.ended_because == "the client closed it: amqp:internal-error sorry"


def test_every_way_ends_sessions_and_links_once_and_the_connection_last() -> None:
    peer = linked()
    endings(peer.says(p.Close()))
    peer = linked()
    peer.connection.lost()
    endings(peer)
    peer.connection.lost()
    assert peer.called() == []
    peer = linked()
    peer.connection.fail(AmqpError("amqp:connection:forced", "shut down"))
    peer.connection.fail(AmqpError("amqp:internal-error", "again"))
    peer.says(p.Close())
    peer.connection.lost()
    endings(peer)
    assert close_heard(peer) == ("amqp:connection:forced", "shut down")
    assert peer.connection.ended_because == "amqp:connection:forced: shut down"


def test_what_owners_do_while_the_connection_ends_is_not_heard() -> None:
    peer = linked()

    def say_things() -> None:
        for session in peer.handler.sessions:
            session.hold()
            session.end()
        peer.incoming.detach()
        peer.connection.fail(AmqpError("amqp:internal-error", "no"))

    for name in ("detached", "ended", "closed"):
        peer.notes.doings[name] = say_things
    peer.says(p.Close())
    assert peer.hears_one(p.Close) == p.Close()
    assert Counter(call[0] for call in peer.called()) == {"detached": 3, "ended": 2, "closed": 1}


def test_a_close_of_ours_waits_for_the_peers_and_not_for_ever() -> None:
    peer = begun(Tuning(handshake_timeout_s=5.0))
    peer.now = 100.0
    peer.says(frame(b""))
    peer.connection.fail(AmqpError("amqp:connection:forced", "shut down"))
    assert peer.connection.deadline() == 100.0  # at once: only then it is known what time it is
    peer.connection.on_deadline(101.0)
    must_end_at(peer, 106.0)


def test_a_description_that_is_too_long_for_the_peers_frames_is_cut() -> None:
    peer = begun(max_frame_size=512)
    peer.connection.fail(AmqpError("amqp:internal-error", "x" * 1000))
    data = peer.outbox.take()
    assert len(data) <= 512
    assert len(frames(data)) == 1


# Signs of life.


def test_s167_when_nothing_was_written_for_half_the_peers_time_an_empty_frame_is() -> None:
    peer = opened(Tuning(idle_timeout_s=0), idle_time_out=20_000)
    silent_since = 0.0
    for now in (step / 10 for step in range(1000)):
        deadline = peer.connection.deadline()
        assert deadline is not None
        if now >= deadline:
            peer.connection.on_deadline(now)
        if int(now) in (33, 34, 61):  # we have something to say
            peer.outbox.write(frame(p.Flow(incoming_window=1, next_outgoing_id=1, outgoing_window=1)))
        if data := peer.outbox.take():
            assert data.endswith(b"\x00\x00\x00\x08\x02\x00\x00\x00") or int(now) in (33, 34, 61)
            silent_since = now
        assert now - silent_since <= 10.1


def test_a_peer_without_an_idle_time_out_hears_no_empty_frames() -> None:
    peer = opened(Tuning(idle_timeout_s=0))
    assert peer.connection.deadline() is None
    peer.connection.on_deadline(1000.0)
    assert peer.outbox.take() == b""


def test_what_is_written_anyway_is_a_sign_of_life() -> None:
    peer = opened(Tuning(idle_timeout_s=0), idle_time_out=20_000)
    peer.connection.on_deadline(5.0)
    peer.outbox.take()  # the first sign comes anyway
    for now in range(10, 105, 5):
        peer.outbox.write(b"something")
        peer.connection.on_deadline(float(now))
    assert peer.outbox.take() == b"something" * 19


def test_x049_a_peer_that_is_silent_for_too_long_is_told_and_left() -> None:
    peer = begun(Tuning(idle_timeout_s=60))
    peer.now = 30.0
    peer.says(frame(b""))
    assert peer.connection.deadline() == 30.0
    for now in (30.0, 60.0, 89.9):
        peer.connection.on_deadline(now)
        assert peer.outbox.take() == b""
    peer.connection.on_deadline(90.0)
    text = "no frame received from client within idle timeout threshold"
    assert close_heard(peer) == ("amqp:resource-limit-exceeded", text)
    assert peer.called() == [("ended", 0), ("closed",)]


# Halting.


def test_it_halts_after_a_frame_while_the_peer_is_owed_too_much_and_goes_on_with_nothing() -> None:
    peer = opened()
    peer.outbox.is_full = True
    peer.says(begin(), (1, begin()), (2, begin()))
    assert peer.connection.halted
    assert peer.called() == [("begin", 0)]
    peer.outbox.is_full = False
    peer.says(b"")
    assert peer.called() == [("begin", 1), ("begin", 2)]
    assert not peer.connection.halted


def test_it_halts_after_a_frame_that_took_long_to_decode() -> None:
    peer = opened()
    large = begin()
    large.properties = {Symbol("x"): bytes(16 << 10)}
    peer.says(large, (1, begin()))
    assert peer.connection.halted
    assert peer.called() == [("begin", 0)]
    peer.says(b"")
    assert peer.called() == [("begin", 1)]


def test_it_halts_when_its_handler_wants_others_to_have_a_turn() -> None:
    peer = begun().says(sender())
    peer.called()
    peer.notes.doings["message"] = lambda: setattr(peer.connection, "halted", True)
    peer.says(transfer(0), transfer(1), transfer(2, b"last")[:-1])
    assert [call[2] for call in peer.called()] == [0]
    peer.says(b"")
    assert [call[2] for call in peer.called()] == [1]
    peer.says(transfer(2, b"last")[-1:])
    assert [call[2] for call in peer.called()] == [2]
