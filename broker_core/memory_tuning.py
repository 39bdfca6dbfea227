"""Tuning of process memory: the interpreter's garbage collector, and the C library's treatment of freed memory.

`spare_the_collector` and `keep_what_is_freed` are for `leveret serve`: a program that embeds a node keeps its settings.
"""

from __future__ import annotations

import contextlib
import gc
import re
from collections.abc import Iterator
from typing import Final

# Options of glibc's mallopt(3), and their values in bytes.
KEPT: Final = {
    -1: 16 << 20,  # M_TRIM_THRESHOLD: kept free at the end of the heap
    -2: 1 << 20,  # M_TOP_PAD: added whenever the heap grows
    -3: 4 << 20,  # M_MMAP_THRESHOLD: pieces of this size are mapped by themselves, and given back when freed
}


@contextlib.contextmanager
def no_collection() -> Iterator[None]:
    """Pause garbage collection while lasting objects are made: it is half of the work (10 000 queues: 0.9 of 1.9 s)."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@contextlib.contextmanager
def one_collection() -> Iterator[None]:
    """Have the garbage collector look at each object only once while modules are imported.

    Nearly all that is made then stays. Without any collection an idle node had 1.8 MiB more, though: each class with
    slots leaves another one behind.
    """
    thresholds = gc.get_threshold()
    gc.set_threshold(10_000, 1 << 30, 1 << 30)
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)


def spare_the_collector() -> None:
    """Make the garbage collector run less. Messages are in no cycles, and scanning them halves a long queue's speed.

    With 10 000 queues and 250 000 messages: 9 us a message with the interpreter's thresholds, 5.6 with these. Young
    objects are scanned twice, whatever the first two thresholds are; the smaller these, the shorter each pause: with
    20 000 and 5 the longest was 28 ms in an import of 10 000 queues, with these it is 3.
    """
    gc.freeze()  # what exists now stays; the few cycles of garbage in it are not worth scanning all of it
    gc.set_threshold(10_000, 0, 7_000)
    gc.enable()


def keep_what_is_freed() -> None:
    """Make glibc keep freed memory for the next batch; otherwise the system has to clear every page of it in between.

    One pair of clients at 1.4 million messages a second: 125 000 page faults a second with glibc's thresholds, a dozen
    with these, and a quarter less processor time. Other C libraries are left as they are.
    """
    import ctypes

    with contextlib.suppress(AttributeError, OSError):
        set_option = ctypes.CDLL(None).mallopt
        for option, octets in KEPT.items():
            set_option(option, octets)


def reusable_octets() -> int:
    """Return how much of the process's memory is free for the next Python objects, but cannot be given back.

    Arenas of CPython's allocator are given back when nothing in them is in use; a long queue that went leaves a few
    objects in most of them. Takes a few milliseconds for a gigabyte; 0 where the allocator does not tell.
    """
    text = _allocator_statistics()
    arenas = re.search(rb"(\d+) arenas \* (\d+) bytes/arena", text)
    in_use = re.search(rb"# bytes in allocated blocks += +([\d,]+)", text)
    if arenas is None or in_use is None:
        return 0
    return int(arenas[1]) * int(arenas[2]) - int(in_use[1].replace(b",", b""))


def _allocator_statistics() -> bytes:
    """Return what CPython's allocator tells of itself, which it writes to a C file only; nothing if it does not."""
    import ctypes

    try:
        c, python = ctypes.CDLL(None), ctypes.pythonapi
        tell, open_memory, close = python._PyObject_DebugMallocStats, c.open_memstream, c.fclose
    except (AttributeError, OSError):
        return b""
    open_memory.restype = ctypes.c_void_p
    text, size = ctypes.c_void_p(), ctypes.c_size_t()
    file = open_memory(ctypes.byref(text), ctypes.byref(size))
    if not file:
        return b""
    tell(ctypes.c_void_p(file))
    close(ctypes.c_void_p(file))
    try:
        return ctypes.string_at(text, size.value)
    finally:
        c.free(text)


def give_back_memory() -> None:
    """Give freed memory back to the system, which glibc does not do by itself below a piece in use (glibc only).

    This takes 0.1 s for a gigabyte, and no time where there is nothing to give back.
    """
    import ctypes

    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).malloc_trim(0)
