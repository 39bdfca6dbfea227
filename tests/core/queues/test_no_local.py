"""Queues that do not want what comes over the connection of who owns them, or alone consumes from them."""

from __future__ import annotations

import pytest

from leveret.client import Client
from leveret.message import Message
from leveret.protocols.amqp010.broker.encoding import ENCODING
from leveret.queues.queue import Queue
from leveret.values import Properties
from tests.core.fakes import FakeConsumer, waiting
from tests.harness.bench import CoreBench


def taker(queue: Queue, of: Client, exclusive: bool = False) -> FakeConsumer:
    """A consumer of which it is known over which connection it came."""
    made = FakeConsumer(queue, credit=0, exclusive=exclusive)
    made.peer = of.peer
    return made


@pytest.fixture
def mine(bench: CoreBench) -> Client:
    return client(bench, "mine")


@pytest.fixture
def other(bench: CoreBench) -> Client:
    return client(bench, "other")


def client(bench: CoreBench, name: str) -> Client:
    found = Client(bench.broker, bench.broker.access.add_user(name), name)
    found.host = bench.host
    return found


def sent(by: Client | None, body: bytes) -> Message:
    made = Message(ENCODING, "", "q", ENCODING.write(Properties()), body)
    made.peer = None if by is None else by.peer
    return made


def owned(bench: CoreBench, owner: Client, **said: int | str | bool) -> Queue:
    arguments = {"x-no-local": True, **{key.replace("_", "-"): value for key, value in said.items()}}
    return bench.host.declare_queue("q", exclusive=True, owner=owner, arguments=arguments)


def test_what_is_local_passes_by_however_it_comes(bench: CoreBench, mine: Client, other: Client) -> None:
    queue = owned(bench, mine)
    assert queue.push(sent(mine, b"pushed"))
    queue.admit(sent(mine, b"admitted"))
    assert queue.push(sent(mine.part(), b"of a part"))
    for by in (other, None):
        assert queue.push(sent(by, b"foreign"))
        queue.admit(sent(by, b"promised"))
    assert waiting(queue) == "foreign promised foreign promised"
    assert (queue.published, queue.refused) == (4, 0)


def test_without_the_argument_nothing_is_local(bench: CoreBench, mine: Client) -> None:
    queue = bench.host.declare_queue("q", exclusive=True, owner=mine)
    assert queue.push(sent(mine, b"a"))
    queue.admit(sent(mine, b"b"))
    assert waiting(queue) == "a b"


def test_an_exclusive_consumer_counts_as_an_owner_and_no_other(bench: CoreBench, mine: Client, other: Client):
    queue = bench.queue("q", x_no_local=True)
    consumer = taker(queue, mine)
    assert queue.push(sent(mine, b"a"))
    queue.remove_consumer(consumer)
    taker(queue, mine, exclusive=True)
    assert queue.push(sent(mine, b"b"))
    assert queue.push(sent(other, b"c"))
    assert waiting(queue) == "a c"


@pytest.mark.parametrize("overflow", ["reject-publish", "self-destruct", "drop-head"])
def test_what_is_local_is_nothing_to_a_full_queue(
    bench: CoreBench, mine: Client, other: Client, overflow: str
) -> None:
    queue = owned(bench, mine, x_max_length=1, x_overflow=overflow)
    assert queue.push(sent(other, b"a"))
    assert queue.push(sent(mine, b"b"))
    assert (waiting(queue), queue.deleted, queue.refused) == ("a", False, 0)
    assert queue.push(sent(other, b"c")) is (overflow != "reject-publish")


def test_what_is_local_replaces_nothing_and_has_no_number(bench: CoreBench, mine: Client, other: Client):
    queue = owned(bench, mine, x_last_value_key="k", x_sequence_header="n")
    for by, body in ((other, b"a"), (mine, b"b"), (other, b"c")):
        assert queue.push(sent(by, body))
        assert waiting(queue) == {b"a": "a", b"b": "a", b"c": "c"}[body]
    (kept,) = queue.waiting()
    assert kept.message.headers == {"n": 2}
