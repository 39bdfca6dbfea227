"""Keep the last lines of the log in memory, for operators that cannot read its file.

log record ──formatted once──> RecentLog, a few hundred KiB ──after an id, from a level on──> the HTTP API
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

import attrs

from leveret.values import Json

CHARACTERS_MAX: Final = 1 << 20  # of all lines together
MESSAGE_MAX: Final = 4000  # characters of a message or a traceback
LINES_MAX: Final = 2000
FIELD_COST: Final = 40  # characters that a line counts beside its texts


@attrs.frozen
class Line:
    """A line of the log, with the number that it has among all lines since the start."""

    id: int
    level: int
    fields: Mapping[str, str]
    size: int


class RecentLog(logging.Handler):
    """Keeps the last lines, `LINES_MAX` and `CHARACTERS_MAX` at most. Lines may come from any thread."""

    def __init__(self, line: Callable[[logging.LogRecord], Mapping[str, str]]) -> None:
        """`line` turns a record into names and texts."""
        super().__init__()
        self._line = line
        self._kept: deque[Line] = deque()
        self._size = 0
        self._last = 0  # the id of the last line

    def emit(self, record: logging.LogRecord) -> None:
        """Keep a record; `logging` calls it with the handler's lock."""
        fields = {name: text[:MESSAGE_MAX] for name, text in self._line(record).items()}
        self._last += 1
        line = Line(self._last, record.levelno, fields, FIELD_COST + sum(map(len, fields.values())))
        self._kept.append(line)
        self._size += line.size
        while len(self._kept) > LINES_MAX or self._size > CHARACTERS_MAX:
            self._size -= self._kept.popleft().size

    def lines(self, after: int, level: int, category: str, text: str, count: int) -> dict[str, Json]:
        """Return the last `count` lines after the id `after` that suit, the oldest first.

        `level` is the least level as a number of `logging`; `category` is a logger's name without `leveret.`, or empty;
        `text` is in the message, connection, user, virtual host or traceback, whatever the capitals. `last` is the id
        of the last line of all, `first` of the oldest that is kept.
        """
        self.acquire()
        kept, last = list(self._kept), self._last
        self.release()
        suiting: deque[Line] = deque(maxlen=count)
        suiting.extend(
            line
            for line in kept
            if line.id > after
            and line.level >= level
            and (not category or line.fields["logger"] in (f"leveret.{category}", category))
            and (not text or any(text in value.lower() for value in line.fields.values()))
        )
        rows: list[Json] = [{"id": line.id, **line.fields} for line in suiting]
        return {"lines": rows, "first": kept[0].id if kept else last + 1, "last": last}
