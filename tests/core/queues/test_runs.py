"""Runs of like messages: what is done once for all of them leaves a queue as if it had been done for each."""

from __future__ import annotations

from itertools import pairwise
from operator import itemgetter

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from leveret.broker import TAKEN, Outcome
from leveret.durable.journal import Journal
from leveret.durable.store.memory import MemoryStore
from leveret.exchanges.exchange_type import Exchange
from leveret.message import Facts, Message
from leveret.publishing.portion import end_of_run
from leveret.queues.queue import Queue
from leveret.values import Value
from tests.core.fakes import DEAD, FakeConsumer
from tests.harness.bench import ENCODING, CoreBench
from tests.harness.call_count import calls
from tests.harness.plain import plain_only

PLAIN, OTHER = Facts(durable=True), Facts(durable=True)
ARGUMENTS: dict[str, dict[str, Value]] = {
    "plain": {},
    "priorities": {"x_max_priority": 3},
    "short": {"x_max_length": 2},
    "full": {"x_max_length": 2, "x_overflow": "reject-publish"},
    "time to live": {"x_message_ttl": 1000},
    "few octets": {"x_max_length_bytes": 3},
    "few octets or refused": {"x_max_length_bytes": 3, "x_overflow": "reject-publish"},
    "buried": {"x_max_length": 2, "x_overflow": "reject-publish-dlx", **DEAD},
    "brief": {"x_message_ttl": 0, **DEAD},
    "not mine": {"x_no_local": True},
    "last value": {"x_last_value_key": "subject"},
    "groups": {"x_message_group_key": "subject"},
    "shared": {"x_max_priority": 3, "x_fair_share": 1},
    "numbered": {"x_sequence_header": "n"},
    "stream": {"x_queue_type": "stream"},
}


def sent(key: str, facts: Facts, body: bytes, peer: str | None) -> Message:
    made = Message(ENCODING, "amq.topic", key, b"", body, facts)
    made.peer = peer
    return made


def message(key: str, facts: Facts, exchange: str = "", body: bytes = b"body") -> Message:
    return Message(ENCODING, exchange, key, b"", body, facts)


messages = st.builds(
    message, st.sampled_from(["a", "b"]), st.sampled_from([PLAIN, OTHER, Facts()]), st.sampled_from(["", "x"])
)


@given(st.lists(messages, min_size=1, max_size=8))
def test_runs_are_as_long_as_can_be(given: list[Message]) -> None:
    at, kinds = 0, []
    while at < len(given):
        end = end_of_run(given, at)
        run = {(each.exchange, each.facts.durable) for each in given[at:end]}
        assert len(run) == 1
        kinds.append(run)
        at = end
    assert all(before != after for before, after in pairwise(kinds))


START = {"x-stream-offset": 0}
KINDS = st.sampled_from(sorted(ARGUMENTS))
FACTS = st.sampled_from(
    [PLAIN, Facts(), Facts(ttl_ms=5), Facts(priority=2), Facts(durable=True, ttl_ms=5_000, priority=1)]
)


def declared(bench: CoreBench, name: str, kind: str, key: str) -> Queue:
    arguments = {name.replace("_", "-"): value for name, value in ARGUMENTS[kind].items()}
    queue = bench.host.declare_queue(name, durable=kind != "transient", arguments=arguments)
    bench.host.bind(bench.host.exchange("amq.topic"), queue, key)
    return queue


def published(bench: CoreBench, exchange: Exchange, run: list[Message], together: bool) -> list[Outcome]:
    """What became of each, published as front-ends do with a run: what is not taken at once goes one by one."""
    outcomes: list[Outcome] = []
    while len(outcomes) < len(run):
        rest = run[len(outcomes) :]
        taken = bench.broker.publish_run(exchange, rest) if together else 0
        outcomes += [TAKEN] * taken
        if taken < len(rest):
            outcomes.append(bench.broker.publish(exchange, rest[taken]))
    return outcomes


def told_of(queue: Queue) -> object:
    """All that can be seen of a queue."""
    left = [(each.position, each.expires_at, each.stored, each.message.body) for each in queue.waiting()]
    counts = queue.ready, queue.ready_bytes, queue.published, queue.refused, queue.unsettled, queue.delivered
    return left, counts, queue.touched


def seen_by(consumer: FakeConsumer) -> object:
    return [(each.position, each.message.body) for each in consumer.got]


@example(
    kinds=["plain"] * 2, facts=PLAIN, before=0, counts=[3], credit=None, traced=False, kept=True, peer=None
)
@given(
    kinds=st.lists(KINDS, min_size=0, max_size=3),
    facts=FACTS,
    before=st.integers(0, 3),
    counts=st.lists(st.integers(1, 5), min_size=1, max_size=3),
    credit=st.sampled_from([None, 0, 1, 4]),
    traced=st.booleans(),
    kept=st.booleans(),
    peer=st.sampled_from([None, "me"]),
)
def test_a_run_is_published_as_its_messages_are(
    kinds: list[str],
    facts: Facts,
    before: int,
    counts: list[int],
    credit: int | None,
    traced: bool,
    kept: bool,
    peer: str | None,
) -> None:
    """Whatever the queues are, and whoever takes from them: as if each had been published for itself."""
    found = []
    for together in (True, False):
        bench = CoreBench()
        exchange = bench.host.exchange("amq.topic")
        queues = [declared(bench, f"q{n}", kind, "k.*") for n, kind in enumerate(kinds)]
        journal = Journal(MemoryStore(), bench.broker, {})
        for number, queue in enumerate(queues if kept else [], 1):
            queue.keep_in(journal, number)
        watch = bench.queue("watch")
        dead = bench.queue("dead")
        if traced:
            bench.host.set_tracing(True)
            bench.host.bind(bench.host.exchange("amq.rabbitmq.trace"), watch, "#")
        readers = []
        for queue in queues if credit is not None else []:
            readers.append(FakeConsumer(queue, credit=credit or 0, exclusive=True, arguments=START))
            readers[-1].peer = "me"
        first = [sent("k.a", PLAIN, b"before-%d" % number, None) for number in range(before)]
        published(bench, exchange, first, together=False)
        bench.settle()
        seen: list[object] = []
        for count in counts:
            run = [sent("k.a", facts, b"%d" % number, peer) for number in range(count)]
            seen.append(published(bench, exchange, run, together))
            seen.append([told_of(queue) for queue in queues])
            # A run goes into one queue after the other; the order that is kept is that of each queue.
            arrived = [(each.queue.name, each.position) for each in journal.arrivals]
            seen.append(sorted(arrived, key=itemgetter(0)))
            bench.settle()
        seen.append([told_of(queue) for queue in queues])
        bench.advance(2)
        seen.append([told_of(queue) for queue in (*queues, watch, dead)])
        seen.append([seen_by(reader) for reader in readers])
        seen.append((exchange.published, exchange.routed, exchange.unroutable, bench.broker.work))
        found.append(seen)
    assert found[0] == found[1]


@plain_only
@pytest.mark.parametrize(
    "kinds", [["plain"], ["full"], ["short", "priorities", "time to live"], ["few octets"]]
)
def test_a_run_goes_in_one_piece_where_nothing_stands_in_the_way(kinds: list[str], bench: CoreBench) -> None:
    """Limits that are far away, times to live, priorities and several queues do not."""
    exchange = bench.host.exchange("amq.topic")
    queues = [declared(bench, f"q{n}", kind, "k.*") for n, kind in enumerate(kinds)]
    bench.broker.publish(exchange, sent("k.a", PLAIN, b"", None))  # now the way is known
    for queue in queues:
        queue.purge()
    run = [sent("k.a", PLAIN, b"1", None), sent("k.a", PLAIN, b"2", None)]
    assert calls(lambda: bench.broker.publish_run(exchange, run))["line_up"] == len(kinds)
    assert [queue.ready for queue in queues] == [2] * len(kinds)


@given(kind=KINDS.filter(lambda kind: kind != "stream"), count=st.integers(1, 5), durable=st.booleans())
def test_a_run_is_accepted_as_its_messages_are(kind: str, count: int, durable: bool) -> None:
    found = []
    for together in (True, False):
        bench = CoreBench()
        queue = declared(bench, "q", kind, "k")
        journal = Journal(MemoryStore(), bench.broker, {})
        queue.keep_in(journal, 1)
        reader = FakeConsumer(queue)
        for number in range(count):
            queue.push(sent("k", PLAIN if durable else Facts(), b"%d" % number, None))
        bench.settle()
        if together:
            queue.accept_run(reader.held)
        else:
            for delivery in reader.held:
                queue.accept(delivery)
        settled = [(each.position, each.message.body) for each in journal.settled]
        found.append((told_of(queue), queue.accepted, settled))
    assert found[0] == found[1]
