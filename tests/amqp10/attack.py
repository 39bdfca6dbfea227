"""The states of an attacker over 1.0, and what must hold after an attack."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from struct import unpack_from
from typing import Final

from leveret.protocols.amqp10.codec import performatives as p
from leveret.protocols.amqp10.codec.types import Described, Symbol
from leveret.protocols.amqp10.machine.contract import FRAME_SIZE_MIN
from leveret.protocols.amqp10.machine.incoming_link import IncomingLink
from tests.harness.attack import SMALL, Attack, Neighbour, must_balance, queues_of
from tests.harness.bench import ClientBench

from .client import SETTLED, Session
from .controller import Control, in_tx
from .parts import AMQP, SASL, data, frame
from .peer import HEADER, SASL_HEADER, SECOND, Peer, session_of

SETTINGS: Final = f"""{SMALL}protocols.amqp10.frame_max = "4KiB"
protocols.amqp10.initial_frame_max = "4KiB"
protocols.amqp10.addresses.v1 = true
"""
FRAME_MAX: Final = 4096
CONDITIONS: Final = frozenset(
    value for name, value in vars(p).items() if name.isupper() and str(value).startswith("amqp:")
) - {p.INTERNAL_ERROR}
WAITING: Final = 5  # messages, for a receiver


# States.


def greeted(bench: ClientBench) -> Peer:
    peer = Peer(bench)
    peer.greet()
    return peer


def logged_in(bench: ClientBench) -> Peer:
    return Peer(bench).log_in()


def header_sent(bench: ClientBench) -> Peer:
    peer = logged_in(bench)
    peer.send_bytes(HEADER)
    return peer


def opened(bench: ClientBench) -> Peer:
    return Peer(bench).open(max_frame_size=FRAME_SIZE_MIN)


def begun(bench: ClientBench) -> Peer:
    opened_ = opened(bench)
    opened_.begin(0)
    return opened_


def with_queue(bench: ClientBench) -> Session:
    """A session on channel 0, and messages in the queue `q`."""
    bench.host.declare_queue("q")
    filler = session_of(bench)
    sender = filler.sender("/queues/q")
    for number in range(WAITING):
        sender.publish(data(str(number).encode()))
    filler.peer.drop()
    return opened(bench).begin(0)


def sending(bench: ClientBench) -> Peer:
    """Handle 0 sends to a queue, handle 1 where each message says."""
    session = with_queue(bench)
    session.sender("/queues/q").publish(data(b"hello"))
    session.sender(None)
    return session.peer


def half_a_message(bench: ClientBench) -> Peer:
    """The transfer says that there is more."""
    peer = sending(bench)
    peer.send(0, p.Transfer(handle=0, delivery_id=50, delivery_tag=b"half", more=True), data(b"x" * 50)[:20])
    return peer


def settling_second(bench: ClientBench) -> Peer:
    """The broker has told an outcome and waits for the sender to settle."""
    session = with_queue(bench)
    sender = session.sender(p.Target(address="/queues/q", timeout=5), rcv_settle_mode=SECOND)
    number = sender.send(data(b"hello"))
    assert sender.outcome(number) == p.Accepted()
    return session.peer


def receiving(bench: ClientBench) -> Peer:
    """Three deliveries are out, the credit is used up, more wait."""
    session = with_queue(bench)
    session.receiver("/queues/q", credit=3)
    return session.peer


def browsing(bench: ClientBench) -> Peer:
    """One receiver copies, another selects."""
    session = with_queue(bench)
    session.receiver(p.Source(address="/queues/q", distribution_mode="copy"), credit=100)
    wanted = Described(Symbol("apache.org:selector-filter:string"), "n > 3 AND colour LIKE 'r%'")
    session.receiver(p.Source(address="/queues/q", filter={"selector": wanted}), credit=2)
    return session.peer


def in_transaction(bench: ClientBench) -> Peer:
    """One message is published and one of three is accepted, neither for good."""
    peer = receiving(bench)
    session = peer.sessions[0]
    control = Control(session)
    tx = control.declare()
    sender = session.sender("/queues/q")
    sender.publish(data(b"in the transaction"), state=in_tx(tx))
    session.dispose(in_tx(tx, p.Accepted()), 0)
    return peer


def managing(bench: ClientBench) -> Peer:
    """Both links of a pair, with credit for answers."""
    session = with_queue(bench)
    node, mode, paired = "/management", SETTLED, {"paired": True}
    session.sender(
        p.Target(address=node), "pair", source=p.Source(address=node), snd_settle_mode=mode, properties=paired
    )
    session.receiver(
        p.Source(address=node),
        name="pair",
        target=p.Target(address=node),
        snd_settle_mode=mode,
        properties=paired,
        credit=5,
    )
    return session.peer


def subscribed(bench: ClientBench) -> Peer:
    """A durable subscription."""
    session = with_queue(bench)
    source = p.Source(address="/exchanges/amq.topic/a.%23", durable=2, expiry_policy=Symbol("never"))
    session.receiver(source, name="news", credit=3)
    session.sender("/exchanges/amq.topic/a.b").publish(data(b"news"))
    return session.peer


def in_half_a_frame(bench: ClientBench) -> Peer:
    peer = begun(bench)
    peer.send_bytes(frame(0, p.Attach(name="link", handle=0, role=False, initial_delivery_count=0))[:-5])
    return peer


def link_refused(bench: ClientBench) -> Peer:
    """The broker has detached handle 0 and waits for the same."""
    peer = begun(bench)
    peer.sessions[0].ask_sender("/queues/missing")
    return peer


def session_failed(bench: ClientBench) -> Peer:
    """The broker has ended the session and waits for the same."""
    peer = begun(bench)
    peer.send(0, p.Detach(handle=99, closed=True))
    return peer


def connection_failed(bench: ClientBench) -> Peer:
    """The broker has closed the connection and waits for the same."""
    peer = opened(bench)
    peer.send(65_000, p.Begin(next_outgoing_id=0, incoming_window=1, outgoing_window=1))
    return peer


def ended(bench: ClientBench) -> Peer:
    peer = opened(bench)
    peer.close()
    return peer


STATES: Final[dict[str, Callable[[ClientBench], Peer]]] = {
    "before the header": Peer,
    "logging in": greeted,
    "logged in": logged_in,
    "opening": header_sent,
    "open": opened,
    "a session": begun,
    "sending": sending,
    "half a message": half_a_message,
    "settling second": settling_second,
    "receiving": receiving,
    "browsing": browsing,
    "in a transaction": in_transaction,
    "managing": managing,
    "subscribed": subscribed,
    "in half a frame": in_half_a_frame,
    "link refused": link_refused,
    "session failed": session_failed,
    "connection failed": connection_failed,
    "ended": ended,
}


# The attack and what must hold after it.


class Neighbour10(Neighbour):
    """It publishes to a dynamic node of its own."""

    def enter(self, bench: ClientBench) -> None:
        bench.user("neighbour")
        self.peer = Peer(bench).open("neighbour", idle_time_out=None)
        session = self.peer.begin()
        self.receiver = session.receiver(
            p.Source(dynamic=True, capabilities=(Symbol("temporary-queue"),)), credit=1000
        )
        self.sender = session.sender(self.receiver.attached.source.address)
        (self.queue,) = bench.host.queues

    def publish(self, body: bytes) -> None:
        assert self.sender.publish(data(body)) == p.Accepted()
        assert self.receiver.bodies() == [body]
        self.receiver.accept()
        self.peer.taken()


def must_have_gone(bench: ClientBench, neighbour: Neighbour10) -> None:
    """Nothing is left of the attacker but what it published, declared and subscribed to."""
    for queue in queues_of(bench):
        assert queue.unsettled == 0
        assert len(queue.consumers) == (queue.name == neighbour.queue)


def must_be_protocol(attacker: Peer) -> None:
    """What came back are frames for clients, with known conditions; nothing after the end."""
    was_closed = attacker.front.closed
    for kind, channel, body in frames_of(everything_sent(attacker)):
        if body:
            performative, _ = p.decode(body, 0, len(body))
            assert isinstance(performative, SASL_SAID if kind == SASL else AMQP_SAID)
            assert channel <= CHANNEL_MAX or isinstance(performative, p.Close)
            error = getattr(performative, "error", None) or getattr(
                getattr(performative, "state", None), "error", None
            )
            assert error is None or error.condition in CONDITIONS
    if was_closed:
        attacker.front.receive(frame(0, p.Close()) * 3, attacker.bench.broker.tick())
        assert attacker.take_bytes() == b""


SASL_SAID: Final = (p.SaslMechanisms, p.SaslChallenge, p.SaslOutcome)
AMQP_SAID: Final = (
    *(p.Open, p.Begin, p.Attach, p.Flow, p.Transfer),
    *(p.Disposition, p.Detach, p.End, p.Close),
)
CHANNEL_MAX: Final = 63


def everything_sent(attacker: Peer) -> bytes:
    """All that the broker has to say, as far as it takes to read it."""
    sent = b""
    while octets := attacker.take_bytes():
        sent += octets
        attacker.bench.settle()
        if attacker.front.halted:
            attacker.send_bytes(b"")
    return sent


def frames_of(sent: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Type, channel and body of each frame; protocol headers are passed over."""
    at = 0
    while at < len(sent):
        if sent.startswith(b"AMQP", at):
            assert sent[at : at + 8] in (HEADER, SASL_HEADER)
            at += 8
            continue
        size, offset, kind, channel = unpack_from(">IBBH", sent, at)
        assert (offset, kind in (AMQP, SASL)) == (2, True)
        assert 8 <= size <= max(FRAME_MAX, FRAME_SIZE_MIN)
        yield kind, channel, sent[at + 8 : at + size]
        at += size
    assert at == len(sent)


def must_be_bounded(attacker: Peer) -> None:
    """What is kept of unfinished frames and messages, and how many sessions and links there are."""
    machine = attacker.front.wire
    tuning = machine.tuning
    assert machine._tail_size <= tuning.frame_size_max
    assert machine.unfinished.size <= machine.unfinished.size_max
    assert len(machine.sessions) + len(machine._ending) <= tuning.channel_max + 1
    unfinished = 0
    for session in machine.sessions.values():
        assert len(session.links) + len(session.detaching) <= tuning.handle_max + 1
        assert len(session._answers.accepted) <= tuning.incoming_window
        unsettled = 0
        for link in session.links.values():
            if isinstance(link, IncomingLink):
                assert link.unanswered <= tuning.link_credit
                unfinished += 0 if link._unfinished is None else len(link._unfinished.body)
            else:
                unsettled += len(link.unsettled)
        assert len(session.sending.unsettled) == unsettled
    assert machine.unfinished.size == unfinished


attack: Final = Attack(
    SETTINGS + "protocols.amqp10.idle_timeout_s = 0\n",
    Neighbour10,
    must_be_protocol,
    must_be_bounded,
    must_balance,
    must_have_gone,
)
