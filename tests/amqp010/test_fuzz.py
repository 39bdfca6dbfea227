"""Random and mutated bytes in every state of a connection: protocol errors come back, and nothing else happens."""

from __future__ import annotations

from collections.abc import Callable
from struct import pack
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leveret.protocols.amqp010.codec import commands as c
from tests.harness.attack import split
from tests.harness.bench import ClientBench
from tests.harness.mutation import POSITIONS, READ_SIZES, Mutation, mutated, mutations, reads, with_number

from .attack import STATES, attack, size_at, transcript
from .client import frame
from .peer import Peer

each_state: Final = pytest.mark.parametrize("state", STATES.values(), ids=STATES.keys())
a_share: Final = settings(max_examples=settings().max_examples // 4)  # the states together try hard enough

CHANNELS: Final = st.sampled_from((0, 1, 1, 1, 2, 65535))
KEYS: Final = [pack(">H", key) for key in (*c.CONTROLS, *c.COMMANDS)]
SETS: Final = st.builds(
    lambda low, high: pack(">HII", 8, low, high),
    st.sampled_from((0, 1, 5, 0xFFFF_FFFF)),
    st.sampled_from((0, 1, 5, 0x7FFF_FFFF, 0xFFFF_FFFF)),
)
PAYLOADS: Final = st.one_of(
    st.binary(max_size=60),
    st.builds(lambda key, rest: key + rest, st.sampled_from(KEYS), st.binary(max_size=60)),
    st.builds(lambda key, rest: key + b"\x01\x01" + rest, st.sampled_from(KEYS), st.binary(max_size=60)),
    st.builds(lambda key, ids: key + b"\x01\x01\x01\x00" + ids, st.sampled_from(KEYS), SETS),
    st.builds(lambda key, ids: key + b"\x01\x00" + ids, st.sampled_from(KEYS), SETS),
)
FRAMES: Final = st.builds(
    frame,
    PAYLOADS,
    CHANNELS,
    st.sampled_from((0x0F,) * 8 + (0x0B, 0x03, 0x07, 0x0E, 0x0D, 0x00, 0x10, 0xFF)),
    st.sampled_from((0, 0, 1, 1, 2, 3, 4)),
    st.sampled_from((None,) * 8 + (0, 1, 2)),
)


@each_state
@a_share
@given(octets=st.binary(max_size=200), size=READ_SIZES)
def test_octets_out_of_nothing(state: Callable[[ClientBench], Peer], octets: bytes, size: int) -> None:
    attack(state, reads([octets], size))


@each_state
@a_share
@given(frames=st.lists(FRAMES, max_size=8), size=READ_SIZES)
def test_frames_out_of_nothing(state: Callable[[ClientBench], Peer], frames: list[bytes], size: int) -> None:
    attack(state, reads(frames, size))


# What a good client says, changed in a few places.


def set_flags(frames: list[bytes], at: int, value: int) -> None:
    frames[at] = bytes([value % 32]) + frames[at][1:]


def set_type(frames: list[bytes], at: int, value: int) -> None:
    frames[at] = frames[at][:1] + bytes([value % 5]) + frames[at][2:]


def change_channel(frames: list[bytes], at: int, value: int) -> None:
    frames[at] = with_number(frames[at], ">H", 6, value % 7)


def set_size(frames: list[bytes], at: int, value: int) -> None:
    frames[at] = with_number(frames[at], ">H", 2, value % 65536)


def set_flag_octets(frames: list[bytes], at: int, value: int) -> None:
    """Other fields are present than those that are there."""
    is_control = frames[at][1:2] == b"\0"
    frames[at] = with_number(frames[at], ">H", 14 if is_control else 16, value % 65536)


CHANGES: Final = {
    "set flags": set_flags,
    "set type": set_type,
    "change channel": change_channel,
    "set size": set_size,
    "set flag octets": set_flag_octets,
}
GOOD: Final = transcript()


def test_the_good_clients_words_are_frames() -> None:
    assert split(b"".join(GOOD), size_at) == GOOD
    assert len(GOOD) > 80


@given(changes=mutations(CHANGES), size=READ_SIZES)
def test_a_good_clients_words_with_changes(changes: list[Mutation], size: int) -> None:
    attack(Peer, reads(mutated(GOOD, changes), size))


@settings(max_examples=settings().max_examples // 2)
@given(changes=mutations(CHANGES), after=POSITIONS, size=READ_SIZES)
def test_changes_after_a_good_beginning(changes: list[Mutation], after: int, size: int) -> None:
    """So that what comes late is changed as often as what comes first."""
    begin = 5 + after % (len(GOOD) - 6)
    attack(Peer, reads([*GOOD[:begin], *mutated(GOOD[begin:], changes)], size))
