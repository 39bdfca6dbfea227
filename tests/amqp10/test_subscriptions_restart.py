"""Subscriptions after a restart of the node: durable ones wait again, with all that their sources asked for."""

from __future__ import annotations

import pytest

from leveret.protocols.amqp10.broker.registration import SUBSCRIPTION
from leveret.protocols.amqp10.broker.termini import termini_of
from leveret.protocols.amqp10.codec import performatives as p
from leveret.queues.filtered import FilteredQueue
from tests.amqp10.parts import application_properties, data
from tests.amqp10.peer import session_of
from tests.amqp10.subscribing import (
    ADDRESS,
    CONFIGURATION,
    CONNECTION,
    LINK,
    NEVER,
    PATIENT,
    SESSION,
    ask_for,
    receiver,
    selector,
    session_named,
    subscribed,
)
from tests.harness.bench import ClientBench, StoredBench


@pytest.fixture
def bench() -> StoredBench:
    return StoredBench(PATIENT)


def send(bench: ClientBench, *colours: str) -> None:
    """Durable messages with a colour, which is also their body."""
    sender = session_of(bench).sender("/exchanges/amq.topic/a.b")
    for colour in colours:
        sections = p.Header(durable=True), application_properties({"colour": colour}), data(colour.encode())
        assert sender.publish(*sections) == p.Accepted()


RED = selector("colour LIKE '%red'")


# Finding it again.


def test_a_durable_subscription_is_found_again_with_its_messages(bench: StoredBench) -> None:
    news = receiver(session_named(bench))
    told = news.attached.source
    send(bench, "red", "blue")
    after = bench.again()
    send(after, "green")
    news = receiver(session_named(after))
    assert news.attached.source.encode() == told.encode()
    assert news.bodies() == [b"red", b"blue", b"green"]


def test_its_selector_holds_from_the_start_on(bench: StoredBench) -> None:
    receiver(session_named(bench), filter=RED)
    send(bench, "red", "blue")
    after = bench.again()
    assert isinstance(after.queue("amq.sub-jms/news"), FilteredQueue)
    send(after, "green", "dark red")
    assert receiver(session_named(after), filter=RED).bodies() == [b"red", b"dark red"]


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"filter": {"apache.org:selector-filter:string": RED["jms-selector"]}},
        {"durable": CONFIGURATION, "expiry": CONNECTION, "timeout": 30},
        {"expiry": LINK, "timeout": 30, "capabilities": ()},
        {"default_outcome": p.Rejected(), "outcomes": [p.Accepted.NAME, p.Rejected.NAME]},
    ],
)
def test_a_null_source_is_told_all_that_was_asked_for(bench: StoredBench, fields: dict[str, object]) -> None:
    told = receiver(session_named(bench), **fields).attached.source
    after = bench.again()
    found = ask_for(session_named(after))
    assert found.attached.source.encode() == told.encode()
    found.detach(closed=True)
    assert subscribed(after) == []
    assert subscribed(after.again()) == []


def test_an_address_of_an_exchange_that_nobody_could_tell_from_its_binding_is_told(
    bench: StoredBench,
) -> None:
    """It is the address as it was asked for."""
    bench.host.declare_exchange("a b", "fanout", durable=True)
    address = "/exchanges/%61%20b/"
    receiver(session_named(bench), address=address)
    assert ask_for(session_named(bench.again())).attached.source.address == address


def test_what_was_delivered_and_not_settled_comes_again_and_says_so(bench: StoredBench) -> None:
    """What we know of deliveries on their way to a receiver does not outlive the node."""
    news = receiver(session_named(bench), credit=1)
    send(bench, "red", "blue")
    assert news.get().body == b"red"
    news = receiver(session_named(bench.again()))
    assert [(each.body, each.header.first_acquirer) for each in (news.get(), news.get())] == [
        (b"red", False),
        (b"blue", False),  # the node was killed: it may have been delivered, for all that we know
    ]


def test_shared_subscriptions_are_found_by_all_who_share_them(bench: StoredBench) -> None:
    receiver(session_named(bench, "one"), "x|1", capabilities=("topic", "shared", "global"))
    receiver(session_named(bench, "one"), "x|1", capabilities=("topic", "shared"))
    before = subscribed(bench)
    after = bench.again()
    both = [
        receiver(session_named(after, container), link, credit=1, capabilities=("topic", "shared", "global"))
        for container, link in (("one", "x|1"), ("two", "x|2"))
    ]
    own = receiver(session_named(after, "one"), "x|3", capabilities=("topic", "shared"))
    assert subscribed(after) == before
    send(after, "red", "blue")
    assert [link.bodies() for link in both] == [[b"red"], [b"blue"]]
    assert own.bodies() == [b"red", b"blue"]


def test_names_that_are_only_kept_as_a_digest_are_found_again(bench: StoredBench) -> None:
    receiver(session_named(bench, "c" * 300), "x" * 1000)
    send(bench, "red")
    assert receiver(session_named(bench.again(), "c" * 300), "x" * 1000).bodies() == [b"red"]


def test_who_wants_something_else_under_that_name_gets_something_else(bench: StoredBench) -> None:
    receiver(session_named(bench), filter=RED)
    send(bench, "red")
    after = bench.again()
    news = receiver(session_named(after))
    send(after, "blue")
    assert news.bodies() == [b"blue"]
    assert len(subscribed(after)) == len(subscribed(after.again())) == 1


def test_what_is_not_durable_does_not_outlive_the_node(bench: StoredBench) -> None:
    receiver(session_named(bench), durable=0)
    assert subscribed(bench.again()) == []


def test_the_last_attach_counts(bench: StoredBench) -> None:
    receiver(session_named(bench)).detach(closed=False)
    receiver(session_named(bench), expiry=LINK, timeout=10).detach(closed=False)
    after = bench.again()
    after.advance(10)
    assert subscribed(after) == []


def test_an_attach_that_fails_leaves_it_as_it_is(bench: StoredBench) -> None:
    receiver(session_named(bench))
    after = bench.again()
    assert "exclusive" in ask_for(session_named(after), properties={"exclusive": 1}).refusal()
    assert len(subscribed(after)) == 1


# Expiry.


@pytest.mark.parametrize("expiry", [LINK, SESSION, CONNECTION])
@pytest.mark.parametrize("attached", [True, False])
def test_its_timeout_begins_to_run_with_the_restart(bench: StoredBench, expiry: str, attached: bool) -> None:
    """Its link, session and connection have ended with the node, at the latest."""
    session = session_named(bench)
    news = receiver(session, expiry=expiry, timeout=30)
    if not attached:
        news.detach(closed=False)
        session.peer.close()
        bench.advance(20)
    after = bench.again()
    after.advance(29)
    assert len(subscribed(after)) == 1
    after.advance(1)
    assert subscribed(after) == []
    assert subscribed(after.again()) == []


@pytest.mark.parametrize("expiry", [LINK, SESSION, CONNECTION])
def test_what_was_not_to_outlive_its_connection_is_gone_at_once(bench: StoredBench, expiry: str) -> None:
    receiver(session_named(bench), expiry=expiry)
    send(bench, "red")
    after = bench.again()
    assert subscribed(after) == []
    assert after.journal.known.live == 0


def test_what_never_expires_does_not(bench: StoredBench) -> None:
    receiver(session_named(bench), expiry=NEVER, timeout=1)
    after = bench.again()
    after.advance(1_000_000)
    assert len(subscribed(after)) == 1


@pytest.mark.parametrize("capabilities", [("topic",), ("topic", "shared"), ("topic", "shared", "global")])
def test_who_comes_back_in_time_stops_the_clock(bench: StoredBench, capabilities: tuple[str, ...]) -> None:
    terms = {"expiry": SESSION, "timeout": 30, "capabilities": capabilities}
    receiver(session_named(bench), **terms)
    after = bench.again()
    after.advance(29)
    news = receiver(session_named(after), **terms)
    after.advance(1000)
    send(after, "red")
    assert news.bodies() == [b"red"]
    news.session.end()
    after.advance(30)
    assert subscribed(after) == []


# What is kept of it.


def test_to_attach_again_on_the_same_terms_writes_nothing(bench: StoredBench) -> None:
    receiver(session_named(bench), filter=RED).detach(closed=False)
    commits = bench.store.stats().commits
    receiver(session_named(bench), filter=RED)
    assert bench.store.stats().commits == commits


def test_queue_binding_and_terms_are_kept_in_one_commit(bench: StoredBench) -> None:
    session, commits = session_named(bench), bench.store.stats().commits
    receiver(session, credit=0, filter=RED)
    assert bench.store.stats().commits == commits + 1


@pytest.mark.parametrize(
    "notes",
    [
        5,
        {},
        {"key": ["", "jms"], "source": p.Source().encode()},
        {"key": "abc", "source": p.Source().encode()},
        {"key": ["", "jms", "news"], "source": "x"},
        {"key": ["", "jms", "news"], "source": b""},
        {"key": ["", "jms", "news"], "source": p.Target().encode()},
        {"key": ["", "jms", "news"], "source": p.Source().encode()[:-1]},
    ],
)
def test_without_what_was_noted_it_is_still_found_by_its_name(
    bench: StoredBench, notes: object, caplog: pytest.LogCaptureFixture
) -> None:
    receiver(session_named(bench), expiry=LINK, timeout=30)
    send(bench, "red")
    bench.host.note(bench.queue("amq.sub-jms/news"), {SUBSCRIPTION: notes})
    after = bench.again()
    [line] = caplog.messages
    told = "the notes of the subscription of queue 'amq.sub-jms/news' in vhost '/' cannot be read: "
    assert line.startswith(told)
    assert not termini_of(after.host).sources
    found = ask_for(session_named(after), credit=5)
    assert found.attached.source.address == ADDRESS
    assert (found.attached.source.durable, found.bodies()) == (CONFIGURATION, [b"red"])
