"""`leveret policy`, `operator-policy`, `user`, `permission`, `limit`: commands for access and settings."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from leveret.server.cli.api_commands import (
    asking_part,
    confirmed,
    confirming,
    say,
    say_with_warnings,
    table,
    warnings_of,
)
from leveret.server.cli.command_parser import Actions, Add, Environ, header, parts_of, virtual_host
from leveret.server.cli.exit_codes import DONE, REFUSED
from leveret.server.cli.lists import list_things, pattern
from leveret.server.cli.objects import delete_user, facts

if TYPE_CHECKING:
    from leveret.server.cli.api import Api

POLICY_EXAMPLES: Final = """\
examples:
  leveret policy set bounded '^orders\\.' --set max-length=1000 --set overflow=reject-publish --apply-to queues
  leveret policy clear bounded --yes

Values are written as in a TOML file: 2, true; anything else is text.
"""
USER_EXAMPLES: Final = """\
examples:
  leveret user add shop --tags management          asks for the password, or reads it from standard input
  leveret user add shop --new-password-file FILE
  leveret user password shop

A password is never an argument: other users of the machine can read those. --user and --password-file are the login of
the command itself.
"""
PERMISSION_EXAMPLES: Final = """\
examples:
  leveret permission set shop --configure '^shop\\.' --write '^shop\\.' --read '^shop\\.'
  leveret permission clear shop --vhost /prod --yes
"""
LIMIT_EXAMPLES: Final = """\
examples:
  leveret limit set max-queues 100 --vhost /prod
  leveret limit set max-connections 10 --of-user shop
  leveret limit clear max-queues --vhost /prod
"""
LIMITS: Final = {
    "vhost": ("max-connections", "max-queues", "max-publish-rate"),
    "user": ("max-connections", "max-channels", "max-publish-rate"),
}


def add_policies(section: str, text: str, parser: argparse.ArgumentParser, environ: Environ) -> None:
    """Add the commands for one of the two kinds of policies."""
    actions = parts_of(parser)
    setting = asking_part(
        actions, environ, "set", partial(set_policy, section), f"Set {text}.", POLICY_EXAMPLES
    )
    setting.add_argument("name", metavar="NAME")
    setting.add_argument("pattern", metavar="PATTERN", type=pattern, help="the names it applies to")
    setting.add_argument(
        "--set", metavar="NAME=VALUE", action="append", required=True, type=header, help="may be repeated"
    )
    setting.add_argument("--apply-to", metavar="KIND", default="all", help="all, queues, exchanges, ...")
    setting.add_argument("--priority", type=int, default=0, help="of several that match, the highest holds")
    clearing = asking_part(actions, environ, "clear", partial(clear_policy, section), f"Clear {text}.")
    clearing.add_argument("name", metavar="NAME")
    confirming(clearing)
    for part in (setting, clearing):
        virtual_host(part)
    _listing(actions, environ, section)


def add_user(parser: argparse.ArgumentParser, environ: Environ) -> None:
    actions = parts_of(parser)
    adding = asking_part(actions, environ, "add", add_one, "Create a user.", USER_EXAMPLES)
    changing = asking_part(
        actions, environ, "password", set_password, "Give a user a new password.", USER_EXAMPLES
    )
    tagging = asking_part(actions, environ, "tags", set_tags, "Set the tags of a user.")
    deleting = asking_part(actions, environ, "delete", delete_user, "Delete a user.")
    confirming(deleting)
    for part in (adding, changing, tagging, deleting):
        part.add_argument("name", metavar="NAME")
    for part in (adding, changing):
        part.add_argument(
            "--new-password-file", metavar="FILE", type=Path, help="a file with the user's password"
        )
    adding.add_argument("--no-password", action="store_true", help="the user cannot log in by password")
    adding.add_argument("--tags", default="", metavar="TAG,...", help="management, monitoring, administrator")
    tagging.add_argument("tags", nargs="*", metavar="TAG", help="the tags; without any, all are removed")
    _listing(actions, environ, "users", by_host=False)


def add_permission(parser: argparse.ArgumentParser, environ: Environ) -> None:
    actions = parts_of(parser)
    text = "Set the names that a user may configure, write and read."
    setting = asking_part(actions, environ, "set", set_permission, text, PERMISSION_EXAMPLES)
    clearing = asking_part(actions, environ, "clear", clear_permission, "Remove a user's permissions.")
    confirming(clearing)
    for part in (setting, clearing):
        part.add_argument("name", metavar="USER")
        virtual_host(part)
    for what in ("configure", "write", "read"):
        setting.add_argument(
            f"--{what}", metavar="PATTERN", default="^$", type=pattern, help="names (default: none)"
        )
    _listing(actions, environ, "permissions")


def add_limit(parser: argparse.ArgumentParser, environ: Environ) -> None:
    actions = parts_of(parser)
    text = "Limit a virtual host or, with --of-user, a user."
    setting = asking_part(actions, environ, "set", set_limit, text, LIMIT_EXAMPLES)
    clearing = asking_part(actions, environ, "clear", clear_limit, "Remove a limit.", LIMIT_EXAMPLES)
    for part in (setting, clearing):
        names = sorted({name for each in LIMITS.values() for name in each})
        part.add_argument("limit", metavar="LIMIT", choices=names, help=", ".join(names))
        virtual_host(part)
        part.add_argument("--of-user", metavar="NAME", help="limit this user instead of a virtual host")
    setting.add_argument("value", metavar="N", type=int)
    _listing(actions, environ, "limits", by_host=False)


def _listing(
    actions: Actions[argparse.ArgumentParser], environ: Environ, what: str, by_host: bool = True
) -> None:
    part = asking_part(actions, environ, "list", list_things, f"The same as `leveret list {what}`.")
    part.set_defaults(what=what, vhost=None, columns=None, sort=None, reverse=False, filter=None, limit=None)
    if by_host:
        part.add_argument("--vhost", metavar="NAME", help="only of this virtual host")


def set_policy(section: str, options: argparse.Namespace, api: Api) -> int:
    from leveret.server.cli.api import SINGULAR, path

    content = {
        "pattern": options.pattern,
        "definition": table(options.set),
        "priority": options.priority,
        "apply-to": options.apply_to,
    }
    where = path(section, options.vhost, options.name)
    api.put(where, content)
    told = {"vhost": options.vhost, "name": options.name, **content}
    words = f"{SINGULAR[section]} '{options.name}' is set in vhost '{options.vhost}'"
    say_with_warnings(options, told, words, warnings_of(api, where))
    return DONE


def clear_policy(section: str, options: argparse.Namespace, api: Api) -> int:
    from leveret.server.cli.api import SINGULAR, path

    facts(api, section, options.vhost, options.name)
    fact = f"This clears {SINGULAR[section]} '{options.name}' in vhost '{options.vhost}'."
    if not confirmed(options, fact, "Go on?"):
        return REFUSED
    api.delete(path(section, options.vhost, options.name))
    say(options, {"deleted": options.name}, f"{SINGULAR[section]} '{options.name}' is cleared")
    return DONE


def add_one(options: argparse.Namespace, api: Api) -> int:
    """Create a user, unless it exists: the node would change its password and tags."""
    from leveret.arguments.warnings import tag_warnings
    from leveret.server.cli.api import Refused, path

    if any(row.get("name") == options.name for row in api.rows(path("users"))):
        raise Refused(
            f"there is a user '{options.name}' already; `leveret user password` and `leveret user tags` change it"
        )
    login = {"password_hash": ""} if options.no_password else {"password": new_password(options)}
    tags = ",".join(filter(None, map(str.strip, options.tags.split(","))))
    api.put(path("users", options.name), {**login, "tags": tags})
    told = {"name": options.name, "tags": tags.split(",") if tags else []}
    words = f"created user '{options.name}'; `leveret permission set` sets its permissions"
    say_with_warnings(options, told, words, tag_warnings(told["tags"]))
    return DONE


def set_password(options: argparse.Namespace, api: Api) -> int:
    from leveret.server.cli.api import path

    user = api.get(path("users", options.name))
    tags = user.get("tags") if isinstance(user, Mapping) else ""
    content = {"password": new_password(options), "tags": joined(tags)}
    api.put(path("users", options.name), content)
    say(options, {"name": options.name}, f"user '{options.name}' has a new password")
    return DONE


def set_tags(options: argparse.Namespace, api: Api) -> int:
    """Set the tags. The node wants the whole user: the password stays because its hash is sent back."""
    from leveret.arguments.warnings import tag_warnings
    from leveret.server.cli.api import path

    user = api.get(path("users", options.name))
    kept = user if isinstance(user, Mapping) else {}
    content = {name: kept[name] for name in ("password_hash", "hashing_algorithm") if name in kept}
    api.put(path("users", options.name), {**content, "tags": ",".join(options.tags)})
    tags = ", ".join(options.tags) or "none"
    words = f"tags of user '{options.name}': {tags}"
    say_with_warnings(
        options, {"name": options.name, "tags": options.tags}, words, tag_warnings(options.tags)
    )
    return DONE


def joined(tags: object) -> str:
    """Return tags as the API takes them; it may have given them as a list, or as text."""
    return ",".join(map(str, tags)) if isinstance(tags, list) else str(tags or "")


def new_password(options: argparse.Namespace) -> str:
    """Read the password from a file, a prompt, or standard input. Raises OSError, or ValueError if it is empty."""
    if options.new_password_file is not None:
        found = str(options.new_password_file.read_text()).rstrip("\r\n")
    elif sys.stdin.isatty():
        found = _asked_twice(options.name)
    else:
        found = sys.stdin.readline().rstrip("\r\n")
    if not found:
        raise ValueError("the password is empty; --no-password creates a user without one")
    return found


def _asked_twice(name: str) -> str:
    from getpass import getpass

    first = getpass(f"New password of {name}: ")
    if getpass("Repeat the password: ") != first:
        raise ValueError("the passwords differ; nothing was changed")
    return first


def set_permission(options: argparse.Namespace, api: Api) -> int:
    from leveret.server.cli.api import path

    content = {"configure": options.configure, "write": options.write, "read": options.read}
    api.put(path("permissions", options.vhost, options.name), content)
    told = {"user": options.name, "vhost": options.vhost, **content}
    say(options, told, f"user '{options.name}' has these permissions in vhost '{options.vhost}'")
    return DONE


def clear_permission(options: argparse.Namespace, api: Api) -> int:
    from leveret.server.cli.api import path

    facts(api, "permissions", options.vhost, options.name)
    fact = f"This removes the permissions of user '{options.name}' in vhost '{options.vhost}'."
    if not confirmed(options, fact, "Go on?"):
        return REFUSED
    api.delete(path("permissions", options.vhost, options.name))
    told = {"user": options.name, "vhost": options.vhost}
    say(options, told, f"user '{options.name}' has no permissions in vhost '{options.vhost}'")
    return DONE


def set_limit(options: argparse.Namespace, api: Api) -> int:
    where = limited(options)
    api.put(where, {"value": options.value})
    told = {"limit": options.limit, "value": options.value}
    say(options, told, f"{options.limit} is {options.value} for {_whose(options)}")
    return DONE


def clear_limit(options: argparse.Namespace, api: Api) -> int:
    api.delete(limited(options))
    told = {"limit": options.limit, "value": None}
    say(options, told, f"{options.limit} is not set for {_whose(options)}")
    return DONE


def limited(options: argparse.Namespace) -> str:
    """Return the path of a limit. Raises ValueError if there is no such limit."""
    from leveret.server.cli.api import path

    kind, name = ("user", options.of_user) if options.of_user else ("vhost", options.vhost)
    if options.limit not in LIMITS[kind]:
        others = ", ".join(LIMITS[kind])
        raise ValueError(f"{options.limit} is no limit of a {kind}; there are {others}")
    return path(f"{kind}-limits", name, options.limit)


def _whose(options: argparse.Namespace) -> str:
    return f"user '{options.of_user}'" if options.of_user else f"vhost '{options.vhost}'"


def _policies(section: str, text: str) -> Callable[[argparse.ArgumentParser, Environ], None]:
    return partial(add_policies, section, text)


ADD: Final[Mapping[str, Add]] = {
    "policy": _policies("policies", "a policy"),
    "operator-policy": _policies("operator-policies", "an operator policy"),
    "user": add_user,
    "permission": add_permission,
    "limit": add_limit,
}
