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
from typing import Final

from leveret.server.cli.commands import parser
from leveret.server.cli.exit_codes import DONE, PENDING, REFUSED, UNREACHABLE, USAGE, failed

__all__ = ["DONE", "PENDING", "REFUSED", "UNREACHABLE", "USAGE", "main", "parser"]


# The extra of Leveret that brings a package, by the package's name.
EXTRAS: Final = {
    "deltalake": "delta",
    "matplotlib": "charts",
    "psycopg": "postgres",
    "pyarrow": "delta",
    "pyspark": "spark",
}


def main(arguments: Sequence[str] | None = None, environ: Mapping[str, str] = os.environ) -> int:
    """Run the command line. Returns the exit code; raises SystemExit(2) for wrong usage."""
    try:
        try:
            return _run(arguments, environ)
        finally:
            sys.stdout.flush()  # what is in the buffer finds out here that nobody reads it
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader of our output, such as head, has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE


def _run(arguments: Sequence[str] | None, environ: Mapping[str, str]) -> int:
    options = parser(environ).parse_args(arguments)
    try:
        code: int = options.command(options, environ)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in EXTRAS:
            raise
        return failed(f"{package} is not installed: pip install 'leveret[{EXTRAS[package]}]'")
    return code
