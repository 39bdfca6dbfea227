"""Commands that other packages give `leveret`: the entry points of the group `leveret.commands`.

They are looked for when the command line names a command that is none of ours, and for the list in `--help`; so a node
starts as fast as if there were none. What an entry point names is a `Command`; its name is the command's.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping
from typing import Final, Protocol

GROUP: Final = "leveret.commands"


class Command(Protocol):
    """Loading it should cost little: `leveret --help` waits for it."""

    @property
    def text(self) -> str:
        """One sentence for the list of commands."""

    def add_to(self, parser: argparse.ArgumentParser, environ: Mapping[str, str]) -> None:
        """Give the parser its arguments, and the default `command`: what runs, with the parsed arguments and the
        environment, and returns the exit code."""


def found() -> Iterator[tuple[str, Command]]:
    """What is installed, by name. What cannot be loaded is told on standard error, and is not there."""
    from importlib.metadata import entry_points

    for entry in sorted(entry_points(group=GROUP), key=lambda entry: entry.name):
        try:
            command: Command = entry.load()
        except Exception as error:  # whatever somebody else's package does
            print(f"leveret: the command '{entry.name}' cannot be loaded: {error}", file=sys.stderr)
            continue
        yield entry.name, command
