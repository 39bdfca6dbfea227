"""AMQP 1.0 frames: performatives to bytes and back, with fast paths for the frames that are nearly all traffic.

A frame is its size, the offset of its body (in words of four bytes), a type, a channel, and the body: a performative
and, behind a transfer, a piece of a message. Numbers that count transfers, deliveries and credit wrap round at 2**32;
`distance` compares two of them (RFC 1982).

The fast paths read transfers and dispositions field by field as far as those usually differ. The rest of their fields
is one of a few byte strings, looked up in TRANSFER_ENDS or DISPOSITION_ENDS; a performative with any other end is
decoded in the ordinary way.
"""

import struct
from collections.abc import Iterable
from itertools import chain, product
from struct import Struct
from typing import Final

from leveret.protocols.amqp10.codec import performatives as p
from leveret.protocols.amqp10.codec.errors import AmqpError
from leveret.protocols.amqp10.codec.types import DecodeError, encode

HEADER_AMQP: Final = b"AMQP\x00\x01\x00\x00"
HEADER_SASL: Final = b"AMQP\x03\x01\x00\x00"
HEADER_SIZE: Final = 8

FRAME_START: Final = Struct(">IBBH")  # size, offset of the body in words, type, channel
FRAME_OVERHEAD: Final = 8
OFFSET_MIN: Final = 2
FRAME_AMQP: Final = 0
FRAME_SASL: Final = 1
EMPTY_FRAME: Final = FRAME_START.pack(FRAME_OVERHEAD, OFFSET_MIN, FRAME_AMQP, 0)

MASK: Final = 0xFFFF_FFFF
HALF: Final = 0x8000_0000
OUTGOING_WINDOW: Final = 0x7FFF_FFFF  # the outgoing window that we announce: only the peer's window limits us

# The format codes of part 1 that the fast paths know.
NULL: Final = 0x40
TRUE: Final = 0x41
FALSE: Final = 0x42
UINT_ZERO: Final = 0x43
SMALL_UINT: Final = 0x52
UINT: Final = 0x70
BINARY: Final = 0xA0
LIST_8: Final = 0xC0
LIST_32: Final = 0xD0

FLOW: Final = b"\x00\x53\x13"
TRANSFER: Final = b"\x00\x53\x14"
DISPOSITION: Final = b"\x00\x53\x15"
LONG: Final = Struct(">I")
SIZE_AND_COUNT: Final = Struct(">II")
TAG_SIZE_MAX: Final = 32
UNUSUAL: Final = -1  # a number that has to be decoded
STRING_32: Final = 8  # bytes that a string and the lists around it may need for their sizes, at most


def distance(to: int, since: int) -> int:
    """Return by how much `to` is ahead of `since`; negative if it is behind."""
    return (to - since + HALF & MASK) - HALF


def long_at(data: bytes, at: int) -> int:
    """Read four bytes as a number."""
    return data[at] << 24 | data[at + 1] << 16 | data[at + 2] << 8 | data[at + 3]


def frame(channel: int, body: bytes, kind: int = FRAME_AMQP) -> bytes:
    return FRAME_START.pack(FRAME_OVERHEAD + len(body), OFFSET_MIN, kind, channel) + body


def uint(number: int) -> bytes:
    """Encode a uint in its shortest encoding."""
    if not number:
        return b"\x43"
    return bytes((SMALL_UINT, number)) if number < 256 else b"\x70" + LONG.pack(number)


def performative_at(data: bytes, at: int, end: int) -> tuple[p.Record, bytes]:
    """Decode the performative of a frame, whose body is `data[at:end]`; return it and the payload behind it.

    Raises AmqpError.
    """
    performative, at = p.decode(data, at, end)
    if at != end and not isinstance(performative, p.Transfer):
        raise DecodeError(f"{end - at} octets follow {performative.NAME}")
    return performative, data[at:end]


def runs(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Return the first and last of each run of consecutive numbers, in the given order."""
    found: list[tuple[int, int]] = []
    first = last = -2
    for number in numbers:
        if number != last + 1:
            if first >= 0:
                found.append((first, last))
            first = number
        last = number
    if first >= 0:
        found.append((first, last))
    return found


def error_of(error: AmqpError, size_max: int) -> p.Error:
    """Return the error for the peer: without details, and its description cut, if it has more than `size_max` bytes."""
    description = _readable(error.description)
    return fitting(p.Error(condition=error.condition, description=description, info=error.info), size_max)


def fitting(error: p.Error, size_max: int) -> p.Error:
    """Return the error without details and with its description cut if it is longer than `size_max` bytes."""
    if len(error.encode()) <= size_max:
        return error
    bare = p.Error(condition=error.condition, description="")
    room = max(0, size_max - len(bare.encode()) - STRING_32)
    return p.Error(condition=error.condition, description=_readable(error.description or "", room))


def _readable(text: str, size_max: int | None = None) -> str:
    return text.encode("utf-8", "replace")[:size_max].decode("utf-8", "ignore")


# All numbers of a flow have full width: a frame of one shape, packed by one Struct. We never ask for an echo.

SESSION_FLOW: Final = Struct(">IBBH 6s BIBIBIBI")
LINK_FLOW: Final = Struct(">IBBH 6s BIBIBIBI BIBIBIBI B")
SESSION_FLOW_HEAD: Final = FLOW + bytes((LIST_8, SESSION_FLOW.size - 13, 4))
LINK_FLOW_HEAD: Final = FLOW + bytes((LIST_8, LINK_FLOW.size - 13, 9))


def session_flow(channel: int, next_incoming: int, window: int, next_outgoing: int) -> bytes:
    """Return a flow frame about a session; `window` is the number of transfers that the peer may send."""
    # fmt: off
    return SESSION_FLOW.pack(
        SESSION_FLOW.size, OFFSET_MIN, FRAME_AMQP, channel, SESSION_FLOW_HEAD,
        UINT, next_incoming, UINT, window, UINT, next_outgoing, UINT, OUTGOING_WINDOW,
    )
    # fmt: on


def link_flow(
    channel: int,
    next_incoming: int,
    window: int,
    next_outgoing: int,
    handle: int,
    delivery_count: int,
    credit: int,
    available: int,
    drain: bool,
) -> bytes:
    """Return a flow frame about a session and one of its links."""
    # fmt: off
    return LINK_FLOW.pack(
        LINK_FLOW.size, OFFSET_MIN, FRAME_AMQP, channel, LINK_FLOW_HEAD,
        UINT, next_incoming, UINT, window, UINT, next_outgoing, UINT, OUTGOING_WINDOW,
        UINT, handle, UINT, delivery_count, UINT, credit, UINT, available, TRUE if drain else FALSE,
    )
    # fmt: on


DISPOSITION_RANGE: Final = Struct(">BBIBI")  # role, first, last; then `settled` and `state`
DISPOSITION_FIELDS: Final = 5


def disposition_end(settled: bool, state: p.DeliveryState | None, size_max: int) -> bytes:
    """Return the last two fields of a disposition, `settled` and `state`; an error is made to fit `size_max`."""
    if isinstance(state, p.Rejected) and state.error is not None:
        state = p.Rejected(error=fitting(state.error, size_max))
    return (b"\x41" if settled else b"\x42") + encode(state)


def disposition_frame(channel: int, receiver: bool, first: int, last: int, end: bytes) -> bytes:
    """Return a disposition frame. `receiver` is our role; `end` comes from `disposition_end`."""
    fields = DISPOSITION_RANGE.pack(TRUE if receiver else FALSE, UINT, first, UINT, last) + end
    size = len(fields)
    if size < 255:
        head = bytes((LIST_8, size + 1, DISPOSITION_FIELDS))
    else:
        head = b"\xd0" + SIZE_AND_COUNT.pack(size + 4, DISPOSITION_FIELDS)
    return frame(channel, DISPOSITION + head + fields)


class TransferHead:
    """The beginning of the transfers of a link, for messages that take a single transfer: `pack` returns all bytes in
    front of the message.

    The delivery tag is the delivery id: unique in the session. On links whose deliveries may be resumed it is the
    `prefix`, and then the delivery id: unique among all deliveries of links of that name.
    """

    __slots__ = ("pack", "size", "start", "tag_begin")

    def __init__(self, channel: int, handle: int, prefix: bytes = b"") -> None:
        # everything in front of the delivery id
        self.tag_begin = bytes((BINARY, len(prefix) + LONG.size)) + prefix
        fields = uint(handle)
        size = 1 + len(fields) + 1 + LONG.size + len(self.tag_begin) + LONG.size + 2
        self.start = (
            bytes((OFFSET_MIN, FRAME_AMQP, *channel.to_bytes(2)))
            + TRANSFER
            + bytes((LIST_8, size, 5))
            + fields
            + bytes((UINT,))
        )
        # size of the frame, start, delivery id, beginning of the tag, delivery id, message-format and settled
        head = Struct(f">I{len(self.start)}sI{len(self.tag_begin)}sIH")
        self.pack = head.pack
        self.size = head.size

    def body(self, delivery_id: int, settled: bool, more: bool) -> bytes:
        """Return the transfer without the frame header."""
        end = SETTLED if settled else UNSETTLED
        whole: bytes = self.pack(0, self.start, delivery_id, self.tag_begin, delivery_id, end)
        body = whole[FRAME_OVERHEAD:]
        if not more:
            return body
        return TRANSFER + bytes((LIST_8, body[4] + 1, 6)) + body[6:] + b"\x41"

    def tag(self, delivery_id: int) -> bytes:
        """Return the delivery tag of a delivery."""
        return self.tag_begin[2:] + LONG.pack(delivery_id)


SETTLED: Final = 0x4341  # message-format 0, settled: true
UNSETTLED: Final = 0x4342
SETTLED_END: Final = SETTLED.to_bytes(2)
UNSETTLED_END: Final = UNSETTLED.to_bytes(2)


def continuation(handle: int, more: bool) -> bytes:
    """Return a transfer that continues the delivery of the one before. Its length does not depend on `more`."""
    fields = uint(handle) + b"\x40\x40\x40\x40" + (b"\x41" if more else b"\x42")
    return TRANSFER + bytes((LIST_8, len(fields) + 1, 6)) + fields


def cut(pieces: list[bytes], at: int, end: int) -> list[bytes]:
    """Return the bytes from `at` to `end` of these pieces, copied only where the cut divides a piece."""
    found: list[bytes] = []
    for piece in pieces:
        size = len(piece)
        if at < size and 0 < end > at:  # compiled, a slice may not end before it begins
            found.append(piece if at <= 0 and end >= size else piece[max(at, 0) : end])
        at -= size
        end -= size
    return found


def _ends(*fields: dict[bytes, bool | None]) -> list[tuple[bytes, list[bool | None]]]:
    """Return every encoding of the first fields of these, none to all, with the value of each field."""
    upto = [product(*(field.items() for field in fields[:count])) for count in range(len(fields) + 1)]
    return [
        (b"".join(octets for octets, _ in part), [value for _, value in part])
        for part in chain.from_iterable(upto)
    ]


OPTIONAL: Final[dict[bytes, bool | None]] = {b"\x40": None, b"\x41": True, b"\x42": False}
ABSENT: Final[dict[bytes, bool | None]] = {b"\x40": None}
NOT_SET: Final[dict[bytes, bool | None]] = {b"\x40": None, b"\x42": False}
FORMAT_0: Final[dict[bytes, bool | None]] = dict.fromkeys((b"\x40", b"\x43", b"\x52\0", b"\x70\0\0\0\0"))

# The fields from message-format on: settled, more, rcv-settle-mode, state, resume, aborted, batchable. Their bytes are
# mapped to the number of fields of the whole transfer, the value of settled (or None), and whether there is more.
TRANSFER_ENDS: Final[dict[bytes, tuple[int, bool | None, bool]]] = {
    octets: (3 + len(said), said[1] if len(said) > 1 else None, len(said) > 2 and said[2] is True)
    for octets, said in _ends(FORMAT_0, OPTIONAL, OPTIONAL, ABSENT, ABSENT, NOT_SET, NOT_SET, OPTIONAL)
}

OUTCOMES: Final[dict[bytes, p.DeliveryState]] = {
    start + end: outcome
    for start, outcome in (
        (b"\x00\x53\x24", p.Accepted()),
        (b"\x00\x53\x25", p.Rejected()),
        (b"\x00\x53\x26", p.Released()),
    )
    for end in (b"\x45", b"\xc0\x01\x00", b"\xd0\0\0\0\x04\0\0\0\0")
}

# The fields from settled on: state, batchable. Their bytes are mapped to number of fields, settled and outcome.
DISPOSITION_ENDS: Final[dict[bytes, tuple[int, bool, p.DeliveryState | None]]] = {
    settled + octets + batchable: (3 + 1 + 1 + len(batchable), settled == b"\x41", outcome)
    for settled in OPTIONAL
    for octets, outcome in OUTCOMES.items()
    for batchable in (b"", *OPTIONAL)
}


# The last fields of a flow, drain and echo. Their bytes are mapped to their number and their values.
FLOW_ENDS: Final[dict[bytes, tuple[int, bool, bool]]] = {
    octets: (len(said), said[:1] == [True], said[1:] == [True]) for octets, said in _ends(OPTIONAL, OPTIONAL)
}


def disposition_at(data: bytes, at: int, end: int) -> tuple[int, int, p.DeliveryState | None, bool] | None:
    """Read a receiver's disposition, whose descriptor is at `at`; return first, last, state and settled, or None if it
    must be decoded in the ordinary way."""
    try:
        if data[at + 3] == LIST_8:
            size, count = data[at + 4] - 1, data[at + 5]
            at += 6
        else:
            size, count = SIZE_AND_COUNT.unpack_from(data, at + 4)
            size -= 4
            at = at + 12 if data[at + 3] == LIST_32 else end
        if at + size != end or data[at] != TRUE:
            return None
        code = data[at + 1]
        if code == UINT:
            (first,) = LONG.unpack_from(data, at + 2)
            at += 6
        elif code == SMALL_UINT:
            first = data[at + 2]
            at += 3
        else:
            first = 0 if code == UINT_ZERO else UNUSUAL
            at += 2
        code = data[at]
        if code == UINT:
            (last,) = LONG.unpack_from(data, at + 1)
            at += 5
        elif code == SMALL_UINT:
            last = data[at + 1]
            at += 2
        else:
            last = first if code == NULL else 0 if code == UINT_ZERO else UNUSUAL
            at += 1
        if at > end:  # compiled, a slice may not end before it begins
            return None
        fields, settled, state = DISPOSITION_ENDS[data[at:end]]
    except (KeyError, IndexError, struct.error):
        return None
    return (first, last, state, settled) if fields == count and first >= 0 and last >= 0 else None


FLOW_NUMBERS: Final = 8
FLOW_FIELDS: Final = 10  # the numbers, drain and echo; not the properties


def flow_at(data: bytes, at: int, end: int) -> p.Flow | None:
    """Read a flow, whose descriptor is at `at`, or return None if it must be decoded in the ordinary way."""
    try:
        if data[at + 3] == LIST_8:
            size, count = data[at + 4] - 1, data[at + 5]
            at += 6
        else:
            size, count = SIZE_AND_COUNT.unpack_from(data, at + 4)
            size -= 4
            at = at + 12 if data[at + 3] == LIST_32 else end
        if at + size != end or count > FLOW_FIELDS:
            return None
        numbers: list[int | None] = [None] * FLOW_NUMBERS
        for place in range(min(count, FLOW_NUMBERS)):
            code = data[at]
            if code == UINT:
                (numbers[place],) = LONG.unpack_from(data, at + 1)
                at += 5
            elif code == SMALL_UINT:
                numbers[place] = data[at + 1]
                at += 2
            elif code == UINT_ZERO:
                numbers[place] = 0
                at += 1
            elif code == NULL:
                at += 1
            else:
                return None
        if at > end:
            return None
        fields, drain, echo = FLOW_ENDS[data[at:end]]
    except (KeyError, IndexError, struct.error):
        return None
    next_incoming, window, next_outgoing, outgoing_window, handle, delivery_count, credit, available = numbers
    if (
        window is None
        or next_outgoing is None
        or outgoing_window is None
        or fields != max(0, count - FLOW_NUMBERS)
    ):
        return None
    return p.Flow(
        next_incoming_id=next_incoming,
        incoming_window=window,
        next_outgoing_id=next_outgoing,
        outgoing_window=outgoing_window,
        handle=handle,
        delivery_count=delivery_count,
        link_credit=credit,
        available=available,
        drain=drain,
        echo=echo,
    )
