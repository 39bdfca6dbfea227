"""Messages that wait for a time: from start to start, and in the files of the store."""

from __future__ import annotations

from array import array
from pathlib import Path

import pytest

from leveret.durable.store.database import FORMAT, WAITING
from leveret.durable.store.folder import BadFolder
from leveret.durable.store.sqlite import SqliteStore
from leveret.mark import (
    ATTEMPTS_MAX,
    DUE_MAX_MS,
    attempts_in,
    due_ms_in,
    has_waiting,
    is_fresh,
    is_plain,
    mark_of,
)
from leveret.message import LOWEST, Facts, Message
from leveret.queues.queue import Queue
from leveret.queues.work_queue import WorkQueue
from tests.core.fakes import FakeConsumer, fetched, waiting
from tests.durable.site import Site
from tests.durable.store.shelf import Shelf, entries
from tests.harness.bench import ENCODING

RETRY = {"x_delayed_retry_min": 10_000}
DEAD = {"x_dead_letter_exchange": "", "x_dead_letter_routing_key": "dead"}


def put_off(site: Site, queue: Queue, count: int = 1, **said: bool) -> None:
    """Have the first messages of a queue wait after a failed delivery."""
    for delivery in [fetched(queue, settled=False) for _ in range(count)]:
        queue.release(delivery, **said)
    site.settle()


def found(site: Site, name: str = "q") -> tuple[str, int]:
    queue = site.host.queue(name)
    return waiting(queue), queue.delayed


@pytest.mark.parametrize(
    "mark", [(0, False, 0), (3, True, 0), (0, True, 1), (ATTEMPTS_MAX, False, DUE_MAX_MS)]
)
def test_a_mark_says_three_things(mark: tuple[int, bool, int]) -> None:
    said = mark_of(*mark)
    assert (attempts_in(said), is_fresh(said), due_ms_in(said)) == mark
    assert 0 <= said < 1 << 63
    assert is_plain(said) == (mark[1:] == (False, 0))


def test_what_is_too_large_for_a_mark_is_cut() -> None:
    assert mark_of(1 << 50, True, 1 << 50) == mark_of(ATTEMPTS_MAX, True, DUE_MAX_MS)


def test_the_mark_for_all_entries_up_to_one_is_a_number_of_an_entry() -> None:
    assert not has_waiting({0: 1 << 40, 5: 7})
    assert has_waiting({5: 1 << 40})


@pytest.mark.parametrize("clean", [True, False])
def test_a_message_waits_on_after_a_start_until_its_time(site: Site, clean: bool) -> None:
    queue = site.queue(x_delivery_limit=9, **RETRY)
    site.publish("", "q", b"a", b"b", b"c")
    put_off(site, queue, 2)
    after = site.again(away_s=4, clean=clean)
    assert found(after) == ("c", 2)
    after.advance(5.5)
    assert found(after) == ("c", 2)
    after.advance(0.501)
    after.settle()
    assert found(after) == ("a b c", 0)
    first = fetched(after.host.queue("q"), settled=False)
    assert (first.message.body, first.attempts, first.redelivered) == (b"a", 1, True)


@pytest.mark.parametrize("clean", [True, False])
def test_a_message_whose_time_came_meanwhile_is_ready(site: Site, clean: bool) -> None:
    queue = site.queue(**RETRY)
    site.publish("", "q", b"a", b"b")
    put_off(site, queue)
    after = site.again(away_s=11, clean=clean)
    assert found(after) == ("a b", 0)
    assert fetched(after.host.queue("q"), settled=False).attempts == 1


@pytest.mark.parametrize("clean", [True, False])
def test_attempts_and_expiry_outlive_several_starts(site: Site, clean: bool) -> None:
    site.queue("dead")
    queue = site.queue(x_message_ttl=35_000, **RETRY, **DEAD)
    site.publish("", "q", b"a")
    put_off(site, queue)
    second = site.again(away_s=11, clean=clean)
    put_off(second, second.host.queue("q"))
    third = second.again(away_s=5, clean=clean)
    assert found(third) == ("", 1)
    fourth = third.again(away_s=16, clean=clean)
    delivery = fetched(fourth.host.queue("q"), settled=False)
    assert delivery.attempts == 2
    fourth.host.queue("q").release(delivery)
    fourth.settle()
    fifth = fourth.again(away_s=4, clean=clean)
    fifth.advance(0)
    fifth.settle()
    assert (found(fifth), found(fifth, "dead")) == (("", 0), ("a", 0))


def test_a_restart_forgets_what_was_dropped_and_knows_what_was_hastened(site: Site) -> None:
    queue = site.queue(**RETRY)
    assert isinstance(queue, WorkQueue)
    site.publish("", "q", b"a", b"b", b"c", b"d")
    put_off(site, queue, 4)
    queue.scheduled().drop([0])
    queue.scheduled().hasten([1])
    site.advance(0)
    second = site.again(clean=False)
    assert found(second) == ("b", 2)
    again = second.host.queue("q")
    assert isinstance(again, WorkQueue)
    again.scheduled().drop([2])
    again.scheduled().hasten([3])
    second.advance(0)
    second.settle()
    assert found(second.again()) == ("b d", 0)


@pytest.mark.parametrize("clean", [True, False])
def test_positions_go_on_behind_what_waits(site: Site, clean: bool) -> None:
    queue = site.queue(**RETRY)
    site.publish("", "q", b"a", b"b")
    put_off(site, queue, 2)
    after = site.again(clean=clean)
    after.publish("", "q", b"c")
    after.advance(20)
    after.settle()
    assert found(after) == ("a b c", 0)


def test_priorities_and_the_last_of_values_are_kept_while_messages_wait(site: Site) -> None:
    queue = site.queue(x_max_priority=3, **RETRY)
    last = site.queue("last", x_last_value_key="of", **RETRY)
    site.publish("", "last", b"old")
    put_off(site, last)
    for priority in (1, 3, 2):
        queue.push(message_of(b"%d" % priority, priority))
    site.settle()
    put_off(site, queue, 3)
    after = site.again()
    after.publish("", "last", b"new")
    after.advance(20)
    after.settle()
    assert (found(after), found(after, "last")) == (("3 2 1", 0), ("new", 0))


def message_of(body: bytes, priority: int) -> Message:
    return Message(ENCODING, "", "q", b"", body, Facts(durable=True, priority=priority))


def test_transient_messages_that_wait_go_with_the_node(site: Site) -> None:
    queue = site.queue(**RETRY)
    consumer = FakeConsumer(queue, credit=1)
    queue.push(Message(ENCODING, "", "q", b"", b"gone"))
    site.settle()
    consumer.release(consumer.held[0])
    site.settle()
    assert found(site) == ("", 1)
    assert found(site.again()) == ("", 0)


# The files.


@pytest.mark.parametrize("how", ["closed", "killed"])
def test_a_database_has_format_2_from_the_first_mark_that_waits_on(tmp_path: Path, how: str) -> None:
    shelf = Shelf.of(tmp_path / "data").start()
    shelf.commit(chunks=[entries(1, b"x", b"y")], marks={0: 1 << 40, 1: 7})
    assert shelf.store.stats().format == FORMAT
    shelf.commit(marks={2: mark_of(1, False, 1_700_000_000_000)})
    assert shelf.store.stats().format == FORMAT + WAITING
    shelf = getattr(shelf, how)()
    assert shelf.found().marks == {0: 1 << 40, 1: 7, 2: mark_of(1, False, 1_700_000_000_000)}
    shelf.start()
    shelf.commit(dropped=[1])
    assert shelf.store.stats().format == FORMAT + WAITING
    shelf = shelf.closed()
    assert shelf.found().marks == {0: 1 << 40}
    shelf.store.close(None)


def test_a_database_has_format_2_from_the_first_priority_below_0_on(tmp_path: Path) -> None:
    shelf = Shelf.of(tmp_path / "data").start()
    shelf.commit(chunks=[entries(1, b"x")])
    assert shelf.store.stats().format == FORMAT
    lowest = entries(2, b"y")
    lowest.priorities = array("h", [LOWEST])
    shelf.commit(chunks=[entries(3, b"z"), lowest])
    assert shelf.store.stats().format == FORMAT + WAITING
    shelf.store.close(None)


def test_a_version_that_does_not_know_format_2_refuses_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shelf = Shelf.of(tmp_path / "data").start()
    shelf.commit(chunks=[entries(1, b"x")], marks={1: mark_of(0, True, 5)})
    shelf.store.close(shelf.new_commit())
    monkeypatch.setattr("leveret.durable.store.database.FORMAT_MAX", FORMAT)
    with pytest.raises(BadFolder, match="has format 2"):
        SqliteStore(tmp_path / "data")


def test_attempts_that_delay_nothing_yet_outlive_a_kill(site: Site) -> None:
    queue = site.queue(x_delayed_retry_type="returned", **RETRY)
    site.publish("", "q", b"a")
    put_off(site, queue)
    assert found(site) == ("a", 0)
    assert fetched(site.again(clean=False).host.queue("q"), settled=False).attempts == 1
