"""The states of an attacker over 0-10, what must hold after an attack, and the words of a good client to mutate."""

from __future__ import annotations

from collections.abc import Callable
from struct import unpack_from
from typing import Final

from leveret.features.xa.branches import Branches
from leveret.protocols.amqp010.broker.sessions import Sessions
from leveret.protocols.amqp010.codec import commands as c
from leveret.protocols.amqp010.codec.frames import append_frames
from leveret.protocols.amqp010.codec.sequences import SequenceSet
from tests.harness.attack import SMALL, Attack, Neighbour, Recording, must_balance, split
from tests.harness.bench import ClientBench

from .client import HEADER, ClientSession, frame, ids
from .peer import Peer

TRANSFER: Final = c.MessageTransfer("", c.ACCEPT_MODE_NONE, c.ACQUIRE_MODE_PRE_ACQUIRED).encode()
PROPERTIES: Final = c.DeliveryProperties(routing_key="q").encode()


# States.


def started(bench: ClientBench) -> Peer:
    peer = Peer(bench)
    peer.greet()
    return peer


def authenticated(bench: ClientBench) -> Peer:
    peer = Peer(bench)
    peer.log_in()
    return peer


def tuned(bench: ClientBench) -> Peer:
    peer = authenticated(bench)
    peer.control(c.ConnectionTuneOk(heartbeat=30))
    return peer


def opened(bench: ClientBench) -> Peer:
    return Peer(bench).open()


def attached(bench: ClientBench) -> Peer:
    """There is a session, and it has not been said where its ids begin."""
    peer = opened(bench)
    session = peer.sessions[1] = ClientSession(peer, 1, b"attacker")
    session.control(c.SessionAttach(b"attacker"))
    return peer


def session_of(bench: ClientBench) -> tuple[Peer, ClientSession]:
    peer = opened(bench)
    session = peer.attach("attacker")
    session.declare("q")
    return peer, session


def with_session(bench: ClientBench) -> Peer:
    return session_of(bench)[0]


def transferring(bench: ClientBench) -> Peer:
    """A transfer has begun, and its header has not come."""
    peer = with_session(bench)
    peer.send_bytes(frame(TRANSFER, 1, 0x0B, segment=1))
    return peer


def body_begun(bench: ClientBench) -> Peer:
    peer = transferring(bench)
    peer.send_bytes(frame(PROPERTIES, 1, 0x03, segment=2) + frame(b"x" * 400, 1, 0x06, segment=3))
    return peer


def receiving(bench: ClientBench) -> Peer:
    """Three transfers are out, one of them completed, the credit is used up, more wait."""
    peer, session = session_of(bench)
    for number in range(5):
        session.publish("q", str(number).encode())
    inbox = session.subscribe("q", "d", messages=3)
    session.complete(inbox.get().id)
    return peer


def in_transaction(bench: ClientBench) -> Peer:
    """One message is published and one of three is accepted, neither for good."""
    peer = receiving(bench)
    session = peer.sessions[1]
    session.send(c.TxSelect())
    session.publish("q", b"in the transaction")
    session.send(c.MessageAccept(ids(0)))
    return peer


def in_branch(bench: ClientBench) -> Peer:
    peer = receiving(bench)
    session = peer.sessions[1]
    session.send(c.DtxSelect())
    session.send(c.DtxStart(c.Xid(1, b"g", b"b")))
    session.publish("q", b"in the branch")
    return peer


def kept(bench: ClientBench) -> Peer:
    """The session will be kept, and replayed to."""
    peer = receiving(bench)
    peer.sessions[1].control(c.SessionRequestTimeout(50))
    return peer


def in_half_a_frame(bench: ClientBench) -> Peer:
    peer = with_session(bench)
    peer.send_bytes(frame(c.QueueDeclare("half").encode(), 1, segment=1)[:-3])
    return peer


def session_failed(bench: ClientBench) -> Peer:
    """The broker has ended the session and waits for detached."""
    peer, session = session_of(bench)
    session.answers = False
    session.send(c.MessageSubscribe("missing", "d"))
    return peer


def connection_failed(bench: ClientBench) -> Peer:
    """The broker has closed the connection and waits for close-ok."""
    peer = with_session(bench)
    peer.answers = False
    peer.control(c.ConnectionOpen(""))
    return peer


def ended(bench: ClientBench) -> Peer:
    peer = with_session(bench)
    peer.close()
    return peer


STATES: Final[dict[str, Callable[[ClientBench], Peer]]] = {
    "before the header": Peer,
    "starting": started,
    "tuning": authenticated,
    "opening": tuned,
    "open": opened,
    "attached": attached,
    "a session": with_session,
    "transferring": transferring,
    "body begun": body_begun,
    "receiving": receiving,
    "in a transaction": in_transaction,
    "in a branch": in_branch,
    "a session that is kept": kept,
    "in half a frame": in_half_a_frame,
    "session failed": session_failed,
    "connection failed": connection_failed,
    "ended": ended,
}


# The attack and what must hold after it.


class Neighbour010(Neighbour):
    """Its messages are accepted."""

    def enter(self, bench: ClientBench) -> None:
        self.peer = Peer(bench).open()
        self.session = self.peer.attach("neighbour")
        self.session.declare("neighbour", exclusive=True)
        self.inbox = self.session.subscribe("neighbour")

    def publish(self, body: bytes) -> None:
        id = self.session.publish("neighbour", body, accept_mode=c.ACCEPT_MODE_EXPLICIT, sync=True)
        self.session.wait(id)
        message = self.inbox.get()
        assert message.body == body
        self.session.accept(message.id)
        accepted = self.session.taken(c.MessageAccept)
        assert [accept.transfers for accept in accepted] == [ids(id)]


def must_be_protocol(attacker: Peer) -> None:
    """What came back can be read by a client, who knows its codes; nothing comes after the end."""
    was_closed = attacker.front.closed
    attacker.read()
    assert attacker._buffer == b"" or attacker.header != HEADER
    for _, what in attacker.heard:
        if isinstance(what, c.ConnectionClose):
            assert what.reply_code in (320, 402, 501)
        elif isinstance(what, c.ExecutionException):
            assert what.error_code != c.ERROR_CODE_INTERNAL_ERROR
            assert what.description
    attacker.heard.clear()
    if was_closed:
        attacker.send_bytes(frame(c.ConnectionHeartbeat().encode()) * 3)
        assert attacker.take_bytes() == b""


def must_be_bounded(attacker: Peer) -> None:
    """What is kept of frames that have not ended is no more than one frame may have."""
    assert attacker.front.wire._tail_size <= 65535 + 12 or attacker.front.closed
    assert len(attacker.front.wire.sessions) <= attacker.front.wire.tuning.session_max


def must_have_gone(bench: ClientBench, neighbour: Neighbour010) -> None:
    """The attacker has gone, and holds nothing; but what it prepared is for somebody else to decide."""
    assert list(bench.host.guest(Sessions)) == [neighbour.peer.front.wire.sessions[1]]
    assert bench.broker.channels_of["guest"] == 1
    prepared = sum(branch.state.name == "PREPARED" for branch in bench.host.guest(Branches).all())
    for queue in bench.host.queues.values():
        assert queue.unsettled == 0 or prepared
        assert queue.name == "neighbour" or not queue.consumers


attack: Final = Attack(SMALL, Neighbour010, must_be_protocol, must_be_bounded, must_balance, must_have_gone)


# A good client's words.


class Recorded(Recording, Peer):
    """A client that remembers what it said."""


def transcript() -> tuple[bytes, ...]:
    """A long connection in frames: a bit of everything that a client can say."""
    peer = Recorded(ClientBench(SMALL))
    peer.open(frame_max=4096, heartbeat=60)
    declare_things(peer.attach("declaring", 1))
    publish_things(peer.attach("publishing", 2))
    receive_things(peer.attach("receiving", 3))
    transact_things(peer.attach("transacting", 4))
    say_controls(peer.attach("talking", 5))
    peer.control(c.ConnectionHeartbeat())
    peer.sessions[1].detach()
    peer.close()
    assert not [what for _, what in peer.heard if isinstance(what, c.ExecutionException | c.ConnectionClose)]
    return split(peer.said, size_at)


def declare_things(session: ClientSession) -> None:
    session.exchange("x", "topic", alternate_exchange="amq.fanout")
    session.exchange("y", "headers", auto_delete=True)
    session.declare("q", {"qpid.max_count": 9, "qpid.policy_type": "ring", "qpid.priorities": 3})
    session.declare("lvq", {"qpid.last_value_queue_key": "k"})
    session.declare("mine", exclusive=True, auto_delete=True, alternate_exchange="x")
    session.bind("q", "x", "a.*")
    session.bind("mine", "y", "", {"x-match": "all", "t": "x", "l": [1, {"k": None}]})
    for command in (
        c.ExchangeQuery("x"),
        c.ExchangeBound("x", "q", "a.*", {}),
        c.QueueQuery("q"),
        c.ExchangeUnbind("q", "x", "a.*"),
        c.QueuePurge("q"),
        c.QueueDelete("lvq", if_empty=True),
        c.ExchangeDelete("y"),
    ):
        session.call(command)


def publish_things(session: ClientSession) -> None:
    properties = c.MessageProperties(
        content_length=3,
        correlation_id=b"c",
        reply_to=c.ReplyTo("amq.direct", "q"),
        content_type="text/plain",
        user_id=b"guest",
        app_id=b"app",
        application_headers={"n": 1, "deep": {"list": [True, 2.5, b"\xff", None]}},
    )
    delivery = c.DeliveryProperties(False, False, False, 7, 2, 60_000, None, None, "", "q")
    for _ in range(3):
        session.publish("q", b"abc", properties=properties, delivery=delivery)
    session.publish("q", b"x" * 9000, accept_mode=c.ACCEPT_MODE_EXPLICIT)
    session.publish("", b"gone", exchange="amq.fanout", accept_mode=c.ACCEPT_MODE_EXPLICIT, sync=True)
    session.sync()


def receive_things(session: ClientSession) -> None:
    inbox = session.subscribe("q", "d", messages=2)
    first, second = inbox.get(), inbox.get()
    session.accept(first.id)
    session.complete(first.id)
    session.release(second.id, redelivered=True)
    session.call(c.MessageFlush("d"))
    session.call(c.MessageStop("d"))
    browser = session.subscribe("q", "b", acquire_mode=c.ACQUIRE_MODE_NOT_ACQUIRED)
    session.acquire(*(message.id for message in browser.all()))
    session.reject([], text="nothing")
    session.complete()
    session.call(c.MessageCancel("b"))
    session.call(c.MessageSetFlowMode("d", c.FLOW_MODE_CREDIT))


def transact_things(session: ClientSession) -> None:
    session.call(c.TxSelect())
    session.publish("q", b"one")
    session.call(c.TxCommit())
    session.publish("q", b"two")
    session.call(c.TxRollback())


def say_controls(session: ClientSession) -> None:
    for control in (
        c.SessionRequestTimeout(30),
        c.SessionFlush(True, True, True),
        c.SessionConfirmed(SequenceSet()),
        c.SessionGap(ids((0, 1))),
    ):
        session.control(control)
    session.next_id = 2
    session.sync()
    session.control(c.SessionKnownCompleted(ids((0, 2))))


def size_at(octets: bytes, at: int) -> int:
    return unpack_from(">H", octets, at + 2)[0]


def command(
    of: c.Command, header: bytes | None = None, body: bytes | None = None, channel: int = 1, sync: bool = True
) -> bytes:
    """A command in frames, whether or not it may have a header and a body."""
    pieces: list[bytes] = []
    append_frames(pieces, channel, of.encode(sync), header, body, 65535)
    return b"".join(pieces)
