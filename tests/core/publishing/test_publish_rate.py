"""Publish rates: what is published in the long run, in what turns, and what a change of a limit does."""

from __future__ import annotations

from collections import Counter

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leveret.broker import Broker
from leveret.client import Client
from leveret.clock import ManualClock, Timers
from leveret.limits import UserLimits, VirtualHostLimits
from leveret.publishing.publish_rate import BURST_S, DEBT_S, READ_MIN, TICK_S, Meter, PublishRate


class Publisher:
    """A connection that always has more to publish, `size` messages a read, and publishes whenever it is read from."""

    def __init__(self, size: int, *rates: PublishRate) -> None:
        self.size = size
        self.published = 0
        self.meter = Meter(rates, self.resumed)
        self.is_read = True

    def resumed(self) -> None:
        self.is_read = True

    def read(self, now: float) -> None:
        self.published += self.size
        self.meter.count(self.size, now)
        self.is_read = not self.meter.waits


def run(timers: Timers, publishers: list[Publisher], seconds: float, step_s: float = TICK_S / 2) -> None:
    """Let time pass, in which each connection that is read from publishes a read's worth in each step."""
    for step in range(round(seconds / step_s)):
        now = step * step_s
        timers.run(now)
        for each in publishers:
            if each.is_read:
                each.read(now)


@given(
    rate=st.integers(1, 5000),
    sizes=st.lists(st.integers(1, 200), min_size=1, max_size=5),
)
@settings(max_examples=40, deadline=None)
def test_in_the_long_run_the_rate_is_kept_from_above_and_from_below(rate: int, sizes: list[int]) -> None:
    timers, seconds = Timers(), 20.0
    limit = PublishRate(rate, timers, 0.0)
    publishers = [Publisher(size, limit) for size in sizes]
    run(timers, publishers, seconds)
    published = sum(each.published for each in publishers)
    step_s = TICK_S / 2
    offered = sum(sizes) * seconds / step_s
    burst = max(1.0, rate * BURST_S)
    # Above the allowance comes at most a read of each, and what a release expected to be enough.
    assert published <= burst + rate * seconds + 2 * sum(sizes) + 1
    assert published >= min(0.9 * rate * (seconds - 1), offered) - sum(sizes)


@pytest.mark.parametrize("sizes", [(1, 1), (1, 50), (100, 10, 10), (200, 1, 1, 1)])
def test_connections_of_one_rate_publish_the_same_whatever_the_size_of_their_batches(
    sizes: tuple[int, ...],
) -> None:
    timers = Timers()
    limit = PublishRate(100, timers, 0.0)
    publishers = [Publisher(size, limit) for size in sizes]
    run(timers, publishers, 120.0)
    share = sum(each.published for each in publishers) / len(sizes)
    for each in publishers:
        assert abs(each.published - share) <= 0.1 * share + 2 * max(sizes)


def test_one_that_comes_late_has_no_advantage_and_waits_no_longer() -> None:
    timers = Timers()
    limit = PublishRate(100, timers, 0.0)
    early = Publisher(5, limit)
    run(timers, [early], 10.0)
    late = Publisher(5, limit)
    before = early.published
    for step in range(4000):
        now = 10.0 + step * TICK_S / 2
        timers.run(now)
        for each in (early, late):
            if each.is_read:
                each.read(now)
    assert abs(late.published - (early.published - before)) <= 0.1 * late.published


def test_nobody_waits_below_the_rate_nor_in_a_burst() -> None:
    timers = Timers()
    limit = PublishRate(100, timers, 0.0)
    publisher = Publisher(100, limit)
    publisher.read(0.0)
    assert publisher.is_read
    for second in range(1, 50):
        publisher.read(float(second))
        assert publisher.is_read
    publisher.read(49.5)
    assert not publisher.is_read
    assert limit.wait_s(49.5) == pytest.approx(0.5)


def test_messages_of_no_read_cost_nothing() -> None:
    timers = Timers()
    publisher = Publisher(0, PublishRate(1, timers, 0.0))
    for _ in range(100):
        publisher.read(0.0)
    assert publisher.is_read
    assert timers.next_at() is None


def test_a_connection_waits_for_each_of_its_rates() -> None:
    timers = Timers()
    quick, slow = PublishRate(1000, timers, 0.0), PublishRate(10, timers, 0.0)
    publisher = Publisher(20, quick, slow)
    run(timers, [publisher], 60.0)
    assert 600 - 20 <= publisher.published <= 600 + 10 + 40


def test_who_left_is_not_waited_for() -> None:
    timers = Timers()
    limit = PublishRate(10, timers, 0.0)
    gone, left = Publisher(1000, limit), Publisher(5, limit)
    gone.read(0.0)
    gone.meter.leave()
    assert gone.is_read  # what it says last is read
    left.read(0.0)
    timers.run(99.0)
    assert not left.is_read
    timers.run(101.0)
    assert left.is_read


def test_a_lower_rate_counts_from_now_on_and_a_higher_one_ends_the_wait_sooner() -> None:
    timers = Timers()
    limit = PublishRate(10, timers, 0.0)
    publisher = Publisher(110, limit)
    publisher.read(0.0)
    limit.set_rate(1000, 0.0)
    timers.run(0.2)
    assert publisher.is_read
    limit.set_rate(1, 10.0)
    publisher.read(10.0)
    assert limit.wait_s(10.0) == pytest.approx(109.0)


def test_reads_are_small_where_the_rate_is_low() -> None:
    timers = Timers()
    limits = [PublishRate(rate, timers, 0.0) for rate in (10, 100_000)]
    assert Meter((limits[0], limits[1]), str).read_max == READ_MIN
    assert Meter((limits[1],), str).read_max > 1 << 20


# In a broker.


def entered(broker: Broker, user: str = "guest", host: str = "/") -> Client:
    found = broker.access.user(user)
    assert found is not None
    client = Client(broker, found)
    client.enter(host)
    return client


@pytest.fixture
def broker() -> Broker:
    made = Broker(ManualClock())
    made.add_virtual_host("/")
    for name in ("guest", "other"):
        made.access.add_user(name, name, ())
        made.access.set_permissions(name, "/", ".*", ".*", ".*")
    return made


def limit_user(broker: Broker, rate: int | None, name: str = "guest") -> None:
    user = broker.access.user(name)
    assert user is not None
    broker.access.put_user(attrs.evolve(user, limits=UserLimits(max_publish_rate=rate)))


def test_without_a_limit_there_is_no_meter(broker: Broker) -> None:
    assert entered(broker).meter is None


def test_a_limit_that_is_set_changed_or_taken_back_counts_at_once(broker: Broker) -> None:
    client, other = entered(broker), entered(broker, "other")
    limit_user(broker, 10)
    assert client.meter is not None
    assert other.meter is None
    resumed: list[int] = []
    client.resumed = lambda: resumed.append(1)
    limit_user(broker, 5)
    client.meter.count(100, 0.0)
    assert client.meter.waits
    limit_user(broker, -1)
    assert client.meter is None
    assert resumed == [1]


def test_connections_of_a_user_share_a_rate_and_those_of_a_virtual_host(broker: Broker) -> None:
    limit_user(broker, 10)
    broker.virtual_host("/").set_limits(VirtualHostLimits(max_publish_rate=20))
    one, two, other = entered(broker), entered(broker), entered(broker, "other")
    assert one.meter is not None
    assert two.meter is not None
    assert other.meter is not None
    assert one.meter.rates == two.meter.rates
    assert [rate.rate for rate in one.meter.rates] == [10, 20]
    assert other.meter.rates == one.meter.rates[1:]
    broker.publish_rates.set_per_connection(7)
    assert [rate.rate for rate in other.meter.rates] == [20, 7]
    assert one.meter.rates[2] is not two.meter.rates[2]


def test_connecting_anew_is_no_way_around_the_rate(broker: Broker) -> None:
    limit_user(broker, 10)
    published: Counter[bool] = Counter()
    for _ in range(100):
        client = entered(broker)
        assert client.meter is not None
        if client.meter.waits:
            published[True] += 0
        else:
            client.meter.count(50, broker.now)
            published[False] += 50
        client.leave()
    assert published[False] <= 10 + 10 * DEBT_S + 50
