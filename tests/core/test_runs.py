"""Runs of like messages: what is done once for all of them leaves a queue as if it had been done for each."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from broker_core.message import Facts, Message
from broker_core.runs import end_of_run, push_all
from broker_core.values import Value
from tests.core.fakes import ENCODING, FakeConsumer, World, waiting

PLAIN, OTHER = Facts(durable=True), Facts(durable=True)
ARGUMENTS: dict[str, dict[str, Value]] = {
    "plain": {},
    "priorities": {"x_max_priority": 3},
    "short": {"x_max_length": 2},
    "full": {"x_max_length": 2, "x_overflow": "reject-publish"},
    "time to live": {"x_message_ttl": 1000},
    "stream": {"x_queue_type": "stream"},
}


def message(key: str, facts: Facts, exchange: str = "", body: bytes = b"body") -> Message:
    return Message(ENCODING, exchange, key, b"", body, facts)


messages = st.builds(
    message, st.sampled_from(["a", "b"]), st.sampled_from([PLAIN, OTHER]), st.sampled_from(["", "x"])
)


@given(st.lists(messages, min_size=1, max_size=8))
def test_runs_are_as_long_as_can_be(given: list[Message]) -> None:
    at, kinds = 0, []
    while at < len(given):
        end = end_of_run(given, at)
        run = {(each.exchange, each.key, id(each.facts)) for each in given[at:end]}
        assert len(run) == 1
        kinds.append(run)
        at = end
    assert all(before != after for before, after in pairwise(kinds))


@given(
    kind=st.sampled_from(sorted(ARGUMENTS)),
    facts=st.sampled_from([PLAIN, Facts(), Facts(ttl_ms=5), Facts(priority=2)]),
    before=st.integers(0, 2),
    count=st.integers(1, 4),
    reads=st.booleans(),
)
def test_a_run_is_pushed_as_its_messages_are(
    kind: str, facts: Facts, before: int, count: int, reads: bool
) -> None:
    found = []
    for together in (True, False):
        world = World()
        arguments = {name.replace("_", "-"): value for name, value in ARGUMENTS[kind].items()}
        queue = world.host.declare_queue("q", durable=True, arguments=arguments)
        for number in range(before):
            queue.push(message("q", PLAIN, body=b"before-%d" % number))
        consumer = FakeConsumer(queue, credit=2, arguments={"x-stream-offset": 0}) if reads else None
        world.settle()
        run = [message("q", facts, body=b"%d" % number) for number in range(count)]
        taken = push_all(queue, run) if together else sum([queue.push(each) for each in run])
        world.settle()
        got = [] if consumer is None else [(each.position, each.message.body) for each in consumer.got]
        left = [(each.position, each.expires_at, each.stored) for each in queue.waiting()]
        counted = queue.ready, queue.ready_bytes, queue.published, queue.refused
        world.advance(2)
        found.append((taken, got, left, counted, waiting(queue)))
    assert found[0] == found[1]
