"""Resource alarms: readings of memory and disk decide when publishers have to wait.

A monitor decides from one reading whether the node is low on something; `Alarms` asks its monitors, joins their
reasons, and tells its listeners when the answer changes. Nothing here blocks publishers: the listeners do. The limits
are no hard caps (S160), there is no hysteresis (an alarm clears as soon as the reading is back within the limit),
and a limit can be changed at any time and holds from the next check on (S161).

The functions at the end take the readings: from Linux (control groups included), or with POSIX calls elsewhere.
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

from leveret.config.types import Octets
from leveret.memory_tuning import give_back_memory, reusable_octets

MIB: Final = 1 << 20
ASSUMED_TOTAL: Final = 1024 * MIB  # X044
FACTOR_MAX: Final = 64  # numbers up to here are fractions of the memory, larger ones are bytes
CHECK_INTERVAL_S: Final = 1.0
USABLE: Final = 3 / 4  # of the watermark: beyond it the node itself leaves too little for messages

SIZE: Final = Octets(0, 1 << 62)


class Monitor(ABC):
    """A monitor watches one resource that the node can be low on. Blocked clients are told its `reason` (S157)."""

    reason: ClassVar[str]

    @abstractmethod
    def low(self) -> bool:
        """Take a reading; True if the alarm should be raised now. Must not wait."""

    @abstractmethod
    def describe(self) -> str:
        """Return the sentence about the limit that is logged at start (S154)."""


class MemoryMonitor(Monitor):
    """A monitor that is low when the process uses more memory than a watermark (S153).

    Unused memory is given back to the system. What cannot be, because a few objects lie in between, does not count: the
    next messages use it before the process grows.

    The watermark is a fraction of all memory, or bytes, or a size such as "512MB"; 0 switches the monitor off.
    Where the amount of memory is unknown, 1 GiB is assumed, and fractions above 1 multiply it (X044).
    """

    reason = "low on memory"

    def __init__(
        self,
        watermark: float | str = 0.4,
        used: Callable[[], int] | None = None,
        total: Callable[[], int | None] | None = None,
        give_back: Callable[[], None] | None = None,
        reusable: Callable[[], int] | None = None,
    ) -> None:
        self._used = used or resident_octets
        self._reusable = reusable or (reusable_octets if used is None else int)
        self._total = total or total_octets
        self._give_back = give_back or give_back_memory
        self._watermark = watermark_of(watermark)
        # Called with the bytes above the limit, so that memory is freed: the alarm ends by itself then.
        self.relief: Callable[[int], None] | None = None

    def set_watermark(self, watermark: float | str) -> None:
        """Change the watermark from the next check on. Raises ValueError if it is invalid."""
        self._watermark = watermark_of(watermark)

    def limit(self) -> int | None:
        """Return the limit in bytes, or None if the monitor is off."""
        if isinstance(self._watermark, int):
            return self._watermark or None
        return self._fraction(self._watermark) or None

    def share(self, share: float) -> int | None:
        """Return a share in bytes: a fraction of the limit (float), or the bytes given (int). None or 0: no limit."""
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
        used = self._used()
        if used <= limit or (above := used - self._reusable() - limit) <= 0:
            return False
        if self.relief is not None:
            self.relief(above)
        return True

    def describe(self) -> str:
        limit = self.limit()
        return (
            "Memory limit switched off."
            if limit is None
            else f"Memory limit set to {round(limit / MIB)} MiB."
        )

    def warning(self) -> str | None:
        """Return the warning to log if the limit is only a guess, or leaves little beside the node itself, else None.

        Called at start, when there are no messages yet.
        """
        limit, used = self.limit(), self._used()
        if limit is None:
            return None
        if isinstance(self._watermark, float) and self._total() is None:
            return f"Unknown total memory size. Assuming memory size is {ASSUMED_TOTAL // MIB} MiB."
        if used > limit * USABLE:
            sizes = (
                f"{round(limit / MIB)} MiB, and the node takes {round(used / MIB)} MiB without any message"
            )
            return f"The memory limit leaves too little for messages: it is {sizes}. Set memory.watermark higher."
        return None


def watermark_of(value: float | str) -> float | int:
    """Return a watermark as a fraction (float) or bytes (int). Raises ValueError if it is neither."""
    if isinstance(value, str):
        return size_of(value)
    if isinstance(value, bool) or not math.isfinite(value) or value < 0:
        raise ValueError(f"{value} is neither a fraction of the memory nor a size")
    return float(value) if value <= FACTOR_MAX else int(value)


def size_of(value: int | str) -> int:
    """Return bytes from a number or a string with a unit. Raises ValueError if it is neither."""
    try:
        return SIZE.convert(int(value) if isinstance(value, str) and value.isdecimal() else value)
    except ValueError:
        raise ValueError(f"'{value}' is not a size such as 512MB, 1GiB or 1000000") from None


class DiskMonitor(Monitor):
    """A monitor that is low when there is a data folder with less free space than a limit above 0 (S159).

    What the node will certainly write counts as written: `ahead` returns its bytes.
    """

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
        self.ahead: Callable[[], int] = int

    def set_free_limit(self, free_limit: int | str) -> None:
        """Change the limit from the next check on. Raises ValueError if it is not a size."""
        self._free_limit = size_of(free_limit)

    def free(self) -> int | None:
        """Return how many bytes can still be written; None: unknown, or there is no folder."""
        return None if self._folder is None else self._free(self._folder)

    def limit(self) -> int | None:
        """Return the limit in bytes, or None if the monitor is off."""
        return None if self._folder is None else self._free_limit or None

    def low(self) -> bool:
        if self._folder is None or not self._free_limit:
            return False
        free = self._free(self._folder)
        return free is not None and free - self.ahead() < self._free_limit

    def describe(self) -> str:
        if self._folder is None or not self._free_limit:
            return "Disk free limit switched off."
        return f"Disk free limit set to {round(self._free_limit / MIB)} MiB."


Listener = Callable[[str | None], None]


class Alarms:
    """The alarms that are raised now, and the listeners that are told of them.

    `reason` is None, or the reasons of all alarms joined by ` & `. Listeners are called with it when it changes.
    """

    def __init__(self, monitors: Iterable[Monitor] = (), interval_s: float = CHECK_INTERVAL_S) -> None:
        self.monitors = tuple(monitors)
        self.reason: str | None = None
        self.due_at = -math.inf  # time of the next check that takes readings, monotonic seconds
        self._interval_s = interval_s
        self._low: tuple[str, ...] = ()  # by the monitors' readings
        self._said: dict[str, None] = {}  # alarms raised by `set`
        self.warnings: dict[str, None] = {}  # of what is wrong, and does not hold publishers back
        self._listeners: list[Listener] = []

    def check(self, now: float) -> float:
        """Take the readings, if the last ones are old enough, and return when the next check is due."""
        if now >= self.due_at:
            self.due_at = now + self._interval_s
            self._low = tuple(monitor.reason for monitor in self.monitors if monitor.low())
            self._tell()
        return self.due_at

    def check_soon(self) -> None:
        """Let the next check take readings whatever the time. Called after a limit has changed."""
        self.due_at = -math.inf

    def set(self, reason: str) -> None:
        """Raise an alarm by hand, until `clear`."""
        self._said[reason] = None
        self._tell()

    def clear(self, reason: str) -> None:
        """Clear an alarm that was raised by hand; those of monitors stay."""
        self._said.pop(reason, None)
        self._tell()

    @property
    def in_effect(self) -> list[str]:
        """Return what is wrong, whether it holds publishers back or not."""
        return [*([] if self.reason is None else [self.reason]), *self.warnings]

    def warn(self, reason: str) -> None:
        """Note that something is wrong, until `end_warning`: health checks fail, and publishers are not held back."""
        self.warnings[reason] = None

    def end_warning(self, reason: str) -> None:
        self.warnings.pop(reason, None)

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
    """Return the resident memory of this process; where only the highest value so far is known, return that."""
    try:
        return int((root / "proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def total_octets(root: Path = Path("/")) -> int | None:
    """Return the memory that this process could have: the machine's, or a control group's limit; None: unknown."""
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
    """Return the lowest limit of this process's control group and the groups around it, version 1 or 2."""
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
    """Return a file's path in a group and in those around it; some are missing, as a container may not see them."""
    parts = [part for part in group.split("/") if part not in ("", "..")]
    return [top.joinpath(*parts[:depth], name) for depth in range(len(parts), -1, -1)]


def limit_in(file: Path) -> int | None:
    """Return a group's limit, or None if it has none, which version 2 writes as `max` and version 1 as nearly 2^63."""
    text = next(iter(lines_of(file)), "")
    return int(text) if text.isdecimal() and int(text) < 1 << 60 else None


def lines_of(file: Path) -> list[str]:
    try:
        return file.read_text().splitlines()
    except OSError:
        return []


def free_octets(folder: Path) -> int | None:
    """Return how much an ordinary user can write to the disk of `folder`, which may not exist yet; None: unknown."""
    found = _disk_of(folder)
    return None if found is None else found.f_bavail * found.f_frsize


def disk_octets(folder: Path) -> int | None:
    """Return the size of the disk of `folder`, which may not exist yet; None: unknown."""
    found = _disk_of(folder)
    return None if found is None else found.f_blocks * found.f_frsize


def _disk_of(folder: Path) -> os.statvfs_result | None:
    there = next((each for each in (folder, *folder.absolute().parents) if each.exists()), folder)
    try:
        return os.statvfs(there)
    except OSError:
        return None
