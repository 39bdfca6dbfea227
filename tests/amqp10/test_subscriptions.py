"""Subscriptions: sources that are exchanges; what of them outlives its link, for how long, and who finds it again."""

from __future__ import annotations

import pytest

from leveret.protocols.amqp10.broker.termini import termini_of
from leveret.protocols.amqp10.codec import performatives as p
from tests.amqp10.parts import application_properties, data
from tests.amqp10.peer import bind, declare, session_of
from tests.amqp10.subscribing import (
    ADDRESS,
    CONFIGURATION,
    LINK,
    NEVER,
    PATIENT,
    SESSION,
    UNSETTLED_STATE,
    V1,
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


# Which sources are subscriptions.


def test_s196_without_a_word_an_exchange_is_no_source_of_version_2(bench: ClientBench) -> None:
    session = session_named(bench)
    for plain in (p.Source(address=ADDRESS), source(durable=0, capabilities=())):
        refused = session.ask_receiver(plain)
        assert (
            refused.refusal()
            == f"amqp:invalid-field Attach refused: amqp_address_v1_not_permitted '{ADDRESS}'"
        )
    assert subscribed(bench) == []


@pytest.mark.parametrize(
    "fields",
    [
        {"durable": 0, "expiry": LINK},
        {"durable": 0, "expiry": SESSION, "capabilities": ("shared",)},
        {"durable": CONFIGURATION, "capabilities": ()},
        {"durable": UNSETTLED_STATE, "expiry": SESSION, "capabilities": ("queue",)},
    ],
)
def test_who_asks_for_a_topic_or_for_durability_subscribes(
    bench: ClientBench, fields: dict[str, object]
) -> None:
    news = receiver(session_named(bench), **fields)
    publish(bench, b"1")
    publish(bench, b"other", key="b")
    publish(bench, b"2", key="a.b.c")
    assert news.bodies() == [b"1", b"2"]
    assert news.attached.source.address == ADDRESS


@pytest.mark.parametrize(
    "address", ["/exchanges/", "/exchanges/amq.default/q", "/exchanges/x/%", "/exchanges/x/y/z"]
)
def test_a_bad_address_is_refused_also_to_subscribers(bench: ClientBench, address: str) -> None:
    refused = session_named(bench).ask_receiver(source(address))
    assert refused.refusal() == f"amqp:invalid-field Attach refused: bad_address '{address}'"


def test_s192_a_missing_exchange_is_not_subscribed_to(bench: ClientBench) -> None:
    refused = session_named(bench).ask_receiver(source("/exchanges/nowhere/k"))
    assert refused.refusal() == "amqp:not-found no exchange 'nowhere' in vhost '/'"
    assert subscribed(bench) == []


def test_a_queue_is_no_subscription_whatever_is_said_of_it(bench: ClientBench) -> None:
    declare(bench, "q")
    session = session_named(bench)
    queue = session.receiver(source("/queues/q", capabilities=("queue",)), name="news")
    queue.detach()
    assert list(bench.host.queues) == ["q"]


def test_s219_s220_a_source_of_version_1_is_a_queue_that_goes_with_its_link() -> None:
    bench = ClientBench(V1)
    session = session_named(bench)
    for address in ("/topic/a.#", "/exchange/amq.topic/a.#"):
        for closed in (True, False):
            news = session.receiver(address, credit=5)
            [name] = subscribed(bench)
            assert name.startswith("amq.gen-")
            assert bench.queue(name).exclusive
            publish(bench, b"1")
            assert news.bodies() == [b"1"]
            told = news.attached.source
            assert (told.address, told.expiry_policy, told.durable) == (address, LINK, 0)
            news.detach(closed=closed)
            assert subscribed(bench) == []


@pytest.mark.parametrize("address", ["/topic/a.#", "/exchange/amq.topic/a.#"])
def test_s218_a_durable_source_of_version_1_is_found_again(address: str) -> None:
    bench = ClientBench(V1)
    session = session_named(bench)
    receiver(session, address=address, capabilities=()).detach(closed=False)
    publish(bench, b"1")
    assert bench.queue(subscribed(bench)[0]).durable
    assert receiver(session, address=address, capabilities=()).bodies() == [b"1"]


# Coming back.


def test_a_durable_subscription_waits_for_its_subscriber(bench: ClientBench) -> None:
    """Also for another connection, as long as its container has that name."""
    session = session_named(bench)
    news = receiver(session)
    told = news.attached.source
    assert (told.durable, told.expiry_policy, told.timeout) == (CONFIGURATION, NEVER, 0)
    assert (told.distribution_mode, told.capabilities) == ("copy", ["topic"])
    publish(bench, b"1")
    assert news.get().body == b"1"
    news.accept()
    news.detach(closed=False)
    publish(bench, b"2")
    news = receiver(session)
    assert news.get().body == b"2"
    session.peer.drop()
    publish(bench, b"3")
    assert receiver(session_named(bench)).bodies() == [b"2", b"3"]


def test_its_queue_is_named_after_container_and_link(bench: ClientBench) -> None:
    """Whatever those are called, no two have one name; a name that would be too long is told by its digest."""
    session = session_named(bench, "a/b%")
    receiver(session, "c d")
    assert subscribed(bench) == ["amq.sub-a%2Fb%25/c%20d"]
    [queue] = bench.host.queues.values()
    assert (queue.durable, queue.exclusive, queue.auto_delete) == (True, False, False)
    receiver(session, "x" * 1000)
    receiver(session, "x" * 1001)
    receiver(session_named(bench, "a"), "b%/c d")
    assert len(subscribed(bench)) == 4
    assert max(map(len, subscribed(bench))) < 100


def test_containers_and_links_have_their_own_subscriptions(bench: ClientBench) -> None:
    one, other = session_named(bench, "one"), session_named(bench, "other")
    all_of_them = [receiver(one, "x"), receiver(one, "y"), receiver(other, "x")]
    publish(bench, b"1")
    assert [each.bodies() for each in all_of_them] == [[b"1"]] * 3
    all_of_them[0].detach()
    publish(bench, b"2")
    assert [each.bodies() for each in all_of_them[1:]] == [[b"2"]] * 2


def test_a_subscription_ends_when_its_link_is_closed(bench: ClientBench) -> None:
    session = session_named(bench)
    news = receiver(session)
    publish(bench, b"1")
    news.detach(closed=True)
    assert subscribed(bench) == []
    assert receiver(session).bodies() == []


def test_an_error_of_ours_does_not_end_a_subscription(bench: ClientBench) -> None:
    """S171 and the like close a link; its subscriber may come back."""
    session = session_named(bench)
    news = receiver(session)
    publish(bench, b"1")
    news.answer(p.TransactionalState(txn_id=b"?", outcome=p.Accepted()), news.get(), settled=False)
    assert news.refusal().startswith("amqp:transaction:unknown-id")
    assert receiver(session).bodies() == [b"1"]


def test_a_null_source_asks_for_what_is_known(bench: ClientBench) -> None:
    """Its source is told; closing the link then ends the subscription: so JMS clients unsubscribe."""
    session = session_named(bench)
    receiver(session).detach(closed=False)
    publish(bench, b"1")
    found = ask_for(session)
    told = found.attached.source
    assert (told.address, told.durable, told.expiry_policy) == (ADDRESS, CONFIGURATION, NEVER)
    found.want(5)
    assert found.bodies() == [b"1"]
    found.detach(closed=True)
    assert subscribed(bench) == []


def test_who_asks_for_a_subscription_in_use_takes_it_over(bench: ClientBench) -> None:
    news = receiver(session_named(bench), expiry=LINK, timeout=30)
    news.detach(closed=False)
    found = ask_for(session_named(bench))
    bench.advance(60)
    again = ask_for(session_named(bench))
    assert found.refusal() == "amqp:link:stolen link 'news' was attached elsewhere"
    again.detach()
    assert subscribed(bench) == []


def test_x059_a_null_source_that_is_not_known_is_refused(bench: ClientBench) -> None:
    session = session_named(bench)
    receiver(session).detach(closed=False)
    receiver(session, "gone").detach(closed=False)
    bench.host.delete_queue(bench.queue("amq.sub-jms/gone"))
    for container, name in (("jms", "olds"), ("other", "news"), ("jms", "gone")):
        refused = ask_for(session_named(bench, container), name)
        assert refused.attached.source is None
        assert refused.refusal() == "amqp:invalid-field Attach refused: source_required"


def test_a_queue_that_is_all_that_has_outlived_a_restart_is_a_subscription_again(bench: ClientBench) -> None:
    name = "amq.sub-jms/news"
    bench.host.declare_queue(name, durable=True, generated=True)
    bind(bench, "amq.topic", name, "a.#")
    publish(bench, b"1")
    session = session_named(bench)
    assert "exclusive" in ask_for(session, properties={"exclusive": 1}).refusal()
    found = ask_for(session, credit=1)
    assert found.attached.source.address == ADDRESS
    assert found.bodies() == [b"1"]
    found.detach(closed=False)
    assert receiver(session).bodies() == [b"1"]
    assert subscribed(bench) == [name]


def test_a_queue_that_was_deleted_is_made_anew(bench: ClientBench) -> None:
    session = session_named(bench)
    news = receiver(session)
    bench.host.delete_queue(bench.queue("amq.sub-jms/news"))
    assert news.refusal().startswith("amqp:resource-deleted")
    assert not termini_of(bench.host).sources
    news = receiver(session)
    news.detach(closed=False)
    bench.host.delete_queue(bench.queue("amq.sub-jms/news"))
    news = receiver(session)
    publish(bench, b"1")
    assert news.bodies() == [b"1"]


def test_permissions_are_asked_for_each_time(bench: ClientBench) -> None:
    """S182."""
    bench.user("ann")
    news = receiver(session_named(bench, user="ann"))
    for rights in ({"configure": ""}, {"write": ""}, {"read": "amq.topic"}, {"read": "amq.sub.*"}):
        bench.user("eve", **rights)
        if "configure" not in rights:
            session = session_named(bench, user="eve")
            refused = session.ask_receiver(source(), name="news")
            assert refused.refusal().startswith("amqp:unauthorized-access")
        session = session_named(bench, "new", user="eve")
        assert session.ask_receiver(source(), name="news").refusal().startswith("amqp:unauthorized-access")
    assert subscribed(bench) == ["amq.sub-jms/news"]
    publish(bench, b"1")
    assert news.bodies() == [b"1"]  # nobody has taken it over


def test_who_may_not_have_another_subscription_leaves_the_one_that_is_there(bench: ClientBench) -> None:
    """S182."""
    receiver(session_named(bench)).detach(closed=False)
    publish(bench, b"1")
    bench.user("eve", configure="^$")
    session = session_named(bench, user="eve")
    refused = session.ask_receiver(source(address="/exchanges/amq.topic/b"), name="news")
    assert refused.refusal().startswith("amqp:unauthorized-access ")
    assert receiver(session_named(bench)).bodies() == [b"1"]


# Somebody else.


def test_who_attaches_anew_takes_it_over(bench: ClientBench) -> None:
    """What the one before had not answered comes back."""
    session = session_named(bench)
    news = receiver(session)
    publish(bench, b"1")
    assert news.get().body == b"1"
    again = receiver(session_named(bench))
    assert news.refusal() == "amqp:link:stolen link 'news' was attached elsewhere"
    assert again.bodies() == [b"1"]
    publish(bench, b"2")
    assert again.bodies() == [b"2"]
    session.end()
    assert subscribed(bench) == ["amq.sub-jms/news"]


def test_the_same_link_of_one_session_is_attached_anew(bench: ClientBench) -> None:
    session = session_named(bench)
    news = receiver(session)
    publish(bench, b"1")
    assert receiver(session, credit=1).get().body == b"1"
    news.peer.read()
    assert news.detached.error.condition == "amqp:link:stolen"


@pytest.mark.parametrize(
    "other",
    [
        {"address": "/exchanges/amq.topic/b"},
        {"address": "/exchanges/amq.fanout/a.%23"},
        {"filter": selector("x = 1")},
        {"durable": CONFIGURATION},
    ],
)
def test_another_subscription_of_that_name_takes_its_place(
    bench: ClientBench, other: dict[str, object]
) -> None:
    """Durability alone is none."""
    session = session_named(bench)
    receiver(session).detach(closed=False)
    publish(bench, b"1")
    assert receiver(session, **other).bodies() == ([b"1"] if "durable" in other else [])
    assert len(subscribed(bench)) == 1
    back = receiver(session)
    publish(bench, b"2")
    assert back.bodies()[-1] == b"2"


def test_an_attach_that_comes_to_nothing_leaves_everything_as_it_was(bench: ClientBench) -> None:
    session = session_named(bench)
    wrong = source(filter=selector("=="))
    assert "selector" in session.ask_receiver(wrong, name="new").refusal()
    assert "exclusive" in session.ask_receiver(source(), name="new", properties={"exclusive": 1}).refusal()
    assert subscribed(bench) == []
    receiver(session).detach(closed=False)
    publish(bench, b"1")
    assert "exclusive" in session.ask_receiver(source(), name="news", properties={"exclusive": 1}).refusal()
    assert receiver(session).bodies() == [b"1"]
    session.peer.drop()
    expiring = {"expiry": LINK, "timeout": 5}
    session = session_named(bench)
    receiver(session, **expiring).detach(closed=False)
    refused = session.ask_receiver(source(**expiring), name="news", properties={"exclusive": 1})
    assert "exclusive" in refused.refusal()
    bench.advance(5)
    assert subscribed(bench) == []


# Selectors.


def test_a_subscription_keeps_only_what_suits_its_selector(bench: ClientBench) -> None:
    """Nothing else waits in its queue, and the selector is told."""
    session = session_named(bench)
    news = receiver(session, filter=selector("colour = 'red'"))
    assert news.attached.source.filter == selector("colour = 'red'")
    sender = session_of(bench).sender("/exchanges/amq.topic/a")
    for colour in ("red", "blue", "red"):
        assert (
            sender.publish(application_properties({"colour": colour}), data(colour.encode())) == p.Accepted()
        )
    assert news.bodies() == [b"red", b"red"]
    news.detach(closed=False)
    for colour in ("blue", "red"):
        sender.publish(application_properties({"colour": colour}), data(colour.encode()))
    queue = bench.queue("amq.sub-jms/news")
    assert (queue.ready, queue.unsettled) == (1, 2)  # those on the link stay its own for a time
    assert receiver(session, filter=selector("colour = 'red'")).bodies() == [b"red"] * 3


def test_a_subscription_that_goes_with_its_link_has_a_selector_as_well(bench: ClientBench) -> None:
    news = receiver(session_named(bench), durable=0, expiry=LINK, filter=selector("1 = 2"))
    publish(bench, b"1")
    assert news.bodies() == []
    [queue] = bench.host.queues.values()
    assert queue.ready == 0
    # or each message would be asked twice
    assert [consumer.selector for consumer in queue.consumers] == [None]
