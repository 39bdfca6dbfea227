"""Random and mutated bytes in every state of a connection: what the protocol allows comes back, and nothing else
happens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from leveret.protocols.mqtt.codec.values import encode_variable
from tests.harness.bench import ClientBench
from tests.harness.mutation import READ_SIZES, Mutation, mutated, mutations, reads
from tests.mqtt.attack import STATES, attack, transcript
from tests.mqtt.peer import Peer
from tests.mqtt.samples import packets_of

each_state: Final = pytest.mark.parametrize("state", STATES.values(), ids=STATES.keys())
a_share: Final = settings(max_examples=settings().max_examples // 4)  # the states together try hard enough

State = Callable[[ClientBench], Peer]

FIRSTS: Final = st.sampled_from(
    (0x10, 0x30, 0x32, 0x34, 0x3B, 0x40, 0x50, 0x62, 0x70, 0x82, 0xA2, 0xC0, 0xE0, 0xF0)
)
FRAMES: Final = st.builds(
    lambda first, body, lie: bytes((first,)) + encode_variable(max(0, len(body) + lie)) + body,
    FIRSTS | st.integers(0, 255),
    st.binary(max_size=40),
    st.sampled_from((0,) * 12 + (-1, 1, 100, 200_000_000)),
)
GOOD: Final = st.sampled_from((4, 5)).flatmap(
    lambda version: packets_of(version, from_client=True).map(lambda packet: packet.encode(version))
)


@each_state
@a_share
@given(octets=st.binary(max_size=200), size=READ_SIZES)
def test_bytes_out_of_nothing(state: State, octets: bytes, size: int) -> None:
    attack(state, reads([octets], size))


@each_state
@a_share
@given(frames=st.lists(FRAMES, max_size=8), size=READ_SIZES)
def test_packets_out_of_nothing(state: State, frames: list[bytes], size: int) -> None:
    attack(state, reads(frames, size))


@each_state
@a_share
@given(frames=st.lists(GOOD, max_size=10), size=READ_SIZES)
def test_good_packets_at_any_time(state: State, frames: list[bytes], size: int) -> None:
    """Subscriptions to what nobody publishes, acknowledgements of what was not sent, and the like."""
    attack(state, reads(frames, size))


def change_first(frames: list[bytes], at: int, value: int) -> None:
    frames[at] = bytes((value % 256,)) + frames[at][1:]


def change_size(frames: list[bytes], at: int, value: int) -> None:
    frames[at] = frames[at][:1] + bytes((value % 256,)) + frames[at][2:]


@each_state
@a_share
@given(changes=mutations({"first": change_first, "size": change_size}), size=READ_SIZES)
def test_what_a_good_client_says_with_changes(state: State, changes: list[Mutation], size: int) -> None:
    attack(state, reads(mutated(transcript(), changes), size))


@each_state
def test_what_a_good_client_says(state: State) -> None:
    attack(state, list(transcript()))
