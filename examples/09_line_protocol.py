"""Implement a protocol in 300 lines: messages as lines of text, on the same port as AMQP.

    LINE user password virtual-host   log in; has to come first
    QUEUE queue                       declare a queue
    WITH colour=red&size=9            headers of the next message
    PUB exchange key text             publish; "-" is the default exchange. Answered by TAKEN n: so many are safe
    SUB queue                         consume; messages come as MSG n exchange key text, after WITH if they have headers
    ACK n, BACK n                     message n is done, or returns to its queue
    QUIT

Run `python examples/09_line_protocol.py` to see a conversation with an AMQP client. To serve it permanently, put this
file into a plugin folder. docs/writing-a-protocol.md goes through it step by step.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Final, ParamSpec
from urllib.parse import parse_qsl, urlencode

import attrs

from leveret.broker import Broker, Publisher
from leveret.client import Client
from leveret.config.config import Config
from leveret.config.records import Record, key
from leveret.config.types import Duration, Whole
from leveret.delivery import Consumer, Delivery, Window
from leveret.errors import AccessRefused, Failure, PreconditionFailed
from leveret.front_end import FrontEnd, Peer, Protocol
from leveret.message import Encoding, Facts, Message
from leveret.observability.connection_stats import ChannelFacts, ConnectionFacts, ConsumerFacts
from leveret.outbox import Outbox
from leveret.queues.queue import Queue
from leveret.security.sasl import Answer, Pending, Plain, Success
from leveret.values import Properties, Table, printed

P = ParamSpec("P")
LINE_MAX: Final = 65_536  # bytes


@attrs.frozen(kw_only=True)
class LineSettings(Record):
    """The table `[protocols.line]`."""

    login_timeout: float = key(Duration(1, 60), "How long a client may take to log in.", 10.0)
    prefetch: int = key(Whole(1, 1000), "How many messages a subscriber has that it has not answered.", 10)


class LineEncoding(Encoding):
    """An encoding with headers as in a URL, `colour=red&size=9`, and no other properties."""

    name = "line"

    def headers(self, properties: bytes) -> Table:
        return dict(parse_qsl(properties.decode()))

    def read(self, properties: bytes) -> Properties:
        return Properties(content_type="text/plain", headers=self.headers(properties) or None)

    def write(self, properties: Properties) -> bytes:
        headers = properties.headers or {}
        return urlencode({name: printed(value) for name, value in headers.items()}).encode()


ENCODING: Final = LineEncoding()


class Subscription(Consumer):
    """A consumer for one SUB: the queue's deliveries go to the connection."""

    def __init__(self, connection: LineConnection, queue: Queue) -> None:
        super().__init__(queue, settled=False, credit=connection.settings.prefetch, window=Window())
        self.connection = connection

    def room(self) -> int:
        return self.connection.outbox.room()

    def deliver(self, deliveries: list[Delivery]) -> None:
        for delivery in deliveries:
            self.connection.show(delivery)

    def cancelled(self) -> None:
        self.connection.say(f"GONE {self.queue.name}")

    def facts(self) -> ConsumerFacts:
        peer, prefetch = self.connection.peer, self.connection.settings.prefetch
        return ConsumerFacts(tag=self.queue.name, connection=peer.name, channel=1, prefetch=prefetch)


class LineConnection(FrontEnd, Publisher):
    """A connection: its lines become calls to the core, and events of the core become lines."""

    def __init__(self, broker: Broker, config: Config, outbox: Outbox, peer: Peer, now: float) -> None:
        self.broker, self.outbox, self.peer = broker, outbox, peer
        self.client: Client | None = None  # set by the login
        self.settings = config.protocols.of("line", LineSettings)
        self.login_until = now + self.settings.login_timeout
        self.is_stranger = True  # until its user is known
        self.unread = b""  # the beginning of a line
        self.lines: deque[bytes] = deque()  # wait for the end of the login
        self.pending: Pending | None = None  # while the password is checked
        self.virtual_host = ""  # that the client asked for
        self.headers = b""  # for the next message
        self.published = 0
        self.shown = 0  # the number of the last message
        self.subscriptions: list[Subscription] = []
        self.held: dict[int, Delivery] = {}  # shown, and not answered

    # Called by the node.

    def receive(self, data: bytes, now: float) -> None:
        *lines, self.unread = (self.unread + data).split(b"\n")
        self.lines.extend(lines)
        if self.halted:
            self.halted = False
            self.attempt(self.go_on_entering)
        while self.lines and not self.closed and not self.waits:
            self.attempt(self.obey, self.lines.popleft().rstrip(b"\r"))
        if len(self.unread) > LINE_MAX:
            self.shut_down("a line is too long")

    def drained(self) -> None:
        for subscription in self.subscriptions:
            subscription.wake()

    def lost(self) -> None:
        if self.pending is not None:
            self.pending.waiting.drop()
        for subscription in self.subscriptions:
            subscription.queue.remove_consumer(subscription)
        for delivery in self.held.values():
            delivery.queue.release(delivery)
        if self.client is not None:
            self.client.leave()

    def deadline(self) -> float | None:
        return self.login_until if self.client is None else None

    def on_deadline(self, now: float) -> None:
        self.shut_down("nobody has logged in")

    def alarm(self, reason: str | None) -> None:
        self.blocked = self.blocked and reason is not None

    def shut_down(self, reason: str) -> None:
        self.say(f"BYE {reason}")
        self.closed = True

    # What operators see.

    def facts(self) -> ConnectionFacts | None:
        if self.client is None:
            return None
        user = self.client.user.name
        return ConnectionFacts(protocol="LINE", user=user, virtual_host=self.virtual_host, channels=1)

    def channel_facts(self) -> Iterable[ChannelFacts]:
        yield ChannelFacts(
            number=1,
            confirming=True,
            consumers=len(self.subscriptions),
            unsettled=len(self.held),
            published=self.published,
            delivered=self.shown,
        )

    def unsettled(self, channel: int, tag: int | None = None) -> Iterable[tuple[int, Delivery]]:
        return [(number, each) for number, each in self.held.items() if tag in (None, number)]

    # Commands.

    def attempt(self, step: Callable[P, None], *given: P.args, **named: P.kwargs) -> None:
        try:
            step(*given, **named)
        except Failure as failure:  # the core refuses, and says why
            self.say(f"ERR {failure}")
            self.closed = self.client is None
        except ValueError:
            self.say("ERR that line is not complete, or not UTF-8")

    def obey(self, line: bytes) -> None:
        word, _, rest = line.partition(b" ")
        if self.client is None:
            self.log_in(word, rest.decode())
        elif word in COMMANDS:
            COMMANDS[word](self, self.client, rest)
        else:
            self.say(f"ERR no such command: {word.decode()}")

    def log_in(self, word: bytes, rest: str) -> None:
        if word != b"LINE":
            raise AccessRefused("log in first: LINE user password virtual-host")
        name, password, self.virtual_host = rest.split()
        self.enter(Plain(self.broker.access, self.peer.loopback).login(name, password))

    def enter(self, answer: Answer) -> None:
        if isinstance(answer, Pending):  # checking the password takes long, in a thread
            self.pending, self.waits = answer, True
            answer.waiting.tell(self.woken)
        elif isinstance(answer, Success):
            client = Client(self.broker, answer.user, self.peer.name)
            client.enter(self.virtual_host)
            self.client = client
            self.is_stranger = False
            self.description = f"user '{client.user.name}', vhost '{self.virtual_host}'"
            self.say("OK")

    def woken(self) -> None:
        self.halted = True
        self.wake()

    def go_on_entering(self) -> None:
        pending, self.pending = self.pending, None
        if pending is not None:
            self.enter(pending.answer())

    def declare(self, client: Client, rest: bytes) -> None:
        queue = client.declare_queue(rest.decode())
        self.say(f"OK {queue.ready} waiting")

    def keep_headers(self, client: Client, rest: bytes) -> None:
        parse_qsl(rest.decode(), strict_parsing=True)
        self.headers = rest

    def publish(self, client: Client, rest: bytes) -> None:
        exchange, key, text = rest.split(b" ", 2)
        target = client.publish_target("" if exchange == b"-" else exchange.decode(), key.decode())
        facts = Facts(has_headers=bool(self.headers))
        message = Message(ENCODING, target.name, key.decode(), self.headers, text, facts)
        self.broker.publish(target, message)
        self.headers = b""
        self.published += 1
        if self not in self.broker.publishers:
            self.broker.publishers.append(self)  # for `taken` to be called
        self.blocked = self.broker.alarms.reason is not None

    def mark(self) -> int:
        return self.published

    def taken(self, mark: int) -> None:
        self.say(f"TAKEN {mark}")

    def subscribe(self, client: Client, rest: bytes) -> None:
        subscription = Subscription(self, client.readable_queue(rest.decode()))
        client.consume(subscription)
        self.subscriptions.append(subscription)
        self.say("OK")

    def show(self, delivery: Delivery) -> None:
        message = delivery.message
        properties, body = message.properties, message.body
        if message.encoding is not ENCODING:
            said, body = message.encoding.convert(message)
            properties = ENCODING.write(said)
        if properties:
            self.say(f"WITH {properties.decode()}")
        self.shown += 1
        self.held[self.shown] = delivery
        text = body.decode("utf-8", "backslashreplace").replace("\n", "\\n")
        self.say(f"MSG {self.shown} {message.exchange or '-'} {message.key} {text}")

    def accept(self, client: Client, rest: bytes) -> None:
        delivery = self.answered(int(rest))
        delivery.queue.accept(delivery)

    def release(self, client: Client, rest: bytes) -> None:
        delivery = self.answered(int(rest))
        delivery.queue.release(delivery)

    def answered(self, number: int) -> Delivery:
        delivery = self.held.pop(number, None)
        if delivery is None or delivery.consumer is None:
            raise PreconditionFailed(f"message {number} is not waiting for an answer")
        delivery.consumer.credit += 1
        delivery.consumer.window.credit += 1
        delivery.consumer.wake()
        return delivery

    def quit(self, client: Client, rest: bytes) -> None:
        self.shut_down("as you like")

    def say(self, line: str) -> None:
        self.outbox.write(line.encode("utf-8", "surrogateescape") + b"\n")


COMMANDS: Final[dict[bytes, Callable[[LineConnection, Client, bytes], None]]] = {
    b"QUEUE": LineConnection.declare,
    b"WITH": LineConnection.keep_headers,
    b"PUB": LineConnection.publish,
    b"SUB": LineConnection.subscribe,
    b"ACK": LineConnection.accept,
    b"BACK": LineConnection.release,
    b"QUIT": LineConnection.quit,
}

PROTOCOL: Final = Protocol(
    name="line",
    first_bytes=(b"LINE ",),
    factory=LineConnection,
    encoding=lambda: ENCODING,
    settings=LineSettings,
)


def converse() -> None:
    """Exchange messages between a line client and an AMQP client through one node."""
    import socket

    import pika

    from leveret import ThreadedNode
    from leveret.server.plugin_loader import register_protocol

    register_protocol(PROTOCOL)
    with ThreadedNode() as node, pika.BlockingConnection(pika.URLParameters(node.url)) as connection:
        channel = connection.channel()
        channel.queue_declare("to-amqp")
        with socket.create_connection((node.host, node.port)) as line, line.makefile("rw") as stream:
            for command in (
                "LINE guest guest /",
                "QUEUE to-lines",
                "PUB - to-amqp Hello, rabbit!",
                "SUB to-lines",
            ):
                print(">", command)
                print(command, file=stream, flush=True)
                print("<", stream.readline(), end="")
            print("AMQP hears:", channel.basic_get("to-amqp", auto_ack=True)[2].decode())
            red = pika.BasicProperties(headers={"colour": "red"})
            channel.basic_publish("", "to-lines", b"Hello, hare!", red)
            print("<", stream.readline(), end="")
            print("<", stream.readline(), end="")


if __name__ == "__main__":
    converse()
