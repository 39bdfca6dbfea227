"""A plug-in that raises KeyboardInterrupt ends nothing: it is a mistake like any other, wherever it is called."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from leveret.errors import PLUGIN_MISTAKES, PreconditionFailed
from leveret.exchanges.destination import Destination
from leveret.exchanges.exchange_type import Binding, Exchange, ExchangeType, LooksAt
from leveret.exchanges.standard import STANDARD
from leveret.guests import Guest
from leveret.message import Message
from tests.harness.bench import CoreBench, message


class Interrupting(ExchangeType):
    name = "x-interrupting"
    looks_at = LooksAt.MESSAGE

    def route(self, message: Message) -> Iterable[Destination]:
        raise KeyboardInterrupt

    def unbind(self, binding: Binding) -> None:
        raise KeyboardInterrupt

    def close(self) -> None:
        raise KeyboardInterrupt


class Refusing(Interrupting):
    name = "x-refusing"

    def bind(self, binding: Binding) -> None:
        raise KeyboardInterrupt


class Hearing(Guest):
    name = "x-hearing"

    def __init__(self, home: object) -> None: ...

    def queue_deleted(self, queue: object) -> None:
        raise KeyboardInterrupt


@pytest.fixture
def bench() -> CoreBench:
    return CoreBench({**STANDARD, "x-interrupting": Interrupting, "x-refusing": Refusing})


def declared(bench: CoreBench, type_: str) -> Exchange:
    exchange = bench.host.declare_exchange("x", type_)
    bench.queue("q")
    return exchange


def test_an_exchange_type_interrupts_nothing(bench: CoreBench) -> None:
    exchange = declared(bench, "x-interrupting")
    bench.host.bind(exchange, bench.host.queue("q"), "k")
    bench.broker.publish(exchange, message("k", b"1"))
    bench.host.unbind(exchange, bench.host.queue("q"), "k")
    bench.host.delete_exchange("x")
    assert exchange.route_errors == 3
    assert "x" not in bench.host.exchanges


def test_a_refused_binding_is_not_there(bench: CoreBench) -> None:
    exchange = declared(bench, "x-refusing")
    with pytest.raises(PreconditionFailed):
        bench.host.bind(exchange, bench.host.queue("q"), "k")
    assert list(exchange.bindings) == []


def test_a_guest_interrupts_nothing(bench: CoreBench) -> None:
    bench.broker.guests.let_in(Hearing)
    bench.host.delete_queue(bench.queue("q"))
    assert "q" not in bench.host.queues


def test_what_ends_a_task_is_no_mistake() -> None:
    assert not issubclass(GeneratorExit, PLUGIN_MISTAKES)
