"""The fast path of AMQP 0-9-1 input, which splits bytes into whole messages, acks and other frames.

Nearly all traffic is publishes whose three frames lie whole in one read, and acks: `_take_frames` handles them in
straight code, with one call of the handler each and no other call of ours. Publishers repeat themselves: what follows a
message on its channel is gathered into a `Run` and handed over at once. There are three ways to gather it, as quick as
the messages allow: `_alike` where only the bodies differ, `_similar` where the properties do, too, and `_scattered`
where the methods do, as the routing key does for instance. Every other frame is passed on whole to `_take_frame`, also
the header and the body of a publish that a read cuts in two, so the fast path never waits: a publish is looked up by
the bytes of its whole frame, and either its content lies behind it or the channel is left expecting the header.
Incomplete input is kept in the pieces in which it came and joined once; of a large body's frame only the body is kept,
or it would be copied twice.
"""

from abc import abstractmethod
from struct import Struct
from typing import Final

from mypy_extensions import i64, mypyc_attr

from leveret.protocols.amqp091.codec.header_scan import size_at
from leveret.protocols.amqp091.codec.methods import (
    FRAME_BODY,
    FRAME_END,
    FRAME_HEADER,
    FRAME_HEARTBEAT,
    FRAME_METHOD,
)
from leveret.protocols.amqp091.codec.wire import (
    CLASS_BASIC,
    CONTENT_HEADER_SIZE,
    CONTENT_START,
    FRAME_OVERHEAD,
    FRAME_START,
    REPEATED_MAX,
    AmqpError,
)
from leveret.protocols.amqp091.machine.channel_input import (
    CONTENT_HEADER,
    FLAGS_SIZE,
    RESTS_MAX,
    ChannelInput,
    Expects,
)
from leveret.protocols.amqp091.machine.contract import PUBLISH_AROUND, Handler, Run, Traffic
from leveret.protocols.shared.machine.connection_machine import ConnectionMachine
from leveret.protocols.shared.machine.contract import Writer
from leveret.protocols.shared.machine.states import AWAITING_HEADER

KINDS: Final = frozenset((FRAME_METHOD, FRAME_HEADER, FRAME_BODY, FRAME_HEARTBEAT))
BASIC_PUBLISH: Final = b"\x00\x3c\x00\x28"
BASIC_ACK: Final = b"\x00\x3c\x00\x50"
ACK_START: Final = b"\x00\x00\x00\x0d" + BASIC_ACK  # the ack frame's size and method, behind kind and channel
ACK_FRAME_SIZE: Final = 21
ACK_HEAD_SIZE: Final = 11  # what the acks of a channel have in common
METHOD: Final = Expects.METHOD  # a name of the module is found at once, a member of an Enum is looked up
HEADER: Final = Expects.HEADER
QUICK_CONTENT: Final = Struct(">BHIIQ")  # CONTENT_START with class and weight in one
BASIC: Final = CLASS_BASIC << 16  # class 60, weight 0 in QUICK_CONTENT
BASIC_START: Final = CONTENT_HEADER.pack(CLASS_BASIC, 0, 0)[:8]  # with a size of less than 4 GiB
START_SIZE: Final = CONTENT_START.size
HEADER_MIN: Final = CONTENT_HEADER_SIZE + FLAGS_SIZE
SIZE_AT: Final = 16  # in a header frame: the last three bytes of the body's size
SIZE_OCTETS: Final = 3
METHOD_KIND: Final = bytes([FRAME_METHOD])
SAME_MAX: Final = 4  # messages in a row with the same publish, after the first, before they are a run
TRIES_MAX: Final = 2  # calls in a row that take nothing of a run, before the rest of it comes one by one
LARGE: Final = 16_384  # bytes of a body in one frame; to join less is quicker than to treat it on its own


@mypyc_attr(allow_interpreted_subclasses=True)
class Reader(ConnectionMachine):
    """A connection's splitter of input. Its abstract methods are the rest of the machine.

    A few bytes can ask for megabytes (basic.get) and for thousands of copies (a fan-out). Therefore the reader halts in
    the middle of its input while too much waits for the peer, and when the handler has set `halted` to give other
    connections a turn. It continues when it is called again, with no bytes at all.
    """

    __slots__ = (
        "_body_of",
        "_channels",
        "_missing",
        "_payload_max",
        "_publishing",
        "_whole_body_max",
        "again",
        "handler",
        "traffic",
    )

    def __init__(
        self,
        handler: Handler,
        traffic: Traffic,
        payload_max: int,
        outbox: Writer,
        now: float,
        handshake_timeout_s: float,
    ) -> None:
        super().__init__(AWAITING_HEADER, outbox, now, handshake_timeout_s)
        self.handler = handler
        self.traffic = traffic
        self._channels: dict[int, ChannelInput] = {}
        # The channel of the last publish, if it expects a method.
        self._publishing: ChannelInput | None = None
        self._payload_max = payload_max
        self._whole_body_max = 0  # of a body in one frame
        self._missing = 0  # bytes that are missing of a frame with a large body, whose beginning is the tail
        self._body_of = 0  # its channel
        self.again = False  # set by the handler: the frame that it is handling comes again, after a halt

    @abstractmethod
    def _take_greeting(self, data: bytes) -> int:
        """Read the protocol header if it has not been read; return the offset where the frames begin."""

    @abstractmethod
    def _take_frame(self, kind: int, number: int, data: bytes, at: int, end: int) -> None:
        """Handle one frame, whose payload is `data[at:end]`, in any state. Raises no AmqpError."""

    @abstractmethod
    def _refuse(self, number: int, error: AmqpError, method: bytes) -> None:
        """End the channel or connection for this error of the method with these encoded numbers. Raises no
        AmqpError."""

    @abstractmethod
    def _lose_framing(self, kind: int, number: int, size: int) -> None:
        """End the connection for a wrong frame, because the beginning of the next one is unknown."""

    def _take(self, data: bytes) -> None:
        self.halted = False
        start = 0
        if self._missing:
            start = self._take_missing(data)
        elif self._tail:
            data = self._joined(data)
            if not data:
                return
            self._tail = []
        if self._missing:
            return
        self._needed = FRAME_OVERHEAD
        rest = data[self._take_frames(data, start or self._take_greeting(data)) :]
        if not self._missing:
            self._tail = [rest] if rest else []
            self._tail_size = len(rest)

    def _begin_body(self, number: int, data: bytes, at: int, missing: int) -> None:
        """Begin a large body of which `data[at:]` is here; `missing` bytes are not, including the frame end."""
        self._body_of, self._missing = number, missing
        self._tail = [data[at:]]
        self._tail_size = len(data) - at

    def _take_missing(self, data: bytes) -> int:
        """Add to a large body; return the offset after its frame."""
        after = self._missing
        if after > len(data):
            self._keep(data)
            self._missing -= len(data)
            return len(data)
        body = b"".join((*self._tail, memoryview(data)[: after - 1]))
        self._missing, self._tail, self._tail_size = 0, [], 0
        if data[after - 1] != FRAME_END:
            self._lose_framing(FRAME_BODY, self._body_of, len(body))
            return len(data)
        self._take_frame(FRAME_BODY, self._body_of, body, 0, len(body))
        self.halted = self.halted or self._is_enough()
        return after

    def _take_frames(self, data: bytes, at: int) -> int:
        """Handle every whole frame from `at` on, until halted; return the offset of the first frame that is left."""
        end = len(data)
        goes_on = False  # a whole message came before: others may follow
        while at + FRAME_OVERHEAD <= end and not self.halted:
            channel = self._publishing
            if channel is not None and data[at : at + len(channel.publish_frame)] == channel.publish_frame:
                if channel.alike:
                    run, after = self._alike(channel, data, at)
                    if run.bodies:
                        at = self._hand_over(channel, run, data, after)
                        continue
                at += len(channel.publish_frame)
            else:
                start = at
                kind, number = data[at], data[at + 1] << 8 | data[at + 2]
                size = data[at + 3] << 24 | data[at + 4] << 16 | data[at + 5] << 8 | data[at + 6]
                after = at + FRAME_OVERHEAD + size
                if (
                    size > self._payload_max
                    or kind not in KINDS
                    or (after <= end and data[after - 1] != FRAME_END)
                ):
                    self._lose_framing(kind, number, size)
                    return end
                if after > end:
                    if kind == FRAME_BODY and size >= LARGE and end > start + 7:
                        self._begin_body(number, data, start + 7, after - end)
                        return end
                    self._needed = FRAME_OVERHEAD + size
                    return at
                channel = self._channels.get(number)
                quick = kind == FRAME_METHOD and channel is not None and channel.expects is METHOD
                if quick and data[start + 3 : start + 11] == ACK_START:
                    try:
                        if data[after : after + ACK_HEAD_SIZE] == data[start : start + ACK_HEAD_SIZE]:
                            tags, at = single_acks(data, start)
                            if tags:
                                self.traffic.on_acks(number, tags)
                                continue
                        at = after
                        tag = int.from_bytes(data[start + ACK_HEAD_SIZE : start + 19], "big")
                        self.traffic.on_ack(number, tag, data[start + 19] & 1 == 1)
                    except AmqpError as error:
                        self._refuse(number, error, BASIC_ACK)
                    continue
                at = after
                if not quick or channel is None or data[start + 7 : start + 11] != BASIC_PUBLISH:
                    self._take_frame(kind, number, data, start + 7, after - 1)
                    self.halted = self.halted or self._is_enough()
                    if self.again:
                        self.again, self.halted, at = False, True, start
                    continue
                self._publishing = channel
                if data[start:after] != channel.publish_frame:
                    if goes_on:
                        run, end_of_run = self._scattered(channel, data, start)
                        if run.bodies:
                            at = self._hand_over(channel, run, data, end_of_run)
                            continue
                    channel.publish_frame = data[start:after]
                    channel.publish = data[start + 11 : after - 1]
                    channel.alike = channel.repeated = b""
            after = self._take_content(channel, data, at)
            if after:
                at, goes_on = after, True
            else:
                channel.expects = HEADER
                self._publishing = None
        return at

    def _take_content(self, channel: ChannelInput, data: bytes, at: int) -> int:
        """Handle the message of a publish on a channel, if its content lies at `at` in one header and one body, and
        those behind it that have properties of their own; return the offset of the rest, or 0 if it does not."""
        end = len(data)
        if at + CONTENT_START.size >= end:
            return 0
        kind, number, size, class_and_weight, body_size = QUICK_CONTENT.unpack_from(data, at)
        body_at = at + FRAME_OVERHEAD + size + 7
        body_end = body_at + body_size
        if not (
            (kind == FRAME_HEADER and number == channel.number and class_and_weight == BASIC)
            and (HEADER_MIN <= size <= self._payload_max and 0 < body_size <= self._whole_body_max)
            and (body_end < end and data[body_at - 8] == FRAME_END and data[body_end] == FRAME_END)
            and FRAME_START.unpack_from(data, body_at - 7) == (FRAME_BODY, number, body_size)
        ):
            return 0
        properties = data[at + CONTENT_START.size : body_at - 8]
        after: int = body_end + 1
        if properties != channel.repeated:
            channel.alike = b""
            channel.repeated = properties if len(properties) <= REPEATED_MAX else b""
            header = after + len(channel.publish_frame)
            if data[after:header] == channel.publish_frame and (
                data[header + START_SIZE : header + START_SIZE + len(properties)] != properties
            ):
                run, after = self._similar(channel, data, after, properties, data[body_at:body_end])
                return self._hand_over(channel, run, data, after)
        else:
            properties = channel.repeated
            if not channel.alike and body_size < 1 << 8 * SIZE_OCTETS:
                channel.alike = channel.publish_frame + data[at : at + SIZE_AT]
                channel.joint = data[at + SIZE_AT + SIZE_OCTETS : body_at - SIZE_OCTETS]
        self.published += 1
        try:
            self.traffic.on_publish(number, channel.publish, properties, data[body_at:body_end])
        except AmqpError as error:
            self._refuse(number, error, BASIC_PUBLISH)
        return after

    def _hand_over(self, channel: ChannelInput, run: Run, data: bytes, end: int) -> int:
        """Handle the messages of a run, which ends at the offset `end`; return the offset of the rest.

        What can be taken together is; each of the others comes by itself, and may end the channel. Where nothing of a
        run could be, as for a queue that is full, that is tried less and less often.
        """
        number, size = channel.number, len(run.bodies)
        taken = together = 0
        tries = 0 if channel.rests else TRIES_MAX
        is_tried = False
        while taken < size and self._publishing is channel and not self.halted:
            if tries and size - taken > 1:
                more = self.traffic.on_run(number, run, taken)
                self.published += more
                is_tried = True
                tries = TRIES_MAX if more else tries - 1
                together += more
                taken += more
                if taken == size or self.halted:
                    break
            at = taken if run.differ else 0
            taken += 1
            self.published += 1
            try:
                self.traffic.on_publish(number, run.publishes[at], run.properties[at], run.bodies[taken - 1])
            except AmqpError as error:
                self._refuse(number, error, BASIC_PUBLISH)
        if together:
            channel.rests_next = 1
        elif is_tried:
            channel.rests, channel.rests_next = channel.rests_next, min(2 * channel.rests_next, RESTS_MAX)
        elif channel.rests:
            channel.rests -= 1
        after = end if taken == size else end - run.octets(taken)
        if run.differ and taken:
            publish, last = run.publishes[taken - 1], run.properties[taken - 1]
            if publish is not channel.publish:
                begin = end - run.octets(taken - 1)
                channel.publish = publish
                channel.publish_frame = data[begin : begin + len(publish) + PUBLISH_AROUND]
            channel.alike = b""
            channel.repeated = last if len(last) <= REPEATED_MAX else b""
        return after

    def _similar(
        self, channel: ChannelInput, data: bytes, at: int, properties: bytes, body: bytes
    ) -> tuple[Run, int]:
        """Return a message and the whole messages from `at` on that have its publish and properties of their own; and
        the offset after them.

        A message with the same properties as the one before is not among them: `_alike` is quicker with these.
        """
        several, bodies = [properties], [body]
        start: i64 = at
        end: i64 = len(data)
        publish = channel.publish_frame
        to_header: i64 = len(publish)
        head = channel.header_head
        size_max: i64 = self._whole_body_max
        payload_max: i64 = self._payload_max
        last = several[0]
        while start + to_header + 26 < end and data[start : start + to_header] == publish:
            header = start + to_header
            if data[header : header + 3] != head or data[header + 7 : header + 15] != BASIC_START:
                break
            size: i64 = size_at(data, header + 3)
            body_size: i64 = size_at(data, header + 15)
            body_at = header + size + 15
            body_end = body_at + body_size
            if (
                (size < HEADER_MIN or size > payload_max or body_size <= 0 or body_size > size_max)
                or (body_end >= end or data[body_at - 8] != FRAME_END or data[body_end] != FRAME_END)
                or (data[body_at - 7] != FRAME_BODY or data[body_at - 6 : body_at - 4] != head[1:])
                or data[body_at - 4 : body_at] != data[header + 15 : header + 19]
            ):
                break
            properties = data[header + 19 : body_at - 8]
            if properties == last:
                break
            several.append(properties)
            bodies.append(data[body_at:body_end])
            start = body_end + 1
            last = properties
        return Run([channel.publish] * len(bodies), several, bodies, differ=True), int(start)

    def _scattered(self, channel: ChannelInput, data: bytes, at: int) -> tuple[Run, int]:
        """Return the whole messages of a channel from `at` on, whatever differs in them, and the offset after them.

        Messages whose publish has been the same for a while end it: `_similar` and `_alike` are quicker.
        """
        publishes: list[bytes] = []
        several: list[bytes] = []
        bodies: list[bytes] = []
        start: i64 = at
        end: i64 = len(data)
        head = channel.header_head
        method_head = METHOD_KIND + head[1:]
        size_max: i64 = self._whole_body_max
        payload_max: i64 = self._payload_max
        last = b""
        same = 0
        while (
            start + PUBLISH_AROUND + 26 < end
            and data[start : start + 3] == method_head
            and data[start + 7 : start + 11] == BASIC_PUBLISH
        ):
            if data[start + 3] or data[start + 4]:
                break  # longer than exchange and key can be
            upper: i64 = data[start + 5]
            lower: i64 = data[start + 6]
            publish_size = upper << 8 | lower
            header = start + publish_size + FRAME_OVERHEAD
            if publish_size > payload_max or header + 26 >= end or data[header - 1] != FRAME_END:
                break
            if data[header : header + 3] != head or data[header + 7 : header + 15] != BASIC_START:
                break
            if data[header + 3] or data[header + 15]:
                break  # larger than any frame is here
            high: i64 = data[header + 4]
            middle: i64 = data[header + 5]
            low: i64 = data[header + 6]
            size = high << 16 | middle << 8 | low
            high = data[header + 16]
            middle = data[header + 17]
            low = data[header + 18]
            body_size = high << 16 | middle << 8 | low
            body_at = header + size + 15
            body_end = body_at + body_size
            if (
                (size < HEADER_MIN or size > payload_max or body_size <= 0 or body_size > size_max)
                or (body_end >= end or data[body_at - 8] != FRAME_END or data[body_end] != FRAME_END)
                or (data[body_at - 7] != FRAME_BODY or data[body_at - 6 : body_at - 4] != head[1:])
                or data[body_at - 4 : body_at] != data[header + 15 : header + 19]
            ):
                break
            publish = data[start + 11 : header - 1]
            if publish != last:
                last = publish
                same = 0
            else:
                same += 1
                if same == SAME_MAX:
                    break
            publishes.append(last)
            several.append(data[header + 19 : body_at - 8])
            bodies.append(data[body_at:body_end])
            start = body_end + 1
        return Run(publishes, several, bodies, differ=True), int(start)

    def _alike(self, channel: ChannelInput, data: bytes, at: int) -> tuple[Run, int]:
        """Return the whole messages from `at` on that differ from the last in their bodies only, and the offset after
        them.

        A byte that differs elsewhere, or an incomplete body, ends the run: `_take_frames` handles it as it would have
        without. The higher bytes of the size, which occurs twice, are zero: they belong to `alike` and `joint`.
        """
        bodies: list[bytes] = []
        start: i64 = at
        end: i64 = len(data)
        alike, joint = channel.alike, channel.joint
        to_size: i64 = len(alike)
        to_body: i64 = to_size + len(joint) + 2 * SIZE_OCTETS
        size_max: i64 = self._whole_body_max
        while True:
            size_at = start + to_size
            body_at = start + to_body
            if (
                body_at >= end
                or data[start:size_at] != alike
                or data[size_at + SIZE_OCTETS : body_at - SIZE_OCTETS] != joint
            ):
                break
            high, middle, low = data[size_at], data[size_at + 1], data[size_at + 2]
            size = high << 16 | middle << 8 | low
            body_end = body_at + size
            if (body_end >= end or data[body_end] != FRAME_END or not 0 < size <= size_max) or (
                data[body_at - 3] != high or data[body_at - 2] != middle or data[body_at - 1] != low
            ):
                break
            bodies.append(data[body_at:body_end])
            start = body_end + 1
        return Run([channel.publish], [channel.repeated], bodies, differ=False), int(start)


def single_acks(data: bytes, at: int) -> tuple[list[int], int]:
    """Return the tags of the acks from `at` on, all of one channel and each for one delivery, and the offset after
    them."""
    tags: list[int] = []
    start: i64 = at
    end: i64 = len(data)
    to_low: i64 = ACK_HEAD_SIZE + 4
    head = data[at : at + ACK_HEAD_SIZE + 4]  # with the higher half of the tag
    high = int.from_bytes(head[ACK_HEAD_SIZE:], "big") << 32
    while (
        start + ACK_FRAME_SIZE <= end
        and data[start : start + to_low] == head
        and data[start + 19] & 1 == 0
        and data[start + 20] == FRAME_END
    ):
        upper: i64 = data[start + 15]
        middle: i64 = data[start + 16]
        lower: i64 = data[start + 17]
        lowest: i64 = data[start + 18]
        low: i64 = upper << 24 | middle << 16 | lower << 8 | lowest
        tags.append(high | int(low))
        start += ACK_FRAME_SIZE
    return tags, int(start)
