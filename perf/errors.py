"""Why a measurement cannot go on, in words for who started it."""

from __future__ import annotations

REFUSED = 1
UNREACHABLE = 3


class PerfError(Exception):
    """`code` is what the command exits with."""

    def __init__(self, text: str, code: int = REFUSED) -> None:
        super().__init__(text, code)
        self.text = text
        self.code = code
