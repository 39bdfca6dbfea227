"""Work in a thread that steps back."""

from __future__ import annotations

import os
import sys
import threading

import pytest

from leveret.server.node.threads import NICENESS, gently


def test_the_work_is_done_and_its_result_is_there() -> None:
    assert gently(lambda: threading.current_thread().name) == "leveret-work"


def test_what_the_work_raises_is_raised_here() -> None:
    with pytest.raises(ZeroDivisionError):
        gently(lambda: 1 // 0)


def niceness() -> int:
    return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())


linux_only = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere niceness is the whole process's")


@linux_only
def test_the_thread_is_nice_and_its_caller_is_not() -> None:
    before = niceness()
    assert gently(niceness) == max(before, NICENESS)
    assert niceness() == before


@linux_only
def test_a_thread_is_never_less_nice_than_its_caller() -> None:
    """Nobody but root may make a thread more important, and nobody asks for it."""
    before = max(niceness(), NICENESS + 5)
    seen: list[tuple[int, int]] = []

    def nicer() -> None:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), before)
        seen.append((gently(niceness), niceness()))

    thread = threading.Thread(target=nicer)
    thread.start()
    thread.join()
    assert seen == [(before, before)]
