"""Bounds on the bytes that subscriptions have without accepting, which the node sets for clients with much credit."""

from __future__ import annotations

from leveret.protocols.amqp010.codec import commands as c
from leveret.queues.consumer_bounds import UNANSWERED, ConsumerBounds
from leveret.server.node.assembly import _node_limits
from tests.harness.bench import ClientBench

from .client import ClientSession
from .peer import Peer, session_of

EACH = '[limits]\nunacknowledged_max = "1KiB"\n'
ALL = '[limits]\nunacknowledged_per_connection_max = "1KiB"\n'
SIZE = 400  # of messages: two fit


def filled(toml: str, messages: int = 10) -> ClientSession:
    return filled_bench(toml, messages)[1]


def filled_bench(toml: str, messages: int = 10) -> tuple[ClientBench, ClientSession]:
    bench = ClientBench(toml)
    bench.broker.node_limits = _node_limits(bench.config)
    session = session_of(bench)
    session.declare("q")
    for _ in range(messages):
        session.publish("q", bytes(SIZE))
    session.sync()
    return bench, session


def test_credit_is_the_only_bound_by_default() -> None:
    assert len(filled("").subscribe("q").all()) == 10


def test_a_subscription_gets_no_more_than_the_bytes_it_may_have_unanswered() -> None:
    session = filled(EACH)
    first, second = session.subscribe("q", "a"), session.subscribe("q", "b")
    had = first.all()
    assert (len(had), len(second.all())) == (2, 2)
    session.accept(had[0].id)
    assert len(first.all()) == 1
    session.release(had[1].id)
    assert len(first.all()) == 1


def test_credit_in_bytes_holds_as_well() -> None:
    session = filled(EACH)
    inbox = session.subscribe("q", messages=None)
    session.flow("q", 100, 500)
    assert len(inbox.all()) == 1
    session.flow("q", 0, 10_000)
    assert len(inbox.all()) == 1


def test_transfers_that_need_no_accept_and_shown_ones_are_not_bounded() -> None:
    session = filled(EACH)
    shown = session.subscribe("q", "a", acquire_mode=c.ACQUIRE_MODE_NOT_ACQUIRED)
    assert len(shown.all()) == 10
    assert len(session.subscribe("q", "b", accept_mode=c.ACCEPT_MODE_NONE).all()) == 10


def test_subscriptions_of_a_connection_share_its_bound_over_sessions() -> None:
    session = filled(ALL)
    other = session.client.attach("other")
    inbox, behind = other.subscribe("q"), session.subscribe("q")
    had = inbox.all()
    assert (len(had), len(behind.all())) == (2, 0)
    assert len(Peer(session.client.bench).open().attach("elsewhere").subscribe("q").all()) == 2
    other.call(c.MessageCancel("q"))
    assert behind.all() == []
    other.accept(*(each.id for each in had))
    assert len(behind.all()) == 2


def test_a_flush_ends_where_the_bound_is_in_the_way() -> None:
    session = filled(EACH)
    inbox = session.subscribe("q", messages=None)
    session.flow("q", 100)
    session.call(c.MessageFlush("q"))
    assert len(inbox.all()) == 2


def test_memory_that_is_short_holds_back_a_subscription_whatever_its_credit_is() -> None:
    bench, session = filled_bench("")
    inbox = session.subscribe("q")
    had = inbox.all()
    ConsumerBounds().look([bench.host.queues["q"]], 5 * (UNANSWERED + SIZE), 0.0)
    session.publish("q", bytes(SIZE))
    session.sync()
    assert (len(had), len(inbox.all())) == (10, 0)
    for delivery in had[:7]:
        session.accept(delivery.id)
    assert len(inbox.all()) == 1
