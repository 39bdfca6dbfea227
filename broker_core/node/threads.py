"""Long work to a thread that steps back for others: the loop's thread wakes when it wants to, not when that is done.

Threads that only compute, without Python's lock, compete with the loop for the processor like any other process. On
Linux a thread has a niceness of its own, which those that it starts inherit (argon2 has four). A thread cannot become
important again, so each work has a new one. It is not as nice as could be: where others take every core, the least
important threads would get a hundredth of one, and nobody could log in any more.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable
from typing import Final, TypeVar

T = TypeVar("T")

NICENESS: Final = 10


def gently(work: Callable[[], T]) -> T:
    """Do it in a thread of its own (60 us), and wait for that. Raises what it raises."""
    done: list[T] = []
    failed: list[BaseException] = []

    def run() -> None:
        _step_back()
        try:
            done.append(work())
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run, name="leveret-work", daemon=True)
    thread.start()
    thread.join()
    if failed:
        raise failed[0]
    return done[0]


def _step_back() -> None:
    """Make this thread as nice as NICENESS, unless it is nicer. Elsewhere niceness is the whole process's."""
    if sys.platform == "linux":
        thread = threading.get_native_id()
        before = os.getpriority(os.PRIO_PROCESS, thread)
        os.setpriority(os.PRIO_PROCESS, thread, max(before, NICENESS))
