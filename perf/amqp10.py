"""Send transfers from a pattern over AMQP 1.0, dispositions in ranges, and credit, with a session for each end."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from itertools import accumulate
from struct import Struct
from typing import Final
from urllib.parse import quote

from leveret.perf.amqp10_setup import WINDOW, Setup10, refuse
from leveret.perf.block import APPLICATION_HEADERS, DIGITS, Pattern, digits_at
from leveret.perf.connection import Connection, Inbox, set_up
from leveret.perf.deliveries import Run, Shape, Strides
from leveret.perf.ends import ConsumerEnd, PublisherEnd, Tally, count_run
from leveret.perf.errors import PerfError
from leveret.perf.pace import SECOND
from leveret.perf.plan import Plan
from leveret.perf.shares import SeenBy, body_of, cycle_of, source, subscription
from leveret.protocols.amqp10.codec import performatives as p
from leveret.protocols.amqp10.codec import wire
from leveret.protocols.amqp10.codec.errors import AmqpError
from leveret.protocols.amqp10.codec.types import DecodeError, Symbol, skip_at
from leveret.protocols.amqp10.codec.values import Described, Timestamp, ULong, Value
from leveret.protocols.amqp10.codec.writing import encode

HEADERS: Final[dict[Value, Value]] = dict(APPLICATION_HEADERS)
APPLICATION_PROPERTIES: Final = encode(Described(ULong(p.APPLICATION_PROPERTIES), HEADERS))
START: Final = wire.FRAME_START
UINT: Final = Struct(">I")
ACCEPTED: Final = wire.disposition_end(True, p.Accepted(), 1 << 20)
DATA: Final = b"\x00\x53\x75"
CREDIT_ENDLESS: Final = 1_000_000  # for --prefetch 0
WIDTHS: Final = {0x43: 0, 0x52: 1, 0x70: 4}  # of a uint, by its format code


# Publishing.


def address_of(plan: Plan, key: str) -> str:
    """Return the address for a routing key: version 2 of RabbitMQ's addresses, or 1 if queues have such."""
    if not plan.exchange:
        return plan.address.replace("%s", quote(key, safe=""))
    first = "/exchange" if plan.address.startswith("/amq/") else "/exchanges"
    return f"{first}/{quote(plan.exchange, safe='')}/{quote(key, safe='')}"


def transfer_pattern(plan: Plan, channel: int, message: bytes, size: int, frame_max: int) -> Pattern:
    """Return the frames of a whole message, of which the last `size` bytes are the body."""
    head = wire.TransferHead(channel, 0)
    ids_at = (4 + len(head.start), 4 + len(head.start) + UINT.size + 2)
    settled = not plan.confirms
    if head.size + len(message) <= frame_max:
        end = wire.SETTLED if settled else wire.UNSETTLED
        start = head.pack(head.size + len(message), head.start, 0, head.tag_begin, 0, end)
        body_at = len(start) + len(message) - size
        octets = start + message
        places = digits_at(octets[:body_at]) if plan.real else ()
        return Pattern(octets, body_at if plan.head else -1, ids_at, places)
    first = wire.frame(channel, head.body(0, settled, True))
    room = frame_max - len(first)
    octets = UINT.pack(len(first) + room) + first[4:] + message[:room]
    goes_on = len(wire.frame(channel, wire.continuation(0, True)))
    for at in range(room, len(message), frame_max - goes_on):
        piece = message[at : at + frame_max - goes_on]
        octets += wire.frame(channel, wire.continuation(0, at + len(piece) < len(message)) + piece)
    body_at = len(first) + len(message) - size
    places = digits_at(octets[:body_at]) if plan.real else ()
    return Pattern(octets, body_at if plan.head else -1, ids_at, places)


def message_of(plan: Plan, publisher: int, to: str | None, size: int) -> bytes:
    sections = p.Header(durable=True).encode() if plan.persistent else b""
    if plan.real:
        sections += p.Properties(
            message_id=f"m-{DIGITS}",
            to=to,
            correlation_id=DIGITS,
            content_type=Symbol("application/json"),
            creation_time=Timestamp(int(time.time() * 1000)),
        ).encode()
        sections += APPLICATION_PROPERTIES
    elif to is not None:
        sections += p.Properties(to=to).encode()
    length = bytes((0xA0, size)) if size < 256 else b"\xb0" + UINT.pack(size)
    return sections + DATA + length + body_of(plan, publisher, size)


class Transfers:
    """The numbers of transfers that a publisher's messages take, whose sizes repeat in a cycle."""

    def __init__(self, each: Sequence[int]) -> None:
        self._upto = [0, *accumulate(each)]

    def of(self, messages: int) -> int:
        cycles, rest = divmod(messages, len(self._upto) - 1)
        return cycles * self._upto[-1] + self._upto[rest]

    def messages_in(self, transfers: int) -> int:
        """Return how many whole messages fit into this many transfers."""
        cycles, rest = divmod(transfers, self._upto[-1])
        return cycles * (len(self._upto) - 1) + bisect_right(self._upto, rest) - 1


# Reading.


class Link:
    """State of a consumer's link: our channel, the first delivery id, and the credit granted to the broker."""

    __slots__ = ("channel", "first_id", "frames", "granted")

    def __init__(self, channel: int) -> None:
        self.channel = channel
        self.first_id = -1
        self.frames = 0
        self.granted = 0  # deliveries, in total


class Connection10(Connection):
    def __init__(self, talk: Setup10, inbox: Inbox, tally: Tally, credit: int) -> None:
        super().__init__(talk.socket, talk.buffer, inbox)
        self._tally = tally
        self._now = 0
        self._strides = Strides(self._shape_at, self._on_run)
        self._credit = credit
        self._idle_ns = talk.idle_ms * 1_000_000 // 2
        self._alive_ns = 0
        self.by_channel: dict[int, PublisherEnd] = {}  # publishers, by the broker's channel
        self.transfers: dict[int, Transfers] = {}  # the same
        self.links: dict[int, Link] = {}  # consumers, by the broker's channel

    def take(self, octets: bytearray, end: int, now: int) -> int:
        self._now = now
        return self._strides.take(octets, end)

    def keep_alive(self, now: int) -> None:
        if self._idle_ns and now >= self._alive_ns + min(self._idle_ns, SECOND):
            self._alive_ns = now
            self.say(wire.EMPTY_FRAME)

    def _on_run(self, run: Run) -> None:
        if len(self.links) == 1:
            (only,) = self.links.values()
            only.frames += run.count
        else:
            for channel, count in Counter(run.channels()).items():
                self.links[channel].frames += count
        count_run(run, self.subscriptions, self._tally, self._now)

    def acknowledge(self, channel: int, subscription: ConsumerEnd, at_least: int = 0) -> None:
        link = self.links[channel]
        count = subscription.to_acknowledge(at_least)
        if count:
            first = link.first_id + subscription.acknowledged - count
            step = 1 if self.single_acks else count
            self.say(
                b"".join(
                    wire.disposition_frame(
                        link.channel, True, at & wire.MASK, at + step - 1 & wire.MASK, ACCEPTED
                    )
                    for at in range(first, first + count, step)
                )
            )
        grant = subscription.handled + self._credit
        if grant - link.granted > self._credit // 2:
            link.granted = grant
            self.say(self._flow(link, subscription, grant - subscription.received))

    def _flow(self, link: Link, subscription: ConsumerEnd, credit: int) -> bytes:
        seen = subscription.received & wire.MASK
        return wire.link_flow(
            link.channel, link.frames & wire.MASK, WINDOW, 0, 0, seen, max(credit, 0), 0, False
        )

    def _shape_at(self, octets: bytearray, at: int, end: int) -> Shape | int:
        """Return the shape of a transfer, or the size of another frame, handled already; 0 if it is incomplete."""
        if at + wire.FRAME_OVERHEAD > end:
            return 0
        size: int
        size, offset, _, channel = START.unpack_from(octets, at)
        if at + size > end:
            return 0
        frame = bytes(octets[at : at + size])
        body = 4 * offset
        if frame.startswith(wire.TRANSFER, body):
            return self._transfer(frame, body, channel)
        if frame.startswith(wire.DISPOSITION, body):
            self._take_disposition(frame, body, channel)
        elif size > wire.FRAME_OVERHEAD:
            converted = _read(frame, body)[0]
            refuse(converted)
            if isinstance(converted, p.Flow):
                self._take_flow(converted, channel)
        return size

    def _transfer(self, frame: bytes, body: int, channel: int) -> Shape:
        transfer, payload = _read(frame, body)
        assert isinstance(transfer, p.Transfer)
        link = self.links[channel]
        if link.first_id < 0 and transfer.delivery_id is not None:
            link.first_id = transfer.delivery_id
        return transfer_shape(frame, body, transfer, len(frame) - len(payload))

    def _take_flow(self, flow: p.Flow, channel: int) -> None:
        sender = self.by_channel.get(channel)
        if sender is None:
            return
        room = (flow.next_incoming_id or 0) + flow.incoming_window
        transfers = self.transfers[channel]
        gone = transfers.of(sender.sent)
        sender.window_credit = transfers.messages_in(gone + wire.distance(room, gone & wire.MASK))
        if flow.handle is not None:
            granted = (flow.delivery_count or 0) + (flow.link_credit or 0)
            sender.link_credit = sender.sent + wire.distance(granted, sender.sent & wire.MASK)
        sender.credit = max(sender.sent, min(sender.window_credit, sender.link_credit))

    def _take_disposition(self, frame: bytes, body: int, channel: int) -> None:
        sender = self.by_channel.get(channel)
        found = wire.disposition_at(frame, body, len(frame))
        if found is None:
            converted = _read(frame, body)[0]
            assert isinstance(converted, p.Disposition)
            last = converted.first if converted.last is None else converted.last
            found = converted.first, last, converted.state, bool(converted.settled)
        assert found is not None
        first, last, state, settled = found
        if sender is not None and (settled or state is not None):
            begin = sender.low + wire.distance(first, sender.low & wire.MASK)
            end = begin + wire.distance(last, first)
            sender.settle_range(begin, end, isinstance(state, p.Accepted | None), self._now)


def _read(frame: bytes, body: int) -> tuple[p.Record, bytes]:
    try:
        return wire.performative_at(frame, body, len(frame))
    except (AmqpError, DecodeError) as wrong:
        raise PerfError(f"the broker's frames cannot be understood: {wrong}") from None


def transfer_shape(frame: bytes, body: int, transfer: p.Transfer, payload_at: int) -> Shape:
    """Return a transfer's shape: alike ones differ only in channel, delivery id, tag and body."""
    more = bool(transfer.more)
    if transfer.delivery_id is None:
        return Shape(len(frame), 6, 0, 0, (), whole=False, ends=not more)
    varies = {6, 7}
    at = body + (6 if frame[body + 3] == wire.LIST_8 else 12)
    at += 1 + WIDTHS.get(frame[at], 0)  # behind the handle
    width = WIDTHS.get(frame[at], 0)
    varies.update(range(at + 1, at + 1 + width))
    at += 1 + width
    if frame[at] == wire.BINARY:
        varies.update(range(at + 2, at + 2 + frame[at + 1]))
    body_at, size = body_in(frame, payload_at)
    checked = tuple(each for each in range(body_at or payload_at) if each not in varies)
    return Shape(len(frame), 6, body_at, size, checked, whole=not more, ends=not more)


def body_in(frame: bytes, at: int) -> tuple[int, int]:
    """Return where the first data section of a message has its bytes, and how many; zeros if it has none."""
    end = len(frame)
    try:
        while at < end:
            if frame.startswith(DATA, at):
                if frame[at + 3] == 0xA0:
                    return at + 5, frame[at + 4]
                return at + 8, UINT.unpack_from(frame, at + 4)[0]
            at = skip_at(frame, at, end)
    except (DecodeError, IndexError):
        pass
    return 0, 0


# Setting up.


def publishing(
    plan: Plan, numbers: Sequence[int], inbox: Inbox, tally: Tally, block_max: int
) -> Connection10:
    """Return a connection with these publishers, a session and a link for each."""
    sources = {}
    transfers = {}
    with set_up(Setup10(plan.url)) as talk:
        for number in numbers:
            channel = talk.begin()
            patterns = _attach_sender(plan, talk, channel, number)
            sources[channel] = made = source(plan, patterns, block_max, tally)
            made.credit = made.link_credit = 0
            transfers[channel] = Transfers([-(-len(each.octets) // talk.peer_frame_max) for each in patterns])
        connection = Connection10(talk, inbox, tally, 0)
    connection.by_channel = {theirs: sources[ours] for theirs, ours in talk.theirs.items()}
    connection.transfers = {theirs: transfers[ours] for theirs, ours in talk.theirs.items()}
    connection.sources = list(sources.values())
    return connection


def _attach_sender(plan: Plan, talk: Setup10, channel: int, number: int) -> list[Pattern]:
    """Attach a link to the publisher's only address, or to none if each message has its own. Return its messages."""
    keys = plan.keys_of(number)
    outcomes = [Symbol("amqp:accepted:list"), Symbol("amqp:rejected:list"), Symbol("amqp:released:list")]
    attach = p.Attach(
        name=f"perf-{number}",
        handle=0,
        role=p.ROLE_SENDER,
        snd_settle_mode=p.SENDER_SETTLE_MODE_UNSETTLED if plan.confirms else p.SENDER_SETTLE_MODE_SETTLED,
        source=p.Source(outcomes=outcomes),
        target=p.Target(address=address_of(plan, keys[0]) if len(keys) == 1 else None),
        initial_delivery_count=0,
    )
    talk.attach(channel, attach)
    patterns = []
    for key, size in cycle_of(plan, number):
        to = address_of(plan, key) if len(keys) > 1 else None
        message = message_of(plan, number, to, size)
        patterns.append(transfer_pattern(plan, channel, message, size, talk.peer_frame_max))
    return patterns


def consuming(plan: Plan, numbers: Sequence[int], inbox: Inbox, tally: Tally, seen: SeenBy) -> Connection10:
    """Return a connection with these consumers, a session and a link for each of their queues."""
    subscriptions: dict[int, ConsumerEnd] = {}
    with set_up(Setup10(plan.url)) as talk:
        for number in numbers:
            for queue in plan.queues_of(number, plan.consumers):
                channel = talk.begin()
                subscriptions[channel] = made = subscription(plan, queue, tally, seen)
                _attach_receiver(plan, talk, channel, f"perf-{number}-{queue}", made.queue)
        connection = Connection10(talk, inbox, tally, plan.prefetch or CREDIT_ENDLESS)
    for theirs, ours in talk.theirs.items():
        connection.links[theirs] = Link(ours)
        connection.subscriptions[theirs] = subscriptions[ours]
    connection.single_acks = plan.single_acks
    return connection


def _attach_receiver(plan: Plan, talk: Setup10, channel: int, name: str, queue: str) -> None:
    attach = p.Attach(
        name=name,
        handle=0,
        role=p.ROLE_RECEIVER,
        snd_settle_mode=p.SENDER_SETTLE_MODE_UNSETTLED if plan.ack_every else p.SENDER_SETTLE_MODE_SETTLED,
        source=p.Source(address=plan.address.replace("%s", quote(queue, safe=""))),
        target=p.Target(),
    )
    talk.attach(channel, attach)
