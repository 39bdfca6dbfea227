"""AMQP 0-10 frames: encode segments as bytes. Pure functions, no state.

A control is one segment on track 0, a command one on track 1, where a header and a body may follow it. A segment is one
frame, or several if it is long. A frame is twelve bytes and its part of the segment:

    flags  type  size (2, of the frame)  0  track  channel (2)  0 0 0 0

The flags say whether the segment is the first or the last of its control or command, and whether the frame is the first
or the last of its segment. This module treats flags and type as one number, a kind, and track and channel as another, a
place.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final

from leveret.protocols.amqp010.codec.commands import (
    SEGMENT_TYPE_BODY,
    SEGMENT_TYPE_COMMAND,
    SEGMENT_TYPE_CONTROL,
    SEGMENT_TYPE_HEADER,
    TRACK_COMMAND,
)

FIRST_SEGMENT: Final = 8
LAST_SEGMENT: Final = 4
FIRST_FRAME: Final = 2
LAST_FRAME: Final = 1
WHOLE: Final = FIRST_FRAME | LAST_FRAME

HEAD: Final = Struct(">HHII")  # kind, size, place, reserved
HEAD_SIZE: Final = 12
FRAME_MAX: Final = 65_535  # whatever was tuned: the size has two bytes
COMMANDS: Final = TRACK_COMMAND << 16  # the place of channel 0; the other channels follow
PLACES: Final = COMMANDS + 0x10000

# Kinds of segments that fit one frame.
LONE_CONTROL: Final = (FIRST_SEGMENT | LAST_SEGMENT | WHOLE) << 8 | SEGMENT_TYPE_CONTROL
LONE_COMMAND: Final = (FIRST_SEGMENT | LAST_SEGMENT | WHOLE) << 8 | SEGMENT_TYPE_COMMAND
FIRST_COMMAND: Final = (FIRST_SEGMENT | WHOLE) << 8 | SEGMENT_TYPE_COMMAND
MIDDLE_HEADER: Final = WHOLE << 8 | SEGMENT_TYPE_HEADER
LAST_HEADER: Final = (LAST_SEGMENT | WHOLE) << 8 | SEGMENT_TYPE_HEADER
LAST_BODY: Final = (LAST_SEGMENT | WHOLE) << 8 | SEGMENT_TYPE_BODY

KINDS: Final = frozenset(flags << 8 | of for flags in range(16) for of in range(4))
SMALL_BODY_MAX: Final = 16_384  # bytes; up to here a copy costs less than sending another piece


def control_frame(channel: int, payload: bytes, frame_max: int = FRAME_MAX) -> bytes:
    """Return a control as one frame, or as several joined if it is longer than `frame_max`."""
    if HEAD_SIZE + len(payload) <= frame_max:
        return HEAD.pack(LONE_CONTROL, HEAD_SIZE + len(payload), channel, 0) + payload
    out: list[bytes] = []
    _append_segment(out, LONE_CONTROL, channel, payload, frame_max)
    return b"".join(out)


def append_frames(
    out: list[bytes], channel: int, command: bytes, header: bytes | None, body: bytes | None, frame_max: int
) -> int:
    """Append the frames of a command, and of its header and body unless they are None; return the number of bytes
    appended.

    An empty body is sent as an empty segment: Python clients see None as the body of a message without that segment. No
    frame is longer than `frame_max`. A small message becomes one bytes object; a large body is sliced once and
    otherwise left alone.
    """
    place = COMMANDS | channel
    if header is not None and body is not None and len(body) <= SMALL_BODY_MAX:
        room = frame_max - HEAD_SIZE
        if len(command) <= room and len(header) <= room and len(body) <= room:
            pack = HEAD.pack
            frames = b"".join(
                (
                    pack(FIRST_COMMAND, HEAD_SIZE + len(command), place, 0),
                    command,
                    pack(MIDDLE_HEADER, HEAD_SIZE + len(header), place, 0),
                    header,
                    pack(LAST_BODY, HEAD_SIZE + len(body), place, 0),
                    body,
                )
            )
            out.append(frames)
            return len(frames)
    if header is None and body is None:
        return _append_segment(out, LONE_COMMAND, place, command, frame_max)
    octets = _append_segment(out, FIRST_COMMAND, place, command, frame_max)
    if header is not None:
        kind = LAST_HEADER if body is None else MIDDLE_HEADER
        octets += _append_segment(out, kind, place, header, frame_max)
    if body is not None:
        octets += _append_segment(out, LAST_BODY, place, body, frame_max)
    return octets


def append_transfers(
    out: list[bytes],
    channel: int,
    command: bytes,
    contents: Sequence[tuple[bytes, bytes | None]],
    frame_max: int,
) -> int:
    """Append several messages, each a header and perhaps a body, behind the same command, as `append_frames` does."""
    place, room = COMMANDS | channel, min(frame_max - HEAD_SIZE, SMALL_BODY_MAX)
    if len(command) > room:
        return sum(append_frames(out, channel, command, *content, frame_max) for content in contents)
    pack, join, append = HEAD.pack, b"".join, out.append
    beginning = pack(FIRST_COMMAND, HEAD_SIZE + len(command), place, 0) + command
    octets = 0
    for header, body in contents:
        header_size = len(header)
        if body is not None and header_size <= room and (body_size := len(body)) <= room:
            append(
                join(
                    (
                        beginning,
                        pack(MIDDLE_HEADER, HEAD_SIZE + header_size, place, 0),
                        header,
                        pack(LAST_BODY, HEAD_SIZE + body_size, place, 0),
                        body,
                    )
                )
            )
            octets += len(beginning) + header_size + body_size + 2 * HEAD_SIZE
        else:
            octets += append_frames(out, channel, command, header, body, frame_max)
    return octets


def _append_segment(out: list[bytes], kind: int, place: int, octets: bytes, frame_max: int) -> int:
    """Append the frames of one segment; `kind` is the kind that it would have as a single frame."""
    size, room = len(octets), frame_max - HEAD_SIZE
    if size <= room:
        out.append(HEAD.pack(kind, HEAD_SIZE + size, place, 0))
        if size:
            out.append(octets)
        return HEAD_SIZE + size
    within = kind & ~(WHOLE << 8)
    for start in range(0, size, room):
        part = octets[start : start + room]
        flags = FIRST_FRAME * (start == 0) | LAST_FRAME * (start + room >= size)
        out += (HEAD.pack(within | flags << 8, HEAD_SIZE + len(part), place, 0), part)
    return size + HEAD_SIZE * -(-size // room)
