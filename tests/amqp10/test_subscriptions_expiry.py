"""How long subscriptions wait for their subscribers, and subscriptions that several links share."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain

import pytest

from leveret.protocols.amqp10.broker.termini import SWEEP_FROM, Terminus, termini_of
from leveret.protocols.amqp10.codec.types import Symbol
from tests.amqp10.client import Receiver, Session
from tests.amqp10.peer import Peer
from tests.amqp10.subscribing import (
    ADDRESS,
    CONNECTION,
    LINK,
    PATIENT,
    SESSION,
    ask_for,
    publish,
    receiver,
    selector,
    session_named,
    source,
    subscribed,
)
from tests.harness.bench import ClientBench


@pytest.fixture
def bench() -> ClientBench:
    return ClientBench(PATIENT)


# Expiry.


def suspended(session: Session, **fields: object) -> None:
    receiver(session, **fields).detach(closed=False)


def test_what_never_expires_does_not(bench: ClientBench) -> None:
    session = session_named(bench)
    suspended(session, timeout=1)
    session.peer.close()
    bench.advance(1_000_000)
    assert len(subscribed(bench)) == 1


@pytest.mark.parametrize("timeout", [0, 30])
@pytest.mark.parametrize(
    ("expiry", "ends"),
    [
        (LINK, lambda session: None),
        (SESSION, lambda session: session.end()),
        (CONNECTION, lambda session: session.peer.close()),
        (SESSION, lambda session: session.peer.drop()),
        (CONNECTION, lambda session: session.peer.drop()),
    ],
)
def test_an_expiry_policy_says_when_the_timeout_runs(
    bench: ClientBench, expiry: str, timeout: int, ends: Callable[[Session], None]
) -> None:
    peer = Peer(bench).open(container_id="jms")
    session, other = peer.begin(), peer.begin()
    suspended(session, expiry=expiry, timeout=timeout)
    if expiry != LINK:
        bench.advance(1000)
        other.end()
        assert len(subscribed(bench)) == 1
    ends(session)
    if timeout:
        bench.advance(timeout - 1)
        assert len(subscribed(bench)) == 1
        bench.advance(1)
    assert subscribed(bench) == []


def test_a_connection_that_goes_on_keeps_what_its_sessions_leave(bench: ClientBench) -> None:
    session = session_named(bench)
    suspended(session, expiry=CONNECTION)
    session.end()
    bench.advance(1000)
    assert len(subscribed(bench)) == 1
    assert receiver(session.peer.begin()).attached is not None


@pytest.mark.parametrize("expiry", [LINK, SESSION, CONNECTION])
def test_a_link_that_comes_back_stops_the_clock(bench: ClientBench, expiry: str) -> None:
    session = session_named(bench)
    suspended(session, expiry=expiry, timeout=30)
    session.peer.close()
    bench.advance(29)
    news = receiver(session_named(bench), expiry=expiry, timeout=30)
    bench.advance(1000)
    publish(bench, b"1")
    assert news.bodies() == [b"1"]
    news.session.peer.close()
    bench.advance(29)
    assert len(subscribed(bench)) == 1
    bench.advance(1)
    assert subscribed(bench) == []


def test_a_timeout_alone_is_a_wish_to_outlive_the_link(bench: ClientBench) -> None:
    session = session_named(bench)
    suspended(session, durable=0, expiry=SESSION, timeout=30)
    assert [bench.queue(name).durable for name in subscribed(bench)] == [False]
    session.end()
    bench.advance(29)
    assert len(subscribed(bench)) == 1
    bench.advance(1)
    assert subscribed(bench) == []


def test_the_last_attach_says_how_it_expires(bench: ClientBench) -> None:
    session = session_named(bench)
    suspended(session)
    suspended(session, expiry=LINK, timeout=10)
    bench.advance(10)
    assert subscribed(bench) == []


def test_the_session_of_the_last_link_counts(bench: ClientBench) -> None:
    peer = Peer(bench).open(container_id="jms")
    first, second = peer.begin(), peer.begin()
    suspended(first, expiry=SESSION)
    suspended(second, expiry=SESSION)
    first.end()
    assert len(subscribed(bench)) == 1
    second.end()
    assert subscribed(bench) == []


def test_coming_and_going_leaves_nothing_behind(bench: ClientBench) -> None:
    session = session_named(bench)
    for _ in range(100):
        suspended(session, expiry=SESSION)
    termini = termini_of(bench.host)
    assert [len(each) for each in termini.waiting.values()] == [1]
    receiver(session, expiry=SESSION)
    assert not termini.waiting
    suspended(session, expiry=SESSION)
    news = receiver(session, filter=selector("x = 1"))
    assert not termini.waiting
    news.detach()
    plain = receiver(session, durable=0, expiry=LINK)
    assert not termini.sources
    plain.detach()
    suspended(session, expiry=SESSION)
    session.end()
    assert (termini.waiting, termini.sources) == ({}, {})


def test_subscriptions_whose_queues_were_deleted_are_forgotten(bench: ClientBench) -> None:
    session = session_named(bench)
    for number in range(SWEEP_FROM + 1):
        session.receiver(source(), name=f"s{number}", handle=0).detach(closed=False)
        bench.host.delete_queue(bench.queue(f"amq.sub-jms/s{number}"))
    assert len(termini_of(bench.host).sources) == 1


class Live(Terminus):
    """A terminus that counts how often it is asked whether it is still there."""

    asked = 0

    @property
    def has_gone(self) -> bool:
        Live.asked += 1
        return False

    def expire(self) -> None:
        raise AssertionError


def test_many_subscriptions_cost_each_a_look_or_two() -> None:
    termini = termini_of(ClientBench().host)
    for number in range(20 * SWEEP_FROM):
        termini.keep_source(Live(termini, ("", "jms", f"{number}")))
    assert Live.asked < 2 * 20 * SWEEP_FROM


# Shared subscriptions.


def shared(session: Session, name: str = "news", **fields: object) -> Receiver:
    return receiver(session, name, capabilities=("topic", "shared"), **fields)


def test_a_shared_subscription_has_its_messages_in_turn(bench: ClientBench) -> None:
    session = session_named(bench)
    links = [shared(session, name) for name in ("news", "news|2", "news|3")]
    assert subscribed(bench) == ["amq.sub.shared-jms/news"]
    publish(bench, b"1", b"2", b"3", b"4", b"5", b"6")
    bodies = [link.bodies() for link in links]
    assert sorted(chain.from_iterable(bodies)) == [b"1", b"2", b"3", b"4", b"5", b"6"]
    assert [len(each) for each in bodies] == [2, 2, 2]
    assert links[0].attached.source.capabilities == ["topic", "shared"]


def test_a_shared_subscription_goes_with_the_last_link_that_is_closed(bench: ClientBench) -> None:
    session = session_named(bench)
    first, second = shared(session, "news"), shared(session_named(bench), "news|2")
    first.detach(closed=True)
    publish(bench, b"1")
    assert second.bodies() == [b"1"]
    second.detach(closed=False)
    assert len(subscribed(bench)) == 1
    shared(session, "news|7", credit=0).detach(closed=True)
    assert subscribed(bench) == []


def test_a_volatile_shared_subscription_goes_with_its_last_link(bench: ClientBench) -> None:
    """It is another than the durable one of that name."""
    session, volatile = session_named(bench), {"durable": 0, "expiry": LINK}
    shared(session, "news", credit=0)
    links = [shared(session, f"news|volatile{number}", **volatile) for number in range(2)]
    assert subscribed(bench) == ["amq.sub.shared-jms/news", "amq.sub.volatile-jms/news"]
    links[0].detach()
    publish(bench, b"1")
    assert links[1].bodies() == [b"1"]
    links[1].detach(closed=False)
    assert subscribed(bench) == ["amq.sub.shared-jms/news"]


def test_a_global_subscription_is_shared_by_containers(bench: ClientBench) -> None:
    links = []
    for container in ("one", "two"):
        capabilities = ("topic", "shared", "global")
        links.append(receiver(session_named(bench, container), "news|global", capabilities=capabilities))
    assert subscribed(bench) == ["amq.sub.global.shared-/news"]
    publish(bench, b"1", b"2")
    assert sorted(links[0].bodies() + links[1].bodies()) == [b"1", b"2"]
    for link in links:
        link.detach(closed=False)
    wishes = [Symbol("shared"), Symbol("global")]
    found = ask_for(session_named(bench, "three"), "news|global", desired_capabilities=wishes)
    assert found.attached.source.address == ADDRESS
    found.detach()
    assert subscribed(bench) == []


def test_who_shares_agrees_on_what(bench: ClientBench) -> None:
    session = session_named(bench)
    shared(session, "news")
    other = source("/exchanges/amq.topic/b", capabilities=("topic", "shared"))
    refused = session.ask_receiver(other, name="news|2")
    why = "subscription 'news' is shared by others with another address or selector"
    assert refused.refusal() == f"amqp:resource-locked {why}"
