"""The terminal that `leveret top` draws on, and restores afterwards."""

from __future__ import annotations

import os
import select
import sys
import termios
import time
import tty
from collections.abc import Callable
from types import TracebackType
from typing import Final

from leveret.server.cli.api import Refused
from leveret.server.cli.control_client import Unreachable
from leveret.server.cli.top import SORTS, Sample, frame

ENTER: Final = "\x1b[?1049h\x1b[?25l"  # the alternate screen, without a cursor
LEAVE: Final = "\x1b[?25h\x1b[?1049l"
HOME: Final = "\x1b[H"
REST_OF_LINE: Final = "\x1b[K"
REST_OF_SCREEN: Final = "\x1b[J"
LOOK_S: Final = 0.2  # between checks of the window's size

Ask = Callable[[int, str], Sample]


class Screen:
    """Standard input and output while `top` runs."""

    def __init__(self) -> None:
        self._input = sys.stdin.fileno()
        self._before = termios.tcgetattr(self._input)

    def __enter__(self) -> Screen:
        tty.setcbreak(self._input)
        self._write(ENTER)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        termios.tcsetattr(self._input, termios.TCSADRAIN, self._before)
        self._write(LEAVE)

    def show(self, ask: Ask, sort: str, interval_s: float) -> None:
        """Show frame after frame until q is typed. A node that does not answer is asked again."""
        found, note = Sample({}, [], []), "asking ..."
        while True:
            try:
                found, note = ask(os.get_terminal_size().lines, sort), ""
            except (Unreachable, Refused) as error:
                note = str(error)
            key = self._look(found, sort, note, interval_s)
            if key in ("q", "Q"):
                return
            if key == "s":
                sort = next(name for name in SORTS if name != sort)

    def _look(self, sample: Sample, sort: str, note: str, interval_s: float) -> str:
        """Show a frame until the interval is over or a key is typed, redrawing it when the window's size changes."""
        until = time.monotonic() + interval_s
        drawn = None
        while (left := until - time.monotonic()) > 0:
            size = os.get_terminal_size()
            if size != drawn:
                self._draw(frame(sample, size.columns, size.lines, sort, note))
                drawn = size
            if select.select([self._input], [], [], min(left, LOOK_S))[0]:
                return os.read(self._input, 1).decode("ascii", "replace") or "q"  # "": the terminal is gone
        return ""

    def _draw(self, lines: list[str]) -> None:
        self._write(HOME + f"{REST_OF_LINE}\r\n".join(lines) + REST_OF_LINE + REST_OF_SCREEN)

    def _write(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()
