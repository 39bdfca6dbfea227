"""Set up AMQP 0-9-1 connections, send blocks of publishes, and read deliveries, confirms and returns."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from struct import Struct, error
from typing import Final

from leveret.perf.block import APPLICATION_HEADERS, DIGITS, Pattern, digits_at
from leveret.perf.connection import Connection, Inbox, set_up
from leveret.perf.deliveries import Run, Shape, Strides
from leveret.perf.dial import connected, heard
from leveret.perf.ends import ConsumerEnd, PublisherEnd, Tally, count_run
from leveret.perf.errors import REFUSED, UNREACHABLE, PerfError
from leveret.perf.plan import Plan, Url
from leveret.perf.shares import SeenBy, body_of, cycle_of, source, subscription
from leveret.protocols.amqp091.codec import methods as m
from leveret.protocols.amqp091.codec import wire
from leveret.protocols.amqp091.codec.wire import BasicProperties, Method

HEADER: Final = b"AMQP\x00\x00\x09\x01"
FRAME: Final = wire.FRAME_START
OVERHEAD: Final = wire.FRAME_OVERHEAD
BASIC_DELIVER: Final = b"\x00\x3c\x00\x3c"
BASIC_ACK: Final = b"\x00\x3c\x00\x50"
BASIC_NACK: Final = b"\x00\x3c\x00\x78"
TAG_AND_MULTIPLE: Final = Struct(">Q?")
TAG_AND_BITS: Final = Struct(">QB")
ACK: Final = Struct(">BHI4sQBB")  # a whole frame of basic.ack
FRAME_MAX: Final = 131072
PRODUCT: Final = "leveret perf"


class Setup091:
    """A connection that sends a method and waits for its answer, to set things up. Raises PerfError."""

    def __init__(self, url: Url) -> None:
        self.socket = connected(url)
        self.buffer = b""
        self.channels = 0
        try:
            self._log_in(url)
        except BaseException:
            self.socket.close()
            raise

    def _log_in(self, url: Url) -> None:
        self.socket.sendall(HEADER)
        self.expect(m.ConnectionStart)
        capabilities: wire.FieldTable = {
            "authentication_failure_close": True,
            "consumer_cancel_notify": True,
            "publisher_confirms": True,
            "basic.nack": True,
        }
        login = f"\0{url.user}\0{url.password}".encode()
        about: wire.FieldTable = {"product": PRODUCT, "capabilities": capabilities}
        self.send(0, m.ConnectionStartOk(about, "PLAIN", login, "en_US"))
        try:
            tune = self.expect(m.ConnectionTune)
        except PerfError as refused:
            raise PerfError(f"{url} does not let us in: {refused.text}", UNREACHABLE) from None
        assert isinstance(tune, m.ConnectionTune)
        self.frame_max = min(tune.frame_max or FRAME_MAX, FRAME_MAX)
        self.channel_max = tune.channel_max or 65535
        self.send(0, m.ConnectionTuneOk(tune.channel_max, self.frame_max, 0))
        self.send(0, m.ConnectionOpen(url.vhost))
        try:
            self.expect(m.ConnectionOpenOk)
        except PerfError as refused:
            raise PerfError(f"{url} does not open '{url.vhost}': {refused.text}", UNREACHABLE) from None

    def open_channel(self) -> int:
        self.channels += 1
        if self.channels > self.channel_max:
            raise PerfError(
                f"a connection has at most {self.channel_max} channels here: use more connections"
            )
        self.call(m.ChannelOpen(), m.ChannelOpenOk, self.channels)
        return self.channels

    def send(self, channel: int, method: Method) -> None:
        self.socket.sendall(wire.method_frame(channel, method.encode()))

    def call(self, method: Method, answer: type[Method], channel: int = 1) -> Method:
        self.send(channel, method)
        return self.expect(answer)

    def expect(self, kind: type[Method]) -> Method:
        """Return the next answer of this kind. Raises PerfError if a channel or the connection is closed instead."""
        while True:
            size = FRAME.unpack_from(self.buffer)[2] if len(self.buffer) >= OVERHEAD else 0
            if self.buffer[:4] == b"AMQP":
                raise PerfError("this is no AMQP 0-9-1 broker", UNREACHABLE)
            if size and len(self.buffer) >= size + OVERHEAD:
                is_method = self.buffer[0] == m.FRAME_METHOD
                frame, self.buffer = self.buffer[: size + OVERHEAD], self.buffer[size + OVERHEAD :]
                if not is_method:
                    continue
                method = wire.method_at(frame, 7, 7 + size)
                if isinstance(method, kind):
                    return method
                if isinstance(method, m.ConnectionClose | m.ChannelClose):
                    raise Closed(method.reply_code, method.reply_text)
                continue
            self.buffer += heard(self.socket)

    def close(self) -> None:
        with contextlib.suppress(PerfError, OSError):
            self.call(m.ConnectionClose(200, "done"), m.ConnectionCloseOk, 0)
        self.socket.close()


class Closed(PerfError):  # noqa: N818 - an event
    """Raised when the broker has closed a channel or the connection."""

    def __init__(self, reply_code: int, text: str) -> None:
        super().__init__(f"{reply_code} {text}" if text[:1].islower() else text, REFUSED)
        self.reply_code = reply_code


# Publishing.


def publish_pattern(plan: Plan, channel: int, publisher: int, key: str, size: int, frame_max: int) -> Pattern:
    body = body_of(plan, publisher, size)
    method = m.BasicPublish(plan.exchange, key, mandatory=plan.mandatory).encode()
    properties = properties_of(plan).encode()
    frames: list[bytes] = []
    wire.append_content(frames, channel, method, properties, body, frame_max)
    start = len(wire.method_frame(channel, method)) + wire.CONTENT_START.size + len(properties) + 1 + 7
    octets = b"".join(frames)
    places = digits_at(octets[:start]) if plan.real else ()
    return Pattern(octets, start if plan.head else -1, digits_at=places)


def properties_of(plan: Plan) -> BasicProperties:
    """Return the properties of messages; where `plan.real`, the number of each is to be written into them."""
    mode = 2 if plan.persistent else 1
    if not plan.real:
        return BasicProperties(delivery_mode=mode)
    return BasicProperties(
        content_type="application/json",
        headers=dict(APPLICATION_HEADERS),
        delivery_mode=mode,
        correlation_id=DIGITS,
        message_id=f"m-{DIGITS}",
        timestamp=int(time.time()),
    )


# Reading.


class Connection091(Connection):
    def __init__(self, talk: Setup091, inbox: Inbox, tally: Tally) -> None:
        super().__init__(talk.socket, talk.buffer, inbox)
        self._tally = tally
        self._now = 0
        self._strides = Strides(self._shape_at, self._on_run)
        self.by_channel: dict[int, PublisherEnd] = {}  # publishers

    def take(self, octets: bytearray, end: int, now: int) -> int:
        self._now = now
        return self._strides.take(octets, end)

    def _on_run(self, run: Run) -> None:
        count_run(run, self.subscriptions, self._tally, self._now)

    def acknowledge(self, channel: int, subscription: ConsumerEnd, at_least: int = 0) -> None:
        count, last = subscription.to_acknowledge(at_least), subscription.acknowledged
        if count and not self.single_acks:
            self.say(ACK.pack(m.FRAME_METHOD, channel, 13, BASIC_ACK, last, 1, m.FRAME_END))
        elif count:
            tags = range(last - count + 1, last + 1)
            acks = [ACK.pack(m.FRAME_METHOD, channel, 13, BASIC_ACK, tag, 0, m.FRAME_END) for tag in tags]
            self.say(b"".join(acks))

    def _shape_at(self, octets: bytearray, at: int, end: int) -> Shape | int:
        """Return the shape of a delivery, or the size of another frame, handled already; 0 if it is incomplete."""
        if at + OVERHEAD > end:
            return 0
        kind: int
        channel: int
        size: int
        kind, channel, size = FRAME.unpack_from(octets, at)
        after = at + size + OVERHEAD
        if after > end:
            return 0
        if kind != m.FRAME_METHOD:
            self._take_content(kind)
            return size + OVERHEAD
        method = octets[at + 7 : at + 11]
        if method == BASIC_DELIVER:
            return delivery_shape(octets, at, end)
        if method == BASIC_ACK:
            tag, multiple = TAG_AND_MULTIPLE.unpack_from(octets, at + 11)
            self.by_channel[channel].confirm(tag, multiple, self._now)
        elif method == BASIC_NACK:
            tag, bits = TAG_AND_BITS.unpack_from(octets, at + 11)
            self.by_channel[channel].refuse(tag, bits & 1 == 1, self._now)
        else:
            self._take_method(wire.method_at(bytes(octets[at + 7 : after - 1]), 0, size))
        return size + OVERHEAD

    def _take_content(self, kind: int) -> None:
        """Ignore content of returned messages, and heartbeats. Raises PerfError for other frames."""
        if kind not in (m.FRAME_HEADER, m.FRAME_BODY, m.FRAME_HEARTBEAT):
            raise PerfError("the broker's frames cannot be understood")

    def _take_method(self, method: Method) -> None:
        if isinstance(method, m.BasicReturn):
            self._tally.returned += 1
        elif isinstance(method, m.ConnectionClose | m.ChannelClose):
            raise Closed(method.reply_code, method.reply_text)
        elif isinstance(method, m.BasicConsumeOk):
            self.unanswered -= 1
        elif isinstance(method, m.BasicCancel):
            raise PerfError(f"the broker has cancelled the consumer '{method.consumer_tag}'")


def delivery_shape(octets: bytearray, at: int, end: int) -> Shape | int:
    """Return the shape of the delivery at `at`: method, header and body; 0 if it is incomplete. Raises PerfError."""
    try:
        _, channel, size = FRAME.unpack_from(octets, at)
        header = size + OVERHEAD
        kind, channel_2, header_size, _, _, body_size = wire.CONTENT_START.unpack_from(octets, at + header)
        body = header + header_size + OVERHEAD
        if at + body > end:
            return 0
        if kind != m.FRAME_HEADER or channel_2 != channel:
            raise PerfError("frames of several messages are mixed, which is not understood")
        checked = [0, 3, 4, 5, 6, 8, 10, header - 1, header, header + 5, header + 6]
        checked += [*range(header + 14, header + 19), body - 1]
        last, left = body, body_size
        while left > 0:
            if at + last + 7 > end:
                return 0
            kind, _, size = FRAME.unpack_from(octets, at + last)
            if kind != m.FRAME_BODY or not 0 < size <= left:
                raise PerfError("frames of several messages are mixed, which is not understood")
            checked += [last, last + 4, last + 5, last + 6, last + size + 7]
            last += size + OVERHEAD
            left -= size
    except error:
        return 0
    if at + last > end:
        return 0
    return Shape(last, 1, body + 7, body_size, tuple(checked))


def publishing(
    plan: Plan, numbers: Sequence[int], inbox: Inbox, tally: Tally, block_max: int
) -> Connection091:
    """Return a connection with these publishers, a channel for each."""
    sources = {}
    with set_up(Setup091(plan.url)) as talk:
        for number in numbers:
            channel = talk.open_channel()
            if plan.confirms:
                talk.call(m.ConfirmSelect(), m.ConfirmSelectOk, channel)
            patterns = [
                publish_pattern(plan, channel, number, key, size, talk.frame_max)
                for key, size in cycle_of(plan, number)
            ]
            sources[channel] = source(plan, patterns, block_max, tally)
        made = Connection091(talk, inbox, tally)
    made.by_channel = sources
    made.sources = list(sources.values())
    return made


def consuming(plan: Plan, numbers: Sequence[int], inbox: Inbox, tally: Tally, seen: SeenBy) -> Connection091:
    """Return a connection with these consumers, a channel for each of their queues."""
    subscriptions = {}
    with set_up(Setup091(plan.url)) as talk:
        for number in numbers:
            for queue in plan.queues_of(number, plan.consumers):
                channel = talk.open_channel()
                if plan.ack_every and plan.prefetch:
                    talk.call(m.BasicQos(0, plan.prefetch), m.BasicQosOk, channel)
                subscriptions[channel] = subscription(plan, queue, tally, seen)
        arguments: wire.FieldTable = {"x-stream-offset": "next"} if plan.is_stream else {}
        for (
            channel,
            each,
        ) in subscriptions.items():  # from here on messages may come: the connection takes them
            tag, no_ack = f"perf-{channel:05d}", not plan.ack_every
            talk.send(channel, m.BasicConsume(each.queue, tag, no_ack=no_ack, arguments=arguments))
        made = Connection091(talk, inbox, tally)
    made.subscriptions = subscriptions
    made.single_acks = plan.single_acks
    made.unanswered = len(subscriptions)
    return made
