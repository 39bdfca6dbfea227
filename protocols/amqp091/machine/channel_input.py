"""The state of a channel between frames, which turns content frames into whole messages."""

from enum import Enum
from struct import Struct
from typing import Final

from mypy_extensions import mypyc_attr

from leveret.protocols.amqp091.codec.methods import (
    CHANNEL_ERROR,
    FRAME_ERROR,
    FRAME_HEADER,
    PRECONDITION_FAILED,
    UNEXPECTED_FRAME,
)
from leveret.protocols.amqp091.codec.wire import CLASS_BASIC, CONTENT_HEADER_SIZE, AmqpError, MalformedError
from leveret.protocols.shared.machine.contract import SIZE_SETTING

CONTENT_HEADER: Final = Struct(">HHQ")  # class, weight, body size; then the properties
CHANNEL_START: Final = Struct(">BH")  # of a frame: kind, channel
RESTS_MAX: Final = 64  # runs whose messages are not handed on together, after that was in vain
FLAGS_SIZE: Final = 2  # the size of empty properties: the flags alone


class Expects(Enum):
    """The frame or method that a channel accepts next."""

    OPEN = "channel.open"
    METHOD = "a method"
    HEADER = "a content header"
    BODY = "a content body"
    CLOSE_OK = "channel.close-ok"


EXPECTS_OPEN: Final = Expects.OPEN
EXPECTS_BODY: Final = Expects.BODY


UNEXPECTED: Final[dict[Expects, tuple[int, str]]] = {
    Expects.OPEN: (CHANNEL_ERROR, "expected 'channel.open'"),
    Expects.METHOD: (UNEXPECTED_FRAME, "expected method frame, got non method frame instead"),
    Expects.HEADER: (
        UNEXPECTED_FRAME,
        f"expected content header for class {CLASS_BASIC}, got non content header frame instead",
    ),
    Expects.BODY: (UNEXPECTED_FRAME, "expected content body, got non content body frame instead"),
    Expects.CLOSE_OK: (UNEXPECTED_FRAME, "heartbeat on a channel"),
}


@mypyc_attr(allow_interpreted_subclasses=True)
class ChannelInput:
    """The input state of a channel: what it expects, its last publish, and the content received so far.

    `publish_frame` is the whole frame of that publish and `publish` the arguments in it; both stay the same objects
    while the channel repeats the same publish. `repeated` holds the properties of its last message. Once two messages
    in a row had the same properties, `alike` holds the bytes before the size of the body in such a message, and `joint`
    the bytes between that size and its second occurrence, in the frame of the body.
    """

    __slots__ = (
        "alike",
        "body",
        "expects",
        "header_head",
        "joint",
        "number",
        "properties",
        "publish",
        "publish_frame",
        "remaining",
        "repeated",
        "rests",
        "rests_next",
    )

    def __init__(self, number: int) -> None:
        self.number = number
        self.header_head = CHANNEL_START.pack(FRAME_HEADER, number)  # of each header frame
        self.expects = EXPECTS_OPEN
        self.publish_frame = b""
        self.publish = b""
        self.repeated = b""
        self.alike = b""  # empty while no two were alike
        self.joint = b""
        self.properties = b""
        # A single growing array, not a list of parts: a million tiny body frames must not cost more than their bytes.
        self.body = bytearray()
        self.remaining = 0
        # Runs whose messages go one by one: from now on, and after the next one of which nothing can be taken together.
        self.rests, self.rests_next = 0, 1

    def take_header(self, data: bytes, at: int, end: int, body_size_max: int) -> bytes | None:
        """Take the content header `data[at:end]`; return the body if it is empty, else None. Raises AmqpError."""
        if end - at < CONTENT_HEADER_SIZE + FLAGS_SIZE:
            raise MalformedError("a content header is cut short")
        class_id, weight, body_size = CONTENT_HEADER.unpack_from(data, at)
        if class_id != CLASS_BASIC:
            text = f"expected content header for class {CLASS_BASIC}, got one for class {class_id} instead"
            raise AmqpError(UNEXPECTED_FRAME, text)
        if weight != 0:
            raise MalformedError("the weight of a content header must be zero")
        if body_size > body_size_max:
            text = (
                f"message size {body_size} is larger than configured max size {body_size_max}{SIZE_SETTING}"
            )
            raise AmqpError(PRECONDITION_FAILED, text)
        self.properties = data[at + CONTENT_HEADER_SIZE : end]
        self.remaining = body_size
        self.expects = EXPECTS_BODY
        return None if body_size else b""

    def take_body(self, data: bytes, at: int, end: int) -> bytes | None:
        """Take `data[at:end]` of the body; return the body if it is whole now, else None. Raises AmqpError."""
        self.remaining -= end - at
        if self.remaining < 0:
            raise AmqpError(FRAME_ERROR, "content body frame exceeds remaining content size")
        if self.remaining == 0 and not self.body:
            return data if at == 0 and end == len(data) else data[at:end]
        self.body += data[at:end]
        return None if self.remaining else bytes(self.body)

    def forget_content(self) -> None:
        self.properties = b""
        self.body = bytearray()
