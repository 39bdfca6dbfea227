"""Streams in a store whose first message has another offset than 0, over starts."""

from __future__ import annotations

import pytest

from tests.core.fakes import FakeConsumer
from tests.durable.site import Site
from tests.features.leases.leased import settle_down

FIRST = 5_000_000_000


def read(site: Site) -> list[int]:
    consumer = FakeConsumer(site.host.queues["s"], credit=100, arguments={"x-stream-offset": "first"})
    settle_down(site.broker)
    return [delivery.position for delivery in consumer.got]


@pytest.mark.parametrize("clean", [False, True])
def test_offsets_go_on_from_the_first_one_over_starts(clean: bool) -> None:
    site = Site()
    site.queue("s", x_queue_type="stream", x_stream_initial_offset=FIRST)
    site = site.again(clean=clean)  # before there is a message
    assert read(site) == []
    site.publish("", "s", b"a", b"b")
    settle_down(site.broker)
    assert read(site) == [FIRST, FIRST + 1]
    site = site.again(clean=clean)
    site.publish("", "s", b"c")
    settle_down(site.broker)
    assert read(site) == [FIRST, FIRST + 1, FIRST + 2]
