"""Measure messages through one queue over AMQP 0-10: flood.py's sender and receiver, with the same bounds.

The sender keeps at most `window` messages incomplete. The receiver has a window of messages for credit, and completes
and accepts a quarter of it at a time. What they send is encoded once; of what the broker sends, the frames of a
delivery are counted and not decoded further.

    LEVERET_PROTOCOLS__AMQP010__ENABLED=true leveret serve &
    python -m benchmarks.amqp010 --port 5672 --messages 200000 --size 256
"""

from __future__ import annotations

import argparse
import select
import socket
import time

from benchmarks.flood import BLOCK, READ
from leveret.protocols.amqp010.codec import commands as c
from leveret.protocols.amqp010.codec.frames import HEAD, HEAD_SIZE, append_frames, control_frame
from leveret.protocols.amqp010.codec.sequences import SequenceSet

HEADER = b"AMQP\x01\x01\x00\x0a"
CHANNEL = 1
QUEUE = "flood010"
FOREVER = 0xFFFF_FFFF
LAST_OF_TRANSFER = 0x0703  # the kind of the frame that ends a message: the last segment, a body
COMPLETED = b"\x02\x0a"  # session.completed, as a control begins
SYNC_EVERY = 50  # messages


class Wire:
    """A 0-10 connection with one session, just enough to set things up."""

    def __init__(self, port: int, name: str, host: str = "127.0.0.1") -> None:
        self.socket = socket.create_connection((host, port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.buffer = b""
        self.next_id = 0
        self.completed = 0  # our completed commands
        self.messages = 0  # received
        self.socket.sendall(HEADER)
        while len(self.buffer) < len(HEADER):
            self.buffer += self.socket.recv(65536)
        self.buffer = self.buffer[len(HEADER) :]
        self.control(0, c.ConnectionStartOk({"product": "flood"}, "PLAIN", b"\0guest\0guest", "en_US"))
        self.control(0, c.ConnectionTuneOk(32767, 65535, 0))
        self.control(0, c.ConnectionOpen("/"))
        self.control(CHANNEL, c.SessionAttach(name.encode(), True))
        self.control(CHANNEL, c.SessionCommandPoint(0, 0))

    def control(self, channel: int, control: c.Control) -> None:
        self.socket.sendall(control_frame(channel, control.encode()))

    def call(self, command: c.Command) -> None:
        """Send a command, and wait until it is complete."""
        self.socket.sendall(frames_of(command.encode(sync=True)))
        self.next_id += 1
        while self.completed < self.next_id:
            self.receive()

    def receive(self) -> None:
        """Count what has come."""
        octets = self.socket.recv(READ)
        assert octets, "the broker has gone"
        data = self.buffer + octets
        at, end = 0, len(data)
        while at + HEAD_SIZE <= end:
            kind, size, _, _ = HEAD.unpack_from(data, at)
            if at + size > end:
                break
            if kind == LAST_OF_TRANSFER:
                self.messages += 1
            elif data.startswith(COMPLETED, at + HEAD_SIZE) and size >= HEAD_SIZE + 14:
                self.completed = int.from_bytes(data[at + size - 4 : at + size], "big") + 1
            at += size
        self.buffer = data[at:]


def frames_of(command: bytes, header: bytes | None = None, body: bytes | None = None) -> bytes:
    out: list[bytes] = []
    append_frames(out, CHANNEL, command, header, body, 65535)
    return b"".join(out)


class Sender:
    """Sends the same message again and again, and counts what is complete."""

    def __init__(self, port: int, messages: int, size: int) -> None:
        self.wire = Wire(port, "sender")
        self.wire.call(c.QueueDeclare(QUEUE))
        self.wire.call(c.QueuePurge(QUEUE))
        self.first = self.wire.next_id
        self.messages = messages
        header = (
            c.MessageProperties(content_length=size).encode()
            + c.DeliveryProperties(routing_key=QUEUE).encode()
        )
        plain, asking = (
            frames_of(c.MessageTransfer("", c.ACCEPT_MODE_NONE, 0).encode(sync), header, b"x" * size)
            for sync in (False, True)
        )
        self.step = len(plain)
        self.block = (plain * (SYNC_EVERY - 1) + asking) * (BLOCK // SYNC_EVERY)
        self.sent_octets = 0
        self.wire.socket.setblocking(False)

    @property
    def complete(self) -> int:
        return self.wire.completed - self.first

    def send(self, allowed: int) -> bool:
        """Send until `allowed` messages have gone in all. False: the socket takes no more for now."""
        limit = min(allowed, self.messages) * self.step
        while self.sent_octets < limit:
            start = self.sent_octets % len(self.block)
            part = self.block[start : start + min(len(self.block) - start, limit - self.sent_octets)]
            try:
                self.sent_octets += self.wire.socket.send(part)
            except BlockingIOError:
                return False
        return True


class Receiver:
    """Takes messages, and answers a quarter of its window at a time; unless it need not accept them."""

    def __init__(self, port: int, messages: int, window: int, accepts: bool) -> None:
        self.wire = Wire(port, "receiver")
        self.accepts = accepts
        self.messages = messages
        self.answered = 0
        self.every = max(1, window // 4)
        mode = c.ACCEPT_MODE_EXPLICIT if accepts else c.ACCEPT_MODE_NONE
        self.wire.call(c.MessageSubscribe(QUEUE, "c", mode, c.ACQUIRE_MODE_PRE_ACQUIRED))
        self.wire.call(c.MessageSetFlowMode("c", c.FLOW_MODE_WINDOW))
        self.wire.call(c.MessageFlow("c", c.CREDIT_UNIT_BYTE, FOREVER))
        self.wire.call(c.MessageFlow("c", c.CREDIT_UNIT_MESSAGE, window))
        self.wire.socket.setblocking(False)

    def receive(self) -> None:
        self.wire.receive()
        count = self.wire.messages
        if count - self.answered >= self.every or (count == self.messages and self.answered < count):
            answer = control_frame(CHANNEL, c.SessionCompleted(SequenceSet.of((0, count - 1))).encode())
            if self.accepts:
                accept = c.MessageAccept(SequenceSet.of((self.answered, count - 1)))
                answer += frames_of(accept.encode())
            self.answered = count
            self.wire.socket.send(answer)


def flood(
    port: int, messages: int, size: int = 256, window: int = 1000, prefetch: int = 200, accepts: bool = True
) -> float:
    """Return messages per second from the first transfer to the last delivery and the last completion."""
    sender = Sender(port, messages, size)
    receiver = Receiver(port, messages, prefetch, accepts)
    both = (receiver.wire.socket, sender.wire.socket)
    started = time.perf_counter()
    while receiver.wire.messages < messages or sender.complete < messages:
        writing = [] if sender.send(sender.complete + window) else [sender.wire.socket]
        readable, _, _ = select.select(both, writing, [])
        if receiver.wire.socket in readable:
            receiver.receive()
        if sender.wire.socket in readable:
            sender.wire.receive()
    seconds = time.perf_counter() - started
    for each in both:
        each.close()
    return messages / seconds


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--port", type=int, default=5672)
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--size", type=int, default=256, help="octets of body")
    parser.add_argument("--window", type=int, default=1000, help="messages that are not complete")
    parser.add_argument("--prefetch", type=int, default=200, help="the receiver's window")
    parser.add_argument("--no-accepts", action="store_true")
    given = parser.parse_args()
    rate = flood(given.port, given.messages, given.size, given.window, given.prefetch, not given.no_accepts)
    print(f"{rate:,.0f} messages/s")


if __name__ == "__main__":
    main()
