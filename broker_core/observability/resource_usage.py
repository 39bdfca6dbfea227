"""Measures what the node uses of its machine, and the limits: memory, descriptors, sockets, disk."""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import attrs

from leveret.alarms import free_octets, resident_octets

if TYPE_CHECKING:
    from leveret.operations import Operations

DESCRIPTORS: Final = "/proc/self/fd"
THREADS: Final = "/proc/self/task"


@attrs.frozen
class Measured:
    """A measurement; sizes are in bytes."""

    memory: int
    descriptors: int
    descriptors_max: int
    sockets: int
    disk_free: int
    threads: int
    processor_ms: int  # processor time of all threads since the start

    @property
    def counts(self) -> tuple[int, ...]:
        """The columns of `counts.NODE`."""
        return self.memory, self.descriptors, self.sockets, self.disk_free, self.processor_ms


def measured(operations: Operations) -> Measured:
    """Measure the node. Takes 0.1 ms; several with thousands of open files and a kernel before Linux 6.2."""
    sockets = len(operations.connections()) + len(operations.listeners())
    return Measured(
        memory=resident_octets(),
        descriptors=open_descriptors() or sockets,
        descriptors_max=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        sockets=sockets,
        disk_free=free_octets(operations.data_folder or Path()) or 0,
        threads=running_threads(),
        processor_ms=time.process_time_ns() // 1_000_000,
    )


def open_descriptors() -> int:
    """Return how many files and sockets this process has open; 0 if the system does not say."""
    try:
        return os.stat(DESCRIPTORS).st_size or len(os.listdir(DESCRIPTORS))  # the size since Linux 6.2
    except OSError:
        return 0


def running_threads() -> int:
    """Return the number of this process's threads; 1 if the system does not say."""
    try:
        return len(os.listdir(THREADS))
    except OSError:
        return 1
