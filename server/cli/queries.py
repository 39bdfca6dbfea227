"""Commands that send one request to a running node and print its answer."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from leveret.server.cli.api_commands import confirmed, confirming
from leveret.server.cli.command_parser import Add, Environ, control, group, header, virtual_host
from leveret.server.cli.exit_codes import DONE, REFUSED, UNREACHABLE, USAGE, failed

if TYPE_CHECKING:
    from leveret.server.cli.control_client import ControlClient

RELEASE_TIMEOUT_S: Final = 600.0  # millions of messages may have to be returned to the queue

EXPLAIN_EXAMPLES: Final = """\
examples:
  leveret explain --exchange orders --key eu.new
  leveret explain --exchange by-kind --header kind=invoice --header copies=2
  leveret explain --vhost /prod --as-user shop --exchange orders --key eu.new --json
  leveret explain --recording FILE --at 2026-11-27T09:30:00Z --exchange orders --key eu.new

The values of headers are written as in the configuration file: 2, true, "2"; anything else is text.
"""


def add_status(parser: argparse.ArgumentParser, environ: Environ) -> None:
    control(parser, environ, status)


def add_reload(parser: argparse.ArgumentParser, environ: Environ) -> None:
    control(parser, environ, reload)


def add_plugins(parser: argparse.ArgumentParser, environ: Environ) -> None:
    control(parser, environ, plugins)
    parser.add_argument("action", nargs="?", choices=["list", "reload"], default="list")


def add_logins(parser: argparse.ArgumentParser, environ: Environ) -> None:
    control(parser, environ, logins)
    parser.add_argument("action", nargs="?", choices=["show", "forget"], default="show")


def add_explain(asking: argparse.ArgumentParser, environ: Environ) -> None:
    control(asking, environ, explain, EXPLAIN_EXAMPLES)
    asking.add_argument(
        "--exchange", metavar="NAME", default="", help="the exchange (default: the default one)"
    )
    asking.add_argument("--key", default="", help="the routing key")
    asking.add_argument(
        "--address",
        metavar="PROTOCOL:ADDRESS",
        help="in place of both, what clients of a protocol publish to, such as a topic",
    )
    asking.add_argument(
        "--header", metavar="NAME=VALUE", action="append", default=[], type=header, help="may be repeated"
    )
    virtual_host(asking)
    asking.add_argument("--as-user", metavar="NAME", help="check the permissions of this user")
    asking.add_argument(
        "--recording", metavar="FILE", type=Path, help="ask a recording of the virtual host, and no node"
    )
    asking.add_argument(
        "--at",
        metavar="TIME",
        help="the moment in the recording: ISO 8601, or +SECONDS from its start (default: its end)",
    )


def add_streams(parser: argparse.ArgumentParser, environ: Environ) -> None:
    parts = (
        ("list", list_streams, "List the streams and super streams that the user may read."),
        ("add-super", add_super_stream, "Create streams NAME-0, NAME-1, ... behind an exchange NAME."),
        ("delete-super", delete_super_stream, "Delete a super stream, its streams and their messages."),
    )
    for command, asking in group(parser, environ, parts):
        if command is not list_streams:
            asking.add_argument("name", metavar="NAME")
        if command is delete_super_stream:
            confirming(asking)
        if command is add_super_stream:
            asking.add_argument("--partitions", metavar="N", type=int, required=True, help="how many streams")


def add_leases(parser: argparse.ArgumentParser, environ: Environ) -> None:
    parts = (
        ("list", list_leases, "List the leases of queues that the user may read."),
        ("release", release_lease, "Return what a reader holds to its queue, and end the lease."),
    )
    for command, asking in group(parser, environ, parts):
        if command is release_lease:
            asking.add_argument("queue", metavar="QUEUE")
            asking.add_argument("reader", metavar="READER")


def add_branches(parser: argparse.ArgumentParser, environ: Environ) -> None:
    parts = (
        ("list", list_branches, "List the branches that the user may commit or roll back."),
        ("commit", commit_branch, "Commit a prepared branch in its coordinator's place."),
        ("rollback", roll_back_branch, "Roll a prepared branch back in its coordinator's place."),
        ("forget", forget_branch, "Forget the outcome of such a branch: its coordinator will not ask."),
    )
    for command, asking in group(parser, environ, parts):
        if command is not list_branches:
            asking.add_argument("xid", metavar="XID", help="as `list` names it")
            confirming(asking)


def add_kept(parser: argparse.ArgumentParser, environ: Environ) -> None:
    parts = (
        (
            "list",
            list_kept,
            "List what a protocol keeps in a virtual host, such as the sessions of its clients; alone, the lists.",
        ),
        ("show", show_kept, "Show one thing that a protocol keeps, or the message that it is."),
        ("delete", delete_kept, "End or delete one thing that a protocol keeps."),
    )
    for command, asking in group(parser, environ, parts):
        count = "?" if command is list_kept else None
        asking.add_argument("protocol", metavar="PROTOCOL", nargs=count)
        asking.add_argument("kind", metavar="LIST", nargs=count, help="the list, such as `sessions`")
        if command is not list_kept:
            asking.add_argument("name", metavar="NAME", help="as `list` names it")
        if command is show_kept:
            asking.add_argument("--message", action="store_true", help="the message, for administrators")
        if command is delete_kept:
            confirming(asking)


def status(options: argparse.Namespace, environ: Environ) -> int:
    return asked(options, environ, "GET", "/api/leveret/status")


def reload(options: argparse.Namespace, environ: Environ) -> int:
    return asked(options, environ, "POST", "/api/leveret/reload")


def plugins(options: argparse.Namespace, environ: Environ) -> int:
    if options.action == "reload":
        return asked(options, environ, "POST", "/api/leveret/plugins/reload")
    return asked(options, environ, "GET", "/api/leveret/plugins")


def logins(options: argparse.Namespace, environ: Environ) -> int:
    return asked(options, environ, "DELETE" if options.action == "forget" else "GET", "/api/leveret/logins")


def explain(options: argparse.Namespace, environ: Environ) -> int:
    from urllib.parse import urlencode

    if options.recording is not None:
        from leveret.server.cli.recordings import explain_then

        if options.address is not None:
            return failed("a recording has no protocols: --address needs a node", USAGE)
        return explain_then(options)
    if options.at is not None:
        return failed("--at is a moment in a recording: name its file with --recording", USAGE)

    query = [("vhost", options.vhost)]
    if options.address is None:
        query += [("exchange", options.exchange), ("key", options.key)]
    else:
        protocol, colon, address = options.address.partition(":")
        if not colon or options.exchange or options.key:
            return failed("--address is PROTOCOL:ADDRESS, in place of --exchange and --key", USAGE)
        query += [("protocol", protocol), ("address", address)]
    query += [("user", options.as_user)] if options.as_user else []
    query += [("header", header) for header in options.header]
    return asked(options, environ, "GET", f"/api/leveret/explain?{urlencode(query)}")


def list_streams(options: argparse.Namespace, environ: Environ) -> int:
    from urllib.parse import quote

    return asked(options, environ, "GET", f"/api/leveret/streams/{quote(options.vhost, safe='')}")


def add_super_stream(options: argparse.Namespace, environ: Environ) -> int:
    path = f"{_super_stream(options)}?partitions={options.partitions}"
    return asked(options, environ, "PUT", path)


def delete_super_stream(options: argparse.Namespace, environ: Environ) -> int:
    fact = f"This deletes super stream '{options.name}' in vhost '{options.vhost}', its streams and their messages."
    if not confirmed(options, fact, "Go on?"):
        return REFUSED
    return asked(options, environ, "DELETE", _super_stream(options))


def _super_stream(options: argparse.Namespace) -> str:
    from urllib.parse import quote

    return f"/api/leveret/super-streams/{quote(options.vhost, safe='')}/{quote(options.name, safe='')}"


def list_leases(options: argparse.Namespace, environ: Environ) -> int:
    return asked(options, environ, "GET", _leases(options.vhost))


def release_lease(options: argparse.Namespace, environ: Environ) -> int:
    path = _leases(options.vhost, options.queue, options.reader)
    return asked(options, environ, "DELETE", path, RELEASE_TIMEOUT_S)


def _leases(*names: str) -> str:
    from urllib.parse import quote

    return "/api/leveret/leases/" + "/".join(quote(name, safe="") for name in names)


def list_branches(options: argparse.Namespace, environ: Environ) -> int:
    return asked(options, environ, "GET", _branches(options.vhost))


def commit_branch(options: argparse.Namespace, environ: Environ) -> int:
    return _decided(options, environ, "commits", "POST", "commit")


def roll_back_branch(options: argparse.Namespace, environ: Environ) -> int:
    return _decided(options, environ, "rolls back", "POST", "rollback")


def forget_branch(options: argparse.Namespace, environ: Environ) -> int:
    return _decided(options, environ, "forgets the outcome of", "DELETE")


def _decided(options: argparse.Namespace, environ: Environ, verb: str, method: str, *below: str) -> int:
    fact = f"This {verb} branch '{options.xid}' in vhost '{options.vhost}', which cannot be taken back."
    if not confirmed(options, fact, "Go on?"):
        return REFUSED
    return asked(options, environ, method, _branches(options.vhost, options.xid, *below))


def _branches(*names: str) -> str:
    from urllib.parse import quote

    return "/api/leveret/branches/" + "/".join(quote(name, safe="") for name in names)


def list_kept(options: argparse.Namespace, environ: Environ) -> int:
    if options.protocol is None:
        return asked(options, environ, "GET", _kept())
    if options.kind is None:
        return failed(f"which list of {options.protocol}? `leveret kept list` names them")
    return asked(options, environ, "GET", _kept(options.protocol, options.kind, options.vhost))


def show_kept(options: argparse.Namespace, environ: Environ) -> int:
    names = (options.protocol, options.kind, options.vhost, options.name)
    return asked(options, environ, "GET", _kept(*names) + ("/message" if options.message else ""))


def delete_kept(options: argparse.Namespace, environ: Environ) -> int:
    fact = f"This deletes '{options.name}' of the {options.kind} of {options.protocol} in vhost '{options.vhost}'."
    if not confirmed(options, fact, "Go on?"):
        return REFUSED
    path = _kept(options.protocol, options.kind, options.vhost, options.name)
    return asked(options, environ, "DELETE", path)


def _kept(*names: str) -> str:
    from urllib.parse import quote

    return "/".join(("/api/leveret/kept", *(quote(name, safe="") for name in names)))


def asked(
    options: argparse.Namespace,
    environ: Environ,
    method: str,
    path: str,
    timeout_s: float | None = None,
) -> int:
    """Send a request to the node and print the answer."""
    from leveret.server.cli import text
    from leveret.server.cli.control_client import Unreachable

    try:
        answer = client(options, environ).ask(method, path, timeout_s)
    except Unreachable as error:
        return failed(str(error), UNREACHABLE)
    except (OSError, ValueError) as error:
        return failed(str(error))
    if answer.refused:
        return failed(answer.reason)
    print(answer.text if options.json else text.told(path, answer.content))
    return REFUSED if answer.partly_failed else DONE


def client(options: argparse.Namespace, environ: Environ) -> ControlClient:
    from leveret.server.cli.control_client import ControlClient

    return ControlClient(options.url, options.user, _password(options, environ))


def _password(options: argparse.Namespace, environ: Environ) -> str:
    """Return the password. It is never an argument: other users of the machine can read those."""
    if options.password_file:
        return str(options.password_file.read_text()).rstrip("\r\n")
    if "LEVERET_PASSWORD" in environ:
        return environ["LEVERET_PASSWORD"]
    if options.user == "guest" or not sys.stdin.isatty():
        return "guest"
    from getpass import getpass

    return getpass(f"Password of {options.user}: ")


ADD: Final[Mapping[str, Add]] = {
    "status": add_status,
    "reload": add_reload,
    "logins": add_logins,
    "plugins": add_plugins,
    "explain": add_explain,
    "streams": add_streams,
    "leases": add_leases,
    "branches": add_branches,
    "kept": add_kept,
}
