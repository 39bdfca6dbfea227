"""A mutator of inputs, for machines without a fuzzer that is guided by coverage; the same inputs for the same seed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from typing import Final

NUMBERS: Final = (
    b"\0",
    b"\x01",
    b"\x7f",
    b"\x80",
    b"\xff",
    b"\xff\xff",
    b"\0\0\0\0",
    b"\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff",
)
GROWN_MAX: Final = 4096


def mutated(samples: Sequence[bytes], random: Random) -> Iterator[bytes]:
    """Yield inputs without end: samples with a few changes, and what these became with more."""
    pool = [each for each in samples if each] or [b"\0"]
    while True:
        octets = bytearray(random.choice(pool))
        for _ in range(random.choice((1, 1, 2, 3, 8))):
            change(octets, pool, random)
        made = bytes(octets[:GROWN_MAX])
        if made and random.random() < 0.05:
            pool.append(made)
            if len(pool) > 2000:
                del pool[len(samples)]
        yield made


def change(octets: bytearray, pool: Sequence[bytes], random: Random) -> None:
    """Change something: a bit, a number, a piece that is cut out, doubled, or taken from another sample."""
    at = random.randrange(len(octets) + 1)
    kind = random.randrange(6)
    if kind == 0 and at < len(octets):
        octets[at] ^= 1 << random.randrange(8)
    elif kind == 1:
        number = random.choice(NUMBERS)
        octets[at : at + len(number)] = number
    elif kind == 2:
        del octets[at : at + random.choice((1, 1, 2, 4, 16))]
    elif kind == 3:
        octets[at:at] = octets[at : at + random.choice((1, 2, 4, 16))] * random.choice((1, 2, 40))
    elif kind == 4:
        other = random.choice(pool)
        begin = random.randrange(len(other))
        octets[at:at] = other[begin : begin + random.choice((1, 2, 4, 16, 64))]
    else:
        octets[at:at] = bytes((random.randrange(256),))
