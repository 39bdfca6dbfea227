"""The error that ends a measurement."""

from __future__ import annotations

REFUSED = 1
UNREACHABLE = 3


class PerfError(Exception):
    """A reason, in words for the user, why a measurement cannot go on. `code` is the exit code of the command."""

    def __init__(self, text: str, code: int = REFUSED) -> None:
        super().__init__(text, code)
        self.text = text
        self.code = code
