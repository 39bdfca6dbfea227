"""End the wait of a thread in poll(2) from another thread, by a pipe that becomes readable."""

from __future__ import annotations

import os
import select
from contextlib import suppress


class Wakeup:
    """A pipe: one thread waits until it is readable, among other things, and others make it so."""

    def __init__(self) -> None:
        """Open it. Raises OSError without descriptors."""
        self._reads, self._writes = os.pipe()
        os.set_blocking(self._reads, False)
        os.set_blocking(self._writes, False)
        self._is_closed = False

    def fileno(self) -> int:
        """Return the descriptor that can be read from once `wake` was called."""
        return self._reads

    def wake(self) -> None:
        """End the wait of the other thread, or its next one. Any thread."""
        with suppress(BlockingIOError):  # it is full of calls that were not heard yet
            os.write(self._writes, b"!")

    def hear(self) -> None:
        """Have `fileno` not be readable until the next call."""
        with suppress(BlockingIOError):
            os.read(self._reads, select.PIPE_BUF)

    def close(self) -> None:
        """Close both ends, unless they are. No thread may use it any more."""
        if not self._is_closed:
            self._is_closed = True
            os.close(self._reads)
            os.close(self._writes)
