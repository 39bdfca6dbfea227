"""`leveret shovel`: set, list, restart and delete shovels."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from leveret.server.cli.api_commands import asking_part, confirmed, confirming, json_in, say, table
from leveret.server.cli.command_parser import Add, Environ, header, parts_of, virtual_host
from leveret.server.cli.exit_codes import DONE, REFUSED
from leveret.server.cli.lists import list_things

if TYPE_CHECKING:
    from leveret.server.cli.api import Api

EXAMPLES: Final = """\
examples:
  leveret shovel set drain --set src-uri=amqp:// --set src-queue=old --set dest-uri=amqp:// --set dest-queue=new
  leveret shovel set to-archive --file to-archive.json

A URI with a password belongs in a file, or in standard input (-): other users of the machine can read arguments.
"""


def add_shovel(parser: argparse.ArgumentParser, environ: Environ) -> None:
    actions = parts_of(parser)
    setting = asking_part(actions, environ, "set", set_shovel, "Set a shovel, or replace it.", EXAMPLES)
    restarting = asking_part(actions, environ, "restart", restart_shovel, "Let a shovel begin anew, at once.")
    deleting = asking_part(actions, environ, "delete", delete_shovel, "Stop and delete a shovel.")
    for part in (setting, restarting, deleting):
        part.add_argument("name", metavar="NAME")
        virtual_host(part)
    confirming(deleting)
    add_file(setting)
    setting.add_argument(
        "--set", metavar="KEY=VALUE", action="append", default=[], type=header, help="may be repeated"
    )
    listing = asking_part(actions, environ, "list", list_things, "The same as `leveret list shovels`.")
    listing.set_defaults(what="shovels", columns=None, sort=None, reverse=False, filter=None, limit=None)
    listing.add_argument("--vhost", metavar="NAME", help="only of this virtual host")


def add_file(parser: argparse.ArgumentParser) -> None:
    """Add the option of a file that has the keys of a parameter."""
    parser.add_argument(
        "--file", metavar="FILE", type=Path, help="the keys, as a JSON object; - is standard input"
    )


def set_shovel(options: argparse.Namespace, api: Api) -> int:
    from leveret.server.cli.api import path

    value = {**in_file(options.file), **table(options.set)}
    if not value:
        raise ValueError("a shovel needs keys: --set KEY=VALUE, or --file FILE")
    api.put(path("parameters", "shovel", options.vhost, options.name), {"value": value})
    fields = {"vhost": options.vhost, "name": options.name}
    say(options, fields, f"shovel '{options.name}' is set in vhost '{options.vhost}'")
    return DONE


def in_file(file: Path | None) -> Mapping[str, object]:
    """Return the keys in a file. Raises ValueError, OSError."""
    if file is None:
        return {}
    content = json_in(str(file))
    if not isinstance(content, dict):
        raise ValueError(f"{file} holds no JSON object")
    return content


def restart_shovel(options: argparse.Namespace, api: Api) -> int:
    from leveret.server.cli.api import path

    api.delete(path("shovels", "vhost", options.vhost, options.name, "restart"))
    say(options, {"restarted": options.name}, f"shovel '{options.name}' begins anew")
    return DONE


def delete_shovel(options: argparse.Namespace, api: Api) -> int:
    from leveret.server.cli.api import path

    if not confirmed(options, f"This deletes shovel '{options.name}' in vhost '{options.vhost}'.", "Go on?"):
        return REFUSED
    api.delete(path("shovels", "vhost", options.vhost, options.name))
    say(options, {"deleted": options.name}, f"shovel '{options.name}' is deleted")
    return DONE


ADD: Final[Mapping[str, Add]] = {"shovel": add_shovel}
