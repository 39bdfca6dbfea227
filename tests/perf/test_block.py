from __future__ import annotations

from struct import pack

from leveret.perf.block import DIGITS, Block, Pattern

HEAD = b"\0" * 8 + pack("<I", 7) + b"\0" * 8
KINDS = [
    Pattern(b"[" + HEAD + b"a]", body_at=1),
    Pattern(b"<<" + HEAD + b"bb>>", body_at=2),
    Pattern(b"(" + b"\0" * 4 + b"-" + b"\0" * 4 + b")" + HEAD, body_at=11, ids_at=(1, 6)),
]


def expected(first: int, count: int, stamp_of) -> bytes:
    """Written one by one."""
    octets = b""
    for number in range(first, first + count):
        kind = KINDS[number % len(KINDS)]
        one = bytearray(kind.octets)
        one[kind.body_at : kind.body_at + 20] = pack("<QIQ", stamp_of(number), 7, number)
        for place in kind.ids_at:
            one[place : place + 4] = pack(">I", number & 0xFFFFFFFF)
        octets += bytes(one)
    return octets


def test_columns_are_what_one_by_one_would_be():
    block = Block(KINDS, 400, numbered=True)
    for first in (0, 1, 2, 3, 1000, 2**32 - 2):
        for count in range(1, block.room(first) + 1):
            written = block.write(first, count, [10**15 + first + each for each in range(count)])
            assert written == expected(first, count, lambda number: 10**15 + number)
            if count > 1:
                assert block.write(first, count, [77]) == expected(first, count, lambda _: 77)


def test_the_number_of_a_message_is_written_in_digits():
    block = Block(
        [Pattern(b"<" + DIGITS.encode() + b">", digits_at=(1,)), Pattern(b"-")], 400, numbered=False
    )
    for first in (0, 2**40):
        written = bytes(block.write(first, 5, [1]))
        assert written == b"".join(b"-" if n % 2 else b"<%016x>" % n for n in range(first, first + 5))


def test_a_block_has_room_for_whole_cycles_behind_what_is_skipped():
    block = Block(KINDS, 400, numbered=False)
    assert [block.room(first) for first in (0, 1, 2, 3)] == [block.messages - n for n in (0, 1, 2, 0)]


def test_a_message_larger_than_a_block_is_a_block():
    block = Block([Pattern(b"x" * 1000)], 10, numbered=False)
    assert (block.room(5), block.write(5, 1, [0])) == (1, b"x" * 1000)


def test_bodies_that_are_left_alone_stay():
    assert Block([Pattern(b"abc")], 9, numbered=False).write(0, 3, [1]) == b"abcabcabc"
