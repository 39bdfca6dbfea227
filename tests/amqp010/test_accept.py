"""accept, reject, release and acquire: what becomes of messages that a session was sent, and when it ends."""

from __future__ import annotations

import pytest

from leveret.protocols.amqp010.codec import commands as c
from tests.harness.bench import ClientBench

from .client import ClientSession, ids
from .peer import session_of, waiting

BROWSING = c.ACQUIRE_MODE_NOT_ACQUIRED
UNANSWERED = c.ACCEPT_MODE_NONE


@pytest.fixture
def session(session: ClientSession) -> ClientSession:
    for number in range(5):
        session.publish("q", b"%d" % number)
    session.sync()
    return session


def state(bench: ClientBench) -> tuple[int, int]:
    return bench.queue("q").ready, bench.queue("q").unsettled


# Accepting.


def test_what_is_sent_is_unsettled_until_it_is_accepted(bench: ClientBench, session: ClientSession) -> None:
    inbox = session.subscribe("q")
    inbox.all()
    assert state(bench) == (0, 5)
    session.accept(inbox.taken[1:3])
    assert state(bench) == (0, 3)
    session.accept(inbox.taken)
    assert state(bench) == (0, 0)


def test_completing_a_transfer_does_not_accept_it(bench: ClientBench, session: ClientSession) -> None:
    session.subscribe("q").all()
    session.complete()
    assert state(bench) == (0, 5)


def test_ids_that_are_not_held_are_passed_over(bench: ClientBench, session: ClientSession) -> None:
    inbox = session.subscribe("q")
    inbox.all()
    session.accept(inbox.taken)
    session.accept(inbox.taken)
    session.call(c.MessageAccept(ids((5, 1 << 20))))
    session.call(c.MessageRelease(ids((1 << 31, (1 << 31) + 7))))
    session.call(c.MessageAccept(ids()))
    session.call(c.MessageAccept())
    assert state(bench) == (0, 0)


def test_a_set_may_name_more_than_will_ever_be_sent(bench: ClientBench, session: ClientSession) -> None:
    session.subscribe("q").all()
    session.call(c.MessageAccept(ids((0, (1 << 31) - 1))))
    assert state(bench) == (0, 0)


def test_who_need_not_accept_has_taken_what_he_was_sent(bench: ClientBench, session: ClientSession) -> None:
    assert len(session.subscribe("q", accept_mode=UNANSWERED).all()) == 5
    assert state(bench) == (0, 0)
    session.detach()
    assert state(bench) == (0, 0)


def test_sessions_answer_for_their_own_transfers_only(bench: ClientBench, session: ClientSession) -> None:
    other = session_of(bench, "other")
    other.subscribe("q").all()
    session.call(c.MessageAccept(ids((0, 100))))
    assert state(bench) == (0, 5)


# Releasing.


def test_what_is_released_is_back_in_its_old_order(bench: ClientBench, session: ClientSession) -> None:
    inbox = session.subscribe("q", messages=5, flow_mode=c.FLOW_MODE_CREDIT)
    inbox.all()
    session.publish("q", b"5")
    session.call(c.MessageRelease(ids(inbox.taken[3])))
    session.call(c.MessageRelease(ids(inbox.taken[0], inbox.taken[1])))
    assert waiting(bench) == [b"0", b"1", b"3", b"5"]


@pytest.mark.parametrize("marked", [False, True])
def test_whether_a_released_message_is_marked_is_said_by_who_releases_it(
    bench: ClientBench, session: ClientSession, marked: bool
) -> None:
    inbox = session.subscribe("q", messages=1)
    inbox.get()
    session.release(inbox.taken, redelivered=marked)
    message = session.subscribe("q", "again").get()
    assert (message.body, message.delivery.redelivered) == (b"0", marked)


def test_what_was_marked_once_stays_marked(bench: ClientBench, session: ClientSession) -> None:
    for name, marked in (("first", True), ("second", False)):
        inbox = session.subscribe("q", name, messages=1)
        inbox.get()
        session.call(c.MessageCancel(name))
        session.release(inbox.taken, redelivered=marked)
    assert session.subscribe("q").get().delivery.redelivered


# Rejecting.


def test_what_is_rejected_goes_to_the_alternate_exchange_of_its_queue(
    bench: ClientBench, session: ClientSession
) -> None:
    session.declare("dead")
    session.bind("dead", "amq.fanout")
    session.declare("r", alternate_exchange="amq.fanout")
    session.publish("r", b"bad")
    inbox = session.subscribe("r")
    inbox.get()
    session.reject(inbox.taken, text="no")
    assert waiting(bench, "dead") == [b"bad"]
    assert bench.queue("r").unsettled == 0


def test_what_is_rejected_without_an_alternate_is_gone(bench: ClientBench, session: ClientSession) -> None:
    inbox = session.subscribe("q")
    inbox.all()
    session.reject(inbox.taken)
    assert state(bench) == (0, 0)


# Acquiring.


def test_who_was_shown_a_message_may_acquire_it(bench: ClientBench, session: ClientSession) -> None:
    inbox = session.subscribe("q", acquire_mode=BROWSING)
    inbox.all()
    assert state(bench) == (5, 0)
    wanted = inbox.taken[1:3]
    assert session.acquire(wanted) == wanted
    assert waiting(bench) == [b"0", b"3", b"4"]
    session.accept(wanted)
    assert state(bench) == (3, 0)


def test_only_what_still_waits_is_acquired(bench: ClientBench, session: ClientSession) -> None:
    inbox = session.subscribe("q", acquire_mode=BROWSING)
    inbox.all()
    other = session_of(bench, "other").subscribe("q", messages=2)
    other.all()
    assert session.acquire(inbox.taken) == inbox.taken[2:]


def test_what_is_acquired_twice_is_acquired_once(bench: ClientBench, session: ClientSession) -> None:
    inbox = session.subscribe("q", acquire_mode=BROWSING)
    inbox.all()
    assert session.acquire(inbox.taken) == inbox.taken
    assert session.acquire(inbox.taken) == inbox.taken  # they are the session's, which renews them
    assert state(bench) == (0, 5)
    session.accept(inbox.taken)
    assert session.acquire(inbox.taken) == []
    assert session.acquire(list(range(40, 60))) == []


def test_nothing_is_acquired_from_a_paused_queue(bench: ClientBench, session: ClientSession) -> None:
    inbox = session.subscribe("q", acquire_mode=BROWSING)
    inbox.all()
    bench.host.pause_queue(bench.queue("q"), True)
    assert session.acquire(inbox.taken) == []
    assert session.subscribe("q", "taking").all() == []
    bench.host.pause_queue(bench.queue("q"), False)
    session.sync()
    assert len(session.inboxes["taking"].all()) == 5


def test_what_is_acquired_and_need_not_be_accepted_is_taken(
    bench: ClientBench, session: ClientSession
) -> None:
    inbox = session.subscribe("q", acquire_mode=BROWSING, accept_mode=UNANSWERED)
    inbox.all()
    assert session.acquire(inbox.taken[:2]) == inbox.taken[:2]
    assert state(bench) == (3, 0)


def test_what_is_acquired_can_be_released(bench: ClientBench, session: ClientSession) -> None:
    inbox = session.subscribe("q", acquire_mode=BROWSING)
    inbox.all()
    session.acquire(inbox.taken[0])
    session.release(inbox.taken)
    assert state(bench) == (5, 0)


def test_what_was_only_shown_is_neither_accepted_nor_released(
    bench: ClientBench, session: ClientSession
) -> None:
    inbox = session.subscribe("q", acquire_mode=BROWSING)
    inbox.all()
    session.accept(inbox.taken)
    session.release(inbox.taken)
    session.reject(inbox.taken)
    assert state(bench) == (5, 0)


def test_a_message_of_a_deleted_queue_is_not_acquired(bench: ClientBench, session: ClientSession) -> None:
    inbox = session.subscribe("q", acquire_mode=BROWSING)
    inbox.all()
    session.call(c.QueueDelete("q"))
    assert session.acquire(inbox.taken) == []


# The end.


def test_the_end_of_a_session_gives_back_what_it_has_not_accepted(
    bench: ClientBench, session: ClientSession
) -> None:
    inbox = session.subscribe("q")
    inbox.all()
    session.accept(inbox.taken[0])
    session.detach()
    bench.settle()
    assert waiting(bench) == [b"1", b"2", b"3", b"4"]
    messages = session_of(bench, "next").subscribe("q").all()
    assert all(message.delivery.redelivered for message in messages)


def test_a_lost_connection_gives_back_what_it_has_not_accepted(
    bench: ClientBench, session: ClientSession
) -> None:
    session.subscribe("q").all()
    session.client.drop()  # type: ignore[attr-defined]
    assert waiting(bench) == [b"0", b"1", b"2", b"3", b"4"]


def test_an_exception_gives_back_what_is_not_accepted(bench: ClientBench, session: ClientSession) -> None:
    session.subscribe("q").all()
    session.publish("q", exchange="nope")
    session.ended()
    bench.settle()
    assert state(bench) == (5, 0)


def test_a_cancelled_subscription_leaves_its_messages_to_the_session(
    bench: ClientBench, session: ClientSession
) -> None:
    inbox = session.subscribe("q", messages=2)
    inbox.all()
    session.call(c.MessageCancel("q"))
    assert state(bench) == (3, 2)
    session.accept(inbox.taken[0])
    assert state(bench) == (3, 1)
    session.detach()
    bench.settle()
    assert waiting(bench) == [b"1", b"2", b"3", b"4"]


def test_messages_cannot_be_resumed(session: ClientSession) -> None:
    session.send(c.MessageResume("q", "id"))
    assert session.ended().code == c.ERROR_CODE_NOT_IMPLEMENTED


@pytest.mark.parametrize("left", ["released", "ended"])
def test_what_a_session_holds_of_a_deleted_queue_goes_to_the_alternate_exchange(
    bench: ClientBench, session: ClientSession, left: str
) -> None:
    session.declare("dead")
    session.bind("dead", "amq.fanout")
    session.declare("r", alternate_exchange="amq.fanout")
    for body in (b"held", b"waits"):
        session.publish("r", body)
    inbox = session.subscribe("r", messages=1)
    inbox.get()
    session.call(c.QueueDelete("r"))
    assert waiting(bench, "dead") == [b"waits"]
    if left == "released":
        session.release(inbox.taken)
    else:
        session.detach()
        bench.settle()
    assert waiting(bench, "dead") == [b"waits", b"held"]


def test_a_queue_that_goes_with_its_session_leaves_all_of_it_to_the_alternate_exchange(
    bench: ClientBench, session: ClientSession
) -> None:
    session.declare("dead")
    session.bind("dead", "amq.fanout")
    session.declare("r", alternate_exchange="amq.fanout", exclusive=True, auto_delete=True)
    for body in (b"held", b"waits"):
        session.publish("r", body)
    session.subscribe("r", messages=1).get()
    session.detach()
    bench.settle()
    assert "r" not in bench.host.queues
    assert waiting(bench, "dead") == [b"held", b"waits"]
