"""Queues with the argument `no-local`: what their own connection publishes passes them by."""

from __future__ import annotations

import pytest

from leveret.protocols.amqp010.codec import commands as c
from tests.harness.bench import ClientBench

from .client import ClientSession, ids
from .peer import Peer, session_of

NO_LOCAL = {"no-local": True}


@pytest.fixture
def session(bench: ClientBench) -> ClientSession:
    """The owner of a queue that is bound to amq.fanout, beside a plain one."""
    session = session_of(bench)
    session.declare("aloof", NO_LOCAL, exclusive=True, auto_delete=True)
    session.declare("plain")
    for queue in ("aloof", "plain"):
        session.bind(queue, "amq.fanout")
    return session


def counts(bench: ClientBench) -> tuple[int, int]:
    return bench.queue("aloof").ready, bench.queue("plain").ready


def publish(session: ClientSession) -> None:
    session.publish("", b"m", "amq.fanout")
    session.sync()


def test_what_its_session_or_connection_publishes_passes_a_no_local_queue_by(
    bench: ClientBench, session: ClientSession
) -> None:
    publish(session)
    publish(session.client.attach("beside"))
    assert counts(bench) == (0, 2)


def test_what_another_connection_publishes_does_not(bench: ClientBench, session: ClientSession) -> None:
    publish(session_of(bench, "other"))
    assert counts(bench) == (1, 1)


def test_what_passes_by_the_only_queue_is_complete(bench: ClientBench, session: ClientSession) -> None:
    id = session.publish("aloof", b"m", accept_mode=c.ACCEPT_MODE_EXPLICIT)
    session.sync()
    assert id in session.completed
    assert counts(bench) == (0, 0)


def test_an_exclusive_subscriber_counts_as_an_owner(bench: ClientBench) -> None:
    session = session_of(bench)
    session.declare("aloof", NO_LOCAL)
    publisher = session_of(bench, "other")
    inbox = session.subscribe("aloof", exclusive=True)
    session.publish("aloof", b"local")
    publisher.publish("aloof", b"foreign")
    publisher.sync()
    assert inbox.bodies() == [b"foreign"]


def test_without_an_owner_nothing_is_local(bench: ClientBench) -> None:
    session = session_of(bench)
    session.declare("aloof", NO_LOCAL)
    inbox = session.subscribe("aloof")
    session.publish("aloof", b"local")
    assert inbox.bodies() == [b"local"]


@pytest.mark.parametrize("value", [False, 0, "", None])
def test_a_no_local_that_is_not_true_says_nothing(bench: ClientBench, value: object) -> None:
    session = session_of(bench)
    session.declare("q", {"no-local": value}, exclusive=True)
    session.publish("q", b"m")
    session.sync()
    assert bench.queue("q").ready == 1


def test_when_its_owner_has_left_nothing_is_local(bench: ClientBench) -> None:
    session = session_of(bench)
    owner, beside = session.client.attach("owner"), session.client.attach("beside")
    owner.declare("q", NO_LOCAL, exclusive=True)
    owner.detach()
    beside.publish("q", b"m")
    beside.sync()
    assert bench.queue("q").ready == 1


def test_what_is_committed_passes_it_by_as_well(bench: ClientBench, session: ClientSession) -> None:
    other = session_of(bench, "other")
    for each in (session, other):
        each.call(c.TxSelect())
        each.publish("", b"m", "amq.fanout")
        each.call(c.TxCommit())
    assert counts(bench) == (1, 2)


def test_what_is_rerouted_is_local_to_who_published_it(bench: ClientBench, session: ClientSession) -> None:
    """It may have been published before there was a queue that cares."""
    other = session_of(bench, "other")
    session.declare("holding", alternate_exchange="amq.fanout")
    for each in (session, other, session):
        each.publish("holding", b"m")
        each.sync()
    session.call(c.QueueDelete("holding"))
    bench.settle()
    assert counts(bench) == (1, 3)


def test_a_full_queue_lets_what_is_local_pass_by(bench: ClientBench) -> None:
    session = session_of(bench)
    session.declare("q", {**NO_LOCAL, "qpid.max_count": 1}, exclusive=True)
    session_of(bench, "other").publish("q", b"m")
    session.publish("q", b"m")
    session.sync()
    assert bench.queue("q").ready == 1


def test_a_queue_for_last_values_is_not_replaced_by_what_is_local(bench: ClientBench) -> None:
    session = session_of(bench)
    session.declare(
        "q", {**NO_LOCAL, "qpid.last_value_queue": 1, "qpid.queue_msg_sequence": "n"}, exclusive=True
    )
    for each, body in ((session_of(bench, "other"), b"foreign"), (session, b"local")):
        each.publish("q", body)
        each.sync()
    (kept,) = bench.queue("q").waiting()
    assert kept.message.body == b"foreign"


def test_what_a_session_has_on_its_new_connection_is_local_there(bench: ClientBench) -> None:
    session = session_of(bench)
    session.control(c.SessionRequestTimeout(60))
    owned, consumed = "owned", "consumed"
    session.declare(owned, NO_LOCAL, exclusive=True)
    session.declare(consumed, NO_LOCAL)
    session.subscribe(consumed, exclusive=True)
    session.client.drop()
    client = Peer(bench).open()
    client.attach(session.name).control(c.SessionExpected(ids(0)))
    beside = client.attach("beside")
    for queue in (owned, consumed):
        beside.publish(queue, b"local")
    beside.sync()
    assert (bench.queue(owned).published, bench.queue(consumed).published) == (0, 0)
    stranger = session_of(bench, "other")
    stranger.publish(owned, b"foreign")
    stranger.sync()
    assert bench.queue(owned).ready == 1
