"""Exit codes of `leveret`, and the report of a failed command."""

from __future__ import annotations

import sys
from typing import Final

DONE: Final = 0
REFUSED: Final = 1
USAGE: Final = 2
UNREACHABLE: Final = 3
PENDING: Final = 4  # `plan`: there are changes to make; `lint`: there are findings


def failed(reason: str, code: int = REFUSED) -> int:
    """Print the reason on standard error, with control characters escaped, and return the exit code."""
    from leveret.server.cli.text import plain

    print(f"leveret: {plain(reason)}", file=sys.stderr)
    return code
