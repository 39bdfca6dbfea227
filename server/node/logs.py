"""Write the log: a line for each event that a person would act on, as text or as JSON, with the same content.

    2026-11-22T15:06:54.782Z WARNING leveret.amqp091: login refused connection="10.0.0.7:40000 -> ..." user="shop"

    {"time": "2026-11-22T15:06:54.782Z", "level": "warning", "logger": "leveret.amqp091", "message": "login refused",
     "connection": "10.0.0.7:40000 -> ...", "user": "shop"}

`time` is UTC (RFC 3339). `connection`, `user` and `vhost` are there if they are known: they name the source of the
input that is being processed, unless the caller names another one (`extra`).
"""

from __future__ import annotations

import errno
import json
import logging
import os
import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, TypeVar

import attrs

from leveret.config.config import ConfigError
from leveret.config.types import Problem, printed
from leveret.observability import log_levels
from leveret.observability.strict_json import strict
from leveret.server.node.recent_log import RecentLog

if TYPE_CHECKING:
    from leveret.config.sections import LogSettings
    from leveret.operations import Operations
    from leveret.server.node.log_file import FileTarget

H = TypeVar("H", bound="logging.Handler | None")

TRACEBACK: Final = "traceback"  # an attribute of records whose exception is known as text only
FIELDS: Final = ("connection", "user", "vhost")
LOGGER: Final = logging.getLogger("leveret")


class LogTargets:
    """The places that a process writes its log to: standard error, a file, or both. A reload changes them.

    The last lines are kept in memory as well (`recent`).
    """

    def __init__(self, settings: LogSettings) -> None:
        """Start to log. Raises ConfigError if the file cannot be opened."""
        self.recent = RecentLog(JsonLines().line)
        LOGGER.addHandler(self.recent)
        self._console: logging.Handler | None = None
        self._file: FileTarget | None = None
        self._settings: LogSettings | None = None
        self._whose: Whose | None = None
        log_levels.set_levels(settings.level, attrs.asdict(settings.levels))
        try:
            self.apply(settings)
        except OSError as failure:
            raise ConfigError([unwritable(settings, failure)]) from None

    def apply(self, settings: LogSettings) -> None:
        """Log as `settings` say from now on; a file that stays is opened again.

        Raises OSError if the file cannot be opened. Then it stays as it was.
        """
        before, self._settings = self._settings, settings
        if before is None or (before.console, before.format) != (settings.console, settings.format):
            self._console = self._replaced(self._console, _console(settings))
        if before is not None and before.file == settings.file:
            if self._file is not None:
                self._file.reopen()
            return
        try:
            file = _file(settings)
        except OSError:
            if before is not None:
                self._settings = attrs.evolve(settings, file=before.file)
            raise
        self._file = self._replaced(self._file, file)

    def say_whose(self, node: Operations) -> None:
        """From now on, add the source of the input that the node is processing. Call it in the node's own thread."""
        self._whose = Whose(node)
        for handler in (self._console, self._file, self.recent):
            if handler is not None:
                handler.addFilter(self._whose)

    def close(self) -> None:
        """Write what waits, and log no more."""
        self._console = self._replaced(self._console, None)
        self._file = self._replaced(self._file, None)
        LOGGER.removeHandler(self.recent)

    def _replaced(self, before: logging.Handler | None, after: H) -> H:
        if after is not None:
            if self._whose is not None:
                after.addFilter(self._whose)
            LOGGER.addHandler(after)
        if before is not None:
            LOGGER.removeHandler(before)
            before.close()
        return after


def _console(settings: LogSettings) -> logging.Handler | None:
    if not settings.console:
        return None
    handler = logging.StreamHandler()
    handler.setFormatter(formatter(settings.format))
    return handler


def _file(settings: LogSettings) -> FileTarget | None:
    file = settings.file
    if file.path is None:
        return None
    from leveret.server.node.log_file import FileTarget, LogFile  # not needed without a file

    opened = LogFile(file.path, file.size_max, file.keep)
    return FileTarget(opened, formatter(file.format or settings.format))


def unwritable(settings: LogSettings, failure: OSError) -> Problem:
    """Return the problem of a log file that cannot be opened."""
    accepted = f"a file that can be written to ({failure.strerror})"
    return Problem("log.file.path", printed(str(settings.file.path)), accepted)


def check(settings: LogSettings) -> list[str]:
    """Try to open the log file, and return the warnings of settings that have no effect. Raises ConfigError."""
    path = settings.file.path
    try:
        if path is not None and path.exists():
            path.open("ab").close()
        elif path is not None and not os.access(path.parent, os.W_OK | os.X_OK):
            raise OSError(errno.EACCES, f"the folder {path.parent} is missing, or not writable")
    except OSError as failure:
        raise ConfigError([unwritable(settings, failure)]) from None
    level = settings.levels.audit or settings.level
    if settings.audit == "log" and level not in ("debug", "info"):
        return [
            f"log.audit has no effect: its lines are of level info, and the category logs from '{level}' on"
        ]
    return []


def formatter(name: str) -> Lines:
    """Return the formatter that a setting names, `text` or `json`."""
    return JsonLines() if name == "json" else TextLines()


class Lines(logging.Formatter):
    """The base of both formatters."""

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802 -- its name
        """Return the time of the record as RFC 3339 writes it."""
        return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")[:-6] + "Z"

    def exception(self, record: logging.LogRecord) -> str:
        """Return the traceback of a record; empty if it has none."""
        if record.exc_info:
            return self.formatException(record.exc_info)
        return str(getattr(record, TRACEBACK, ""))

    def fields(self, record: logging.LogRecord) -> dict[str, str]:
        return {name: str(found) for name in FIELDS if (found := getattr(record, name, None))}


class JsonLines(Lines):
    """One JSON object a line."""

    def line(self, record: logging.LogRecord) -> dict[str, str]:
        """Return the record as names and texts."""
        line = {
            "time": self.formatTime(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **self.fields(record),
        }
        if trace := self.exception(record):
            line["exception"] = trace
        return line

    def format(self, record: logging.LogRecord) -> str:
        return strict(json.dumps(self.line(record)))


class TextLines(Lines):
    """Formats an event as one line, whatever name a peer gives itself; only our own exceptions have more lines."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of a record, and below it its traceback, if it has one."""
        record.exc_text = self.exception(record) or None
        return super().format(record)

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 -- named by `logging`
        """Format a record; fields that the message contains anyway are not repeated."""
        message = record.message
        fields = {name: value for name, value in self.fields(record).items() if value not in message}
        more = "".join(f" {name}={json.dumps(value, ensure_ascii=False)}" for name, value in fields.items())
        line = f"{self.formatTime(record)} {record.levelname:7} {record.name}: {message}{more}"
        return line if line.isprintable() else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in line)


class Whose(logging.Filter):
    """Adds to a node's records the connection whose input is being processed."""

    def __init__(self, node: Operations) -> None:
        """Create it in the node's thread: records of other threads are left alone."""
        super().__init__()
        self._node = node
        self._thread = threading.get_ident()

    def filter(self, record: logging.LogRecord) -> bool:
        fed = self._node.fed
        if fed is None or record.thread != self._thread or hasattr(record, FIELDS[0]):
            return True
        record.connection = fed.peer.name
        facts = None if fed.front is None else fed.front.facts()
        if facts is not None:
            record.user, record.vhost = facts.user, facts.virtual_host
        return True
