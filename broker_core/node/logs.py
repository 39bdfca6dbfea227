"""Write the log: a line for each event that a person would act on, as text or as JSON, with the same content.

    2026-11-22T15:06:54.782Z WARNING leveret.amqp091: login refused connection="10.0.0.7:40000 -> ..." user="shop"

    {"time": "2026-11-22T15:06:54.782Z", "level": "warning", "logger": "leveret.amqp091", "message": "login refused",
     "connection": "10.0.0.7:40000 -> ...", "user": "shop"}

`time` is UTC (RFC 3339). `connection`, `user` and `vhost` are there if they are known: they name the source of the
input that is being processed, unless the caller names another one (`extra`).
"""

from __future__ import annotations

import json
import logging
import threading
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from broker_core.config.load import Config
    from broker_core.operations import Operations

FIELDS: Final = ("connection", "user", "vhost")
LOGGER: Final = logging.getLogger("leveret")


def to_stderr(config: Config) -> None:
    """Log to standard error, with the configured level and format."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonLines() if config.log.format == "json" else TextLines())
    LOGGER.setLevel(config.log.level.upper())
    LOGGER.addHandler(handler)


def say_whose(node: Operations) -> None:
    """From now on, add the source of the input that the node is processing. Call it in the node's own thread."""
    whose = Whose(node)
    for handler in LOGGER.handlers:
        handler.addFilter(whose)


class Lines(logging.Formatter):
    """The base of both formatters."""

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: N802 -- its name
        """Return the time of the record as RFC 3339 writes it."""
        return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")[:-6] + "Z"

    def fields(self, record: logging.LogRecord) -> dict[str, str]:
        return {name: str(found) for name in FIELDS if (found := getattr(record, name, None))}


class JsonLines(Lines):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": self.formatTime(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **self.fields(record),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line)


class TextLines(Lines):
    """Formats an event as one line, whatever name a peer gives itself; only our own exceptions have more lines."""

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 -- named by `logging`
        """Format a record; fields that the message contains anyway are not repeated."""
        message = record.message
        fields = {name: said for name, said in self.fields(record).items() if said not in message}
        more = "".join(f" {name}={json.dumps(said, ensure_ascii=False)}" for name, said in fields.items())
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
