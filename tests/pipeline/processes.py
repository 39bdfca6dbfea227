"""Processes that others have started, as /proc knows them."""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path


def descendants(parent: int) -> list[int]:
    """The processes that one has started, and those that they have."""
    parents: dict[int, int] = {}
    for name in filter(str.isdecimal, os.listdir("/proc")):
        with contextlib.suppress(OSError, IndexError):
            parents[int(name)] = int(Path(f"/proc/{name}/stat").read_text().rpartition(")")[2].split()[1])
    found = [parent]
    for each in found:
        found += [process for process, its in parents.items() if its == each]
    return found[1:]


def command_of(process: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{process}/cmdline").read_text(errors="replace")
    return ""


def kill(process: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)
