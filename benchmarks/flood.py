"""A 0-9-1 client that costs next to nothing: messages of one size, encoded once, counted by octets.

One publisher and one consumer on one queue, each on a connection of its own, in one thread. The publisher keeps at most
`window` messages unconfirmed and the consumer acknowledges in batches, as client libraries do. What the broker sends
per message has a fixed length, so deliveries are counted by dividing, and the figure is the broker's, not the client's.

    python benchmarks/flood.py --port 5672 --messages 200000 --size 100
"""

from __future__ import annotations

import argparse
import json
import selectors
import socket
import time
from struct import pack, unpack_from

from protocols.amqp091 import methods as m
from protocols.amqp091 import wire
from protocols.amqp091.wire import BasicProperties, Method

FRAME = wire.FRAME_START


class Wire:
    """A blocking 0-9-1 connection, just enough to set things up."""

    def __init__(self, port: int, host: str = "127.0.0.1") -> None:
        self.socket = socket.create_connection((host, port))
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
            self.buffer += self.socket.recv(65536)


def publish_frames(exchange: str, key: str, size: int, properties: bytes) -> bytes:
    out: list[bytes] = []
    wire.append_content(out, 1, m.BasicPublish(exchange, key).encode(), properties, b"x" * size, 131072)
    return b"".join(out)


def delivery_size(tag: str, exchange: str, key: str, size: int, properties: bytes) -> int:
    out: list[bytes] = []
    method = m.BasicDeliver(tag, 1, False, exchange, key).encode()
    return wire.append_content(out, 1, method, properties, b"x" * size, 131072)


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
    """Messages per second from the first publish to the last delivery (and, with `confirms`, the last confirm)."""
    publisher, consumer = Wire(port), Wire(port)
    properties = BasicProperties(delivery_mode=2 if durable else 1).encode()
    consumer.call(m.QueueDelete(queue), m.QueueDeleteOk)
    consumer.call(m.QueueDeclare(queue, durable=durable), m.QueueDeclareOk)
    if acks:
        consumer.call(m.BasicQos(0, prefetch), m.BasicQosOk)
    consumer.call(m.BasicConsume(queue, "c", no_ack=not acks), m.BasicConsumeOk)
    if confirms:
        publisher.call(m.ConfirmSelect(), m.ConfirmSelectOk)
    one = publish_frames("", queue, size, properties)
    step = delivery_size("c", "", queue, size, properties)
    seconds = _run(publisher, consumer, one, step, messages, window, prefetch, confirms, acks)
    consumer.call(m.QueueDelete(queue), m.QueueDeleteOk)
    publisher.socket.close()
    consumer.socket.close()
    return messages / seconds


def _run(
    publisher: Wire,
    consumer: Wire,
    one: bytes,
    step: int,
    messages: int,
    window: int,
    prefetch: int,
    confirms: bool,
    acks: bool,
) -> float:
    selector = selectors.DefaultSelector()
    for end in (publisher, consumer):
        end.socket.setblocking(False)
    selector.register(publisher.socket, selectors.EVENT_READ | selectors.EVENT_WRITE)
    selector.register(consumer.socket, selectors.EVENT_READ)
    block = one * min(window, 500)
    sent_octets = confirmed = delivered_octets = acked = 0
    total_octets = messages * len(one)
    answers = b""
    writing = True
    ack_every = max(1, prefetch // 4)
    started = time.perf_counter()
    while delivered_octets < messages * step or (confirms and confirmed < messages):
        for key, events in selector.select():
            if key.fileobj is consumer.socket:
                delivered_octets += len(consumer.socket.recv(262144))
                tag = delivered_octets // step
                if acks and (tag - acked >= ack_every or tag == messages):
                    acked = tag
                    consumer.socket.send(
                        b"\x01\x00\x01\x00\x00\x00\x0d\x00\x3c\x00\x50" + pack(">QB", tag, 1) + b"\xce"
                    )
                continue
            if events & selectors.EVENT_READ:
                confirmed, answers = _confirmed(answers + publisher.socket.recv(262144), confirmed)
            limit = min(total_octets, (confirmed + window) * len(one)) if confirms else total_octets
            while sent_octets < limit:
                start = sent_octets % len(one)
                try:
                    sent_octets += publisher.socket.send(
                        block[start : start + min(len(block) - start, limit - sent_octets)]
                    )
                except BlockingIOError:
                    break
            wants = sent_octets < total_octets and sent_octets < limit
            if wants is not writing:
                writing = wants
                mask = selectors.EVENT_READ | (selectors.EVENT_WRITE if wants else 0)
                selector.modify(publisher.socket, mask)
        if not writing and sent_octets < total_octets and sent_octets < (confirmed + window) * len(one):
            writing = True
            selector.modify(publisher.socket, selectors.EVENT_READ | selectors.EVENT_WRITE)
    seconds = time.perf_counter() - started
    selector.close()
    for end in (publisher, consumer):
        end.socket.setblocking(True)
    return seconds


def _confirmed(answers: bytes, confirmed: int) -> tuple[int, bytes]:
    """The highest tag in the basic.ack frames that have come, and the beginning of the next one."""
    at = 0
    while len(answers) - at >= 21:
        assert answers[at + 7 : at + 11] == b"\x00\x3c\x00\x50", answers[at : at + 30]
        (tag,) = unpack_from(">Q", answers, at + 11)
        confirmed = max(confirmed, tag)
        at += 21
    return confirmed, answers[at:]


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
