"""A 1.0 client in memory: performatives in, performatives out, against a real broker and no socket.

peer = Peer().open()                  # on a bench of its own: see tests/harness/bench.py
session = peer.begin()
sender = session.sender("/queues/q")  # refused? sender.refusal() is the text
sender.send(data(b"hello"))           -> the delivery's id; sender.outcome(id) == p.Accepted()
receiver = session.receiver("/queues/q", credit=10)
receiver.get().body == b"hello"
receiver.accept()

Whatever comes is worked into peer, sessions and links as it arrives; `peer.taken()` tells the performatives in order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from struct import unpack_from

from leveret.front_end import Peer as Address
from leveret.protocols.amqp10.broker.adapter import Adapter10
from leveret.protocols.amqp10.codec import performatives as p
from leveret.protocols.amqp10.codec.types import Symbol
from tests.harness.bench import ClientBench
from tests.harness.peer import LOOPBACK, JoinedPeer

from .client import Session
from .parts import SASL, frame, told

HEADER = b"AMQP\x00\x01\x00\x00"
SASL_HEADER = b"AMQP\x03\x01\x00\x00"
FIRST, SECOND = 0, 1  # rcv-settle-mode
MANY = 0xFFFF_FFFF


class Peer(JoinedPeer):
    """One connection, seen from the client."""

    adapter = Adapter10

    def __init__(self, bench: ClientBench | None = None, address: Address = LOOPBACK) -> None:
        super().__init__(bench, address)
        self.headers: list[bytes] = []  # protocol headers that came
        self.mechanisms: p.SaslMechanisms | None = None
        self.sasl: deque[object] = deque()  # challenges and the outcome
        self.opened: p.Open | None = None
        self.closed: p.Close | None = None
        self.empty_frames = 0
        self.sessions: dict[int, Session] = {}  # by the channel, the same in both directions
        self.frame_size_max = 131_072  # what we send at most in one frame
        self._heard: list[tuple[int, object]] = []  # channel and performative

    def hear(self, octets: bytes) -> None:
        """Work in what has come, as far as it is whole."""
        buffer, at = self._buffer + octets, 0
        while len(buffer) - at >= 8:
            if buffer.startswith(b"AMQP", at):
                self.headers.append(buffer[at : at + 8])
                at += 8
                continue
            size, offset, kind, channel = unpack_from(">IBBH", buffer, at)
            if len(buffer) - at < size:
                break
            assert offset == 2
            self._frame(kind, channel, buffer[at + 8 : at + size])
            at += size
        self._buffer = buffer[at:]

    def _frame(self, kind: int, channel: int, body: bytes) -> None:
        if not body:
            self.empty_frames += 1
            return
        performative, end = p.decode(body, 0, len(body))
        self._heard.append((channel, performative))
        if kind == SASL:
            self.sasl.append(performative)
        elif isinstance(performative, p.Open):
            self.opened = performative
        elif isinstance(performative, p.Close):
            self.closed = performative
        else:
            self.sessions[channel].hear(performative, body[end:])

    def taken(self, *kinds: type) -> list:
        """The performatives since the last look, in order; of these kinds only, the others are passed over."""
        self.read()
        heard, self._heard = self._heard, []
        return [what for _, what in heard if not kinds or isinstance(what, kinds)]

    def send(self, channel: int, performative: object, payload: bytes = b"", settle: bool = True) -> None:
        self.send_bytes(frame(channel, performative, payload), settle)

    # Getting in.

    def greet(self) -> list[str]:
        """SASL header; the mechanisms offered."""
        self.send_bytes(SASL_HEADER)
        self.read()
        assert self.headers == [SASL_HEADER], self.headers
        mechanisms = self.sasl.popleft()
        assert isinstance(mechanisms, p.SaslMechanisms), mechanisms
        return [str(name) for name in mechanisms.sasl_server_mechanisms]

    def authenticate(self, mechanism: str, response: bytes | None = None):
        """The answer to sasl-init: an outcome, or a challenge; None: nothing came."""
        init = p.SaslInit(mechanism=Symbol(mechanism), initial_response=response, hostname="localhost")
        self.send_bytes(frame(0, init, kind=SASL))
        return self._sasl_answer()

    def respond(self, response: bytes):
        """The answer to sasl-response."""
        self.send_bytes(frame(0, p.SaslResponse(response=response), kind=SASL))
        return self._sasl_answer()

    def _sasl_answer(self):
        self.read()
        return self.sasl.popleft() if self.sasl else None

    def log_in(self, user: str = "guest", password: str = "guest") -> Peer:
        self.greet()
        outcome = self.authenticate("PLAIN", plain(user, password))
        assert outcome == p.SaslOutcome(code=0), outcome
        return self

    def ask_open(self, hostname: str | None = "localhost", **fields: object) -> Peer:
        """Protocol header and open; whether it is opened or refused is for the caller to look at."""
        fields.setdefault("container_id", "test")
        self.send_bytes(HEADER + frame(0, p.Open(hostname=hostname, **fields)))
        self.read()
        return self

    def open(
        self,
        user: str = "guest",
        password: str | None = None,
        hostname: str | None = "localhost",
        **fields: object,
    ) -> Peer:
        """Log in (everybody's password is his name, if not given) and open."""
        self.log_in(user, user if password is None else password).ask_open(hostname, **fields)
        assert self.opened is not None
        assert self.closed is None, self.closed
        if self.opened.max_frame_size is not None:
            self.frame_size_max = min(self.frame_size_max, self.opened.max_frame_size)
        return self

    def ask_begin(self, channel: int | None = None, **fields: object) -> Session:
        """Begin; whether the answer comes is for the caller to look at."""
        number = max(self.sessions, default=-1) + 1 if channel is None else channel
        session = self.sessions[number] = Session(self, number)
        fields = {"next_outgoing_id": 0, "incoming_window": 100_000, "outgoing_window": 100_000, **fields}
        session.window = fields["incoming_window"]
        self.send(number, p.Begin(**fields))
        self.read()
        return session

    def begin(self, channel: int | None = None, **fields: object) -> Session:
        session = self.ask_begin(channel, **fields)
        assert session.begun is not None, self._heard
        assert session.ended is None, session.ended
        return session

    # Going.

    def refusal(self) -> str:
        """The condition and description of the close that has come; it is answered, and that is the end."""
        self.read()
        assert self.closed is not None, self._heard
        if not self.front.closed:
            self.send(0, p.Close())
        assert self.front.closed
        return told(self.closed.error)

    def close(self) -> None:
        self.send(0, p.Close())
        self.read()
        assert self.closed == p.Close(), self.closed
        assert self.front.closed


# Parts of a bench.


def plain(user: str, password: str) -> bytes:
    return b"\0" + user.encode() + b"\0" + password.encode()


def session_of(bench: ClientBench, user: str = "guest") -> Session:
    """A session on a connection of its own; everybody's password is his name."""
    return Peer(bench).open(user).begin()


def declare(bench: ClientBench, name: str, **properties: object) -> str:
    """A queue in the default virtual host."""
    bench.host.declare_queue(name, **properties)
    return name


def bind(bench: ClientBench, exchange: str, queue: str, key: str = "") -> None:
    host = bench.host
    host.bind(host.exchange(exchange), host.queue(queue), key)


def waiting(bench: ClientBench, queue: str) -> list[bytes]:
    """The bodies that wait in a queue, as the publisher's protocol wrote them."""
    return [delivery.message.body for delivery in bench.queue(queue).waiting()]


def declared(bench: ClientBench, names: Iterable[str]) -> ClientBench:
    for name in names:
        declare(bench, name)
    return bench
