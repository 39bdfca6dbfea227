"""Bounds on the bytes that receivers have without answering, which the node sets for clients that grant much credit."""

from __future__ import annotations

import pytest

from leveret.protocols.amqp10.codec import performatives as p
from leveret.protocols.amqp10.codec.types import Described, Symbol
from leveret.queues.consumer_bounds import UNANSWERED, ConsumerBounds
from leveret.server.node.assembly import _node_limits
from tests.amqp10.client import Receiver, Session
from tests.amqp10.consuming import QUEUE
from tests.amqp10.parts import data
from tests.amqp10.peer import Peer, declare, declared, session_of
from tests.harness.bench import ClientBench

EACH = '[limits]\nunacknowledged_max = "1KiB"\n'
ALL = '[limits]\nunacknowledged_per_connection_max = "1KiB"\n'
FROM_THE_FIRST = {
    Symbol("rabbitmq:stream-offset-spec"): Described(Symbol("rabbitmq:stream-offset-spec"), "first")
}
SIZE = 400  # of messages: two fit


def filled(toml: str, messages: int = 10) -> Session:
    bench = declared(ClientBench(toml), ["q"])
    bench.broker.node_limits = _node_limits(bench.config)
    session = session_of(bench)
    sender = session.sender(QUEUE)
    for _ in range(messages):
        sender.send(data(bytes(SIZE)))
    return session


def count(receiver: Receiver) -> int:
    return len(receiver.all())


def test_credit_is_the_only_bound_by_default() -> None:
    assert count(filled("").receiver(QUEUE, credit=100)) == 10


def test_a_receiver_gets_no_more_than_the_bytes_it_may_have_unanswered() -> None:
    session = filled(EACH)
    first, second = session.receiver(QUEUE, credit=100), session.receiver(QUEUE, credit=100)
    had = first.all()
    assert (len(had), count(second)) == (2, 2)
    first.accept(had[0])
    assert count(first) == 1


@pytest.mark.parametrize(
    "state", [p.Accepted(), p.Released(), p.Rejected(), p.Modified(delivery_failed=True)]
)
def test_every_outcome_makes_room(state: p.DeliveryState) -> None:
    receiver = filled(EACH).receiver(QUEUE, credit=100)
    for _ in range(3):
        for delivery in receiver.all():
            receiver.answer(state, delivery)
    assert count(receiver) == 2


@pytest.mark.parametrize(
    "arguments",
    [
        {"x-queue-type": "stream"},
        {"x-message-group-key": "key"},
        {"x-queue-type": "quorum"},
        {"x-max-priority": 3},
    ],
)
def test_every_kind_of_queue_counts_what_was_answered(arguments: dict[str, str | int]) -> None:
    session = filled(EACH, 0)
    declare(session.peer.bench, "kind", durable=True, arguments=arguments)
    sender = session.sender("/queues/kind")
    receiver = session.receiver(p.Source(address="/queues/kind", filter=FROM_THE_FIRST), credit=100)
    for _ in range(10):
        sender.send(data(bytes(SIZE)))
    for _ in range(2):
        had = receiver.all()
        assert 2 <= len(had) <= 3, "a stream does not know the size of what comes next"
        receiver.session.dispose(p.Accepted(), had[0].id, had[-1].id)
    assert receiver.all()


def test_less_credit_holds_as_well() -> None:
    assert count(filled(EACH).receiver(QUEUE, credit=1)) == 1


def test_a_message_beyond_the_bound_is_sent_alone() -> None:
    session = filled(EACH, 0)
    sender = session.sender(QUEUE)
    for _ in range(2):
        sender.send(data(bytes(4000)))
    receiver = session.receiver(QUEUE, credit=100)
    had = receiver.all()
    assert len(had) == 1
    receiver.accept(had[0])
    assert count(receiver) == 1


def test_settled_deliveries_and_browsed_ones_are_not_bounded() -> None:
    session = filled(EACH)
    browser = session.receiver(p.Source(address=QUEUE, distribution_mode="copy"), credit=100)
    assert count(browser) == 10
    assert count(session.receiver(QUEUE, credit=100, snd_settle_mode=p.SENDER_SETTLE_MODE_SETTLED)) == 10


def test_receivers_of_a_connection_share_its_bound_over_sessions() -> None:
    session = filled(ALL)
    other = session.peer.begin(1).receiver(QUEUE, credit=100)
    receiver = session.receiver(QUEUE, credit=100)
    assert (count(other), count(receiver)) == (2, 0)
    elsewhere = Peer(session.peer.bench).open().begin().receiver(QUEUE, credit=100)
    assert count(elsewhere) == 2
    other.detach()
    assert count(receiver) == 2


def test_a_drain_ends_where_the_bound_is_in_the_way() -> None:
    receiver = filled(EACH).receiver(QUEUE, credit=0)
    receiver.want(100, drain=True)
    assert (count(receiver), receiver.credit) == (2, 0)


def test_the_end_of_a_link_makes_room_for_the_next() -> None:
    session = filled(ALL)
    receiver = session.receiver(QUEUE, credit=100)
    assert count(receiver) == 2
    receiver.detach()
    assert count(session.receiver(QUEUE, credit=100)) == 2


def test_memory_that_is_short_holds_back_a_receiver_whatever_its_credit_is() -> None:
    session = filled("")
    receiver = session.receiver(QUEUE, credit=100)
    had = receiver.all()
    ConsumerBounds().look([session.peer.bench.host.queues["q"]], 5 * (UNANSWERED + SIZE), 0.0)
    session.sender(QUEUE).send(data(bytes(SIZE)))
    assert (len(had), count(receiver)) == (10, 0)
    for delivery in had[:7]:
        receiver.accept(delivery)
    assert count(receiver) == 1
