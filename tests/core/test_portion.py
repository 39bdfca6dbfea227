"""Portions of messages that can wait: as if each had been published where there is room, and no further."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.broker import TAKEN, WORK_MAX
from leveret.message import Facts, Message
from leveret.publishing.portion import publish_portion
from leveret.values import Table
from tests.core.fakes import waiting
from tests.harness.bench import ENCODING, CoreBench
from tests.harness.call_count import calls
from tests.harness.plain import plain_only

QUEUES: dict[str, Table] = {
    "plain": {},
    "full": {"x-max-length": 2, "x-overflow": "reject-publish"},
    "small": {"x-max-length-bytes": 3, "x-overflow": "reject-publish"},
    "short": {"x-max-length": 1},
    "expiring": {"x-message-ttl": 1000},
    "stream": {"x-queue-type": "stream"},
}
FACTS = (Facts(), Facts(durable=True), Facts(priority=3), Facts(cc=("plain",)))


def bench_of() -> CoreBench:
    bench = CoreBench()
    fanout = bench.host.declare_exchange("both", "fanout")
    for name, arguments in QUEUES.items():
        queue = bench.host.declare_queue(name, durable=True, arguments=arguments)
        if name in ("plain", "full"):
            bench.host.bind(fanout, queue, "")
    return bench


def message(exchange: str, key: str, body: bytes = b"", facts: Facts = FACTS[0]) -> Message:
    return Message(ENCODING, exchange, key, b"", body, facts)


messages = st.builds(
    message,
    st.sampled_from(["", "", "", "both", "gone"]),
    st.sampled_from([*QUEUES, "nowhere"]),
    st.sampled_from([b"", b"a", b"bb"]),
    st.sampled_from(FACTS),
)


def state(bench: CoreBench) -> object:
    host = bench.host
    counts = {name: (each.published, each.routed, each.unroutable) for name, each in host.exchanges.items()}
    return counts, {
        name: (queue.ready, queue.ready_bytes, queue.published) for name, queue in host.queues.items()
    }


@given(st.lists(messages, max_size=20))
def test_a_portion_is_published_as_if_each_message_were_by_itself(sent: list[Message]) -> None:
    together, apart = bench_of(), bench_of()
    done = publish_portion(together.host, sent)
    published = unroutable = 0
    is_full = False
    for each in sent:
        exchange = apart.host.exchanges.get(each.exchange)
        outcome = None if exchange is None else apart.broker.publish_if_room(exchange, each)
        if exchange is not None and outcome is None:
            is_full = True
            break
        published += outcome is TAKEN
        unroutable += outcome is not TAKEN
    assert (done.taken, done.unroutable, done.is_full) == (published, unroutable, is_full)
    assert state(together) == state(apart)


def test_what_is_left_is_published_once_there_is_room() -> None:
    bench = bench_of()
    sent = [message("", "full", b"%d" % number) for number in range(5)]
    done = publish_portion(bench.host, sent)
    assert (done.done, done.is_full, waiting(bench.host.queues["full"])) == (2, True, "0 1")
    bench.host.queues["full"].purge()
    done = publish_portion(bench.host, sent[done.done :])
    assert (done.done, done.is_full, waiting(bench.host.queues["full"])) == (2, True, "2 3")


def test_others_have_their_turn_and_one_message_goes_in_any_case() -> None:
    bench = bench_of()
    sent = [message("both", "") for _ in range(2)]
    bench.broker.work = WORK_MAX + 1
    assert [publish_portion(bench.host, sent[at:]).done for at in range(3)] == [1, 1, 0]


@plain_only
@pytest.mark.parametrize("exchange", ["", "both"])
def test_a_run_is_published_together_once_its_route_is_known(exchange: str) -> None:
    bench = CoreBench()
    for name in ("a", "b"):
        bench.host.bind(
            bench.host.exchanges.get("both") or bench.host.declare_exchange("both", "fanout"),
            bench.queue(name),
            "",
        )
    sent = [message(exchange, "a", facts=FACTS[1]) for _ in range(100)]
    cost = calls(lambda: publish_portion(bench.host, sent))
    assert (cost["Broker.publish_run"], cost["Broker.publish_if_room"]) == (2, 1)
    assert bench.host.queues["a"].ready == 100


@plain_only
def test_a_run_of_which_a_part_is_taken_again_and_again_is_not_looked_at_each_time() -> None:
    """Every second message is for a queue with a limit, and goes by itself: what follows is not looked at anew."""
    bench = CoreBench()
    bench.queue("free")
    bench.queue("short", x_max_length=1000)
    sent = [message("", ("free", "short")[number % 2]) for number in range(100)]
    for each in sent[:2]:
        bench.broker.publish(bench.host.default_exchange, each)  # so that routes are known
    cost = calls(lambda: publish_portion(bench.host, sent))
    assert cost["Broker.publish_run"] == 2
    assert [bench.host.queues[name].ready for name in ("free", "short")] == [51, 51]
