"""An attacker in every state of a connection, what must hold after it, and the words of a good client to mutate.

An attacker is brought into a state and sends what it likes. Then everything it was sent must be frames with answers and
the codes of the specification, the books of the broker must balance, and an honest neighbour must still be served.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from struct import pack, unpack_from
from typing import Final

from broker_core.clock import NEVER
from broker_core.delivery import Delivery
from broker_core.queues.queue import Queue
from protocols.amqp091.codec import methods as m
from protocols.amqp091.codec import wire
from protocols.amqp091.codec.wire import BasicProperties, Method

from .peer import HEADER, ClientChannel, Content, Peer, World

SMALL: Final = 'limits.message_size_max = "64KiB"'  # so that a flipped bit does not ask for megabytes
FRAME_MAX: Final = 4096
PLENTY_S: Final = 100_000  # by then every deadline has passed


def frame(kind: int, channel: int, payload: bytes, size: int | None = None, end: bytes = b"\xce") -> bytes:
    return pack(">BHI", kind, channel, len(payload) if size is None else size) + payload + end


# States.


def started(world: World) -> Peer:
    peer = Peer(world)
    peer.start()
    return peer


def authenticated(world: World) -> Peer:
    peer = Peer(world)
    assert isinstance(peer.log_in(), m.ConnectionTune)
    return peer


def tuned(world: World) -> Peer:
    peer = authenticated(world)
    peer.tune(frame_max=FRAME_MAX)
    return peer


def opened(world: World) -> Peer:
    return Peer(world).open(frame_max=FRAME_MAX)


def with_channel(world: World, *methods: Method) -> Peer:
    """An open connection with a channel on which some methods have been said."""
    peer = opened(world)
    channel = peer.channel()
    for method in methods:
        channel.send(method)
    return peer


def publishing(world: World) -> Peer:
    return with_channel(world, m.QueueDeclare("q"), m.BasicPublish("", "q"))


def header_sent(world: World) -> Peer:
    peer = publishing(world)
    peer.send_bytes(wire.header_frame(1, 60, 1000, BasicProperties(headers={"a": 1}).encode()))
    return peer


def body_begun(world: World) -> Peer:
    peer = header_sent(world)
    peer.send_bytes(frame(m.FRAME_BODY, 1, b"x" * 400))
    return peer


def consuming(world: World) -> Peer:
    """Three deliveries are out, the credit is used up, more wait."""
    peer = with_channel(world, m.QueueDeclare("q"), m.BasicQos(0, 3, False), m.BasicConsume("q", "c"))
    for number in range(5):
        ClientChannel(peer, 1).publish("", "q", str(number).encode())
    return peer


def in_transaction(world: World) -> Peer:
    """One message is published and one of three is acknowledged, neither for good."""
    peer = consuming(world)
    channel = ClientChannel(peer, 1)
    channel.send(m.TxSelect())
    channel.publish("", "q", b"in the transaction")
    channel.ack(1)
    return peer


def confirming(world: World) -> Peer:
    peer = with_channel(world, m.QueueDeclare("q"), m.ConfirmSelect())
    ClientChannel(peer, 1).publish("", "q", b"confirmed")
    return peer


def in_half_a_frame(world: World) -> Peer:
    peer = with_channel(world)
    peer.send_bytes(wire.method_frame(1, m.QueueDeclare("q").encode())[:-5])
    return peer


def channel_failed(world: World) -> Peer:
    """The broker has closed the channel and waits for the close-ok."""
    return with_channel(world, m.QueueDeclare("missing", passive=True))


def connection_failed(world: World) -> Peer:
    """The broker has closed the connection and waits for the close-ok."""
    return with_channel(world, m.BasicQos(1, 0, False))


def ended(world: World) -> Peer:
    peer = opened(world)
    peer.send(0, m.ConnectionClose(200, "bye", 0, 0))
    return peer


STATES: Final[dict[str, Callable[[World], Peer]]] = {
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


class Neighbour:
    """An honest client: what it publishes is confirmed, and comes to it."""

    def __init__(self, world: World) -> None:
        self.channel = Peer(world).open().channel()
        self.channel.declare("neighbour", exclusive=True)
        self.channel.confirms()
        self.channel.consume("neighbour")
        self.sent = 0

    def must_be_served(self) -> None:
        self.sent += 1
        body = str(self.sent).encode()
        self.channel.publish("", "neighbour", body, mandatory=True)
        delivery, confirm = sorted(self.channel.all(), key=lambda what: isinstance(what, m.BasicAck))
        assert isinstance(delivery, Content)
        assert isinstance(confirm, m.BasicAck)
        assert delivery.body == body
        self.channel.ack(self.sent)


@contextmanager
def nothing_logged() -> Iterator[None]:
    """The broker logs no mistake of its own."""
    texts: list[str] = []
    handler = logging.Handler(logging.ERROR)
    handler.emit = lambda record: texts.append(handler.format(record))  # type: ignore[method-assign]
    logger = logging.getLogger("leveret")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
    assert texts == []


def attack(state: Callable[[World], Peer], chunks: list[bytes]) -> None:
    """Bring an attacker into a state and let it send these, each read by itself."""
    world = World(SMALL)
    neighbour = Neighbour(world)
    with nothing_logged():
        attacker = state(world)
        for chunk in chunks:
            attacker.send_bytes(chunk)
            must_be_protocol(attacker)
            must_be_bounded(attacker)
        neighbour.must_be_served()
        must_balance(world)
        world.advance(PLENTY_S)
        must_be_protocol(attacker)
        neighbour.must_be_served()
        attacker.drop()
        must_balance(world)
        neighbour.must_be_served()
    assert list(world.broker.clients) == [neighbour.channel.peer.front.client]


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


def must_balance(world: World) -> None:
    """Every queue counts what it holds and what the channels hold of it; nothing is left to do."""
    held: Counter[Queue] = Counter(delivery.queue for delivery in unsettled(world))
    host = world.host
    for queue in (*host.queues.values(), *host.hidden_queues.values()):
        waiting = list(queue.waiting())
        assert queue.ready == len(waiting)
        assert queue.ready_bytes == sum(delivery.message.size for delivery in waiting)
        assert queue.expiring == sum(delivery.expires_at != NEVER for delivery in waiting)
        assert queue.unsettled == held[queue]
        assert not queue.touched
    broker = world.broker
    assert (broker.touched, list(broker.dying), broker.publishers) == ([], [], [])
    assert host.connections == len(broker.clients)


def unsettled(world: World) -> Iterator[Delivery]:
    for peer in world.peers:
        for channel in peer.front.channels.values():
            yield from channel.unsettled.values()
            yield from channel._tx_unsettled.values()
            assert all(consumer.credit >= 0 for consumer in channel.consumers.values())


# A good client's words.


class Recorded(Peer):
    """A client that remembers what it said."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.said = b""

    def send_bytes(self, data: bytes, settle: bool = True) -> None:
        self.said += data
        super().send_bytes(data, settle)


def transcript() -> tuple[bytes, ...]:
    """A long session in frames: a bit of everything that a client can say."""
    peer = Recorded(World(SMALL))
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
    return split(peer.said)


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


def split(data: bytes) -> tuple[bytes, ...]:
    """The protocol header and the frames."""
    frames, at = [data[: len(HEADER)]], len(HEADER)
    while at < len(data):
        end = at + wire.FRAME_OVERHEAD + unpack_from(">I", data, at + 3)[0]
        frames.append(data[at:end])
        at = end
    return tuple(frames)
