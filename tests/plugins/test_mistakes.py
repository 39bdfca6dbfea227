"""Exchange types that answer, raise or take what they should not: nobody else is harmed, and no message is lost."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Final

import pytest

from leveret.broker import TAKEN, UNROUTABLE
from leveret.clock import ManualClock
from leveret.errors import PreconditionFailed
from leveret.exchanges.answer import WrongAnswer, listed
from leveret.exchanges.exchange_type import Binding, Exchange, ExchangeType
from leveret.exchanges.explain import explain
from leveret.exchanges.standard import STANDARD
from leveret.message import Message
from leveret.plugins.delayed_message import DelayedMessage
from leveret.queues.queue import Queue
from leveret.testing.fakes import fake_message
from leveret.transaction import Transaction
from leveret.values import Table
from tests.harness.bench import CoreBench
from tests.harness.plain import plain_only


class Unprintable:
    def __repr__(self) -> str:
        raise RuntimeError("no text")


class Shy:
    def __iter__(self) -> Iterator[object]:
        raise LookupError("not today")


def half_way(exchange: Exchange) -> Iterator[object]:
    yield from [binding.destination for binding in exchange.bindings]
    raise ZeroDivisionError("half way")


def leave(code: object) -> object:
    raise SystemExit(code)


def deleted(exchange: Exchange) -> object:
    queue = exchange.virtual_host.broker.virtual_hosts["/"].declare_queue("short-lived")  # type: ignore[attr-defined]
    queue.virtual_host.delete_queue("short-lived")
    return [queue]


def foreign(exchange: Exchange) -> object:
    hosts = exchange.virtual_host.broker.virtual_hosts  # type: ignore[attr-defined]
    return [
        (hosts.get("far") or exchange.virtual_host.broker.add_virtual_host("far")).declare_queue("theirs")
    ]  # type: ignore[attr-defined]


def ends(exchange: Exchange) -> list[object]:
    return [binding.destination for binding in exchange.bindings]


ANSWERS: dict[str, Callable[[Exchange], object]] = {
    "nothing": lambda x: None,
    "a number": lambda x: 42,
    "a fraction": lambda x: 0.5,
    "yes": lambda x: True,
    "text": lambda x: "abc",
    "no text": lambda x: "",
    "bytes": lambda x: b"abc",
    "bindings": lambda x: list(x.bindings),
    "keys": lambda x: [b.key for b in x.bindings],
    "names": lambda x: [b.destination.name for b in x.bindings],
    "a number among them": lambda x: [*ends(x), 42],
    "none among them": lambda x: [None, *ends(x)],
    "lists of them": lambda x: [ends(x)],
    "pairs": lambda x: [(b.key, b.destination) for b in x.bindings],
    "a dict": lambda x: {1: 2},
    "a queue alone": lambda x: ends(x)[0],
    "the exchange alone": lambda x: x,
    "a class": lambda x: [Queue],
    "the type": lambda x: [x.type],
    "a method": lambda x: x.type.route,
    "a generator that fails": half_way,
    "a generator without an end": lambda x: (b for _ in itertools.count() for b in ends(x)),
    "an iterator that fails": lambda x: Shy(),
    "an object that cannot be shown": lambda x: [Unprintable()],
    "a queue that is deleted": deleted,
    "a queue of another virtual host": foreign,
    "an exchange that is not there": lambda x: [Exchange(x.virtual_host, "loose", STANDARD["fanout"])],
    "an error": lambda x: 1 // 0,
    "the end of the process": lambda x: leave(1),
    "a quiet end of the process": lambda x: leave(None),
    "too deep a recursion": lambda x: ANSWERS["too deep a recursion"](x),
    "the wrong attribute": lambda x: x.colour,  # type: ignore[attr-defined]
}


class Wrong(ExchangeType):
    """Answers what the test says."""

    name = "x-wrong"
    answer: Callable[[Exchange], object]

    def route(self, message: Message) -> list[object]:  # type: ignore[override]
        return Wrong.answer(self.exchange)  # type: ignore[return-value]


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> CoreBench:
    monkeypatch.setattr("leveret.exchanges.answer.DESTINATIONS_MAX", 1000)
    types = {
        **STANDARD,
        "x-wrong": Wrong,
        "x-delayed-message": DelayedMessage,
        "x-clumsy": Clumsy,
        "x-slow": Slow,
    }
    return CoreBench(types=types)


def wrong(bench: CoreBench, alternate: bool = True) -> tuple[Exchange, Queue]:
    """An exchange with a binding whose type answers wrongly, and the queue of its alternate."""
    host = bench.host
    host.bind(host.declare_exchange("rest", "fanout"), rest := host.declare_queue("rest"), "")
    arguments: Table = {"alternate-exchange": "rest"} if alternate else {}
    source = host.declare_exchange("wrong", "x-wrong", arguments=arguments)
    host.bind(source, host.declare_queue("q"), "k")
    return source, rest


# Where a thousand destinations are not too many yet, each of its 17 answers takes a quarter of a second.
ENDLESS: Final = "a generator without an end"


@pytest.mark.parametrize(
    "answer", [pytest.param(each, marks=plain_only) if each == ENDLESS else each for each in ANSWERS]
)
def test_whatever_the_answer_is_every_way_in_leads_to_the_alternate(
    bench: CoreBench, answer: str, caplog: pytest.LogCaptureFixture
) -> None:
    source, rest = wrong(bench)
    Wrong.answer = staticmethod(ANSWERS[answer])  # type: ignore[assignment]
    broker, host = bench.broker, bench.host
    assert broker.publish(source, fake_message("k")) is TAKEN
    broker.publish_run(source, [fake_message("k"), fake_message("k")])
    assert broker.publish_immediate(source, fake_message("k")) is not UNROUTABLE
    assert broker.publish_if_room(source, fake_message("k")) is TAKEN
    first = rest.ready
    assert first == 2  # the runs are left to `publish`; nobody consumes for the immediate one

    dying = host.declare_queue("dying", arguments={"x-dead-letter-exchange": "wrong", "x-message-ttl": 10})
    careful = host.declare_queue(
        "careful",
        durable=True,
        arguments={
            "x-queue-type": "quorum",
            "x-overflow": "reject-publish",
            "x-dead-letter-strategy": "at-least-once",
            "x-dead-letter-exchange": "wrong",
            "x-message-ttl": 10,
        },
    )
    for queue in (dying, careful):
        queue.push(fake_message("k"))
    bench.settle()
    bench.advance(1)
    bench.settle()
    assert (dying.ready, careful.ready, rest.ready - first) == (0, 0, 2)

    on_the_way = host.declare_exchange("first", "fanout")
    host.bind(on_the_way, source, "")
    assert broker.publish(on_the_way, fake_message("k")) is TAKEN
    before = host.declare_exchange("before", "direct", arguments={"alternate-exchange": "wrong"})
    assert broker.publish(before, fake_message("k")) is TAKEN
    transaction = Transaction()
    assert transaction.publish(broker, source, fake_message("k"))
    transaction.commit()
    later = host.declare_exchange("later", "x-delayed-message", arguments={"x-delayed-type": "fanout"})
    host.bind(later, source, "")
    assert broker.publish(later, fake_message("k", {"x-delay": 1000})) is TAKEN
    bench.advance(2)
    bench.settle()
    assert rest.ready - first == 6

    assert host.queues["q"].ready == 0
    told = [record for record in caplog.records if "x-wrong" in record.getMessage()]
    assert len(told) == 1
    assert told[0].exc_info or __file__ in told[0].getMessage()
    assert source.route_errors >= 7
    assert explain(host, "wrong", "k").queues == ("rest",)


def test_an_answer_without_an_end_is_stopped(bench: CoreBench) -> None:
    with pytest.raises(WrongAnswer, match=r"route\(\) returned more than \d+ destinations"):
        listed(itertools.repeat(bench.host.declare_queue("q")))


def test_destinations_in_any_collection_are_taken(bench: CoreBench) -> None:
    source, rest = wrong(bench)
    for kind in (list, tuple, set, iter, dict.fromkeys, lambda each: (one for one in each)):
        Wrong.answer = lambda exchange, kind=kind: kind(ends(exchange))  # type: ignore[misc]
        assert bench.broker.publish(source, fake_message("k")) is TAKEN
    assert (bench.host.queues["q"].ready, rest.ready, source.route_errors) == (6, 0, 0)


def test_without_an_alternate_the_publisher_is_told(bench: CoreBench) -> None:
    source, _ = wrong(bench, alternate=False)
    Wrong.answer = lambda exchange: None
    assert bench.broker.publish(source, fake_message("k")) is UNROUTABLE


# Methods that may refuse, and raise something else.


class Clumsy(ExchangeType):
    """Fails where the test says."""

    name = "x-clumsy"
    fails_in = ""
    error: BaseException

    def __init__(self, exchange: Exchange) -> None:
        self._fail("__init__")
        super().__init__(exchange)

    @classmethod
    def _fail(cls, where: str) -> None:
        if where == cls.fails_in:
            raise cls.error

    def route(self, message: Message) -> list[object]:  # type: ignore[override]
        return []

    @classmethod
    def validate(cls, arguments: Table) -> None:
        cls._fail("validate")

    def validate_binding(self, key: str, arguments: Table) -> None:
        self._fail("validate_binding")

    def bind(self, binding: Binding) -> None:
        self._fail("bind")

    def unbind(self, binding: Binding) -> None:
        self._fail("unbind")

    def close(self) -> None:
        self._fail("close")

    def warnings(self, arguments: Table) -> list[str]:
        self._fail("warnings")
        return []

    def binding_warnings(self, arguments: Table) -> list[str]:
        self._fail("binding_warnings")
        return []

    def equivalent(self, arguments: Table) -> str | None:
        self._fail("equivalent")
        return None


@pytest.fixture(params=[KeyError("colour"), SystemExit(3)], ids=["KeyError", "SystemExit"])
def error(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> BaseException:
    monkeypatch.setattr(Clumsy, "error", request.param, raising=False)
    raised: BaseException = request.param
    return raised


@pytest.mark.parametrize("where", ["__init__", "validate"])
def test_a_type_that_fails_to_make_an_exchange_refuses_it(
    bench: CoreBench, where: str, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Clumsy, "fails_in", where)
    with pytest.raises(
        PreconditionFailed,
        match=f"'x-clumsy' failed to make exchange 'c' in vhost '/': {type(error).__name__}",
    ):
        bench.host.declare_exchange("c", "x-clumsy")
    assert "c" not in bench.host.exchanges


@pytest.mark.parametrize("where", ["validate_binding", "bind"])
def test_a_type_that_fails_to_bind_refuses_it(
    bench: CoreBench, where: str, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, queue = bench.host.declare_exchange("c", "x-clumsy"), bench.host.declare_queue("q")
    monkeypatch.setattr(Clumsy, "fails_in", where)
    with pytest.raises(
        PreconditionFailed, match=f"'x-clumsy' failed to bind queue 'q': {type(error).__name__}"
    ):
        bench.host.bind(source, queue, "k")
    assert not source.bindings
    assert not bench.host.bindings_to(queue)


def test_a_type_that_fails_to_compare_refuses_the_declaration(
    bench: CoreBench, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.host.declare_exchange("c", "x-clumsy")
    monkeypatch.setattr(Clumsy, "fails_in", "equivalent")
    with pytest.raises(PreconditionFailed, match=r"'x-clumsy' failed to compare arguments of exchange 'c'"):
        bench.host.declare_exchange("c", "x-clumsy")


def test_a_type_that_fails_to_look_at_arguments_has_one_more_warning(
    bench: CoreBench, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = bench.host.declare_queue("q")
    monkeypatch.setattr(Clumsy, "fails_in", "warnings")
    source = bench.host.declare_exchange("c", "x-clumsy", arguments={"x-a": 1})
    monkeypatch.setattr(Clumsy, "fails_in", "binding_warnings")
    binding = bench.host.bind(source, queue, "k", {"x-b": 1})
    expected = f"the type's own look at the arguments failed: {type(error).__name__}"
    assert binding.warnings()[0].startswith(expected)
    monkeypatch.setattr(Clumsy, "fails_in", "warnings")
    assert source.warnings()[0].startswith(expected)


@pytest.mark.parametrize("where", ["unbind", "close"])
def test_a_type_that_fails_to_hear_of_a_deletion_does_not_stop_it(
    bench: CoreBench, where: str, error: BaseException, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, queue = bench.host.declare_exchange("c", "x-clumsy"), bench.host.declare_queue("q")
    bench.host.bind(source, queue, "k")
    monkeypatch.setattr(Clumsy, "fails_in", where)
    bench.host.unbind(source, queue, "k")
    bench.host.delete_exchange("c")
    assert "c" not in bench.host.exchanges


# Time.


class Slow(ExchangeType):
    """Takes the seconds that the test says, by a clock of the test's."""

    name = "x-slow"
    takes_s: Iterator[float]
    clock: ManualClock

    def route(self, message: Message) -> list[object]:  # type: ignore[override]
        Slow.clock.advance(next(Slow.takes_s))
        return [binding.destination for binding in self.exchange.bindings]


def test_a_type_that_holds_the_node_up_is_named(bench: CoreBench, caplog: pytest.LogCaptureFixture) -> None:
    source, queue = bench.host.declare_exchange("s", "x-slow"), bench.host.declare_queue("q")
    bench.host.bind(source, queue, "k")
    Slow.takes_s, Slow.clock = iter([0.05, 0.2, 0.3, 0.7, 0.0]), bench.clock
    for _ in range(5):
        assert bench.broker.publish(source, fake_message("k")) is TAKEN
    assert (source.slow_calls, source.slowest_s, queue.ready) == (3, 0.7, 5)
    where = f"exchange 's' of type x-slow in vhost '/' held the node up for %d ms in route() ({__file__})"
    assert caplog.messages == [where % 200, where % 700]


def test_how_long_a_call_may_take_is_a_setting(bench: CoreBench) -> None:
    source = bench.host.declare_exchange("s", "x-slow")
    bench.broker.slow_call_s = 1.0
    Slow.takes_s, Slow.clock = iter([0.9, 1.1]), bench.clock
    for _ in range(2):
        bench.broker.publish(source, fake_message("k"))
    assert source.slow_calls == 1


def test_a_new_version_of_a_type_begins_at_zero(bench: CoreBench) -> None:
    source = bench.host.declare_exchange("s", "x-slow")
    Slow.takes_s, Slow.clock = iter([0.9]), bench.clock
    bench.broker.publish(source, fake_message("k"))
    source.replace_type(Wrong)
    assert (source.slow_calls, source.slowest_s) == (0, 0.0)


def test_the_time_of_our_own_types_is_not_taken(bench: CoreBench, monkeypatch: pytest.MonkeyPatch) -> None:
    source = bench.host.declare_exchange("h", "headers")
    assert not source.is_watched
    assert bench.host.declare_exchange("w", "x-slow").is_watched
