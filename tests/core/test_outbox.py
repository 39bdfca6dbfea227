"""Bytes on their way out: gathered, counted, held back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from leveret.outbox import Outbox


def test_an_outbox_reports_itself_when_it_gets_its_first_piece() -> None:
    ready: list[Outbox] = []
    outbox = Outbox(ready)
    outbox.write(b"ab")
    outbox.write(b"c")
    assert (ready, outbox.size) == ([outbox], 3)
    assert outbox.take() == [b"ab", b"c"]
    outbox.write(b"d")
    assert ready == [outbox, outbox]


def test_a_batch_of_pieces_is_counted_in_one_go() -> None:
    ready: list[Outbox] = []
    outbox = Outbox(ready)
    pieces = outbox.open()
    pieces += [b"ab", b"c"]
    outbox.wrote(3)
    assert (outbox.size, outbox.take(), ready) == (3, [b"ab", b"c"], [outbox])


def test_what_was_taken_counts_until_it_is_sent() -> None:
    outbox = Outbox([], limit=10)
    outbox.write(bytes(12))
    outbox.take()
    assert (outbox.size, outbox.room(), outbox.written()) == (12, -2, 12)
    outbox.sent(12)
    assert (outbox.size, outbox.gone, outbox.room(), outbox.written()) == (0, 12, 10, 12)


def test_somebody_who_was_passed_over_goes_on_when_half_has_gone() -> None:
    outbox = Outbox([], limit=10)
    outbox.write(bytes(10))
    assert not outbox.waiting
    assert outbox.room() == 0  # somebody is passed over
    assert not outbox.sent(4)
    assert outbox.sent(1)
    assert not outbox.sent(5)  # said once


def test_nobody_is_told_who_was_not_passed_over() -> None:
    outbox = Outbox([], limit=10)
    outbox.write(bytes(10))
    assert not outbox.sent(10)


@given(st.lists(st.binary(min_size=1, max_size=9)), st.lists(st.integers(1, 20)))
def test_nothing_is_lost_or_counted_twice(pieces: list[bytes], sends: list[int]) -> None:
    outbox, out = Outbox([]), b""
    for piece in pieces:
        outbox.write(piece)
        out += b"".join(outbox.take())
    for count in sends:
        if count <= outbox.size:
            outbox.sent(count)
    assert out == b"".join(pieces)
    assert outbox.size + outbox.gone == outbox.written() == len(out)


def test_an_outbox_is_full_beyond_its_limit_and_the_answers_that_may_be_owed():
    outbox = Outbox([], limit=10, answers_max=5)
    outbox.write(b"x" * 15)
    assert not outbox.full
    outbox.write(b"x")
    assert outbox.full
    outbox.sent(1)
    assert not outbox.full
