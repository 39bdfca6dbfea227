"""The property `rabbitmq:active` of a link's state: whether a consumer of a quorum queue is the active one."""

from __future__ import annotations

import pytest

from tests.amqp10.client import Receiver, Session
from tests.amqp10.peer import session_of
from tests.harness.bench import ClientBench

QUEUE = "/queues/q"


def bench_with(type_: str, single: bool) -> ClientBench:
    bench = ClientBench()
    arguments = {"x-queue-type": type_, "x-single-active-consumer": single}
    bench.host.declare_queue("q", durable=True, arguments=arguments)
    return bench


def told(link: Receiver) -> list[object]:
    """What the flows about a link said of it."""
    flows = [flow for flow in link.session.flows if flow.handle == link.attached.handle]
    return [flow.properties["rabbitmq:active"] for flow in flows if flow.properties]


def consumer(session: Session, name: str, credit: int = 1) -> Receiver:
    return session.receiver(QUEUE, name=name, credit=credit)


def test_a_waiting_consumer_is_told_so_and_again_when_it_takes_over() -> None:
    session = session_of(bench_with("quorum", single=True))
    first, second = consumer(session, "first"), consumer(session, "second")
    assert (told(first), told(second)) == ([True], [False])
    first.want(5)
    assert told(first) == [True]  # once
    first.detach()
    assert told(second) == [False, True]


def test_without_a_single_active_consumer_each_is_active() -> None:
    session = session_of(bench_with("quorum", single=False))
    assert [told(consumer(session, name)) for name in ("a", "b")] == [[True], [True]]


def test_nothing_is_told_before_there_is_credit() -> None:
    session = session_of(bench_with("quorum", single=True))
    first, second = consumer(session, "first"), consumer(session, "second", credit=0)
    assert told(second) == []
    first.detach()
    assert told(second) == []
    second.want(1)
    assert told(second) == [True]


@pytest.mark.parametrize("type_", ["classic"])
def test_consumers_of_other_queues_are_told_nothing(type_: str) -> None:
    session = session_of(bench_with(type_, single=True))
    assert told(consumer(session, "a")) == []
