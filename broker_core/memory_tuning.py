"""The memory of a process: when the interpreter looks for garbage, and what the C library does with what is freed.

`spare_the_collector` and `keep_what_is_freed` are for `leveret serve`: a program with a node inside keeps its own ways.
"""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator
from typing import Final

# Of glibc (mallopt(3)): what is set, and to how many octets.
KEPT: Final = {
    -1: 16 << 20,  # M_TRIM_THRESHOLD: at the end of the heap, free and not given back
    -2: 1 << 20,  # M_TOP_PAD: more than asked for, each time the heap grows
    -3: 4 << 20,  # M_MMAP_THRESHOLD: a piece so large is mapped by itself, and given back when it is freed
}


@contextlib.contextmanager
def no_collection() -> Iterator[None]:
    """What is made here stays: to look at it time and again is half of the work (10 000 queues: 0.9 of 1.9 s)."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def spare_the_collector() -> None:
    """Messages are in no cycles; to look at all of them time and again costs half of a long queue's speed.

    With 10 000 queues and 250 000 messages: 9 us a message with the interpreter's thresholds, 5.6 with these. What is
    young is looked at twice, whatever the first two are; the smaller, the shorter is each look: with 20 000 and 5 the
    longest took 28 ms of an import of 10 000 queues, now 3.
    """
    gc.freeze()  # what is here now stays; the few cycles that nobody needs are not worth a look at everything
    gc.set_threshold(10_000, 0, 7_000)
    gc.enable()  # `leveret serve` starts without


def keep_what_is_freed() -> None:
    """What one batch took the next one takes again; the system would have to clear every page of it in between.

    One pair of clients at 1.4 million messages a second: 125 000 page faults a second with glibc's thresholds, a dozen
    with these, and a quarter less processor time. Other C libraries are left as they are.
    """
    import ctypes

    with contextlib.suppress(AttributeError, OSError):
        set_option = ctypes.CDLL(None).mallopt
        for option, octets in KEPT.items():
            set_option(option, octets)


def give_back_memory() -> None:
    """Let the system have what was freed; the C library keeps it where one piece in use lies above (glibc only).

    0.1 s for a gigabyte, nothing where there is nothing to give.
    """
    import ctypes

    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)
