"""The broker: what publishing says, what settling does in which order, and where the dead go."""

from __future__ import annotations

import pytest

from leveret.broker import Outcome, Publisher
from leveret.message import Message
from leveret.queues.queue import Queue
from tests.core.fakes import DEAD, FakeConsumer, morgue, waiting
from tests.harness.bench import CoreBench, message


def deaths(queue: Queue) -> list[list[tuple[str, str, int]]]:
    """Of each waiting message, the queue, reason and count of its deaths, newest first."""
    found = []
    for delivery in queue.waiting():
        assert delivery.message.notes is not None
        found.append([(death.queue, death.reason, death.count) for death in delivery.message.notes.deaths])
    return found


def first(queue: Queue) -> Message:
    return next(iter(queue.waiting())).message


# Publishing.


def test_a_publish_says_what_became_of_the_message(bench: CoreBench) -> None:
    bench.queue("roomy")
    bench.queue("full", x_max_length=0, x_overflow="reject-publish")
    exchange = bench.host.declare_exchange("both", "fanout")
    for name in ("roomy", "full"):
        bench.host.bind(exchange, bench.host.queue(name), "")
    for name, outcome in (("roomy", Outcome.TAKEN), ("full", Outcome.REFUSED), ("none", Outcome.UNROUTABLE)):
        assert bench.publish(name, b"a") == [outcome]
    assert bench.broker.publish(exchange, message()) is Outcome.REFUSED  # one of them is enough
    assert (bench.broker.refused_by, bench.host.queue("roomy").ready) == ("full", 2)
    default = bench.host.default_exchange
    assert (default.published, default.unroutable) == (3, 1)


def test_a_message_can_be_put_into_queues_past_all_exchanges(bench: CoreBench) -> None:
    queue, gone = bench.queue("q"), bench.queue("gone")
    bench.host.delete_queue(gone)
    bench.broker.deliver(message(), [queue, gone, bench.host.default_exchange])
    assert (queue.ready, gone.ready) == (1, 0)


# Settling.


class Noting(Publisher):
    """Notes what the queue had when it was told."""

    def __init__(self, queue: Queue) -> None:
        self.queue = queue
        self.told: list[int] = []

    def mark(self) -> int:
        return self.queue.delivered

    def taken(self, mark: int) -> None:
        self.told.append(mark)


def test_publishers_are_told_once_after_everything_was_handed_out(bench: CoreBench, queue: Queue) -> None:
    FakeConsumer(queue)
    publisher = Noting(queue)
    bench.broker.publish(bench.host.default_exchange, message("q"))
    bench.broker.publishers.append(publisher)
    assert publisher.told == []
    bench.settle()
    bench.settle()
    assert publisher.told == [1]


def test_deliveries_wait_for_the_settle(bench: CoreBench) -> None:
    consumer = FakeConsumer(bench.queue())
    bench.broker.publish(bench.host.default_exchange, message("q", b"a"))
    assert consumer.got == []
    bench.settle()
    assert consumer.bodies() == "a"


def test_one_settle_follows_dead_letters_through_queues_and_timers(bench: CoreBench) -> None:
    bench.queue("3")
    bench.queue("2", x_message_ttl=0, x_dead_letter_exchange="", x_dead_letter_routing_key="3")
    bench.queue("1", x_max_length=0, x_dead_letter_exchange="", x_dead_letter_routing_key="2")
    bench.publish("1", b"a")
    assert deaths(bench.host.queue("3")) == [[("2", "expired", 1), ("1", "maxlen", 1)]]


def test_a_mistake_while_delivering_leaves_the_other_queues_to_the_next_settle(bench: CoreBench) -> None:
    class Mistaken(FakeConsumer):
        def room(self) -> int:
            raise ZeroDivisionError

    Mistaken(bench.queue("1"))
    consumer = FakeConsumer(bench.queue("2"))
    bench.settle()
    for name in "12":
        bench.broker.publish(bench.host.default_exchange, message(name, b"a"))
    with pytest.raises(ZeroDivisionError):
        bench.settle()
    bench.settle()
    assert consumer.bodies() == "a"


def test_time_stands_still_within_a_batch(bench: CoreBench) -> None:
    before = bench.broker.now
    bench.clock.advance(5)
    assert bench.broker.now == before
    assert bench.broker.tick() == bench.broker.now == before + 5


# Dead letters.


def test_x035_a_dead_message_keeps_body_and_properties_and_loses_its_ttl(bench: CoreBench) -> None:
    dead = morgue(bench)
    bench.queue("q", **DEAD)
    bench.publish("q", b"a", ttl_ms=500)
    bench.advance(60)
    buried = first(dead)
    assert (buried.body, buried.key, buried.exchange) == (b"a", "dead", "")
    assert buried.facts.ttl_ms is None
    assert buried.notes is not None
    (death,) = buried.notes.deaths
    assert (death.ttl_ms, death.keys, death.exchange) == (500, ("q",), "")
    assert death.first_time == death.last_time == bench.clock.wall()


def test_x031_without_a_key_of_its_own_it_keeps_all_its_keys_and_with_one_none(bench: CoreBench) -> None:
    for name, arguments in (("kept", {}), ("replaced", {"x_dead_letter_routing_key": "new"})):
        queue = bench.queue(name, x_dead_letter_exchange="amq.direct", x_message_ttl=0, **arguments)
        queue.push(message("old", cc=("also",)))
    bound = {key: bench.queue(f"to.{key}") for key in ("old", "also", "new")}
    for key, queue in bound.items():
        bench.host.bind(bench.host.exchange("amq.direct"), queue, key)
    bench.settle()
    assert {key: queue.ready for key, queue in bound.items()} == {"old": 1, "also": 1, "new": 1}
    assert first(bound["new"]).facts.cc == ()
    assert first(bound["old"]).facts.cc == ("also",)


def test_x033_x034_deaths_in_one_queue_for_one_reason_are_counted_and_the_newest_is_first(bench: CoreBench):
    queues = {
        name: bench.queue(name, x_dead_letter_exchange="", x_dead_letter_routing_key=other)
        for name, other in (("a", "b"), ("b", "a"))
    }
    consumers = {name: FakeConsumer(queue) for name, queue in queues.items()}
    bench.publish("a", b"m")
    for name in "aba":
        bench.clock.advance(10)
        consumers[name].reject(consumers[name].held[0])
        bench.settle()
    consumers["b"].pause()
    consumers["b"].release(consumers["b"].held[0])
    assert deaths(queues["b"]) == [[("a", "rejected", 2), ("b", "rejected", 1)]]
    notes = first(queues["b"]).notes
    assert notes is not None
    newest = notes.deaths[0]
    assert newest.last_time - newest.first_time == 20
    assert (notes.first_death, notes.last_death) == (("rejected", "a", ""), ("rejected", "a", ""))


def test_x037_a_message_does_not_go_round_by_itself(bench: CoreBench, caplog: pytest.LogCaptureFixture):
    bench.queue("a", x_message_ttl=0, x_dead_letter_exchange="", x_dead_letter_routing_key="b")
    bench.queue("b", x_message_ttl=0, x_dead_letter_exchange="", x_dead_letter_routing_key="a")
    bench.publish("a", b"1", b"2")
    assert (bench.host.queue("a").ready, bench.host.queue("b").ready) == (0, 0)
    assert caplog.messages == ["dead-letter cycle at queue 'a' in vhost '/': messages dropped"]


@pytest.mark.parametrize(
    "arguments",
    [{"x_max_length": 0}, {"x_max_length": 0, "x_overflow": "reject-publish-dlx"}, {"x_message_ttl": 0}],
)
def test_x037_a_queue_that_is_its_own_morgue_drops(bench: CoreBench, arguments: dict[str, int]) -> None:
    queue = bench.queue("q", x_dead_letter_exchange="", **arguments)
    bench.publish("q", b"a")
    assert (queue.ready, bench.broker.dying) == (0, bench.broker.dying.__class__())


def test_x037_of_several_queues_only_those_in_the_cycle_are_left_out(bench: CoreBench) -> None:
    bench.host.declare_exchange("dlx", "fanout")
    queue, other = bench.queue("q", x_message_ttl=0, x_dead_letter_exchange="dlx"), bench.queue("other")
    for each in (queue, other):
        bench.host.bind(bench.host.exchange("dlx"), each, "")
    bench.publish("q", b"a")
    assert (queue.ready, waiting(other)) == (0, "a")


def test_x037_who_rejects_may_see_a_message_again(bench: CoreBench) -> None:
    consumer = FakeConsumer(bench.queue("q", x_dead_letter_exchange=""))
    bench.publish("q", b"a")
    for _ in range(3):
        consumer.reject(consumer.held[0])
        bench.settle()
    assert consumer.bodies() == "a a a a"


def test_x038_a_dead_letter_exchange_that_is_missing_drops(
    bench: CoreBench, caplog: pytest.LogCaptureFixture
) -> None:
    queue = bench.queue("q", x_message_ttl=0, x_dead_letter_exchange="none")
    bench.publish("q", b"a")
    assert (queue.ready, caplog.messages) == (0, [])


def test_x039_the_dead_use_alternates_like_everybody(bench: CoreBench) -> None:
    bench.host.declare_exchange("dlx", "direct", arguments={"alternate-exchange": "rest"})
    rest = bench.queue("rest")
    bench.host.bind(bench.host.declare_exchange("rest", "fanout"), rest, "")
    bench.queue("q", x_message_ttl=0, x_dead_letter_exchange="dlx")
    bench.publish("q", b"a")
    assert waiting(rest) == "a"
