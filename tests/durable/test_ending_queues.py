"""A queue that is deleted before its messages have come from another machine, and a node that ends meanwhile."""

from __future__ import annotations

import pytest

from leveret.catalogue import ENDING_QUEUE, LEASE
from leveret.config.config import parse
from leveret.features.leases.lease import opened
from leveret.policy import Policy
from leveret.queues.ending_queues import LOOK_S
from leveret.queues.work_queue import WorkQueue
from tests.durable.site import Site


class Elsewhere:
    """Whether messages of work queues are on another machine."""

    def __init__(self) -> None:
        self.names: set[str] = set()  # of the queues whose messages are


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> Elsewhere:
    made = Elsewhere()
    monkeypatch.setattr(WorkQueue, "asks_for_first", lambda queue, count=0: queue.name in made.names)
    return made


def deleting(elsewhere: Elsewhere) -> Site:
    """A queue with two messages has been deleted, and they have not come."""
    site = Site()
    site.host.bind(site.exchange("others"), site.queue("dead"), "")
    queue = site.queue("q", x_alternate_exchange="others")
    site.publish("", "q", b"one", b"two")
    elsewhere.names.add("q")
    site.host.delete_queue(queue)
    site.settle()
    assert ENDING_QUEUE in site.kinds()
    assert site.host.queues.keys() == {"dead"}
    return site


def bodies(site: Site, name: str) -> list[bytes]:
    return [delivery.message.body for delivery in site.host.queues[name].waiting()]


def come(site: Site, elsewhere: Elsewhere) -> None:
    elsewhere.names.clear()
    site.advance(LOOK_S * 2)
    site.settle()


def ended(site: Site) -> bool:
    return ENDING_QUEUE not in site.kinds() and not site.host.ending


def test_its_messages_go_elsewhere_once_they_have_come(elsewhere: Elsewhere):
    site = deleting(elsewhere)
    come(site, elsewhere)
    assert bodies(site, "dead") == [b"one", b"two"]
    assert ended(site)


def test_it_stays_deleted_if_the_node_ends_and_its_messages_go_elsewhere_after_the_next_start(
    elsewhere: Elsewhere,
):
    after = deleting(elsewhere).again()
    assert after.host.queues.keys() == {"dead"}
    after.advance(LOOK_S * 2)
    assert bodies(after, "dead") == []
    come(after, elsewhere)
    assert bodies(after, "dead") == [b"one", b"two"]
    assert ended(after)
    again = after.again()
    assert (again.host.queues.keys(), bodies(again, "dead")) == ({"dead"}, [b"one", b"two"])


def test_another_queue_of_its_name_is_another_queue_after_the_next_start(elsewhere: Elsewhere):
    site = deleting(elsewhere)
    site.queue("q")
    site.publish("", "q", b"three")
    after = site.again()
    assert bodies(after, "q") == [b"three"]
    come(after, elsewhere)
    assert (bodies(after, "q"), bodies(after, "dead")) == ([b"three"], [b"one", b"two"])
    assert ended(after)
    assert bodies(after.again(), "q") == [b"three"]


def test_another_queue_of_its_name_stays_when_it_has_ended(elsewhere: Elsewhere):
    site = deleting(elsewhere)
    site.queue("q")
    site.publish("", "q", b"three")
    come(site, elsewhere)
    assert ended(site)
    after = site.again()
    assert (bodies(after, "q"), bodies(after, "dead")) == ([b"three"], [b"one", b"two"])


def test_a_policy_says_where_its_messages_go_also_after_the_next_start(elsewhere: Elsewhere):
    site = Site(config=parse("[compat]\ndead_letter_on_delete = true"))
    site.host.bind(site.exchange("others"), site.queue("dead"), "")
    site.broker.policies.set(Policy("ending", "/", "^q$", {"dead-letter-exchange": "others"}))
    queue = site.queue("q")
    site.publish("", "q", b"one")
    elsewhere.names.add("q")
    site.host.delete_queue(queue)
    after = site.again()
    come(after, elsewhere)
    assert bodies(after, "dead") == [b"one"]


def test_it_is_restored_once_if_the_node_ended_before_its_old_record_was_removed(elsewhere: Elsewhere):
    site = deleting(elsewhere)
    (key,) = [key for key in site.objects if ENDING_QUEUE in key]
    site.store.content.objects['["queue","/","q"]'] = site.objects[key]
    after = site.again()
    come(after, elsewhere)
    assert (after.host.queues.keys(), bodies(after, "dead")) == ({"dead"}, [b"one", b"two"])
    assert '["queue","/","q"]' not in after.objects


def test_its_leases_end_at_once_so_that_their_names_are_free(elsewhere: Elsewhere):
    site = Site()
    queue = site.queue("q", x_alternate_exchange="dead")
    lease = opened(queue, "reader")
    elsewhere.names.add("q")
    site.host.delete_queue(queue)
    site.settle()
    assert lease.ended
    assert LEASE not in site.kinds()
    assert opened(site.queue("q"), "reader") is not lease
