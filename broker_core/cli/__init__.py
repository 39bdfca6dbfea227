"""The command `leveret`: serve a node, check a file, ask a running node, change what it holds.

Exit codes: 0 done; 1 refused, or something is wrong with the configuration; 2 wrong usage; 3 the node cannot be
reached or does not let us in; 4 (of `plan` and `lint`) there is something to do. What a command found goes to standard
output, why it failed to standard error.

Imports are made where they are needed: `leveret --help` and `leveret status` should not wait for a broker to load, and
each command's arguments are made only when it is the one.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence

from broker_core.cli.commands import parser
from broker_core.cli.exit_codes import DONE, PENDING, REFUSED, UNREACHABLE, USAGE

__all__ = ["DONE", "PENDING", "REFUSED", "UNREACHABLE", "USAGE", "main", "parser"]


def main(arguments: Sequence[str] | None = None, environ: Mapping[str, str] = os.environ) -> int:
    """Run the command line. Returns the exit code; wrong usage raises `SystemExit(2)`."""
    options = parser(environ).parse_args(arguments)
    try:
        code: int = options.command(options, environ)
        return code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader of our output, such as head, has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
