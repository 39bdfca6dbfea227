"""The commands of `leveret`, and the parser that defines the arguments of the one that is used.

`--help` lists all of them by name, with those of other packages (`extensions.py`).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from typing import Final, NoReturn

from leveret.server.cli import extensions
from leveret.server.cli.command_parser import Actions, Add, Environ, Parser, parts_of, put
from leveret.server.cli.exit_codes import USAGE
from leveret.version import VERSION

# By name: the module with the command in its table ADD, and one sentence.
OWN: Final[Mapping[str, tuple[str, str]]] = {
    "serve": ("serve", "Run a node until it is told to stop."),
    "check": (
        "serve",
        "Read a configuration file, and the files that it names, and report every problem.",
    ),
    "status": ("queries", "Show what a running node serves and holds."),
    "reload": ("queries", "Make a running node reread its configuration."),
    "plugins": ("queries", "List a node's plug-ins, or reload them."),
    "log": ("node_log", "Follow a node's log; show and set its levels."),
    "explain": ("queries", "Show where a message would go, and why, without publishing it."),
    "streams": ("queries", "List streams; create and delete super streams."),
    "leases": ("queries", "List leases of queues; return the messages that a reader holds."),
    "branches": ("queries", "List branches of distributed transactions; end one that is in doubt."),
    "kept": ("queries", "List what protocols keep besides queues, such as sessions; end or delete it."),
    "list": ("lists", "List queues, exchanges, connections, users and whatever else a node has."),
    "declare": ("objects", "Create a queue, an exchange or a virtual host."),
    "delete": ("objects", "Delete a queue, an exchange, a virtual host or a user."),
    "bind": ("objects", "Bind a queue or an exchange to an exchange."),
    "unbind": ("objects", "Remove a binding."),
    "publish": ("messages", "Publish a message."),
    "get": ("messages", "Get messages from a queue, and put them back or not."),
    "peek": ("messages", "Look at the messages of a queue without removing them."),
    "purge": ("messages", "Drop the waiting messages of a queue."),
    "delayed": ("messages", "Show messages that wait for a time; drop them, or deliver them now."),
    "pause": ("messages", "Let the consumers of a queue wait; publishing goes on."),
    "resume": ("messages", "Let the consumers of a paused queue go on."),
    "reread": ("messages", "Read messages of a queue again that could not be read from the store."),
    "forget-ids": ("objects", "Forget the ids by which an exchange or a queue drops duplicates."),
    "renew": ("messages", "Give a consumer more time to acknowledge what it holds."),
    "move": ("messages", "Move the messages of a queue to another."),
    "shovel": ("shovels", "Move messages between queues and brokers, and go on doing so."),
    "federation": ("federation", "Have exchanges and queues get messages from other brokers."),
    "policy": ("governance", "Set, clear and list policies."),
    "operator-policy": ("governance", "Set, clear and list operator policies."),
    "user": ("governance", "Create, change, delete and list users."),
    "logins": ("queries", "Show how many logins a node remembers, or have it forget them."),
    "hash-password": ("password_hash", "Hash a password, for a file."),
    "permission": ("governance", "Set, clear and list users' permissions in virtual hosts."),
    "limit": ("governance", "Limit virtual hosts and users."),
    "close": ("objects", "Close a connection of a client."),
    "export": ("definitions", "Export the definitions of a node: everything but messages."),
    "import": ("definitions", "Import definitions into a node."),
    "plan": ("topology", "Show the changes that would make a node match a file."),
    "apply": ("topology", "Make a node match a file."),
    "lint": ("topology", "Find mistakes in a topology, of a file or of a node."),
    "top": ("top", "Watch a node: its queues, its connections, its message rates."),
    "record": ("recordings", "Record what happens in a virtual host; look into a recording."),
    "replay-session": ("recordings", "Play a recording into a broker, and compare what comes of it."),
    "trace": ("trace", "Copy published and delivered messages to an exchange, and watch them."),
    "docs": ("docs", "Read the handbook in a browser."),
    "completion": ("completion", "Print a script that lets a shell complete commands and names."),
    "cluster": ("cluster", "Show, check and try a cluster; have another node serve."),
    "store": ("store", "Maintain a data folder: verify, stats, backup, restore."),
}


# The groups in which `--help` shows the commands; those of other packages come last.
GROUPS: Final[Mapping[str, Sequence[str]]] = {
    "run a node": ("serve", "check", "reload", "plugins", "store", "cluster"),
    "look at it": ("status", "list", "top", "explain", "log", "trace"),
    "queues, exchanges and bindings": (
        "declare",
        "delete",
        "bind",
        "unbind",
        "policy",
        "operator-policy",
        "limit",
    ),
    "messages": ("publish", "get", "peek", "purge", "move", "delayed", "reread"),
    "consumers and connections": ("pause", "resume", "renew", "close", "kept"),
    "streams, leases, transactions, duplicates": ("streams", "leases", "branches", "forget-ids"),
    "users": ("user", "permission", "logins", "hash-password"),
    "all of a node at once": ("export", "import", "plan", "apply", "lint"),
    "between brokers, and again": ("shovel", "federation", "record", "replay-session"),
    "help": ("docs", "completion"),
}


def parser(environ: Environ) -> argparse.ArgumentParser:
    return CommandParser(environ)


class Version(argparse.Action):
    """Prints one line and exits; the build is looked up only then."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from leveret.server.node.build_info import built

        print(f"leveret {VERSION} ({built()})")
        parser.exit()


class CommandParser(Parser):
    """The command line. It defines in full only the command that it is to parse."""

    own: Actions[argparse.ArgumentParser]
    environ: Environ

    def __init__(self, environ: Environ) -> None:
        super().__init__(
            prog="leveret",
            description="A multi-protocol message broker.",
            epilog="`leveret serve` runs a broker with a web page, `leveret status` asks it, `leveret COMMAND --help` "
            "tells more and shows examples.",
        )
        self.add_argument(
            "--version", action=Version, nargs=0, help="show the version, how it was built, and exit"
        )
        self.environ = environ
        self.own = parts_of(self, Parser)

    def parse_known_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: argparse.Namespace | None = None
    ) -> tuple[argparse.Namespace, list[str]]:
        words = sys.argv[1:] if args is None else args
        if words and words[0].startswith("-") and not self._has_option(words[0].partition("=")[0]):
            self._refuse_early_option(words[0].partition("=")[0], words[1:])
        named = next((word for word in words if not word.startswith("-")), None)
        if named is not None and named in OWN:
            self.add_own([named])
        else:
            self.add_names()
        return super().parse_known_args(args, namespace)

    def format_help(self) -> str:
        """Return the help, with the commands in groups."""
        formatter = self._get_formatter()
        formatter.add_usage(self.usage, self._actions, self._mutually_exclusive_groups)
        formatter.add_text(self.description)
        listed = {each.dest: each for each in self.own._choices_actions}
        others = tuple(name for name in listed if name not in OWN)
        for title, names in {**GROUPS, "of other packages": others}.items():
            formatter.start_section(title)
            formatter.add_arguments([listed[name] for name in names])
            formatter.end_section()
        formatter.start_section("options")
        formatter.add_arguments([each for each in self._actions if each.option_strings])
        formatter.end_section()
        formatter.add_text(self.epilog)
        return formatter.format_help()

    def _has_option(self, option: str) -> bool:
        return any(each.startswith(option) for each in self._option_string_actions)

    def _refuse_early_option(self, option: str, words: Sequence[str]) -> NoReturn:
        """Exit because of an option of a command that stands before it."""
        self.add_names()
        named = [word for word in words if not word.startswith("-")]
        command = next((word for word in named if word in self.own.choices), None)
        guesses = [(word, guess) for word in named if (guess := self.guess(word, self.own.choices))]
        if command is None and guesses:
            word, command = guesses[0]
            print(f"{self.prog}: there is no command {word!r}; did you mean {command}?", file=sys.stderr)
        told = f"leveret {command or 'COMMAND'} {option} ..."
        print(f"{self.prog}: options stand behind the command: {told}", file=sys.stderr)
        sys.exit(USAGE)

    def guess(self, word: str, known: Iterable[str]) -> str:
        if found := super().guess(word, known):
            return found
        from leveret.server.cli.lists import THINGS

        listed = super().guess(word, THINGS)
        return f"list {listed}" if listed else ""

    def add_own(self, names: Iterable[str] = tuple(OWN)) -> None:
        """Add commands of ours, with their arguments."""
        for name in names:
            if name not in self.own.choices:
                home, text = OWN[name]
                added = put(self.own, name, text)
                add: Add = import_module(f"leveret.server.cli.{home}").ADD[name]
                add(added, self.environ)

    def add_names(self) -> None:
        """Add our commands by name only, and other packages' in full."""
        for name, (_, text) in OWN.items():
            if name not in self.own.choices:
                self.own.add_parser(name, help=text, description=text)
        self.add_others()

    def add_others(self) -> None:
        for name, command in extensions.found():
            if name not in self.own.choices:
                added = self.own.add_parser(name, help=command.text, description=command.text)
                command.add_to(added, self.environ)
