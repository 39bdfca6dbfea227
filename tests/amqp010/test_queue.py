"""The queue class: declare, delete, purge, query; whose an exclusive queue is, and when a queue goes by itself."""

from __future__ import annotations

import pytest

from leveret.limits import QueueType
from leveret.protocols.amqp010.codec import commands as c
from leveret.protocols.amqp091.codec import methods as m
from tests.amqp010.client import ClientSession
from tests.amqp010.peer import Peer, refused, session_of
from tests.amqp010.permitted import LOCKED, NOT_ALLOWED, NOT_FOUND
from tests.amqp091.peer import Peer as Peer091
from tests.harness.bench import ClientBench


@pytest.fixture
def session(bench: ClientBench) -> ClientSession:
    return session_of(bench)


def query(session: ClientSession, queue: str) -> c.QueueQueryResult:
    result = session.call(c.QueueQuery(queue))
    assert isinstance(result, c.QueueQueryResult)
    return result


def later(bench: ClientBench, seconds: float) -> None:
    bench.clock.advance(seconds)
    bench.broker.tick()
    bench.settle()


# Declaring and asking.


def test_a_queue_is_declared_and_queried(session: ClientSession) -> None:
    session.declare("q", {"qpid.max_count": 5, "mine": "kept"}, durable=True, alternate_exchange="amq.fanout")
    session.publish("q", b"one")
    session.publish("q", b"two")
    session.sync()
    assert query(session, "q") == c.QueueQueryResult(
        "q", "amq.fanout", True, False, False, {"qpid.max_count": 5, "mine": "kept"}, 2, 0
    )
    session.subscribe("q", messages=1)
    assert (query(session, "q").message_count, query(session, "q").subscriber_count) == (1, 1)


@pytest.mark.parametrize("missing", ["nowhere", "", None])
def test_a_missing_queue_is_an_answer_without_any_field(session: ClientSession, missing: str | None) -> None:
    assert session.call(c.QueueQuery(missing)) == c.QueueQueryResult()


def test_declaring_again_changes_nothing_whatever_else_is_said(
    bench: ClientBench, session: ClientSession
) -> None:
    session.declare("q", {"qpid.max_count": 5}, durable=True, alternate_exchange="amq.fanout")
    session.declare("q", {"qpid.max_count": 6}, auto_delete=True)
    session.declare("q", alternate_exchange="amq.fanout")
    session.declare("q", passive=True)
    assert (bench.queue("q").durable, bench.queue("q").limits.max_length) == (True, 5)


def test_the_default_type_of_the_virtual_host_is_for_durable_queues(
    bench: ClientBench, session: ClientSession
) -> None:
    session.declare("before", durable=True)
    bench.host.set_default_queue_type(QueueType.QUORUM)
    for name, properties in (("q", {"durable": True}), ("mine", {"exclusive": True}), ("before", {})):
        session.declare(name, **properties)
        session.declare(name, **properties)
    types = [bench.queue(name).arguments.get("x-queue-type") for name in ("q", "mine", "before")]
    assert types == ["quorum", "classic", None]


REFUSED = {
    "no name": (c.QueueDeclare(), c.ERROR_CODE_ILLEGAL_ARGUMENT),
    "an empty name": (c.QueueDeclare(""), c.ERROR_CODE_ILLEGAL_ARGUMENT),
    "missing, passive": (c.QueueDeclare("nowhere", passive=True), NOT_FOUND),
    "reserved": (c.QueueDeclare("amq.mine"), NOT_ALLOWED),
    "with a missing alternate": (c.QueueDeclare("new", alternate_exchange="nowhere"), NOT_FOUND),
    "with another alternate": (c.QueueDeclare("q", alternate_exchange="amq.fanout"), NOT_ALLOWED),
    "another session's": (c.QueueDeclare("locked"), LOCKED),
    "another session's, passive and exclusive": (
        c.QueueDeclare("locked", passive=True, exclusive=True),
        LOCKED,
    ),
    "nobody's, passive and exclusive": (c.QueueDeclare("q", passive=True, exclusive=True), LOCKED),
    "another session's, exclusive": (c.QueueDeclare("locked", exclusive=True), LOCKED),
    "with consumers, exclusive": (c.QueueDeclare("busy", exclusive=True), LOCKED),
    "bad arguments": (
        c.QueueDeclare("new", arguments={"qpid.max_count": "many"}),
        c.ERROR_CODE_INVALID_ARGUMENT,
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_declared(bench: ClientBench, session: ClientSession, what: str) -> None:
    other = session_of(bench, "other")
    other.declare("locked", exclusive=True)
    other.declare("busy")
    other.subscribe("busy")
    session.declare("q")
    command, code = REFUSED[what]
    assert refused(session, command) == code
    assert "new" not in bench.host.queues


def test_who_is_to_reply_finds_the_queue_of_another_session(
    bench: ClientBench, session: ClientSession
) -> None:
    """Clients look before they send, with a passive declaration."""
    other = session_of(bench, "other")
    other.declare("replies", exclusive=True, auto_delete=True)
    other.declare("replies", passive=True, exclusive=True)
    session.declare("replies", passive=True)
    session.publish("replies", b"yes")
    assert other.subscribe("replies").get().body == b"yes"


# Deleting and emptying.


@pytest.mark.parametrize(
    ("command", "code"),
    [
        (c.QueueDelete(), c.ERROR_CODE_INVALID_ARGUMENT),
        (c.QueueDelete("nowhere"), NOT_FOUND),
        (c.QueueDelete("full", if_empty=True), c.ERROR_CODE_PRECONDITION_FAILED),
        (c.QueueDelete("busy", if_unused=True), c.ERROR_CODE_PRECONDITION_FAILED),
        (c.QueueDelete("locked"), LOCKED),
        (c.QueuePurge(), c.ERROR_CODE_ILLEGAL_ARGUMENT),
        (c.QueuePurge("nowhere"), NOT_FOUND),
        (c.QueuePurge("locked"), LOCKED),
    ],
)
def test_what_cannot_be_deleted_or_purged(
    bench: ClientBench, session: ClientSession, command: c.Command, code: int
) -> None:
    other = session_of(bench, "other")
    other.declare("locked", exclusive=True)
    for name in ("full", "busy"):
        other.declare(name)
    other.publish("full", b"x")
    other.subscribe("busy")
    assert refused(session, command) == code


def test_a_queue_is_purged_and_deleted(bench: ClientBench, session: ClientSession) -> None:
    session.declare("q")
    session.publish("q", b"x")
    session.sync()
    session.call(c.QueuePurge("q"))
    assert query(session, "q").message_count == 0
    session.call(c.QueueDelete("q", if_unused=True, if_empty=True))
    assert "q" not in bench.host.queues


def test_what_was_waiting_goes_to_the_alternate_exchange_of_a_deleted_queue(session: ClientSession) -> None:
    session.declare("rest")
    session.bind("rest", "amq.fanout")
    session.declare("q", alternate_exchange="amq.fanout")
    session.publish("q", b"a")
    session.publish("q", b"b")
    session.call(c.QueueDelete("q"))
    inbox = session.subscribe("rest")
    assert inbox.bodies() == [b"a", b"b"]
    session.call(c.QueueDelete("rest"))


def test_what_is_rejected_goes_to_the_alternate_exchange_unchanged(session: ClientSession) -> None:
    session.declare("rest")
    session.bind("rest", "amq.direct", "q")
    session.declare("q", alternate_exchange="amq.direct")
    session.publish("q", b"a", properties=c.MessageProperties(content_type="text/plain"))
    message = session.subscribe("q").get()
    session.reject(message.id)
    rejected = session.subscribe("rest").get()
    assert (rejected.body, rejected.delivery.exchange, rejected.delivery.routing_key) == (b"a", "", "q")
    assert (rejected.properties.content_type, rejected.headers) == ("text/plain", {})


# Whose it is.


def test_an_exclusive_queue_is_its_sessions_and_not_its_connections(bench: ClientBench) -> None:
    peer = Peer(bench).open("guest", "guest")
    one, two = peer.attach("one"), peer.attach("two")
    one.declare("q", exclusive=True)
    one.declare("q", exclusive=True)
    assert query(two, "q").exclusive
    assert refused(two, c.MessageSubscribe("q", "d")) == LOCKED


def test_exclusive_alone_stays_and_is_for_all_again_when_the_session_ends(bench: ClientBench) -> None:
    one, two = session_of(bench, "one"), session_of(bench, "two")
    one.declare("q", exclusive=True, durable=True)
    one.publish("q", b"x")
    one.sync()
    one.detach()
    assert (query(two, "q").exclusive, query(two, "q").message_count) == (False, 1)
    two.declare("q", exclusive=True)
    assert query(two, "q").exclusive


def test_exclusive_and_auto_delete_goes_with_the_session_and_no_sooner(bench: ClientBench) -> None:
    one, two = session_of(bench, "one"), session_of(bench, "two")
    one.declare("q", exclusive=True, auto_delete=True)
    assert (query(two, "q").exclusive, query(two, "q").auto_delete) == (True, True)
    one.subscribe("q", "d")
    one.call(c.MessageCancel("d"))
    assert query(two, "q").queue == "q"
    one.detach()
    assert query(two, "q") == c.QueueQueryResult()


def test_an_exclusive_queue_is_locked_for_other_protocols_too(bench: ClientBench) -> None:
    session_of(bench).declare("q", exclusive=True)
    refusal = Peer091(bench).open().channel().closed_with(m.QueueDeclare("q", passive=True))
    assert refusal.startswith("405")


def test_auto_delete_goes_with_the_last_subscriber(session: ClientSession) -> None:
    session.declare("q", auto_delete=True)
    session.subscribe("q", "one")
    session.subscribe("q", "two")
    session.call(c.MessageCancel("one"))
    assert query(session, "q").queue == "q"
    session.call(c.MessageCancel("two"))
    assert query(session, "q") == c.QueueQueryResult()


def test_a_timeout_delays_that_and_a_new_subscriber_calls_it_off(
    bench: ClientBench, session: ClientSession
) -> None:
    session.declare("q", {"qpid.auto_delete_timeout": 5}, auto_delete=True)
    session.subscribe("q", "one")
    session.call(c.MessageCancel("one"))
    later(bench, 4)
    session.subscribe("q", "two")
    later(bench, 10)
    session.call(c.MessageCancel("two"))
    later(bench, 4.5)
    assert query(session, "q").queue == "q"
    later(bench, 1)
    assert query(session, "q") == c.QueueQueryResult()


def test_for_a_sessions_own_queue_the_timeout_begins_when_the_session_ends(bench: ClientBench) -> None:
    one, two = session_of(bench, "one"), session_of(bench, "two")
    arguments = {"qpid.auto_delete_timeout": 5}
    one.declare("q", arguments, exclusive=True, auto_delete=True)
    later(bench, 10)
    one.publish("q", b"kept")
    one.sync()
    one.detach()
    later(bench, 4)
    two.declare("q", arguments, exclusive=True, auto_delete=True)
    later(bench, 10)
    assert (query(two, "q").message_count, query(two, "q").exclusive) == (1, True)
    two.detach()
    later(bench, 6)
    assert "q" not in bench.host.queues


# Limits and orders that arguments ask for.


def test_a_full_queue_ends_the_session_of_its_publisher(session: ClientSession) -> None:
    session.declare("q", {"qpid.max_count": 1})
    session.publish("q", b"a")
    session.publish("q", b"b")
    assert session.ended().code == c.ERROR_CODE_RESOURCE_LIMIT_EXCEEDED


def test_a_ring_drops_what_is_oldest(session: ClientSession) -> None:
    session.declare("q", {"qpid.max_count": 2, "qpid.policy_type": "ring"})
    for body in (b"a", b"b", b"c"):
        session.publish("q", body)
    session.sync()
    assert session.subscribe("q").bodies() == [b"b", b"c"]


def test_a_queue_that_is_too_full_may_destroy_itself(session: ClientSession) -> None:
    session.declare("q", {"qpid.max_count": 1, "qpid.policy_type": "self-destruct"})
    for body in (b"a", b"b", b"c"):
        session.publish("q", body)
    session.sync()
    assert query(session, "q") == c.QueueQueryResult()


def test_ten_priorities_share_the_levels_there_are(session: ClientSession) -> None:
    session.declare("q", {"qpid.priorities": 4})
    for priority in range(10):
        delivery = c.DeliveryProperties(routing_key="q", priority=priority)
        session.publish("q", str(priority).encode(), delivery=delivery)
    session.sync()
    assert b"".join(session.subscribe("q").bodies()) == b"6789" + b"5" + b"4" + b"0123"


def test_last_values_replace_each_other(session: ClientSession) -> None:
    session.declare("q", {"qpid.last_value_queue_key": "stock"})
    for stock, body in (("a", b"1"), ("b", b"2"), ("a", b"3")):
        session.publish("q", body, properties=c.MessageProperties(application_headers={"stock": stock}))
    session.sync()
    browser = session.subscribe("q", acquire_mode=c.ACQUIRE_MODE_NOT_ACQUIRED)
    assert browser.bodies() == [b"2", b"3"]
    assert query(session, "q").message_count == 2


def test_a_group_is_one_consumers_at_a_time(bench: ClientBench, session: ClientSession) -> None:
    session.declare("q", {"qpid.group_header_key": "g", "qpid.shared_msg_group": 1})
    for group, body in (("a", b"1"), ("a", b"2"), ("b", b"3")):
        session.publish("q", body, properties=c.MessageProperties(application_headers={"g": group}))
    session.sync()
    one, two = session.subscribe("q", "one", messages=1), session.subscribe("q", "two", messages=5)
    first = one.get()
    assert (first.body, two.bodies()) == (b"1", [b"3"])
    session.accept(first.id)
    assert two.bodies() == [b"2"]


def test_who_browses_may_acquire_what_waits_still(bench: ClientBench, session: ClientSession) -> None:
    session.declare("q")
    for body in (b"a", b"b", b"c"):
        session.publish("q", body)
    session.sync()
    seen = session.subscribe("q", acquire_mode=c.ACQUIRE_MODE_NOT_ACQUIRED).all()
    taken = session_of(bench, "other").subscribe("q", messages=1).get()
    assert taken.body == b"a"
    assert session.acquire([each.id for each in seen]) == [seen[1].id, seen[2].id]
    assert query(session, "q").message_count == 0
    session.accept(seen[1].id)
    session.release(seen[2].id)
    assert query(session, "q").message_count == 1
