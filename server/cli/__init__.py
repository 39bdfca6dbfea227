"""The command `leveret`: serve a node, check a file, query a running node, and change its objects.

Exit codes: 0 done; 1 refused, or something is wrong with the configuration; 2 wrong usage; 3 the node cannot be reached
or refuses the login; 4 (of `plan` and `lint`) there are changes or findings. Results go to standard output, reasons of
a failure to standard error.

Imports are local where possible: `leveret --help` and `leveret status` should not wait for a broker to load, and the
arguments of a command are defined only when it is used.
"""

from __future__ import annotations

import errno
import io
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
FULL: Final = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}  # of a disk that standard output is written to
STANDARD_ERROR: Final = 2  # the highest of the standard descriptors


def main(arguments: Sequence[str] | None = None, environ: Mapping[str, str] = os.environ) -> int:
    """Run the command line. Returns the exit code; raises SystemExit(2) for wrong usage."""
    open_closed_streams()
    escape_what_is_not_printable()
    try:
        try:
            return _run(arguments, environ)
        finally:
            sys.stdout.flush()  # what is in the buffer finds out here that nobody reads it
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader of our output, such as head, has closed it
        discard_output()
        return DONE
    except OSError as error:
        if error.errno not in FULL:
            raise
        discard_output()
        return failed(f"the output cannot be written: {error.strerror}")


def open_closed_streams() -> None:
    """Open the null device in place of standard streams that were closed.

    Python has None for these. A socket or a file would get their descriptors, and with them what something that is no
    Python writes to standard error.
    """
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= STANDARD_ERROR:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115, it stays open


def escape_what_is_not_printable() -> None:
    """Have standard output escape letters that its encoding lacks, as standard error does, in place of an exception."""
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")


def discard_output() -> None:
    """Send what is still to be written to standard output to the null device."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


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
