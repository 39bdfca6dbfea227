"""Queues that take every message and do something about their length."""

from __future__ import annotations

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.broker import Outcome
from leveret.client import Client
from leveret.message import Facts, Message
from leveret.queues.overfull import in_memory
from leveret.queues.work_queue import WorkQueue
from leveret.values import Value
from tests.core.fakes import FakeConsumer, fetched
from tests.durable.site import Site
from tests.harness.bench import ENCODING, ClientBench, CoreBench, spelled

WAITS = {"x_overflow": "producer-flow-control"}
ON_DISK = {"x_overflow": "flow-to-disk"}


class Crowd:
    """A queue, and a client that publishes to it as a front-end does: not while it has to wait."""

    def __init__(self, **said: Value) -> None:
        self.bench = ClientBench()
        self.broker = self.bench.broker
        found = self.bench.host.declare_queue("q", arguments=spelled({**WAITS, **said}))
        assert isinstance(found, WorkQueue)
        self.queue = found
        user = self.broker.access.user("guest")
        assert user is not None
        self.client = Client(self.broker, user)
        self.client.enter("/")
        self.resumed = 0
        self.client.resumed = self._resume

    def _resume(self) -> None:
        self.resumed += 1

    @property
    def waits(self) -> bool:
        return bool(self.client.waits_for)

    def publish(self, *bodies: bytes) -> None:
        """Publish in one batch, and wait where a queue is too long."""
        self.broker.tick()
        for body in bodies:
            message = Message(ENCODING, "", "q", b"", body, Facts())
            assert self.broker.publish(self.bench.host.default_exchange, message) is Outcome.TAKEN
        if self.broker.overfull:
            self.client.wait_for_overfull()
        self.broker.settle()

    def take(self, count: int) -> None:
        for _ in range(count):
            fetched(self.queue, settled=True)
        self.broker.settle()


def test_publishers_wait_above_the_limit_and_go_on_below_the_resume_limit() -> None:
    crowd = Crowd(x_max_length=10)
    crowd.publish(*[b"x"] * 10)
    assert not crowd.waits
    crowd.publish(b"x")
    assert crowd.waits
    assert crowd.queue.ready == 11
    crowd.take(2)
    assert crowd.waits, "9 is above 80 percent"
    crowd.take(1)
    assert (crowd.waits, crowd.resumed) == (False, 1)


@pytest.mark.parametrize(("percent", "left"), [(100, 10), (50, 5), (0, 0), (95, 9)])
def test_the_resume_limit_is_a_share_of_the_limit(percent: int, left: int) -> None:
    crowd = Crowd(x_max_length=10, x_flow_resume_percent=percent)
    crowd.publish(*[b"x"] * 15)
    crowd.take(15 - left - 1)
    assert crowd.waits
    crowd.take(1)
    assert not crowd.waits


def test_sizes_count_as_well_as_lengths() -> None:
    crowd = Crowd(x_max_length_bytes=100)
    crowd.publish(b"x" * 60, b"x" * 41)
    assert crowd.waits
    crowd.take(1)
    assert not crowd.waits


def test_what_consumers_take_at_once_makes_nobody_wait() -> None:
    crowd = Crowd(x_max_length=1)
    FakeConsumer(crowd.queue, credit=100)
    crowd.publish(*[b"x"] * 50)
    assert not crowd.waits


@pytest.mark.parametrize("how", ["purge", "delete", "expire", "limit", "leave"])
def test_nobody_waits_for_a_queue_that_is_not_too_long_any_more(how: str) -> None:
    crowd = Crowd(x_max_length=2, x_message_ttl=1000)
    crowd.publish(*[b"x"] * 3)
    assert crowd.waits
    if how == "purge":
        crowd.queue.purge()
    elif how == "delete":
        crowd.bench.host.delete_queue(crowd.queue)
    elif how == "expire":
        crowd.bench.advance(2)
    elif how == "limit":
        crowd.queue.apply(attrs.evolve(crowd.queue.limits, max_length=None))
    else:
        crowd.client.leave()
    crowd.broker.settle()
    assert not crowd.waits
    assert crowd.queue.overfull is None or not crowd.queue.overfull.clients


def test_a_client_waits_for_all_queues_that_it_has_filled() -> None:
    crowd = Crowd(x_max_length=1)
    other = crowd.bench.host.declare_queue("r", arguments=spelled({**WAITS, "x_max_length": 1}))
    exchange = crowd.bench.host.exchange("amq.fanout")
    for queue in (crowd.queue, other):
        crowd.bench.host.bind(exchange, queue, "")
    crowd.broker.tick()
    for _ in range(3):
        crowd.broker.publish(exchange, Message(ENCODING, "amq.fanout", "", b"", b"x", Facts()))
    crowd.client.wait_for_overfull()
    crowd.take(3)
    assert (crowd.waits, crowd.resumed) == (True, 0)
    other.purge()
    crowd.broker.settle()
    assert (crowd.waits, crowd.resumed) == (False, 1)


def test_dead_letters_make_no_client_wait() -> None:
    crowd = Crowd(x_max_length=1)
    source = crowd.bench.host.declare_queue(
        "dying", arguments=spelled({"x_dead_letter_exchange": "", "x_dead_letter_routing_key": "q"})
    )
    for _ in range(3):
        source.push(Message(ENCODING, "", "dying", b"", b"x", Facts()))
        fetched(source, settled=False).reject()
    crowd.broker.settle()
    assert crowd.queue.ready == 3
    crowd.broker.tick()
    assert not crowd.broker.overfull


@given(st.lists(st.one_of(st.integers(1, 30), st.integers(-30, -1)), max_size=30), st.integers(0, 100))
def test_publishers_wait_exactly_between_the_two_limits(steps: list[int], percent: int) -> None:
    """A positive step publishes, a negative one takes. Who waits does not publish."""
    crowd = Crowd(x_max_length=20, x_flow_resume_percent=percent)
    waiting, ready = False, 0
    for step in steps:
        if step > 0 and not waiting:
            crowd.publish(*[b"x"] * step)
            ready += step
            waiting = ready > 20
        elif step < 0:
            taken = min(-step, ready)
            crowd.take(taken)
            ready -= taken
            waiting = waiting and ready > 20 * percent // 100
        assert (crowd.queue.ready, crowd.waits) == (ready, waiting)


# On disk.


def filled(site: Site, count: int) -> WorkQueue:
    queue = site.host.queue("q")
    assert isinstance(queue, WorkQueue)
    site.publish("", "q", *[b"%d" % number for number in range(count)])
    site.advance(1)
    return queue


@pytest.mark.parametrize("limit", [{"x_max_length": 7}, {"x_max_length_bytes": 10}, {"x_max_length": 0}])
def test_what_is_over_the_limit_is_on_disk_only_and_comes_in_order(limit: dict[str, int]) -> None:
    site = Site()
    site.queue("q", **ON_DISK, **limit)
    queue = filled(site, 2000)
    assert queue.ready == 2000
    assert in_memory(queue) <= 10
    killed = site.again().host.queue("q")
    assert [int(fetched(killed, settled=True).message.body) for _ in range(2000)] == [*range(2000)]
    assert [int(fetched(queue, settled=True).message.body) for _ in range(2000)] == [*range(2000)]


def test_transient_messages_go_to_disk_too() -> None:
    site = Site()
    site.queue("q", **ON_DISK, x_max_length=5)
    queue = site.host.queue("q")
    assert isinstance(queue, WorkQueue)
    for number in range(100):
        queue.push(Message(ENCODING, "", "q", b"", b"%d" % number, Facts()))
    for _ in range(20):
        site.advance(0.1)
    assert in_memory(queue) == 5
    assert [int(fetched(queue, settled=True).message.body) for _ in range(100)] == [*range(100)]


def test_a_short_queue_stays_in_memory_and_sets_no_timer() -> None:
    site = Site()
    site.queue("q", **ON_DISK, x_max_length=100)
    queue = filled(site, 100)
    assert (in_memory(queue), queue.backlog, queue.overfull) == (100, None, None)


def test_without_a_data_folder_it_is_told_that_nothing_goes_to_disk() -> None:
    bench = CoreBench()
    queue = bench.host.declare_queue("q", arguments=spelled({**ON_DISK, "x_max_length": 1}))
    assert any("no data folder" in each for each in bench.host.queue_warnings(queue))
    assert not any(
        "no data folder" in each for each in Site().host.queue_warnings(Site().queue("q", **ON_DISK))
    )


# The node's credit.


def test_credit_bounds_queues_without_a_limit_and_no_others() -> None:
    bench = CoreBench()
    bench.broker.flow_credit = 5
    plain = bench.host.declare_queue("plain")
    own = bench.host.declare_queue("own", arguments={"x-max-length": 9})
    stream = bench.host.declare_queue("s", durable=True, arguments={"x-queue-type": "stream"})
    assert (plain.limits.max_length, plain.limits.overflow.value) == (5, "producer-flow-control")
    assert (own.limits.max_length, own.limits.overflow.value) == (9, "drop-head")
    assert stream.limits.max_length is None
    bench.broker.flow_credit = None
    bench.host.apply_policies()
    assert plain.limits.max_length is None
