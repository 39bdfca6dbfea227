"""Dead letters that come back (§7 of the acceptance list): what nobody has a hand in comes to an end."""

from __future__ import annotations

import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.protocols.amqp091.codec.wire import FieldTable
from tests.amqp091.peer import channel_of

from .test_s07_dead_letters import deaths, dying, publish, reject


def test_x037_a_cycle_that_nobody_has_a_hand_in_ends(caplog: pytest.LogCaptureFixture) -> None:
    channel = dying({"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "q", "x-message-ttl": 10})
    with caplog.at_level(logging.WARNING, "leveret"):
        for _ in range(3):
            publish(channel)
            channel.peer.bench.advance(1)
    assert channel.get("q") is None
    assert [record.getMessage() for record in caplog.records] == [
        "dead-letter cycle at queue 'q' in vhost '/': messages dropped"
    ]


def test_x037_over_several_queues_and_for_the_queue_concerned_only() -> None:
    channel = dying({"x-dead-letter-exchange": "second", "x-message-ttl": 10})
    channel.exchange("second", "fanout")
    channel.declare("back", arguments={"x-dead-letter-exchange": "amq.direct", "x-message-ttl": 10})
    for queue in ("back", "dead"):
        channel.bind(queue, "second")
    channel.bind("dead", "amq.direct", "k")
    publish(channel, b"x")
    channel.peer.bench.advance(0.015)
    channel.peer.bench.advance(0.015)
    assert channel.peer.bench.queue("q").ready == 0  # it has been there
    assert len(channel.bodies("dead")) == 3  # published, from q, from back


def test_x037_a_rejection_on_the_way_makes_it_a_wish() -> None:
    channel = dying({"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "second"})
    channel.declare(
        "second",
        arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "q", "x-message-ttl": 10},
    )
    publish(channel)
    for count in range(1, 6):
        content = reject(channel)
        assert len((content.properties.headers or {}).get("x-death", [])) == (2 if count > 1 else 0)
        channel.peer.bench.advance(1)
    assert [death["count"] for death in deaths(channel, "q")] == [5, 5]


def test_x037_a_queue_may_get_its_own_rejects() -> None:
    channel = dying({"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "q"})
    publish(channel)
    for _ in range(5):
        reject(channel)
    [death] = deaths(channel, "q")
    assert death["count"] == 5


LIMITS = st.sampled_from(
    [
        {"x-message-ttl": 0},
        {"x-message-ttl": 100},
        {"x-max-length": 0},
        {"x-max-length": 1, "x-overflow": "drop-head"},
    ]
)


@given(
    st.lists(st.tuples(LIMITS, st.integers(0, 3)), min_size=4, max_size=4),
    st.lists(st.one_of(st.integers(0, 3), st.just("reject"), st.just("wait")), max_size=15),
)
def test_x037_whatever_leads_where_it_comes_to_an_end(
    queues: list[tuple[FieldTable, int]], steps: list[int | str]
) -> None:
    channel = channel_of()
    for number, (arguments, target) in enumerate(queues):
        to = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": str(target)}
        channel.declare(str(number), arguments={**arguments, **to})
    for step in steps:
        if step == "wait":
            channel.peer.bench.advance(0.5)
        elif step == "reject":
            for number in range(4):
                if (content := channel.get(str(number), no_ack=False)) is not None:
                    channel.reject(content.method.delivery_tag)
        else:
            channel.publish("", str(step))
    for _ in range(20):  # each step of a chain lives for at most 0.1 s
        channel.peer.bench.advance(0.5)
    left = [queue for queue in channel.peer.bench.host.queues.values() if queue.ready]
    assert all(queue.limits.max_length == 1 and queue.ready == 1 for queue in left)
