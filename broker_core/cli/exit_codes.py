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
    """Say it on standard error, where names of others must not draw; returns the exit code."""
    from broker_core.cli.text import plain

    print(f"leveret: {plain(reason)}", file=sys.stderr)
    return code
