"""Transfers that look alike, whose messages are read without reading each field of each frame.

The frames of a client that sends one message after the other differ only in their sizes, delivery ids, delivery tags
and payloads. The first of them is read field by field, and gives the pattern; the following frames are compared with
it. Only transfers that hold a whole message have a pattern, in the shape that nearly all have.
"""

from __future__ import annotations

from typing import Final

from leveret.protocols.amqp10.codec.wire import (
    BINARY,
    FRAME_OVERHEAD,
    LIST_8,
    LONG,
    SMALL_UINT,
    TAG_SIZE_MAX,
    TRANSFER_ENDS,
    UINT,
    UINT_ZERO,
    long_at,
)

SIZE: Final = 4  # bytes of the size field in front of a frame


class TransferPattern:
    """The pattern of a transfer with its frame. Offsets are counted from the beginning of the frame."""

    __slots__ = ("_ends", "_ends_at", "_head", "_id_at", "_tag", "_tag_at", "handle", "payload_at", "settled")

    def __init__(
        self, handle: int, settled: bool, id_at: int, tag_at: int, ends_at: int, frame: bytes
    ) -> None:
        """Build a pattern; `frame` is the bytes in front of the payload."""
        self.handle = handle
        self.settled = settled
        self.payload_at = len(frame)
        self._id_at = id_at
        self._tag_at = tag_at
        self._ends_at = ends_at
        self._head = frame[SIZE:id_at]
        self._tag = frame[tag_at : tag_at + 2]
        self._ends = frame[ends_at:]

    def is_at(self, data: bytes, at: int) -> bool:
        """Return whether the frame at `at` has this pattern."""
        return (
            data[at + SIZE : at + self._id_at] == self._head
            and data[at + self._tag_at : at + self._tag_at + 2] == self._tag
            and data[at + self._ends_at : at + self.payload_at] == self._ends
        )

    def run_at(self, data: bytes, at: int, most: int, frame_size_max: int) -> TransferRun:
        """Return the transfers of the frames from `at` on that have this pattern, `most` at most."""
        head, tag, ends = self._head, self._tag, self._ends
        id_at, tag_at, ends_at, payload_at = self._id_at, self._tag_at, self._ends_at, self.payload_at
        is_long = tag_at - id_at == LONG.size
        end = len(data)
        ids: list[int] = []
        payloads: list[bytes] = []
        begins: list[int] = [at]
        while most > 0 and at + payload_at <= end:
            size = long_at(data, at)
            after = at + size
            if (
                after > end
                or size > frame_size_max
                or size < payload_at
                or data[at + SIZE : at + id_at] != head
                or data[at + tag_at : at + tag_at + 2] != tag
                or data[at + ends_at : at + payload_at] != ends
            ):
                break
            ids.append(long_at(data, at + id_at) if is_long else data[at + id_at])
            payloads.append(data[at + payload_at : after])
            begins.append(after)
            at = after
            most -= 1
        return TransferRun(ids, payloads, begins)


class TransferRun:
    """Transfers that look alike, each a whole message."""

    __slots__ = ("_begins", "ids", "payloads")

    def __init__(self, ids: list[int], payloads: list[bytes], begins: list[int]) -> None:
        self.ids = ids
        self.payloads = payloads
        self._begins = begins  # offsets of their frames, and of what follows

    def end_of(self, count: int) -> int:
        """Return the offset where the first `count` of them end."""
        return self._begins[count]


def pattern_at(data: bytes, at: int, after: int) -> TransferPattern | None:
    """Return the pattern of the transfer of the frame at `at`, which has no extended header, or None if it has none."""
    body = at + FRAME_OVERHEAD
    field = body + 6
    if after - body < 16 or data[body + 3] != LIST_8:
        return None
    end = body + 5 + data[body + 4]
    code = data[field]
    if code == UINT_ZERO:
        handle = 0
        field += 1
    elif code == SMALL_UINT:
        handle = data[field + 1]
        field += 2
    else:
        return None
    code = data[field]
    if code != UINT and code != SMALL_UINT:
        return None
    id_at = field + 1
    tag_at = id_at + (4 if code == UINT else 1)
    tag_size = data[tag_at + 1]
    ends_at = tag_at + 2 + tag_size
    if data[tag_at] != BINARY or tag_size > TAG_SIZE_MAX or not ends_at <= end <= after:
        return None
    pattern = TRANSFER_ENDS.get(data[ends_at:end])
    if pattern is None:
        return None
    fields, settled, more = pattern
    if more or fields != data[body + 5]:
        return None
    return TransferPattern(handle, settled is True, id_at - at, tag_at - at, ends_at - at, data[at:end])
