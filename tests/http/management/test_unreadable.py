"""Messages that cannot be read from the store: every screen says so, and `reread` gives them back."""

from __future__ import annotations

import pytest

from leveret.durable.entry_reader import UNREADABLE
from leveret.queues.work_queue import WorkQueue
from tests.core.fakes import FakeConsumer
from tests.durable.paged import paged_out
from tests.http.management.office import Office

CHECKS = "/api/health/checks"
Q = "/api/queues/%2F/q"


@pytest.fixture
def queue(office: Office) -> WorkQueue:
    """A durable queue with a message that is damaged on the disk, and has been asked for."""
    queue = office.queue()
    assert isinstance(queue, WorkQueue)
    office.site.publish("", "q", b"a")
    paged_out(queue)
    damaged(office).update(kept.first for kept in office.site.store.chunks())
    FakeConsumer(queue)
    office.site.settle()
    return queue


def damaged(office: Office) -> set[int]:
    return office.site.store.damaged


def test_checks_fail_and_say_whose_messages_cannot_be_read(office: Office, queue: WorkQueue) -> None:
    holders = [{"holder": "queue 'q' in vhost '/'", "messages": 1}]
    response = office.ask("GET", f"{CHECKS}/unreadable-messages")
    assert (response.status, response.json["unreadable"]) == (503, holders)
    response = office.ask("GET", f"{CHECKS}/alarms")
    assert (response.status, response.json["alarms"]) == (503, [{"node": "leveret", "resource": UNREADABLE}])
    assert office.get("/api/healthchecks/node")["status"] == "failed"
    assert office.ask("GET", f"{CHECKS}/ready-to-serve-clients").status == 200, "nobody is held back"


def test_a_queue_counts_them_and_rereading_gives_them_back(office: Office, queue: WorkQueue) -> None:
    found = office.get(Q)
    assert (found["messages"], found["messages_ready"], found["messages_unreadable"]) == (1, 0, 1)
    assert office.put(f"{Q}/reread").json == {"rereading": 1}
    assert office.get(Q)["messages_unreadable"] == 1, "it is damaged still"
    damaged(office).clear()
    assert office.put(f"{Q}/reread").json == {"rereading": 1}
    office.site.settle()
    assert (office.get(Q)["messages_unreadable"], office.get(Q)["messages_unacknowledged"]) == (0, 1)
    assert office.get(f"{CHECKS}/unreadable-messages") == {"status": "ok"}
    assert office.get(f"{CHECKS}/alarms") == {"status": "ok"}
    assert office.put(f"{Q}/reread").json == {"rereading": 0}


def test_rereading_needs_the_permission_to_configure(office: Office, queue: WorkQueue) -> None:
    assert office.put(f"{Q}/reread", user="watcher").status == 401
    assert office.put("/api/queues/%2F/nothing/reread").status == 404
