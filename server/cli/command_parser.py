"""The argument parsers of commands: how a command is added, and the options that say which node to ask.

A parser with subcommands prints its help if none is given, and a word that it does not know is answered with the one
that was probably meant.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from leveret.server.cli.exit_codes import USAGE

CONTROL_EXAMPLES: Final = """\
The password comes from --password-file, from the variable LEVERET_PASSWORD, or is asked for; guest's is guest.
Exit codes: 0 done, 1 refused, 2 wrong usage, 3 the node cannot be reached or refuses the login.
"""

ALIKE: Final = 0.6  # of words that were probably meant: commands are short, and have little in common
OPTIONS_ALIKE: Final = 0.75  # all have their dashes in common

Environ = Mapping[str, str]
Command = Callable[[argparse.Namespace, Environ], int]
Add = Callable[[argparse.ArgumentParser, Environ], None]  # gives the parser of a command its arguments
Actions = argparse._SubParsersAction  # the type of `add_subparsers`, which argparse keeps private


class Parser(argparse.ArgumentParser):
    """A parser that answers an unknown word with the one that was probably meant, not with all that there are.

    Its help has an example.
    """

    def format_help(self) -> str:
        from leveret.server.cli.examples import EXAMPLES

        example = EXAMPLES.get(self.prog.removeprefix("leveret "))
        if example is not None and "example" not in (self.epilog or ""):
            self.epilog = f"example:\n  {example}\n\n{self.epilog or ''}"
            self.formatter_class = argparse.RawDescriptionHelpFormatter
        return super().format_help()

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        options, left = super().parse_known_args(args, namespace)
        for word in left:
            if word.startswith("-"):
                from leveret.arguments.names import meant

                option = word.partition("=")[0]
                self.error(
                    f"there is no option {option}{meant(option, self._option_string_actions, OPTIONS_ALIKE)}"
                )
        return options, left

    def _check_value(self, action: argparse.Action, value: Any) -> None:  # argparse's own hook
        if action.choices is None or value in action.choices:
            return
        from leveret.arguments.names import meant

        known = [str(each) for each in action.choices]
        if action.dest == argparse.SUPPRESS:  # of subcommands
            guess = self.guess(str(value), known)
            more = (
                f"; did you mean {guess}?" if guess else f"; `{self.prog} --help` shows those that there are"
            )
            self.exit(USAGE, f"{self.prog}: there is no command {str(value)!r}{more}\n")
        more = meant(str(value), known, ALIKE) or f"; choose from {', '.join(known)}"
        raise argparse.ArgumentError(action, f"there is no {str(value)!r}{more}")

    def guess(self, word: str, known: Iterable[str]) -> str:
        """Return the subcommand that was probably meant by an unknown word; empty if there is none."""
        from leveret.arguments.names import nearest

        return nearest(word, known, ALIKE)


def print_help(parser: argparse.ArgumentParser, options: argparse.Namespace, environ: Environ) -> int:
    """Print the help of a command that is nothing without a subcommand."""
    parser.print_help()
    return USAGE


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


def parts_of(
    parser: argparse.ArgumentParser, kind: type[argparse.ArgumentParser] | None = None
) -> Actions[argparse.ArgumentParser]:
    """Let a command consist of subcommands; without one, it prints its help."""
    parser.set_defaults(command=partial(print_help, parser))
    return parser.add_subparsers(title="commands", metavar="COMMAND", parser_class=kind or type(parser))


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
