"""Segments to frames: which flags they get, and where they are cut."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.protocols.amqp010.codec import commands as c
from leveret.protocols.amqp010.codec.frames import (
    SMALL_BODY_MAX,
    append_frames,
    append_transfers,
    control_frame,
)

from .heard import heard
from .samples import Sample

TRANSFER = c.MessageTransfer("d", 1, 0)
COMMAND = TRANSFER.encode()


def frames_of(octets: bytes) -> list[tuple[int, int, int, int, bytes]]:
    """Flags, type, track and channel of each frame, and what is in it."""
    found = []
    while octets:
        size = int.from_bytes(octets[2:4], "big")
        assert (octets[4], octets[8:12]) == (0, bytes(4))
        channel = int.from_bytes(octets[6:8], "big")
        found.append((octets[0], octets[1], octets[5], channel, octets[12:size]))
        octets = octets[size:]
    return found


def appended(
    header: bytes | None, body: bytes | None, frame_max: int = 65_535, command: bytes = COMMAND
) -> bytes:
    out = [b"before"]
    octets = append_frames(out, 0x0203, command, header, body, frame_max)
    assert out.pop(0) == b"before"
    assert sum(map(len, out)) == octets
    return b"".join(out)


@pytest.mark.parametrize(
    ("header", "body", "flags"),
    [
        pytest.param(b"h", b"b", [(0x0B, 1), (0x03, 2), (0x07, 3)], id="header and body"),
        pytest.param(b"h", None, [(0x0B, 1), (0x07, 2)], id="header"),
        pytest.param(b"h", b"", [(0x0B, 1), (0x03, 2), (0x07, 3)], id="header and an empty body"),
        pytest.param(None, b"b", [(0x0B, 1), (0x07, 3)], id="body"),
        pytest.param(b"", b"b", [(0x0B, 1), (0x03, 2), (0x07, 3)], id="an empty header and a body"),
        pytest.param(b"", None, [(0x0B, 1), (0x07, 2)], id="an empty header"),
        pytest.param(None, None, [(0x0F, 1)], id="nothing"),
        pytest.param(None, b"", [(0x0B, 1), (0x07, 3)], id="an empty body"),
    ],
)
def test_the_last_segment_that_is_there_says_so(
    header: bytes | None, body: bytes | None, flags: list[tuple[int, int]]
) -> None:
    frames = frames_of(appended(header, body))
    assert [frame[:2] for frame in frames] == flags
    assert {frame[2:4] for frame in frames} == {(1, 0x0203)}
    assert b"".join(frame[4] for frame in frames) == COMMAND + (header or b"") + (body or b"")


def test_a_small_message_is_one_object_and_a_large_body_is_not_copied() -> None:
    out: list[bytes] = []
    append_frames(out, 1, COMMAND, b"h", bytes(SMALL_BODY_MAX), 65_535)
    assert len(out) == 1
    body = bytes(SMALL_BODY_MAX + 1)
    append_frames(out, 1, COMMAND, b"h", body, 65_535)
    assert out[-1] is body


def test_a_long_segment_is_cut_where_frames_end() -> None:
    frames = frames_of(appended(bytes(10_000), bytes(8168), 4096))
    assert [frame[:2] for frame in frames] == [
        (0x0B, 1),
        (0x02, 2),
        (0x00, 2),
        (0x01, 2),
        (0x06, 3),
        (0x05, 3),
    ]
    assert [len(frame[4]) for frame in frames] == [len(COMMAND), 4084, 4084, 10_000 - 2 * 4084, 4084, 4084]


def test_a_frame_that_just_fits_is_one() -> None:
    assert len(frames_of(appended(bytes(4084), bytes(4084), 4096))) == 3
    assert len(frames_of(appended(bytes(4085), bytes(4085), 4096))) == 5


@given(
    header=st.none() | st.binary(max_size=300),
    body=st.none() | st.binary(max_size=300),
    size=st.integers(0, 100),
    frame_max=st.integers(13, 200),
)
def test_whatever_was_cut_is_heard_as_it_was(
    header: bytes | None, body: bytes | None, size: int, frame_max: int
) -> None:
    command = c.ExecutionException(description="x" * size)
    if header is not None or body is not None:
        command = c.MessageTransfer("x" * size)
    octets = appended(header, body, frame_max, command.encode(True))
    assert max(len(frame[4]) for frame in frames_of(octets)) <= frame_max - 12
    assert heard(octets) == [Sample(command, b"", 0x0203, True, header, body)]


sizes = st.sampled_from((0, 1, 87, 88, 89, 4084, 4085, SMALL_BODY_MAX, SMALL_BODY_MAX + 1))


@given(
    st.lists(st.tuples(sizes.map(bytes), sizes.map(bytes)), max_size=4),
    st.sampled_from((20, 100, 4096, 65_535)),
)
def test_several_transfers_are_framed_as_if_one_by_one(
    contents: list[tuple[bytes, bytes]], frame_max: int
) -> None:
    out: list[bytes] = []
    octets = append_transfers(out, 0x0203, COMMAND, contents, frame_max)
    assert b"".join(out) == b"".join(appended(*content, frame_max) for content in contents)
    assert octets == sum(map(len, out))


def test_a_control_is_one_frame_on_track_0_or_several() -> None:
    attach = c.SessionAttach(bytes(5000))
    whole = control_frame(0xFFFE, attach.encode())
    assert frames_of(whole) == [(0x0F, 0, 0, 0xFFFE, attach.encode())]
    cut = control_frame(1, attach.encode(), 4096)
    assert [frame[:4] for frame in frames_of(cut)] == [(0x0E, 0, 0, 1), (0x0D, 0, 0, 1)]
    assert heard(whole + cut) == [Sample(attach, b"", 0xFFFE), Sample(attach, b"", 1)]
    longest = c.SessionAttach(bytes(65_535))  # longer than any frame
    assert heard(control_frame(1, longest.encode())) == [Sample(longest, b"", 1)]
