"""The client's side of an AMQP 1.0 connection with one session and one link: bytes from a broker to events, and back.

    SASL header ─> mechanisms ─> init ─> outcome ─> header, open ─> open ─> begin, attach ─> attach: `on_open`

The link is a receiver, whose owner gives credit (`want`) and settles deliveries (`accept`), or a sender, whose owner
asks for room (`has_room`) before it sends. What the broker sends is bounded before it is kept: frames by the size that
our open tells, messages by `message_size_max`, transfers by the session's window. What we send waits here if it is
beyond the broker's window: there is no room until all of it is sent.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable
from typing import ClassVar, Final

import attrs

from leveret.protocols.amqp10.codec import performatives as p
from leveret.protocols.amqp10.codec import wire
from leveret.protocols.amqp10.codec.errors import AmqpError
from leveret.protocols.amqp10.codec.types import DecodeError
from leveret.protocols.amqp10.codec.wire import MASK, distance
from leveret.protocols.shared.machine.client_machine import ClientMachine, Credentials
from leveret.protocols.shared.machine.contract import Writer
from leveret.protocols.shared.machine.states import State

CHANNEL: Final = 0
HANDLE: Final = 0
FRAME_MAX: Final = 131_072  # bytes of a frame that we take, and that we send at most
FRAME_MIN: Final = 512  # that every peer takes (part 2, section 4.1)
WINDOW: Final = 2048  # transfers that the broker may send; it is told again when half of them have come
HEADERS: Final = {State.STARTING: wire.HEADER_SASL, State.TUNING: wire.HEADER_AMQP}


@attrs.frozen
class Login(Credentials):
    """The name and password that a client logs in with, and the limits that it asks for."""

    hostname: str  # of the open, which tells the virtual host
    container: str
    heartbeat_s: int
    timeout_s: float
    message_size_max: int


class Owner(ABC):
    """Hears of what a broker sends. None of these may raise."""

    @abstractmethod
    def on_open(self) -> None:
        """Called when the link is attached."""

    @abstractmethod
    def on_message(self, delivery_id: int, message_format: int, payload: bytes) -> None:
        """Called by a receiver with each message."""

    @abstractmethod
    def on_outcome(self, first: int, last: int, state: p.DeliveryState | None) -> None:
        """Called by a sender with the end of the deliveries with these ids, which are forgotten."""

    @abstractmethod
    def on_room(self) -> None:
        """Called by a sender when there may be room again."""

    @abstractmethod
    def on_end(self, reason: str) -> None:
        """Called once, when the connection has ended in any way."""


class Client10(ClientMachine):
    """A connection to a broker. `link` is what it attaches; its handle is `HANDLE`."""

    HEARTBEAT: ClassVar[bytes] = wire.EMPTY_FRAME

    def __init__(self, owner: Owner, login: Login, link: p.Attach, outbox: Writer, now: float) -> None:
        super().__init__(State.STARTING, outbox, now, login.timeout_s)
        self.frame_max = FRAME_MIN
        self.message_max: int | None = None  # that the broker takes; None: it tells none
        self._owner = owner
        self._login = login
        self._link = link
        self._needed = wire.HEADER_SIZE
        # What we send, and what the broker still takes of transfers and deliveries.
        self._next_outgoing = 0
        self._next_id = 0  # of a delivery
        self._delivery_count = 0
        self._window = 0
        self._credit = 0
        self._frames: deque[bytes] = deque()  # that wait for the window
        # What we receive.
        self._next_incoming = 0
        self._window_left = WINDOW
        self._received_count = 0  # the broker's delivery-count
        self._transfer: p.Transfer | None = None  # the first of the message that is coming
        self._parts: list[bytes] = []
        self._size = 0  # of the parts

    def begin(self) -> None:
        self.outbox.write(wire.HEADER_SASL)

    # What the owner sends.

    @property
    def credit(self) -> int:
        """The messages that may still come, of a receiver, or that may be sent, of a sender."""
        return self._credit

    def want(self, credit: int) -> None:
        """Have the broker send up to so many messages from now on."""
        if self.state is State.OPEN:
            self._credit = credit
            self._flow_link()

    def accept(self, ids: Iterable[int]) -> None:
        """Accept deliveries, and settle them."""
        end = wire.disposition_end(True, p.Accepted(), FRAME_MIN)
        for first, last in wire.runs(ids):
            if self.state is State.OPEN:
                self.outbox.write(wire.disposition_frame(CHANNEL, True, first, last, end))

    def has_room(self) -> bool:
        """Return whether a sender may send a message."""
        is_free = self._credit > 0 and self._window > 0 and not self._frames
        return self.state is State.OPEN and is_free and self.outbox.room() > 0

    def send(self, payload: bytes, settled: bool) -> int:
        """Send a message, and return the id of its delivery."""
        delivery_id, self._next_id = self._next_id, self._next_id + 1 & MASK
        self._delivery_count = self._delivery_count + 1 & MASK
        self._credit -= 1
        room, at = self.frame_max - wire.FRAME_OVERHEAD, 0
        transfer = p.Transfer(
            handle=HANDLE,
            delivery_id=delivery_id,
            delivery_tag=delivery_id.to_bytes(4),
            message_format=0,
            settled=settled,
            more=True,
        )
        while transfer.more:
            begin, at = at, at + room - len(transfer.encode())
            transfer.more = at < len(payload)
            self._frames.append(wire.frame(CHANNEL, transfer.encode() + payload[begin:at]))
            if transfer.more:
                transfer = p.Transfer(handle=HANDLE, more=True)
        self._send_frames()
        return delivery_id

    def _send_frames(self) -> None:
        while self._frames and self._window > 0:
            self._window -= 1
            self._next_outgoing = self._next_outgoing + 1 & MASK
            self.outbox.write(self._frames.popleft())

    def _send(self, performative: p.Record) -> None:
        self.outbox.write(wire.frame(CHANNEL, performative.encode()))

    def _flow_link(self) -> None:
        count = self._received_count if self._link.role else self._delivery_count
        self._window_left = WINDOW
        self.outbox.write(
            wire.link_flow(
                CHANNEL,
                self._next_incoming,
                WINDOW,
                self._next_outgoing,
                HANDLE,
                count,
                self._credit,
                0,
                False,
            )
        )

    def close(self, reason: str) -> None:
        if self.state in (State.OPEN, State.OPENING):
            self._send(p.Close())
            self.state = State.CLOSING
            self._end(reason)
        elif self.state is not State.CLOSING:
            self._end_now(reason)

    # What the broker sends.

    def _take(self, data: bytes) -> None:
        octets = self._joined(data)
        if not octets:
            return
        self._tail.clear()
        self._tail_size = 0
        try:
            at = self._take_all(octets)
        except AmqpError as error:
            self._end_now(f"it sent what cannot be read: {error.description}")
            return
        if self.state is not State.CLOSED:
            self._keep(octets[at:])

    def _take_all(self, octets: bytes) -> int:
        """Handle what is whole, and return how many bytes it was. Raises AmqpError."""
        at, end = 0, len(octets)
        while self.state is not State.CLOSED:
            self._needed = wire.FRAME_OVERHEAD
            if end - at < self._needed:
                break
            if self.state in HEADERS:
                self._take_header(octets[at : at + wire.HEADER_SIZE])
                at += wire.HEADER_SIZE
                continue
            size, offset, kind, _ = wire.FRAME_START.unpack_from(octets, at)
            begin = 4 * offset
            if offset < wire.OFFSET_MIN or not begin <= size <= FRAME_MAX:
                raise DecodeError(f"a frame of {size} bytes")
            if end - at < size:
                self._needed = size
                break
            if size > begin:
                self._take_frame(kind, *wire.performative_at(octets, at + begin, at + size))
            at += size
        return at

    def _take_header(self, header: bytes) -> None:
        if header != HEADERS[self.state]:
            self._end_now("it is no AMQP 1.0 broker, or takes no login")
        elif self.state is State.STARTING:
            self.state = State.SECURING
        else:
            self.state = State.OPENING

    def _take_frame(self, kind: int, performative: p.Record, payload: bytes) -> None:
        if kind != (wire.FRAME_SASL if self.state is State.SECURING else wire.FRAME_AMQP):
            raise DecodeError(f"a frame of type {kind}")
        if isinstance(performative, p.Close):
            self._take_close(performative)
            return
        if self.state is State.CLOSING:
            return
        step = STEPS.get((self.state, type(performative)))
        if step is None:
            raise DecodeError(f"{performative.NAME} {self._stage()}")
        step(self, performative, payload)

    def _take_close(self, close: p.Close) -> None:
        if self.state is not State.CLOSING:
            self._send(p.Close())
        self._end_now(said(close.error, "it has closed the connection"))

    # The handshake.

    def _on_mechanisms(self, mechanisms: p.Record, payload: bytes) -> None:
        assert isinstance(mechanisms, p.SaslMechanisms)
        login = self._login
        if login.mechanism not in mechanisms.sasl_server_mechanisms:
            self._end_now(f"it offers no login by {login.mechanism}")
            return
        init = p.SaslInit(mechanism=login.mechanism, initial_response=login.response, hostname=login.hostname)
        self.outbox.write(wire.frame(CHANNEL, init.encode(), wire.FRAME_SASL))

    def _on_login(self, outcome: p.Record, payload: bytes) -> None:
        assert isinstance(outcome, p.SaslOutcome)
        if outcome.code != p.SASL_CODE_OK:
            self._end_now(f"it refuses the login of user '{self._login.user}'")
            return
        login = self._login
        self.outbox.write(wire.HEADER_AMQP)
        self._send(
            p.Open(
                container_id=login.container,
                hostname=login.hostname,
                max_frame_size=FRAME_MAX,
                channel_max=CHANNEL,
                idle_time_out=login.heartbeat_s * 1000 or None,
            )
        )
        self.state = State.TUNING

    def _on_open(self, peer: p.Record, payload: bytes) -> None:
        assert isinstance(peer, p.Open)
        self.frame_max = min(peer.max_frame_size, FRAME_MAX)
        if self.frame_max < FRAME_MIN:
            raise DecodeError(f"frames of at most {self.frame_max} bytes")
        self.heartbeat_s = self._login.heartbeat_s
        # Half of the time-out would do, and our longest silence is twice the interval.
        self._heartbeat.start((peer.idle_time_out or 0) / 4000, self.heartbeat_s)
        self._send(p.Begin(next_outgoing_id=0, incoming_window=WINDOW, outgoing_window=wire.OUTGOING_WINDOW))
        self._send(self._link)

    def _on_begin(self, begin: p.Record, payload: bytes) -> None:
        assert isinstance(begin, p.Begin)
        self._next_incoming = begin.next_outgoing_id
        self._window = begin.incoming_window

    def _on_attach(self, attach: p.Record, payload: bytes) -> None:
        assert isinstance(attach, p.Attach)
        if (attach.source if self._link.role else attach.target) is None:
            return  # a detach follows, which says why
        self._received_count = attach.initial_delivery_count or 0
        self.message_max = attach.max_message_size or None
        self.state = State.OPEN
        self._owner.on_open()

    # The link.

    def _on_flow(self, flow: p.Record, payload: bytes) -> None:
        assert isinstance(flow, p.Flow)
        self._window = distance(
            (flow.next_incoming_id or 0) + flow.incoming_window & MASK, self._next_outgoing
        )
        is_ours = flow.handle is not None and flow.link_credit is not None
        if is_ours and not self._link.role:
            ahead = distance(
                (flow.delivery_count or 0) + (flow.link_credit or 0) & MASK, self._delivery_count
            )
            self._credit = max(0, ahead)
        elif is_ours and flow.delivery_count is not None:
            self._credit = max(0, self._credit - distance(flow.delivery_count, self._received_count))
            self._received_count = flow.delivery_count
        if flow.drain and not self._link.role:
            self._delivery_count = self._delivery_count + self._credit & MASK
            self._credit = 0
        self._send_frames()
        if flow.echo or flow.drain:
            self._flow_link()
        if self.state is State.OPEN and not self._link.role:
            self._owner.on_room()

    def _on_transfer(self, transfer: p.Record, payload: bytes) -> None:
        assert isinstance(transfer, p.Transfer)
        self._next_incoming = self._next_incoming + 1 & MASK
        self._window_left -= 1
        if self._transfer is None:
            if not self._link.role or transfer.delivery_id is None:
                raise DecodeError("a transfer without a delivery")
            self._transfer = transfer
            self._received_count = self._received_count + 1 & MASK
            self._credit = max(0, self._credit - 1)
        if payload:
            self._parts.append(payload)
            self._size += len(payload)
        if self._size > self._login.message_size_max:
            raise DecodeError(f"a message of {self._size} bytes, which is larger than those of this node")
        if not transfer.more or transfer.aborted:
            self._deliver(transfer.aborted)
        if self._window_left <= WINDOW // 2 and self.state is State.OPEN:
            self._window_left = WINDOW
            self.outbox.write(wire.session_flow(CHANNEL, self._next_incoming, WINDOW, self._next_outgoing))

    def _deliver(self, aborted: bool) -> None:
        first, payload = self._transfer, b"".join(self._parts)
        self._transfer, self._size = None, 0
        self._parts.clear()
        assert first is not None
        assert first.delivery_id is not None
        if not aborted:
            self._owner.on_message(first.delivery_id, first.message_format or 0, payload)

    def _on_disposition(self, disposition: p.Record, payload: bytes) -> None:
        assert isinstance(disposition, p.Disposition)
        if disposition.role is self._link.role:
            return  # it settles what it has sent
        first = disposition.first
        last = first if disposition.last is None else disposition.last
        state = disposition.state
        if not disposition.settled:
            if state is None or isinstance(state, p.Received):
                return
            self._send(p.Disposition(role=False, first=first, last=last, settled=True))
        self._owner.on_outcome(first, last, state)

    # The end.

    def _on_detach(self, detach: p.Record, payload: bytes) -> None:
        assert isinstance(detach, p.Detach)
        self.close(said(detach.error, "it has detached the link"))

    def _on_session_end(self, end: p.Record, payload: bytes) -> None:
        assert isinstance(end, p.End)
        self.close(said(end.error, "it has ended the session"))

    def _hear_end(self, reason: str) -> None:
        self._parts.clear()
        self._frames.clear()
        self._owner.on_end(reason)


def said(error: p.Error | None, otherwise: str) -> str:
    """Return an error as people read it."""
    return otherwise if error is None else f"{error.condition}: {error.description or otherwise}"


Step = Callable[[Client10, p.Record, bytes], None]
ENDS: Final[dict[type[p.Record], Step]] = {p.Detach: Client10._on_detach, p.End: Client10._on_session_end}
STEPS: Final[dict[tuple[State, type[p.Record]], Step]] = {
    (State.SECURING, p.SaslMechanisms): Client10._on_mechanisms,
    (State.SECURING, p.SaslOutcome): Client10._on_login,
    (State.OPENING, p.Open): Client10._on_open,
    (State.OPENING, p.Begin): Client10._on_begin,
    (State.OPENING, p.Attach): Client10._on_attach,
    (State.OPENING, p.Flow): Client10._on_flow,
    (State.OPEN, p.Flow): Client10._on_flow,
    (State.OPEN, p.Transfer): Client10._on_transfer,
    (State.OPEN, p.Disposition): Client10._on_disposition,
    **{(state, kind): step for state in (State.OPENING, State.OPEN) for kind, step in ENDS.items()},
}
