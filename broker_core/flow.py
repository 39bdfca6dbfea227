"""Memory and disk to alarms: when publishers have to wait.

A monitor decides from one reading whether the node is low on something; `Alarms` asks its monitors, joins their
reasons, and tells its listeners when the answer changes. Nothing here stops anybody: the listeners do. The limits
are no hard caps (S160), there is no hysteresis (an alarm clears as soon as the reading is back within the limit),
and a limit can be changed at any time and holds from the next check on (S161).

The readings at the end know Linux (control groups included) and fall back to what POSIX offers elsewhere.
"""

from __future__ import annotations

import math
import os
import resource
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import ClassVar, Final

from broker_core.config.types import Octets
from broker_core.memory_tuning import give_back_memory

MIB: Final = 1 << 20
ASSUMED_TOTAL: Final = 1024 * MIB  # X044
FACTOR_MAX: Final = 64  # numbers up to here are fractions of the memory, larger ones are octets
CHECK_INTERVAL_S: Final = 1.0

SIZE: Final = Octets(0, 1 << 62)


class Monitor(ABC):
    """One thing the node can be low on. `reason` is what blocked clients are told (S157)."""

    reason: ClassVar[str]

    @abstractmethod
    def low(self) -> bool:
        """Whether the alarm should be raised now. Takes a reading; must not wait."""

    @abstractmethod
    def describe(self) -> str:
        """The limit, as the log says it at start (S154)."""


class MemoryMonitor(Monitor):
    """Low when the process has more memory than a watermark (S153).

    The watermark is a fraction of all memory, or octets, or a size such as "512MB"; 0 switches the monitor off.
    Where the amount of memory is unknown, 1 GiB is assumed, and fractions above 1 multiply it (X044).
    """

    reason = "low on memory"

    def __init__(
        self,
        watermark: float | str = 0.4,
        used: Callable[[], int] | None = None,
        total: Callable[[], int | None] | None = None,
        give_back: Callable[[], None] | None = None,
    ) -> None:
        self._used = used or resident_octets
        self._total = total or total_octets
        self._give_back = give_back or give_back_memory
        self._watermark = watermark_of(watermark)

    def set_watermark(self, watermark: float | str) -> None:
        """Holds from the next check on. Raises ValueError for what is no watermark."""
        self._watermark = watermark_of(watermark)

    def limit(self) -> int | None:
        """Octets, or None if the monitor is off."""
        if isinstance(self._watermark, int):
            return self._watermark or None
        return self._fraction(self._watermark) or None

    def share(self, share: float) -> int | None:
        """Octets: a fraction of the limit (float), or as they are (int). None: no limit, which 0 says as well."""
        if isinstance(share, int):
            return share or None
        limit = self.limit()
        return None if limit is None else round(share * limit) or None

    def _fraction(self, fraction: float) -> int:
        total = self._total()
        return round(fraction * ASSUMED_TOTAL) if total is None else round(min(fraction, 1.0) * total)

    def low(self) -> bool:
        limit = self.limit()
        if limit is None or self._used() <= limit:
            return False
        self._give_back()  # or an alarm would last although the queues are empty
        return self._used() > limit

    def describe(self) -> str:
        limit = self.limit()
        return (
            "Memory limit switched off." if limit is None else f"Memory limit set to {round(limit / MIB)}MB."
        )

    def warning(self) -> str | None:
        """What the log says besides, if the limit is only a guess."""
        if isinstance(self._watermark, int) or not self._watermark or self._total() is not None:
            return None
        return f"Unknown total memory size. Assuming memory size is {ASSUMED_TOTAL // MIB}MB."


def watermark_of(value: float | str) -> float | int:
    """A watermark as given: a fraction (float) or octets (int). Raises ValueError."""
    if isinstance(value, str):
        return size_of(value)
    if isinstance(value, bool) or not math.isfinite(value) or value < 0:
        raise ValueError(f"{value} is neither a fraction of the memory nor a size")
    return float(value) if value <= FACTOR_MAX else int(value)


def size_of(value: int | str) -> int:
    """Octets, from a number or a string with a unit. Raises ValueError."""
    try:
        return SIZE.convert(int(value) if isinstance(value, str) and value.isdecimal() else value)
    except ValueError:
        raise ValueError(f"'{value}' is not a size such as 512MB, 1GiB or 1000000") from None


class DiskMonitor(Monitor):
    """Low when the data folder has less free space than a limit; without a folder, or with limit 0, never (S159)."""

    reason = "low on disk"

    def __init__(
        self,
        folder: Path | None,
        free_limit: int | str = 50_000_000,
        free: Callable[[Path], int | None] | None = None,
    ) -> None:
        self._folder = folder
        self._free = free or free_octets
        self._free_limit = size_of(free_limit)

    def set_free_limit(self, free_limit: int | str) -> None:
        """Holds from the next check on. Raises ValueError for what is no size."""
        self._free_limit = size_of(free_limit)

    def free(self) -> int | None:
        """Octets that can still be written; None: unknown, or there is no folder."""
        return None if self._folder is None else self._free(self._folder)

    def limit(self) -> int | None:
        """Octets, or None if the monitor is off."""
        return None if self._folder is None else self._free_limit or None

    def low(self) -> bool:
        if self._folder is None or not self._free_limit:
            return False
        free = self._free(self._folder)
        return free is not None and free < self._free_limit

    def describe(self) -> str:
        if self._folder is None or not self._free_limit:
            return "Disk free limit switched off."
        return f"Disk free limit set to {round(self._free_limit / 1_000_000)}MB."


Listener = Callable[[str | None], None]


class Alarms:
    """The alarms that are raised now, and who wants to know.

    `reason` is None, or everything that is low, joined by ` & `. Listeners are called with it when it changes.
    """

    def __init__(self, monitors: Iterable[Monitor] = (), interval_s: float = CHECK_INTERVAL_S) -> None:
        self.monitors = tuple(monitors)
        self.reason: str | None = None
        self.due_at = -math.inf  # when the next check is worth it, monotonic seconds
        self._interval_s = interval_s
        self._low: tuple[str, ...] = ()  # by the monitors' readings
        self._said: dict[str, None] = {}  # by an operator or a test
        self._listeners: list[Listener] = []

    def check(self, now: float) -> float:
        """Take the readings, if the last ones are old enough. Returns when the next check is due."""
        if now >= self.due_at:
            self.due_at = now + self._interval_s
            self._low = tuple(monitor.reason for monitor in self.monitors if monitor.low())
            self._tell()
        return self.due_at

    def check_soon(self) -> None:
        """A limit has changed: the next check takes readings whatever the time."""
        self.due_at = -math.inf

    def set(self, reason: str) -> None:
        """Raise an alarm by hand, until `clear`."""
        self._said[reason] = None
        self._tell()

    def clear(self, reason: str) -> None:
        """Take back an alarm raised by hand; what a monitor finds low stays."""
        self._said.pop(reason, None)
        self._tell()

    def listen(self, listener: Listener) -> None:
        """Call `listener(reason)` on every change from now on; it must not wait."""
        self._listeners.append(listener)

    def _tell(self) -> None:
        reason = " & ".join(dict.fromkeys((*self._low, *self._said))) or None
        if reason == self.reason:
            return
        self.reason = reason
        for listener in self._listeners:
            listener(reason)


# Readings.


def resident_octets(root: Path = Path("/")) -> int:
    """The memory this process has now; where only the highest value so far is known, that."""
    try:
        return int((root / "proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def total_octets(root: Path = Path("/")) -> int | None:
    """The memory this process could have: the machine's, or less if a control group says so; None: unknown."""
    known = [size for size in (machine_octets(root), group_octets(root)) if size is not None]
    return min(known, default=None)


def machine_octets(root: Path) -> int | None:
    for line in lines_of(root / "proc/meminfo"):
        if line.startswith("MemTotal:"):
            return int(line.split()[1]) * 1024
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if root == Path("/") else None
    except (OSError, ValueError):
        return None


def group_octets(root: Path) -> int | None:
    """The lowest limit of this process's control group and the groups around it, version 1 or 2."""
    limits = [limit for file in group_files(root) if (limit := limit_in(file)) is not None]
    return min(limits, default=None)


def group_files(root: Path) -> Iterable[Path]:
    for line in lines_of(root / "proc/self/cgroup"):
        _, controllers, group = line.split(":", 2)
        if controllers == "":
            yield from files_up(root / "sys/fs/cgroup", group, "memory.max")
        elif "memory" in controllers.split(","):
            yield from files_up(root / "sys/fs/cgroup/memory", group, "memory.limit_in_bytes")


def files_up(top: Path, group: str, name: str) -> Iterable[Path]:
    """The file in a group and in each group around it; a container may not see its own, so some are missing."""
    parts = [part for part in group.split("/") if part not in ("", "..")]
    return [top.joinpath(*parts[:depth], name) for depth in range(len(parts), -1, -1)]


def limit_in(file: Path) -> int | None:
    """A group's limit; None if there is none, which version 2 writes as `max` and version 1 as nearly 2^63."""
    text = next(iter(lines_of(file)), "")
    return int(text) if text.isdecimal() and int(text) < 1 << 60 else None


def lines_of(file: Path) -> list[str]:
    try:
        return file.read_text().splitlines()
    except OSError:
        return []


def free_octets(folder: Path) -> int | None:
    """What an ordinary user can still write to the disk of `folder`, be it there or still to be made; None: unknown."""
    there = next((each for each in (folder, *folder.absolute().parents) if each.exists()), folder)
    try:
        found = os.statvfs(there)
    except OSError:
        return None
    return found.f_bavail * found.f_frsize
