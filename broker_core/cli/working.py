"""Commands that work with the API: the ways they end, and values as people type them."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeAlias

from broker_core.cli.adding import Command, Environ
from broker_core.cli.codes import UNREACHABLE, failed

if TYPE_CHECKING:
    from broker_core.cli.api import Api

Work: TypeAlias = "Callable[[argparse.Namespace, Api], int]"


def working(work: Work) -> Command:
    """The command that does it: failures of every kind become a line and an exit code."""

    def command(options: argparse.Namespace, environ: Environ) -> int:
        from broker_core.cli.api import Api, Refused
        from broker_core.cli.asking import client
        from broker_core.cli.control_client import Unreachable

        try:
            return work(options, Api(client(options, environ)))
        except BrokenPipeError:  # nothing failed: whoever read our output has had enough
            raise
        except Unreachable as error:
            return failed(str(error), UNREACHABLE)
        except (Refused, OSError, ValueError) as error:
            return failed(str(error))

    return command


def value(text: str) -> object:
    """A value as in a TOML file: `2`, `true`, `"2"`, `[1, 2]`; anything else is text."""
    import tomllib

    if "\n" in text:
        return text
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def table(pairs: Iterable[str]) -> dict[str, object]:
    """`NAME=VALUE` of flags, as a table."""
    return {name: value(text) for name, _, text in (pair.partition("=") for pair in pairs)}


def say(options: argparse.Namespace, content: object, words: str) -> None:
    """What came of it: JSON for programs, else a sentence."""
    print(json.dumps(content) if options.json else words)
