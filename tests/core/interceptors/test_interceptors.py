"""Interceptors: what they change, refuse and count, on every way by which messages are published."""

from __future__ import annotations

import logging
from typing import Any, ClassVar

import pytest

from leveret.broker import Outcome
from leveret.config.config import ConfigError, parse
from leveret.errors import PreconditionFailed
from leveret.exchanges.exchange_type import Exchange
from leveret.interceptor import Interceptor
from leveret.interceptors.chain import BadEntry, Chain, chain_of
from leveret.interceptors.standard import STANDARD
from leveret.message import Facts, Message
from leveret.protocols.amqp091.broker.encoding import ENCODING
from leveret.protocols.amqp091.codec.methods import BasicProperties
from leveret.publishing.portion import publish_portion
from leveret.server.node import start_check
from leveret.server.plugin_loader import BadPlugin, Plugins
from leveret.transaction import Transaction
from leveret.values import Table
from tests.harness.bench import CoreBench, message


class Marks(Interceptor):
    """Adds its option to the header `marks`."""

    name = "x-marks"

    def __init__(self, options: Table, node: str) -> None:
        self.mark = str(options.get("mark", "?"))

    def incoming(self, message: Message, exchange: Exchange, now: float) -> Message:
        return message.saying({"marks": f"{message.header('marks') or ''}{self.mark}"})


class Picky(Interceptor):
    """Refuses bodies that are not `good`, and fails at `odd` ones."""

    name = "x-picky"
    answers: ClassVar[dict[bytes, object]] = {b"none": None, b"text": "text"}

    def incoming(self, message: Message, exchange: Exchange, now: float) -> Message:
        if message.body == b"odd":
            raise SystemExit("a plug-in may raise anything")
        if message.body in self.answers:
            answer: Any = self.answers[message.body]
            return answer
        if message.body != b"good":
            raise PreconditionFailed(f"'{exchange.name}' takes what is good")
        return message


KINDS: dict[str, type[Interceptor]] = {**STANDARD, "x-marks": Marks, "x-picky": Picky}


def chain(bench: CoreBench, *entries: tuple[str, Table]) -> Chain:
    found = chain_of(entries, KINDS, "node-1", bench.broker.clock, 0.1)
    assert found is not None
    bench.broker.intercept(found)
    return found


@pytest.fixture
def bench() -> CoreBench:
    return CoreBench()


def headed() -> Message:
    octets = BasicProperties(headers={"other": 1}).encode()
    return Message(ENCODING, "", "q", octets, b"", Facts(has_headers=True))


def kept_in(bench: CoreBench, name: str) -> Message:
    """Return the only message in a queue."""
    (only,) = bench.host.queue(name).waiting()
    return only.message


def test_interceptors_are_asked_in_order_and_each_sees_what_the_one_before_made(bench: CoreBench) -> None:
    bench.queue()
    chain(bench, ("x-marks", {"mark": "a"}), ("x-marks", {"mark": "b"}))
    bench.broker.publish(bench.host.default_exchange, headed())
    bench.broker.settle()
    kept = kept_in(bench, "q")
    assert (kept.header("marks"), kept.header("other")) == ("ab", 1)


@pytest.mark.parametrize("declared", ["before", "after"])
def test_exchanges_of_any_age_are_covered(bench: CoreBench, declared: str) -> None:
    made = bench.host.declare_exchange("e", "fanout") if declared == "before" else None
    link = chain(bench, ("x-picky", {})).links[0]
    made = made or bench.host.declare_exchange("e", "fanout")
    bench.host.bind(made, queue := bench.queue(), "")
    assert bench.broker.publish(made, message("", b"bad", exchange="e")) is Outcome.REFUSED
    assert bench.broker.publish(made, message("", b"good", exchange="e")) is Outcome.TAKEN
    assert (queue.ready, link.refused, link.errors, made.published) == (1, 1, 0, 2)
    assert (bench.broker.refused_by, bench.broker.refused_for) == ("", "'e' takes what is good")


def test_no_way_of_publishing_goes_around_them(bench: CoreBench) -> None:
    queue, exchange = bench.queue(), bench.host.default_exchange
    bench.publish("q", b"first")  # so that its route is known
    chain(bench, ("x-picky", {}))
    bad = message("q", b"bad")
    broker = bench.broker
    assert broker.publish(exchange, bad) is Outcome.REFUSED
    assert broker.publish_immediate(exchange, bad) is Outcome.REFUSED
    assert broker.publish_if_room(exchange, bad) is Outcome.REFUSED
    assert broker.publish_run(exchange, [bad, bad]) == 0  # each is then published by itself
    assert publish_portion(bench.host, [bad, bad]).taken == 0
    with pytest.raises(PreconditionFailed, match="takes what is good"):
        Transaction().publish(broker, exchange, bad)
    assert queue.ready == 1


def test_a_transaction_holds_what_the_interceptor_made(bench: CoreBench) -> None:
    bench.queue()
    chain(bench, ("x-marks", {"mark": "a"}))
    work = Transaction()
    assert work.publish(bench.broker, bench.host.default_exchange, headed())
    assert work.commit() == 0
    kept = kept_in(bench, "q")
    assert kept.header("marks") == "a"


@pytest.mark.parametrize("body", [b"odd", b"none", b"text"])
def test_mistakes_refuse_the_message_and_are_logged_once(
    bench: CoreBench, body: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    queue = bench.queue()
    link = chain(bench, ("x-picky", {})).links[0]
    with caplog.at_level(logging.ERROR):
        assert bench.publish("q", body, body) == [Outcome.REFUSED] * 2
    assert (queue.ready, link.refused, link.errors) == (0, 2, 2)
    (record,) = caplog.records
    assert "interceptor x-picky failed" in record.getMessage()
    assert __file__ in record.getMessage()


def test_a_dead_letter_is_not_intercepted_again(bench: CoreBench) -> None:
    bench.queue("dead")
    bench.queue("q", x_message_ttl=0, x_dead_letter_exchange="", x_dead_letter_routing_key="dead")
    chain(bench, ("x-marks", {"mark": "a"}))
    bench.broker.publish(bench.host.default_exchange, headed())
    bench.broker.settle()
    kept = kept_in(bench, "dead")
    assert kept.header("marks") == "a"


def test_without_interceptors_exchanges_prepare_nothing(bench: CoreBench) -> None:
    exchange = bench.host.default_exchange
    assert not exchange.prepares
    chain(bench, ("x-picky", {}))
    assert exchange.prepares
    bench.broker.intercept(None)
    assert not exchange.prepares


def test_an_unchanged_interceptor_goes_on_with_its_counters(bench: CoreBench) -> None:
    before = chain(bench, ("x-picky", {}), ("x-marks", {"mark": "a"}))
    before.links[0].refused = 3
    after = chain_of((("x-marks", {"mark": "b"}), ("x-picky", {})), KINDS, "n", bench.broker.clock, 0.1)
    assert after is not None
    after.go_on(before)
    assert [link.refused for link in after.links] == [0, 3]


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        (("x-nothing", {}), "there is no interceptor 'x-nothing'; there are set_header_routing_node"),
        (("x-picky", {"a": 1}), "'a' is no option of interceptor 'x-picky'"),
        (("set_header_timestamp", {"overwrit": True}), "'overwrit' is no option"),
        (("set_header_routing_node", {"overwrite": "yes"}), "`overwrite` is true or false"),
    ],
)
def test_entries_that_cannot_be_followed_say_why(
    bench: CoreBench, entry: tuple[str, Table], reason: str
) -> None:
    with pytest.raises(BadEntry, match=reason) as raised:
        chain_of((("x-marks", {}), entry), KINDS, "n", bench.broker.clock, 0.1)
    assert raised.value.index == 1


def test_a_name_that_nobody_knows_is_found_by_check() -> None:
    config = parse('[[interceptors]]\nname = "set_header_timestamp"\n[[interceptors]]\nname = "x-nothing"\n')
    with pytest.raises(ConfigError, match=r"interceptors\[1\].*there is no interceptor 'x-nothing'"):
        start_check.rehearse(config)


class Nameless(Interceptor):
    def incoming(self, message: Message, exchange: Exchange, now: float) -> Message:
        return message


class Short(Interceptor):
    name = "x-short"

    def incoming(self, message: Message) -> Message:  # type: ignore[override]
        return message


class Waiting(Interceptor):
    name = "x-waiting"

    async def incoming(self, message: Message, exchange: Exchange, now: float) -> Message:  # type: ignore[override]
        return message


@pytest.mark.parametrize(
    ("kind", "fault"),
    [
        (Nameless, "Nameless has no name"),
        (Short, "Short.incoming does not take 3 arguments besides self"),
        (Waiting, "Waiting.incoming is async"),
    ],
)
def test_interceptors_that_cannot_be_used_are_refused_at_boot(kind: type[Interceptor], fault: str) -> None:
    class Point:
        name = value = "x"

        def load(self) -> type[Interceptor]:
            return kind

    plugins = Plugins(entry_points=lambda group: [Point()] if group == "leveret.interceptors" else [])  # type: ignore[list-item]
    with pytest.raises(BadPlugin, match=fault):
        plugins.load()
