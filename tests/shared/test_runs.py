"""Messages that come in one read are published as if each had come alone, whatever they say, and whoever gets them.

A read is gathered into runs of like messages, and there are several ways to gather it. Each message here is one of many
that differ in what the core knows of messages (`Facts`), and goes to queues of every kind.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Final

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leveret.message import Facts, Message
from leveret.observability.firehose import TRACE
from leveret.protocols.amqp010.codec import commands as c
from leveret.protocols.amqp091.codec import methods as m
from leveret.protocols.amqp091.codec.wire import BasicProperties
from leveret.queues.queue import Queue
from leveret.values import Table
from tests.amqp010 import peer as peer010
from tests.amqp091.peer import ClientChannel, channel_of
from tests.amqp10 import peer as peer10
from tests.amqp10.client import Sender
from tests.amqp10.parts import annotations, application_properties, data
from tests.harness.bench import ClientBench, StoredBench
from tests.harness.peer import JoinedPeer

FACTS: Final = [name for name in dir(Facts) if not (name.startswith("_") or callable(getattr(Facts, name)))]
KEYS: Final = ("a", "b", "nowhere")
QUEUES: Final[dict[str, Table]] = {
    "classic": {},
    "quorum": {"x-queue-type": "quorum"},
    "stream": {"x-queue-type": "stream"},
    "priorities": {"x-max-priority": 5},
    "expiring": {"x-message-ttl": 5000},
    "short": {"x-max-length": 3, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"},
    "refusing": {"x-max-length": 3, "x-overflow": "reject-publish"},
    "small": {"x-max-length-bytes": 5},
    "distinct": {"x-message-deduplication": True},
    "newest": {"x-last-value-key": "k"},
    "groups": {"x-message-group-key": "k"},
    "numbered": {"x-sequence-header": "n"},
    "delaying": {"x-delayed-message": True},
    "held": {
        "x-queue-type": "quorum",
        "x-max-length": 2,
        "x-overflow": "reject-publish",
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": "dead",
        "x-dead-letter-strategy": "at-least-once",
    },
}


@attrs.frozen
class Publication:
    """What a client publishes; None where it says nothing."""

    exchange: str
    key: str
    body: bytes = b""
    persistent: bool | None = None
    priority: int | None = None
    ttl_ms: int | None = None
    due_ms: int | None = None
    user_id: str | None = None
    reply_to: str | None = None
    headers: tuple[tuple[str, str | int | tuple[str, ...]], ...] = ()
    mandatory: bool = False


HEADERS: Final = (
    ("CC", ("b",)),
    ("BCC", ("a", "short")),
    ("k", "u"),
    ("k", "v"),
    ("x-deduplication-header", "1"),
    ("x-deduplication-header", "2"),
    ("x-delay", 100),
    ("z", 1),
)
VALUES: Final[dict[str, tuple[object, ...]]] = {
    "exchange": ("", "x", "distinct x"),
    "key": (*KEYS, *QUEUES),
    "body": (b"", b"1", b"22", b"333333"),
    "persistent": (False, True),
    "priority": (0, 1, 4, 7),
    "ttl_ms": (0, 100, 9000),
    "due_ms": (60_000,),
    "user_id": ("guest",),
    "reply_to": ("somebody",),
    "headers": tuple((each,) for each in HEADERS),
    "mandatory": (True,),
}
EVERYWHERE: Final = [(exchange, key) for exchange in ("", "x", "distinct x") for key in (*KEYS, *QUEUES)]
USUAL: Final = Publication("x", "a", b"1")
CHANGES: Final = st.lists(
    st.sampled_from([*VALUES]).flatmap(
        lambda field: st.tuples(st.just(field), st.sampled_from(VALUES[field]))
    ),
    max_size=2,
).map(dict)
# Messages differ from the first one in two things at the most.
RUNS: Final = st.tuples(CHANGES, st.lists(CHANGES, max_size=8)).map(lambda parts: run_of(*parts))
BOUND: Final = st.sets(st.sampled_from([*QUEUES]), max_size=2)


def run_of(first: Mapping[str, object], others: list[Mapping[str, object]]) -> list[Publication]:
    """Return a publication that differs from the usual one, and others that differ from it."""
    begin = attrs.evolve(USUAL, **first)
    return [begin, *(attrs.evolve(begin, **each) for each in others)]


class Publisher(ABC):
    """A client of one protocol that publishes in one read, or in one for each message."""

    peer: JoinedPeer

    def __init__(self, bench: ClientBench) -> None:
        self.bench = bench

    @abstractmethod
    def publish(self, publication: Publication) -> None:
        """Send a message."""

    @abstractmethod
    def told(self) -> object:
        """Return what the client has been told of its messages."""

    def publish_all(self, publications: Sequence[Publication], together: bool) -> None:
        """Send messages of one batch, so that they come together in one read, or in one for each."""
        send, sent = self.peer.send_bytes, list[bytes]()
        self.peer.send_bytes = lambda octets, settle=True: sent.append(octets)  # type: ignore[method-assign]
        for each in publications:
            self.publish(each)
        self.peer.send_bytes = send  # type: ignore[method-assign]
        for octets in [b"".join(sent)] if together else sent:
            send(octets, settle=False)
        self.bench.settle()


class Publisher091(Publisher):
    def __init__(self, bench: ClientBench) -> None:
        super().__init__(bench)
        self.channel: ClientChannel = channel_of(bench)
        self.channel.call(m.ConfirmSelect())
        self.peer = self.channel.peer

    def publish(self, publication: Publication) -> None:
        said = publication
        headers = {name: list(value) if isinstance(value, tuple) else value for name, value in said.headers}
        properties = BasicProperties(
            headers=headers or None,
            delivery_mode=None if said.persistent is None else 1 + said.persistent,
            priority=said.priority,
            expiration=None if said.ttl_ms is None else str(said.ttl_ms),
            user_id=said.user_id,
            reply_to=said.reply_to,
        )
        self.channel.publish(said.exchange, said.key, said.body, properties, said.mandatory)

    def told(self) -> object:
        confirmed, refused, returned = set[int](), set[int](), []
        for each in self.channel.all():
            if isinstance(each, m.BasicAck | m.BasicNack):
                known = confirmed | refused
                first = (
                    min(set(range(1, each.delivery_tag + 1)) - known) if each.multiple else each.delivery_tag
                )
                tags = {*range(first, each.delivery_tag + 1)} - known
                (confirmed if isinstance(each, m.BasicAck) else refused).update(tags)
            else:
                returned.append(each)
        return confirmed, refused, returned


class Publisher10(Publisher):
    def __init__(self, bench: ClientBench) -> None:
        super().__init__(bench)
        self.session = peer10.session_of(bench)
        self.senders: dict[str | None, Sender] = {}
        self.peer = self.session.peer
        self.sent: list[tuple[Sender, int]] = []
        for address in dict.fromkeys(self.address(exchange, key) for exchange, key in EVERYWHERE):
            self.senders[address] = self.session.sender(address)

    def address(self, exchange: str, key: str) -> str | None:
        """Return the address of the sender for this exchange and key; None: an anonymous one."""
        if not exchange:
            return f"/queues/{key}" if key in self.bench.host.queues else None
        return f"/exchanges/{exchange.replace(' ', '%20')}/{key}"

    def publish(self, publication: Publication) -> None:
        said = publication
        address = self.address(said.exchange, said.key)
        sender = self.senders[address]
        header = peer10.p.Header(durable=said.persistent, priority=said.priority, ttl=said.ttl_ms)
        noted: dict[str, object] = {name: value for name, value in said.headers if name.startswith("x-")}
        if said.due_ms is not None:
            noted["x-opt-delivery-time"] = int(self.bench.broker.clock.wall() * 1000) + said.due_ms
        noted.update({f"x-{name.lower()}": list(value) for name, value in said.headers if name == "CC"})
        plain = {name: value for name, value in said.headers if not isinstance(value, tuple)}
        properties = peer10.p.Properties(
            to=None if address is not None else f"/queues/{said.key}",
            user_id=None if said.user_id is None else said.user_id.encode(),
            reply_to=said.reply_to,
        )
        sections = header, annotations(noted), properties, application_properties(plain), data(said.body)
        self.sent.append((sender, sender.send(*sections)))

    def told(self) -> object:
        return [sender.outcome(number) for sender, number in self.sent]


class Publisher010(Publisher):
    def __init__(self, bench: ClientBench) -> None:
        super().__init__(bench)
        self.peer = peer010.Peer(bench)
        self.session = self.peer.open("guest", "guest").attach("session")

    def publish(self, publication: Publication) -> None:
        said = publication
        headers = {name: value for name, value in said.headers if not isinstance(value, tuple)}
        delivery = c.DeliveryProperties(
            routing_key=said.key,
            delivery_mode=None if said.persistent is None else 1 + said.persistent,
            priority=said.priority,
            ttl=said.ttl_ms,
            discard_unroutable=None if said.mandatory else True,
        )
        reply_to = None if said.reply_to is None else c.ReplyTo("", said.reply_to)
        user_id = None if said.user_id is None else said.user_id.encode()
        properties = c.MessageProperties(
            application_headers=headers or None, reply_to=reply_to, user_id=user_id
        )
        self.session.publish(said.key, said.body, said.exchange, properties, delivery)

    def told(self) -> object:
        return None


def populated(bench: ClientBench, bound: set[str], is_traced: bool) -> ClientBench:
    """Return a bench with all queues, some of them bound, whose messages are traced or not."""
    host = bench.host
    exchange = host.declare_exchange("x", "topic", arguments={})
    distinct = host.declare_exchange(
        "distinct x", "fanout", arguments={"x-message-deduplication": True, "x-cache-size": 100}
    )
    host.declare_queue("dead", durable=True)
    for name, arguments in QUEUES.items():
        durable = name != "classic"
        queue = host.declare_queue(name, durable=durable, arguments=arguments)
        for key in KEYS[:2] if name in bound else ():
            host.bind(exchange, queue, key, {})
    host.bind(distinct, host.queues["quorum"], "", {})
    host.set_tracing(is_traced)
    host.bind(host.exchanges[TRACE], host.declare_queue("traced"), "#", {})
    return bench


def state_of(bench: ClientBench) -> dict[str, object]:
    """Return all that is in the queues, and what was counted."""
    return {name: queue_state(queue) for name, queue in sorted(bench.host.queues.items())}


def queue_state(queue: Queue) -> object:
    held = queue.dead_letters
    return (
        [
            (each.position, each.expires_at, each.redelivered, each.stored != 0, said(each.message))
            for each in queue.waiting()
        ],
        [(each.position, each.due, each.size) for each in queue.later.items()] if len(queue.later) else [],
        (queue.ready, queue.ready_bytes, queue.published, queue.repeated, queue.refused),
        0 if held is None else (held.count, held.octets),
    )


def said(message: Message) -> object:
    facts = {name: getattr(message.facts, name) for name in FACTS}
    return message.exchange, message.key, message.properties, message.body, facts


PARTING: Final[dict[str, object]] = {
    "durable": True,
    "priority": 1,
    "ttl_ms": 1,
    "due_ms": 1,
    "cc": ("a",),
    "bcc": ("a",),
}
CARRIED: Final[dict[str, object]] = {"user_id": "guest", "reply_to": "somebody", "has_headers": True}


def test_every_fact_parts_a_run_or_is_carried_along() -> None:
    assert {*PARTING, *CARRIED} == {*FACTS}
    assert not [name for name, value in PARTING.items() if Facts().is_like(Facts(**{name: value}))]  # type: ignore[arg-type]
    assert not [name for name, value in CARRIED.items() if not Facts().is_like(Facts(**{name: value}))]  # type: ignore[arg-type]


BENCHES: Final = {"in memory": ClientBench, "with a store": StoredBench}
PUBLISHERS: Final = {"0-9-1": Publisher091, "1.0": Publisher10, "0-10": Publisher010}


@pytest.mark.parametrize("kind", BENCHES)
@pytest.mark.parametrize("protocol", PUBLISHERS)
@given(publications=RUNS, bound=BOUND, is_traced=st.sampled_from((False, False, True)))
@settings(deadline=None, report_multiple_bugs=False)
def test_a_run_is_published_as_one_message_after_the_other(
    protocol: str, kind: str, publications: list[Publication], bound: set[str], is_traced: bool
) -> None:
    together, apart = (PUBLISHERS[protocol](populated(BENCHES[kind](), bound, is_traced)) for _ in range(2))
    for publisher in (together, apart):  # routes are known then
        publisher.publish_all([Publication(each.exchange, each.key) for each in publications], False)
    together.publish_all(publications, True)
    apart.publish_all(publications, False)
    assert state_of(together.bench) == state_of(apart.bench)
    assert together.told() == apart.told()
