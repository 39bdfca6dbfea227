"""The command `leveret`: serve a node, check a file, ask a running node.

Exit codes: 0 done; 1 refused, or something is wrong with the configuration; 2 wrong usage; 3 the node cannot be
reached or does not let us in. What a command found goes to standard output, why it failed to standard error.

Imports are made where they are needed: `leveret --help` and `leveret status` should not wait for a broker to load.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from broker_core.commands import Parser
from broker_core.version import VERSION

if TYPE_CHECKING:
    from broker_core.config import Config
    from broker_core.control_client import ControlClient

DONE: Final = 0
REFUSED: Final = 1
USAGE: Final = 2
UNREACHABLE: Final = 3

RELEASE_TIMEOUT_S: Final = 600.0  # millions of messages may have to go back

SERVE_EXAMPLES: Final = """\
examples:
  leveret serve                                 every protocol on 127.0.0.1:5672 and [::1]:5672, in memory
  leveret serve --data /var/lib/leveret         what is durable outlives the node
  leveret serve --config leveret.toml           as the file says
  leveret serve --listen 0.0.0.0:5672 --listen [::]:5672
  LEVERET_LOG__LEVEL=debug leveret serve        every key of the file can be set like this

Flags win over environment variables, these over the file. SIGHUP reads the file again.
"""
CHECK_TEXT: Final = "Read a configuration file, and what it names, and tell everything that is wrong."
CONTROL_EXAMPLES: Final = """\
The password comes from --password-file, from the variable LEVERET_PASSWORD, or is asked for; guest's is guest.
Exit codes: 0 done, 1 refused, 2 wrong usage, 3 the node cannot be reached or does not let us in.
"""
EXPLAIN_EXAMPLES: Final = """\
examples:
  leveret explain --exchange orders --key eu.new
  leveret explain --exchange by-kind --header kind=invoice --header copies=2
  leveret explain --vhost /prod --as-user shop --exchange orders --key eu.new --json

The values of headers are written as in the configuration file: 2, true, "2"; anything else is text.
"""


def main(arguments: Sequence[str] | None = None, environ: Mapping[str, str] = os.environ) -> int:
    """Run the command line. Returns the exit code; wrong usage raises `SystemExit(2)`."""
    options = parser(environ).parse_args(arguments)
    command: Command = options.command
    try:
        return command(options, environ)
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # the reader of our output, such as head, has had enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE


def parser(environ: Mapping[str, str]) -> argparse.ArgumentParser:
    top = Parser(
        prog="leveret",
        description="A multi-protocol message broker.",
        epilog="`leveret COMMAND --help` tells more and shows examples.",
    )
    top.add_argument("--version", action="version", version=f"leveret {VERSION}")
    commands = top.add_subparsers(
        title="commands", metavar="COMMAND", required=True, parser_class=argparse.ArgumentParser
    )
    top.own, top.environ = commands, environ
    _add_serve(commands, environ)
    _add_check(commands)
    for name, command, text in (
        ("status", status, "Show what a running node serves and holds."),
        ("reload", reload, "Let a running node read its configuration again."),
    ):
        _add_control(commands, environ, name, command, text)
    _add_plugins(commands, environ)
    _add_explain(commands, environ)
    _add_streams(commands, environ)
    _add_leases(commands, environ)
    _add_branches(commands, environ)
    _add_store(commands)
    return top


Command = Callable[[argparse.Namespace, Mapping[str, str]], int]
Commands = argparse._SubParsersAction  # the type of `add_subparsers`, which argparse keeps private


def _add_serve(commands: Commands[argparse.ArgumentParser], environ: Mapping[str, str]) -> None:
    serving = _add(commands, "serve", serve, "Run a node until it is told to stop.", SERVE_EXAMPLES)
    serving.add_argument(
        "--config",
        metavar="FILE",
        type=Path,
        default=environ.get("LEVERET_CONFIG"),
        help="the configuration, in TOML (default: $LEVERET_CONFIG, else the defaults)",
    )
    serving.add_argument(
        "--listen",
        metavar="HOST:PORT",
        action="append",
        help="where to accept connections; may be repeated, and replaces the listeners of the file",
    )
    serving.add_argument("--http", metavar="HOST:PORT", help="where the control endpoint listens")
    where = serving.add_mutually_exclusive_group()
    where.add_argument(
        "--data",
        metavar="DIR",
        type=Path,
        help="the folder for durable data; it is made if need be (default: keep everything in memory only)",
    )
    where.add_argument("--memory", action="store_true", help="keep everything in memory only")


def _add_check(commands: Commands[argparse.ArgumentParser]) -> None:
    checking = _add(commands, "check", check, CHECK_TEXT)
    checking.add_argument("file", metavar="FILE", type=Path)
    checking.add_argument("--json", action="store_true", help="print JSON")


def _add_plugins(commands: Commands[argparse.ArgumentParser], environ: Mapping[str, str]) -> None:
    asking = _add_control(
        commands, environ, "plugins", plugins, "List a node's plug-ins, or load them again."
    )
    asking.add_argument("action", nargs="?", choices=["list", "reload"], default="list")


def _add_explain(commands: Commands[argparse.ArgumentParser], environ: Mapping[str, str]) -> None:
    text = "Tell where a message would go, and why, without publishing it."
    asking = _add_control(commands, environ, "explain", explain, text, EXPLAIN_EXAMPLES)
    asking.add_argument(
        "--exchange", metavar="NAME", default="", help="the exchange (default: the default one)"
    )
    asking.add_argument("--key", default="", help="the routing key")
    asking.add_argument(
        "--header", metavar="NAME=VALUE", action="append", default=[], type=_header, help="may be repeated"
    )
    asking.add_argument("--vhost", metavar="NAME", default="/", help="the virtual host (default: /)")
    asking.add_argument("--as-user", metavar="NAME", help="check the permissions of this user")


def _add_group(
    commands: Commands[argparse.ArgumentParser],
    environ: Mapping[str, str],
    name: str,
    text: str,
    parts: Iterable[tuple[str, Command, str]],
) -> Iterator[tuple[Command, argparse.ArgumentParser]]:
    """A command that consists of others, which are about one virtual host: each of them with its parser."""
    actions = commands.add_parser(name, help=text, description=text).add_subparsers(
        title="commands", metavar="COMMAND", required=True
    )
    for part, command, what in parts:
        asking = _add_control(actions, environ, part, command, what)
        asking.add_argument("--vhost", metavar="NAME", default="/", help="the virtual host (default: /)")
        yield command, asking


def _add_streams(commands: Commands[argparse.ArgumentParser], environ: Mapping[str, str]) -> None:
    text = "List streams; make and delete super streams."
    parts = (
        ("list", list_streams, "List the streams and super streams that the user may read."),
        ("add-super", add_super_stream, "Make streams NAME-0, NAME-1, ... behind an exchange NAME."),
        ("delete-super", delete_super_stream, "Delete a super stream, its streams and their messages."),
    )
    for command, asking in _add_group(commands, environ, "streams", text, parts):
        if command is not list_streams:
            asking.add_argument("name", metavar="NAME")
        if command is add_super_stream:
            asking.add_argument("--partitions", metavar="N", type=int, required=True, help="how many streams")


def _add_leases(commands: Commands[argparse.ArgumentParser], environ: Mapping[str, str]) -> None:
    text = "List leases of queues; put back what a reader has and will not settle."
    parts = (
        ("list", list_leases, "List the leases of queues that the user may read."),
        ("release", release_lease, "Put all that a reader has back into its queue, and forget the lease."),
    )
    for command, asking in _add_group(commands, environ, "leases", text, parts):
        if command is release_lease:
            asking.add_argument("queue", metavar="QUEUE")
            asking.add_argument("reader", metavar="READER")


def _add_branches(commands: Commands[argparse.ArgumentParser], environ: Mapping[str, str]) -> None:
    text = "List branches of distributed transactions; end one that is in doubt."
    parts = (
        ("list", list_branches, "List the branches that the user may decide about."),
        ("commit", commit_branch, "Commit a prepared branch in its coordinator's place."),
        ("rollback", roll_back_branch, "Roll a prepared branch back in its coordinator's place."),
        ("forget", forget_branch, "Forget how a branch was ended so: its coordinator will not ask."),
    )
    for command, asking in _add_group(commands, environ, "branches", text, parts):
        if command is not list_branches:
            asking.add_argument("xid", metavar="XID", help="as `list` names it")


def _add_store(commands: Commands[argparse.ArgumentParser]) -> None:
    from broker_core import cli_store

    looking_after = commands.add_parser("store", help=cli_store.TEXT, description=cli_store.TEXT)
    actions = looking_after.add_subparsers(title="commands", metavar="COMMAND", required=True)
    cli_store.add_commands(lambda name, command, text, epilog: _add(actions, name, command, text, epilog))


def _header(text: str) -> str:
    if text.find("=") < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAME=VALUE")
    return text


def _add_control(
    commands: Commands[argparse.ArgumentParser],
    environ: Mapping[str, str],
    name: str,
    command: Command,
    text: str,
    examples: str = "",
) -> argparse.ArgumentParser:
    """A command that asks a running node."""
    asking = _add(commands, name, command, text, "\n".join(filter(None, [examples, CONTROL_EXAMPLES])))
    url = environ.get("LEVERET_URL") or "http://127.0.0.1:15672"
    user = environ.get("LEVERET_USER") or "guest"
    asking.add_argument(
        "--url", default=url, help="the node's control endpoint (default: $LEVERET_URL, else %(default)s)"
    )
    asking.add_argument("--user", default=user, help="who asks (default: $LEVERET_USER, else %(default)s)")
    asking.add_argument("--password-file", metavar="FILE", type=Path, help="a file with the password")
    asking.add_argument("--json", action="store_true", help="print the node's answer as JSON")
    return asking


def _add(
    commands: Commands[argparse.ArgumentParser],
    name: str,
    command: Command,
    text: str,
    epilog: str = "",
) -> argparse.ArgumentParser:
    added = commands.add_parser(
        name,
        help=text,
        description=text,
        epilog=epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    added.set_defaults(command=command)
    return added


def serve(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    from broker_core.config import ConfigError
    from broker_core.plugins import BadPlugin
    from broker_core.store.contract import StoreError
    from broker_core.store.folder import BadFolder

    try:
        config = configured(options, environ)
        run_node(config, lambda: configured(options, environ), str(options.config or ""))
    except ConfigError as error:
        return _failed(f"the configuration cannot be used\n{error}")
    except BadPlugin as error:
        return _failed(error.told())
    except (BadFolder, StoreError) as error:
        return _failed(str(error))
    except OSError as error:  # an address is taken
        return _failed(error.strerror or str(error))
    return DONE


def configured(options: argparse.Namespace, environ: Mapping[str, str]) -> Config:
    """What file, environment and flags of `leveret serve` say together. Raises `ConfigError`."""
    from broker_core.config import load

    return load(options.config, environ, _overrides(options))


def _overrides(options: argparse.Namespace) -> dict[str, object]:
    """The flags of `leveret serve` by the paths of the keys that they override."""
    overrides: dict[str, object] = {}
    if options.listen:
        overrides["listeners"] = [{"address": address} for address in options.listen]
    if options.http:
        overrides["http.address"] = options.http
    if options.data:
        overrides["node.data_dir"] = options.data.absolute()
    if options.memory:
        overrides["node.data_dir"] = None
    return overrides


def run_node(config: Config, reread: Callable[[], Config], source: str) -> None:
    """Run a node until a signal ends it; `reread` gives the configuration again when it is to be reloaded."""
    from broker_core.process import run

    run(config, reread, source)


def check(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    from broker_core import cli_text
    from broker_core.config import ConfigError

    try:
        config = _checked(options.file, environ)
    except ConfigError as error:
        if options.json:
            print(cli_text.problems_json(error.problems))
            return REFUSED
        return _failed(f"{options.file} has {len(error.problems)} problem(s)\n{error}")
    print(
        cli_text.summary_json(config) if options.json else f"{options.file}: OK\n{cli_text.summary(config)}"
    )
    return DONE


def _checked(file: Path, environ: Mapping[str, str]) -> Config:
    """The configuration, once it and the plug-ins and definitions that it names are free of mistakes."""
    from broker_core import composition
    from broker_core.config import load

    config = load(file, environ)
    composition.rehearse(config)
    return config


def status(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    return _asked(options, environ, "GET", "/api/leveret/status")


def reload(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    return _asked(options, environ, "POST", "/api/leveret/reload")


def plugins(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    if options.action == "reload":
        return _asked(options, environ, "POST", "/api/leveret/plugins/reload")
    return _asked(options, environ, "GET", "/api/leveret/plugins")


def explain(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    from urllib.parse import urlencode

    asked = [("vhost", options.vhost), ("exchange", options.exchange), ("key", options.key)]
    asked += [("user", options.as_user)] if options.as_user else []
    asked += [("header", header) for header in options.header]
    return _asked(options, environ, "GET", f"/api/leveret/explain?{urlencode(asked)}")


def list_streams(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    from urllib.parse import quote

    return _asked(options, environ, "GET", f"/api/leveret/streams/{quote(options.vhost, safe='')}")


def add_super_stream(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    path = f"{_super_stream(options)}?partitions={options.partitions}"
    return _asked(options, environ, "PUT", path)


def delete_super_stream(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    return _asked(options, environ, "DELETE", _super_stream(options))


def _super_stream(options: argparse.Namespace) -> str:
    from urllib.parse import quote

    return f"/api/leveret/super-streams/{quote(options.vhost, safe='')}/{quote(options.name, safe='')}"


def list_leases(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    return _asked(options, environ, "GET", _leases(options.vhost))


def release_lease(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    path = _leases(options.vhost, options.queue, options.reader)
    return _asked(options, environ, "DELETE", path, RELEASE_TIMEOUT_S)


def _leases(*names: str) -> str:
    from urllib.parse import quote

    return "/api/leveret/leases/" + "/".join(quote(name, safe="") for name in names)


def list_branches(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    return _asked(options, environ, "GET", _branches(options.vhost))


def commit_branch(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    return _asked(options, environ, "POST", _branches(options.vhost, options.xid, "commit"))


def roll_back_branch(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    return _asked(options, environ, "POST", _branches(options.vhost, options.xid, "rollback"))


def forget_branch(options: argparse.Namespace, environ: Mapping[str, str]) -> int:
    return _asked(options, environ, "DELETE", _branches(options.vhost, options.xid))


def _branches(*names: str) -> str:
    from urllib.parse import quote

    return "/api/leveret/branches/" + "/".join(quote(name, safe="") for name in names)


def _asked(
    options: argparse.Namespace,
    environ: Mapping[str, str],
    method: str,
    path: str,
    timeout_s: float | None = None,
) -> int:
    """Put a question to the node and print what it says."""
    from broker_core import cli_text
    from broker_core.control_client import Unreachable

    try:
        answer = _client(options, environ).ask(method, path, timeout_s)
    except Unreachable as error:
        return _failed(str(error), UNREACHABLE)
    except (OSError, ValueError) as error:
        return _failed(str(error))
    if answer.refused:
        return _failed(answer.reason)
    print(answer.text if options.json else cli_text.told(path, answer.content))
    return REFUSED if answer.partly_failed else DONE


def _client(options: argparse.Namespace, environ: Mapping[str, str]) -> ControlClient:
    from broker_core.control_client import ControlClient

    return ControlClient(options.url, options.user, _password(options, environ))


def _password(options: argparse.Namespace, environ: Mapping[str, str]) -> str:
    """Never an argument: other users of the machine can read those."""
    if options.password_file:
        return str(options.password_file.read_text()).rstrip("\r\n")
    if "LEVERET_PASSWORD" in environ:
        return environ["LEVERET_PASSWORD"]
    if options.user == "guest" or not sys.stdin.isatty():
        return "guest"
    from getpass import getpass

    return getpass(f"Password of {options.user}: ")


def _failed(reason: str, code: int = REFUSED) -> int:
    print(f"leveret: {reason}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
