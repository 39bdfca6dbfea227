"""The broker: what publishing says, what settling does in which order, and where the dead go."""

from __future__ import annotations

import pytest

from broker_core.broker import Outcome, Publisher
from broker_core.message import Message
from broker_core.queues.queue import Queue
from tests.core.fakes import DEAD, FakeConsumer, World, message, morgue, waiting


@pytest.fixture
def world() -> World:
    return World()


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


def test_a_publish_says_what_became_of_the_message(world: World) -> None:
    world.queue("roomy")
    world.queue("full", x_max_length=0, x_overflow="reject-publish")
    exchange = world.host.declare_exchange("both", "fanout")
    for name in ("roomy", "full"):
        world.host.bind(exchange, world.host.queue(name), "")
    for name, outcome in (
        ("roomy", Outcome.TAKEN),
        ("full", Outcome.REFUSED),
        ("none", Outcome.UNROUTABLE),
    ):
        assert world.publish(name, b"a") == [outcome]
    assert world.broker.publish(exchange, message()) is Outcome.REFUSED  # one of them is enough
    assert world.broker.refused_by == "full"
    assert world.host.queue("roomy").ready == 2
    default = world.host.default_exchange
    assert (default.published, default.unroutable) == (3, 1)


def test_a_message_can_be_put_into_queues_past_all_exchanges(world: World) -> None:
    queue, gone = world.queue("q"), world.queue("gone")
    world.host.delete_queue(gone)
    world.broker.deliver(message(), [queue, gone, world.host.default_exchange])
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


def test_publishers_are_told_once_after_everything_was_handed_out(world: World) -> None:
    queue = world.queue()
    FakeConsumer(queue)
    publisher = Noting(queue)
    world.broker.publish(world.host.default_exchange, message("q"))
    world.broker.publishers.append(publisher)
    assert publisher.told == []
    world.settle()
    world.settle()
    assert publisher.told == [1]


def test_deliveries_wait_for_the_settle(world: World) -> None:
    consumer = FakeConsumer(world.queue())
    world.broker.publish(world.host.default_exchange, message("q", b"a"))
    assert consumer.got == []
    world.settle()
    assert consumer.bodies() == "a"


def test_one_settle_follows_dead_letters_through_queues_and_timers(world: World) -> None:
    world.queue("3")
    world.queue("2", x_message_ttl=0, x_dead_letter_exchange="", x_dead_letter_routing_key="3")
    world.queue("1", x_max_length=0, x_dead_letter_exchange="", x_dead_letter_routing_key="2")
    world.publish("1", b"a")
    assert deaths(world.host.queue("3")) == [[("2", "expired", 1), ("1", "maxlen", 1)]]


def test_a_mistake_while_delivering_leaves_the_other_queues_to_the_next_settle(world: World) -> None:
    class Mistaken(FakeConsumer):
        def room(self) -> int:
            raise ZeroDivisionError

    Mistaken(world.queue("1"))
    consumer = FakeConsumer(world.queue("2"))
    world.settle()
    for name in "12":
        world.broker.publish(world.host.default_exchange, message(name, b"a"))
    with pytest.raises(ZeroDivisionError):
        world.settle()
    world.settle()
    assert consumer.bodies() == "a"


def test_time_stands_still_within_a_batch(world: World) -> None:
    before = world.broker.now
    world.clock.advance(5)
    assert world.broker.now == before
    assert world.broker.tick() == world.broker.now == before + 5


# Dead letters.


def test_x035_a_dead_message_keeps_body_and_properties_and_loses_its_ttl(world: World) -> None:
    dead = morgue(world)
    world.queue("q", **DEAD)
    world.publish("q", b"a", ttl_ms=500)
    world.advance(60)
    buried = first(dead)
    assert (buried.body, buried.key, buried.exchange) == (b"a", "dead", "")
    assert buried.facts.ttl_ms is None
    assert buried.notes is not None
    (death,) = buried.notes.deaths
    assert (death.ttl_ms, death.keys, death.exchange) == (500, ("q",), "")
    assert death.first_time == death.last_time == world.clock.wall()


def test_x031_without_a_key_of_its_own_it_keeps_all_its_keys_and_with_one_none(world: World) -> None:
    for name, arguments in (("kept", {}), ("replaced", {"x_dead_letter_routing_key": "new"})):
        queue = world.queue(name, x_dead_letter_exchange="amq.direct", x_message_ttl=0, **arguments)
        queue.push(message("old", cc=("also",)))
    bound = {key: world.queue(f"to.{key}") for key in ("old", "also", "new")}
    for key, queue in bound.items():
        world.host.bind(world.host.exchange("amq.direct"), queue, key)
    world.settle()
    assert {key: queue.ready for key, queue in bound.items()} == {"old": 1, "also": 1, "new": 1}
    assert first(bound["new"]).facts.cc == ()
    assert first(bound["old"]).facts.cc == ("also",)


def test_x033_x034_deaths_in_one_queue_for_one_reason_are_counted_and_the_newest_is_first(
    world: World,
) -> None:
    queues = {
        name: world.queue(name, x_dead_letter_exchange="", x_dead_letter_routing_key=other)
        for name, other in (("a", "b"), ("b", "a"))
    }
    consumers = {name: FakeConsumer(queue) for name, queue in queues.items()}
    world.publish("a", b"m")
    for name in "aba":
        world.clock.advance(10)
        consumers[name].reject(consumers[name].held[0])
        world.settle()
    consumers["b"].pause()
    consumers["b"].release(consumers["b"].held[0])
    assert deaths(queues["b"]) == [[("a", "rejected", 2), ("b", "rejected", 1)]]
    notes = first(queues["b"]).notes
    assert notes is not None
    newest = notes.deaths[0]
    assert newest.last_time - newest.first_time == 20
    assert (notes.first_death, notes.last_death) == (("rejected", "a", ""), ("rejected", "a", ""))


def test_x037_a_message_does_not_go_round_by_itself(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.queue("a", x_message_ttl=0, x_dead_letter_exchange="", x_dead_letter_routing_key="b")
    world.queue("b", x_message_ttl=0, x_dead_letter_exchange="", x_dead_letter_routing_key="a")
    world.publish("a", b"1", b"2")
    assert (world.host.queue("a").ready, world.host.queue("b").ready) == (0, 0)
    assert caplog.messages == ["dead-letter cycle at queue 'a' in vhost '/': messages dropped"]


@pytest.mark.parametrize(
    "arguments",
    [{"x_max_length": 0}, {"x_max_length": 0, "x_overflow": "reject-publish-dlx"}, {"x_message_ttl": 0}],
)
def test_x037_a_queue_that_is_its_own_morgue_drops(world: World, arguments: dict[str, int]) -> None:
    queue = world.queue("q", x_dead_letter_exchange="", **arguments)
    world.publish("q", b"a")
    assert (queue.ready, world.broker.dying) == (0, world.broker.dying.__class__())


def test_x037_of_several_queues_only_those_in_the_cycle_are_left_out(world: World) -> None:
    world.host.declare_exchange("dlx", "fanout")
    queue, other = world.queue("q", x_message_ttl=0, x_dead_letter_exchange="dlx"), world.queue("other")
    for each in (queue, other):
        world.host.bind(world.host.exchange("dlx"), each, "")
    world.publish("q", b"a")
    assert (queue.ready, waiting(other)) == (0, "a")


def test_x037_who_rejects_may_see_a_message_again(world: World) -> None:
    queue = world.queue("q", x_dead_letter_exchange="")
    consumer = FakeConsumer(queue)
    world.publish("q", b"a")
    for _ in range(3):
        consumer.reject(consumer.held[0])
        world.settle()
    assert consumer.bodies() == "a a a a"


def test_x038_a_dead_letter_exchange_that_is_missing_drops(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    queue = world.queue("q", x_message_ttl=0, x_dead_letter_exchange="none")
    world.publish("q", b"a")
    assert (queue.ready, caplog.messages) == (0, [])


def test_x039_the_dead_use_alternates_like_everybody(world: World) -> None:
    world.host.declare_exchange("dlx", "direct", arguments={"alternate-exchange": "rest"})
    rest = world.queue("rest")
    world.host.bind(world.host.declare_exchange("rest", "fanout"), rest, "")
    world.queue("q", x_message_ttl=0, x_dead_letter_exchange="dlx")
    world.publish("q", b"a")
    assert waiting(rest) == "a"
