"""Messages that move from queue to queue when the node ends suddenly: what may come twice says so.

A message moves in memory, and a consumer of its next queue has it before that is on disk. After a kill it is in its old
place, moves once more, and is delivered for the second time.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from leveret.clock import ManualClock
from leveret.delivery import Delivery
from leveret.durable.store.memory import MemoryStore
from leveret.exchanges.exchange_type import ExchangeType
from leveret.features.xa.branch import Verb, Verdict
from leveret.message import Message
from leveret.plugins.delayed_message import DelayedMessage
from leveret.protocols.amqp091.broker.encoding import ENCODING as ENCODING091
from leveret.protocols.amqp091.broker.encoding import project
from leveret.queues.work_queue import WorkQueue
from leveret.values import Properties
from tests.core.fakes import FakeConsumer, fetched
from tests.durable.site import TYPES, Site, land_all
from tests.features.xa.branching import Crew, xid

DEAD = {"x_dead_letter_exchange": "", "x_dead_letter_routing_key": "next"}
DELAYED: dict[str, type[ExchangeType]] = {**TYPES, DelayedMessage.name: DelayedMessage}


def site() -> Site:
    made = Site(MemoryStore(held=True), types=DELAYED)
    land_all(made)
    made.queue("next")
    return made


def started(before: Site, clean: bool = False, held: bool = False) -> Site:
    """The next start, from what is on disk."""
    if clean:
        before.settle()
        before.store.held = False
        before.journal.close()
    clock = ManualClock(7.0, before.clock.wall())
    return Site(before.store.reopened(held), before.config, DELAYED, clock)


def passed_on(site: Site, seconds: float = 0) -> list[Delivery]:
    """What a consumer of the next queue has got after a while."""
    consumer = FakeConsumer(site.host.queue("next"))
    site.advance(seconds)
    site.settle()
    return consumer.got


# Each has a message in a place from which it moves on, and returns a function that moves it.


def expiring(site: Site) -> Callable[[Site], list[Delivery]]:
    site.queue("q", x_message_ttl=1000, **DEAD)
    site.publish("", "q", b"a")
    return lambda site: passed_on(site, 2)


def rejected(site: Site) -> Callable[[Site], list[Delivery]]:
    site.queue("q", **DEAD)
    site.publish("", "q", b"a")

    def move(site: Site) -> list[Delivery]:
        fetched(site.host.queue("q"), settled=False).reject()
        return passed_on(site)

    return move


def rejected_and_held(site: Site) -> Callable[[Site], list[Delivery]]:
    """The dead letter is held, at least once, as its target is full."""
    limits = {"x_dead_letter_strategy": "at-least-once", "x_overflow": "reject-publish"}
    full = site.queue("full", x_max_length=0, x_overflow="reject-publish")
    exchange = site.exchange("both")
    site.host.bind(exchange, full, "")
    site.queue("q", x_queue_type="quorum", x_dead_letter_exchange="both", **limits)
    site.publish("", "q", b"a")
    fetched(site.host.queue("q"), settled=False).reject()
    land_all(site)

    def move(site: Site) -> list[Delivery]:
        site.host.bind(site.host.exchange("both"), site.host.queue("next"), "")
        return passed_on(site, 100)

    return move


def delayed(site: Site) -> Callable[[Site], list[Delivery]]:
    later = site.host.declare_exchange(
        "later", DelayedMessage.name, durable=True, arguments={"x-delayed-type": "fanout"}
    )
    site.host.bind(later, site.host.queue("next"), "")
    octets = ENCODING091.write(Properties(headers={"x-delay": 1000}, durable=True))
    facts, _ = project(octets)
    site.broker.publish(later, Message(ENCODING091, "later", "", octets, b"a", facts))
    return lambda site: passed_on(site, 2)


def prepared(site: Site) -> Callable[[Site], list[Delivery]]:
    crew = Crew(site.host)
    crew.session.start(xid("a"))
    crew.publish(("next", b"a"))
    crew.session.end(xid("a"))
    assert crew.ask("a", Verb.PREPARE) is Verdict.OK

    def move(site: Site) -> list[Delivery]:
        assert Crew(site.host).ask("a", Verb.COMMIT) is Verdict.OK
        return passed_on(site)

    return move


MOVES = [expiring, rejected, rejected_and_held, delayed, prepared]


@pytest.mark.parametrize("begin", MOVES)
def test_what_was_passed_on_before_a_kill_is_redelivered_after_it(
    begin: Callable[[Site], Callable[[Site], list[Delivery]]],
) -> None:
    before = site()
    move = begin(before)
    land_all(before)
    assert [each.redelivered for each in move(before)] == [False]
    after = started(before)
    assert [(each.message.body, each.redelivered) for each in move(after)] == [(b"a", True)]


@pytest.mark.parametrize("begin", MOVES)
def test_what_moves_after_a_proper_end_is_new_in_its_next_queue(
    begin: Callable[[Site], Callable[[Site], list[Delivery]]],
) -> None:
    before = site()
    move = begin(before)
    land_all(before)
    assert [each.redelivered for each in move(started(before, clean=True))] == [False]


def test_what_arrives_after_a_kill_is_new_wherever_it_moves() -> None:
    before = site()
    before.queue("q", **DEAD)
    land_all(before)
    after = started(before)
    after.publish("", "q", b"b")
    fetched(after.host.queue("q"), settled=False).reject()
    assert [each.redelivered for each in passed_on(after)] == [False]


@pytest.mark.parametrize("clean", [True, False])
def test_the_note_goes_with_it_through_further_queues_and_starts(clean: bool) -> None:
    """It may have been in all of them before the kill."""
    before = site()
    before.queue("first", x_dead_letter_exchange="", x_dead_letter_routing_key="second")
    before.queue("second", **DEAD)
    before.publish("", "first", b"a")
    land_all(before)
    for name in ("first", "second"):
        fetched(before.host.queue(name), settled=False).reject()
        before.settle()
    assert [each.redelivered for each in passed_on(before)] == [False]
    after = started(before)
    fetched(after.host.queue("first"), settled=False).reject()
    after.settle()
    after = started(after, clean)
    delivery = fetched(after.host.queue("second"), settled=False)
    assert delivery.redelivered
    delivery.reject()
    assert [each.redelivered for each in passed_on(after)] == [True]


def test_it_is_redelivered_when_it_was_paged_out_meanwhile() -> None:
    before = site()
    before.queue("q", **DEAD)
    before.publish("", "q", b"a")
    land_all(before)
    after = started(before)
    fetched(after.host.queue("q"), settled=False).reject()
    after.settle()
    waiting = after.host.queue("next")
    assert isinstance(waiting, WorkQueue)
    assert waiting.page_out(0)
    assert [each.redelivered for each in passed_on(after)] == [True]
    assert waiting.redelivered == 1
