"""Explanations: what they say, that asking changes nothing, and that they equal deliveries on topologies of all kinds.

Topologies are read from octets: Hypothesis draws those quickly and makes them small when something fails, and every
string of octets means some topology. Chance makes 10 000 others, always the same, in a fraction of the time."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import attrs
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from leveret.broker import TAKEN, Broker
from leveret.clock import ManualClock
from leveret.config.compat import Compat, MissingAlternate
from leveret.errors import NotFound, PreconditionFailed
from leveret.exchanges.destination import Destination
from leveret.exchanges.exchange_type import HANDLED, Binding, Exchange, ExchangeType, Handled
from leveret.exchanges.explain import Explanation, Match, PublishPermission, explain
from leveret.exchanges.standard import STANDARD
from leveret.message import Facts, Message
from leveret.security.users import User
from leveret.testing.fakes import FakeEncoding
from leveret.values import Properties, Table, Value
from leveret.virtual_host import VirtualHost
from tests.core.exchanges.test_exchanges import header_match
from tests.core.exchanges.test_exchanges import matches as topic_match
from tests.harness.seldom import elsewhere

# What is said.


class Failing(ExchangeType):
    name = "x-failing"

    def route(self, message: Message) -> list[Destination]:
        raise ValueError("out of order")


class Taking(ExchangeType):
    name = "x-taking"
    kept = 0

    def route(self, message: Message) -> Handled:
        return HANDLED

    def keep(self, message: Message) -> None:
        Taking.kept += 1


class Everywhere(ExchangeType):
    name = "x-everywhere"

    def route(self, message: Message) -> list[Destination]:
        return [binding.destination for binding in self.exchange.bindings]


TYPES = {**STANDARD, **{kind.name: kind for kind in (Failing, Taking, Everywhere)}}


@pytest.fixture
def host() -> VirtualHost:
    return Broker(ManualClock(), exchange_types=TYPES).add_virtual_host("/")


def exchange(host: VirtualHost, name: str, type_: str = "direct", alternate: str | None = None) -> Exchange:
    arguments = {} if alternate is None else {"alternate-exchange": alternate}
    return host.declare_exchange(name, type_, arguments=arguments)


def bound_queue(
    host: VirtualHost, name: str, source: str, key: str = "", arguments: Table | None = None
) -> None:
    host.bind(host.exchanges[source], host.declare_queue(name), key, arguments)


def test_each_binding_that_matched_is_named(host: VirtualHost) -> None:
    exchange(host, "orders", "topic")
    for key in ("eu.*", "#", "us.*"):
        bound_queue(host, "q", "orders", key)
    bound_queue(host, "eu", "orders", "eu.#")
    told = explain(host, "orders", "eu.new")
    assert set(told.queues) == {"eu", "q"}
    assert [(match.name, match.key) for match in told.steps[0].matched] == [
        ("q", "eu.*"),
        ("q", "#"),
        ("eu", "eu.#"),
    ]
    assert told.steps[0].reason == ""
    assert told.dropped is None


def test_headers_are_looked_at_and_their_bindings_show_arguments(host: VirtualHost) -> None:
    exchange(host, "kinds", "headers")
    bound_queue(host, "q", "kinds", arguments={"x-match": "any", "kind": "invoice"})
    assert explain(host, "kinds", "", {"kind": "invoice"}).steps[0].matched == (
        Match("queue", "q", "", {"x-match": "any", "kind": "invoice"}),
    )
    assert (
        explain(host, "kinds", "", {"kind": "order"}).dropped
        == "exchange 'kinds': no binding matches the message"
    )


def test_the_default_exchange_leads_to_the_queue_of_that_name(host: VirtualHost) -> None:
    host.declare_queue("q")
    assert explain(host, "", "q").steps[0].matched == (Match("queue", "q", "q", {}),)
    assert explain(host, "", "p").dropped == "the default exchange: there is no queue 'p'"


def test_hops_name_the_exchange_they_come_from_and_are_made_once(host: VirtualHost) -> None:
    a, b = exchange(host, "a", "fanout"), exchange(host, "b", "fanout")
    host.bind(a, b, "one")
    host.bind(a, b, "two")
    host.bind(b, a, "back")
    told = explain(host, "a", "k")
    assert [(step.exchange, step.via, step.source) for step in told.steps] == [
        ("a", "publish", None),
        ("b", "binding", "a"),
    ]
    assert [(m.key, m.followed) for step in told.steps for m in step.matched] == [
        ("one", True),
        ("two", False),
        ("back", False),
    ]
    assert told.dropped == "exchange 'b': it is bound only to exchanges that have been asked before"


ALTERNATES = [
    (None, "exchange 'a': nothing is bound"),
    ("none", "exchange 'a': nothing is bound; the alternate 'none' does not exist"),
    ("a", "exchange 'a': nothing is bound; the alternate 'a' has been asked before"),
    ("b", "exchange 'b': no binding matches 'k'"),
]


@pytest.mark.parametrize(("alternate", "dropped"), ALTERNATES)
def test_s131_s136_what_became_of_an_alternate_is_told(
    host: VirtualHost, alternate: str | None, dropped: str, caplog: pytest.LogCaptureFixture
) -> None:
    exchange(host, "a", "fanout", alternate)
    exchange(host, "b")
    bound_queue(host, "q", "b", "other")
    told = explain(host, "a", "k")
    assert (told.dropped, told.steps[0].alternate) == (dropped, alternate)
    assert [(step.via, step.source) for step in told.steps[1:]] == [("alternate", "a")] * (alternate == "b")
    assert caplog.messages == []  # the warning is for a message that was really lost
    assert host.exchanges["a"].warned_alternate is None


def test_a_type_that_fails_is_told_not_counted(host: VirtualHost, caplog: pytest.LogCaptureFixture) -> None:
    failing = exchange(host, "f", "x-failing", "rest")
    exchange(host, "rest", "fanout")
    bound_queue(host, "q", "rest")
    told = explain(host, "f")
    assert told.queues == ("q",)
    assert told.steps[0].reason == (
        "the type x-failing failed: ValueError: out of order; the alternate 'rest' is asked"
    )
    assert (failing.route_errors, caplog.messages) == (0, [])


def test_a_type_that_takes_the_message_itself_is_not_given_it(host: VirtualHost) -> None:
    exchange(host, "t", "x-taking", "rest")
    told = explain(host, "t")
    assert (told.routed, told.handled, told.queues) == (True, True, ())
    assert told.steps[0].reason == "takes the message itself"
    assert Taking.kept == 0


def test_of_a_plug_in_the_destinations_are_told_and_the_binding_if_there_is_only_one(host: VirtualHost):
    exchange(host, "all", "x-everywhere")
    for name, key in (("q", "a"), ("q", "b"), ("p", "c")):
        bound_queue(host, name, "all", key)
    assert [(m.name, m.key) for m in explain(host, "all").steps[0].matched] == [("q", None), ("p", "c")]


def test_s091_cc_and_bcc_are_keys_and_bcc_is_seen_by_nobody(host: VirtualHost) -> None:
    for name in ("a", "b", "c"):
        host.declare_queue(name)
    told = explain(host, "", "a", {"CC": ["b"], "BCC": [b"c", 1]})
    assert told.keys == told.queues == ("a", "b", "c")
    exchange(host, "h", "headers")
    bound_queue(host, "a", "h", arguments={"x-match": "any", "BCC": None})
    bound_queue(host, "b", "h", arguments={"x-match": "any", "CC": None})
    assert explain(host, "h", "", {"CC": ["b"], "BCC": ["c"]}).queues == ("b",)
    with pytest.raises(PreconditionFailed, match="unacceptable type 'longstr' in header 'CC'"):
        explain(host, "", "a", {"CC": "b"})


def test_an_exchange_that_is_not_there_cannot_be_explained(host: VirtualHost) -> None:
    with pytest.raises(NotFound, match="no exchange 'none' in vhost '/'"):
        explain(host, "none")


# Permissions.

WRITE = "write access to exchange 'amq.topic' in vhost '/' refused for user 'shop'"
TOPIC = "write access to topic 'b' in exchange 'amq.topic' in vhost '/' refused for user 'shop'"
PERMITTED: list[tuple[str, str | None, dict[str, Value], str | None]] = [
    ("", None, {}, WRITE),
    ("amq.*", None, {}, None),
    ("amq.*", "^a$", {}, None),
    ("amq.*", "^a$", {"CC": ["b"]}, TOPIC),
    ("amq.*", "^a$", {"BCC": ["b"]}, TOPIC),
]


@pytest.mark.parametrize(("write", "topic", "headers", "refusal"), PERMITTED)
def test_s087_s088_what_a_user_may_not_publish_is_not_routed(
    host: VirtualHost, write: str, topic: str | None, headers: Table, refusal: str | None
) -> None:
    user = permitted(host, write, topic)
    bound_queue(host, "q", "amq.topic", "#")
    told = explain(host, "amq.topic", "a", headers, user=user)
    assert told.permission == PublishPermission("shop", refusal is None, refusal)
    assert told.dropped == refusal
    assert told.queues == (("q",) if refusal is None else ())
    assert told.steps[0].matched[0].name == "q"  # what it would be, if it were allowed


def permitted(host: VirtualHost, write: str, topic: str | None) -> User:
    access = host.broker.access
    user = access.add_user("shop")
    access.set_permissions("shop", "/", "", write, "")
    if topic is not None:
        access.set_topic_permissions("shop", "/", "amq.topic", topic, "")
    return user


def test_s047_nobody_publishes_to_an_internal_exchange(host: VirtualHost) -> None:
    refusal = "cannot publish to internal exchange 'amq.rabbitmq.trace' in vhost '/'"
    assert explain(host, "amq.rabbitmq.trace").permission == PublishPermission(None, False, refusal)


def test_without_a_user_permissions_are_not_checked(host: VirtualHost) -> None:
    assert explain(host, "amq.topic").permission == PublishPermission(None, None)


# As JSON.


def test_an_explanation_is_json(host: VirtualHost) -> None:
    exchange(host, "a", "headers", "gone")
    odd: dict[str, Value] = {"x-match": "any", "n": float("inf"), "b": b"\xff", "l": [1, None, {"t": True}]}
    bound_queue(host, "q", "a", arguments=odd)
    told = explain(host, "a", "k", {"b": b"\xff"})
    assert json.loads(json.dumps(told.to_json(), allow_nan=False)) == {
        "routed": True,
        "virtual_host": "/",
        "exchange": "a",
        "keys": ["k"],
        "queues": ["q"],
        "paused": [],
        "handled": False,
        "steps": [
            {
                "exchange": "a",
                "type": "headers",
                "via": "publish",
                "source": None,
                "matched": [
                    {
                        "kind": "queue",
                        "name": "q",
                        "key": "",
                        "arguments": {
                            "x-match": "any",
                            "n": "inf",
                            "b": "\\xff",
                            "l": [1, None, {"t": True}],
                        },
                        "followed": True,
                    }
                ],
                "alternate": None,
                "outcome": "",
                "reason": "",
                "unmet": [],
            }
        ],
        "dropped": None,
        "permission": {"user": None, "allowed": None, "reason": None},
    }


# The handbook.

PAGE = (Path(__file__).parents[3] / "docs" / "explain.md").read_text()


def test_the_example_of_the_handbook_prints_what_it_says(capsys: pytest.CaptureFixture[str]) -> None:
    example = re.search(r"```python\n(.*?)```\n\n```text\n(.*?)```", PAGE, re.DOTALL)
    assert example is not None
    exec(compile(example[1], "docs/explain.md", "exec"), {})
    assert capsys.readouterr().out == example[2]


# Equal to delivery.

EXCHANGES = ("e0", "e1", "e2", "e3", "e4", "e5")
QUEUES = ("q0", "q1", "q2", "q3")
KINDS = ("direct", "fanout", "topic", "headers")
KEYS = ("a", "a.b", "b", "", "q0", "q1", "a.a.b", "*")
PATTERNS = ("a", "#", "*", "a.*", "", "#.b", "a.#.b", "*.#", "q0")
CRITERIA: tuple[dict[str, Value], ...] = (
    {},
    {"x-match": "any", "h": 1},
    {"h": 1, "k": "x"},
    {"x-match": "any", "k": None},
    {"x-match": "any"},
    {"x-match": "all-with-x", "x-h": 2},
    {"h": 2},
)
HEADERS: tuple[dict[str, Value], ...] = (
    {},
    {"h": 1},
    {"h": 1, "k": "x"},
    {"k": "y", "x-h": 2},
    {"h": 2, "CC": ["b", "q1"]},
    {"BCC": ["a.b"], "h": 1},
)


class Octets:
    """Numbers read off a string of octets; zeros at its end."""

    def __init__(self, octets: bytes) -> None:
        self._octets = iter(octets)
        self.ended = False

    def below(self, limit: int) -> int:
        octet = next(self._octets, None)
        self.ended = self.ended or octet is None
        return (octet or 0) % limit


def build(octets: Octets) -> VirtualHost:
    """A virtual host with up to six exchanges, alternates (also missing, cyclic, themselves), queues and bindings."""
    host = Broker(ManualClock(), compat=Compat(missing_alternate=MissingAlternate.SILENT)).add_virtual_host(
        "/"
    )
    exchanges = EXCHANGES[: 1 + octets.below(len(EXCHANGES))]
    for name in exchanges:
        alternate = (*EXCHANGES, "missing", None, None)[octets.below(9)]
        exchange(host, name, KINDS[octets.below(4)], alternate)
    destinations: list[Destination] = [host.declare_queue(name) for name in QUEUES]
    destinations += [host.exchanges[name] for name in exchanges]
    while not octets.ended:
        source = host.exchanges[exchanges[octets.below(len(exchanges))]]
        destination = destinations[octets.below(len(destinations))]
        arguments = CRITERIA[octets.below(len(CRITERIA))] if source.type.name == "headers" else {}
        host.bind(source, destination, PATTERNS[octets.below(len(PATTERNS))], arguments)
    return host


@attrs.frozen
class Published:
    exchange: str
    key: str
    headers: Table

    def message(self) -> Message:
        cc, bcc = (tuple(map(str, self._listed(name))) for name in ("CC", "BCC"))
        seen = {name: value for name, value in self.headers.items() if name != "BCC"}
        facts = Facts(cc=cc, bcc=bcc, has_headers=bool(self.headers))
        return Message(FakeEncoding(Properties(headers=seen)), self.exchange, self.key, b"", b"", facts)

    def _listed(self, name: str) -> list[Value]:
        found = self.headers.get(name, [])
        assert isinstance(found, list)
        return found


def publishes(host: VirtualHost, octets: Octets) -> Iterator[Published]:
    """Something to each exchange, the default one included."""
    for name in ("", *(name for name in EXCHANGES if name in host.exchanges)):
        yield Published(name, KEYS[octets.below(len(KEYS))], HEADERS[octets.below(len(HEADERS))])


def defined_match(binding: Binding, message: Message) -> bool:
    """Whether a binding matches, by the definitions of the four types."""
    kind = binding.source.type.name
    if kind == "fanout":
        return True
    if kind == "headers":
        return header_match(binding.arguments, message.headers)
    if kind == "direct":
        return binding.key in message.keys
    return any(topic_match(words(binding.key), words(key)) for key in message.keys)


def words(key: str) -> list[str]:
    return key.split(".") if key else []


def require_agreement(host: VirtualHost, told: Explanation, message: Message) -> None:
    """Publish for real, and compare."""
    before = {queue.name: queue.ready for queue in host.queues.values()}
    outcome = host.broker.publish(host.exchanges[told.exchange], message)
    received = {queue.name: queue.ready - before[queue.name] for queue in host.queues.values()}
    assert {name for name, count in received.items() if count} == set(told.queues)
    assert max(received.values()) <= 1
    assert told.routed is (outcome is TAKEN)
    assert (told.dropped is None) is told.routed


def require_true_steps(host: VirtualHost, told: Explanation, message: Message) -> None:
    """The steps hang together, and name the bindings that match by definition."""
    assert len({step.exchange for step in told.steps}) == len(told.steps)
    matched = [match for step in told.steps for match in step.matched]
    assert {match.name for match in matched if match.kind == "queue"} == set(told.queues)
    hops = [match.name for match in matched if match.kind == "exchange" and match.followed]
    assert sorted(hops) == sorted(step.exchange for step in told.steps if step.via == "binding")
    for step in told.steps:
        bindings = host.exchanges[step.exchange].bindings
        expected = [(b.destination.name, b.key, b.arguments) for b in bindings if defined_match(b, message)]
        if step.exchange:
            assert [(match.name, match.key, match.arguments) for match in step.matched] == expected
        assert bool(step.outcome) is (
            not step.matched and host.exchanges[step.exchange].alternate is not None
        )


PROFILE = settings.get_current_profile_name()


@settings(
    max_examples=10_000 if PROFILE in ("long", "nightly") else 400,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
@given(st.binary(min_size=24, max_size=96), st.binary(max_size=14))
def test_an_explanation_equals_the_delivery(topology: bytes, messages: bytes) -> None:
    compare(topology, messages)


THOUSANDS: Final = range(1 if PROFILE in ("dev", "again") else 10)
BESIDE: Final = [pytest.param(each, marks=elsewhere) for each in THOUSANDS[2:]]


@pytest.mark.parametrize("thousand", [*THOUSANDS[:2], *BESIDE])
def test_an_explanation_equals_the_delivery_on_ten_thousand_topologies(thousand: int) -> None:
    for seed in range(1000 * thousand, 1000 * (thousand + 1)):
        chance = random.Random(seed)
        topology = chance.randbytes(chance.randrange(24, 97))
        try:
            compare(topology, chance.randbytes(chance.randrange(15)))
        except AssertionError as error:
            error.add_note(f"seed {seed}")
            raise


def compare(topology: bytes, messages: bytes) -> None:
    host = build(Octets(topology))
    for published in publishes(host, Octets(messages)):
        message = published.message()
        told = explain(host, published.exchange, published.key, published.headers)
        require_true_steps(host, told, message)
        require_agreement(host, told, message)
