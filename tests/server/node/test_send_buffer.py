"""Bytes that wait for the operating system: joined, handed over several at a time, kept in order."""

from __future__ import annotations

import gc
import socket
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from leveret.server.node.send_buffer import APART, PIECES_MAX, SEND_SIZE, SendBuffer, joined

# Joining.


@pytest.mark.parametrize(
    ("apart", "sizes", "expected"),
    [
        (APART, [], []),
        (APART, [3, 4], [7]),
        (APART, [3, APART, 4, 5], [3, APART, 9]),
        (APART, [3, APART - 1, 4], [APART + 6]),
        (APART, [APART, APART], [APART, APART]),
        (SEND_SIZE, [3, 300_000, 4], [3, 300_000, 4]),
        (SEND_SIZE, [3, APART, 4], [APART + 7]),
        (SEND_SIZE, [200_000, 62_144, 1], [262_144, 1]),
    ],
)
def test_small_pieces_are_joined_and_large_ones_are_not_copied(
    apart: int, sizes: list[int], expected: list[int]
) -> None:
    pieces = [bytes(size) for size in sizes]
    with Plain(0) as line:
        views = joined(pieces, line if apart == APART else Taking(0))  # type: ignore[arg-type]
    assert [len(view) for view in views] == expected
    for piece in pieces:
        if len(piece) >= apart:
            assert any(view.obj is piece for view in views)


# Sending.


class Taking:
    """Takes as many octets with each call as it is told to, in the end as many as with the last of these."""

    def __init__(self, *takes: int) -> None:
        super().__init__()
        self.takes = list(takes)
        self.calls: list[list[int]] = []  # sizes of the pieces
        self.told = b""

    def take(self, buffers: list[memoryview]) -> int:
        self.calls.append([len(buffer) for buffer in buffers])
        octets = b"".join(buffers)[: self.takes.pop(0) if len(self.takes) > 1 else self.takes[0]]
        self.told += octets
        return len(octets)

    def send(self, data: memoryview) -> int:
        return self.take([data])


class Plain(Taking, socket.socket):  # type: ignore[misc]
    """What does not encrypt."""

    def sendmsg(self, buffers: list[memoryview]) -> int:  # type: ignore[override]
        return self.take(buffers)


def unsent(*pieces: bytes) -> SendBuffer:
    made = SendBuffer()
    made.add([memoryview(piece) for piece in pieces])
    return made


def test_one_call_sends_several_pieces_but_no_more_than_it_should() -> None:
    with Plain(1 << 30) as line:
        waiting = unsent(b"ab", bytes(SEND_SIZE - 3), b"c", b"d")
        assert waiting.send(line) == SEND_SIZE
        assert waiting.send(line) == 1
        many = unsent(*[b"x"] * (PIECES_MAX + 2))
        assert many.send(line) == PIECES_MAX
        assert len(many) == 2
        assert line.calls == [[2, SEND_SIZE - 3, 1], [1], [1] * PIECES_MAX]


def test_what_encrypts_is_given_one_piece_at_a_time() -> None:
    line = Taking(1 << 30)
    waiting = unsent(b"ab", b"c")
    assert (waiting.send(line), waiting.send(line), len(waiting)) == (2, 1, 0)  # type: ignore[arg-type]
    assert line.calls == [[2], [1]]


def test_nothing_goes_when_nothing_is_taken() -> None:
    with Plain(0) as line:
        waiting = unsent(b"ab", b"c")
        assert (waiting.send(line), len(waiting)) == (0, 2)


@pytest.mark.parametrize("pieces", [[b""], [b"ab", b""], [b"", b"ab"], [b"", b""]])
def test_nothing_at_all_is_sent_like_anything_else(pieces: list[bytes]) -> None:
    waiting = unsent(*pieces)
    line = Taking(1 << 30)
    for _ in pieces:
        if waiting:
            waiting.send(line)  # type: ignore[arg-type]
    assert (line.told, len(waiting)) == (b"".join(pieces), 0)


def test_an_empty_buffer_takes_little_memory() -> None:
    gc.collect()
    tracemalloc.start()
    try:
        empty = [SendBuffer() for _ in range(1000)]
        octets = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert octets / len(empty) < 200


def test_what_has_been_cleared_is_not_sent() -> None:
    waiting = unsent(b"ab")
    waiting.clear()
    assert len(waiting) == 0


@given(st.lists(st.binary(min_size=1, max_size=9)), st.lists(st.integers(1, 30), min_size=1), st.booleans())
def test_however_little_is_taken_all_goes_in_order(pieces: list[bytes], takes: list[int], is_plain: bool):
    waiting = unsent(*pieces)
    with Plain(*takes) as line:
        to = line if is_plain else Taking(*takes)
        while waiting:
            assert waiting.send(to) > 0  # type: ignore[arg-type]
        assert to.told == b"".join(pieces)
