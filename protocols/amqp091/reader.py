"""The quick corner of AMQP 0-9-1: bytes as they come in, whole messages, acks and other frames out.

Nearly all traffic is publishes whose three frames lie whole in one read, and acks: `_take_frames` handles them in
straight code, with one call of the handler each and no other call of ours. Every other frame is passed on whole to
`_take_frame`, also the header and the body of a publish that a read cuts in two, so the quick way never waits: a
publish is looked up by the octets of its whole frame, and either its content lies behind it or the channel is left
expecting the header. What is incomplete is kept in the pieces it came in and joined once.
"""

from abc import ABC, abstractmethod
from struct import Struct
from typing import Final

from mypy_extensions import mypyc_attr

from protocols.amqp091.assembly import FLAGS_SIZE, Channel, Expects
from protocols.amqp091.contract import Handler
from protocols.amqp091.methods import FRAME_BODY, FRAME_END, FRAME_HEADER, FRAME_HEARTBEAT, FRAME_METHOD
from protocols.amqp091.wire import (
    CLASS_BASIC,
    CONTENT_HEADER_SIZE,
    CONTENT_START,
    FRAME_OVERHEAD,
    FRAME_START,
    AmqpError,
)
from protocols.pieces import keep

KINDS: Final = frozenset((FRAME_METHOD, FRAME_HEADER, FRAME_BODY, FRAME_HEARTBEAT))
BASIC_PUBLISH: Final = b"\x00\x3c\x00\x28"
BASIC_ACK: Final = b"\x00\x3c\x00\x50"
ACK_SIZE: Final = 13
TAG_AND_BITS: Final = Struct(">QB")
QUICK_CONTENT: Final = Struct(">BHIIQ")  # CONTENT_START with class and weight in one
BASIC: Final = CLASS_BASIC << 16  # and that one: class 60, weight 0
HEADER_MIN: Final = CONTENT_HEADER_SIZE + FLAGS_SIZE


@mypyc_attr(allow_interpreted_subclasses=True)
class Reader(ABC):
    """Takes what comes apart. The five abstract methods are the machine around it.

    A few octets can ask for megabytes (basic.get) and for thousands of copies (a fan-out). So it halts, in the middle
    of what it was given, while too much waits for the peer, and when the handler has set `halted`, to let others have
    a turn. Taking no octets at all lets it go on.
    """

    __slots__ = (
        "_channels",
        "_needed",
        "_payload_max",
        "_publishing",
        "_tail",
        "_tail_size",
        "_whole_body_max",
        "halted",
        "handler",
    )

    def __init__(self, handler: Handler, payload_max: int) -> None:
        self.handler = handler
        self._channels: dict[int, Channel] = {}
        self._publishing: Channel | None = None  # the channel of the last publish, if it expects a method
        self._payload_max = payload_max
        self._whole_body_max = 0  # of a body in one frame
        self._tail: list[
            bytes
        ] = []  # the beginning of something `_needed` octets long, in the pieces that came
        self._tail_size = 0
        self._needed = 0
        self.halted = False

    @abstractmethod
    def _is_full(self) -> bool:
        """Whether to halt: too much waits for the peer."""

    @abstractmethod
    def _take_greeting(self, data: bytes) -> int:
        """Read the protocol header if it has not been read; answer where the frames begin."""

    @abstractmethod
    def _take_frame(self, kind: int, number: int, data: bytes, at: int, end: int) -> None:
        """Handle one frame, whose payload is `data[at:end]`, at whatever state we are in. Raises no AmqpError."""

    @abstractmethod
    def _refuse(self, number: int, error: AmqpError, method: bytes) -> None:
        """End what the error ends, naming the method that failed by its encoded numbers. Raises no AmqpError."""

    @abstractmethod
    def _lose_framing(self, kind: int, number: int, size: int) -> None:
        """Say what is wrong with a frame and be done: where the next one begins is not known any more."""

    def _take(self, data: bytes) -> None:
        self.halted = False
        if self._tail:
            keep(self._tail, data)
            self._tail_size += len(data)
            if self._tail_size < self._needed:
                return
            data = b"".join(self._tail)
        self._needed = FRAME_OVERHEAD
        rest = data[self._take_frames(data, self._take_greeting(data)) :]
        self._tail = [rest] if rest else []
        self._tail_size = len(rest)

    def _keep(self, data: bytes) -> None:
        """It is not its turn yet; `_take(b"")` goes on with it."""
        if data:
            keep(self._tail, data)
            self._tail_size += len(data)

    def _take_frames(self, data: bytes, at: int) -> int:
        """Handle every whole frame from `at` on, until halted; answer where the first one that is left begins."""
        end = len(data)
        handler = self.handler
        while at + FRAME_OVERHEAD <= end and not self.halted:
            channel = self._publishing
            if channel is not None and data.startswith(channel.publish_frame, at):
                at += len(channel.publish_frame)
            else:
                kind, number, size = FRAME_START.unpack_from(data, at)
                start, after = at, at + FRAME_OVERHEAD + size
                if (
                    size > self._payload_max
                    or kind not in KINDS
                    or (after <= end and data[after - 1] != FRAME_END)
                ):
                    self._lose_framing(kind, number, size)
                    return end
                if after > end:
                    self._needed = FRAME_OVERHEAD + size
                    return at
                at = after
                channel = self._channels.get(number)
                quick = kind == FRAME_METHOD and channel is not None and channel.expects is Expects.METHOD
                if quick and size == ACK_SIZE and data.startswith(BASIC_ACK, start + 7):
                    tag, bits = TAG_AND_BITS.unpack_from(data, start + 11)
                    try:
                        handler.on_ack(number, tag, bits & 1 == 1)
                    except AmqpError as error:
                        self._refuse(number, error, BASIC_ACK)
                    continue
                if not quick or channel is None or not data.startswith(BASIC_PUBLISH, start + 7):
                    self._take_frame(kind, number, data, start + 7, after - 1)
                    self.halted = self.halted or self._is_full()
                    continue
                if not data.startswith(channel.publish_frame, start) or not channel.publish_frame:
                    channel.publish_frame = data[start:after]
                    channel.publish = data[start + 11 : after - 1]
                self._publishing = channel
            # A publish on `channel`. If its content lies here in one header and one body, hand it on at once.
            if at + CONTENT_START.size < end:
                kind, number, size, class_and_weight, body_size = QUICK_CONTENT.unpack_from(data, at)
                body_at = at + FRAME_OVERHEAD + size + 7
                body_end = body_at + body_size
                if (
                    (kind == FRAME_HEADER and number == channel.number and class_and_weight == BASIC)
                    and (HEADER_MIN <= size <= self._payload_max and 0 < body_size <= self._whole_body_max)
                    and (body_end < end and data[body_at - 8] == FRAME_END and data[body_end] == FRAME_END)
                    and FRAME_START.unpack_from(data, body_at - 7) == (FRAME_BODY, number, body_size)
                ):
                    properties = data[at + CONTENT_START.size : body_at - 8]
                    at = body_end + 1
                    try:
                        handler.on_publish(number, channel.publish, properties, data[body_at:body_end])
                    except AmqpError as error:
                        self._refuse(number, error, BASIC_PUBLISH)
                    continue
            channel.expects = Expects.HEADER
            self._publishing = None
        return at
