"""Run long computations in threads of low priority, so that the loop's thread wakes when it wants to.

Threads that only compute, without Python's lock, compete with the loop for the processor like any other process. On
Linux a thread has a niceness of its own, which those that it starts inherit (argon2 has four). A thread cannot lower
its niceness again, so each computation has a new one. It is not as nice as could be: where others take every core, the
least important threads would get a hundredth of one, and logging in would become impossible.
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
    """Run `work` in a new thread of low priority (60 us), and return its result. Raises what it raises."""
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
    """Raise this thread's niceness to NICENESS, if it is lower. Elsewhere niceness belongs to the whole process."""
    if sys.platform == "linux":
        thread = threading.get_native_id()
        before = os.getpriority(os.PRIO_PROCESS, thread)
        os.setpriority(os.PRIO_PROCESS, thread, max(before, NICENESS))


def spawned(name: str, work: Callable[[], None]) -> Callable[[float], None]:
    """Run `work` in a thread that does not keep the process alive; return what waits for its end, in seconds."""
    thread = threading.Thread(target=work, name=name, daemon=True)
    thread.start()
    return thread.join
