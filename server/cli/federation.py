"""`leveret federation`: set and delete upstreams and their sets, show links, and restart one."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from leveret.server.cli.api_commands import asking_part, confirmed, confirming, say, table
from leveret.server.cli.command_parser import Add, Environ, header, parts_of, virtual_host
from leveret.server.cli.exit_codes import DONE, REFUSED
from leveret.server.cli.lists import list_things
from leveret.server.cli.shovels import add_file, in_file

if TYPE_CHECKING:
    from leveret.server.cli.api import Api

EXAMPLES: Final = """\
examples:
  leveret federation set-upstream east --file east.json
  leveret federation set-upstream-set regions east west
  leveret policy set regional '^regional\\.' --set federation-upstream-set=regions
  leveret federation status

A URI with a password belongs in a file, or in standard input (-): other users of the machine can read arguments.
"""
UPSTREAM: Final = "federation-upstream"
UPSTREAM_SET: Final = "federation-upstream-set"


def add_federation(parser: argparse.ArgumentParser, environ: Environ) -> None:
    actions = parts_of(parser)
    upstream = asking_part(
        actions, environ, "set-upstream", set_upstream, "Set an upstream, or replace it.", EXAMPLES
    )
    group = asking_part(
        actions, environ, "set-upstream-set", set_upstream_set, "Set a set of upstreams, or replace it."
    )
    for name, component, help_ in (
        ("delete-upstream", UPSTREAM, "Delete an upstream; its links end."),
        ("delete-upstream-set", UPSTREAM_SET, "Delete a set of upstreams; its links end."),
    ):
        part = asking_part(actions, environ, name, delete_parameter, help_)
        part.set_defaults(component=component)
        confirming(part)
        part.add_argument("name", metavar="NAME")
        virtual_host(part)
    for part in (upstream, group):
        part.add_argument("name", metavar="NAME")
        virtual_host(part)
    add_file(upstream)
    upstream.add_argument(
        "--set", metavar="KEY=VALUE", action="append", default=[], type=header, help="may be repeated"
    )
    group.add_argument("upstreams", metavar="UPSTREAM", nargs="+")
    status = asking_part(
        actions, environ, "status", list_things, "The same as `leveret list federation-links`."
    )
    status.set_defaults(
        what="federation-links", columns=None, sort=None, reverse=False, filter=None, limit=None
    )
    status.add_argument("--vhost", metavar="NAME", help="only of this virtual host")
    restart = asking_part(
        actions, environ, "restart-link", restart_link, "Let a link begin anew, at once; status shows its id."
    )
    restart.add_argument("id", metavar="ID")
    virtual_host(restart)


def set_upstream(options: argparse.Namespace, api: Api) -> int:
    value = {**in_file(options.file), **table(options.set)}
    if not value:
        raise ValueError("an upstream needs keys: --set KEY=VALUE, or --file FILE")
    return _put(options, api, UPSTREAM, value, "upstream")


def set_upstream_set(options: argparse.Namespace, api: Api) -> int:
    members = [{"upstream": name} for name in options.upstreams]
    return _put(options, api, UPSTREAM_SET, members, "set of upstreams")


def _put(options: argparse.Namespace, api: Api, component: str, value: object, noun: str) -> int:
    from leveret.server.cli.api import path

    api.put(path("parameters", component, options.vhost, options.name), {"value": value})
    fields = {"vhost": options.vhost, "name": options.name}
    say(options, fields, f"{noun} '{options.name}' is set in vhost '{options.vhost}'")
    return DONE


def delete_parameter(options: argparse.Namespace, api: Api) -> int:
    from leveret.server.cli.api import path

    what = options.component.replace("federation-upstream", "upstream").replace("-", " ")
    fact = f"This deletes {what} '{options.name}' in vhost '{options.vhost}'; its links end."
    if not confirmed(options, fact, "Go on?"):
        return REFUSED
    api.delete(path("parameters", options.component, options.vhost, options.name))
    say(options, {"deleted": options.name}, f"'{options.name}' is deleted")
    return DONE


def restart_link(options: argparse.Namespace, api: Api) -> int:
    from leveret.server.cli.api import Refused, path

    found = [each for each in api.whole(path("federation-links", options.vhost)) if each["id"] == options.id]
    if not found:
        raise Refused(f"there is no link '{options.id}' in vhost '{options.vhost}'", 404)
    node = str(found[0]["node"])
    api.delete(path("federation-links", "vhost", options.vhost, options.id, node, "restart"))
    say(options, {"restarted": options.id}, f"link '{options.id}' begins anew")
    return DONE


ADD: Final[Mapping[str, Add]] = {"federation": add_federation}
