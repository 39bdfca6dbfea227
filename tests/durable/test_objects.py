"""What is declared outlives the node, if it is durable; what is not, and what was deleted, does not."""

from __future__ import annotations

import json
from decimal import Decimal
from uuid import UUID
from weakref import WeakSet

import pytest

from leveret.client import Client
from leveret.durable import restoration
from leveret.durable.store import records
from leveret.durable.store.typed_json import Unreadable
from leveret.errors import PreconditionFailed
from leveret.limits import UserLimits, VirtualHostLimits
from leveret.observability import event_exchange
from leveret.policy import ApplyTo, Policy
from leveret.queues.filtered import FilteredQueue
from leveret.security.access import PasswordHash
from leveret.security.users import User
from leveret.selectors.parser import compile_selector
from leveret.values import Float32, Int8, Int64, Json, Table, Timestamp, UInt8
from leveret.virtual_host import PREDECLARED
from tests.core.fakes import FakeConsumer, waiting
from tests.durable.site import Site
from tests.harness.bench import message
from tests.harness.passwords import authenticate_password

ARGUMENTS: Table = {
    "x-max-length": Int64(5),
    "x-max-priority": Int8(3),
    "x-dead-letter-exchange": b"\xff",
    "mine": [Timestamp(5), {"": None, "d": Decimal("1.50")}, bytearray(b"a"), UUID(int=1)],
    "more": {"nan": float("nan"), "single": Float32(1.5), "true": True, "u": UInt8(1)},
}


def client_of(site: Site) -> Client:
    guest = site.broker.access.user("guest")
    assert guest is not None
    client = Client(site.broker, guest)
    client.enter("/")
    return client


def names(site: Site) -> tuple[list[str], list[str]]:
    """Exchanges that somebody has declared, and queues."""
    exchanges = site.host.exchanges.keys() - {"", *(name for name, _, _ in PREDECLARED)}
    return sorted(exchanges), sorted(site.host.queues)


class Parsed(dict[str, Json]):
    """A record that can be watched."""

    __hash__ = object.__hash__  # type: ignore[assignment]


def test_a_start_holds_few_parsed_records_at_once(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """There may be a million of them: retained messages of MQTT are records."""
    alive: WeakSet[Parsed] = WeakSet()
    most = 0

    def watched(text: str) -> Json:
        nonlocal most
        found = records.json_in(text)
        if isinstance(found, dict):
            found = Parsed(found)
            alive.add(found)
            most = max(most, len(alive))
        return found

    for number in range(20):
        site.queue(f"q{number}")
    monkeypatch.setattr(restoration, "json_in", watched)
    assert len(names(site.again())[1]) == 20
    assert 0 < most <= 3


# Exchanges and queues.


def test_s069_durable_queues_survive_a_restart_and_transient_ones_do_not(site: Site) -> None:
    site.queue("kept")
    site.host.declare_queue("gone")
    site.publish("", "kept", b"1", b"2")
    after = site.again()
    assert names(after) == ([], ["kept"])
    assert waiting(after.host.queue("kept")) == "1 2"


def test_s034_what_is_predeclared_is_there_once(site: Site) -> None:
    site.queue()
    after = site.again()
    assert after.host.exchanges.keys() == site.host.exchanges.keys()
    assert after.kinds() == ["last-number", "queue"]


def test_durable_exchanges_survive_with_all_their_properties(site: Site) -> None:
    declare = site.host.declare_exchange
    declare("plain", "topic", durable=True)
    declare("all", "x-rare", True, True, True, {"alternate-exchange": "plain", "else": Int8(5)})
    declare("gone", "fanout")
    after = site.again()
    assert names(after) == (["all", "plain"], [])
    assert after.shape() == site.shape()
    assert after.host.exchange("all").alternate == "plain"


def test_s065_arguments_survive_with_their_types(site: Site) -> None:
    """A queue that is declared again after a restart is equal or not as it was before."""
    site.host.declare_queue("q", durable=True, auto_delete=True, arguments=ARGUMENTS)
    after = site.again()
    assert after.shape() == site.shape()
    queue = after.host.queue("q")
    assert after.host.declare_queue("q", durable=True, auto_delete=True, arguments=ARGUMENTS) is queue
    for arguments in ({**ARGUMENTS, "x-max-length": 6}, {**ARGUMENTS, "x-max-priority": None}, {}):
        texts = []
        for each in (site, after):
            with pytest.raises(PreconditionFailed) as refused:
                each.host.declare_queue("q", durable=True, auto_delete=True, arguments=arguments)
            texts.append(str(refused.value))
        assert texts[0] == texts[1]
    with pytest.raises(PreconditionFailed, match="inequivalent arg 'durable'"):
        after.host.declare_queue("q", auto_delete=True, arguments=ARGUMENTS)


def test_s039_an_exchange_that_is_declared_again_after_a_restart_has_to_be_the_same(site: Site) -> None:
    site.exchange("x")
    after = site.again()
    assert after.exchange("x") is after.host.exchange("x")
    with pytest.raises(PreconditionFailed, match="inequivalent arg 'type'"):
        after.exchange("x", "topic")


@pytest.mark.parametrize("name", ["", "\udcff", "\ud83d\ude00", "a\nb", '"', "$", "x" * 255])
def test_s042_names_survive_as_they_are(site: Site, name: str) -> None:
    site.host.declare_queue(name, durable=True, generated=True)
    site.exchange("x" + name)
    site.host.bind(site.host.exchange("x" + name), site.host.queue(name), name)
    assert site.again().shape() == site.shape()


def test_every_kind_of_queue_comes_back_as_that_kind(site: Site) -> None:
    site.queue("classic")
    site.queue("quorum", x_queue_type="quorum")
    site.queue("stream", x_queue_type="stream")
    site.host.declare_queue("sieve", durable=True, selector=compile_selector("h.priority > 4"))
    after = site.again(clean=True)
    assert after.shape() == site.shape()
    sieve = after.host.queue("sieve")
    assert isinstance(sieve, FilteredQueue)
    after.publish("", "sieve", b"too low")
    assert not sieve.ready


def test_s067_an_exclusive_queue_is_never_kept(site: Site) -> None:
    client = client_of(site)
    mine = client.declare_queue("mine", durable=True, exclusive=True)
    client.bind("amq.topic", "mine", False, "#", {})
    assert mine.number == 0
    assert site.again().objects == {}
    client.leave()
    assert site.again().objects == {}


def test_s043_s075_what_is_deleted_is_gone_with_all_that_was_said_of_it(site: Site) -> None:
    site.host.bind(site.exchange(), site.queue(), "k")
    site.settle()
    assert site.kinds() == ["binding", "exchange", "last-number", "queue"]
    site.host.delete_exchange("x")
    site.host.delete_queue(site.host.queue("q"))
    after = site.again()
    assert (names(after), after.kinds()) == (([], []), ["last-number"])


def test_s068_an_auto_delete_queue_waits_for_its_first_consumer_again(site: Site) -> None:
    site.host.declare_queue("q", durable=True, auto_delete=True)
    FakeConsumer(site.host.queue("q"))
    after = site.again()
    after.advance(1e6)
    consumer = FakeConsumer(after.host.queue("q"))
    assert names(after.again()) == ([], ["q"])
    consumer.leave()
    after.settle()
    assert names(after.again()) == ([], [])


def test_s045_an_auto_delete_exchange_waits_for_its_first_binding_again(site: Site) -> None:
    """The only binding that it had did not survive; that was no unbinding."""
    site.host.bind(site.exchange(auto_delete=True), site.host.declare_queue("transient"), "")
    after = site.again()
    assert names(after) == (["x"], [])
    after.host.bind(after.host.exchange("x"), after.queue(), "")
    assert names(after.again()) == (["x"], ["q"])
    after.host.delete_queue(after.host.queue("q"))
    assert names(after.again()) == ([], [])


def test_s045_a_chain_of_auto_delete_exchanges_goes_from_the_store_too(site: Site) -> None:
    one, two = site.exchange("one", auto_delete=True), site.exchange("two", auto_delete=True)
    site.host.bind(one, two, "")
    site.host.bind(two, site.queue(), "")
    site.settle()
    site.host.delete_queue(site.host.queue("q"))
    assert (names(site.again()), site.again().kinds()) == (([], []), ["last-number"])


def test_s081_an_unused_queue_has_its_whole_term_after_a_restart(site: Site) -> None:
    site.queue(x_expires=10_000)
    site.advance(9)
    after = site.again(away_s=1000, recovery_s=20)
    after.advance(9)
    assert names(after) == ([], ["q"])
    after.advance(1)
    assert names(after) == ([], [])
    assert after.again().kinds() == ["last-number"]


# Numbers.


def test_a_number_is_never_used_twice(site: Site) -> None:
    """Also that of a queue that was the last one, and is gone before the node ends."""
    numbers = [site.queue("a").number, site.queue("b").number]
    site.host.delete_queue(site.host.queue("b"))
    after = site.again()
    numbers.append(after.queue("c").number)
    after.host.delete_queue(after.host.queue("c"))
    numbers.append(after.queue("c").number)
    numbers.append(after.again().queue("d").number)
    assert numbers == [1, 2, 3, 4, 5]


def test_a_queue_that_is_declared_again_has_nothing_of_the_former(site: Site) -> None:
    site.publish("", site.queue().name, b"old")
    site.host.delete_queue(site.host.queue("q"))
    site.queue()
    site.publish("", "q", b"new")
    assert waiting(site.again().host.queue("q")) == "new"


def test_only_what_is_kept_has_a_number_and_the_journal(site: Site) -> None:
    transient, durable = site.host.declare_queue("t"), site.queue()
    assert (transient.number, transient.journal) == (0, None)
    assert (durable.number, durable.journal) == (1, site.journal)
    after = site.again()
    assert (after.host.queue("q").number, after.host.queue("q").journal) == (1, after.journal)


# Bindings.


@pytest.mark.parametrize("source_durable", [False, True])
@pytest.mark.parametrize("queue_durable", [False, True])
def test_s059_a_binding_survives_if_both_its_ends_do(site: Site, source_durable: bool, queue_durable: bool):
    source = site.host.declare_exchange("x", "fanout", durable=source_durable)
    site.host.bind(source, site.host.declare_queue("q", durable=queue_durable), "k")
    after = site.again()
    assert names(after) == (["x"] * source_durable, ["q"] * queue_durable)
    assert len(list(after.host.bindings())) == (source_durable and queue_durable)
    assert ("binding" in after.kinds()) is (source_durable and queue_durable)
    assert after.shape() == site.shape()


def test_s056_each_binding_comes_back_as_it_is_and_in_its_order(site: Site) -> None:
    x, y, q = site.exchange("x", "topic"), site.exchange("y", "headers"), site.queue()
    arguments: list[Table] = [
        {},
        {"x-match": "any", "a": 1},
        {"x-match": "any", "a": Int8(2)},
        {"a": b"\xff"},
    ]
    for key in ("b", "a", "#", "b.c", "", "\udcff"):
        site.host.bind(x, q, key)
        site.host.bind(x, y, key)
    for each in arguments:
        site.host.bind(y, q, "k", each)
    site.host.bind(x, x, "self")
    site.host.unbind(x, q, "a")
    site.host.bind(x, q, "a")  # the last one from now on
    site.host.bind(x, q, "b")  # it was there already
    after = site.again()
    assert after.shape() == site.shape()
    assert [binding.key for binding in after.host.exchange("x").bindings][-2:] == ["self", "a"]


def test_bindings_made_after_a_restart_come_behind_the_others(site: Site) -> None:
    x, q = site.exchange(), site.queue()
    site.host.bind(x, q, "1")
    site.host.bind(x, q, "2")
    after = site.again()
    after.host.unbind(after.host.exchange("x"), after.host.queue("q"), "2")
    for key in ("3", "2"):
        after.host.bind(after.host.exchange("x"), after.host.queue("q"), key)
    assert [binding.key for binding in after.again().host.exchange("x").bindings] == ["1", "3", "2"]


def test_s057_what_was_unbound_stays_unbound(site: Site) -> None:
    x, q = site.exchange(), site.queue()
    for key in ("a", "b"):
        site.host.bind(x, q, key)
    site.settle()
    site.host.unbind(x, q, "a")
    after = site.again()
    assert [binding.key for binding in after.host.bindings()] == ["b"]
    after.host.unbind(after.host.exchange("x"), after.host.queue("q"), "b")
    assert list(after.again().host.bindings()) == []


def test_s058_an_exchange_goes_with_its_bindings_on_both_sides(site: Site) -> None:
    x, y, q = site.exchange("x"), site.exchange("y"), site.queue()
    site.host.bind(x, y, "")
    site.host.bind(y, q, "")
    site.host.delete_exchange("y")
    site.host.declare_exchange("y", "fanout", durable=True)
    after = site.again()
    assert (names(after), list(after.host.bindings())) == ((["x", "y"], ["q"]), [])


def test_bindings_of_predeclared_exchanges_survive(site: Site) -> None:
    site.host.bind(site.host.exchange("amq.topic"), site.queue(), "a.#")
    site.host.bind(site.host.exchange("amq.topic"), site.host.exchange("amq.fanout"), "b")
    after = site.again()
    assert after.shape() == site.shape()
    after.publish("amq.topic", "a.b", b"1")
    assert waiting(after.host.queue("q")) == "1"


def test_who_listens_to_events_is_still_bound_when_they_are_off(site: Site) -> None:
    """The exchange is there for his binding's sake: nothing is passed over, nor taken for damage."""
    site.host.bind(event_exchange.add_to(site.host), site.queue(), "user.#")
    off = site.again()
    assert not off.catalogue.incomplete
    [binding] = off.host.exchange(event_exchange.EVENTS).bindings
    assert (binding.key, off.objects) == ("user.#", site.objects)


# One commit.


def test_all_that_is_done_in_one_batch_is_one_commit(site: Site) -> None:
    """Deleting a virtual host with what is in it, as well."""
    host = site.broker.add_virtual_host("two")
    site.broker.access.set_permissions("guest", "two", "", "", "")
    site.broker.policies.set(Policy("p", "two", "", {"max-length": 5}))
    queues = [host.declare_queue(f"q{n}", durable=True) for n in range(10)]
    source = host.declare_exchange("x", "fanout", durable=True)
    for queue in queues:
        host.bind(source, queue, "")
    host.bind(source, source, "")
    commits = site.store.stats().commits
    site.settle()
    assert site.store.stats().commits == commits + 1
    assert site.again().shape() == site.shape()
    site.broker.delete_virtual_host("two")
    site.settle()
    assert site.store.stats().commits == commits + 2
    after = site.again()
    assert (list(after.broker.virtual_hosts), after.kinds()) == (["/"], ["last-number"])
    assert after.broker.add_virtual_host("two").queues == {}
    assert "guest@two" not in after.permissions()


def test_what_is_not_settled_is_not_on_disk(site: Site) -> None:
    site.queue()
    assert names(Site(site.store.reopened())) == ([], [])


def test_a_start_changes_nothing_in_the_store(site: Site) -> None:
    site.host.bind(site.exchange(), site.queue(), "")
    site.broker.access.add_user("u", "secret")
    before, after = site.again(), site.again().again()
    assert (after.objects, after.store.stats().commits) == (before.objects, 0)


def test_answers_are_held_until_a_change_is_on_disk(site: Site) -> None:
    for change in (
        lambda: site.queue(),
        lambda: site.exchange(),
        lambda: site.host.bind(site.host.exchange("x"), site.host.queue("q"), ""),
        lambda: site.host.unbind(site.host.exchange("x"), site.host.queue("q"), ""),
        lambda: site.host.delete_queue(site.host.queue("q")),
        lambda: site.broker.access.add_user("u"),
    ):
        site.journal.holds = False
        change()
        assert site.journal.holds
        site.settle()
    site.journal.holds = False
    site.host.declare_queue("transient")
    site.exchange()  # there already
    assert not site.journal.holds


# Users, permissions, policies, limits.


def test_users_survive_with_their_hashes_and_never_a_password(site: Site) -> None:
    access = site.broker.access
    sha512 = PasswordHash.of("other", b"salt", "rabbit_password_hashing_sha512")
    access.add_user("a", "pass word", ["monitoring", "mine"], UserLimits(3, None))
    access.put_user(User("b", (), sha512, UserLimits(None, 0)))
    access.add_user("none")
    after = site.again()
    assert after.shape() == site.shape()
    assert authenticate_password(after.broker.access, "a", "pass word") is not None
    assert authenticate_password(after.broker.access, "b", "other") is not None
    assert authenticate_password(after.broker.access, "none", "") is None
    assert "pass word" not in json.dumps(after.objects)


def test_permissions_survive_and_go_with_their_user(site: Site) -> None:
    access = site.broker.access
    for user in ("a", "b"):
        access.add_user(user)
        access.set_permissions(user, "/", "^c", "", r".*\w")
        access.set_topic_permissions(user, "/", "amq.topic", "^w", "")
        access.set_topic_permissions(user, "/", "", "^w", "r")
    assert site.again().shape() == site.shape()
    access.clear_topic_permissions("a", "/", "")
    access.delete_user("b")
    after = site.again()
    assert after.shape() == site.shape()
    after.broker.access.clear_permissions("a", "/")
    after.broker.access.clear_topic_permissions("a", "/")
    after.broker.access.add_user("b")
    last = after.again()
    assert (last.users(), last.permissions()) == (["a", "b", "guest"], ["guest@/"])
    assert last.broker.access.topic_permissions() == []


def test_s129_policies_survive_and_hold_for_what_comes_back(site: Site) -> None:
    policies = site.broker.policies
    policies.set(Policy("p", "/", "^q", {"max-length": 3, "alternate-exchange": "a"}, 5, ApplyTo.ALL))
    policies.set(Policy("other", "/", "^q", {"max-length": 1}, 4, ApplyTo.QUEUES))
    policies.set_operator(Policy("p", "/", "", {"message-ttl": 9}))
    site.queue()
    site.exchange("qx")
    site.host.apply_policies()
    after = site.again()
    assert after.shape() == site.shape()
    limits = after.host.queue("q").limits
    assert (limits.max_length, limits.message_ttl_ms) == (3, 9)
    assert after.host.exchange("qx").alternate == "a"
    after.broker.policies.clear("/", "p")
    after.broker.policies.clear_operator("/", "p")
    last = after.again()
    assert (last.policies(), last.broker.policies.list_operator()) == (["other@/"], [])
    assert last.host.queue("q").limits.max_length == 1


def test_virtual_hosts_survive_with_their_limits(site: Site) -> None:
    site.broker.add_virtual_host("a", VirtualHostLimits(3, 5))
    site.broker.add_virtual_host("b").declare_queue("q", durable=True)
    site.broker.add_virtual_host("b", VirtualHostLimits(None, 0))
    after = site.again()
    assert after.shape() == site.shape()
    after.broker.delete_virtual_host("a")
    assert list(after.again().broker.virtual_hosts) == ["b", "/"]


def test_virtual_hosts_are_traced_again_after_a_restart(site: Site) -> None:
    site.broker.add_virtual_host("a").set_tracing(True)
    site.host.set_tracing(True)
    after = site.again()
    assert [host.name for host in after.broker.hosts() if host.tracing] == ["a", "/"]
    after.host.set_tracing(False)
    assert [host.name for host in after.again().broker.hosts() if host.tracing] == ["a"]


def test_a_virtual_host_that_an_earlier_version_kept_is_not_traced() -> None:
    record = records.ObjectRecord({"connections": None, "queues": None})
    assert not record.flag("tracing", otherwise=False)
    with pytest.raises(Unreadable):
        records.ObjectRecord({"tracing": 1}).flag("tracing", otherwise=False)


# What others know of them.


def test_what_a_front_end_notes_of_a_queue_survives_with_it(site: Site) -> None:
    durable, transient = site.queue(), site.host.declare_queue("t")
    for queue in (durable, transient):
        site.host.note(queue, {"mine": {"at": Timestamp(5)}})
    after = site.again()
    assert after.shape() == site.shape()
    queue = after.host.queue("q")
    after.host.note(queue, {})
    last = after.again().host.queue("q")
    assert (last.notes, last.number) == ({}, durable.number)
    after.host.delete_queue(queue)
    after.host.note(queue, {"too": "late"})
    assert names(after.again()) == ([], [])


def test_an_exchange_that_holds_messages_has_a_number_of_its_own(site: Site) -> None:
    x, q = site.exchange(), site.queue()
    x.hold(message())
    assert x.holding is not None
    assert (q.number, x.holding.number) == (1, 2)
    after = site.again()
    holding = after.host.exchange("x").holding
    assert holding is not None
    assert (after.host.queue("q").number, holding.number) == (1, 2)
    assert after.queue("more").number == 3
    transient = site.host.declare_exchange("t", "fanout")
    transient.hold(message())
    assert transient.holding is not None
    assert transient.holding.number == 0


def test_a_paused_queue_is_paused_after_a_restart_until_it_is_resumed() -> None:
    site = Site()
    site.queue("q")
    site.queue("s", x_queue_type="stream")
    for name in ("q", "s"):
        site.host.pause_queue(site.host.queue(name), True)
    after = site.again()
    assert [after.host.queue(name).paused for name in ("q", "s")] == [True, True]
    after.publish("", "q", b"1")
    assert after.host.queue("q").ready == 1
    after.host.pause_queue(after.host.queue("q"), False)
    last = after.again(clean=True)
    assert [last.host.queue(name).paused for name in ("q", "s")] == [False, True]


def test_publish_rates_are_limited_after_a_restart_too() -> None:
    site = Site()
    site.broker.add_virtual_host("two", VirtualHostLimits(max_publish_rate=5))
    site.broker.access.add_user("shop", "shop", limits=UserLimits(max_publish_rate=7))
    after = site.again()
    assert after.broker.virtual_host("two").limits == VirtualHostLimits(max_publish_rate=5)
    user = after.broker.access.user("shop")
    assert user is not None
    assert user.limits == UserLimits(max_publish_rate=7)
