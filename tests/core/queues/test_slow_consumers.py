"""Slow consumers: which are found, which are not, and what becomes of them."""

from __future__ import annotations

import logging

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leveret.errors import PreconditionFailed
from leveret.observability.connection_stats import ConsumerFacts
from leveret.observability.events import Event, EventListener
from leveret.policy import Policy
from leveret.queues.slow_consumers import is_slow
from leveret.selectors.parser import compile_selector
from leveret.values import Table
from tests.core.fakes import CoreBench, FakeConsumer, SharedWindow

ARGUMENTS: Table = {"x-slow-consumer-threshold": 60, "x-slow-consumer-check-period": 10_000}


class Reader(FakeConsumer):
    """A consumer of a connection, which can be ended."""

    why = ""

    def facts(self) -> ConsumerFacts:
        return ConsumerFacts(tag="reader", connection="someone")

    def end_as_slow(self, why: str) -> None:
        self.why = why
        self.queue.remove_consumer(self)


class Diary(EventListener):
    def __init__(self, heard: list[Event]) -> None:
        self._heard = heard

    def on_event(self, event: Event) -> None:
        self._heard.append(event)


class Desk:
    def __init__(self, **said: object) -> None:
        self.bench = CoreBench()
        self.heard: list[Event] = []
        self.bench.broker.events.listeners.append(Diary(self.heard))
        arguments = {**ARGUMENTS, **{f"x-slow-consumer-{name}": value for name, value in said.items()}}
        self.queue = self.bench.host.declare_queue("q", arguments=arguments)  # type: ignore[arg-type]

    def publish(self, count: int) -> None:
        self.bench.publish("q", *[b"m"] * count)

    def pass_by(self, seconds: float, accepted: int = 0, by: FakeConsumer | None = None) -> None:
        """Let time pass; a consumer accepts so many messages of what it has."""
        for _ in range(accepted):
            assert by is not None
            by.accept(by.held[0])
            by.wake()
            self.bench.settle()
        self.bench.advance(seconds)

    def slow(self) -> list[FakeConsumer]:
        return [each for each in self.queue.consumers if is_slow(self.queue, each)]  # type: ignore[misc]

    def found(self) -> int:
        assert self.queue.slow_consumers is not None
        return self.queue.slow_consumers.found

    def events(self) -> list[str]:
        return [event.name for event in self.heard if event.name.startswith("consumer.")]


def test_a_consumer_that_takes_too_little_is_found_once_and_told(caplog: pytest.LogCaptureFixture) -> None:
    desk = Desk()
    reader = Reader(desk.queue, credit=2)
    desk.publish(50)
    desk.pass_by(10)
    assert desk.slow() == []  # it has been seen to be held up, but not yet for how long
    with caplog.at_level(logging.WARNING, "leveret"):
        desk.pass_by(10, 9, reader)
        assert desk.slow() == [reader]
        desk.pass_by(10, 9, reader)
    assert desk.found() == 1
    assert desk.events() == ["consumer.created", "consumer.slow"]
    assert [each.getMessage() for each in caplog.records if "took" in each.getMessage()] == [
        "someone: queue 'q' in vhost '/': consumer 'reader' took 9 messages in 10 s while others waited, "
        "and should take 60 a minute"
    ]
    desk.pass_by(10, 10, reader)
    assert desk.slow() == []
    desk.pass_by(10, 0)
    assert (desk.slow(), desk.found()) == ([reader], 2)


def test_close_ends_it() -> None:
    desk = Desk(policy="close")
    reader, other = Reader(desk.queue, credit=1), Reader(desk.queue, credit=1)
    desk.publish(50)
    desk.pass_by(10)
    desk.pass_by(10, 10, other)
    assert list(desk.queue.consumers) == [other]
    assert "took 0 messages in 10 s" in reader.why
    assert desk.events()[-2:] == ["consumer.slow", "consumer.deleted"]
    assert desk.heard[-2].facts["closed"] is True
    assert (desk.slow(), desk.found()) == ([], 1)


def test_who_has_nothing_to_take_is_not_slow() -> None:
    desk = Desk()
    Reader(desk.queue, credit=5)
    desk.publish(5)  # all are with the consumer
    for _ in range(3):
        desk.pass_by(10)
    assert desk.found() == 0


def test_a_consumer_with_credit_whose_selector_fits_nothing_is_not_slow() -> None:
    desk = Desk()
    Reader(desk.queue, credit=5, selector=compile_selector("a = 1"))
    desk.publish(5)
    for _ in range(3):
        desk.pass_by(10)
    assert desk.found() == 0


def test_a_paused_queue_has_no_slow_consumers_and_begins_anew_when_it_goes_on() -> None:
    desk = Desk()
    Reader(desk.queue, credit=1)
    desk.publish(5)
    desk.pass_by(10)
    desk.queue.pause(True)
    desk.pass_by(5)
    desk.queue.pause(False)
    desk.pass_by(5)
    assert desk.found() == 0
    desk.pass_by(10)
    assert desk.found() == 1


def test_those_who_wait_to_be_the_active_one_are_not_slow() -> None:
    desk = Desk()
    queue = desk.bench.host.declare_queue("s", arguments={**ARGUMENTS, "x-single-active-consumer": True})
    first, second = Reader(queue, credit=1), Reader(queue, credit=0)
    desk.bench.publish("s", b"1", b"2", b"3")
    for _ in range(3):
        desk.bench.advance(10)
    assert (is_slow(queue, first), is_slow(queue, second)) == (True, False)


def test_a_consumer_without_a_connection_is_left_alone() -> None:
    desk = Desk()
    FakeConsumer(desk.queue, credit=1)
    desk.publish(5)
    for _ in range(3):
        desk.pass_by(10)
    assert desk.found() == 0


def test_a_client_that_does_not_read_is_slow_without_a_prefetch() -> None:
    desk = Desk()
    reader = Reader(desk.queue, settled=True, limit=1)
    desk.publish(5)
    for _ in range(2):
        desk.pass_by(10)
    assert desk.slow() == [reader]


def test_readers_of_a_stream_are_watched_too() -> None:
    desk = Desk()
    arguments = {**ARGUMENTS, "x-queue-type": "stream"}
    stream = desk.bench.host.declare_queue("s", durable=True, arguments=arguments)
    reader = Reader(stream, credit=1, arguments={"x-stream-offset": "first"}, window=SharedWindow())
    desk.bench.publish("s", b"1", b"2", b"3")
    for _ in range(2):
        desk.bench.advance(10)
    assert is_slow(stream, reader)


def test_a_policy_watches_and_stops_watching() -> None:
    desk = Desk()
    queue = desk.bench.queue("p")
    reader = Reader(queue, credit=1)
    desk.bench.publish("p", b"1", b"2")
    definition: Table = {"slow-consumer-threshold": 1, "slow-consumer-check-period": 1000}
    desk.bench.broker.policies.set(Policy("p", "/", "^p$", definition))
    desk.bench.host.apply_policies()
    desk.bench.advance(1)
    desk.bench.host.apply_policies()  # which changes nothing, and so begins nothing anew
    desk.bench.advance(1)
    assert is_slow(queue, reader)
    desk.bench.broker.policies.clear("/", "p")
    desk.bench.host.apply_policies()
    assert not is_slow(queue, reader)
    assert queue.slow_consumers is not None
    assert queue.slow_consumers._timer is None


def test_no_timer_runs_without_consumers() -> None:
    desk = Desk()
    reader = Reader(desk.queue, credit=1)
    desk.pass_by(10)
    desk.queue.remove_consumer(reader)
    desk.pass_by(10)
    assert desk.queue.slow_consumers is not None
    assert desk.queue.slow_consumers._timer is None
    Reader(desk.queue, credit=1)
    assert desk.queue.slow_consumers._timer is not None
    desk.bench.host.delete_queue(desk.queue)
    assert desk.queue.slow_consumers._timer is None


@pytest.mark.parametrize(
    ("name", "value"), [("threshold", 0), ("check-period", 99), ("policy", "kill"), ("threshold", "60")]
)
def test_what_makes_no_sense_is_refused(name: str, value: object) -> None:
    with pytest.raises(PreconditionFailed, match=f"x-slow-consumer-{name}"):
        Desk(**{name: value})


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 12), st.integers(0, 30)), max_size=12), st.integers(1, 5))
def test_slow_is_who_takes_less_than_it_should_while_messages_wait(
    periods: list[tuple[int, int]], prefetch: int
) -> None:
    """In each period it accepts some and others arrive; the definition looks at both ends of the period only."""
    desk = Desk()
    reader = Reader(desk.queue, credit=prefetch)
    was_held_up, got = False, 0
    for accepted, arriving in periods:
        desk.publish(arriving)
        desk.pass_by(10, min(accepted, len(reader.held)), reader)
        held_up = desk.queue.ready > 0 and reader.credit == 0
        taken, got = len(reader.got) - got, len(reader.got)
        assert is_slow(desk.queue, reader) is (was_held_up and held_up and taken < 10)
        was_held_up = held_up
