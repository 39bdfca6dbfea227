"""Changes to what a good client said, for the fuzz tests of any protocol: frames in, frames out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from struct import calcsize, pack_into
from typing import Final, TypeAlias

import attrs
from hypothesis import strategies as st

# of frames, at one of them, by a value it interprets
Change: TypeAlias = Callable[[list[bytes], int, int], None]
ENOUGH: Final = 1 << 16  # positions are drawn from here and wrap around
POSITIONS: Final = st.integers(0, ENOUGH)
READ_SIZES: Final = st.integers(30, 10_000)  # octets


@attrs.frozen
class Mutation:
    """One change to a list of frames. `at` and `value` mean what `change` makes of them."""

    change: Change
    at: int
    value: int

    def apply(self, frames: list[bytes]) -> None:
        if frames:
            self.change(frames, self.at % len(frames), self.value)


def flip_bit(frames: list[bytes], at: int, value: int) -> None:
    changed = bytearray(frames[at])
    if changed:
        changed[value // 8 % len(changed)] ^= 1 << value % 8
    frames[at] = bytes(changed)


def set_octets(frames: list[bytes], at: int, value: int) -> None:
    """Four octets become the largest number there is: lengths, counts, tags."""
    changed = bytearray(frames[at])
    start = value % max(len(changed), 1)
    changed[start : start + 4] = b"\xff" * len(changed[start : start + 4])
    frames[at] = bytes(changed)


def cut(frames: list[bytes], at: int, value: int) -> None:
    frames[at] = frames[at][: value % (len(frames[at]) + 1)]


def duplicate(frames: list[bytes], at: int, value: int) -> None:
    frames[at:at] = [frames[at]] * (value % 3 + 1)


def swap(frames: list[bytes], at: int, value: int) -> None:
    other = value % len(frames)
    frames[at], frames[other] = frames[other], frames[at]


def leave_out(frames: list[bytes], at: int, value: int) -> None:
    del frames[at : at + value % 3 + 1]


def with_number(frame: bytes, form: str, at: int, number: int) -> bytes:
    """The frame with another number at this place, if it is as long as that."""
    changed = bytearray(frame)
    if len(changed) >= at + calcsize(form):
        pack_into(form, changed, at, number)
    return bytes(changed)


OF_ANY_PROTOCOL: Final[Mapping[str, Change]] = {
    "flip a bit": flip_bit,
    "set octets": set_octets,
    "cut": cut,
    "duplicate": duplicate,
    "swap": swap,
    "leave out": leave_out,
}


def mutations(changes: Mapping[str, Change]) -> st.SearchStrategy[list[Mutation]]:
    """A few of these changes and those that any protocol allows."""
    every = [*OF_ANY_PROTOCOL.values(), *changes.values()]
    return st.lists(st.builds(Mutation, st.sampled_from(every), POSITIONS, POSITIONS), min_size=1, max_size=5)


def mutated(frames: list[bytes] | tuple[bytes, ...], changes: list[Mutation]) -> list[bytes]:
    found = list(frames)
    for change in changes:
        change.apply(found)
    return found


def reads(frames: list[bytes], size: int) -> list[bytes]:
    """The frames as reads of so many octets."""
    octets = b"".join(frames)
    return [octets[at : at + size] for at in range(0, len(octets), size)]
