"""The command `leveret`: serve a node, check a file, query a running node, and change its objects.

Exit codes: 0 done; 1 refused, or something is wrong with the configuration; 2 wrong usage; 3 the node cannot be reached
or refuses the login; 4 (of `plan` and `lint`) there are changes or findings. Results go to standard output, reasons of
a failure to standard error.

Imports are local where possible: `leveret --help` and `leveret status` should not wait for a broker to load, and the
arguments of a command are defined only when it is used.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence

from leveret.server.cli.commands import parser
from leveret.server.cli.exit_codes import DONE, PENDING, REFUSED, UNREACHABLE, USAGE

__all__ = ["DONE", "PENDING", "REFUSED", "UNREACHABLE", "USAGE", "main", "parser"]


def main(arguments: Sequence[str] | None = None, environ: Mapping[str, str] = os.environ) -> int:
    """Run the command line. Returns the exit code; raises SystemExit(2) for wrong usage."""
    options = parser(environ).parse_args(arguments)
    try:
        code: int = options.command(options, environ)
        return code
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader of our output, such as head, has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
