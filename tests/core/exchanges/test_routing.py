"""Routing around the exchange types: hops, alternates, cycles, what is remembered, and types that fail."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from leveret.broker import Outcome
from leveret.config.compat import Compat, MissingAlternate
from leveret.exchanges.destination import Destination
from leveret.exchanges.exchange_type import Exchange, ExchangeType, LooksAt
from leveret.exchanges.fanout import Fanout
from leveret.exchanges.routing import ROUTES_MAX, walk
from leveret.exchanges.standard import STANDARD
from leveret.message import Message
from leveret.policy import Policy
from leveret.queues.queue import Queue
from tests.core.fakes import FakeConsumer, Holding
from tests.harness.bench import CoreBench, message


class Asked(ExchangeType):
    """A fanout that counts, and says that it can be remembered by key."""

    name = "x-asked"
    looks_at = LooksAt.KEY
    asked = 0

    def route(self, message: Message) -> Iterable[Destination]:
        Asked.asked += 1
        return [binding.destination for binding in self.exchange.bindings]


class Broken(ExchangeType):
    """Raises while `Broken.broken`, otherwise a fanout that can be remembered."""

    name = "x-broken"
    looks_at = LooksAt.KEY
    broken = True

    def route(self, message: Message) -> Iterable[Destination]:
        if Broken.broken:
            raise ValueError("out of order")
        return [binding.destination for binding in self.exchange.bindings]


class HalfWay(ExchangeType):
    """Raises after the first destination."""

    name = "x-half-way"

    def route(self, message: Message) -> Iterable[Destination]:
        for binding in self.exchange.bindings:
            yield binding.destination
            raise ValueError("half way")


class Dropping(Holding):
    """Takes every message itself, and fails to."""

    name = "x-dropping"

    def keep(self, message: Message) -> None:
        raise OSError("no room")


class Forgetful(Fanout):
    """A fanout that fails to keep."""

    name = "x-forgetful"

    def keep(self, message: Message) -> None:
        raise OSError("no room")


TYPES = {**STANDARD, **{kind.name: kind for kind in (Asked, Broken, HalfWay, Holding, Dropping, Forgetful)}}


@pytest.fixture
def bench() -> CoreBench:
    Asked.asked, Broken.broken = 0, True
    return CoreBench(TYPES)


def exchange(bench: CoreBench, name: str, type_: str = "fanout", alternate: str | None = None) -> Exchange:
    arguments = {} if alternate is None else {"alternate-exchange": alternate}
    return bench.host.declare_exchange(name, type_, arguments=arguments)


def bound(bench: CoreBench, source: Exchange, name: str, key: str = "") -> Queue:
    queue = bench.host.declare_queue(name)
    bench.host.bind(source, queue, key)
    return queue


def publish(bench: CoreBench, source: Exchange, key: str = "", body: bytes = b"") -> Outcome:
    return bench.broker.publish(source, message(key, body, exchange=source.name))


# Hops and alternates.


def test_s055_a_message_reaches_a_queue_once_by_however_many_ways(bench: CoreBench) -> None:
    source, hop = exchange(bench, "source"), exchange(bench, "hop")
    queue = bound(bench, source, "q", "one")
    for key in ("one", "two"):
        bench.host.bind(source, queue, key)
        bench.host.bind(source, hop, key)
        bench.host.bind(hop, queue, key)
    assert publish(bench, source) is Outcome.TAKEN
    assert queue.ready == 1


def test_s132_the_alternate_gets_only_what_the_exchange_has_no_answer_for(bench: CoreBench) -> None:
    source = exchange(bench, "source", "direct", "rest")
    rest = bound(bench, exchange(bench, "rest"), "rest")
    queue = bound(bench, source, "q", "known")
    publish(bench, source, "known")
    assert (queue.ready, rest.ready) == (1, 0)
    publish(bench, source, "unknown")
    assert (queue.ready, rest.ready) == (1, 1)
    assert source.unroutable == 0


def test_s133_a_hop_that_leads_nowhere_is_an_answer_and_its_own_alternate_is_used(bench: CoreBench) -> None:
    source, hop = exchange(bench, "source", "fanout", "a1"), exchange(bench, "hop", "direct", "a2")
    bench.host.bind(source, hop, "")
    first, second = (bound(bench, exchange(bench, name), name) for name in ("a1", "a2"))
    publish(bench, source)
    assert (first.ready, second.ready) == (0, 1)


def test_s134_alternates_are_a_chain(bench: CoreBench) -> None:
    for n in range(5):
        exchange(bench, f"e{n}", "direct", f"e{n + 1}")
    last = bound(bench, exchange(bench, "e5"), "q")
    publish(bench, bench.host.exchange("e0"), "k")
    assert last.ready == 1


@pytest.mark.parametrize("alternates", [("a",), ("b", "a"), ("b", "c", "b")])
def test_s135_s136_a_cycle_of_alternates_ends_after_each_was_asked_once(
    bench: CoreBench, alternates: tuple[str, ...]
) -> None:
    for name, alternate in zip("abc", alternates, strict=False):
        exchange(bench, name, "x-asked", alternate)
    source = bench.host.exchange("a")
    assert publish(bench, source) is Outcome.UNROUTABLE
    assert (Asked.asked, source.unroutable) == (len(alternates), 1)


def test_s137_an_exchange_reached_by_a_hop_and_as_alternate_is_asked_once(bench: CoreBench) -> None:
    source, empty = exchange(bench, "source"), exchange(bench, "empty", "direct", "both")
    both = exchange(bench, "both", "x-asked")
    bench.host.bind(source, empty, "")
    bench.host.bind(source, both, "")
    queue = bound(bench, both, "q")
    publish(bench, source)
    assert (Asked.asked, queue.ready) == (1, 1)


def test_s131_a_missing_alternate_is_warned_of_once(bench: CoreBench, caplog: pytest.LogCaptureFixture):
    source = exchange(bench, "x", "direct", "none")
    for key in "aab":
        assert publish(bench, source, key) is Outcome.UNROUTABLE
    assert caplog.messages == ["alternate exchange 'none' of exchange 'x' in vhost '/' is missing"]
    bound(bench, exchange(bench, "none"), "q")
    assert publish(bench, source, "a") is Outcome.TAKEN
    bench.host.delete_exchange("none")
    publish(bench, source, "a")
    assert len(caplog.messages) == 1


def test_s131_an_alternate_that_needs_no_binding_is_there_from_its_declaration_on(bench: CoreBench) -> None:
    source = exchange(bench, "x", "direct", "later")
    assert publish(bench, source, "a") is Outcome.UNROUTABLE
    exchange(bench, "later", "x-holding")
    assert publish(bench, source, "a") is Outcome.TAKEN


def test_s131_a_profile_says_nothing_of_it(caplog: pytest.LogCaptureFixture) -> None:
    bench = CoreBench(TYPES, Compat(missing_alternate=MissingAlternate.SILENT))
    publish(bench, exchange(bench, "x", "direct", "none"))
    assert caplog.messages == []


def test_s129_a_policy_gives_an_alternate_to_the_next_message(bench: CoreBench) -> None:
    source = exchange(bench, "x", "direct")
    rest = bound(bench, exchange(bench, "rest"), "q")
    assert publish(bench, source) is Outcome.UNROUTABLE
    bench.broker.policies.set(Policy("p", "/", "^x$", {"alternate-exchange": "rest"}))
    bench.host.apply_policies()
    assert publish(bench, source) is Outcome.TAKEN
    bench.broker.policies.clear("/", "p")
    bench.host.apply_policies()
    assert publish(bench, source) is Outcome.UNROUTABLE
    assert rest.ready == 1


def test_s086_immediate_passes_over_queues_that_cannot_deliver_now(bench: CoreBench) -> None:
    source = exchange(bench, "x", "fanout", "rest")
    idle = bound(bench, source, "idle")
    rest = bound(bench, exchange(bench, "rest"), "rest")
    immediate = message("", b"a")
    assert bench.broker.publish_immediate(source, immediate) is Outcome.UNDELIVERABLE
    consumer = FakeConsumer(rest)
    assert bench.broker.publish_immediate(source, immediate) is Outcome.TAKEN  # S142: by the alternate
    bench.settle()
    assert (idle.ready, consumer.bodies()) == (0, "a")
    assert bench.broker.publish_immediate(exchange(bench, "y"), immediate) is Outcome.UNROUTABLE


# What is remembered.


def test_a_type_is_asked_once_for_each_key_until_the_topology_changes(bench: CoreBench) -> None:
    source = exchange(bench, "x", "x-asked")
    first = bound(bench, source, "1")
    for _ in range(3):
        publish(bench, source, "a")
        publish(bench, source, "b")
    assert Asked.asked == 2
    second = bound(bench, source, "2")
    publish(bench, source, "a")
    assert (Asked.asked, first.ready, second.ready) == (3, 7, 1)


def test_what_passes_a_type_that_looks_at_messages_is_not_remembered(bench: CoreBench) -> None:
    source, hop = exchange(bench, "x", "x-asked"), exchange(bench, "h", "headers")
    bench.host.bind(source, hop, "")
    for _ in range(3):
        publish(bench, source)
    assert Asked.asked == 3


def test_further_keys_are_not_remembered_and_do_not_use_what_is(bench: CoreBench) -> None:
    source = exchange(bench, "x", "direct")
    a, b = bound(bench, source, "a", "a"), bound(bench, source, "b", "b")
    publish(bench, source, "a")
    bench.broker.publish(source, message("a", cc=("b",)))
    publish(bench, source, "a")
    assert (a.ready, b.ready) == (3, 1)


def test_memory_of_routes_is_bounded(bench: CoreBench) -> None:
    source = exchange(bench, "x")
    for n in range(ROUTES_MAX + 10):
        bench.broker.route(source, message(str(n)))
    assert len(source.routes) == 10


# Types that fail.


@pytest.mark.parametrize("type_", ["x-broken", "x-half-way"])
def test_what_a_failing_type_does_not_route_goes_to_the_alternate(
    bench: CoreBench, type_: str, caplog: pytest.LogCaptureFixture
) -> None:
    source = exchange(bench, "x", type_, "rest")
    queue = bound(bench, source, "q")
    rest = bound(bench, exchange(bench, "rest"), "rest")
    for _ in range(3):
        assert publish(bench, source) is Outcome.TAKEN
    assert (source.route_errors, queue.ready, rest.ready) == (3, 0, 3)
    assert caplog.messages == [
        f"exchange 'x' of type {type_} in vhost '/' failed to route; its alternate gets the messages"
    ]
    assert caplog.records[0].exc_info is not None


def test_a_failure_is_not_remembered(bench: CoreBench) -> None:
    source = exchange(bench, "x", "x-broken")
    queue = bound(bench, source, "q")
    assert publish(bench, source) is Outcome.UNROUTABLE
    Broken.broken = False
    assert publish(bench, source) is Outcome.TAKEN
    assert (queue.ready, source.route_errors) == (1, 1)


def test_s151_what_an_exchange_handles_is_taken_and_the_alternate_is_not_for_it(bench: CoreBench) -> None:
    source = exchange(bench, "x", "x-holding", "rest")
    rest = bound(bench, exchange(bench, "rest"), "rest")
    assert publish(bench, source, body=b"a") is Outcome.TAKEN
    assert isinstance(source.type, Holding)
    assert (source.type.held, rest.ready, source.unroutable) == ([b"a"], 0, 0)


def test_what_an_exchange_should_have_held_and_lost_is_refused(bench: CoreBench) -> None:
    """Or the publisher would be told that it is safe."""
    source = exchange(bench, "x", "x-dropping")
    assert publish(bench, source) is Outcome.REFUSED
    assert source.route_errors == 1


def test_an_exchange_on_the_way_keeps_messages_too_once_each(bench: CoreBench) -> None:
    source, holding = exchange(bench, "x"), exchange(bench, "h", "x-holding")
    for key in ("one", "two"):
        bench.host.bind(source, holding, key)
    queue = bound(bench, source, "q")
    for body in (b"a", b"b"):
        publish(bench, source, body=body)
    assert isinstance(holding.type, Holding)
    assert (holding.type.held, queue.ready) == ([b"a", b"b"], 2)


def test_a_type_that_fails_to_keep_is_counted_and_its_queues_have_the_message(
    bench: CoreBench, caplog: pytest.LogCaptureFixture
) -> None:
    source = exchange(bench, "x", "x-forgetful")
    queue = bound(bench, source, "q")
    assert [publish(bench, source) for _ in range(2)] == [Outcome.TAKEN] * 2
    assert (source.route_errors, queue.ready, len(caplog.messages)) == (2, 2, 1)


def test_a_type_that_is_replaced_routes_the_next_message(bench: CoreBench) -> None:
    source = exchange(bench, "x", "x-broken")
    queue = bound(bench, source, "q")
    assert publish(bench, source, "k") is Outcome.UNROUTABLE
    source.replace_type(Asked)
    assert publish(bench, source, "k") is Outcome.TAKEN
    source.replace_type(Holding)
    assert publish(bench, source, "k", b"a") is Outcome.TAKEN
    assert isinstance(source.type, Holding)
    assert (queue.ready, source.type.held) == (1, [b"a"])


def test_a_type_that_fails_to_replace_another_changes_nothing(bench: CoreBench) -> None:
    class Refusing(Fanout):
        def bind(self, binding: object) -> None:
            raise ValueError("no")

    source = exchange(bench, "x", "x-asked")
    queue = bound(bench, source, "q")
    before = source.type
    with pytest.raises(ValueError, match="no"):
        source.replace_type(Refusing)
    assert source.type is before
    assert publish(bench, source) is Outcome.TAKEN
    assert queue.ready == 1


def test_a_walk_changes_nothing(bench: CoreBench) -> None:
    source = exchange(bench, "x", "x-asked")
    queue = bound(bench, source, "q")
    found = walk(source, message("k"))
    assert (found.queues, found.lasting, source.published, queue.ready) == ((queue,), True, 0, 0)
