"""A clock that was set back before a start: nothing lasts, or waits, for longer than it was to."""

from __future__ import annotations

import logging

import pytest

from tests.core.fakes import fetched, waiting
from tests.durable.site import Site

BACK_S = -7200


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("back_s", [BACK_S, -1, 0])
def test_a_message_expires_within_its_time_to_live(clean: bool, back_s: float) -> None:
    site = Site()
    site.queue(x_message_ttl=60_000)
    site.publish("", "q", b"early")
    site.advance(20)
    site.publish("", "q", b"late")
    after = site.again(away_s=back_s, clean=clean)
    after.publish("", "q", b"new")
    after.advance(39)
    assert waiting(after.host.queue("q")) == "early late new"
    after.advance(2)
    assert waiting(after.host.queue("q")) == "late new"
    after.advance(20.1)
    assert waiting(after.host.queue("q")) == ""
    again = after.again(away_s=2 * BACK_S)
    assert waiting(again.host.queue("q")) == ""


def test_what_comes_after_the_start_has_its_own_time(caplog: pytest.LogCaptureFixture) -> None:
    site = Site()
    site.queue(x_message_ttl=60_000)
    site.publish("", "q", b"before")
    with caplog.at_level(logging.WARNING):
        after = site.again(away_s=BACK_S)
    assert "the clock was set back by 7200 s at least since messages were stored" in caplog.text
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
    queue.release(fetched(queue, settled=False))
    site.settle()
    after = site.again(away_s=BACK_S)
    assert (waiting(after.host.queue("q")), after.host.queue("q").delayed) == ("", 1)
    after.advance(10.1)
    after.settle()
    assert waiting(after.host.queue("q")) == "a"
