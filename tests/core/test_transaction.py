"""Transactions: nothing before the commit, everything at it, nothing after a rollback."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.exchanges.exchange_type import Exchange
from leveret.exchanges.standard import STANDARD
from leveret.limits import QueueLimits
from leveret.queues.queue import Queue
from leveret.transaction import Transaction
from tests.core.fakes import FakeConsumer, Holding, waiting
from tests.harness.bench import CoreBench, message


@pytest.fixture
def bench() -> CoreBench:
    return CoreBench({**STANDARD, "x-holding": Holding})


@pytest.fixture
def tx() -> Transaction:
    return Transaction()


def fanout(bench: CoreBench, *queues: Queue, name: str = "x") -> Exchange:
    exchange = bench.host.declare_exchange(name, "fanout")
    for queue in queues:
        bench.host.bind(exchange, queue, "")
    return exchange


def test_s122_messages_reach_their_queues_at_commit_in_order(bench: CoreBench, tx: Transaction) -> None:
    one, two = bench.queue("1"), bench.queue("2")
    exchange = fanout(bench, one, two)
    for body in (b"a", b"b"):
        assert tx.publish(bench.broker, exchange, message("", body))
    assert (one.ready, two.ready, tx.octets) == (0, 0, 2)
    assert tx.commit() == 0
    assert (waiting(one), waiting(two), tx.octets) == ("a b", "a b", 0)
    assert tx.commit() == 0
    assert one.ready == 2


def test_s122_they_are_routed_when_they_are_published(bench: CoreBench, tx: Transaction) -> None:
    bound, late = bench.queue("bound"), bench.queue("late")
    exchange = fanout(bench, bound)
    tx.publish(bench.broker, exchange, message("", b"a"))
    bench.host.bind(exchange, late, "")
    bench.host.unbind(exchange, bound, "")
    tx.commit()
    assert (bound.ready, late.ready) == (1, 0)


def test_s126_a_rollback_forgets(bench: CoreBench, queue: Queue, tx: Transaction) -> None:
    consumer = FakeConsumer(queue)
    bench.publish("q", b"a")
    tx.publish(bench.broker, fanout(bench, queue), message("", b"b"))
    tx.settle(partial(consumer.accept, consumer.held[0]))
    tx.rollback()
    assert (tx.commit(), tx.octets) == (0, 0)
    assert (queue.ready, queue.unsettled) == (0, 1)


def test_s124_answers_take_effect_at_commit_after_the_messages(bench: CoreBench, tx: Transaction) -> None:
    queue = bench.queue()
    consumer = FakeConsumer(queue, credit=2)
    bench.publish("q", b"a", b"b")
    a, b = consumer.held
    tx.settle(partial(consumer.accept, a))
    tx.settle(partial(consumer.release, b))
    bench.settle()
    assert queue.unsettled == 2
    tx.commit()
    bench.settle()
    assert (queue.accepted, consumer.bodies()) == (1, "a b b")


def test_a_queue_that_was_deleted_in_between_is_left_out_and_the_others_are_served(
    bench: CoreBench, tx: Transaction
) -> None:
    gone, stays = bench.queue("gone"), bench.queue("stays")
    exchange = fanout(bench, gone, stays)
    lost: list[str] = []
    tx.publish(bench.broker, exchange, message("", b"a"), partial(lost.append, "a"))
    bench.host.delete_queue(gone)
    assert (tx.stray(), tx.commit()) == ("", 0)
    assert (gone.ready, stays.ready, lost, exchange.surplus) == (0, 1, [], 0)


def test_s125_a_queue_that_was_declared_again_gets_its_messages_whether_it_is_bound_or_not(
    bench: CoreBench, tx: Transaction
) -> None:
    stays, before = bench.queue("stays"), bench.queue("q")
    exchange = fanout(bench, before, stays)
    tx.publish(bench.broker, exchange, message("", b"a"))
    tx.publish(bench.broker, bench.host.default_exchange, message("q", b"b"))
    bench.host.delete_queue(before)
    again = bench.queue("q", x_max_length=1, x_overflow="reject-publish")
    assert tx.obstacle() is again
    again.apply(QueueLimits())
    assert (tx.obstacle(), tx.commit()) == (None, 0)
    assert (before.ready, waiting(again), waiting(stays)) == (0, "a b", "a")


def test_s125_a_message_whose_queue_is_gone_is_unroutable_at_the_commit(
    bench: CoreBench, tx: Transaction
) -> None:
    queue, lost = bench.queue(), list[str]()
    exchange = fanout(bench, queue)
    for body in ("a", "b"):
        assert tx.publish(bench.broker, exchange, message("", body.encode()), partial(lost.append, body))
    bench.host.delete_queue(queue)
    assert tx.stray() == "nothing takes a message to exchange 'x' with key '' any more"
    assert (tx.commit(), lost, exchange.unroutable, exchange.surplus) == (0, ["a", "b"], 2, 0)


def test_s125_one_whose_queue_is_gone_goes_to_the_alternate_exchange(
    bench: CoreBench, tx: Transaction
) -> None:
    queue, other, lost = bench.queue(), bench.queue("other"), list[str]()
    fanout(bench, other, name="spare")
    exchange = bench.host.declare_exchange("x", "fanout", arguments={"alternate-exchange": "spare"})
    bench.host.bind(exchange, queue, "")
    tx.publish(bench.broker, exchange, message("", b"a"), partial(lost.append, "a"))
    bench.host.delete_queue(queue)
    assert not tx.stray()
    tx.commit()
    assert (waiting(other), lost, exchange.unroutable) == ("a", [], 0)


def test_s125_one_whose_queue_and_exchange_are_gone_is_unroutable(bench: CoreBench, tx: Transaction) -> None:
    queue, lost = bench.queue(), list[str]()
    tx.publish(bench.broker, fanout(bench, queue), message("", b"a"), partial(lost.append, "a"))
    bench.host.delete_exchange("x")
    assert not tx.stray()  # the queue is there
    bench.host.delete_queue(queue)
    assert (tx.commit(), lost) == (0, ["a"])


def test_s125_what_an_exchange_was_to_hold_goes_to_the_one_that_is_declared_again(
    bench: CoreBench, tx: Transaction
) -> None:
    lost: list[str] = []
    exchange = bench.host.declare_exchange("h", "x-holding")
    tx.publish(bench.broker, exchange, message("", b"a"), partial(lost.append, "a"))
    bench.host.delete_exchange("h")
    assert tx.stray()
    again = bench.host.declare_exchange("h", "x-holding")
    assert isinstance(again.type, Holding)
    assert (tx.stray(), tx.commit(), again.type.held, lost) == ("", 0, [b"a"], [])
    tx.publish(bench.broker, again, message("", b"b"), partial(lost.append, "b"))
    bench.host.delete_exchange("h")
    assert (tx.commit(), lost) == (0, ["b"])


def test_s122_one_that_was_unroutable_stays_so(bench: CoreBench, tx: Transaction) -> None:
    lost: list[str] = []
    exchange = bench.host.default_exchange
    assert not tx.publish(bench.broker, exchange, message("q", b"a"), partial(lost.append, "a"))
    queue = bench.queue("q")
    assert (tx.stray(), tx.commit(), queue.ready, lost) == ("", 0, 0, ["a"])


def test_x029_what_a_full_queue_refuses_is_counted_once_a_message(bench: CoreBench, tx: Transaction) -> None:
    full = partial(bench.queue, x_max_length=1, x_overflow="reject-publish")
    one, two, roomy = full("1"), full("2"), bench.queue("3")
    exchange = fanout(bench, one, two, roomy)
    for body in (b"a", b"b", b"c"):
        tx.publish(bench.broker, exchange, message("", body))
    assert tx.commit() == 2
    assert (waiting(one), waiting(two), waiting(roomy)) == ("a", "a", "a b c")


def test_a_queue_without_room_for_all_of_it_is_known_before_the_commit(bench: CoreBench, tx: Transaction):
    one = bench.queue("1", x_max_length=3, x_overflow="reject-publish")
    two = bench.queue("2", x_max_length_bytes=4, x_overflow="reject-publish-dlx")
    exchange = fanout(bench, one, two, bench.queue("3", x_max_length=1))  # the last one drops what is old
    bench.publish("1", b"before")
    for body in (b"aa", b"bb"):
        tx.publish(bench.broker, exchange, message("", body))
        assert tx.obstacle() is None
    tx.publish(bench.broker, exchange, message("", b""))
    assert tx.obstacle() is one
    one.purge()
    assert tx.obstacle() is None
    tx.publish(bench.broker, exchange, message("", b"c"))
    assert tx.obstacle() is one
    bench.host.delete_queue(one)
    assert tx.obstacle() is two
    bench.host.delete_queue(two)
    assert tx.obstacle() is None
    assert tx.commit() == 0


def test_what_consumers_have_taken_makes_room(bench: CoreBench, tx: Transaction) -> None:
    queue = bench.queue(x_max_length=1, x_overflow="reject-publish")
    bench.publish("q", b"a")
    tx.publish(bench.broker, fanout(bench, queue), message("", b"b"))
    assert tx.obstacle() is queue
    FakeConsumer(queue)
    assert tx.obstacle() is None


def test_nothing_is_in_the_way_of_a_transaction_that_was_rolled_back(bench: CoreBench, tx: Transaction):
    queue = bench.queue(x_max_length=0, x_overflow="reject-publish")
    tx.publish(bench.broker, fanout(bench, queue), message("", b"a"))
    assert tx.obstacle() is queue
    tx.rollback()
    assert tx.obstacle() is None


def test_an_unroutable_message_is_known_at_once(bench: CoreBench, tx: Transaction) -> None:
    exchange = fanout(bench)
    assert not tx.publish(bench.broker, exchange, message())
    assert exchange.unroutable == 1
    assert tx.commit() == 0


def test_an_exchange_that_takes_messages_itself_gets_them_at_commit(bench: CoreBench, tx: Transaction):
    exchange = bench.host.declare_exchange("h", "x-holding")
    assert isinstance(exchange.type, Holding)
    assert tx.publish(bench.broker, exchange, message("", b"a"))
    assert exchange.type.held == []
    tx.commit()
    assert exchange.type.held == [b"a"]
    tx.publish(bench.broker, exchange, message("", b"b"))
    bench.host.delete_exchange("h")
    tx.commit()
    assert exchange.type.held == [b"a"]


@given(
    st.lists(st.tuples(st.booleans(), st.sampled_from(["a", "b", "ab"])), max_size=12),
    st.sets(st.sampled_from("ab")),
)
def test_a_commit_is_all_and_a_rollback_is_nothing(transactions: list[tuple[bool, str]], deleted: set[str]):
    """Each transaction publishes three messages to some queues; some queues are deleted before the end."""
    bench = CoreBench()
    queues = {name: bench.queue(name) for name in "ab"}
    expected: dict[str, list[str]] = {"a": [], "b": []}
    for number, (commits, targets) in enumerate(transactions):
        tx = Transaction()
        exchange = fanout(bench, *(queues[name] for name in targets if name in queues), name=f"x{number}")
        for each in range(3):
            tx.publish(bench.broker, exchange, message("", b"%d.%d" % (number, each)))
        if number == len(transactions) // 2:
            for name in deleted:
                bench.host.delete_queue(queues.pop(name))
                expected[name].clear()
        if not commits:
            tx.rollback()
        assert tx.commit() == 0
        for name in targets:
            if commits and name in queues:
                expected[name] += [f"{number}.{each}" for each in range(3)]
    for name, queue in queues.items():
        assert waiting(queue).split() == expected[name]
