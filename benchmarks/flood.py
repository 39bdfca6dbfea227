"""Run a 0-9-1 client that costs next to nothing: messages of one size, encoded once, counted by bytes.

One publisher and one consumer on one queue, each on a connection of its own, in one thread. The publisher keeps at most
`window` messages unconfirmed and the consumer acknowledges in batches, as client libraries do. What the broker sends
per message has a fixed length, so deliveries are counted by dividing, and the figure is the broker's, not the client's.

    python benchmarks/flood.py --port 5672 --messages 200000 --size 100
"""

from __future__ import annotations

import argparse
import json
import select
import socket
import time
from struct import Struct, pack

from leveret.protocols.amqp091.codec import methods as m
from leveret.protocols.amqp091.codec import wire
from leveret.protocols.amqp091.codec.wire import BasicProperties, Method

FRAME = wire.FRAME_START
ACK_FRAME = Struct(">7x4sQ?x")  # a whole frame of basic.ack: method, tag, multiple
BASIC_ACK = b"\x00\x3c\x00\x50"
READ = 262144  # bytes at a time
BLOCK = 500  # messages in one write, at most


class Wire:
    """A blocking 0-9-1 connection, just enough to set things up."""

    connect = staticmethod(socket.create_connection)  # what else makes a socket, for TLS

    def __init__(self, port: int, host: str = "127.0.0.1") -> None:
        self.socket = self.connect((host, port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = b""
        self.socket.sendall(b"AMQP\x00\x00\x09\x01")
        self.expect(m.ConnectionStart)
        self.send(0, m.ConnectionStartOk({"product": "flood"}, "PLAIN", b"\0guest\0guest", "en_US"))
        tune = self.expect(m.ConnectionTune)
        assert isinstance(tune, m.ConnectionTune)
        self.send(0, m.ConnectionTuneOk(tune.channel_max, tune.frame_max, 0))
        self.send(0, m.ConnectionOpen("/"))
        self.expect(m.ConnectionOpenOk)
        self.send(1, m.ChannelOpen())
        self.expect(m.ChannelOpenOk)

    def send(self, channel: int, method: Method) -> None:
        self.socket.sendall(wire.method_frame(channel, method.encode()))

    def call(self, method: Method, answer: type[Method]) -> Method:
        self.send(1, method)
        return self.expect(answer)

    def expect(self, kind: type[Method]) -> Method:
        while True:
            if len(self.buffer) >= 7:
                _, _, size = FRAME.unpack_from(self.buffer)
                if len(self.buffer) >= size + 8:
                    method = wire.method_at(self.buffer, 7, 7 + size)
                    self.buffer = self.buffer[size + 8 :]
                    if isinstance(method, kind):
                        return method
                    assert not isinstance(method, m.ConnectionClose | m.ChannelClose), method
                    continue
            if not (received := self.socket.recv(65536)):
                raise ConnectionError(f"the broker has closed the connection; {kind.__name__} was expected")
            self.buffer += received


def declare_afresh(port: int, queue: str, durable: bool) -> None:
    """Declare an empty queue of this name."""
    owner = Wire(port)
    owner.call(m.QueueDelete(queue), m.QueueDeleteOk)
    owner.call(m.QueueDeclare(queue, durable=durable), m.QueueDeclareOk)
    owner.socket.close()


def publish_frames(exchange: str, key: str, size: int, properties: bytes) -> bytes:
    out: list[bytes] = []
    wire.append_content(out, 1, m.BasicPublish(exchange, key).encode(), properties, b"x" * size, 131072)
    return b"".join(out)


def delivery_size(tag: str, exchange: str, key: str, size: int, properties: bytes) -> int:
    out: list[bytes] = []
    method = m.BasicDeliver(tag, 1, False, exchange, key).encode()
    return wire.append_content(out, 1, method, properties, b"x" * size, 131072)


def properties(durable: bool) -> bytes:
    return BasicProperties(delivery_mode=2 if durable else 1).encode()


class Confirms:
    """The set of messages 1, 2, 3 ... that a broker has confirmed, in any order."""

    def __init__(self) -> None:
        self.low = 0  # all up to this one are confirmed
        self.apart: set[int] = set()  # and these
        self.rest = b""

    @property
    def count(self) -> int:
        return self.low + len(self.apart)

    def receive(self, octets: bytes) -> list[range]:
        """Return the messages that frames of basic.ack confirm; some may have been confirmed before."""
        octets = self.rest + octets
        end = len(octets) // ACK_FRAME.size * ACK_FRAME.size
        self.rest = octets[end:]
        return [self._confirm(*ack) for ack in ACK_FRAME.iter_unpack(octets[:end])]

    def _confirm(self, method: bytes, tag: int, multiple: bool) -> range:
        assert method == BASIC_ACK, method
        first = self.low + 1 if multiple else tag
        if first == self.low + 1:
            self.low = max(self.low, tag)
            if self.apart:
                self.apart = {each for each in self.apart if each > self.low}
                while self.low + 1 in self.apart:
                    self.low += 1
                    self.apart.remove(self.low)
        else:
            self.apart.add(tag)
        return range(first, tag + 1)


class Publisher:
    """Sends the same message again and again, and counts what is confirmed."""

    def __init__(
        self, port: int, queue: str, messages: int, size: int, durable: bool, confirms: bool = True
    ) -> None:
        self.wire = Wire(port)
        self.messages = messages
        self.frame = publish_frames("", queue, size, properties(durable))
        self.block = self.frame * min(BLOCK, messages)
        self.sent_octets = 0
        self.confirms = Confirms()
        if confirms:
            self.wire.call(m.ConfirmSelect(), m.ConfirmSelectOk)
        self.wire.socket.setblocking(False)

    def send(self, allowed: int) -> bool:
        """Send until `allowed` messages have gone in all. False: the socket takes no more for now."""
        step, block = len(self.frame), self.block
        limit = min(allowed, self.messages) * step
        while self.sent_octets < limit:
            start = self.sent_octets % step
            part = block[start : start + min(len(block) - start, limit - self.sent_octets)]
            try:
                self.sent_octets += self.wire.socket.send(part)
            except BlockingIOError:
                return False
        return True

    def receive(self) -> list[range]:
        return self.confirms.receive(self.wire.socket.recv(READ))


class Consumer:
    """Takes messages of one size, and acknowledges a quarter of its prefetch at a time; prefetch 0: not at all."""

    def __init__(
        self, port: int, queue: str, messages: int, size: int, durable: bool, prefetch: int = 200
    ) -> None:
        self.wire = Wire(port)
        self.messages = messages
        self.step = delivery_size("c", "", queue, size, properties(durable))
        self.octets = self.acknowledged = 0
        self.every = max(1, prefetch // 4) if prefetch else messages + 1
        if prefetch:
            self.wire.call(m.BasicQos(0, prefetch), m.BasicQosOk)
        self.wire.call(m.BasicConsume(queue, "c", no_ack=not prefetch), m.BasicConsumeOk)
        self.octets = len(self.wire.buffer)
        self.wire.socket.setblocking(False)
        self._acknowledge()  # all that the prefetch allows may have come with the answer

    @property
    def received(self) -> int:
        return self.octets // self.step

    def receive(self) -> None:
        octets = self.wire.socket.recv(READ)
        assert octets, "the broker has gone"
        self.octets += len(octets)
        self._acknowledge()

    def _acknowledge(self) -> None:
        tag = self.octets // self.step
        if tag - self.acknowledged >= self.every or (tag == self.messages and self.every <= tag):
            self.acknowledged = tag
            self.wire.socket.send(b"\x01\x00\x01\x00\x00\x00\x0d" + BASIC_ACK + pack(">QB", tag, 1) + b"\xce")


def turn(
    publisher: Publisher, consumer: Consumer | None, allowed: int, timeout_s: float | None = None
) -> list[range]:
    """Send what is allowed, wait until something comes, and take it. Returns what was confirmed."""
    reading = [end.wire.socket for end in (publisher, consumer) if end is not None]
    writing = [] if publisher.send(allowed) else reading[:1]
    readable, _, _ = select.select(reading, writing, [], timeout_s)
    if consumer is not None and consumer.wire.socket in readable:
        consumer.receive()
    return publisher.receive() if publisher.wire.socket in readable else []


def flood(
    port: int,
    messages: int,
    size: int = 100,
    window: int = 1000,
    prefetch: int = 200,
    confirms: bool = True,
    acks: bool = True,
    durable: bool = False,
    queue: str = "flood",
) -> float:
    """Return messages per second from the first publish to the last delivery (with `confirms`, the last confirm)."""
    declare_afresh(port, queue, durable)
    consumer = Consumer(port, queue, messages, size, durable, prefetch if acks else 0)
    publisher = Publisher(port, queue, messages, size, durable, confirms)
    started = time.perf_counter()
    while consumer.received < messages or (confirms and publisher.confirms.count < messages):
        turn(publisher, consumer, publisher.confirms.count + window if confirms else messages)
    seconds = time.perf_counter() - started
    publisher.wire.socket.close()
    consumer.wire.socket.setblocking(True)
    consumer.wire.call(m.QueueDelete(queue), m.QueueDeleteOk)
    consumer.wire.socket.close()
    return messages / seconds


def fill(
    port: int, messages: int, size: int = 100, window: int = 1000, durable: bool = True, queue: str = "filled"
) -> float:
    """Return confirmed messages per second into a new queue without consumers."""
    declare_afresh(port, queue, durable)
    publisher = Publisher(port, queue, messages, size, durable)
    started = time.perf_counter()
    while publisher.confirms.count < messages:
        turn(publisher, None, publisher.confirms.count + window)
    seconds = time.perf_counter() - started
    publisher.wire.socket.close()
    return messages / seconds


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--port", type=int, default=5672)
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--size", type=int, default=100, help="octets of body")
    parser.add_argument("--window", type=int, default=1000, help="unconfirmed messages")
    parser.add_argument("--prefetch", type=int, default=200)
    parser.add_argument("--no-confirms", action="store_true")
    parser.add_argument("--no-acks", action="store_true")
    parser.add_argument("--durable", action="store_true")
    given = parser.parse_args()
    rate = flood(
        given.port,
        given.messages,
        given.size,
        given.window,
        given.prefetch,
        not given.no_confirms,
        not given.no_acks,
        given.durable,
    )
    print(json.dumps({"messages_per_second": round(rate), "size": given.size}))


if __name__ == "__main__":
    main()
