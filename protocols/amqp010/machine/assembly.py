"""Assemble frames into whole segments: the state that one track of one channel keeps from frame to frame.

    idle ──command──> command ──header──> header ──body──> idle        a control: idle ──control──> idle

Header and body may be missing. The frames say which segment is the last, so every state can lead back to idle. A frame
continues the segment that is open or, if none is, begins the next one.
"""

from __future__ import annotations

from typing import Final

from leveret.protocols.amqp010.codec.commands import (
    SEGMENT_TYPE_BODY,
    SEGMENT_TYPE_COMMAND,
    SEGMENT_TYPE_CONTROL,
    SEGMENT_TYPE_HEADER,
    Command,
    MalformedError,
    MessageTransfer,
)
from leveret.protocols.amqp010.codec.frames import (
    COMMANDS,
    FIRST_FRAME,
    FIRST_SEGMENT,
    LAST_FRAME,
    LAST_SEGMENT,
)

NONE: Final = -1  # no segment
NAMES: Final = {
    SEGMENT_TYPE_CONTROL: "control",
    SEGMENT_TYPE_COMMAND: "command",
    SEGMENT_TYPE_HEADER: "header",
    SEGMENT_TYPE_BODY: "body",
}
WHICH: Final = FIRST_SEGMENT | LAST_SEGMENT


class FramingError(Exception):
    """Raised for frames that cannot be put together."""


class Assembly:
    """The commands of one channel, or its controls: the open segment, and the segments before it.

    `frame` is the whole frame of the channel's last message.transfer and `transfer` the command in it; both stay the
    same objects while the channel repeats itself.
    """

    __slots__ = (
        "_flags",
        "begun",
        "body",
        "channel",
        "command",
        "frame",
        "header",
        "last",
        "parts",
        "passing",
        "place",
        "segment",
        "sync",
        "transfer",
        "transfer_sync",
    )

    def __init__(self, channel: int) -> None:
        self.channel = channel
        self.place = COMMANDS | channel
        self.frame = b""
        self.transfer: Command = MessageTransfer()
        self.transfer_sync = False
        self.reset()

    def reset(self) -> None:
        self.segment = NONE  # the open one
        self.last = NONE  # the one closed last
        self._flags = 0  # of the open segment
        # One growing array, not a list of parts: a million tiny frames must not cost more than their bytes.
        self.parts = bytearray()
        self.begun = False  # its content has come in part, and may be published
        self.passing = False  # ignoring everything until the command ends
        self.command: Command | None = None
        self.sync = False
        self.header: bytes | None = None
        self.body: bytes | None = None

    def is_idle(self) -> bool:
        """Return whether the next frame has to begin a command."""
        return self.segment == NONE and self.last == NONE

    def begin(self) -> None:
        """Begin with the remembered transfer, which has come again and has segments that follow."""
        self.command = self.transfer
        self.sync = self.transfer_sync
        self.last = SEGMENT_TYPE_COMMAND

    def expect_content(self) -> None:
        """Check that the command may be followed by a header and body. Raises MalformedError if it may not."""
        command = self.command
        if command is not None and not command.HAS_CONTENT:
            error = MalformedError(f"{command.NAME} has no header and no body")
            error.class_code, error.code = command.CLASS_CODE, command.CODE
            raise error

    def take(self, flags: int, of: int, data: bytes, at: int, end: int) -> bytes | None:
        """Take the frame whose part of the segment is `data[at:end]`; return the segment if it is whole now.

        While the assembly is passing over everything, all segments are empty. Raises FramingError.
        """
        if flags & FIRST_FRAME:
            self._begin(flags, of)
        elif self.segment != of:
            raise FramingError(f"a frame goes on with a {NAMES[of]} that is not open")
        elif (flags ^ self._flags) & WHICH:
            raise FramingError(f"frames of a {NAMES[of]} do not agree on its place")
        if not flags & LAST_FRAME:
            if not self.passing:
                self.parts += data[at:end]
            return None
        self.segment = NONE
        self.last = of
        if self.passing:
            return b""
        if not self.parts:
            return data[at:end]
        self.parts += data[at:end]
        whole, self.parts = bytes(self.parts), bytearray()
        return whole

    def pass_over(self) -> None:
        """Drop what has come of the command, and ignore the rest of it."""
        self.passing = True
        self.command = self.header = self.body = None
        self.parts = bytearray()

    def _begin(self, flags: int, of: int) -> None:
        if self.segment != NONE:
            raise FramingError(f"a {NAMES[of]} begins while a {NAMES[self.segment]} is open")
        if (flags & FIRST_SEGMENT != 0) != (of <= SEGMENT_TYPE_COMMAND):
            raise FramingError(f"a {NAMES[of]} at the wrong place")
        if of <= SEGMENT_TYPE_COMMAND:
            if self.last != NONE:
                raise FramingError(f"a {NAMES[of]} begins before the last one ended")
        elif self.last == NONE:
            raise FramingError(f"a {NAMES[of]} without a command")
        elif of <= self.last:
            raise FramingError(f"a {NAMES[of]} after a {NAMES[self.last]}")
        self.segment = of
        self._flags = flags
