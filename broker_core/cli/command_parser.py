"""The argument parsers of commands: how a command is added, and the options that say which node to ask."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

CONTROL_EXAMPLES: Final = """\
The password comes from --password-file, from the variable LEVERET_PASSWORD, or is asked for; guest's is guest.
Exit codes: 0 done, 1 refused, 2 wrong usage, 3 the node cannot be reached or refuses the login.
"""

Environ = Mapping[str, str]
Command = Callable[[argparse.Namespace, Environ], int]
Add = Callable[[argparse.ArgumentParser, Environ], None]  # gives the parser of a command its arguments
Actions = argparse._SubParsersAction  # the type of `add_subparsers`, which argparse keeps private


def put(
    actions: Actions[argparse.ArgumentParser], name: str, text: str, epilog: str = ""
) -> argparse.ArgumentParser:
    """Add the parser of one of several commands."""
    return actions.add_parser(
        name,
        help=text,
        description=text,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def parts_of(parser: argparse.ArgumentParser) -> Actions[argparse.ArgumentParser]:
    """Let a command consist of subcommands."""
    return parser.add_subparsers(title="commands", metavar="COMMAND", required=True)


def control(parser: argparse.ArgumentParser, environ: Environ, command: Command, examples: str = "") -> None:
    """Make a parser one of a command that asks a running node."""
    parser.set_defaults(command=command)
    parser.epilog = "\n".join(filter(None, [examples, CONTROL_EXAMPLES]))
    url = environ.get("LEVERET_URL") or "http://127.0.0.1:15672"
    user = environ.get("LEVERET_USER") or "guest"
    parser.add_argument(
        "--url",
        default=url,
        help="the node's control endpoint, also unix:/PATH (default: $LEVERET_URL, else %(default)s)",
    )
    parser.add_argument("--user", default=user, help="the login (default: $LEVERET_USER, else %(default)s)")
    parser.add_argument("--password-file", metavar="FILE", type=Path, help="a file with the password")
    parser.add_argument("--json", action="store_true", help="print the node's answer as JSON")


def virtual_host(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--vhost", metavar="NAME", default="/", help="the virtual host (default: /)")


def group(
    parser: argparse.ArgumentParser, environ: Environ, parts: Iterable[tuple[str, Command, str]]
) -> Iterator[tuple[Command, argparse.ArgumentParser]]:
    """Add subcommands that concern one virtual host, and yield each with its parser."""
    actions = parts_of(parser)
    for name, command, text in parts:
        part = put(actions, name, text)
        control(part, environ, command)
        virtual_host(part)
        yield command, part


def header(text: str) -> str:
    if text.find("=") < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return text
