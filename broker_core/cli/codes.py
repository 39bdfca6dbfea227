"""Exit codes of `leveret`, and how it says why a command failed."""

from __future__ import annotations

import sys
from typing import Final

DONE: Final = 0
REFUSED: Final = 1
USAGE: Final = 2
UNREACHABLE: Final = 3
PENDING: Final = 4  # `plan`: there are changes to make; `lint`: there are findings


def failed(reason: str, code: int = REFUSED) -> int:
    """Say it on standard error; returns the exit code."""
    print(f"leveret: {reason}", file=sys.stderr)
    return code
