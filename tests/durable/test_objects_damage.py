"""What cannot be as it was: types that are missing, declarations that are refused today, records nobody can read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from leveret.config.compat import compat
from leveret.config.config import parse
from leveret.errors import AccessRefused, PreconditionFailed
from leveret.exchanges.exchange_type import Binding, Exchange
from leveret.exchanges.explain import explain
from leveret.exchanges.fanout import Fanout
from leveret.exchanges.missing import Missing
from leveret.exchanges.standard import STANDARD
from leveret.limits import VirtualHostLimits
from leveret.plugins.delayed_message import DelayedMessage
from leveret.policy import Policy
from leveret.security.users import Permission
from leveret.server.plugin_loader import Plugins
from leveret.values import Table
from tests.core.fakes import waiting
from tests.durable.site import TYPES, Rare, Site
from tests.harness.bench import message

RARE = """
from leveret.exchanges.fanout import Fanout
class Rare(Fanout):
    name = "x-rare"
"""


def with_a_rare_exchange() -> Site:
    site = Site()
    site.host.declare_exchange("r", "x-rare", True, True, False, {"alternate-exchange": "other", "mine": 5})
    site.host.bind(site.host.exchange("r"), site.queue("q"), "k", {"a": 1})
    site.host.bind(site.exchange("before"), site.host.exchange("r"), "")
    site.host.bind(site.exchange("other"), site.queue("others"), "")
    return site


# Types that are missing.


def test_an_exchange_whose_type_is_missing_is_not_lost(caplog: pytest.LogCaptureFixture) -> None:
    site = with_a_rare_exchange()
    after = site.again(types=STANDARD)
    assert isinstance(after.host.exchange("r").type, Missing)
    assert after.shape() == site.shape()
    [record] = caplog.records
    assert record.levelname == "ERROR"
    assert record.getMessage() == (
        "exchange 'r' in vhost '/' routes nothing, its alternate gets the messages: type 'x-rare' cannot be used: "
        "no plug-in offers it"
    )
    assert after.objects == site.objects
    last = after.again(types=TYPES)
    assert isinstance(last.host.exchange("r").type, Rare)
    assert last.shape() == site.shape()
    last.publish("r", "k", b"1")
    assert waiting(last.host.queue("q")) == "1"


def test_s131_s132_messages_to_it_go_to_its_alternate(caplog: pytest.LogCaptureFixture) -> None:
    after = with_a_rare_exchange().again(types=STANDARD)
    for exchange in ("r", "before"):
        after.publish(exchange, "k", b"1")
    assert waiting(after.host.queue("others")) == "1 1"
    assert waiting(after.host.queue("q")) == ""
    exchange = after.host.exchange("r")
    assert exchange.route_errors == 2
    assert [line.partition(";")[0] for line in caplog.messages[1:]] == [
        "exchange 'r' of type x-rare in vhost '/' failed to route"
    ]
    told = explain(after.host, "r", "k")
    assert "exchange type 'x-rare' cannot be used: no plug-in offers it" in str(told)


def test_nothing_new_is_bound_to_it_but_what_is_there_can_be_unbound() -> None:
    after = with_a_rare_exchange().again(types=STANDARD)
    exchange, queue = after.host.exchange("r"), after.host.queue("q")
    with pytest.raises(PreconditionFailed, match="exchange type 'x-rare' cannot be used"):
        after.host.bind(exchange, queue, "other")
    with pytest.raises(PreconditionFailed, match="unknown exchange type"):
        after.host.declare_exchange("r", "x-rare", True, True)
    assert after.host.bind(exchange, queue, "k", {"a": 1}) in list(exchange.bindings)
    after.host.unbind(exchange, queue, "k", {"a": 1})  # it was its last, and the exchange is auto-delete
    assert "r" not in after.again(types=TYPES).host.exchanges


def test_a_reload_that_brings_the_type_makes_it_real(tmp_path: Path) -> None:
    after = with_a_rare_exchange().again(types=STANDARD)
    plugins = Plugins([tmp_path], entry_points=lambda group: [])
    after.broker.exchange_types = plugins.exchange_types
    plugins.load()
    (tmp_path / "rare.py").write_text(RARE)
    assert plugins.reload([after.host.exchange("r")]).refused == ()
    assert not isinstance(after.host.exchange("r").type, Missing)
    after.publish("before", "k", b"1")
    assert waiting(after.host.queue("q")) == "1"
    assert after.again(types=TYPES).shape() == after.shape()


def test_a_type_that_is_switched_on_again_makes_it_real_too(tmp_path: Path) -> None:
    (tmp_path / "rare.py").write_text(RARE)
    after = with_a_rare_exchange().again(types=STANDARD)
    plugins = Plugins([tmp_path], ["x-rare"], entry_points=lambda group: [])
    after.broker.exchange_types = plugins.exchange_types
    plugins.load()
    assert plugins.reload([after.host.exchange("r")]).refused == ()
    assert isinstance(after.host.exchange("r").type, Missing)
    plugins.configure([tmp_path], [])
    plugins.reload([after.host.exchange("r")])
    assert not isinstance(after.host.exchange("r").type, Missing)


class Choosy(Fanout):
    """Another version of the type, which does not want what the one before took."""

    name = "x-rare"

    def __init__(self, exchange: Exchange) -> None:
        super().__init__(exchange)
        if exchange.arguments.get("mine") == 5:
            raise ValueError("not 5")


def test_a_type_that_does_not_want_the_exchange_any_more_is_as_if_it_were_missing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    site = with_a_rare_exchange()
    assert site.again(types={**STANDARD, "x-rare": Choosy}).shape() == site.shape()
    assert caplog.messages[0].endswith("type 'x-rare' cannot be used: ValueError: not 5")


def test_an_exchange_that_is_built_on_a_missing_type_is_as_if_its_own_were_missing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    arguments = {"x-delayed-type": "x-rare"}
    site = Site(types={**TYPES, DelayedMessage.name: DelayedMessage})
    site.host.declare_exchange("d", DelayedMessage.name, True, arguments=arguments)
    assert site.again(types={**STANDARD, DelayedMessage.name: DelayedMessage}).shape() == site.shape()
    assert "must be an existing exchange type, not 'x-rare'" in caplog.messages[0]


def test_what_an_exchange_holds_waits_for_its_type() -> None:
    site = Site(types={**TYPES, DelayedMessage.name: DelayedMessage})
    site.host.declare_exchange("d", DelayedMessage.name, True, arguments={"x-delayed-type": "fanout"})
    site.host.bind(site.host.exchange("d"), site.queue("q"), "")
    site.host.exchange("d").hold(message(body=b"1"), 5.0)
    held = site.host.exchange("d").holding
    assert held is not None
    after = site.again(types=STANDARD)
    exchange = after.host.exchange("d")
    exchange.hold_again(held.held)
    after.advance(10)
    assert waiting(after.host.queue("q")) == ""
    exchange.replace_type(DelayedMessage)
    after.advance(10)
    assert waiting(after.host.queue("q")) == "1"
    after.host.delete_exchange("d")


class Deaf(Rare):
    def bind(self, binding: Binding) -> None:
        raise ValueError("no")


def test_a_binding_that_its_type_does_not_take_any_more_stays_in_the_store(caplog: pytest.LogCaptureFixture):
    site = with_a_rare_exchange()
    after = site.again(types={**STANDARD, "x-rare": Deaf})
    assert len(list(after.host.bindings())) == 2
    assert caplog.messages == [
        """passed over, and left in the store: ["binding","/","1"]: exchange type 'x-rare' does not take it: """
        "ValueError('no')"
    ]
    assert after.catalogue.incomplete
    assert after.again(types=TYPES).shape() == site.shape()


# What would be refused today.


def test_what_compatibility_refuses_today_comes_back(caplog: pytest.LogCaptureFixture, site: Site) -> None:
    site.queue("q", x_consumer_timeout=5000)
    site.host.bind(site.exchange("t", "topic"), site.host.queue("q"), "#.#.#")
    site.host.declare_queue("plain", durable=True)
    after = site.again(parse({"compat": {"profile": "rabbitmq-4"}}))
    assert after.host.queue("q").arguments == {"x-consumer-timeout": 5000}
    assert after.host.queue("q").limits.consumer_timeout_ms is None
    assert [binding.key for binding in after.host.bindings()] == ["#.#.#"]
    queue, binding = caplog.messages
    assert queue == (
        "restored, though it could not be declared today: invalid arg 'x-consumer-timeout' for queue 'q' in vhost '/' "
        "of queue type rabbit_classic_queue"
    )
    assert binding.endswith("Topic binding key '#.#.#' uses 3 '#' wildcards, at most 2 are allowed")
    assert after.again(parse({})).shape() == site.shape()
    assert compat("rabbitmq-4").topic_wildcards_max == 2


def test_arguments_that_are_refused_today_are_heeded_as_far_as_they_are_known(
    caplog: pytest.LogCaptureFixture, site: Site
) -> None:
    site.queue("q", x_max_length=5)
    site.queue("none")
    site.settle()
    change(site, '["queue","/","q"]', arguments={"x-max-length": 5, "x-max-priority": 999_999})
    change(site, '["queue","/","none"]', arguments={"x-overflow": "sideways"})
    after = site.again()
    assert after.host.queue("q").limits.max_length == 5
    assert list(after.host.queues) == ["q"]
    assert "999999 is above the maximum 255" in caplog.messages[0]
    assert "'sideways' is not a valid Overflow" in caplog.messages[2]


def test_limits_do_not_keep_back_what_is_there_already(site: Site) -> None:
    host = site.broker.add_virtual_host("two")
    for name in ("a", "b"):
        host.declare_queue(name, durable=True)
        host.declare_exchange(name, "fanout", durable=True)
    host.set_limits(VirtualHostLimits(None, 1))
    assert site.again(parse({"limits": {"exchanges_max": 0}})).shape() == site.shape()


# What cannot be read.


def change(site: Site, key: str, **said: object) -> None:
    site.damage(key, json.dumps({**json.loads(site.objects[key]), **said}))


def furnished() -> Site:
    """A site with one of each kind of object, and another of some kinds."""
    site = Site()
    access, policies = site.broker.access, site.broker.policies
    site.broker.add_virtual_host("two", VirtualHostLimits(5, 5))
    for user in ("a", "b"):
        access.add_user(user, "x")
        access.set_permissions(user, "/", ".*", ".*", ".*")
        access.set_topic_permissions(user, "/", "t", "^w", "^r")
        policies.set(Policy(user, "/", "^p", {"max-length": 5}))
        policies.set_operator(Policy(user, "/", "^p", {"max-length": 9}))
        site.host.bind(site.exchange(f"x-{user}", "topic"), site.queue(f"q-{user}"), "k")
    site.settle()
    return site


KEYS = sorted(
    key for key in furnished().objects if not {"b", "x-b", "q-b", "2"}.intersection(json.loads(key))
)
KEYS.remove('["last-number"]')
DEEP = '{"arguments":' + '{"":' * 700 + "1" + "}" * 701  # read, but not followed to its end
DAMAGE = ["", "{", "5", "[]", "{}", '{"$int8":1}', "9" * 5000, DEEP]


@pytest.mark.parametrize("text", DAMAGE)
@pytest.mark.parametrize("key", KEYS)
def test_one_record_that_cannot_be_read_keeps_nothing_else_back(
    key: str, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It stays in the store; what needs it stays there too."""
    site = furnished()
    site.damage(key, text)
    after = site.again()
    assert any(key in line for line in caplog.messages)
    assert after.catalogue.incomplete
    assert (after.objects, after.host.queue("q-b").number) == (site.objects, 2)
    assert {"b", "guest"} <= set(after.users())
    assert [binding.source.name for binding in after.host.bindings()][-1] == "x-b"
    assert after.again().objects == site.objects


def test_keys_that_nobody_knows_are_named_and_left(caplog: pytest.LogCaptureFixture) -> None:
    site = furnished()
    more = {'["later","x"]': "{}", '["queue","/"]': "{}", "no": "{}", '["binding","/","one"]': "{}"}
    site.store.content.objects.update(more)
    after = site.again()
    assert after.shape() == site.shape()
    assert all(any(key in line for line in caplog.messages) for key in more)
    assert after.objects == site.objects


@pytest.mark.parametrize("missing", ["type", "auto_delete", "internal", "number", "arguments"])
def test_a_record_without_what_it_needs_cannot_be_read(missing: str, caplog: pytest.LogCaptureFixture):
    site = Site()
    site.exchange()
    site.settle()
    key = '["exchange","/","x"]'
    record = json.loads(site.objects[key])
    site.damage(key, json.dumps({name: said for name, said in record.items() if name != missing}))
    assert "x" not in site.again().host.exchanges
    assert caplog.messages[0].endswith(f"'{missing}' is missing")


@pytest.mark.parametrize(
    ("key", "wrong"),
    [
        ("user", {"tags": "a"}),
        ("user", {"tags": [1]}),
        ("user", {"password_hash": "x"}),
        ("user", {"algorithm": "md5"}),
        ("user", {"channels": True}),
        ("policy", {"pattern": "("}),
        ("policy", {"apply_to": "nothing"}),
        ("policy", {"priority": "1"}),
        ("policy", {"definition": {"unheard-of": 1}}),
        ("exchange", {"auto_delete": 1}),
        ("queue", {"number": 1.5}),
        ("queue", {"number": 0}),
        ("queue", {"number": -1}),
        ("queue", {"selector": "color ="}),
        ("queue", {"arguments": []}),
        ("queue", {"notes": None}),
        ("binding", {"source": "nowhere"}),
        ("binding", {"destination": "nowhere"}),
        ("permissions", {"configure": "("}),
        ("permissions", {"read": None}),
    ],
)
def test_a_record_that_says_what_cannot_be_is_passed_over(
    key: str, wrong: Table, caplog: pytest.LogCaptureFixture
) -> None:
    site = furnished()
    key = next(each for each in KEYS if json.loads(each)[0] == key)
    change(site, key, **wrong)
    after = site.again()
    assert any(key in line for line in caplog.messages)
    assert after.objects == site.objects


def test_s088_who_may_use_some_routing_keys_may_use_none_if_it_cannot_be_read_which() -> None:
    site = furnished()
    user = site.broker.access.user("a")
    assert user is not None
    for text in DAMAGE:
        site.damage('["topic-permissions","a","/","t"]', text)
        after = site.again()
        assert after.broker.access.guards_topics(user, "/", "t")
        with pytest.raises(AccessRefused):
            after.broker.access.check_topic(user, "/", next(iter(Permission)), "t", "w")


def test_messages_of_a_queue_that_cannot_be_read_stay_in_the_store() -> None:
    """So does its record, when there is another queue of that name."""
    site = furnished()
    site.publish("", "q-a", b"1", b"2")
    good = site.objects['["queue","/","q-a"]']
    site.damage('["queue","/","q-a"]', "{")
    after = site.again()
    assert after.queue("q-a").number == 3
    after.publish("", "q-a", b"new")
    last = after.again()
    assert waiting(last.host.queue("q-a")) == "new"
    assert last.objects['["unreadable","[\\"queue\\",\\"/\\",\\"q-a\\"]","1"]'] == "{"
    last.damage('["queue","/","q-a"]', good)
    assert waiting(last.again().host.queue("q-a")) == "1 2"


def test_records_that_cannot_be_read_do_not_replace_each_other() -> None:
    site = furnished()
    for text in ("{", "["):
        site.damage('["queue","/","q-a"]', text)
        site = site.again()
        site.queue("q-a")
        site.settle()
    kept = site.again().objects
    assert [text for key, text in kept.items() if json.loads(key)[0] == "unreadable"] == ["{", "["]


def test_a_queue_that_cannot_be_read_takes_its_number_along() -> None:
    """Another must not find its messages, even if nobody knows which was the last number."""
    site = furnished()
    site.publish("", "q-b", b"1")
    site.damage('["queue","/","q-b"]', "{")
    site.damage('["last-number"]', "{")
    after = site.again()
    assert after.queue("new").number == 3
    after.publish("", "new", b"2")
    assert waiting(after.again().host.queue("new")) == "2"


def test_what_was_made_again_meanwhile_is_there_once() -> None:
    site = furnished()
    good = site.objects['["exchange","/","x-a"]']
    site.damage('["exchange","/","x-a"]', "{")
    after = site.again()
    after.host.bind(after.exchange("x-a", "topic"), after.host.queue("q-a"), "k")
    last = after.again()
    assert [binding.key for binding in last.host.exchange("x-a").bindings] == ["k"]
    last.host.unbind(last.host.exchange("x-a"), last.host.queue("q-a"), "k")
    assert list(last.again().host.exchange("x-a").bindings) == []
    assert last.objects['["exchange","/","x-a"]'] == good
