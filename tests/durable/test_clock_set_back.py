"""A clock that was set back before a start: nothing lasts or waits for longer than it was to, nor for less."""

from __future__ import annotations

import pytest

from leveret.durable.wall_offsets import WallOffsets
from leveret.message import Facts, Message
from tests.core.fakes import fetched, waiting
from tests.durable.site import Site
from tests.harness.bench import ENCODING

BACK_S = -7200


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("paged", [True, False])
def test_a_message_has_its_time_to_live_at_most(clean: bool, paged: bool) -> None:
    site = Site()
    queue = site.queue(x_message_ttl=60_000)
    site.publish("", "q", b"early")
    site.advance(20)
    site.publish("", "q", b"late")
    after = site.again(away_s=BACK_S, clean=clean)
    queue = after.host.queue("q")
    after.publish("", "q", b"new")
    after.advance(59)
    assert waiting(queue) == "early late new"
    if paged:
        queue.page_out(0)  # type: ignore[attr-defined]
    after.advance(1.1)
    assert waiting(queue) == ""
    again = after.again(away_s=2 * BACK_S)
    assert waiting(again.host.queue("q")) == ""


@pytest.mark.parametrize("again_s", [-1.0, 0.0, 1.0])
def test_what_is_stored_after_the_clock_was_set_back_does_not_end_early(again_s: float) -> None:
    """Its arrival lies before that of what was stored while the clock was ahead, which says nothing about it."""
    site = Site()
    site.queue("other")
    site.queue(x_message_ttl=60_000)
    site.publish("", "other", b"before")
    site.clock.jump(BACK_S)
    site.publish("", "q", b"after")
    site.advance(10)
    after = site.again(away_s=again_s)
    after.advance(49.5 - again_s)
    assert waiting(after.host.queue("q")) == "after"
    after.advance(1)
    assert waiting(after.host.queue("q")) == ""


def test_what_comes_after_the_start_has_its_own_time() -> None:
    site = Site()
    site.queue(x_message_ttl=60_000)
    site.publish("", "q", b"before")
    after = site.again(away_s=BACK_S)
    after.advance(30)
    after.publish("", "q", b"new")
    after.advance(31)
    assert waiting(after.host.queue("q")) == "new"
    after.advance(30)
    assert waiting(after.host.queue("q")) == ""


def test_a_message_that_waits_is_ready_within_its_delay() -> None:
    site = Site()
    queue = site.queue(x_delivery_limit=9, x_delayed_retry_type="all", x_delayed_retry_min=10_000)
    site.publish("", "q", b"a")
    queue.release(fetched(queue, settled=False))  # type: ignore[attr-defined]
    site.settle()
    after = site.again(away_s=BACK_S)
    assert (waiting(after.host.queue("q")), after.host.queue("q").delayed) == ("", 1)  # type: ignore[attr-defined]
    after.advance(10.1)
    after.settle()
    assert waiting(after.host.queue("q")) == "a"


def test_a_time_that_a_consumer_gave_outlasts_a_start_where_the_clock_was_not_set() -> None:
    site = Site()
    queue = site.queue(x_delivery_limit=9, x_delayed_retry_type="all", x_delayed_retry_min=10_000)
    site.publish("", "q", b"a")
    queue.release(fetched(queue, settled=False), until=site.clock.now() + 3600)  # type: ignore[attr-defined]
    site.settle()
    after = site.again()
    after.advance(3599)
    after.settle()
    assert waiting(after.host.queue("q")) == ""
    after.advance(2)
    after.settle()
    assert waiting(after.host.queue("q")) == "a"


def test_a_message_for_later_waits_for_its_delay_at_most() -> None:
    site = Site()
    site.queue(x_delayed_message=True)
    message = Message(
        ENCODING, "", "q", b"", b"a", Facts(durable=True, due_ms=int((site.clock.wall() + 30) * 1000))
    )
    site.broker.publish(site.host.exchange(""), message)
    site.settle()
    after = site.again(away_s=BACK_S)
    queue = after.host.queue("q")
    assert (waiting(queue), queue.delayed) == ("", 1)  # type: ignore[attr-defined]
    after.advance(30.1)
    after.settle()
    assert waiting(queue) == "a"


def test_the_clock_of_an_entry_was_ahead_by_what_its_own_arrival_says() -> None:
    offsets = WallOffsets(500.0, 10_000.0)
    assert [offsets.ahead_ms(ms) for ms in (9_000, 10_000, 12_000)] == [0.0, 0.0, 2_000.0]
    offsets.recovered(5)
    offsets.clock_was_set(700.0, 6)
    assert [offsets.of(number, 12_000) for number in (4, 5, 6)] == [2_500.0, 500.0, 700.0]
