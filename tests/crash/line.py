"""Connections of clients over real sockets that never wait by themselves, and know when the node is gone.

What is sent goes into a buffer, what comes is handed to `hear`; `pump` moves both as far as they go now. A
0-9-1 connection hands methods and contents on to whoever has opened the channel; what a 1.0 connection hears
is worked into its sessions and links, which are those of the tests in memory."""

from __future__ import annotations

import select
import socket
import time
from collections import deque
from collections.abc import Callable, Iterable
from struct import unpack_from

import attrs

from leveret.protocols.amqp091.codec import methods as m
from leveret.protocols.amqp091.codec import wire
from leveret.protocols.amqp091.codec.wire import BasicProperties, Method
from leveret.protocols.amqp10.codec import performatives as p
from leveret.protocols.amqp10.codec.types import Symbol
from tests.amqp10.client import Session
from tests.amqp10.parts import SASL, frame

TIMEOUT_S = 90  # for any answer
CHUNK = 1 << 18
PLAIN = b"\0guest\0guest"


class Gone(Exception):  # noqa: N818 - said like what it tells
    """The node has ended the connection."""


@attrs.frozen
class Content:
    """A method with its properties and body."""

    method: Method
    properties: BasicProperties
    body: bytes


class Line:
    """A socket, and what is on its way through it."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), TIMEOUT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setblocking(False)
        self.outgoing = bytearray()
        self.ended = False  # nothing will come any more
        # called before anything is sent, and after something came
        self.watch: Callable[[], None] = lambda: None

    def hear(self, octets: bytes) -> None:
        """Something has come."""
        raise NotImplementedError

    def pump(self) -> bool:
        """Send and receive what goes now. False: nothing came."""
        if self.outgoing:
            self.watch()
        try:
            while self.outgoing and not self.ended:
                del self.outgoing[: self.socket.send(self.outgoing)]
        except BlockingIOError:
            pass
        except OSError:  # the node is gone; what it sent before may still be read
            self.outgoing.clear()
        if came := self._receive():
            self.watch()
        return came

    def _receive(self) -> bool:
        came = False
        while not self.ended:
            try:
                octets = self.socket.recv(CHUNK)
            except BlockingIOError:
                break
            except OSError:
                octets = b""
            if not octets:
                self.ended = True
                break
            came = True
            self.hear(octets)
        return came

    def wait(self, condition: Callable[[], object], what: str) -> None:
        """Pump until it holds. Raises Gone."""
        deadline = time.monotonic() + TIMEOUT_S
        self.pump()
        while not condition():
            if self.ended:
                raise Gone(what)
            assert time.monotonic() < deadline, f"waited {TIMEOUT_S} s for {what}"
            wait_for([self], 1)
            self.pump()

    def read_to_the_end(self) -> None:
        """Read what the node has sent before it was killed."""
        self.wait(lambda: self.ended, "the end of the connection")

    def drop(self) -> None:
        self.ended = True
        self.socket.close()


def wait_for(lines: Iterable[Line], timeout_s: float) -> None:
    """Return when any of them may go on, or after that time."""
    alive = [line for line in lines if not line.ended]
    select.select(
        [line.socket for line in alive], [line.socket for line in alive if line.outgoing], [], timeout_s
    )


class Line091(Line):
    """A 0-9-1 connection that is open when it is made."""

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self.handlers: dict[int, Callable[[int, Method | Content], None]] = {}  # by channel
        self.answers: deque[tuple[int, Method | Content]] = deque()  # what no handler wanted
        self.frame_max = 131_072
        self.blocked = False
        self.blockings = 0  # how often that was said
        self._buffer = b""
        self._partial: dict[int, tuple[Method, bytes, int, list[bytes]]] = {}
        self._log_in()

    def _log_in(self) -> None:
        self.outgoing += b"AMQP\x00\x00\x09\x01"
        self._expect(0, m.ConnectionStart)
        able = {
            "publisher_confirms": True,
            "basic.nack": True,
            "consumer_cancel_notify": True,
            "connection.blocked": True,
        }
        self.send(0, m.ConnectionStartOk({"capabilities": able}, "PLAIN", PLAIN, "en_US"))
        self._expect(0, m.ConnectionTune)
        self.send(0, m.ConnectionTuneOk(2047, self.frame_max, 0))
        self.call(0, m.ConnectionOpen("/"))

    def hear(self, octets: bytes) -> None:
        buffer, at = self._buffer + octets, 0
        while len(buffer) - at >= 8:
            kind, channel, size = unpack_from(">BHI", buffer, at)
            end = at + 7 + size
            if len(buffer) <= end:
                break
            self._frame(kind, channel, buffer[at + 7 : end])
            at = end + 1
        self._buffer = buffer[at:]

    def _frame(self, kind: int, channel: int, payload: bytes) -> None:
        if kind == m.FRAME_METHOD:
            method = wire.method_at(payload, 0, len(payload))
            if isinstance(method, m.BasicDeliver | m.BasicGetOk | m.BasicReturn):
                self._partial[channel] = (method, b"", -1, [])
            else:
                self._came(channel, method)
        elif kind == m.FRAME_HEADER:
            method, *_ = self._partial[channel]
            self._partial[channel] = (method, payload[12:], unpack_from(">Q", payload, 4)[0], [])
            self._complete(channel)
        elif kind == m.FRAME_BODY:
            self._partial[channel][3].append(payload)
            self._complete(channel)

    def _complete(self, channel: int) -> None:
        method, properties, size, parts = self._partial[channel]
        if sum(map(len, parts)) == size:
            del self._partial[channel]
            self._came(channel, Content(method, BasicProperties.decode(properties), b"".join(parts)))

    def _came(self, channel: int, what: Method | Content) -> None:
        if isinstance(what, m.ConnectionBlocked | m.ConnectionUnblocked):
            self.blocked = isinstance(what, m.ConnectionBlocked)
            self.blockings += self.blocked
        elif isinstance(what, m.ConnectionClose):
            self.answers.append((0, what))
            self.send(0, m.ConnectionCloseOk())
            self.pump()
        elif (handler := self.handlers.get(channel)) is not None:
            handler(channel, what)
        else:
            self.answers.append((channel, what))

    # Sending.

    def send(self, channel: int, method: Method) -> None:
        self.outgoing += wire.method_frame(channel, method.encode())

    def publish(
        self, channel: int, exchange: str, key: str, properties: BasicProperties, body: bytes
    ) -> None:
        out: list[bytes] = []
        method = m.BasicPublish(exchange, key).encode()
        wire.append_content(out, channel, method, properties.encode(), body, self.frame_max)
        self.outgoing += b"".join(out)

    def call(self, channel: int, method: Method) -> Method:
        """Send, and wait for the answer on a channel without a handler. Raises Gone."""
        self.send(channel, method)
        return self._expect(channel, METHODS_OK[type(method)])

    def _expect(self, channel: int, kind: type) -> Method:
        self.wait(lambda: self.answers, kind.__name__)
        number, answer = self.answers.popleft()
        assert number == channel, answer
        assert isinstance(answer, kind), answer
        return answer

    def channel(self, number: int, handler: Callable[[int, Method | Content], None] | None = None) -> int:
        """An open channel; from now on the handler hears what comes on it."""
        self.call(number, m.ChannelOpen())
        if handler is not None:
            self.handlers[number] = handler
        return number


# methods and their answers
METHODS_OK = {getattr(m, name): getattr(m, f"{name}Ok") for name in dir(m) if hasattr(m, f"{name}Ok")}


class Line10(Line):
    """A 1.0 connection that is open when it is made, with one session. It is the `peer` of that session's links."""

    def __init__(self, port: int) -> None:
        super().__init__(port)
        self.frame_size_max = 131_072
        self.sessions: dict[int, Session] = {}
        self.closed: p.Close | None = None
        self._opened = False
        self._authentic = False
        self._buffer = b""
        self._log_in()
        self.session = self.sessions[0] = Session(self, 0)  # type: ignore[arg-type]
        self.send(0, p.Begin(next_outgoing_id=0, incoming_window=100_000, outgoing_window=100_000))
        self.wait(lambda: self.session.begun, "begin")

    def _log_in(self) -> None:
        init = p.SaslInit(mechanism=Symbol("PLAIN"), initial_response=PLAIN, hostname="localhost")
        self.outgoing += b"AMQP\x03\x01\x00\x00" + frame(0, init, kind=SASL)
        self.wait(lambda: self._authentic, "the outcome of the login")
        self.outgoing += b"AMQP\x00\x01\x00\x00"
        self.send(0, p.Open(hostname="localhost", container_id="test"))
        self.wait(lambda: self._opened, "open")

    def send(self, channel: int, performative: object, payload: bytes = b"", settle: bool = True) -> None:
        self.outgoing += frame(channel, performative, payload)

    def read(self) -> None:
        """Sessions and links ask for this when they expect something; here it is awaited elsewhere."""

    def hear(self, octets: bytes) -> None:
        buffer, at = self._buffer + octets, 0
        while len(buffer) - at >= 8:
            if buffer.startswith(b"AMQP", at):
                at += 8
                continue
            size, _, _, channel = unpack_from(">IBBH", buffer, at)
            if len(buffer) - at < size:
                break
            if size > 8:
                self._frame(channel, buffer[at + 8 : at + size])
            at += size
        self._buffer = buffer[at:]

    def _frame(self, channel: int, body: bytes) -> None:
        performative, end = p.decode(body, 0, len(body))
        if isinstance(performative, p.SaslOutcome):
            self._authentic = performative.code == 0
        elif isinstance(performative, p.Open):
            self._opened = True
        elif isinstance(performative, p.Close):
            self.closed = performative
            self.send(0, p.Close())
            self.pump()
        elif channel in self.sessions:
            self.sessions[channel].hear(performative, body[end:])
