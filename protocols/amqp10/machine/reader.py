"""The fast path of AMQP 1.0 input, which passes transfers, dispositions and flows straight to their session.

All other frames are passed on to `_take_frame`. Incomplete input is kept in the pieces in which it came and joined
once.
"""

from abc import abstractmethod
from struct import Struct
from typing import Final

from leveret.protocols.amqp10.codec.errors import AmqpError
from leveret.protocols.amqp10.codec.wire import (
    DISPOSITION,
    FLOW,
    FRAME_AMQP,
    FRAME_OVERHEAD,
    OFFSET_MIN,
    TRANSFER,
)
from leveret.protocols.amqp10.machine.contract import Handler
from leveret.protocols.amqp10.machine.session import Session
from leveret.protocols.shared.machine.connection_machine import ConnectionMachine
from leveret.protocols.shared.machine.contract import Writer
from leveret.protocols.shared.machine.states import GREETING

QUICK_START: Final = Struct(">IHH")  # size, shape, channel
# Bytes of a frame that takes long to decode, 10 ms and more, if the fast paths do not apply.
LARGE: Final = 16 << 10
USUAL: Final = OFFSET_MIN << 8 | FRAME_AMQP  # the usual shape: offset of the body, and type


class Reader(ConnectionMachine):
    """A connection's splitter of input. Its abstract methods are the rest of the machine.

    A few bytes can ask for megabytes (a flow, an attach). Therefore the reader halts in the middle of its input while
    too much waits for the peer, and when the handler has set `halted` to give other connections a turn. It continues
    when it is called again, with no bytes at all.
    """

    __slots__ = (
        "_frame_size_max",
        "handler",
        "sessions",
        "singly_until",
    )

    def __init__(
        self, handler: Handler, frame_size_max: int, outbox: Writer, now: float, handshake_timeout_s: float
    ) -> None:
        super().__init__(GREETING, outbox, now, handshake_timeout_s)
        self.handler = handler
        self.sessions: dict[int, Session] = {}  # by channel
        self.singly_until = 0  # an offset in this read: transfers before it are taken one by one
        self._frame_size_max = frame_size_max  # of the frames that we accept

    @abstractmethod
    def _take_greeting(self, data: bytes) -> int:
        """Read the headers and login before the frames; return the offset where the frames begin."""

    @abstractmethod
    def _take_frame(self, channel: int, data: bytes, at: int, end: int) -> None:
        """Handle one frame, whose body is `data[at:end]`, in any state. Raises no AmqpError."""

    @abstractmethod
    def _lose_framing(self, size: int, offset: int, kind: int) -> None:
        """End the connection for an invalid frame header."""

    def _take(self, data: bytes) -> None:
        self.halted = False
        if self._tail:
            data = self._joined(data)
            if not data:
                return
        self._needed = FRAME_OVERHEAD
        self.singly_until = 0
        rest = data[self._take_frames(data, self._take_greeting(data)) :]
        self._tail = [rest] if rest else []
        self._tail_size = len(rest)

    def _take_frames(self, data: bytes, at: int) -> int:
        """Handle every whole frame from `at` on, until halted; return the offset of the first frame that is left."""
        end = len(data)
        sessions = self.sessions
        while at + FRAME_OVERHEAD <= end and not self.halted:
            size, shape, channel = QUICK_START.unpack_from(data, at)
            body = at + FRAME_OVERHEAD
            after = at + size
            if shape != USUAL or size > self._frame_size_max or size < FRAME_OVERHEAD:
                offset, kind = shape >> 8, shape & 0xFF
                body = at + 4 * offset
                if (
                    offset < OFFSET_MIN
                    or kind != FRAME_AMQP
                    or not body <= after <= at + self._frame_size_max
                ):
                    self._lose_framing(size, offset, kind)
                    return end
            if after > end:
                self._needed = size
                return at
            begin, at = at, after
            session = sessions.get(channel)
            if session is not None:
                try:
                    if data.startswith(TRANSFER, body, after):
                        if begin >= self.singly_until and shape == USUAL:
                            taken = session.take_run_at(data, begin, after, self._frame_size_max)
                            if taken > begin:
                                at = taken
                                continue
                        session.take_transfer_at(data, body, after)
                        continue
                    if data.startswith(DISPOSITION, body, after):
                        at = session.take_disposition_at(data, begin, body, after)
                        continue
                    if data.startswith(FLOW, body, after):
                        session.take_flow_at(data, body, after)
                        self.halted = self.halted or self._is_enough()
                        continue
                except AmqpError as error:
                    session.fail(error)
                    continue
            self._take_frame(channel, data, body, after)
            self.halted = self.halted or size > LARGE or self._is_enough()
        return at
