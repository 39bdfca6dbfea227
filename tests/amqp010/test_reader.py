"""Octets to controls and commands: any splits, any channels, and what is refused."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.protocols.amqp010.codec import commands as c
from leveret.protocols.amqp010.codec.frames import append_frames, control_frame
from leveret.protocols.amqp010.codec.sequences import SequenceSet
from leveret.protocols.amqp010.machine import reader

from . import samples
from .heard import Ear, heard
from .samples import GREETING, Sample

CONTROL, COMMAND, HEADER, BODY = range(4)
TRANSFER = c.MessageTransfer("", 1, 0)


def frame(flags: int, of: int, octets: bytes = b"", channel: int = 1, track: int | None = None) -> bytes:
    size, on = 12 + len(octets), (of > 0 if track is None else track)
    return (
        bytes((flags, of))
        + size.to_bytes(2, "big")
        + bytes((0, on))
        + channel.to_bytes(2, "big")
        + bytes(4)
        + octets
    )


def message(
    channel: int = 1, header: bytes | None = b"h", body: bytes | None = b"b", frame_max: int = 65_535
) -> bytes:
    out: list[bytes] = []
    append_frames(out, channel, TRANSFER.encode(), header, body, frame_max)
    return b"".join(out)


def said(channel: int = 1, header: bytes | None = b"h", body: bytes | None = b"b") -> Sample:
    return Sample(TRANSFER, b"", channel, False, header, body)


def ear(**limits: int) -> Ear:
    made = Ear(**limits)
    made.hear(GREETING)
    return made


# Greeting.


def test_the_first_eight_octets_are_the_greeting_however_they_come() -> None:
    for step in (1, 3, 8, 100):
        listening = Ear()
        octets = GREETING + message()
        for at in range(0, len(octets), step):
            listening.hear(octets[at : at + step])
        assert listening.greeted == [GREETING]
        assert listening.said == [said()]


def test_after_a_greeting_that_is_refused_nothing_is_read() -> None:
    listening = Ear()
    listening.welcome = False
    listening.hear(b"GET / HTTP/1.1\r\n")
    listening.hear(message())
    assert listening.greeted == [b"GET / HT"]
    assert (listening.said, listening.lost) == ([], "")


# Splits and channels.


@given(
    st.lists(
        st.tuples(
            st.integers(1, 3),
            st.none() | st.binary(max_size=40),
            st.none() | st.binary(max_size=60),
            st.integers(13, 60),
        ),
        max_size=8,
    ),
    st.lists(st.integers(1, 50), min_size=1, max_size=20),
)
def test_messages_are_heard_however_they_are_framed_and_read(
    messages: list[tuple[int, bytes | None, bytes | None, int]], steps: list[int]
) -> None:
    octets = GREETING + b"".join(message(*each) for each in messages)
    listening, at, turn = Ear(), 0, 0
    while at < len(octets):
        step = steps[turn % len(steps)]
        listening.hear(octets[at : at + step])
        at, turn = at + step, turn + 1
    assert listening.said == [said(channel, header, body) for channel, header, body, _ in messages]


@given(
    st.randoms(use_true_random=False),
    st.lists(st.integers(0, len(samples.OTHERS) - 1), min_size=3, max_size=3),
)
def test_channels_interleave_as_they_like(random, which: list[int]) -> None:
    """The frames of three channels, in any order that keeps that of each channel."""
    frames: list[list[bytes]] = []
    for channel, index in enumerate(which):
        octets = samples.OTHERS[index].octets
        mine = []
        while octets:
            size = int.from_bytes(octets[2:4], "big")
            mine.append(octets[:6] + channel.to_bytes(2, "big") + octets[8:size])
            octets = octets[size:]
        frames.append(mine)
    octets = b""
    while any(frames):
        octets += random.choice([mine for mine in frames if mine]).pop(0)
    found = {each.channel: (each.said, each.header, each.body) for each in heard(octets)}
    wanted = [samples.OTHERS[index] for index in which]
    assert found == {channel: (each.said, each.header, each.body) for channel, each in enumerate(wanted)}


def test_a_control_may_come_between_two_frames_of_a_command_of_its_channel() -> None:
    completed = c.SessionCompleted(SequenceSet.of((0, 1)))
    control = control_frame(1, completed.encode())
    command = TRANSFER.encode()
    octets = [
        frame(0x0A, COMMAND, command[:3]),
        frame(0x09, COMMAND, command[3:]),
        frame(0x02, HEADER, b"he"),
        frame(0x01, HEADER, b"ad"),
        frame(0x06, BODY, b"bo"),
        frame(0x05, BODY, b"dy"),
    ]
    for at in range(1, len(octets)):
        found = heard(b"".join(octets[:at]) + control + b"".join(octets[at:]))
        assert found == [Sample(completed, b""), said(1, b"head", b"body")], at
    # And a control of several frames between those of the command.
    halves = frame(0x0E, CONTROL, completed.encode()[:5]), frame(0x0D, CONTROL, completed.encode()[5:])
    found = heard(octets[0] + halves[0] + b"".join(octets[1:]) + halves[1])
    assert found == [said(1, b"head", b"body"), Sample(completed, b"")]


def test_an_absent_segment_is_none_and_an_empty_one_is_not() -> None:
    assert heard(message(1, None, None)) == [said(1, None, None)]
    assert heard(message(1, b"", None)) == [said(1, b"", None)]
    assert heard(message(1, b"", b"")) == heard(message(1, b"", b""), step=1) == [said(1, b"", b"")]


def test_frames_are_as_long_as_they_can_be_whatever_was_tuned() -> None:
    assert heard(message(1, bytes(65_523), bytes(65_523))) == [said(1, bytes(65_523), bytes(65_523))]


# Transfers that repeat themselves.


def test_the_same_transfer_again_is_the_same_object() -> None:
    found = heard(message(1) * 3 + message(2) + message(1))
    assert found == [said(1)] * 3 + [said(2), said(1)]
    assert found[1].said is found[2].said is found[4].said  # the first one came before there was a memory


def test_transfers_that_alternate_are_what_they_are() -> None:
    """To other exchanges, with and without sync, on several channels: each is itself, also after the memory is full."""
    sent, octets = [], b""
    for turn in range(3 * reader.TRANSFERS_MAX):
        name, sync, channel = f"x{turn % (reader.TRANSFERS_MAX + 9)}", turn % 3 == 0, turn % 2
        out: list[bytes] = []
        append_frames(out, channel, c.MessageTransfer(name).encode(sync), b"h", b"%d" % turn, 65_535)
        octets += b"".join(out)
        sent.append(Sample(c.MessageTransfer(name), b"", channel, sync, b"h", b"%d" % turn))
    assert heard(octets) == sent
    assert heard(octets, step=50) == sent


def test_the_memory_of_transfers_is_bounded() -> None:
    listening = ear()
    for turn in range(1000):
        out: list[bytes] = []
        append_frames(out, 1, c.MessageTransfer(f"{turn}").encode(), b"h", b"b", 65_535)
        listening.hear(b"".join(out))
    long = c.MessageTransfer("x" * 255).encode() + bytes(1000)  # what follows the last field is passed over
    out = []
    append_frames(out, 1, long, b"h", b"b", 65_535)
    listening.hear(b"".join(out))
    assert listening.said[-1].said == c.MessageTransfer("x" * 255)
    assert len(listening._transfers) <= reader.TRANSFERS_MAX
    assert max(map(len, listening._transfers)) <= reader.TRANSFER_SIZE_MAX


def test_every_beginning_of_a_transfer_may_be_all_that_has_come() -> None:
    """The quick way and the slow way meet at every octet, also with the transfer remembered."""
    octets = message(1, b"header", b"body")
    for cut in range(1, len(octets)):
        listening = ear()
        listening.hear(octets * 2 + octets[:cut])
        assert len(listening.said) == 2, cut
        listening.hear(octets[cut:] + octets)
        assert listening.said == [said(1, b"header", b"body")] * 4, cut
        assert not listening.lost


def test_a_transfer_that_is_malformed_is_told_once_and_passed_over() -> None:
    listening = ear()
    bad = bytes.fromhex("0401 01 00 0100 05 61")
    octets = frame(0x0B, COMMAND, bad) + frame(0x03, HEADER, b"h") + frame(0x07, BODY, b"b")
    listening.hear(octets * 2 + message())
    assert [(channel, track, error.class_code, error.code) for channel, track, error in listening.wrong] == [
        (1, 1, 4, 1)
    ] * 2
    assert listening.said == [said()]


# What may not assemble.


def test_on_a_deaf_channel_a_command_is_told_once_and_nothing_of_it_is_kept() -> None:
    listening = ear()
    listening.deaf.add(5)
    listening.hear(message(5, bytes(100), bytes(100), frame_max=50))
    assert listening.said == []
    assert [(channel, track) for channel, track, _ in listening.wrong] == [(5, 1)]
    assert not listening._commands
    listening.hear(message(1))
    assert listening.said == [said(1)]


def test_a_session_that_leaves_takes_half_a_command_with_it() -> None:
    halves = frame(0x0B, COMMAND, TRANSFER.encode()), frame(0x03, HEADER, b"h") + frame(0x07, BODY, b"b")
    listening = ear()
    listening.hear(message() + halves[0])
    listening.forget(1)
    listening.deaf.add(1)
    listening.hear(halves[1])
    assert len(listening.said) == 1
    listening.deaf.clear()
    listening.hear(message())
    assert listening.said == [said(), said()]
    assert (listening.wrong, listening.lost) == ([], "")


def test_a_session_may_leave_while_its_transfer_is_handed_on() -> None:
    class Leaving(Ear):
        def _on_command(self, channel: int, *rest: object) -> None:  # type: ignore[override]
            super()._on_command(channel, *rest)  # type: ignore[arg-type]
            self.deaf.add(channel)
            self.forget(channel)

    listening = Leaving()
    listening.hear(GREETING + message() * 3)
    assert listening.said == [said()]
    assert len(listening.wrong) == 2


def test_forgetting_a_channel_that_has_nothing_does_nothing() -> None:
    listening = ear()
    listening.hear(message(1))
    listening.forget(7)
    listening.hear(message(1))
    assert len(listening.said) == 2


# Halting.


def test_a_reader_that_halts_keeps_the_rest_and_goes_on_with_nothing() -> None:
    class Halting(Ear):
        def _on_command(self, *arguments: object) -> None:  # type: ignore[override]
            super()._on_command(*arguments)  # type: ignore[arg-type]
            self.halted = True

    listening = Halting()
    listening.hear(GREETING + message() * 3 + message()[:30])
    for count in (1, 2, 3, 3):
        assert len(listening.said) == count
        listening.hear(b"")
    assert not listening.halted
    listening.hear(message()[30:])
    assert listening.said == [said()] * 4


def test_a_reader_whose_peer_does_not_read_halts_after_the_frame() -> None:
    listening = ear()
    listening.full = True
    beat = control_frame(0, c.ConnectionHeartbeat().encode())
    listening.hear(beat * 2)
    assert len(listening.said) == 1
    assert listening.halted
    listening.full = False
    listening.hear(b"")
    assert len(listening.said) == 2


# Framing errors.


@pytest.mark.parametrize(
    "octets",
    [
        *[pytest.param(frame(0x0F | bit, COMMAND), id=f"flag {bit:#x}") for bit in (0x10, 0x20, 0x40, 0x80)],
        pytest.param(frame(0x0F, 4), id="type 4"),
        pytest.param(frame(0x0F, 0x81), id="type 0x81"),
        pytest.param(b"\x0f\x01\x00\x0b" + bytes(20), id="size 11"),
        pytest.param(b"\x0f\x01\x00\x00" + bytes(20), id="size 0"),
        pytest.param(b"\x0f\x01\x00\x0c\x01\x01" + bytes(20), id="octet 4"),
        pytest.param(b"\x0f\x01\x00\x0c\x00\x11" + bytes(20), id="high nibble of the track"),
        pytest.param(frame(0x0F, COMMAND, track=2), id="track 2"),
        pytest.param(frame(0x0F, CONTROL, track=1), id="a control on track 1"),
        pytest.param(frame(0x0F, COMMAND, track=0), id="a command on track 0"),
        pytest.param(frame(0x07, HEADER, track=0), id="a header on track 0"),
        pytest.param(frame(0x07, BODY, track=0), id="a body on track 0"),
        pytest.param(frame(0x0B, CONTROL, c.SessionFlush().encode()), id="a control that has more"),
        pytest.param(frame(0x07, CONTROL, c.SessionFlush().encode()), id="a control that is not the first"),
        pytest.param(frame(0x0D, CONTROL), id="the end of a control"),
        pytest.param(frame(0x07, HEADER), id="a header without a command"),
        pytest.param(frame(0x07, BODY), id="a body without a command"),
        pytest.param(frame(0x0F, BODY), id="a body that is first"),
        pytest.param(frame(0x0D, COMMAND), id="the end of a command"),
        pytest.param(frame(0x05, BODY), id="the end of a body"),
        pytest.param(frame(0x07, COMMAND, TRANSFER.encode()), id="a command that is not first"),
        pytest.param(message()[:-13] + message(), id="a transfer within a transfer"),
        pytest.param(message()[: len(TRANSFER.encode()) + 12] * 2, id="a command within a command"),
        pytest.param(message(1, bytes(50), None, 30)[:51] + frame(0x07, BODY), id="a body within a header"),
        pytest.param(
            message(1, None, b"b")[:-13] + frame(0x03, BODY) + frame(0x07, HEADER), id="a header after a body"
        ),
    ],
)
def test_what_cannot_be_is_a_framing_error_and_nothing_is_read_any_more(octets: bytes) -> None:
    for step in (len(octets), 1):
        listening = ear()
        listening.hear(message())
        for at in range(0, len(octets), step):
            listening.hear(octets[at : at + step])
        assert listening.lost
        listening.hear(message())
        assert listening.said == [said()]
        assert listening.wrong == []


def test_the_last_four_octets_of_a_head_are_not_looked_at() -> None:
    beat = bytearray(control_frame(0, c.ConnectionHeartbeat().encode()))
    beat[8:12] = b"\xff\xff\xff\xff"
    assert heard(bytes(beat)) == [Sample(c.ConnectionHeartbeat(), b"", 0)]


def test_a_header_or_a_body_after_a_command_that_has_none_is_malformed() -> None:
    for of in (HEADER, BODY):
        listening = ear()
        declare = c.QueueDeclare("q").encode()
        listening.hear(frame(0x0B, COMMAND, declare) + frame(0x07, of, b"x") + message())
        assert [(channel, error.class_code, error.code) for channel, _, error in listening.wrong] == [
            (1, 8, 1)
        ]
        assert listening.said == [said()]


def test_an_unknown_command_is_told_with_its_numbers_and_passed_over() -> None:
    listening = ear()
    octets = bytes.fromhex("0b77 01 00 0000")
    listening.hear(frame(0x0F, COMMAND, octets) + frame(0x0B, COMMAND, octets) + frame(0x07, BODY, b"x"))
    listening.hear(frame(0x0F, CONTROL, octets) + message())
    assert [(track, type(error), error.class_code) for _, track, error in listening.wrong] == [
        (1, c.UnknownCommand, 0x0B),
        (1, c.UnknownCommand, 0x0B),
        (0, c.UnknownCommand, 0x0B),
    ]
    assert listening.said == [said()]


def test_a_control_that_cannot_be_read_is_told() -> None:
    listening = ear()
    listening.hear(frame(0x0F, CONTROL, b"\x02"))
    listening.hear(frame(0x0F, CONTROL, bytes.fromhex("0201 0100 ffff"), 9))
    assert [(channel, track, error.class_code) for channel, track, error in listening.wrong] == [
        (1, 0, 0),
        (9, 0, 2),
    ]


# Bounds.


@pytest.mark.parametrize("frame_max", [20, 1000, 65_535])
def test_a_body_that_is_too_large_is_told_once_and_passed_over(frame_max: int) -> None:
    listening = ear(body_size_max=1000)
    listening.hear(message(1, b"h", bytes(1000), frame_max))
    listening.hear(message(1, b"h", bytes(1001), frame_max))
    listening.hear(message(1, b"h", bytes(5000), frame_max))
    listening.hear(message())
    assert listening.said == [said(1, b"h", bytes(1000)), said()]
    assert [channel for channel, _ in listening.large] == [1, 1]
    assert all(1000 < size <= 5000 for _, size in listening.large)
    assert (listening.wrong, listening.lost) == ([], "")


def test_a_command_and_a_header_that_are_too_large_are_passed_over() -> None:
    listening = ear(body_size_max=10)
    listening.hear(message(1, bytes(reader.HEADER_SIZE_MAX), b"b"))
    listening.hear(message(1, bytes(reader.HEADER_SIZE_MAX + 1), b"b"))
    part = bytes(60_000)
    listening.hear(frame(0x0E, COMMAND, part) + frame(0x0C, COMMAND, part) * 20 + frame(0x0D, COMMAND, part))
    listening.hear(message())
    assert listening.said == [said(1, bytes(reader.HEADER_SIZE_MAX)), said()]
    assert [channel for channel, _ in listening.large] == [1, 1]
    assert (listening.wrong, listening.lost) == ([], "")


def test_what_is_passed_over_costs_no_memory() -> None:
    listening = ear(body_size_max=1000)
    listening.hear(frame(0x0B, COMMAND, TRANSFER.encode()) + frame(0x06, BODY, bytes(2000)))
    part = frame(0x04, BODY, bytes(60_000))
    tracemalloc.start()
    try:
        for _ in range(50):
            listening.hear(part)
        assert tracemalloc.get_traced_memory()[1] < 200_000
    finally:
        tracemalloc.stop()
    assert len(listening.large) == 1


def test_a_body_in_many_tiny_frames_costs_what_its_octets_cost() -> None:
    listening = ear(body_size_max=1 << 20)
    listening.hear(frame(0x0B, COMMAND, TRANSFER.encode()) + frame(0x06, BODY))
    parts = (frame(0x04, BODY) * 9 + frame(0x04, BODY, b"x")) * 100
    tracemalloc.start()
    try:
        for _ in range(20):
            listening.hear(parts)
        assert tracemalloc.get_traced_memory()[0] < 20_000
    finally:
        tracemalloc.stop()
    listening.hear(frame(0x05, BODY))
    assert listening.said[0].body == b"x" * 2_000


def test_unfinished_controls_are_bounded_for_all_channels_together() -> None:
    listening = ear()
    for channel in range(1000):
        listening.hear(frame(0x0E, CONTROL, b"", channel))
    assert "unfinished controls" in listening.lost
    listening = ear()
    listening.hear(frame(0x0E, CONTROL, bytes(60_000)))
    for _ in range(10):
        listening.hear(frame(0x0C, CONTROL, bytes(60_000)))
    assert "unfinished controls" in listening.lost


def test_what_finished_controls_took_is_given_back() -> None:
    listening = ear()
    attach = c.SessionAttach(bytes(60_000))
    for _ in range(20):
        listening.hear(control_frame(1, attach.encode(), 4096))
    assert listening.said == [Sample(attach, b"")] * 20
    assert listening._controls_size == 0
