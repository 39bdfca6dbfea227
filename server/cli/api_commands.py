"""Shared parts of commands that use the API: the reporting of failures, and values as the user types them."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from leveret.server.cli.command_parser import Actions, Environ, control, put
from leveret.server.cli.exit_codes import UNREACHABLE, failed
from leveret.server.cli.text import plain

if TYPE_CHECKING:
    from leveret.server.cli.api import Api
    from leveret.server.cli.control_client import ControlClient

Work: TypeAlias = "Callable[[argparse.Namespace, Api], int]"


class Working:
    """A command that calls the API and turns every kind of failure into a line and an exit code."""

    __slots__ = ("_work",)

    def __init__(self, work: Work) -> None:
        self._work = work

    def __call__(self, options: argparse.Namespace, environ: Environ) -> int:
        from leveret.server.cli.queries import client

        return self.answer(options, lambda: client(options, environ))

    def answer(self, options: argparse.Namespace, reach: Callable[[], ControlClient]) -> int:
        """Run the command. `reach` returns the client for the node, and may raise as the client does."""
        from leveret.server.cli.api import Api, Refused
        from leveret.server.cli.control_client import Unreachable

        try:
            with reach() as client:
                return self._work(options, Api(client))
        except BrokenPipeError:  # nothing failed: the reader of our output has closed it
            raise
        except Unreachable as error:
            return failed(str(error), UNREACHABLE)
        except (Refused, OSError, ValueError) as error:
            return failed(words_of(error))


def asking_part(
    actions: Actions[argparse.ArgumentParser],
    environ: Environ,
    name: str,
    work: Work,
    text: str,
    examples: str = "",
) -> argparse.ArgumentParser:
    """Add the parser of a subcommand that asks a node."""
    parser = put(actions, name, text)
    control(parser, environ, Working(work), examples)
    return parser


def words_of(error: Exception) -> str:
    """Return an error's text without its number: `orders.json: No such file or directory`."""
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    return str(error)


def json_in(name: str) -> object:
    """Return what a file of JSON holds, or standard input if the name is `-`. Raises ValueError or OSError.

    It may be in UTF-16 or begin with a mark of the order of its bytes, as what programs of Windows write.
    """
    octets = sys.stdin.buffer.read() if name == "-" else Path(name).read_bytes()
    where = "standard input" if name == "-" else name
    try:
        content: object = json.loads(octets)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{where} is not JSON: {error}") from None
    return content


def value(text: str) -> object:
    """Return a value written as in a TOML file: `2`, `true`, `"2"`, `[1, 2]`; anything else is text."""
    import tomllib

    if "\n" in text:
        return text
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def table(pairs: Iterable[str]) -> dict[str, object]:
    """Return the `NAME=VALUE` pairs of flags as a table."""
    return {name: value(text) for name, _, text in (pair.partition("=") for pair in pairs)}


def confirming(parser: argparse.ArgumentParser) -> None:
    """Have a command ask before it loses something; see `confirmed`."""
    parser.add_argument("--yes", action="store_true", help="do not ask; needed where there is no terminal")


def confirmed(options: argparse.Namespace, fact: str, question: str) -> bool:
    """Ask a person at a terminal; True with --yes. If the answer is no, or there is no terminal, that is reported."""
    if options.yes:
        return True
    if not sys.stdin.isatty():
        failed(f"{fact} Nothing was changed: there is no terminal to ask at, and --yes does without")
        return False
    print(f"{plain(fact)} {plain(question)} [y/N] ", end="", file=sys.stderr, flush=True)
    if sys.stdin.readline().strip().lower() in ("y", "yes"):
        return True
    failed("nothing was changed")
    return False


def say(options: argparse.Namespace, content: object, words: str) -> None:
    """Print the outcome: JSON with --json, else a sentence."""
    print(json.dumps(content) if options.json else words)


def say_with_warnings(
    options: argparse.Namespace, content: Mapping[str, object], words: str, warnings: Sequence[str]
) -> None:
    """Print the outcome, and what of it has no effect: a key with --json, else lines on standard error."""
    say(options, {**content, "warnings": warnings} if warnings else content, words)
    if not options.json:
        for each in warnings:
            print(f"leveret: warning: {plain(each)}", file=sys.stderr)


def warnings_in(content: object) -> list[str]:
    """Return the warnings in an answer of the node; a RabbitMQ has none."""
    found = content.get("warnings") if isinstance(content, Mapping) else None
    return [str(each) for each in found] if isinstance(found, list) else []


def warnings_of(api: Api, path: str) -> list[str]:
    """Return the warnings of an object that was declared; none, if the user may declare it but not see it."""
    from leveret.server.cli.api import Refused

    try:
        return warnings_in(api.get(path))
    except Refused:
        return []
