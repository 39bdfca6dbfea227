"""Write the log to a file, in a thread: the event loop never waits for the disk of the log.

    event loop ── a formatted line ──> queue of at most LINES_MAX ── thread ──> LogFile

Lines that the queue has no room for are left out, and their number is written as soon as there is room.
"""

from __future__ import annotations

import contextlib
import logging
import os
import queue
import threading
from io import TextIOWrapper
from logging.handlers import QueueHandler, RotatingFileHandler
from pathlib import Path
from typing import Final

log: Final = logging.getLogger("leveret.node")

LINES_MAX: Final = 10_000
CLOSING_S: Final = 2.0  # how long the end of a process waits for the last lines
MODE: Final = 0o640


class LogFile(RotatingFileHandler):
    """A file that is renamed to FILE.1, FILE.2 and so on before it exceeds a size. Raises OSError if it cannot open."""

    def __init__(self, path: Path, size_max: int, keep: int) -> None:
        """`size_max` is in bytes, 0 for no limit; `keep` is the number of renamed files."""
        self._failed = False  # the last line could not be written
        self._failing = False
        super().__init__(path, maxBytes=size_max, backupCount=keep, encoding="utf-8")

    def _open(self) -> TextIOWrapper:
        return open(self.baseFilename, "a", encoding=self.encoding, opener=_opener)

    def emit(self, record: logging.LogRecord) -> None:
        self._failing = False
        super().emit(record)
        self._failed = self._failing

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 -- named by `logging`
        """Report a failure where else the log goes, once until writing succeeds again."""
        self._failing = True
        if not self._failed:
            log.exception("cannot write to %s", self.baseFilename)

    def reopen(self) -> None:
        """Open the path again, after the file was renamed by another program. On failure, keep the open file."""
        try:
            fresh = self._open()
        except OSError as failure:
            log.error("cannot open %s again, the open file stays: %s", self.baseFilename, failure.strerror)
            return
        before, self.stream = self.stream, fresh
        if before is not None:
            before.close()


class FileTarget(QueueHandler):
    """Formats lines in the thread that logs them, and has another thread write them to `file`."""

    def __init__(self, file: LogFile, formatter: logging.Formatter, lines_max: int = LINES_MAX) -> None:
        self._lines: queue.Queue[logging.LogRecord | None] = queue.Queue(lines_max)
        super().__init__(self._lines)
        self.setFormatter(formatter)
        self.file = file
        self.left_out = 0  # lines since the last one that was written
        self._reopening = False
        self._thread = threading.Thread(target=self._write, name="log file", daemon=True)
        self._thread.start()

    def enqueue(self, record: logging.LogRecord) -> None:
        try:
            self._lines.put_nowait(record)
        except queue.Full:
            self.left_out += 1

    def reopen(self) -> None:
        """Have the file opened again before the next line is written."""
        self._reopening = True

    def close(self) -> None:
        """Write what waits, for at most CLOSING_S seconds, and close the file."""
        with contextlib.suppress(queue.Full):
            self._lines.put(None, timeout=CLOSING_S)
        self._thread.join(CLOSING_S)
        super().close()

    def _write(self) -> None:
        while (record := self._lines.get()) is not None:
            if self._reopening:
                self._reopening = False
                self.file.reopen()
            self.file.handle(record)
            if self.left_out:
                self._write_gap()
        self.file.close()

    def _write_gap(self) -> None:
        count, self.left_out = self.left_out, 0
        gap = log.makeRecord(
            log.name, logging.WARNING, "", 0, "%d lines were left out: the disk is too slow", (count,), None
        )
        self.file.handle(self.prepare(gap))


def _opener(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_CLOEXEC, MODE)
