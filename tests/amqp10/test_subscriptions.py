"""Subscriptions: sources that are exchanges; what of them outlives its link, for how long, and who finds it again."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain

import pytest

from protocols.amqp10 import performatives as p
from protocols.amqp10.termini import SWEEP_FROM, Terminus, termini_of
from protocols.amqp10.types import Described, Symbol
from tests.amqp10.peer import (
    Peer,
    Receiver,
    Sender,
    Session,
    World,
    application_properties,
    bind,
    data,
    declare,
    session_of,
)

PATIENT = "[protocols.amqp10]\nidle_timeout_s = 0\n"
V1 = "[protocols.amqp10.addresses]\nv1 = true\n"
ADDRESS = "/exchanges/amq.topic/a.%23"
NEVER = p.TERMINUS_EXPIRY_POLICY_NEVER
LINK, SESSION, CONNECTION = "link-detach", "session-end", "connection-close"
CONFIGURATION, UNSETTLED_STATE = p.TERMINUS_DURABILITY_CONFIGURATION, p.TERMINUS_DURABILITY_UNSETTLED_STATE


@pytest.fixture
def world() -> World:
    return World(PATIENT)


def subscribed(world: World) -> list[str]:
    """The queues that subscriptions have."""
    return sorted(name for name in world.host.queues if name.startswith("amq."))


def publish(
    world: World, *bodies: bytes, key: str = "a.b", exchange: str = "amq.topic", **fields: object
) -> None:
    sender: Sender = session_of(world).sender(f"/exchanges/{exchange}/{key}")
    for body in bodies:
        sender.publish(data(body), **fields)


def session_named(world: World, container: str = "jms", user: str = "guest") -> Session:
    return Peer(world).open(user, container_id=container).begin()


def source(
    address: str | None = ADDRESS,
    durable: int = UNSETTLED_STATE,
    expiry: str = NEVER,
    timeout: int = 0,
    capabilities: tuple[str, ...] = ("topic",),
    **fields: object,
) -> p.Source:
    """As a JMS client writes it for a durable subscriber."""
    return p.Source(
        address=address,
        durable=durable,
        expiry_policy=Symbol(expiry),
        timeout=timeout,
        distribution_mode=Symbol("copy"),
        capabilities=[Symbol(name) for name in capabilities],
        **fields,
    )


def selector(text: str) -> dict[str, Described]:
    return {"jms-selector": Described(Symbol("apache.org:selector-filter:string"), text)}


def ask_for(session: Session, name: str = "news", credit: int = 0, **fields: object) -> Receiver:
    """Attach a receiver with a null source."""
    link = Receiver(session, name)
    session.attach(link, source=None, target=p.Target(), **fields)
    if credit:
        link.want(credit)
    return link


def receiver(session: Session, name: str = "news", credit: int = 10, **fields: object) -> Receiver:
    return session.receiver(source(**fields), credit=credit, name=name)


# Which sources are subscriptions.


def test_s196_without_a_word_an_exchange_is_no_source_of_version_2(world: World) -> None:
    session = session_named(world)
    for plain in (p.Source(address=ADDRESS), source(durable=0, capabilities=())):
        refused = session.ask_receiver(plain)
        assert (
            refused.refusal()
            == f"amqp:invalid-field Attach refused: amqp_address_v1_not_permitted '{ADDRESS}'"
        )
    assert subscribed(world) == []


@pytest.mark.parametrize(
    "fields",
    [
        {"durable": 0, "expiry": LINK},
        {"durable": 0, "expiry": SESSION, "capabilities": ("shared",)},
        {"durable": CONFIGURATION, "capabilities": ()},
        {"durable": UNSETTLED_STATE, "expiry": SESSION, "capabilities": ("queue",)},
    ],
)
def test_who_asks_for_a_topic_or_for_durability_subscribes(world: World, fields: dict[str, object]) -> None:
    news = receiver(session_named(world), **fields)
    publish(world, b"1")
    publish(world, b"other", key="b")
    publish(world, b"2", key="a.b.c")
    assert news.bodies() == [b"1", b"2"]
    assert news.attached.source.address == ADDRESS


@pytest.mark.parametrize(
    "address", ["/exchanges/", "/exchanges/amq.default/q", "/exchanges/x/%", "/exchanges/x/y/z"]
)
def test_a_bad_address_is_refused_also_to_subscribers(world: World, address: str) -> None:
    refused = session_named(world).ask_receiver(source(address))
    assert refused.refusal() == f"amqp:invalid-field Attach refused: bad_address '{address}'"


def test_s192_a_missing_exchange_is_not_subscribed_to(world: World) -> None:
    refused = session_named(world).ask_receiver(source("/exchanges/nowhere/k"))
    assert refused.refusal() == "amqp:not-found no exchange 'nowhere' in vhost '/'"
    assert subscribed(world) == []


def test_a_queue_is_no_subscription_whatever_is_said_of_it(world: World) -> None:
    declare(world, "q")
    session = session_named(world)
    queue = session.receiver(source("/queues/q", capabilities=("queue",)), name="news")
    queue.detach()
    assert list(world.host.queues) == ["q"]


def test_s219_s220_a_source_of_version_1_is_a_queue_that_goes_with_its_link() -> None:
    world = World(V1)
    session = session_named(world)
    for address in ("/topic/a.#", "/exchange/amq.topic/a.#"):
        for closed in (True, False):
            news = session.receiver(address, credit=5)
            [name] = subscribed(world)
            assert name.startswith("amq.gen-")
            assert world.queue(name).exclusive
            publish(world, b"1")
            assert news.bodies() == [b"1"]
            told = news.attached.source
            assert (told.address, told.expiry_policy, told.durable) == (address, LINK, 0)
            news.detach(closed=closed)
            assert subscribed(world) == []


@pytest.mark.parametrize("address", ["/topic/a.#", "/exchange/amq.topic/a.#"])
def test_s218_a_durable_source_of_version_1_is_found_again(address: str) -> None:
    world = World(V1)
    session = session_named(world)
    receiver(session, address=address, capabilities=()).detach(closed=False)
    publish(world, b"1")
    assert world.queue(subscribed(world)[0]).durable
    assert receiver(session, address=address, capabilities=()).bodies() == [b"1"]


# Coming back.


def test_a_durable_subscription_waits_for_its_subscriber(world: World) -> None:
    """Also for another connection, as long as its container has that name."""
    session = session_named(world)
    news = receiver(session)
    told = news.attached.source
    assert (told.durable, told.expiry_policy, told.timeout) == (UNSETTLED_STATE, NEVER, 0)
    assert (told.distribution_mode, told.capabilities) == ("copy", ["topic"])
    publish(world, b"1")
    assert news.get().body == b"1"
    news.accept()
    news.detach(closed=False)
    publish(world, b"2")
    news = receiver(session)
    assert news.get().body == b"2"
    session.peer.drop()
    publish(world, b"3")
    assert receiver(session_named(world)).bodies() == [b"2", b"3"]


def test_its_queue_is_named_after_container_and_link(world: World) -> None:
    """Whatever those are called, no two have one name; a name that would be too long is told by its digest."""
    session = session_named(world, "a/b%")
    receiver(session, "c d")
    assert subscribed(world) == ["amq.sub-a%2Fb%25/c%20d"]
    [queue] = world.host.queues.values()
    assert (queue.durable, queue.exclusive, queue.auto_delete) == (True, False, False)
    receiver(session, "x" * 1000)
    receiver(session, "x" * 1001)
    receiver(session_named(world, "a"), "b%/c d")
    assert len(subscribed(world)) == 4
    assert max(map(len, subscribed(world))) < 100


def test_containers_and_links_have_their_own_subscriptions(world: World) -> None:
    one, other = session_named(world, "one"), session_named(world, "other")
    all_of_them = [receiver(one, "x"), receiver(one, "y"), receiver(other, "x")]
    publish(world, b"1")
    assert [each.bodies() for each in all_of_them] == [[b"1"]] * 3
    all_of_them[0].detach()
    publish(world, b"2")
    assert [each.bodies() for each in all_of_them[1:]] == [[b"2"]] * 2


def test_a_subscription_ends_when_its_link_is_closed(world: World) -> None:
    session = session_named(world)
    news = receiver(session)
    publish(world, b"1")
    news.detach(closed=True)
    assert subscribed(world) == []
    assert receiver(session).bodies() == []


def test_an_error_of_ours_does_not_end_a_subscription(world: World) -> None:
    """S171 and the like close a link; its subscriber may come back."""
    session = session_named(world)
    news = receiver(session)
    publish(world, b"1")
    news.answer(p.TransactionalState(txn_id=b"?", outcome=p.Accepted()), news.get(), settled=False)
    assert news.refusal().startswith("amqp:transaction:unknown-id")
    assert receiver(session).bodies() == [b"1"]


def test_a_null_source_asks_for_what_is_known(world: World) -> None:
    """Its source is told; closing the link then ends the subscription: so JMS clients unsubscribe."""
    session = session_named(world)
    receiver(session).detach(closed=False)
    publish(world, b"1")
    found = ask_for(session)
    told = found.attached.source
    assert (told.address, told.durable, told.expiry_policy) == (ADDRESS, UNSETTLED_STATE, NEVER)
    found.want(5)
    assert found.bodies() == [b"1"]
    found.detach(closed=True)
    assert subscribed(world) == []


def test_who_asks_for_a_subscription_in_use_takes_it_over(world: World) -> None:
    news = receiver(session_named(world), expiry=LINK, timeout=30)
    news.detach(closed=False)
    found = ask_for(session_named(world))
    world.advance(60)
    again = ask_for(session_named(world))
    assert found.refusal() == "amqp:link:stolen link 'news' was attached elsewhere"
    again.detach()
    assert subscribed(world) == []


def test_x059_a_null_source_that_is_not_known_is_refused(world: World) -> None:
    session = session_named(world)
    receiver(session).detach(closed=False)
    receiver(session, "gone").detach(closed=False)
    world.host.delete_queue(world.queue("amq.sub-jms/gone"))
    for container, name in (("jms", "olds"), ("other", "news"), ("jms", "gone")):
        refused = ask_for(session_named(world, container), name)
        assert refused.attached.source is None
        assert refused.refusal() == "amqp:invalid-field Attach refused: source_required"


def test_a_queue_that_is_all_that_has_outlived_a_restart_is_a_subscription_again(world: World) -> None:
    name = "amq.sub-jms/news"
    world.host.declare_queue(name, durable=True, generated=True)
    bind(world, "amq.topic", name, "a.#")
    publish(world, b"1")
    session = session_named(world)
    assert "exclusive" in ask_for(session, properties={"exclusive": 1}).refusal()
    found = ask_for(session, credit=1)
    assert found.attached.source.address == ADDRESS
    assert found.bodies() == [b"1"]
    found.detach(closed=False)
    assert receiver(session).bodies() == [b"1"]
    assert subscribed(world) == [name]


def test_a_queue_that_was_deleted_is_made_anew(world: World) -> None:
    session = session_named(world)
    news = receiver(session)
    world.host.delete_queue(world.queue("amq.sub-jms/news"))
    assert news.refusal().startswith("amqp:resource-deleted")
    assert not termini_of(world.host).sources
    news = receiver(session)
    news.detach(closed=False)
    world.host.delete_queue(world.queue("amq.sub-jms/news"))
    news = receiver(session)
    publish(world, b"1")
    assert news.bodies() == [b"1"]


def test_permissions_are_asked_for_each_time(world: World) -> None:
    """S182."""
    world.user("ann")
    news = receiver(session_named(world, user="ann"))
    for rights in ({"configure": ""}, {"write": ""}, {"read": "amq.topic"}, {"read": "amq.sub.*"}):
        world.user("eve", **rights)
        if "configure" not in rights:
            session = session_named(world, user="eve")
            session.ask_receiver(source(), name="news")
            assert session.refusal().startswith("amqp:unauthorized-access")
        session = session_named(world, "new", user="eve")
        session.ask_receiver(source(), name="news")
        assert session.refusal().startswith("amqp:unauthorized-access")
    assert subscribed(world) == ["amq.sub-jms/news"]
    publish(world, b"1")
    assert news.bodies() == [b"1"]  # nobody has taken it over


# Somebody else.


def test_who_attaches_anew_takes_it_over(world: World) -> None:
    """What the one before had not answered comes back."""
    session = session_named(world)
    news = receiver(session)
    publish(world, b"1")
    assert news.get().body == b"1"
    again = receiver(session_named(world))
    assert news.refusal() == "amqp:link:stolen link 'news' was attached elsewhere"
    assert again.bodies() == [b"1"]
    publish(world, b"2")
    assert again.bodies() == [b"2"]
    session.end()
    assert subscribed(world) == ["amq.sub-jms/news"]


def test_the_same_link_of_one_session_is_attached_anew(world: World) -> None:
    session = session_named(world)
    news = receiver(session)
    publish(world, b"1")
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
def test_another_subscription_of_that_name_takes_its_place(world: World, other: dict[str, object]) -> None:
    """Durability alone is none."""
    session = session_named(world)
    receiver(session).detach(closed=False)
    publish(world, b"1")
    assert receiver(session, **other).bodies() == ([b"1"] if "durable" in other else [])
    assert len(subscribed(world)) == 1
    back = receiver(session)
    publish(world, b"2")
    assert back.bodies()[-1] == b"2"


def test_an_attach_that_comes_to_nothing_leaves_everything_as_it_was(world: World) -> None:
    session = session_named(world)
    wrong = source(filter=selector("=="))
    assert "selector" in session.ask_receiver(wrong, name="new").refusal()
    assert "exclusive" in session.ask_receiver(source(), name="new", properties={"exclusive": 1}).refusal()
    assert subscribed(world) == []
    receiver(session).detach(closed=False)
    publish(world, b"1")
    assert "exclusive" in session.ask_receiver(source(), name="news", properties={"exclusive": 1}).refusal()
    assert receiver(session).bodies() == [b"1"]
    session.peer.drop()
    expiring = {"expiry": LINK, "timeout": 5}
    session = session_named(world)
    receiver(session, **expiring).detach(closed=False)
    refused = session.ask_receiver(source(**expiring), name="news", properties={"exclusive": 1})
    assert "exclusive" in refused.refusal()
    world.advance(5)
    assert subscribed(world) == []


# Selectors.


def test_a_subscription_keeps_only_what_suits_its_selector(world: World) -> None:
    """Nothing else waits in its queue, and the selector is told."""
    session = session_named(world)
    news = receiver(session, filter=selector("colour = 'red'"))
    assert news.attached.source.filter == selector("colour = 'red'")
    sender = session_of(world).sender("/exchanges/amq.topic/a")
    for colour in ("red", "blue", "red"):
        assert (
            sender.publish(application_properties({"colour": colour}), data(colour.encode())) == p.Accepted()
        )
    assert news.bodies() == [b"red", b"red"]
    news.detach(closed=False)
    for colour in ("blue", "red"):
        sender.publish(application_properties({"colour": colour}), data(colour.encode()))
    assert world.queue("amq.sub-jms/news").ready == 3
    assert receiver(session, filter=selector("colour = 'red'")).bodies() == [b"red"] * 3


def test_a_subscription_that_goes_with_its_link_has_a_selector_as_well(world: World) -> None:
    news = receiver(session_named(world), durable=0, expiry=LINK, filter=selector("1 = 2"))
    publish(world, b"1")
    assert news.bodies() == []
    [queue] = world.host.queues.values()
    assert queue.ready == 0
    assert [consumer.selector for consumer in queue.consumers] == [
        None
    ]  # or each message would be asked twice


# Expiry.


def suspended(session: Session, **fields: object) -> None:
    receiver(session, **fields).detach(closed=False)


def test_what_never_expires_does_not(world: World) -> None:
    session = session_named(world)
    suspended(session, timeout=1)
    session.peer.close()
    world.advance(1_000_000)
    assert len(subscribed(world)) == 1


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
    world: World, expiry: str, timeout: int, ends: Callable[[Session], None]
) -> None:
    peer = Peer(world).open(container_id="jms")
    session, other = peer.begin(), peer.begin()
    suspended(session, expiry=expiry, timeout=timeout)
    if expiry != LINK:
        world.advance(1000)
        other.end()
        assert len(subscribed(world)) == 1
    ends(session)
    if timeout:
        world.advance(timeout - 1)
        assert len(subscribed(world)) == 1
        world.advance(1)
    assert subscribed(world) == []


def test_a_connection_that_goes_on_keeps_what_its_sessions_leave(world: World) -> None:
    session = session_named(world)
    suspended(session, expiry=CONNECTION)
    session.end()
    world.advance(1000)
    assert len(subscribed(world)) == 1
    assert receiver(session.peer.begin()).attached is not None


@pytest.mark.parametrize("expiry", [LINK, SESSION, CONNECTION])
def test_a_link_that_comes_back_stops_the_clock(world: World, expiry: str) -> None:
    session = session_named(world)
    suspended(session, expiry=expiry, timeout=30)
    session.peer.close()
    world.advance(29)
    news = receiver(session_named(world), expiry=expiry, timeout=30)
    world.advance(1000)
    publish(world, b"1")
    assert news.bodies() == [b"1"]
    news.session.peer.close()
    world.advance(29)
    assert len(subscribed(world)) == 1
    world.advance(1)
    assert subscribed(world) == []


def test_a_timeout_alone_is_a_wish_to_outlive_the_link(world: World) -> None:
    session = session_named(world)
    suspended(session, durable=0, expiry=SESSION, timeout=30)
    assert [world.queue(name).durable for name in subscribed(world)] == [False]
    session.end()
    world.advance(29)
    assert len(subscribed(world)) == 1
    world.advance(1)
    assert subscribed(world) == []


def test_the_last_attach_says_how_it_expires(world: World) -> None:
    session = session_named(world)
    suspended(session)
    suspended(session, expiry=LINK, timeout=10)
    world.advance(10)
    assert subscribed(world) == []


def test_the_session_of_the_last_link_counts(world: World) -> None:
    peer = Peer(world).open(container_id="jms")
    first, second = peer.begin(), peer.begin()
    suspended(first, expiry=SESSION)
    suspended(second, expiry=SESSION)
    first.end()
    assert len(subscribed(world)) == 1
    second.end()
    assert subscribed(world) == []


def test_coming_and_going_leaves_nothing_behind(world: World) -> None:
    session = session_named(world)
    for _ in range(100):
        suspended(session, expiry=SESSION)
    termini = termini_of(world.host)
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


def test_subscriptions_whose_queues_were_deleted_are_forgotten(world: World) -> None:
    session = session_named(world)
    for number in range(SWEEP_FROM + 1):
        session.receiver(source(), name=f"s{number}", handle=0).detach(closed=False)
        world.host.delete_queue(world.queue(f"amq.sub-jms/s{number}"))
    assert len(termini_of(world.host).sources) == 1


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
    termini = termini_of(World().host)
    for number in range(20 * SWEEP_FROM):
        termini.keep_source(Live(termini, ("", "jms", f"{number}")))
    assert Live.asked < 2 * 20 * SWEEP_FROM


# Shared subscriptions.


def shared(session: Session, name: str = "news", **fields: object) -> Receiver:
    return receiver(session, name, capabilities=("topic", "shared"), **fields)


def test_a_shared_subscription_has_its_messages_in_turn(world: World) -> None:
    session = session_named(world)
    links = [shared(session, name) for name in ("news", "news|2", "news|3")]
    assert subscribed(world) == ["amq.sub.shared-jms/news"]
    publish(world, b"1", b"2", b"3", b"4", b"5", b"6")
    bodies = [link.bodies() for link in links]
    assert sorted(chain.from_iterable(bodies)) == [b"1", b"2", b"3", b"4", b"5", b"6"]
    assert [len(each) for each in bodies] == [2, 2, 2]
    assert links[0].attached.source.capabilities == ["topic", "shared"]


def test_a_shared_subscription_goes_with_the_last_link_that_is_closed(world: World) -> None:
    session = session_named(world)
    first, second = shared(session, "news"), shared(session_named(world), "news|2")
    first.detach(closed=True)
    publish(world, b"1")
    assert second.bodies() == [b"1"]
    second.detach(closed=False)
    assert len(subscribed(world)) == 1
    shared(session, "news|7", credit=0).detach(closed=True)
    assert subscribed(world) == []


def test_a_volatile_shared_subscription_goes_with_its_last_link(world: World) -> None:
    """It is another than the durable one of that name."""
    session, volatile = session_named(world), {"durable": 0, "expiry": LINK}
    shared(session, "news", credit=0)
    links = [shared(session, f"news|volatile{number}", **volatile) for number in range(2)]
    assert subscribed(world) == ["amq.sub.shared-jms/news", "amq.sub.volatile-jms/news"]
    links[0].detach()
    publish(world, b"1")
    assert links[1].bodies() == [b"1"]
    links[1].detach(closed=False)
    assert subscribed(world) == ["amq.sub.shared-jms/news"]


def test_a_global_subscription_is_shared_by_containers(world: World) -> None:
    links = []
    for container in ("one", "two"):
        capabilities = ("topic", "shared", "global")
        links.append(receiver(session_named(world, container), "news|global", capabilities=capabilities))
    assert subscribed(world) == ["amq.sub.global.shared-/news"]
    publish(world, b"1", b"2")
    assert sorted(links[0].bodies() + links[1].bodies()) == [b"1", b"2"]
    for link in links:
        link.detach(closed=False)
    wishes = [Symbol("shared"), Symbol("global")]
    found = ask_for(session_named(world, "three"), "news|global", desired_capabilities=wishes)
    assert found.attached.source.address == ADDRESS
    found.detach()
    assert subscribed(world) == []


def test_who_shares_agrees_on_what(world: World) -> None:
    session = session_named(world)
    shared(session, "news")
    other = source("/exchanges/amq.topic/b", capabilities=("topic", "shared"))
    refused = session.ask_receiver(other, name="news|2")
    why = "subscription 'news' is shared by others with another address or selector"
    assert refused.refusal() == f"amqp:resource-locked {why}"
