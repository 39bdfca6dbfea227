"""The property `rabbitmq:active` of a link's state: whether a consumer of a quorum queue is the active one."""

from __future__ import annotations

import pytest

from leveret.exchanges.super_streams import add_super_stream
from leveret.protocols.amqp10.codec import performatives as p
from leveret.protocols.amqp10.codec.types import Described, Symbol
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


def test_members_of_a_group_of_a_stream_are_told_when_they_become_active_and_when_they_are_not_any_more() -> (
    None
):
    bench = ClientBench()
    add_super_stream(bench.host, "e", 2)
    session = session_of(bench)
    address = "/queues/e-1"
    links = []
    for name in ("a", "b"):
        group = {Symbol("leveret:stream-group"): Described(Symbol("leveret:stream-group"), "g")}
        links.append(session.receiver(p.Source(address=address, filter=group), name=name, credit=1))
    first, second = links
    assert (told(first), told(second)) == ([True, False], [True])
    assert first.attached.source.filter is not None
    second.detach()
    assert told(first) == [True, False, True]
