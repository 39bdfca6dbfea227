"""Commands that other packages add to `leveret`: the entry points of the group `leveret.commands`.

They are looked up only for `--help`, and when the command line names a command that is not one of ours, so that they do
not delay the start of a node. An entry point refers to an `Extension`; its name is the command's.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping
from typing import Final, Protocol, cast

from leveret.server.entry_points import installed

GROUP: Final = "leveret.commands"


class Extension(Protocol):
    """Contract for a command of another package. Loading it should cost little: `leveret --help` waits for it."""

    @property
    def text(self) -> str:
        """One sentence for the list of commands."""

    def add_to(self, parser: argparse.ArgumentParser, environ: Mapping[str, str]) -> None:
        """Add the arguments to the parser, and the default `command`: a function of parsed arguments and environment
        that returns the exit code.
        """


def found() -> Iterator[tuple[str, Extension]]:
    """Yield the installed commands by name. One that cannot be loaded is reported on standard error and left out."""
    for entry in sorted(installed(GROUP), key=lambda entry: entry.name):
        try:
            command = cast(Extension, entry.load())
        except Exception as error:  # another package may raise anything
            print(f"leveret: the command '{entry.name}' cannot be loaded: {error}", file=sys.stderr)
            continue
        yield entry.name, command
