"""The states of an attacker over 0-9-1, what must hold after an attack, and the words of a good client to mutate."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from struct import pack, unpack_from
from typing import Final

from leveret.delivery import Delivery
from leveret.protocols.amqp091.codec import methods as m
from leveret.protocols.amqp091.codec import wire
from leveret.protocols.amqp091.codec.wire import BasicProperties, Method
from leveret.queues.queue import Queue
from tests.harness.attack import SMALL, Attack, Neighbour, Recording, queues_of, split
from tests.harness.attack import must_balance as queues_must_balance
from tests.harness.bench import ClientBench

from .peer import ClientChannel, Content, Peer

FRAME_MAX: Final = 4096


def frame(kind: int, channel: int, payload: bytes, size: int | None = None, end: bytes = b"\xce") -> bytes:
    return pack(">BHI", kind, channel, len(payload) if size is None else size) + payload + end


# States.


def started(bench: ClientBench) -> Peer:
    peer = Peer(bench)
    peer.start()
    return peer


def authenticated(bench: ClientBench) -> Peer:
    peer = Peer(bench)
    assert isinstance(peer.log_in(), m.ConnectionTune)
    return peer


def tuned(bench: ClientBench) -> Peer:
    peer = authenticated(bench)
    peer.tune(frame_max=FRAME_MAX)
    return peer


def opened(bench: ClientBench) -> Peer:
    return Peer(bench).open(frame_max=FRAME_MAX)


def with_channel(bench: ClientBench, *methods: Method) -> Peer:
    """An open connection with a channel on which some methods have been said."""
    peer = opened(bench)
    channel = peer.channel()
    for method in methods:
        channel.send(method)
    return peer


def publishing(bench: ClientBench) -> Peer:
    return with_channel(bench, m.QueueDeclare("q"), m.BasicPublish("", "q"))


def header_sent(bench: ClientBench) -> Peer:
    peer = publishing(bench)
    peer.send_bytes(wire.header_frame(1, 60, 1000, BasicProperties(headers={"a": 1}).encode()))
    return peer


def body_begun(bench: ClientBench) -> Peer:
    peer = header_sent(bench)
    peer.send_bytes(frame(m.FRAME_BODY, 1, b"x" * 400))
    return peer


def consuming(bench: ClientBench) -> Peer:
    """Three deliveries are out, the credit is used up, more wait."""
    peer = with_channel(bench, m.QueueDeclare("q"), m.BasicQos(0, 3, False), m.BasicConsume("q", "c"))
    for number in range(5):
        ClientChannel(peer, 1).publish("", "q", str(number).encode())
    return peer


def in_transaction(bench: ClientBench) -> Peer:
    """One message is published and one of three is acknowledged, neither for good."""
    peer = consuming(bench)
    channel = ClientChannel(peer, 1)
    channel.send(m.TxSelect())
    channel.publish("", "q", b"in the transaction")
    channel.ack(1)
    return peer


def confirming(bench: ClientBench) -> Peer:
    peer = with_channel(bench, m.QueueDeclare("q"), m.ConfirmSelect())
    ClientChannel(peer, 1).publish("", "q", b"confirmed")
    return peer


def in_half_a_frame(bench: ClientBench) -> Peer:
    peer = with_channel(bench)
    peer.send_bytes(wire.method_frame(1, m.QueueDeclare("q").encode())[:-5])
    return peer


def channel_failed(bench: ClientBench) -> Peer:
    """The broker has closed the channel and waits for the close-ok."""
    return with_channel(bench, m.QueueDeclare("missing", passive=True))


def connection_failed(bench: ClientBench) -> Peer:
    """The broker has closed the connection and waits for the close-ok."""
    return with_channel(bench, m.BasicQos(1, 0, False))


def ended(bench: ClientBench) -> Peer:
    peer = opened(bench)
    peer.send(0, m.ConnectionClose(200, "bye", 0, 0))
    return peer


STATES: Final[dict[str, Callable[[ClientBench], Peer]]] = {
    "before the header": Peer,
    "starting": started,
    "tuning": authenticated,
    "opening": tuned,
    "open": opened,
    "a channel": with_channel,
    "publishing": publishing,
    "header sent": header_sent,
    "body begun": body_begun,
    "consuming": consuming,
    "in a transaction": in_transaction,
    "confirming": confirming,
    "in half a frame": in_half_a_frame,
    "channel failed": channel_failed,
    "connection failed": connection_failed,
    "ended": ended,
}


# The attack and what must hold after it.


class Neighbour091(Neighbour):
    """Its messages are confirmed."""

    def enter(self, bench: ClientBench) -> None:
        self.peer = Peer(bench).open()
        self.channel = self.peer.channel()
        self.channel.declare("neighbour", exclusive=True)
        self.channel.confirms()
        self.channel.consume("neighbour")

    def publish(self, body: bytes) -> None:
        self.channel.publish("", "neighbour", body, mandatory=True)
        delivery, confirm = sorted(self.channel.all(), key=lambda what: isinstance(what, m.BasicAck))
        assert isinstance(delivery, Content)
        assert isinstance(confirm, m.BasicAck)
        assert delivery.body == body
        self.channel.ack(self.sent)


def must_be_protocol(attacker: Peer) -> None:
    """What came back are frames of methods for clients, with known reply codes; nothing after the end."""
    was_closed = attacker.front.closed
    attacker.read()
    assert attacker._buffer == b""
    for _, what in attacker.received:
        method = what.method if isinstance(what, Content) else what
        assert method.class_id in CLASSES
        if isinstance(method, m.ConnectionClose | m.ChannelClose):
            assert method.reply_code in m.REPLY_NAMES
            assert method.reply_code != m.INTERNAL_ERROR
            assert method.reply_text.startswith(m.REPLY_NAMES[method.reply_code])
    attacker.received.clear()
    if was_closed:
        attacker.send_bytes(b"\x01\x00\x00\x00\x00\x00\x00\xce" * 3)
        assert attacker.take_bytes() == b""


CLASSES: Final = frozenset((10, 20, 30, 40, 50, 60, 85, 90))


def must_be_bounded(attacker: Peer) -> None:
    """What is kept of frames that have not ended is no more than one frame may have."""
    machine = attacker.front.wire
    assert machine._tail_size <= machine._payload_max + wire.FRAME_OVERHEAD
    assert all(len(channel.body) <= machine.tuning.body_size_max for channel in machine._channels.values())


def must_balance(bench: ClientBench) -> None:
    """Every queue counts what it holds and what the channels hold of it."""
    queues_must_balance(bench)
    held: Counter[Queue] = Counter(delivery.queue for delivery in unsettled(bench))
    for queue in queues_of(bench):
        assert queue.unsettled == held[queue]


def must_have_gone(bench: ClientBench, neighbour: Neighbour) -> None:
    """What the attacker declared and published may stay."""
    assert bench.peers == [neighbour.peer]


def unsettled(bench: ClientBench) -> Iterator[Delivery]:
    for peer in bench.peers:
        for channel in peer.front.channels.values():
            yield from channel.unsettled.values()
            yield from channel._tx_unsettled.values()
            assert all(consumer.credit >= 0 for consumer in channel.consumers.values())


attack: Final = Attack(SMALL, Neighbour091, must_be_protocol, must_be_bounded, must_balance, must_have_gone)


# A good client's words.


class Recorded(Recording, Peer):
    """A client that remembers what it said."""


def transcript() -> tuple[bytes, ...]:
    """A long session in frames: a bit of everything that a client can say."""
    peer = Recorded(ClientBench(SMALL))
    peer.open(frame_max=FRAME_MAX, heartbeat=60)
    declare_things(peer.channel(1))
    publish_things(peer.channel(2))
    consume_things(peer.channel(3))
    transact_things(peer.channel(4))
    peer.send_bytes(wire.heartbeat_frame())
    peer.send(1, m.ChannelClose(200, "done", 0, 0))
    peer.send(0, m.ConnectionClose(200, "done", 0, 0))
    refusals = [what for _, what in peer.received if isinstance(what, m.ChannelClose | m.ConnectionClose)]
    assert refusals == []
    assert isinstance(peer.next(0), m.ConnectionCloseOk)
    return split(peer.said, size_at)


def declare_things(channel: ClientChannel) -> None:
    for method in (
        m.ExchangeDeclare("x", "topic", durable=True, arguments={"alternate-exchange": "y"}),
        m.ExchangeDeclare("y", "headers", auto_delete=True),
        m.ExchangeBind("y", "x", "a.#", arguments={"x-match": "any", "n": 1}),
        m.QueueDeclare(
            "q", arguments={"x-max-length": 9, "x-dead-letter-exchange": "x", "x-max-priority": 3}
        ),
        m.QueueDeclare(
            "dead", durable=True, arguments={"x-message-ttl": 5000, "x-overflow": "reject-publish"}
        ),
        m.QueueDeclare("lazy", exclusive=True, no_wait=True),
        m.QueueBind("q", "x", "a.*.b"),
        m.QueueBind("dead", "y", "", arguments={"x-match": "all", "t": "x", "l": [1, {"k": None}]}),
        m.QueueUnbind("q", "x", "c"),
        m.QueuePurge("q"),
        m.ExchangeUnbind("y", "x", "b"),
        m.QueueDelete("lazy"),
        m.ExchangeDeclare("z", "fanout", internal=True),
        m.ExchangeDelete("z", if_unused=True),
        m.ChannelFlow(True),
    ):
        channel.send(method)


def publish_things(channel: ClientChannel) -> None:
    everything = BasicProperties(
        content_type="text/plain",
        headers={"CC": ["dead"], "BCC": ["q"], "n": 1, "deep": {"list": [True, 2.5, b"\xff", None]}},
        delivery_mode=2,
        priority=2,
        expiration="60000",
        correlation_id="c",
        timestamp=1,
        user_id="guest",
    )
    channel.send(m.ConfirmSelect())
    for number in range(4):
        channel.publish("", "q", str(number).encode(), settle=False)
    channel.publish("x", "a.x.b", b"y" * 4500, everything, mandatory=True)
    channel.publish("", "q", b"")


def consume_things(channel: ClientChannel) -> None:
    for method in (
        m.BasicQos(0, 2, False),
        m.BasicConsume("q", "one"),
        m.BasicConsume("q", "two", no_ack=True, arguments={"x-priority": -1}),
        m.BasicConsume("amq.rabbitmq.reply-to", "replies", no_ack=True),
        m.BasicAck(1),
        m.BasicNack(2, False, True),
        m.BasicReject(7, False),
        m.BasicQos(0, 5, True),
        m.BasicRecover(True),
        m.BasicAck(0, True),
        m.BasicCancel("two"),
        m.BasicGet("dead"),
    ):
        channel.send(method)
    channel.publish("", "q", b"?", BasicProperties(reply_to="amq.rabbitmq.reply-to"))


def transact_things(channel: ClientChannel) -> None:
    channel.send(m.TxSelect())
    channel.publish("", "q", b"kept")
    channel.send(m.BasicGet("q"))
    channel.send(m.BasicAck(1))
    channel.send(m.TxCommit())
    channel.publish("", "nowhere", b"dropped", mandatory=True)
    channel.send(m.TxRollback())


def size_at(data: bytes, at: int) -> int:
    return wire.FRAME_OVERHEAD + unpack_from(">I", data, at + 3)[0]
