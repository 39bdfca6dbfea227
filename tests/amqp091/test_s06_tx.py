"""Transactions (§6 of the acceptance list): what waits for the commit, and what becomes of it without one."""

from __future__ import annotations

import pytest

from leveret.exchanges.standard import STANDARD
from leveret.plugins.delayed_message import DelayedMessage
from leveret.protocols.amqp091.codec import methods as m
from leveret.protocols.amqp091.codec.wire import BasicProperties, FieldTable
from tests.amqp091.peer import channel_of, with_queue
from tests.harness.bench import ClientBench

from .endings import Step, close_channel, close_connection, lose_connection
from .peer import ClientChannel

REJECTING = {"x-max-length": 1, "x-overflow": "reject-publish"}


def transactional(bench: ClientBench | None = None) -> ClientChannel:
    """A channel with a transaction, and the queue `q`."""
    channel = with_queue(bench)
    channel.does(m.TxSelect())
    return channel


def watcher(channel: ClientChannel) -> ClientChannel:
    """Somebody else's channel."""
    return channel_of(channel.peer.bench)


@pytest.mark.parametrize("method", [m.TxCommit(), m.TxRollback()])
def test_s121_there_must_be_a_transaction(method: m.Method) -> None:
    text = "406 PRECONDITION_FAILED - channel is not transactional"
    assert channel_of().closed_with(method) == text


@pytest.mark.parametrize("method", [m.TxCommit(), m.TxRollback()])
def test_s121_an_empty_one_can_be_ended_again_and_again(method: m.Method) -> None:
    channel = transactional()
    for _ in range(3):
        channel.does(method)


def test_s122_publishes_reach_their_queues_at_commit_and_in_order() -> None:
    channel = transactional()
    for number in range(5):
        channel.publish("", "q", str(number).encode())
    other = watcher(channel)
    assert other.get("q") is None
    channel.does(m.TxCommit())
    assert other.bodies("q") == [b"0", b"1", b"2", b"3", b"4"]
    channel.publish("", "q", b"next")
    assert other.get("q") is None
    channel.does(m.TxCommit())
    assert other.bodies("q") == [b"next"]


def test_s122_they_are_routed_when_they_are_published() -> None:
    channel = transactional()
    channel.bind("q", "amq.direct", "k")
    channel.publish("amq.direct", "k", b"bound")
    channel.does(m.QueueUnbind("q", "amq.direct", "k"))
    channel.publish("amq.direct", "k", b"unbound")
    channel.bind("q", "amq.direct", "k")
    channel.does(m.TxCommit())
    assert channel.bodies("q") == [b"bound"]


@pytest.mark.parametrize("arguments", [{}, {"x-queue-type": "quorum"}, {"x-queue-type": "stream"}])
def test_s125_a_queue_that_was_declared_again_gets_its_messages_at_commit(arguments: FieldTable) -> None:
    channel = transactional()
    channel.publish("", "q", b"x", mandatory=True)
    channel.does(m.QueueDelete("q"))
    channel.declare("q", durable=bool(arguments), arguments=arguments)
    channel.does(m.TxCommit())
    queue = channel.peer.bench.queue("q")
    assert (queue.ready, queue.published) == (1, 1)


def test_s125_a_mandatory_message_whose_queue_is_gone_at_commit_is_returned() -> None:
    channel = transactional()
    channel.publish("", "nowhere", b"1", mandatory=True)
    channel.publish("", "q", b"2", mandatory=True)
    channel.publish("", "q", b"3")
    channel.publish("", "nowhere", b"4", mandatory=True)
    channel.does(m.QueueDelete("q"))
    channel.send(m.TxCommit())
    *returned, ok = channel.all()
    assert [each.body for each in returned] == [b"1", b"2", b"4"]
    assert [each.method.reply_code for each in returned] == [m.NO_ROUTE] * 3
    assert ok == m.TxCommitOk()
    channel.does(m.TxCommit())


def test_s125_one_with_an_alternate_goes_there_and_is_not_returned() -> None:
    channel = transactional()
    channel.declare("spare")
    channel.exchange("ae", "fanout")
    channel.bind("spare", "ae")
    channel.exchange("x", arguments={"alternate-exchange": "ae"})
    channel.bind("q", "x", "k")
    channel.publish("x", "k", b"x", mandatory=True)
    channel.does(m.QueueDelete("q"))
    channel.does(m.TxCommit())
    assert channel.bodies("spare") == [b"x"]


def test_s125_what_is_rolled_back_is_not_returned() -> None:
    channel = transactional()
    channel.publish("", "q", b"x", mandatory=True)
    channel.publish("", "nowhere", b"y", mandatory=True)
    channel.does(m.QueueDelete("q"))
    channel.does(m.TxRollback())
    channel.does(m.TxCommit())


def test_s122_missing_exchanges_and_permissions_are_found_when_publishing() -> None:
    bench = ClientBench()
    bench.user("u", write="^q$")
    channel = channel_of(bench, "u")
    channel.does(m.TxSelect())
    channel.publish("amq.direct", "k")
    assert channel.refusal().startswith("403 ACCESS_REFUSED - write access to exchange 'amq.direct'")
    channel = transactional()
    channel.publish("", "q", b"lost with the channel")
    channel.publish("missing", "k")
    assert channel.refusal() == "404 NOT_FOUND - no exchange 'missing' in vhost '/'"
    assert watcher(channel).get("q") is None


def test_s123_a_message_on_its_way_over_an_alternate_waits_too() -> None:
    channel = transactional()
    channel.exchange("ae", "fanout")
    channel.exchange("x", arguments={"alternate-exchange": "ae"})
    channel.bind("q", "ae")
    channel.publish("x", "nowhere", b"x", mandatory=True)
    other = watcher(channel)
    assert other.get("q") is None
    channel.does(m.TxCommit())
    assert other.bodies("q") == [b"x"]
    channel.publish("x", "nowhere", b"y")
    channel.does(m.TxRollback())
    channel.does(m.TxCommit())
    assert other.bodies("q") == []


def filled(count: int) -> ClientChannel:
    channel = transactional()
    for number in range(count):
        channel.publish("", "q", str(number).encode())
    channel.does(m.TxCommit())
    return channel


def test_s124_answers_take_effect_at_commit() -> None:
    channel = filled(4)
    for _ in range(4):
        channel.get("q", no_ack=False)
    channel.ack(1)
    channel.reject(2)
    channel.nack(3)
    queue = channel.peer.bench.queue("q")
    assert (queue.ready, queue.unsettled) == (0, 4)
    channel.does(m.TxCommit())
    assert (queue.ready, queue.unsettled) == (1, 1)
    content = watcher(channel).get("q")
    assert content is not None
    assert (content.body, content.method.redelivered) == (b"2", True)


def test_s124_rollback_makes_them_unanswered_and_redelivers_nothing() -> None:
    channel = filled(3)
    channel.consume("q")
    assert len(channel.deliveries()) == 3
    channel.ack(1)
    channel.ack(3, multiple=True)
    channel.does(m.TxRollback())
    assert channel.all() == []
    assert channel.peer.bench.queue("q").unsettled == 3
    channel.nack(2, multiple=True, requeue=False)
    channel.ack(3)
    channel.does(m.TxCommit())
    assert channel.peer.bench.queue("q").unsettled == 0


@pytest.mark.parametrize("between", [0, 1300])
def test_s124_after_a_rollback_multiple_covers_what_was_answered_before_it(between: int) -> None:
    """However far apart what is left was delivered."""
    channel = filled(between + 3)
    channel.consume("q")
    channel.deliveries()
    for tag in range(2, between + 2):
        channel.ack(tag)
    channel.does(m.TxCommit())
    channel.ack(1)
    channel.does(m.TxRollback())
    channel.ack(between + 2, multiple=True)
    channel.does(m.TxCommit())
    assert channel.peer.bench.queue("q").accepted == between + 2
    assert channel.closed_with(m.BasicAck(1)) == "406 PRECONDITION_FAILED - unknown delivery tag 1"


def test_s124_credit_comes_back_with_the_commit() -> None:
    channel = filled(3)
    channel.prefetch(1)
    channel.consume("q")
    assert len(channel.deliveries()) == 1
    channel.ack(1)
    assert channel.deliveries() == []
    channel.send(m.TxCommit())
    committed, delivered = channel.all()
    assert committed == m.TxCommitOk()
    assert delivered.body == b"1"


def test_s124_multiple_does_not_cover_what_was_answered_in_the_transaction() -> None:
    channel = filled(3)
    for _ in range(3):
        channel.get("q", no_ack=False)
    channel.nack(2, requeue=False)
    channel.ack(0, multiple=True)
    text = "406 PRECONDITION_FAILED - unknown delivery tag 2"
    assert channel.closed_with(m.BasicAck(2)) == text
    assert len(watcher(channel).bodies("q")) == 3  # nothing was committed


def test_s124_dead_letters_are_written_at_commit() -> None:
    channel = transactional()
    arguments = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "q"}
    channel.declare("dying", arguments=arguments)
    watcher(channel).publish("", "dying", b"x")
    channel.get("dying", no_ack=False)
    channel.reject(1)
    assert channel.get("q") is None
    channel.does(m.TxCommit())
    assert channel.bodies("q") == [b"x"]


def test_s125_returns_come_at_commit_before_its_answer() -> None:
    channel = transactional()
    properties = BasicProperties(message_id="7")
    channel.publish("amq.direct", "a", b"1", properties, mandatory=True)
    channel.publish("", "q", b"2", mandatory=True)
    channel.publish("amq.direct", "b", b"3", mandatory=True)
    assert channel.all() == []
    channel.send(m.TxCommit())
    first, second, committed = channel.all()
    assert first.method == m.BasicReturn(312, "NO_ROUTE", "amq.direct", "a")
    assert (first.raw_properties, first.body) == (properties.encode(), b"1")
    assert second.body == b"3"
    assert committed == m.TxCommitOk()


def test_s125_a_rollback_returns_nothing() -> None:
    channel = transactional()
    channel.publish("amq.direct", "a", mandatory=True)
    channel.does(m.TxRollback())
    channel.send(m.TxCommit())
    assert channel.all() == [m.TxCommitOk()]


def test_s125_immediate_is_tried_at_commit() -> None:
    channel = transactional()
    channel.publish("", "q", b"1", immediate=True)
    channel.publish("", "q", b"2")
    channel.send(m.TxCommit())
    returned, committed = channel.all()
    assert returned.method == m.BasicReturn(313, "NO_CONSUMERS", "", "q")
    assert (returned.body, committed) == (b"1", m.TxCommitOk())
    assert channel.bodies("q") == [b"2"]


def test_s125_immediate_with_a_consumer_that_came_before_the_commit() -> None:
    channel = transactional()
    channel.publish("", "q", b"1")
    channel.publish("", "q", b"2", immediate=True)
    channel.publish("", "q", b"3")
    other = watcher(channel)
    other.consume("q", no_ack=True)
    channel.does(m.TxCommit())
    assert [delivered.body for delivered in other.deliveries()] == [b"1", b"2", b"3"]


@pytest.mark.parametrize("end", [close_channel, close_connection, lose_connection])
def test_s126_what_was_not_committed_is_as_if_it_had_not_been(end: Step) -> None:
    channel = filled(3)
    channel.consume("q")
    channel.deliveries()
    channel.ack(1)
    channel.reject(2)
    channel.publish("", "q", b"never")
    channel.publish("amq.direct", "nowhere", b"never", mandatory=True)
    end(channel)
    other = watcher(channel)
    found = [other.get("q") for _ in range(3)]
    assert [content and (content.body, content.method.redelivered) for content in found] == [
        (b"0", True),
        (b"1", True),
        (b"2", True),
    ]
    assert other.get("q") is None


def test_x029_a_queue_that_refuses_makes_the_commit_fail() -> None:
    channel = transactional()
    channel.declare("full", arguments=REJECTING)
    for key in ("full", "q", "full"):
        channel.publish("", key, key.encode())
    assert channel.closed_with(m.TxCommit()) == "406 PRECONDITION_FAILED - partial tx completion"
    other = watcher(channel)
    assert (other.bodies("full"), other.bodies("q")) == ([b"full"], [b"q"])


def delaying() -> ClientChannel:
    channel = transactional(ClientBench(exchange_types={**STANDARD, "x-delayed-message": DelayedMessage}))
    channel.exchange("later", "x-delayed-message", arguments={"x-delayed-type": "fanout"})
    channel.bind("q", "later")
    return channel


LATER = BasicProperties(headers={"x-delay": 1000})


def test_an_exchange_that_holds_messages_gets_them_at_commit_and_counts_from_there() -> None:
    channel = delaying()
    channel.publish("later", "", b"x", LATER, mandatory=True)
    bench = channel.peer.bench
    bench.advance(5)
    channel.send(m.TxCommit())
    assert channel.all() == [m.TxCommitOk()]
    bench.advance(0.999)
    assert channel.get("q") is None
    bench.advance(0.001)
    assert channel.bodies("q") == [b"x"]


def test_an_exchange_that_holds_messages_does_not_get_those_of_a_rollback() -> None:
    channel = delaying()
    channel.publish("later", "", b"x", LATER)
    channel.does(m.TxRollback())
    channel.does(m.TxCommit())
    channel.peer.bench.advance(5)
    assert channel.get("q") is None


def test_an_exchange_that_is_gone_at_commit_holds_nothing() -> None:
    channel = delaying()
    channel.publish("later", "", b"x", LATER)
    channel.does(m.ExchangeDelete("later"))
    channel.does(m.TxCommit())
    assert channel.peer.bench.broker.timers.next_at() is None


def test_large_messages_and_many_frames_are_held_too() -> None:
    channel = transactional()
    bodies = [bytes([number]) * 300_000 for number in range(3)]
    for body in bodies:
        channel.publish("", "q", body)
    channel.does(m.TxCommit())
    assert channel.bodies("q") == bodies
