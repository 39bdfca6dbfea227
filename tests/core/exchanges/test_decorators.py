"""Decorators of exchanges: what they hear of, what they add to routes, and what their mistakes do not break."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from leveret.exchange import Attention, Binding, Destination, Exchange, ExchangeDecorator
from leveret.message import Message
from leveret.policy import Policy
from leveret.server.plugin_loader import BadPlugin, Plugins
from leveret.values import Table
from tests.core.fakes import CoreBench
from tests.harness.bench import message

FILE = """
from leveret.exchange import Attention, ExchangeDecorator

class Told(ExchangeDecorator):
    name = "x-told"

    def attention(self, exchange, definition):
        return Attention.EVENTS
"""


class Audited(ExchangeDecorator):
    """Hears of exchanges with the policy key `message-ttl`, and sends what they get to `audit` as well."""

    name = "x-audited"
    attends = Attention.ROUTES

    def __init__(self) -> None:
        self.heard: list[str] = []

    def attention(self, exchange: Exchange, definition: Table) -> Attention:
        return self.attends if "message-ttl" in definition else Attention.NOTHING

    def created(self, exchange: Exchange) -> None:
        self.heard.append(f"created {exchange.name}")

    def deleted(self, exchange: Exchange) -> None:
        self.heard.append(f"deleted {exchange.name}")

    def policy_changed(self, exchange: Exchange) -> None:
        self.heard.append(f"policy {exchange.name}")

    def bound(self, binding: Binding) -> None:
        self.heard.append(f"bound {binding.end.name}")

    def unbound(self, binding: Binding) -> None:
        self.heard.append(f"unbound {binding.end.name}")

    def route(self, exchange: Exchange, message: Message, answer: list[Destination]) -> Iterable[Destination]:
        return [exchange.virtual_host.queues["audit"]]


class Broken(Audited):
    name = "x-broken"

    def bound(self, binding: Binding) -> None:
        raise OSError("no")

    def route(self, exchange: Exchange, message: Message, answer: list[Destination]) -> Iterable[Destination]:
        return ["audit"]  # type: ignore[list-item]


class Stand:
    def __init__(self, decorator: Audited) -> None:
        self.bench = CoreBench()
        self.decorator = decorator
        self.host = self.bench.host
        self.audit = self.bench.queue("audit")
        self.policy("^o")
        self.bench.broker.decorate((decorator,))

    def policy(self, pattern: str) -> None:
        self.bench.broker.policies.set(Policy("p", "/", pattern, {"message-ttl": 60_000}))
        self.host.apply_policies()

    def declared(self, name: str) -> Exchange:
        exchange = self.host.declare_exchange(name, "direct")
        self.host.bind(exchange, self.bench.queue("q"), "k")
        return exchange


def test_a_decorator_hears_of_the_exchanges_that_it_gives_its_attention_to() -> None:
    stand = Stand(Audited())
    orders, other = stand.declared("orders"), stand.declared("other")
    assert stand.decorator.heard == ["created orders", "bound q", "created other", "bound q"]
    stand.decorator.heard.clear()
    stand.policy("^orders")
    assert stand.decorator.heard == ["policy orders", "deleted other"]
    stand.decorator.heard.clear()
    stand.host.unbind(orders, stand.host.queues["q"], "k")
    stand.host.unbind(other, stand.host.queues["q"], "k")
    stand.host.delete_exchange("orders")
    assert stand.decorator.heard == ["unbound q", "deleted orders"]


def test_a_decorator_that_comes_later_hears_of_what_is_there() -> None:
    stand = Stand(Audited())
    stand.declared("orders")
    late = Audited()
    stand.bench.broker.decorate((stand.decorator, late))
    assert late.heard == ["created orders"]
    stand.bench.broker.decorate((late,))
    assert stand.decorator.heard[-1] == "deleted orders"


def test_a_decorator_adds_destinations_and_routes_are_not_remembered() -> None:
    stand = Stand(Audited())
    orders = stand.declared("orders")
    for _ in range(2):
        stand.bench.broker.publish(orders, message("k", b"1"))
    assert (stand.host.queues["q"].ready, stand.audit.ready, len(orders.routes)) == (2, 2, 0)
    plain = stand.declared("plain")
    stand.bench.broker.publish(plain, message("k", b"1"))
    assert (stand.host.queues["q"].ready, stand.audit.ready, len(plain.routes)) == (3, 2, 1)


def test_with_events_only_routes_are_remembered_as_before() -> None:
    decorator = Audited()
    decorator.attends = Attention.EVENTS
    stand = Stand(decorator)
    orders = stand.declared("orders")
    stand.bench.broker.publish(orders, message("k", b"1"))
    assert (stand.audit.ready, len(orders.routes)) == (0, 1)


def test_a_mistake_of_a_decorator_changes_nothing() -> None:
    stand = Stand(Broken())
    orders = stand.declared("orders")
    stand.bench.broker.publish(orders, message("k", b"1"))
    assert (stand.host.queues["q"].ready, orders.route_errors) == (1, 2)


def test_the_decorator_on_the_page_does_what_the_page_says() -> None:
    page = (Path(__file__).parents[3] / "docs" / "exchange-decorators.md").read_text()
    names: dict[str, object] = {"__name__": "page"}
    exec(re.search(r"```python\n(.*?)```", page, re.DOTALL).group(1), names)  # type: ignore[union-attr]
    bench = CoreBench()
    bench.broker.decorate((names["Audited"](),))  # type: ignore[operator]
    audit = bench.queue("audit")
    for name in ("orders.eu", "bills"):
        bench.broker.publish(bench.host.declare_exchange(name, "fanout"), message("k", b"1"))
    assert audit.ready == 1


def test_decorators_come_from_folders_and_packages(tmp_path: Path) -> None:
    (tmp_path / "told.py").write_text(FILE)
    plugins = Plugins([tmp_path], entry_points=lambda group: ())
    plugins.load()
    assert list(plugins.decorators) == ["x-told"]
    assert [each.kind for each in plugins.listed() if each.name == "x-told"] == ["exchange decorator"]
    (tmp_path / "told.py").write_text(
        FILE.replace("def attention(self, exchange, definition)", "def other(self)")
    )
    refused = Plugins([tmp_path], entry_points=lambda group: ())
    with pytest.raises(BadPlugin, match="Told does not define attention"):
        refused.load()
