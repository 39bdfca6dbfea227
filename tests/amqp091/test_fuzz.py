"""Random and mutated bytes in every state of a connection: protocol errors come back, and nothing else happens."""

from __future__ import annotations

from collections.abc import Callable
from struct import pack
from typing import Final

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from leveret.protocols.amqp091.codec import methods as m
from leveret.protocols.amqp091.codec import wire
from leveret.protocols.amqp091.codec.wire import BasicProperties
from tests.harness.attack import SMALL
from tests.harness.bench import ClientBench
from tests.harness.mutation import POSITIONS, READ_SIZES, Mutation, mutated, mutations, reads, with_number

from . import attack as a
from .peer import HEADER, Peer

each_state: Final = pytest.mark.parametrize("state", a.STATES.values(), ids=a.STATES.keys())
a_share: Final = settings(max_examples=settings().max_examples // 4)  # the states together try hard enough

# Bytes and frames out of nothing.


CHANNELS: Final = st.sampled_from((0, 1, 1, 1, 2, 65535))
METHOD_NUMBERS: Final = st.sampled_from([pack(">I", key) for key in m.METHODS])
CONTENT_HEADERS: Final = st.builds(
    lambda class_id, weight, size, rest: pack(">HHQ", class_id, weight, size) + rest,
    st.sampled_from((60, 60, 60, 10, 0)),
    st.sampled_from((0, 0, 0, 1)),
    st.sampled_from((0, 1, 1000, 65536, 65537, 1 << 40, (1 << 64) - 1)),
    st.binary(max_size=40)
    | st.builds(BasicProperties, priority=st.integers(0, 255)).map(BasicProperties.encode),
)
PAYLOADS: Final = st.one_of(
    st.binary(max_size=60),
    st.builds(lambda number, rest: number + rest, METHOD_NUMBERS, st.binary(max_size=60)),
    st.builds(lambda number, size: number + bytes(size), METHOD_NUMBERS, st.integers(0, 24)),
    CONTENT_HEADERS,
)
FRAMES: Final = st.builds(
    a.frame,
    st.sampled_from((1, 1, 2, 2, 3, 3, 8, 0, 255)),
    CHANNELS,
    PAYLOADS,
    st.sampled_from((None,) * 12 + (0, 1, 4095, 4096, 4097, 0xFFFFFFFF)),
    st.sampled_from((b"\xce",) * 12 + (b"", b"\x00", b"\xce\xce")),
)


@each_state
@a_share
@given(chunks=st.lists(st.binary(max_size=200), max_size=4))
def test_random_bytes(state: Callable[[ClientBench], Peer], chunks: list[bytes]):
    a.attack(state, chunks)


@each_state
@a_share
@given(frames=st.lists(FRAMES, min_size=1, max_size=8), at_once=st.booleans())
def test_random_frames(state: Callable[[ClientBench], Peer], frames: list[bytes], at_once: bool):
    a.attack(state, [b"".join(frames)] if at_once else frames)


# A good client's words, mutated.

FRAMES_SAID: Final = a.transcript()


def move_to_channel(frames: list[bytes], at: int, value: int) -> None:
    frames[at] = with_number(frames[at], ">H", 1, (0, 1, 2, 3, 4, 5, 2048, 65535)[value % 8])


def give_size(frames: list[bytes], at: int, value: int) -> None:
    size = len(frames[at]) - wire.FRAME_OVERHEAD
    wrong = (0, size - 1, size + 1, a.FRAME_MAX - 8, a.FRAME_MAX - 7, 1 << 31)[value % 6]
    frames[at] = with_number(frames[at], ">I", 3, max(wrong, 0))


def give_kind(frames: list[bytes], at: int, value: int) -> None:
    frames[at] = with_number(frames[at], ">B", 0, (1, 2, 3, 8, value % 256)[value % 5])


MUTATED: Final = mutations(
    {"another channel": move_to_channel, "another size": give_size, "another kind": give_kind}
)


@given(changes=MUTATED, size=READ_SIZES)
@example(changes=[], size=30)
@example(changes=[], size=10_000)
def test_mutated_sessions(changes: list[Mutation], size: int):
    a.attack(Peer, reads(mutated(FRAMES_SAID, changes), size))


@each_state
@a_share
@given(start=POSITIONS, count=st.integers(1, 30), changes=st.just([]) | MUTATED, size=READ_SIZES)
def test_parts_of_sessions(
    state: Callable[[ClientBench], Peer], start: int, count: int, changes: list[Mutation], size: int
):
    """The right words at the wrong time: some frames from the middle of a session, on channel 1."""
    at = start % len(FRAMES_SAID)
    frames = [on_channel_1(said) for said in FRAMES_SAID[at : at + count]]
    a.attack(state, reads(mutated(frames, changes), size))


def on_channel_1(said: bytes) -> bytes:
    return said if said[1:3] == b"\0\0" or said == HEADER else said[:1] + b"\0\x01" + said[3:]


# Memory.


@pytest.mark.parametrize("kind", [1, 2, 3, 8])
@pytest.mark.parametrize(
    ("state", "limit"), [(a.started, 8192), (a.authenticated, 8192), (a.with_channel, a.FRAME_MAX)]
)
def test_a_frame_beyond_the_limit_is_refused_at_its_first_octets(
    state: Callable[[ClientBench], Peer], limit: int, kind: int
):
    attacker = state(ClientBench())
    attacker.send_bytes(pack(">BHI", kind, 1, limit + 1) + b"x")
    assert attacker.front.wire._tail_size == 0
    close = attacker.next(0)
    assert isinstance(close, m.ConnectionClose)
    assert close.reply_code == m.FRAME_ERROR


def test_an_endless_frame_in_small_pieces_is_kept_up_to_its_size():
    attacker = a.opened(ClientBench())
    attacker.send_bytes(pack(">BHI", 1, 1, a.FRAME_MAX - 8))
    for _ in range(a.FRAME_MAX * 2):
        attacker.send_bytes(b"x")
        a.must_be_bounded(attacker)
    close = attacker.next(0)
    assert isinstance(close, m.ConnectionClose)
    assert close.reply_code == m.FRAME_ERROR


def test_a_body_that_never_ends_is_kept_up_to_the_largest_message():
    attacker = a.with_channel(ClientBench(SMALL), m.BasicPublish("", "q"))
    attacker.send_bytes(wire.header_frame(1, 60, 65_536, BasicProperties().encode()))
    for _ in range(100):
        attacker.send_bytes(a.frame(m.FRAME_BODY, 1, b"x" * 1000))
        a.must_be_bounded(attacker)
    close = attacker.next(0)
    assert isinstance(close, m.ConnectionClose)
    assert close.reply_code == m.FRAME_ERROR
