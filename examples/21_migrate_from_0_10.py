"""Leave AMQP 0-10 one program at a time: a till that stays as it is, and a kitchen that moves twice.

Run `python examples/21_migrate_from_0_10.py`; nothing else has to run. The clients of the kitchen are `pip install pika
python-qpid-proton`. The till's would be qpid::messaging or qpid-python; as those want C++ or Python 2, it is made of
Leveret's own codec here.
"""

import socket

import pika
from proton import Message
from proton.utils import BlockingConnection

from leveret import ThreadedNode, embedded
from leveret.protocols.amqp010.codec import commands as c
from leveret.protocols.amqp010.codec.frames import append_frames, control_frame

HEADER = b"AMQP\x01\x01\x00\x0a"
SWITCHED_ON = {"protocols": {"amqp010": {"enabled": True}}}


class Till:
    """Sends orders over AMQP 0-10 and waits for answers in a queue of its own."""

    def __init__(self, host: str, port: int) -> None:
        self.socket = socket.create_connection((host, port))
        self.stream = self.socket.makefile("rb")
        self.socket.sendall(HEADER)
        assert self.stream.read(len(HEADER)) == HEADER
        self.control(0, c.ConnectionStartOk({}, "PLAIN", b"\0guest\0guest", "en_US"))
        self.control(0, c.ConnectionTuneOk(100, 65535, 0))
        self.control(0, c.ConnectionOpen("", [], True))
        self.sent = 0
        self.control(1, c.SessionAttach(b"till", False))
        self.control(1, c.SessionCommandPoint(0, 0))
        self.command(c.QueueDeclare("orders"))
        self.command(c.QueueDeclare("till", exclusive=True, auto_delete=True))
        self.command(c.MessageSubscribe("till", "till", c.ACCEPT_MODE_NONE, c.ACQUIRE_MODE_PRE_ACQUIRED))
        self.command(c.MessageFlow("till", c.CREDIT_UNIT_BYTE, 0xFFFFFFFF))
        self.command(c.MessageFlow("till", c.CREDIT_UNIT_MESSAGE, 100))

    def control(self, channel: int, control: c.Control) -> None:
        self.socket.sendall(control_frame(channel, control.encode()))

    def command(
        self, command: c.Command, header: bytes | None = None, body: bytes | None = None, sync: bool = False
    ) -> None:
        frames: list[bytes] = []
        append_frames(frames, 1, command.encode(sync), header, body, 65535)
        self.socket.sendall(b"".join(frames))
        self.sent += 1

    def read(self) -> tuple[int, bytes]:
        """Return the kind and payload of the next frame; all segments here fit one frame."""
        _, kind, *size = self.stream.read(4)
        return kind, self.stream.read(int.from_bytes(size) - 4)[8:]

    def order(self, number: int, what: str, table: int) -> None:
        where_to = c.DeliveryProperties(routing_key="orders")
        said = c.MessageProperties(
            correlation_id=b"order-%d" % number,
            reply_to=c.ReplyTo(routing_key="till"),
            content_type="text/plain",
            application_headers={"table": table, "qpid.subject": "food"},
        )
        transfer = c.MessageTransfer("", c.ACCEPT_MODE_NONE, c.ACQUIRE_MODE_PRE_ACQUIRED)
        self.command(transfer, where_to.encode() + said.encode(), what.encode(), sync=True)
        self.wait_until_complete(self.sent - 1)

    def wait_until_complete(self, command_id: int) -> None:
        """Wait until the broker has completed a command, which is how AMQP 0-10 confirms it."""
        while True:
            kind, payload = self.read()
            if kind == c.SEGMENT_TYPE_CONTROL:
                control = c.control_at(payload, 0, len(payload))
                if isinstance(control, c.SessionCompleted) and command_id in control.commands:
                    return

    def answer(self) -> str:
        """Return the body of the next message."""
        while True:
            kind, payload = self.read()
            if kind == c.SEGMENT_TYPE_BODY:
                return payload.decode()


def cook_over_0_9_1(url: str) -> None:
    with pika.BlockingConnection(pika.URLParameters(url)) as connection:
        channel = connection.channel()
        for method, properties, body in channel.consume("orders", inactivity_timeout=10):
            print(f"0-9-1 kitchen: {body.decode()} for table {properties.headers['table']}")
            said = pika.BasicProperties(correlation_id=properties.correlation_id)
            channel.basic_publish("", properties.reply_to, b"ready: " + body, said)
            channel.basic_ack(method.delivery_tag)
            break


def cook_over_1_0(host: str, port: int) -> None:
    connection = BlockingConnection(f"amqp://{host}:{port}", user="guest", password="guest")
    receiver = connection.create_receiver("/queues/orders")
    order = receiver.receive()
    what = bytes(order.body).decode()
    print(f"1.0 kitchen: {what} for table {order.properties['table']}, subject {order.subject}")
    said = Message(correlation_id=order.correlation_id, body=f"ready: {what}".encode(), inferred=True)
    connection.create_sender(order.reply_to).send(said)  # /queues/till
    receiver.accept()
    connection.close()


with ThreadedNode(embedded(SWITCHED_ON)) as node:
    till = Till(node.host, node.port)
    till.order(1, "carrots", table=7)
    cook_over_0_9_1(node.url)
    print("till hears over 0-10:", till.answer())
    till.order(2, "parsley", table=9)
    cook_over_1_0(node.host, node.port)
    print("till hears over 0-10:", till.answer())
    till.stream.close()
    till.socket.close()
