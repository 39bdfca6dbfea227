"""What operators are told of 1.0: connections, sessions and links, from what the machines know."""

from __future__ import annotations

from leveret.observability.connection_stats import ChannelFacts, ConsumerFacts
from leveret.protocols.amqp10.codec import performatives as p
from tests.harness.bench import ClientBench

from .client import SETTLED, Session
from .parts import data
from .peer import Peer, declared, session_of


def told(session: Session) -> ChannelFacts:
    (facts,) = session.peer.front.channel_facts()
    return facts


def session_with_queue() -> Session:
    bench = declared(ClientBench(), ["q"])
    return session_of(bench)


def test_a_connection_is_told_once_it_is_open_and_until_it_ends() -> None:
    peer = Peer().log_in()
    assert peer.front.facts() is None
    peer = Peer().open()
    facts = peer.front.facts()
    assert facts is not None
    assert (facts.protocol, facts.user, facts.virtual_host, facts.mechanism) == (
        "AMQP 1.0",
        "guest",
        "/",
        "PLAIN",
    )
    assert (facts.channels, facts.client_properties["connection_name"]) == (0, peer.front.container)
    peer.begin()
    assert peer.front.facts().channels == 1
    peer.close()
    assert peer.front.facts() is None


def test_what_comes_is_counted_over_all_links() -> None:
    session = session_with_queue()
    first = session.sender("/queues/q")
    for _ in range(3):
        first.publish(data(b"hello"))
    first.detach()
    settled = session.sender("/queues/q", snd_settle_mode=SETTLED)
    for _ in range(2):
        settled.send(data(b"hello"))
    facts = told(session)
    assert (facts.published, facts.confirmed, facts.unconfirmed, facts.confirming) == (5, 3, 0, True)
    assert session.peer.bench.broker.confirmed == 3


def test_credit_that_a_sender_passes_over_is_no_message() -> None:
    session = session_with_queue()
    sender = session.sender("/queues/q")
    sender.publish(data(b"hello"))
    session.send(
        p.Flow(
            next_incoming_id=0,
            incoming_window=100,
            next_outgoing_id=1,
            outgoing_window=100,
            handle=sender.handle,
            delivery_count=50,
        )
    )
    assert told(session).published == 1


def test_what_finds_no_queue_is_returned() -> None:
    session = session_with_queue()
    sender = session.sender("/exchanges/amq.direct/nobody")
    assert sender.publish(data(b"hello")) == p.Released()
    assert told(session).returned == 1
    assert session.peer.bench.broker.returned == 1


def test_deliveries_and_what_is_accepted_of_them_are_counted() -> None:
    session = session_with_queue()
    sender = session.sender("/queues/q")
    for _ in range(6):
        sender.publish(data(b"hello"))
    receiver = session.receiver("/queues/q", credit=4)
    assert len([receiver.get() for _ in range(4)]) == 4
    for number, outcome in enumerate((p.Accepted(), p.Released(), p.Accepted())):
        session.dispose(outcome, number)
    facts = told(session)
    assert (facts.delivered, facts.delivered_settled, facts.consumers) == (4, 0, 1)
    assert (facts.accepted, facts.unsettled) == (2, 1)
    session.receiver("/queues/q", credit=2, snd_settle_mode=SETTLED)
    assert told(session).delivered_settled == 2


def test_a_link_tells_where_it_is() -> None:
    session = session_with_queue()
    session.receiver("/queues/q", name="reader")
    (consumer,) = session.peer.bench.queue("q").consumers
    where = "127.0.0.1:40000 -> 127.0.0.1:5672"
    assert consumer.facts() == ConsumerFacts(tag="reader", connection=where, channel=session.channel)
