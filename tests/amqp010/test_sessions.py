"""The sessions of a virtual host: whose they are, who gets them, and for how long they wait for a connection."""

from __future__ import annotations

import pytest

from leveret.protocols.amqp010.broker.sessions import Sessions
from leveret.protocols.amqp010.codec import commands as c
from tests.amqp091.peer import TWO_HOSTS
from tests.harness.bench import ClientBench

from .client import ClientSession, SessionEnded
from .peer import Peer

BUSY = c.DETACH_CODE_SESSION_BUSY


def sessions(bench: ClientBench) -> int:
    return len(bench.host.guest(Sessions))


def keep(session: ClientSession, seconds: int) -> int:
    """Ask for a timeout; what is granted."""
    session.control(c.SessionRequestTimeout(seconds))
    (granted,) = session.taken(c.SessionTimeout)
    return granted.timeout


def lost_with(bench: ClientBench, name: str, seconds: int = 60, user: str = "guest") -> Peer:
    """A session with a queue of its own, whose connection has gone."""
    peer = Peer(bench).open(user, user)
    session = peer.attach(name)
    keep(session, seconds)
    session.declare(f"of {name}", exclusive=True, auto_delete=True)
    peer.drop()
    return peer


def is_kept(bench: ClientBench, name: str) -> bool:
    return f"of {name}" in bench.host.queues


def resumed(bench: ClientBench, name: str, user: str = "guest") -> list[type]:
    """What a new connection hears first that attaches it."""
    peer = Peer(bench).open(user, user)
    session = peer.sessions[1] = ClientSession(peer, 1, name.encode())
    session.control(c.SessionAttach(name.encode(), False))
    return [type(what) for what in session.taken()]


NEW = [c.SessionAttached, c.SessionCommandPoint]
RESUMED = [c.SessionAttached, c.SessionFlush]


# Names.


def test_a_name_is_in_use_by_one_connection() -> None:
    bench = ClientBench()
    Peer(bench).open().attach("mine")
    with pytest.raises(SessionEnded) as ended:
        Peer(bench).open().attach("mine")
    assert ended.value.detached == c.SessionDetached(b"mine", BUSY)


def test_the_same_name_of_another_user_is_another_session() -> None:
    bench = ClientBench()
    bench.user("ann")
    Peer(bench).open().attach("mine")
    assert Peer(bench).open("ann", "ann").attach("mine").attached


def test_the_same_name_in_another_virtual_host_is_another_session() -> None:
    bench = ClientBench(TWO_HOSTS)
    Peer(bench).open(virtual_host="/").attach("mine")
    assert Peer(bench).open(virtual_host="blue").attach("mine").attached


def test_a_name_is_free_once_its_connection_has_gone() -> None:
    bench = ClientBench()
    peer = Peer(bench).open()
    peer.attach("mine")
    peer.drop()
    assert sessions(bench) == 0
    assert resumed(bench, "mine") == NEW


def test_a_name_is_free_once_its_session_has_failed() -> None:
    """Though its channel is not, until the peer has said detached."""
    bench = ClientBench()
    peer = Peer(bench).open()
    failed = peer.attach("mine", 1)
    failed.answers = False
    failed.send(c.MessageSubscribe("missing", "d"))
    assert peer.attach("mine", 2).attached
    failed.control(c.SessionDetached(b"mine", 0))
    peer.sessions[2].sync()
    assert sessions(bench) == 1


# Force.


def test_force_takes_a_session_from_another_connection() -> None:
    bench = ClientBench()
    old = Peer(bench).open().attach("mine")
    new = Peer(bench).open().attach("mine", force=True)
    old.client.read()
    assert old.detached == c.SessionDetached(b"mine", BUSY)
    new.sync()
    assert sessions(bench) == 1


def test_force_takes_a_session_from_another_channel() -> None:
    peer = Peer().open()
    old = peer.attach("mine", 1)
    new = peer.attach("mine", 2, force=True)
    assert old.detached == c.SessionDetached(b"mine", BUSY)
    new.sync()
    assert peer.attach("other", 1).attached


def test_what_was_taken_by_force_begins_anew_if_it_was_not_to_be_kept() -> None:
    """The messaging client reconnects like that, and sends again what was not settled."""
    bench = ClientBench()
    old = Peer(bench).open().attach("mine")
    old.declare("q", exclusive=True, auto_delete=True)
    Peer(bench).open().attach("mine", force=True)
    assert "q" not in bench.host.queues


def test_what_was_taken_by_force_goes_on_if_it_was_to_be_kept() -> None:
    bench = ClientBench()
    old = Peer(bench).open().attach("mine")
    keep(old, 60)
    old.declare("of mine", exclusive=True, auto_delete=True)
    peer = Peer(bench).open()
    session = peer.sessions[1] = ClientSession(peer, 1, b"mine")
    session.control(c.SessionAttach(b"mine", True))
    assert [type(what) for what in session.taken()] == RESUMED
    assert is_kept(bench, "mine")


def test_who_does_not_force_gets_a_detached_session_too() -> None:
    bench = ClientBench()
    lost_with(bench, "mine")
    assert resumed(bench, "mine") == RESUMED


# Time.


@pytest.mark.parametrize(("asked", "granted"), [(0, 0), (10, 10), (100, 100), (101, 100)])
def test_no_more_time_is_granted_than_is_configured(asked: int, granted: int) -> None:
    session = Peer(ClientBench("protocols.amqp010.session_timeout_max_s = 100")).open().attach()
    assert keep(session, asked) == granted


def test_for_ever_is_as_long_as_is_configured() -> None:
    session = Peer(ClientBench("protocols.amqp010.session_timeout_max_s = 100")).open().attach()
    session.control(c.SessionRequestTimeout())
    (granted,) = session.taken(c.SessionTimeout)
    assert granted.timeout == 100


def test_a_session_waits_for_its_timeout_and_no_longer() -> None:
    bench = ClientBench()
    lost_with(bench, "mine", 60)
    bench.advance(59)
    assert is_kept(bench, "mine")
    bench.advance(2)
    assert not is_kept(bench, "mine")
    assert sessions(bench) == 0
    assert resumed(bench, "mine") == NEW


def test_the_time_runs_again_from_the_beginning_each_time() -> None:
    bench = ClientBench()
    lost_with(bench, "mine", 60)
    bench.advance(50)
    assert resumed(bench, "mine") == RESUMED
    bench.advance(1000)  # it is attached
    assert is_kept(bench, "mine")
    bench.peers[-1].drop()
    bench.advance(59)
    assert is_kept(bench, "mine")
    bench.advance(2)
    assert not is_kept(bench, "mine")


def test_a_session_that_is_detached_in_words_is_kept_as_well() -> None:
    bench = ClientBench()
    peer = Peer(bench).open()
    session = peer.attach("mine")
    keep(session, 60)
    session.detach()
    del peer.sessions[1]
    assert sessions(bench) == 1
    assert resumed(bench, "mine") == RESUMED


def test_a_connection_that_is_closed_leaves_its_sessions_as_a_lost_one_does() -> None:
    bench = ClientBench()
    peer = Peer(bench).open()
    keep(peer.attach("mine"), 60)
    peer.close()
    assert resumed(bench, "mine") == RESUMED


# Bounds.


def test_a_user_has_no_more_detached_sessions_than_configured() -> None:
    bench = ClientBench("protocols.amqp010.detached_sessions_max = 2")
    bench.user("ann")
    lost_with(bench, "of ann", user="ann")
    for name in ("first", "second", "third"):
        lost_with(bench, name)
    assert [is_kept(bench, name) for name in ("first", "second", "third")] == [False, True, True]
    assert is_kept(bench, "of ann")
    assert sessions(bench) == 3


def test_none_is_kept_where_none_may_be() -> None:
    bench = ClientBench("protocols.amqp010.detached_sessions_max = 0")
    lost_with(bench, "mine")
    assert sessions(bench) == 0


def test_a_session_counts_as_a_channel_for_as_long_as_it_is_kept() -> None:
    bench = ClientBench()
    lost_with(bench, "mine", 60)
    assert bench.broker.channels_of["guest"] == 1
    bench.advance(61)
    assert "guest" not in bench.broker.channels_of


def test_nothing_is_remembered_of_sessions_that_came_and_went() -> None:
    bench = ClientBench()
    peer = Peer(bench).open()
    for n in range(200):
        peer.attach(f"s{n}", 1).detach()
        del peer.sessions[1]
    kept = bench.host.guest(Sessions)
    assert (len(kept), kept._named, kept._detached) == (0, {}, {})
    assert bench.broker.channels_of["guest"] == 0


def test_sessions_of_a_virtual_host_that_is_deleted_end_in_their_time() -> None:
    bench = ClientBench(TWO_HOSTS)
    host = bench.broker.virtual_hosts["blue"]
    peer = Peer(bench).open(virtual_host="blue")
    session = peer.attach("mine")
    keep(session, 60)
    session.declare("q", exclusive=True, auto_delete=True)
    session.publish("q", b"x")
    session.subscribe("q").get()
    peer.drop()
    bench.broker.delete_virtual_host("blue")
    bench.advance(61)
    assert len(host.guest(Sessions)) == 0
    assert bench.broker.channels_of["guest"] == 0
    assert Peer(bench).open().attach("mine").attached


# Deleted users.


def anew(bench: ClientBench, name: str) -> None:
    """Delete a user, and make another one of that name."""
    bench.broker.access.delete_user(name)
    bench.user(name)
    bench.settle()


def test_a_detached_session_ends_with_its_user() -> None:
    bench = ClientBench()
    bench.user("ann")
    lost_with(bench, "mine", user="ann")
    lost_with(bench, "yours")
    anew(bench, "ann")
    assert (is_kept(bench, "mine"), is_kept(bench, "yours")) == (False, True)
    assert resumed(bench, "mine", "ann") == NEW
    assert resumed(bench, "yours") == RESUMED
    assert bench.broker.channels_of["ann"] == 1


def test_an_attached_session_of_a_deleted_user_is_nobodys_when_it_is_detached() -> None:
    bench = ClientBench()
    bench.user("ann")
    peer = Peer(bench).open("ann", "ann")
    session = peer.attach("mine")
    keep(session, 60)
    session.declare("of mine", exclusive=True, auto_delete=True)
    anew(bench, "ann")
    assert is_kept(bench, "mine")
    assert resumed(bench, "mine", "ann") == NEW  # also without force: it is another one
    session.sync()
    peer.drop()
    bench.settle()
    assert not is_kept(bench, "mine")
    assert sessions(bench) == 1


def test_a_client_whose_user_was_deleted_gets_no_session_of_the_next_user() -> None:
    bench = ClientBench()
    bench.user("ann")
    old = Peer(bench).open("ann", "ann")
    anew(bench, "ann")
    lost_with(bench, "mine", user="ann")
    session = old.sessions[1] = ClientSession(old, 1, b"mine")
    session.control(c.SessionAttach(b"mine", True))
    assert [type(what) for what in session.taken()] == NEW
    old.drop()
    bench.settle()
    assert is_kept(bench, "mine")
    assert resumed(bench, "mine", "ann") == RESUMED


def test_no_session_of_a_deleted_user_is_remembered() -> None:
    bench = ClientBench()
    bench.user("ann")
    lost_with(bench, "mine", user="ann")
    peer = Peer(bench).open("ann", "ann")
    peer.attach("other")
    bench.broker.access.delete_user("ann")
    bench.settle()
    peer.drop()
    bench.settle()
    kept = bench.host.guest(Sessions)
    assert (len(kept), kept._named, kept._detached) == (0, {}, {})
    assert bench.broker.channels_of["ann"] == 0
