"""What one connection does never harms another's sessions: of the same user, of the same name, whatever it says.

Nor do a virtual host that is deleted and a node that shuts down, whatever sessions are at just then.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Final

import pytest

from leveret.features.xa.branches import Branches
from leveret.protocols.amqp010.broker.sessions import Sessions
from leveret.protocols.amqp010.codec import commands as c
from tests.amqp091.peer import TWO_HOSTS
from tests.harness.attack import must_balance, nothing_logged
from tests.harness.bench import ClientBench

from .client import ClientSession, SessionEnded, frame, ids
from .peer import Peer

XID: Final = c.Xid(1, b"victim", b"branch")


class Victim:
    """A session with all that it can have, and a connection of its own."""

    def __init__(self, bench: ClientBench, timeout_s: int = 0, virtual_host: str = "") -> None:
        self.bench = bench
        self.host = bench.broker.virtual_hosts[virtual_host or "/"]
        self.peer = Peer(bench).open(virtual_host=virtual_host)
        self.session = session = self.peer.attach("victim")
        session.control(c.SessionRequestTimeout(timeout_s))
        session.declare("its own", exclusive=True)
        session.declare("shared", auto_delete=True)
        for number in range(3):
            session.publish("shared", b"%d" % number)
        self.inbox = session.subscribe("shared", "in", messages=2)
        self.held = [self.inbox.get().id, self.inbox.get().id]
        self.own = session.subscribe("its own", "own")
        self.sent = 0

    def must_be_served(self) -> None:
        """It goes on as if nobody else were there."""
        session = self.session
        assert not session.is_over
        self.sent += 1
        id = session.publish("its own", b"%d" % self.sent, accept_mode=c.ACCEPT_MODE_EXPLICIT, sync=True)
        session.wait(id)
        message = self.own.get()
        assert message.body == b"%d" % self.sent
        session.accept(message.id)
        queue = self.host.queues["shared"]
        assert (queue.ready, queue.unsettled) == (1, 2)
        assert self.host.queues["its own"].unsettled == 0
        assert session.next_id == self.peer.front.wire.sessions[1].execution.next_id

    def must_end_well(self) -> None:
        """It can still settle what it holds."""
        self.session.accept(*self.held)
        assert self.host.queues["shared"].unsettled == 0


class Foe:
    """The same user on another connection; it is there again whenever it has been thrown out."""

    def __init__(self, bench: ClientBench) -> None:
        self.bench = bench
        self.count = 0
        self.peer = Peer(bench).open()

    def session(self) -> ClientSession:
        if self.peer.front.closed:
            self.peer = Peer(self.bench).open()
        for session in self.peer.sessions.values():
            if session.attached and not session.is_over:
                return session
        self.count += 1
        return self.peer.attach(f"foe {self.count}", self.count)

    def send(self, command: c.Command) -> None:
        session = self.session()
        session.send(command)
        self.peer.read()

    def say(self, control: c.Control) -> None:
        session = self.session()
        session.control(control)
        self.peer.read()

    def attach(self, force: bool) -> None:
        self.session()
        with pytest.raises(SessionEnded):
            self.peer.attach(b"victim", 900, force)
        del self.peer.sessions[900]

    def steal(self, name: bytes) -> None:
        """Another session of the victim's connection, which is not what is looked at."""
        self.session()
        self.peer.attach(name, 901, True).detach()
        del self.peer.sessions[901]


FOREIGN: Final = ids((0, 1))  # the victim's deliveries have these
MISUSES: Final[dict[str, Callable[[Foe], None]]] = {
    "attach": lambda foe: foe.attach(False),
    "steal another": lambda foe: foe.steal(b"beside"),
    "detach": lambda foe: foe.say(c.SessionDetach(b"victim")),
    "detached": lambda foe: foe.say(c.SessionDetached(b"victim", c.DETACH_CODE_SESSION_BUSY)),
    "attached": lambda foe: foe.say(c.SessionAttached(b"victim")),
    "no timeout": lambda foe: foe.say(c.SessionRequestTimeout(0)),
    "gap": lambda foe: foe.say(c.SessionGap(ids((0, 50)))),
    "far gap": lambda foe: foe.say(c.SessionGap(ids((1 << 30, (1 << 31) - 1)))),
    "completed": lambda foe: foe.say(c.SessionCompleted(FOREIGN)),
    "known-completed": lambda foe: foe.say(c.SessionKnownCompleted(ids((0, 3)))),
    "confirmed": lambda foe: foe.say(c.SessionConfirmed(FOREIGN)),
    "expected": lambda foe: foe.say(c.SessionExpected(FOREIGN)),
    "command-point": lambda foe: foe.say(c.SessionCommandPoint(7, 0)),
    "accept": lambda foe: foe.send(c.MessageAccept(FOREIGN)),
    "reject": lambda foe: foe.send(c.MessageReject(FOREIGN)),
    "release": lambda foe: foe.send(c.MessageRelease(FOREIGN)),
    "acquire": lambda foe: foe.send(c.MessageAcquire(FOREIGN)),
    "cancel": lambda foe: foe.send(c.MessageCancel("in")),
    "stop": lambda foe: foe.send(c.MessageStop("own")),
    "declare what is exclusive": lambda foe: foe.send(c.QueueDeclare("its own", exclusive=True)),
    "take what is shared": lambda foe: foe.send(c.QueueDeclare("shared", exclusive=True)),
    "delete what is exclusive": lambda foe: foe.send(c.QueueDelete("its own")),
    "purge what is exclusive": lambda foe: foe.send(c.QueuePurge("its own")),
    "subscribe to what is exclusive": lambda foe: foe.send(c.MessageSubscribe("its own", "own")),
    "subscribe exclusively": lambda foe: foe.send(c.MessageSubscribe("shared", "in", exclusive=True)),
    "roll back": lambda foe: foe.send(c.TxRollback()),
    "an exception": lambda foe: foe.send(c.ExecutionException(404, 0)),
    "a result": lambda foe: foe.send(c.ExecutionResult(0, None)),
    "no frame": lambda foe: foe.peer.send_bytes(b"\xff" * 12),
    "a close": lambda foe: foe.peer.send_bytes(frame(c.ConnectionClose(200, "bye").encode())),
    "a loss": lambda foe: foe.peer.drop(),
}


@pytest.mark.parametrize("timeout_s", [0, 60], ids=["not kept", "kept"])
@pytest.mark.parametrize("first", MISUSES.values(), ids=MISUSES)
def test_what_one_connection_says_of_a_session_of_another_does_not_touch_it(
    first: Callable[[Foe], None], timeout_s: int
) -> None:
    """One misuse before and after each of the others, of one victim."""
    with nothing_logged():
        bench = ClientBench()
        victim = Victim(bench, timeout_s)
        victim.peer.attach("beside", 2)
        foe = Foe(bench)
        for then in MISUSES.values():
            for misuse in (first, then):
                misuse(foe)
                victim.must_be_served()
        must_balance(bench)
        victim.must_end_well()


def test_a_session_that_is_taken_by_force_goes_on_with_all_it_had() -> None:
    """That is what the same user may do; nothing of it is lost or settled on the way."""
    bench = ClientBench()
    victim = Victim(bench, 60)
    other = Peer(bench).open()
    session = other.sessions[5] = ClientSession(other, 5, b"victim")
    session.control(c.SessionAttach(b"victim", True))
    other.read()
    victim.peer.read()
    assert victim.session.detached is not None
    assert victim.session.detached.code == c.DETACH_CODE_SESSION_BUSY
    (kept,) = bench.host.guest(Sessions)
    assert kept is other.front.wire.sessions[5]
    assert not victim.peer.front.wire.sessions
    assert (bench.queue("shared").ready, bench.queue("shared").unsettled) == (1, 2)
    assert bench.queue("its own").owner is not None
    victim.peer.send_bytes(frame(c.MessageAccept(ids((0, 1))).encode(), 1, segment=1))
    assert bench.queue("shared").unsettled == 2, "who has lost it is heard no more"


def test_two_who_take_a_session_from_each_other_leave_one_session() -> None:
    bench = ClientBench()
    victim = Victim(bench, 60)
    peers = [victim.peer, Peer(bench).open()]
    for turn in range(1, 20):
        peer = peers[turn % 2]
        peer.sessions.pop(1, None)
        session = peer.sessions[1] = ClientSession(peer, 1, b"victim")
        session.control(c.SessionAttach(b"victim", True))
        for each in peers:
            each.read()
        assert len(bench.host.guest(Sessions)) == 1
        assert [len(each.front.wire.sessions) for each in peers] == [1 - turn % 2, turn % 2]
    assert bench.queue("shared").unsettled == 2
    assert bench.broker.channels_of["guest"] == 1


# A virtual host is deleted, and a node shuts down, whatever sessions are at.


def attached(victim: Victim) -> None:
    """As it is."""


def lost(victim: Victim) -> None:
    victim.peer.drop()


def detached(victim: Victim) -> None:
    victim.session.detach()


def in_transaction(victim: Victim) -> None:
    session = victim.session
    session.call(c.TxSelect())
    session.publish("shared", b"not yet")
    session.accept(victim.held[0])


def in_branch(victim: Victim) -> None:
    session = victim.session
    session.call(c.DtxSelect())
    session.call(c.DtxStart(XID))
    session.publish("shared", b"not yet")
    session.accept(victim.held[0])


def suspended(victim: Victim) -> None:
    in_branch(victim)
    victim.session.call(c.DtxEnd(XID, suspend=True))


def prepared(victim: Victim) -> None:
    in_branch(victim)
    victim.session.call(c.DtxEnd(XID))
    victim.session.call(c.DtxPrepare(XID))


def lost_in_branch(victim: Victim) -> None:
    in_branch(victim)
    victim.peer.drop()


def lost_in_transaction(victim: Victim) -> None:
    in_transaction(victim)
    victim.peer.drop()


def failed(victim: Victim) -> None:
    victim.session.answers = False
    victim.session.send(c.QueuePurge("missing"))
    victim.peer.read()


def in_half_a_transfer(victim: Victim) -> None:
    victim.peer.send_bytes(frame(c.MessageTransfer("").encode(), 1, 0x0B, segment=1))


def resuming(victim: Victim) -> None:
    """Attached again, and it has not said what it expects."""
    victim.peer.drop()
    peer = victim.peer = Peer(victim.bench).open(virtual_host=victim.host.name)
    session = peer.sessions[1] = ClientSession(peer, 1, b"victim")
    session.control(c.SessionAttach(b"victim"))


def browsing(victim: Victim) -> None:
    victim.session.subscribe("shared", "look", acquire_mode=c.ACQUIRE_MODE_NOT_ACQUIRED)


SITUATIONS: Final = (
    attached,
    lost,
    detached,
    in_transaction,
    in_branch,
    suspended,
    prepared,
    lost_in_branch,
    lost_in_transaction,
    failed,
    in_half_a_transfer,
    resuming,
    browsing,
)
CASES: Final = [
    pytest.param(situation, timeout_s, id=f"{situation.__name__}, {'kept' if timeout_s else 'not kept'}")
    for situation, timeout_s in product(SITUATIONS, (0, 60))
]


def send_away(bench: ClientBench, name: str) -> None:
    """As the node does before it deletes a virtual host."""
    for peer in bench.peers:
        client = getattr(peer.front, "client", None)
        if client is not None and client in bench.broker.clients and client.host.name == name:
            peer.front.shut_down("vhost is deleted")
    bench.settle()


@pytest.mark.parametrize("sends_away", [True, False], ids=["sent away", "still there"])
@pytest.mark.parametrize(("situation", "timeout_s"), CASES)
def test_a_virtual_host_that_is_deleted_takes_its_sessions_with_it(
    situation: Callable[[Victim], None], timeout_s: int, sends_away: bool
) -> None:
    with nothing_logged():
        bench = ClientBench(TWO_HOSTS)
        neighbour = Victim(bench)
        victim = Victim(bench, timeout_s, "blue")
        situation(victim)
        if sends_away:
            send_away(bench, "blue")
        bench.broker.delete_virtual_host("blue")
        bench.settle()
        neighbour.must_be_served()
        bench.advance(30)
        victim.peer.drop()
        bench.advance(61)
        neighbour.must_be_served()
        must_balance(bench)
        assert len(victim.host.guest(Sessions)) == 0
        assert len(victim.host.guest(Branches)) == 0
        assert bench.broker.channels_of["guest"] == 1
        assert list(bench.broker.clients) == [neighbour.peer.front.client]


@pytest.mark.parametrize(("situation", "timeout_s"), CASES)
def test_a_virtual_host_of_the_same_name_begins_without_the_sessions_of_the_old_one(
    situation: Callable[[Victim], None], timeout_s: int
) -> None:
    with nothing_logged():
        bench = ClientBench(TWO_HOSTS)
        victim = Victim(bench, timeout_s, "blue")
        situation(victim)
        send_away(bench, "blue")
        bench.broker.delete_virtual_host("blue")
        bench.broker.add_virtual_host("blue")
        bench.broker.access.set_permissions("guest", "blue", ".*", ".*", ".*")
        again = Victim(bench, timeout_s, "blue")
        bench.advance(30)
        victim.peer.drop()
        bench.advance(61)
        again.must_be_served()
        again.must_end_well()


@pytest.mark.parametrize(("situation", "timeout_s"), CASES)
def test_a_node_that_shuts_down_gives_back_what_its_sessions_have(
    situation: Callable[[Victim], None], timeout_s: int
) -> None:
    with nothing_logged():
        bench = ClientBench()
        victim = Victim(bench, timeout_s)
        situation(victim)
        for peer in bench.peers:
            peer.front.shut_down("the node is shutting down")
        bench.settle()
        for peer in bench.peers:
            peer.read()
            assert peer.front.closed or peer.closed is not None
            peer.drop()
        must_balance(bench)
        bench.advance(61)
        must_balance(bench)
        assert not bench.broker.clients
        assert len(bench.host.guest(Sessions)) == 0
        is_prepared = situation is prepared
        assert len(bench.host.guest(Branches)) in ((1,) if is_prepared else (0, 1))
        shared = bench.host.queues.get("shared")
        assert shared is None or shared.unsettled == (1 if is_prepared else 0)
