"""What operators are told of 0-10: connections, sessions and subscriptions, from what the machines know."""

from __future__ import annotations

from leveret.observability.connection_stats import ChannelFacts
from leveret.protocols.amqp010.broker.stats import PROPERTIES_MAX, TEXT_MAX, few_of
from leveret.protocols.amqp010.codec import commands as c
from tests.harness.bench import ClientBench

from .client import ClientSession
from .peer import Peer, session_of


def told(session: ClientSession) -> ChannelFacts:
    (facts,) = session.client.front.channel_facts()
    return facts


def session_with_queue() -> ClientSession:
    session = session_of(ClientBench())
    session.declare("q")
    return session


def test_a_connection_is_told_with_its_sessions_until_it_ends() -> None:
    peer = Peer()
    assert peer.front.facts() is None
    session = session_of(ClientBench())
    front = session.client.front
    facts = front.facts()
    assert facts is not None
    assert (facts.protocol, facts.user, facts.virtual_host, facts.channels) == ("AMQP 0-10", "guest", "/", 1)
    assert facts.mechanism == "PLAIN"
    session.client.drop()
    assert front.facts() is None


def test_transfers_are_counted_as_they_come_and_as_they_complete() -> None:
    session = session_with_queue()
    for _ in range(3):
        session.publish("q", b"hello")
    session.sync()
    facts = told(session)
    assert (facts.published, facts.confirmed, facts.unconfirmed) == (3, 3, 0)


def test_deliveries_and_what_is_accepted_of_them_are_counted() -> None:
    session = session_with_queue()
    for _ in range(6):
        session.publish("q", b"hello")
    inbox = session.subscribe("q", messages=4)
    session.sync()
    got = inbox.all()
    session.accept(got[0].id, got[1].id)
    session.release(got[2].id)
    facts = told(session)
    assert (facts.accepted, facts.consumers) == (2, 1)
    assert (facts.delivered, facts.unsettled) == (4, 1)
    session.subscribe("q", "unanswered", accept_mode=c.ACCEPT_MODE_NONE)
    session.sync()
    assert told(session).delivered_settled == 3


def test_a_subscription_tells_where_it_is_as_long_as_it_is_anywhere() -> None:
    session = session_with_queue()
    session.subscribe("q", "here")
    (consumer,) = session.client.bench.queue("q").consumers
    facts = consumer.facts()
    assert (facts.tag, facts.connection, facts.channel) == (
        "here",
        "127.0.0.1:40000 -> 127.0.0.1:5672",
        told(session).number,
    )


def test_of_what_a_client_says_of_itself_little_is_kept() -> None:
    said = {
        "product": "test",
        "long": "x" * 10_000,
        "list": ["x"],
        **{f"n{number}": number for number in range(100)},
    }
    kept = few_of(said)
    assert kept["product"] == "test"
    assert "long" not in kept
    assert "list" not in kept
    assert len(kept) <= PROPERTIES_MAX
    assert few_of({"x" * (TEXT_MAX + 1): 1}) == {}
