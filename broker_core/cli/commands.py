"""The commands of `leveret`, and the parser that makes the arguments of the one that is named.

`--help` lists all of them by name, with those of other packages (`others.py`).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from typing import Final

from broker_core.cli import extensions
from broker_core.cli.command_parser import Actions, Add, Environ, put
from broker_core.version import VERSION

# By name: the module with the command in its table ADD, and one sentence.
OWN: Final[Mapping[str, tuple[str, str]]] = {
    "serve": ("serve", "Run a node until it is told to stop."),
    "check": (
        "serve",
        "Read a configuration file, and what it names, and tell everything that is wrong.",
    ),
    "status": ("queries", "Show what a running node serves and holds."),
    "reload": ("queries", "Let a running node read its configuration again."),
    "plugins": ("queries", "List a node's plug-ins, or load them again."),
    "explain": ("queries", "Tell where a message would go, and why, without publishing it."),
    "streams": ("queries", "List streams; make and delete super streams."),
    "leases": ("queries", "List leases of queues; put back what a reader has and will not settle."),
    "branches": ("queries", "List branches of distributed transactions; end one that is in doubt."),
    "list": ("lists", "List queues, exchanges, connections, users and whatever else a node has."),
    "declare": ("objects", "Make a queue, an exchange or a virtual host."),
    "delete": ("objects", "Delete a queue, an exchange, a virtual host or a user."),
    "bind": ("objects", "Let an exchange lead to a queue or another exchange."),
    "unbind": ("objects", "Take a binding away."),
    "publish": ("messages", "Publish a message."),
    "get": ("messages", "Take messages from a queue, to look at them or for good."),
    "peek": ("messages", "Look at the messages of a queue without taking them."),
    "purge": ("messages", "Throw away the messages of a queue that wait."),
    "move": ("messages", "Move the messages of a queue to another."),
    "policy": ("governance", "Set, clear and list policies."),
    "operator-policy": ("governance", "Set, clear and list operator policies."),
    "user": ("governance", "Make, change, delete and list users."),
    "hash-password": ("password_hash", "Make the hash of a password, for a file."),
    "permission": ("governance", "Say what users may do in a virtual host."),
    "limit": ("governance", "Limit virtual hosts and users."),
    "close": ("objects", "Close a connection of a client."),
    "export": ("definitions", "Write down everything that a node holds besides messages."),
    "import": ("definitions", "Put in place what was written down."),
    "plan": ("topology", "Tell what would change if a node became what a file says."),
    "apply": ("topology", "Let a node become what a file says."),
    "lint": ("topology", "Find what is wrong in a topology, of a file or of a node."),
    "top": ("top", "Watch a node: its queues, its connections, how fast messages go."),
    "trace": ("trace", "Copy what is published and delivered to an exchange, and watch it."),
    "completion": ("completion", "Print a script that lets a shell complete commands and names."),
    "store": ("store", "Look after a data folder: verify, stats, backup, restore."),
}


def parser(environ: Environ) -> argparse.ArgumentParser:
    return Parser(environ)


class Version(argparse.Action):
    """Prints one line and ends; what it tells is looked up only then."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from broker_core.node.build_info import built

        print(f"leveret {VERSION} ({built()})")
        parser.exit()


class Parser(argparse.ArgumentParser):
    """The command line. Which commands it knows in full depends on what it is to parse."""

    own: Actions[argparse.ArgumentParser]
    environ: Environ

    def __init__(self, environ: Environ) -> None:
        super().__init__(
            prog="leveret",
            description="A multi-protocol message broker.",
            epilog="`leveret COMMAND --help` tells more and shows examples.",
        )
        self.add_argument(
            "--version", action=Version, nargs=0, help="show the version, how it was built, and exit"
        )
        self.environ = environ
        self.own = self.add_subparsers(
            title="commands", metavar="COMMAND", required=True, parser_class=argparse.ArgumentParser
        )

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        words = sys.argv[1:] if args is None else args
        named = next((word for word in words if not word.startswith("-")), None)
        if named is not None and named in OWN:
            self.add_own([named])
        else:
            self.add_names()
        return super().parse_known_args(args, namespace)

    def add_own(self, names: Iterable[str] = tuple(OWN)) -> None:
        """Commands of ours, with all that they can be told."""
        for name in names:
            if name not in self.own.choices:
                home, text = OWN[name]
                added = put(self.own, name, text)
                add: Add = import_module(f"broker_core.cli.{home}").ADD[name]
                add(added, self.environ)

    def add_names(self) -> None:
        """Our commands by their names, and others' in full."""
        for name, (_, text) in OWN.items():
            if name not in self.own.choices:
                self.own.add_parser(name, help=text, description=text)
        self.add_others()

    def add_others(self) -> None:
        for name, command in extensions.found():
            if name not in self.own.choices:
                added = self.own.add_parser(name, help=command.text, description=command.text)
                command.add_to(added, self.environ)
