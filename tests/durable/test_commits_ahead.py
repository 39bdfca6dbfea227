"""A store that encodes one commit while it waits for the answer to another gets two: when, and what holds then."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from leveret.durable.journal import AHEAD_ENTRIES, LOST, RETRY_S, STALLED
from leveret.durable.store.contract import Commit, NoSpaceError, StoreError
from leveret.durable.store.memory import MemoryStore
from tests.core.fakes import FakeConsumer, waiting
from tests.durable.test_journal import Kept, Told


class TakesTwo(MemoryStore):
    """A store in memory that takes a second commit before the first is durable."""

    commits_max = 2

    def reopened(self, held: bool = False) -> TakesTwo:
        found, store = super().reopened(held), TakesTwo(held)
        store.content, store.was_clean = found.content, found.was_clean
        return store


BODIES = [b"%d" % number for number in range(AHEAD_ENTRIES)]


@pytest.fixture
def kept() -> Kept:
    return Kept(TakesTwo(held=True), "q", "r")


@pytest.fixture
def publisher(kept: Kept) -> Told:
    """A publisher with one commit in flight."""
    made = Told(kept)
    publish(made, BODIES)
    return made


def publish(publisher: Told, bodies: list[bytes], key: str = "q") -> None:
    """Publish messages that come together."""
    for body in bodies:
        publisher.publish(key, body)
    publisher.kept.settle()


def given_to(kept: Kept) -> list[int]:
    """Numbers of the commits that the store has."""
    return [commit.number for commit in kept.store.given]


def test_as_much_as_is_in_flight_is_given_before_that_is_durable(kept: Kept, publisher: Told):
    publish(publisher, BODIES)
    assert given_to(kept) == [1, 2]
    assert publisher.safe == 0
    for safe in (AHEAD_ENTRIES, 2 * AHEAD_ENTRIES):
        kept.store.land()
        kept.hear()
        assert publisher.safe == safe
    assert waiting(kept.crash().q["q"]).encode().split() == BODIES + BODIES


def test_less_than_is_in_flight_waits_for_more(kept: Kept, publisher: Told):
    publish(publisher, BODIES[1:])
    assert given_to(kept) == [1]
    publish(publisher, BODIES[:1])
    assert given_to(kept) == [1, 2]


def test_a_little_is_not_given_however_little_is_in_flight(kept: Kept):
    publisher = Told(kept)
    publish(publisher, BODIES[:1])
    publish(publisher, BODIES[1:])
    assert given_to(kept) == [1]
    kept.store.land()
    kept.hear()
    assert given_to(kept) == [2]


def test_no_more_are_given_than_the_store_takes(kept: Kept, publisher: Told):
    for _ in range(3):
        publish(publisher, BODIES)
    assert given_to(kept) == [1, 2]
    kept.store.land()
    kept.hear()
    assert given_to(kept) == [2, 3]
    kept.land()
    assert publisher.safe == publisher.published == 4 * AHEAD_ENTRIES


def test_a_store_that_takes_one_gets_one():
    kept = Kept(MemoryStore(held=True), "q")
    publisher = Told(kept)
    for _ in range(2):
        publish(publisher, BODIES)
    assert given_to(kept) == [1]


def with_a_consumer(kept: Kept) -> None:
    """It has its message, and the others wait until it has answered."""
    FakeConsumer(kept.q["r"], credit=1)
    kept.publish("r", b"taken")
    kept.land()
    publish(Told(kept), BODIES)


def with_an_object(kept: Kept) -> None:
    kept.journal.put("key", "value")


def with_an_acknowledgement(kept: Kept) -> None:
    kept.q["q"].purge()


@pytest.mark.parametrize("besides", [with_a_consumer, with_an_object, with_an_acknowledgement])
def test_what_consumers_may_settle_and_whatever_is_not_only_messages_stays_open(
    kept: Kept, publisher: Told, besides: Callable[[Kept], None]
):
    besides(kept)
    before = given_to(kept)
    publish(publisher, BODIES, "r")
    assert len(before) == 1
    assert given_to(kept) == before


def test_both_are_given_again_in_order_if_there_was_no_room(kept: Kept, publisher: Told):
    publish(publisher, BODIES)
    for _ in range(2):
        kept.store.fail(NoSpaceError("full"))
        kept.hear()
        publish(publisher, BODIES)
        assert given_to(kept) == []
        kept.advance(RETRY_S)
        assert given_to(kept) == [1, 2]
    kept.land()
    assert publisher.safe == publisher.published == 4 * AHEAD_ENTRIES
    assert kept.crash().q["q"].ready == 4 * AHEAD_ENTRIES


def test_while_the_store_does_not_answer_it_gets_no_second_commit(kept: Kept, publisher: Told):
    kept.journal._on_stalled("the database is away")
    publish(publisher, BODIES)
    assert given_to(kept) == [1]
    kept.journal._on_stalled(None)
    kept.land()
    assert publisher.safe == publisher.published


def test_after_a_failure_neither_is_confirmed(kept: Kept, publisher: Told):
    publish(publisher, BODIES)
    kept.store.fail(StoreError("input/output error"))
    kept.hear()
    kept.advance(RETRY_S)
    assert (given_to(kept), publisher.safe) == ([], 0)
    assert isinstance(kept.failure, StoreError)


def test_both_are_written_before_the_last_commit(
    kept: Kept, publisher: Told, monkeypatch: pytest.MonkeyPatch
):
    publish(publisher, BODIES)
    publish(publisher, BODIES[:3])
    taken: list[int] = []
    take = kept.store.content.take

    def noted(commit: Commit) -> None:
        taken.append(commit.number)
        take(commit)

    monkeypatch.setattr(kept.store.content, "take", noted)
    kept.journal.close()
    assert taken == [1, 2, 3]
    assert kept.crash().q["q"].ready == 2 * AHEAD_ENTRIES + 3


def test_what_is_not_on_disk_is_counted_until_it_is(kept: Kept, publisher: Told):
    publish(publisher, BODIES)
    both = kept.journal.ahead()
    kept.store.land()
    kept.hear()
    assert kept.journal.ahead() == both // 2
    kept.land()
    assert kept.journal.ahead() == 0


def test_what_the_store_has_lost_is_an_alarm_that_holds_nobody_back(
    kept: Kept, monkeypatch: pytest.MonkeyPatch
):
    alarms = kept.broker.alarms
    for has_lost in (False, True):
        monkeypatch.setattr(type(kept.store), "has_lost", has_lost)
        kept.journal._on_stalled("it lacks commits that were confirmed")
        assert alarms.reason == STALLED
        kept.journal._on_stalled(None)
        assert alarms.reason is None
        assert list(alarms.warnings) == [LOST] * has_lost
