"""A 0-9-1 client in memory: methods in, methods and contents out, against a real broker and no socket.

peer = Peer()                 # on a bench of its own: see tests/harness/bench.py
peer.open()                   # handshake, virtual host
channel = peer.channel(1)
channel.call(m.QueueDeclare("q"))   -> m.QueueDeclareOk
channel.publish("", "q", b"hello")
channel.get("q").body == b"hello"
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from struct import unpack_from

import attrs

from leveret.front_end import Peer as Address
from leveret.protocols.amqp091.broker.adapter import Adapter091
from leveret.protocols.amqp091.codec import methods as m
from leveret.protocols.amqp091.codec import wire
from leveret.protocols.amqp091.codec.wire import BasicProperties, FieldTable, Method
from tests.harness.bench import ClientBench
from tests.harness.peer import LOOPBACK, JoinedPeer
from tests.harness.settings import ALL, EVERYTHING, user, virtual_hosts

HEADER = b"AMQP\x00\x00\x09\x01"
CAPABILITIES: Mapping[str, bool] = {
    "publisher_confirms": True,
    "exchange_exchange_bindings": True,
    "basic.nack": True,
    "consumer_cancel_notify": True,
    "connection.blocked": True,
    "authentication_failure_close": True,
}

TWO_HOSTS = (
    virtual_hosts("/", "blue")
    + user("guest", "guest", {"/": ALL, "blue": ALL})
    + user("ann", "secret", EVERYTHING)
    + user("nobody", "secret")
)


@attrs.frozen
class Content:
    """A method with its properties and body."""

    method: Method
    properties: BasicProperties
    raw_properties: bytes
    body: bytes


class Peer(JoinedPeer):
    """One connection, seen from the client."""

    adapter = Adapter091

    def __init__(self, bench: ClientBench | None = None, address: Address = LOOPBACK) -> None:
        super().__init__(bench, address)
        self.received: deque[tuple[int, Method | Content]] = deque()  # frames not looked at yet, by channel
        self.heartbeats = 0
        self.greeting = b""  # what came that is no frame (a protocol header)
        self._partial: dict[int, tuple[Method, bytes, int, list[bytes]]] = {}

    def hear(self, data: bytes) -> None:
        """Parse what the broker sent into `received`."""
        self._buffer += data
        if self._buffer.startswith((b"AMQP", b"HTTP", b"\x15\x03")):
            self.greeting, self._buffer = self._buffer, b""
        at = 0
        while len(self._buffer) - at >= 8:
            kind, channel, size = unpack_from(">BHI", self._buffer, at)
            end = at + 7 + size
            if len(self._buffer) <= end:
                break
            assert self._buffer[end] == 0xCE
            self._frame(kind, channel, self._buffer[at + 7 : end])
            at = end + 1
        self._buffer = self._buffer[at:]

    def _frame(self, kind: int, channel: int, payload: bytes) -> None:
        if kind == m.FRAME_HEARTBEAT:
            self.heartbeats += 1
        elif kind == m.FRAME_METHOD:
            method = wire.method_at(payload, 0, len(payload))
            if isinstance(method, m.BasicDeliver | m.BasicGetOk | m.BasicReturn):
                self._partial[channel] = (method, b"", -1, [])
            else:
                self.received.append((channel, method))
        elif kind == m.FRAME_HEADER:
            method, *_ = self._partial[channel]
            self._partial[channel] = (method, payload[12:], unpack_from(">Q", payload, 4)[0], [])
            self._complete(channel)
        else:
            self._partial[channel][3].append(payload)
            self._complete(channel)

    def _complete(self, channel: int) -> None:
        method, properties, size, parts = self._partial[channel]
        if sum(map(len, parts)) == size:
            del self._partial[channel]
            content = Content(method, BasicProperties.decode(properties), properties, b"".join(parts))
            self.received.append((channel, content))

    # Methods.

    def send(self, channel: int, method: Method, settle: bool = True) -> None:
        self.send_bytes(wire.method_frame(channel, method.encode()), settle)

    def next(self, channel: int | None = None) -> Method | Content | None:
        """The next thing received (on a channel), or None."""
        self.read()
        for at, (number, what) in enumerate(self.received):
            if channel is None or number == channel:
                del self.received[at]
                return what
        return None

    def answer(self, channel: int, method: Method) -> Method | None:
        """Send a method; the next method on its channel. Deliveries and returns that came before stay unread."""
        self.send(channel, method)
        self.read()
        for at, (number, what) in enumerate(self.received):
            if number == channel and isinstance(what, Method):
                del self.received[at]
                return what
        return None

    def all(self, channel: int | None = None) -> list[Method | Content]:
        found = []
        while (what := self.next(channel)) is not None:
            found.append(what)
        return found

    def call(self, channel: int, method: Method) -> Method | Content | None:
        """Send a method; the next thing received on its channel."""
        self.send(channel, method)
        return self.next(channel)

    def refusal(self) -> str:
        """The reply code and text of the connection.close that has come; it is answered, and that is the end."""
        close = self.next(0)
        assert isinstance(close, m.ConnectionClose), close
        self.send(0, m.ConnectionCloseOk())
        assert self.front.closed
        return f"{close.reply_code} {close.reply_text}"

    def closed_with(self, channel: int, method: Method) -> str:
        """Send something that ends the connection: the reply code and text."""
        self.send(channel, method)
        return self.refusal()

    # Getting in.

    def start(self) -> m.ConnectionStart:
        self.send_bytes(HEADER)
        start = self.next(0)
        assert isinstance(start, m.ConnectionStart)
        return start

    def log_in(
        self,
        user: str = "guest",
        password: str = "guest",
        capabilities: Mapping[str, bool] = CAPABILITIES,
        more: FieldTable | None = None,
    ) -> Method | Content | None:
        """Header, start-ok with the product and `more`; what comes back (tune, or a close)."""
        self.start()
        properties: FieldTable = {"product": "test", "capabilities": dict(capabilities), **(more or {})}
        response = b"\0" + user.encode() + b"\0" + password.encode()
        return self.call(0, m.ConnectionStartOk(properties, "PLAIN", response, "en_US"))

    def tune(self, channel_max: int = 2047, frame_max: int = 131072, heartbeat: int = 0) -> None:
        self.send(0, m.ConnectionTuneOk(channel_max, frame_max, heartbeat))

    def open(
        self,
        user: str = "guest",
        password: str = "guest",
        virtual_host: str = "/",
        capabilities: Mapping[str, bool] = CAPABILITIES,
        heartbeat: int = 0,
        frame_max: int = 131072,
        properties: FieldTable | None = None,
    ) -> Peer:
        tune = self.log_in(user, password, capabilities, properties)
        assert isinstance(tune, m.ConnectionTune), tune
        self.tune(frame_max=frame_max, heartbeat=heartbeat)
        answer = self.call(0, m.ConnectionOpen(virtual_host))
        assert isinstance(answer, m.ConnectionOpenOk), answer
        return self

    def channel(self, number: int = 1) -> ClientChannel:
        answer = self.call(number, m.ChannelOpen())
        assert isinstance(answer, m.ChannelOpenOk), answer
        return ClientChannel(self, number)


class ClientChannel:
    """A channel, seen from the client."""

    def __init__(self, peer: Peer, number: int) -> None:
        self.peer = peer
        self.number = number

    def call(self, method: Method) -> Method | Content | None:
        return self.peer.call(self.number, method)

    def send(self, method: Method, settle: bool = True) -> None:
        self.peer.send(self.number, method, settle)

    def next(self) -> Method | Content | None:
        return self.peer.next(self.number)

    def all(self) -> list[Method | Content]:
        return self.peer.all(self.number)

    def publish(
        self,
        exchange: str,
        key: str,
        body: bytes = b"",
        properties: BasicProperties | None = None,
        mandatory: bool = False,
        immediate: bool = False,
        settle: bool = True,
    ) -> None:
        method = m.BasicPublish(exchange, key, mandatory, immediate).encode()
        out: list[bytes] = []
        raw = (properties or BasicProperties()).encode()
        wire.append_content(out, self.number, method, raw, body, self.peer.front.wire.frame_max)
        self.peer.send_bytes(b"".join(out), settle)

    def declare(self, name: str, **properties: object) -> m.QueueDeclareOk:
        answer = self.peer.answer(self.number, m.QueueDeclare(name, **properties))
        assert isinstance(answer, m.QueueDeclareOk), answer
        return answer

    def get(self, queue: str, no_ack: bool = True) -> Content | None:
        """basic.get; None if the queue is empty."""
        answer = self.call(m.BasicGet(queue, no_ack))
        if isinstance(answer, m.BasicGetEmpty):
            return None
        assert isinstance(answer, Content), answer
        return answer

    def prefetch(self, count: int, of_channel: bool = False) -> None:
        self.does(m.BasicQos(0, count, of_channel))

    def consume(self, queue: str, tag: str = "", **properties: object) -> str:
        answer = self.peer.answer(self.number, m.BasicConsume(queue, tag, **properties))
        assert isinstance(answer, m.BasicConsumeOk), answer
        return answer.consumer_tag

    def deliveries(self) -> list[Content]:
        """The contents received; anything else is an error of the test."""
        found = self.all()
        assert all(isinstance(what, Content) for what in found), found
        return found  # type: ignore[return-value]

    def ack(self, tag: int, multiple: bool = False) -> None:
        self.send(m.BasicAck(tag, multiple))

    def nack(self, tag: int, multiple: bool = False, requeue: bool = True) -> None:
        self.send(m.BasicNack(tag, multiple, requeue))

    def reject(self, tag: int, requeue: bool = False) -> None:
        self.send(m.BasicReject(tag, requeue))

    def confirms(self) -> Peer:
        assert isinstance(self.call(m.ConfirmSelect()), m.ConfirmSelectOk)
        return self.peer

    def closed_with(self, method: Method) -> str:
        """Send something that closes the channel: the reply text. The close is answered."""
        self.send(method)
        return self.refusal()

    def refusal(self) -> str:
        """The reply code and text of the channel.close that has come; it is answered."""
        close = self.next()
        assert isinstance(close, m.ChannelClose), close
        self.send(m.ChannelCloseOk())
        return f"{close.reply_code} {close.reply_text}"

    def refused(self, method: Method) -> str:
        """As `closed_with`, and the channel is open again."""
        text = self.closed_with(method)
        assert isinstance(self.call(m.ChannelOpen()), m.ChannelOpenOk)
        return text

    def does(self, method: Method) -> Method | Content:
        """Send a method that is answered by its own -ok."""
        answer = self.peer.answer(self.number, method)
        assert isinstance(answer, Method), answer
        assert answer.name == f"{method.name}-ok", answer
        return answer

    def exchange(self, name: str, type_: str = "direct", **properties: object) -> str:
        self.does(m.ExchangeDeclare(name, type_, **properties))
        return name

    def bind(self, queue: str, exchange: str, key: str = "", arguments: FieldTable | None = None) -> None:
        self.does(m.QueueBind(queue, exchange, key, arguments=arguments))

    def link(self, source: str, destination: str, key: str = "", arguments: FieldTable | None = None) -> None:
        """Bind an exchange to an exchange."""
        self.does(m.ExchangeBind(destination, source, key, arguments=arguments))

    def bodies(self, queue: str) -> list[bytes]:
        """Fetch all that waits in a queue."""
        found = []
        while (content := self.get(queue)) is not None:
            found.append(content.body)
        return found


def start_ok(
    mechanism: str, response: bytes, capabilities: Mapping[str, bool] = CAPABILITIES
) -> m.ConnectionStartOk:
    """The answer to start that chooses this mechanism."""
    return m.ConnectionStartOk({"capabilities": dict(capabilities)}, mechanism, response, "en_US")


def channel_of(
    bench: ClientBench | None = None, user: str = "guest", capabilities: Mapping[str, bool] = CAPABILITIES
) -> ClientChannel:
    """Channel 1 of a connection of its own; everybody's password is the name."""
    return Peer(bench).open(user, user, capabilities=capabilities).channel()


def opened(toml: str = "") -> ClientChannel:
    """Channel 1 of a connection to a broker with this configuration."""
    return channel_of(ClientBench(toml))


def with_queue(bench: ClientBench | None = None, **properties: object) -> ClientChannel:
    """The same on this bench, with a queue `q` that has these properties."""
    channel = channel_of(bench)
    channel.declare("q", **properties)
    return channel


def confirming(bench: ClientBench | None = None) -> ClientChannel:
    """The same, on which publishing is confirmed."""
    channel = channel_of(bench)
    channel.confirms()
    return channel


def permitted(channel: ClientChannel, configure: str = "", write: str = "", read: str = "") -> None:
    """Give the user `guest` these permissions."""
    channel.peer.bench.broker.access.set_permissions("guest", "/", configure, write, read)


def started(bench: ClientBench | None = None) -> Peer:
    """A client that has been greeted."""
    peer = Peer(bench)
    peer.start()
    return peer
