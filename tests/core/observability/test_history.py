"""Histories: samples of what has changed, rates from them, bounded, and taken a little at a time."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from leveret.broker import Broker
from leveret.clock import MOST, ManualClock, Turn
from leveret.exchanges.exchange_type import HANDLED, Exchange, ExchangeType, Handled
from leveret.exchanges.standard import STANDARD
from leveret.message import Message
from leveret.observability.counts import EXCHANGE, QUEUE, TOTAL, queue_counts
from leveret.observability.history import INTERVAL_S, KEPT, LAYERS, History, Layers, Series
from leveret.queues.queue import Queue
from leveret.transaction import Transaction
from tests.core.fakes import FakeConsumer, fetched
from tests.harness.bench import ENCODING, CoreBench


class Chronicle:
    """A broker with a history, and time that passes when told."""

    def __init__(self, series_max: int = 4000) -> None:
        self.clock = ManualClock()
        self.broker = Broker(self.clock)
        self.host = self.broker.add_virtual_host("/")
        self.history = History(self.broker, series_max=series_max)
        self.history.start()
        self.advance(0)

    def advance(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.broker.tick()
        self.broker.settle()

    def interval(self, count: int = 1) -> None:
        """Until that many more rounds have ended."""
        wanted = self.history.tick + count
        while self.history.tick < wanted:
            self.advance(0.5)

    def queue(self, name: str = "q") -> Queue:
        return self.host.declare_queue(name)

    def publish(self, count: int, name: str = "q") -> None:
        for _ in range(count):
            self.broker.publish(self.host.exchange(""), Message(ENCODING, "", name, b"", b"hello"))
        self.broker.settle()

    def series(self, thing: object) -> Series:
        found = self.history.series(thing)
        assert found is not None
        return found

    def published(self, thing: object, ticks_ago: int = 0) -> int:
        series = self.series(thing)
        return series.at(self.history.tick - ticks_ago)[series.columns.index("publish")]

    def published_in(self, exchange: Exchange) -> int:
        return self.series(exchange).last[EXCHANGE.index("publish_in")]

    def total(self, name: str) -> int:
        return self.history.total.back(1).last[TOTAL.index(name)]


@pytest.fixture
def chronicle() -> Chronicle:
    return Chronicle()


def test_a_sample_is_taken_at_every_interval(chronicle: Chronicle) -> None:
    queue = chronicle.queue()
    for _ in range(3):
        chronicle.publish(2)
        chronicle.interval()
    assert [chronicle.published(queue, ago) for ago in range(4)] == [6, 4, 2, 0]
    assert chronicle.history.tick == 4
    assert chronicle.clock.now() == pytest.approx(3 * INTERVAL_S, abs=0.5)


def test_what_is_new_began_with_nothing(chronicle: Chronicle) -> None:
    chronicle.interval()
    queue = chronicle.queue()
    chronicle.publish(5)
    chronicle.interval()
    assert [chronicle.published(queue, ago) for ago in (0, 1)] == [5, 0]


def test_what_comes_or_goes_between_rounds_is_noticed(chronicle: Chronicle) -> None:
    chronicle.interval(2)
    exchange = chronicle.host.declare_exchange("x", "fanout")
    exchange.published = 3
    chronicle.interval()
    assert chronicle.published_in(exchange) == 3
    chronicle.host.bind(exchange, chronicle.queue(), "")
    chronicle.publish(2)
    chronicle.interval()
    assert chronicle.published(chronicle.queue()) == 2
    chronicle.host.delete_exchange("x")
    chronicle.host.declare_exchange("y", "fanout").published = 5
    chronicle.interval()
    assert chronicle.history.series(exchange) is None
    assert chronicle.published_in(chronicle.host.exchange("y")) == 5


def test_rounds_without_change_list_nothing_anew(chronicle: Chronicle) -> None:
    chronicle.queue()
    chronicle.interval()
    (things,) = chronicle.history._there.values()
    before = things.queues
    chronicle.publish(1)
    chronicle.interval(2)
    (things,) = chronicle.history._there.values()
    assert things.queues is before


def test_what_was_there_at_the_beginning_was_as_it_was_found() -> None:
    chronicle = Chronicle.__new__(Chronicle)
    chronicle.clock = ManualClock()
    chronicle.broker = Broker(chronicle.clock)
    chronicle.host = chronicle.broker.add_virtual_host("/")
    queue = chronicle.queue()
    chronicle.publish(5)
    chronicle.history = History(chronicle.broker)
    chronicle.history.start()
    chronicle.advance(0)
    assert [chronicle.published(queue, ago) for ago in (0, 1)] == [5, 5]


def test_what_has_not_changed_gets_no_new_sample(chronicle: Chronicle) -> None:
    queue = chronicle.queue()
    chronicle.publish(1)
    chronicle.interval()
    samples = len(chronicle.series(queue))
    chronicle.interval(5)
    assert len(chronicle.series(queue)) == samples
    assert chronicle.published(queue) == 1


def test_what_is_idle_from_the_beginning_has_no_series(chronicle: Chronicle) -> None:
    queue = chronicle.queue()
    chronicle.interval(2)
    assert chronicle.history.series(queue) is None
    assert len(chronicle.history) == 0


def test_what_is_deleted_is_forgotten_after_the_next_round(chronicle: Chronicle) -> None:
    queue = chronicle.queue()
    chronicle.publish(1)
    chronicle.interval()
    chronicle.host.delete_queue(queue)
    chronicle.interval()
    assert chronicle.history.series(queue) is None


def test_who_changed_longest_ago_is_forgotten_first() -> None:
    chronicle = Chronicle(series_max=4)  # one of them the virtual host, one the default exchange
    queues = [chronicle.queue(name) for name in "abc"]
    chronicle.publish(1, "a")
    chronicle.publish(1, "b")
    chronicle.interval()
    for _ in range(2):
        chronicle.publish(1, "a")
        chronicle.publish(1, "c")
        chronicle.interval()
    assert [chronicle.history.series(queue) is not None for queue in queues] == [True, False, True]
    assert len(chronicle.history) == 4


def test_what_is_idle_does_not_drive_out_what_is_not() -> None:
    chronicle = Chronicle(series_max=3)
    busy = chronicle.queue("busy")
    for number in range(20):
        chronicle.queue(f"idle {number}")
    chronicle.publish(1, "busy")
    chronicle.interval()
    for number in range(20):
        chronicle.publish(1, f"idle {number}")
    for _ in range(5):
        chronicle.publish(1, "busy")
        chronicle.interval()
    assert [chronicle.published(busy, ago) for ago in range(4)] == [6, 5, 4, 3]


def test_what_is_known_to_be_idle_is_forgotten_when_it_is_deleted() -> None:
    chronicle = Chronicle(series_max=3)
    queues = [chronicle.queue(name) for name in "abcdef"]
    for queue in queues:
        chronicle.publish(1, queue.name)
    chronicle.interval()
    assert set(chronicle.history._idle) > {queues[-1]}
    for queue in queues:
        chronicle.host.delete_queue(queue)
    chronicle.interval()
    assert not set(chronicle.history._idle) & set(queues)


def test_what_comes_back_after_it_was_forgotten_has_no_sudden_rise() -> None:
    chronicle = Chronicle(series_max=3)
    queue = chronicle.queue("a")
    chronicle.queue("b")
    chronicle.publish(100, "a")
    chronicle.interval()
    for _ in range(2):
        chronicle.publish(1, "b")
        chronicle.interval()
    assert chronicle.history.series(queue) is None
    chronicle.publish(1, "a")
    chronicle.interval()
    assert [chronicle.published(queue, ago) for ago in (0, 1)] == [101, 101]


def test_a_series_keeps_so_many_samples() -> None:
    series = Series(("a", "b"))
    for tick in range(1000):
        series.add(tick, (tick, 2 * tick))
    assert len(series) == KEPT
    assert list(series.at(999)) == [999, 1998]
    assert list(series.at(0)) == [1000 - KEPT, 2 * (1000 - KEPT)]  # as far back as it goes


def test_between_samples_the_last_one_holds() -> None:
    series = Series(("a",))
    series.add(2, (10,))
    series.add(5, (20,))
    assert [series.at(tick)[0] for tick in range(7)] == [10, 10, 10, 10, 10, 20, 20]


def test_older_samples_of_everything_are_fewer_but_there() -> None:
    layers = Layers(("a",))
    day = 86_400 // 5
    for tick in range(1, day + 1):
        layers.add(tick, (tick,))
    assert layers.back(1).at(day - 1)[0] == day - 1
    for seconds, apart in ((600, 1), (3600, 12), (28_800, 120), (86_000, 360)):
        ticks = seconds // 5
        found = layers.back(ticks).at(day - ticks)[0]
        assert day - ticks - apart < found <= day - ticks
    kept = sum(len(series) for _, _, series in layers._layers)
    assert kept == sum(kept for _, kept in LAYERS)


# Sums.


def test_sums_do_not_go_down_when_queues_and_exchanges_go(chronicle: Chronicle) -> None:
    queue, exchange = chronicle.queue(), chronicle.host.declare_exchange("x", "fanout")
    chronicle.publish(3)
    fetched(queue, settled=True)
    chronicle.broker.publish(exchange, Message(ENCODING, "x", "", b"", b"hello"))
    chronicle.interval()
    names = ("publish", "get_no_ack", "drop_unroutable")
    before = [chronicle.total(name) for name in names]
    assert before == [4, 1, 1]
    chronicle.host.delete_queue(queue)
    chronicle.host.delete_exchange("x")
    chronicle.interval()
    assert [chronicle.total(name) for name in names] == before
    assert chronicle.total("messages_ready") == 0


def test_sums_do_not_go_down_when_something_goes_during_a_round(chronicle: Chronicle) -> None:
    for number in range(3 * MOST):
        chronicle.queue(f"q{number}")
    doomed = chronicle.broker.add_virtual_host("doomed")
    for name in ("early", "late"):
        queue = doomed.declare_queue(name)
        chronicle.broker.publish(doomed.exchange(""), Message(ENCODING, "", name, b"", b"hello"))
        fetched(queue, settled=True)
    chronicle.interval()
    tick = chronicle.history.tick
    chronicle.advance(INTERVAL_S)  # the first turn of the next round
    doomed.delete_queue(doomed.queue("late"))
    chronicle.broker.delete_virtual_host("doomed")
    while chronicle.history.tick == tick:
        chronicle.advance(0.01)
    assert (chronicle.total("publish"), chronicle.total("get_no_ack")) == (2, 2)
    chronicle.interval()
    assert (chronicle.total("publish"), chronicle.total("get_no_ack")) == (2, 2)


def test_sums_outlive_a_virtual_host(chronicle: Chronicle) -> None:
    chronicle.queue()
    chronicle.publish(3)
    chronicle.broker.add_virtual_host("other")
    chronicle.interval()
    chronicle.broker.delete_virtual_host("/")
    chronicle.interval()
    assert chronicle.total("publish") == 3
    chronicle.broker.add_virtual_host("/")
    assert chronicle.broker.retired_counters.of("/") == {}


def test_a_virtual_host_has_its_own_sums(chronicle: Chronicle) -> None:
    chronicle.queue()
    other = chronicle.broker.add_virtual_host("other")
    chronicle.publish(3)
    chronicle.interval()
    assert chronicle.published(chronicle.host) == 3
    assert chronicle.history.series(other) is None


# Others' turns.


def test_a_round_leaves_others_their_turn(chronicle: Chronicle) -> None:
    for number in range(5000):
        chronicle.queue(f"q{number}")
    turns: Generator[None, None, None] = chronicle.history._look_at_all(2)
    looked_at = [0]
    chronicle.history._note = lambda *arguments: looked_at.append(looked_at.pop() + 1)  # type: ignore[method-assign]
    counts = []
    for _ in turns:
        counts.append(looked_at[0])
        looked_at[0] = 0
    assert len(counts) >= 5000 // MOST
    assert max(counts) <= MOST


def test_a_turn_ends_when_its_time_is_over() -> None:
    clock = ManualClock()
    turn = Turn(clock, 0.001, 0.001)
    clock.advance(0.002)
    assert [turn.is_over() for _ in range(8)] == [False] * 7 + [True]
    assert [turn.is_over() for _ in range(MOST)] == [False] * (MOST - 1) + [True]


def test_a_machine_that_slept_has_missed_some_rounds_and_goes_on(chronicle: Chronicle) -> None:
    queue = chronicle.queue()
    chronicle.publish(1)
    chronicle.advance(1000)
    chronicle.interval(2)
    assert chronicle.published(queue) == 1
    assert chronicle.history.ago_s(chronicle.history.tick) <= INTERVAL_S


def test_a_history_that_is_stopped_takes_no_samples(chronicle: Chronicle) -> None:
    chronicle.history.stop()
    tick = chronicle.history.tick
    chronicle.advance(20)
    assert chronicle.history.tick == tick


# What is counted.


def counted(queue: Queue) -> dict[str, int]:
    return {name: count for name, count in zip(QUEUE, queue_counts(queue), strict=True) if count}


def test_deliveries_are_told_apart_by_who_gets_them_and_whether_he_answers(bench: CoreBench) -> None:
    queue = bench.queue("q")
    bench.publish("q", b"a", b"b", b"c", b"d", b"e", b"f")
    consumer = FakeConsumer(queue, credit=2)
    bench.settle()
    consumer.accept(consumer.held[0])
    FakeConsumer(queue, settled=True, credit=1)
    bench.settle()
    fetched(queue, settled=True)
    fetched(queue, settled=False)
    assert counted(queue) == {
        "publish": 6,
        "messages_unacknowledged": 3,
        "deliver": 3,
        "deliver_no_ack": 1,
        "get": 1,
        "get_no_ack": 1,
        "ack": 1,
    }


def test_what_comes_back_is_counted_when_it_is_delivered_again(bench: CoreBench) -> None:
    queue = bench.queue("q")
    bench.publish("q", b"a", b"b", b"c")
    consumer = FakeConsumer(queue, credit=2)
    bench.settle()
    for delivery in list(consumer.held):
        consumer.release(delivery)
    assert queue.redelivered == 0
    consumer.grant(3)
    bench.settle()
    assert queue.redelivered == 2
    consumer.release(consumer.held[0])
    fetched(queue, settled=True)
    assert queue.redelivered == 3
    assert not queue.came_back  # nobody looks for more of them


@pytest.mark.parametrize(("queues", "out"), [(0, 0), (1, 1), (3, 3)])
def test_an_exchange_counts_what_queues_get_from_it(queues: int, out: int, bench: CoreBench) -> None:
    exchange = bench.host.declare_exchange("x", "fanout")
    for number in range(queues):
        bench.host.bind(exchange, bench.queue(f"q{number}"), "")
    for _ in range(2):
        bench.broker.publish(exchange, Message(ENCODING, "x", "", b"", b"a"))
    assert (exchange.published, exchange.routed, exchange.unroutable) == (2, 2 * out, 0 if queues else 2)


def fanned_out(bench: CoreBench, *names: str) -> Exchange:
    exchange = bench.host.declare_exchange("x", "fanout")
    for name in names:
        bench.host.bind(exchange, bench.queue(name), "")
    return exchange


def test_what_a_transaction_publishes_is_counted_in_each_queue(bench: CoreBench) -> None:
    exchange, tx = fanned_out(bench, "a", "b"), Transaction()
    tx.publish(bench.broker, exchange, Message(ENCODING, "x", "", b"", b"a"))
    tx.commit()
    nobody = bench.host.declare_exchange("nobody", "fanout")
    tx.publish(bench.broker, nobody, Message(ENCODING, "nobody", "", b"", b"a"))
    tx.commit()
    assert (exchange.published, exchange.routed) == (1, 2)
    assert (nobody.published, nobody.routed, nobody.unroutable) == (1, 0, 1)


@pytest.mark.parametrize(("names", "out"), [((), 0), (("a",), 1), (("a", "b"), 2)])
def test_dead_letters_are_counted_in_each_queue(names: tuple[str, ...], out: int, bench: CoreBench) -> None:
    exchange = fanned_out(bench, *names)
    queue = bench.queue("q", x_dead_letter_exchange="x")
    bench.publish("q", b"a")
    consumer = FakeConsumer(queue)
    bench.settle()
    consumer.reject(consumer.held[0])
    bench.settle()
    assert (exchange.published, exchange.routed) == (1, out)


def test_a_message_that_is_held_back_is_counted_when_it_goes_on() -> None:
    bench = CoreBench({**STANDARD, "holds": Holds})
    exchange = bench.host.declare_exchange("x", "holds")
    held = Message(ENCODING, "x", "", b"", b"a")
    bench.broker.publish(exchange, held)
    assert (exchange.published, exchange.routed) == (1, 0)
    bench.broker.release_delayed(exchange, held)
    assert (exchange.routed, exchange.unroutable) == (0, 1)


class Holds(ExchangeType):
    """It takes every message itself, and lets nobody have it."""

    name = "holds"
    is_over = False

    def route(self, message: Message) -> Handled | tuple[()]:
        was_over, self.is_over = self.is_over, True
        return () if was_over else HANDLED
