"""Any methods in any order, on two connections: refusals as the protocol has them, never an exception, nothing lost.

The pools of names, keys and arguments are small, so that what one method makes the next ones use.
"""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.protocols.amqp091.broker.channel import METHODS
from leveret.protocols.amqp091.codec import methods as m
from leveret.protocols.amqp091.codec.wire import BasicProperties, FieldTable, FieldValue, Method
from tests.harness.bench import ClientBench

from .peer import ClientChannel, Peer

CHANNELS: Final = (1, 2)
NAMES: Final = st.sampled_from(("", "x", "x", "y", "amq.direct", "amq.topic", "amq.match", "amq.fanout"))
WORDS: Final[dict[str, st.SearchStrategy[str]]] = {
    "type": st.sampled_from(("direct", "fanout", "topic", "headers", "x-odd")),
    "consumer_tag": st.sampled_from(("", "", "t", "u")),
    "routing_key": st.sampled_from(("", "q", "r", "a.b", "a.#", "*.b")),
    "queue": st.sampled_from(("", "q", "q", "r", "amq.rabbitmq.reply-to")),
}
NUMBERS: Final = st.sampled_from((0, 1, 2, 3, 65535))
ARGUMENTS: Final[tuple[tuple[str, tuple[FieldValue, ...]], ...]] = (
    ("x-message-ttl", (0, 1000, -1)),
    ("x-expires", (1, 1000)),
    ("x-max-length", (0, 1)),
    ("x-overflow", ("reject-publish", "reject-publish-dlx")),
    ("x-dead-letter-exchange", ("", "x", "amq.fanout")),
    ("x-dead-letter-routing-key", ("q", "r")),
    ("x-max-priority", (0, 2)),
    ("x-single-active-consumer", (True,)),
    ("x-delivery-limit", (0, 1)),
    ("x-consumer-timeout", (1000,)),
    ("x-queue-type", ("classic", "quorum")),
    ("x-priority", (1, "high")),
    ("x-match", ("any", "all", 1)),
    ("alternate-exchange", ("x", "y", 5)),
    ("a", (1, "b", None)),
)
TABLES: Final = st.dictionaries(
    st.sampled_from([name for name, _ in ARGUMENTS]), st.none(), max_size=3
).flatmap(lambda names: st.fixed_dictionaries({n: st.sampled_from(dict(ARGUMENTS)[n]) for n in names}))
SELDOM: Final = (None,) * 30
PROPERTIES: Final = st.builds(
    BasicProperties,
    headers=st.none() | st.fixed_dictionaries({}, optional={"CC": st.just(["q"]), "BCC": st.just(["r"])}),
    delivery_mode=st.sampled_from((None, 1, 2)),
    priority=st.sampled_from((None, 0, 9)),
    expiration=st.sampled_from((None, None, "0", "1000")),
    reply_to=st.sampled_from((*SELDOM, "amq.rabbitmq.reply-to", "q")),
    user_id=st.sampled_from((*SELDOM, "guest", "other")),
)


def methods(of: type[Method]) -> st.SearchStrategy[Method]:
    """Any method of a kind, its arguments from the pools."""
    fields = inspect.signature(of).parameters.values()
    return st.builds(of, **{f.name: values(f.name, f.default) for f in fields if f.name[:8] != "reserved"})


def values(name: str, default: object) -> st.SearchStrategy[object]:
    if isinstance(default, bool):
        return st.booleans()
    if isinstance(default, int):
        return st.just(0) if name == "prefetch_size" else NUMBERS
    return WORDS.get(name, NAMES) if isinstance(default, str) else TABLES


class Crowd:
    """Two clients with two channels each; whoever is refused closes and opens again."""

    def __init__(self, arguments: FieldTable) -> None:
        self.bench = ClientBench()
        self.channels = [channel for _ in range(2) for channel in self._newcomer()]
        first = self.channels[0]
        first.send(m.ExchangeDeclare("x", "fanout"))
        first.send(m.QueueDeclare("r"))
        first.send(m.QueueDeclare("q", arguments=arguments))
        first.send(m.QueueBind("q", "x", "a.b"))
        first.send(m.QueueBind("r", "x", "a.#"))
        self.carry_on()

    def _newcomer(self) -> list[ClientChannel]:
        peer = Peer(self.bench).open()
        return [peer.channel(number) for number in CHANNELS]

    def carry_on(self) -> None:
        """Read what came, answer closes, and open again what was closed."""
        for channel in list(self.channels):
            peer = channel.peer
            if any(isinstance(what, m.ChannelClose) for what in channel.all()):
                channel.send(m.ChannelCloseOk())
                channel.send(m.ChannelOpen())
            if any(isinstance(what, m.ConnectionClose) for what in peer.all(0)):
                peer.send(0, m.ConnectionCloseOk())
                self.replace(peer)

    def replace(self, peer: Peer) -> None:
        at = next(at for at, channel in enumerate(self.channels) if channel.peer is peer)
        peer.drop()
        self.channels[at : at + len(CHANNELS)] = self._newcomer()


Step = Callable[[Crowd], None]


def say(at: int, method: Method, settle: bool) -> Step:
    return lambda crowd: crowd.channels[at].send(method, settle)


def publish(at: int, exchange: str, key: str, flags: int, properties: BasicProperties, settle: bool) -> Step:
    mandatory, immediate = bool(flags & 1), bool(flags & 2)
    return lambda crowd: crowd.channels[at].publish(
        exchange, key, b"body", properties, mandatory, immediate, settle
    )


def answer(at: int, which: int, how: type[Method], multiple: bool, requeue: bool, settle: bool) -> Step:
    """Answer a delivery that is there to be answered, if one is."""

    def step(crowd: Crowd) -> None:
        client = crowd.channels[at]
        tags = list(client.peer.front.channels[client.number].unsettled)
        if tags:
            tag = tags[which % len(tags)]
            last = {m.BasicAck: (multiple,), m.BasicReject: (requeue,), m.BasicNack: (multiple, requeue)}[how]
            client.send(how(tag, *last), settle)

    return step


def wait(seconds: float) -> Step:
    return lambda crowd: crowd.bench.advance(seconds)


def leave(at: int) -> Step:
    return lambda crowd: crowd.replace(crowd.channels[at].peer)


AT: Final = st.integers(0, 3)
SPOKEN: Final = (*METHODS, m.BasicAck)
ANSWERS: Final = st.builds(
    answer,
    AT,
    st.integers(0, 3),
    st.sampled_from((m.BasicAck, m.BasicReject, m.BasicNack)),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
RESTS: Final = st.sampled_from([wait(0.001), wait(1), wait(10), *(leave(at) for at in (0, 2))])
CONSUMES: Final = st.builds(
    say,
    AT,
    st.builds(m.BasicConsume, st.sampled_from(("q", "r")), no_ack=st.booleans(), arguments=TABLES),
    st.booleans(),
)
PUBLISHES: Final = st.builds(
    publish,
    AT,
    st.sampled_from(("", "x", "amq.fanout")),
    WORDS["routing_key"],
    st.sampled_from((0, 0, 1, 2)),
    PROPERTIES,
    st.booleans(),
)
STEPS: Final = st.lists(
    st.one_of(
        st.builds(say, AT, st.sampled_from(SPOKEN).flatmap(methods), st.booleans()),
        PUBLISHES,
        PUBLISHES,
        CONSUMES,
        ANSWERS,
        ANSWERS,
        RESTS,
    ),
    min_size=30,
    max_size=60,
)


@pytest.mark.timeout(1800)  # the nightly profile tries 10 000 of them, at 40 ms each
@given(arguments=TABLES, steps=STEPS)
def test_any_methods_in_any_order_are_never_an_exception_and_the_books_balance(
    arguments: FieldTable, steps: list[Step]
) -> None:
    crowd = Crowd(arguments)
    for step in steps:
        step(crowd)
        crowd.carry_on()
    check_queues(crowd)
    check_bindings(crowd.bench)
    for channel in crowd.channels:
        crowd.replace(channel.peer)
    assert all(queue.unsettled == 0 and not queue.consumers for queue in crowd.bench.host.queues.values())
    assert not any(queue.exclusive for queue in crowd.bench.host.queues.values())
    assert not crowd.bench.host.hidden_queues


def check_queues(crowd: Crowd) -> None:
    """What a queue counts is what is there."""
    held: Counter[str] = Counter()
    consuming: Counter[str] = Counter()
    for client in crowd.channels:
        channel = client.peer.front.channels[client.number]
        deliveries = [*channel.unsettled.values(), *channel._tx_unsettled.values()]
        held.update(each.queue.name for each in deliveries if not each.queue.deleted)
        consuming.update(consumer.queue.name for consumer in channel.consumers.values())
    for queue in crowd.bench.host.queues.values():
        waiting = list(queue.waiting())
        assert queue.ready == len(waiting)
        assert queue.ready_bytes == sum(each.message.size for each in waiting)
        assert queue.unsettled == held[queue.name]
        assert len(queue.consumers) == consuming[queue.name]
        assert queue.owner is None or queue.owner in crowd.bench.broker.clients


def check_bindings(bench: ClientBench) -> None:
    """Every binding leads from and to something that is there, and both ends know it."""
    host = bench.host
    ends = {*host.queues.values(), *host.exchanges.values()}
    bindings = list(host.bindings())
    assert all(binding.source in ends and binding.destination in ends for binding in bindings)
    assert {id(each) for end in ends for each in host.bindings_to(end)} == set(map(id, bindings))
