"""`leveret declare`, `delete`, `bind`, `unbind`, `close`: commands for single objects."""

from __future__ import annotations

import argparse
import contextlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from leveret.arguments.names import counted
from leveret.server.cli.api_commands import (
    Work,
    Working,
    asking_part,
    confirmed,
    confirming,
    say,
    say_with_warnings,
    table,
    warnings_in,
    warnings_of,
)
from leveret.server.cli.command_parser import Actions, Add, Environ, control, header, parts_of, virtual_host
from leveret.server.cli.exit_codes import DONE, REFUSED

if TYPE_CHECKING:
    from leveret.server.cli.api import Api, Row

ARGUMENTS: Final = (
    "The values of arguments are written as in a TOML file: 2, true, [1, 2]; anything else is text."
)
DECLARE_EXAMPLES: Final = f"""\
examples:
  leveret declare queue orders
  leveret declare queue orders --type quorum --argument x-max-length=1000
  leveret declare exchange shop --type topic --argument alternate-exchange=unrouted
  leveret declare vhost prod
  leveret declare vhost prod --default-queue-type quorum

{ARGUMENTS}
An object that exists with the same settings stays as it is; with other settings, the node refuses.
"""
BIND_EXAMPLES: Final = f"""\
examples:
  leveret bind shop orders --key eu.new
  leveret bind shop audit --to exchange --key '#'
  leveret bind by-kind invoices --argument x-match=all --argument kind=invoice

{ARGUMENTS}
"""

MADE: Final = {True: "is made", False: "was there already"}
ONE_ROW: Final = {"page": "1", "page_size": "1", "columns": "name"}


def add_declare(parser: argparse.ArgumentParser, environ: Environ) -> None:
    actions = parts_of(parser)
    queue = _named(actions, environ, "queue", declare_queue, "Declare a queue.", DECLARE_EXAMPLES)
    queue.add_argument("--type", metavar="TYPE", help="classic, quorum, stream or another that the node has")
    exchange = _named(
        actions, environ, "exchange", declare_exchange, "Declare an exchange.", DECLARE_EXAMPLES
    )
    exchange.add_argument("--type", metavar="TYPE", default="direct", help="how it routes (default: direct)")
    exchange.add_argument("--internal", action="store_true", help="clients cannot publish to it")
    for part in (queue, exchange):
        virtual_host(part)
        part.add_argument("--transient", action="store_true", help="it does not survive a restart")
        part.add_argument("--auto-delete", action="store_true", help="it is deleted with its last user")
        _arguments(part)
    host = _named(actions, environ, "vhost", declare_host, "Create a virtual host.", DECLARE_EXAMPLES)
    host.add_argument("--description", help="a description")
    host.add_argument(
        "--default-queue-type",
        metavar="TYPE",
        choices=["classic", "quorum", "stream"],
        help="of queues whose declaration names none: classic, quorum or stream",
    )


def add_delete(parser: argparse.ArgumentParser, environ: Environ) -> None:
    actions = parts_of(parser)
    queue = _named(actions, environ, "queue", delete_queue, "Delete a queue, with its messages.")
    queue.add_argument("--if-empty", action="store_true", help="only if it has no message")
    exchange = _named(actions, environ, "exchange", delete_exchange, "Delete an exchange, with its bindings.")
    for part in (queue, exchange):
        virtual_host(part)
        part.add_argument("--if-unused", action="store_true", help="only if it has no consumer or binding")
    text = "Delete a virtual host, with everything that is in it."
    host = _named(actions, environ, "vhost", delete_host, text)
    user = _named(actions, environ, "user", delete_user, "Delete a user.")
    for part in (queue, exchange, host, user):
        confirming(part)


def add_bind(parser: argparse.ArgumentParser, environ: Environ) -> None:
    control(parser, environ, Working(bind), BIND_EXAMPLES)
    _ends(parser)


def add_unbind(parser: argparse.ArgumentParser, environ: Environ) -> None:
    control(parser, environ, Working(unbind), BIND_EXAMPLES.replace("leveret bind", "leveret unbind"))
    _ends(parser)
    confirming(parser)


def add_close(parser: argparse.ArgumentParser, environ: Environ) -> None:
    actions = parts_of(parser)
    part = _named(actions, environ, "connection", close_connection, "Close a connection of a client.")
    part.add_argument("--reason", metavar="TEXT", help="the reason that the client gets")


def add_forget_ids(parser: argparse.ArgumentParser, environ: Environ) -> None:
    actions = parts_of(parser)
    exchange = "Forget the ids by which an exchange drops duplicates."
    queue = "Forget the ids by which a queue drops duplicates."
    for name, work, text in (
        ("exchange", forget_of_exchange, exchange),
        ("queue", forget_of_queue, queue),
    ):
        part = _named(actions, environ, name, work, text)
        virtual_host(part)
        confirming(part)


def _named(
    actions: Actions[argparse.ArgumentParser],
    environ: Environ,
    name: str,
    work: Work,
    text: str,
    examples: str = "",
) -> argparse.ArgumentParser:
    parser = asking_part(actions, environ, name, work, text, examples)
    parser.add_argument("name", metavar="NAME")
    return parser


def _ends(parser: argparse.ArgumentParser) -> None:
    virtual_host(parser)
    parser.add_argument("source", metavar="EXCHANGE", help="the source")
    parser.add_argument("destination", metavar="QUEUE", help="the destination; see --to")
    parser.add_argument("--to", choices=["queue", "exchange"], default="queue", help="what QUEUE is")
    parser.add_argument("--key", default="", help="the binding key")
    _arguments(parser)


def _arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--argument", metavar="NAME=VALUE", action="append", default=[], type=header, help="may be repeated"
    )


def declare_queue(options: argparse.Namespace, api: Api) -> int:
    typed = {"x-queue-type": options.type} if options.type else {}
    content = {
        "durable": not options.transient,
        "auto_delete": options.auto_delete,
        "arguments": {**typed, **table(options.argument)},
    }
    return _declared(options, api, "queues", content)


def declare_exchange(options: argparse.Namespace, api: Api) -> int:
    content = {
        "type": options.type,
        "durable": not options.transient,
        "auto_delete": options.auto_delete,
        "internal": options.internal,
        "arguments": table(options.argument),
    }
    return _declared(options, api, "exchanges", content)


def _declared(options: argparse.Namespace, api: Api, section: str, content: Mapping[str, object]) -> int:
    from leveret.server.cli.api import SINGULAR, path

    where = path(section, options.vhost, options.name)
    created = api.create(where, content)
    told = {"name": options.name, "vhost": options.vhost, **content, "created": created}
    words = f"{SINGULAR[section]} '{options.name}' {MADE[created]} in vhost '{options.vhost}'"
    say_with_warnings(options, told, words, warnings_of(api, where) if content["arguments"] else [])
    return DONE


def declare_host(options: argparse.Namespace, api: Api) -> int:
    from leveret.server.cli.api import path

    text = {"description": options.description, "default_queue_type": options.default_queue_type}
    content = {name: value for name, value in text.items() if value}
    created = api.create(path("vhosts", options.name), content)
    told = {"name": options.name, **content, "created": created}
    say(options, told, f"virtual host '{options.name}' {MADE[created]}")
    return DONE


def delete_queue(options: argparse.Namespace, api: Api) -> int:
    row = facts(api, "queues", options.vhost, options.name)
    counts = {name: row.get(name) for name in ("messages", "consumers")}
    return _deleted(options, api, "queues", counts, options.if_empty, options.if_unused)


def delete_exchange(options: argparse.Namespace, api: Api) -> int:
    from leveret.server.cli.api import Refused, path

    try:
        leading = path("exchanges", options.vhost, options.name, "bindings", "source")
        counts: dict[str, object] = {"bindings": len(api.whole(leading))}
    except Refused as error:
        if error.status == 404:
            raise
        counts = {}
    return _deleted(options, api, "exchanges", counts, False, options.if_unused)


def delete_host(options: argparse.Namespace, api: Api) -> int:
    from leveret.server.cli.api import Refused, path

    counts = {"messages": facts(api, "vhosts", options.name).get("messages")}
    with contextlib.suppress(Refused):  # an administrator need not have permissions in it
        counts = {"queues": _total(api.get(path("queues", options.name), ONE_ROW)), **counts}
    return _deleted(options, api, "vhosts", counts)


def delete_user(options: argparse.Namespace, api: Api) -> int:
    facts(api, "users", options.name)
    return _deleted(options, api, "users", {})


def facts(api: Api, section: str, *names: str) -> Row:
    """Return an object; empty if the user may not see it. Raises Refused if it does not exist."""
    from leveret.server.cli.api import Refused, path

    try:
        found = api.get(path(section, *names))
    except Refused as error:
        if error.status == 404:
            raise
        return {}
    return found if isinstance(found, Mapping) else {}


def _total(page: object) -> object:
    return page.get("filtered_count") if isinstance(page, Mapping) else None


def contents(counts: Mapping[str, object]) -> str:
    """Return counts as text: `2,001 messages and 1 consumer`; those that are unknown or 0 are left out."""

    return " and ".join(
        counted(count, name.removesuffix("s"))
        for name, count in counts.items()
        if isinstance(count, int) and count
    )


def _deleted(
    options: argparse.Namespace,
    api: Api,
    section: str,
    counts: Mapping[str, object],
    if_empty: bool = False,
    if_unused: bool = False,
) -> int:
    from leveret.server.cli.api import ALONE, SINGULAR, path

    within = [] if section in ALONE else [options.vhost]
    what = f"{SINGULAR[section]} '{options.name}'" + (f" in vhost '{within[0]}'" if within else "")
    lost = f" with {inside}" if (inside := contents(counts)) else ""
    if not confirmed(options, f"This deletes {what}{lost}.", "Go on?"):
        return REFUSED
    query = {name: "true" for name, wanted in (("if-empty", if_empty), ("if-unused", if_unused)) if wanted}
    api.delete(path(section, *within, options.name), query)
    known = {name: count for name, count in counts.items() if count is not None}
    told = {"deleted": options.name, **({"vhost": within[0]} if within else {}), **known}
    say(options, told, f"{what}{lost} is deleted")
    return DONE


def bind(options: argparse.Namespace, api: Api) -> int:
    from leveret.server.cli.api import path

    content = {"routing_key": options.key, "arguments": table(options.argument)}
    ends = path(*between(options.vhost, options.source, options.to, options.destination))
    api.post(ends, content)
    words = f"'{options.source}' routes to {options.to} '{options.destination}'"
    say_with_warnings(options, _told(options), words, _warnings_of_binding(api, ends, content))
    return DONE


def _warnings_of_binding(api: Api, ends: str, content: Mapping[str, object]) -> list[str]:
    from leveret.server.cli.api import Refused

    if not content["arguments"]:
        return []
    try:
        made = [each for each in api.whole(ends) if content.items() <= each.items()]
    except Refused:
        return []
    return warnings_in(made[0]) if made else []


def unbind(options: argparse.Namespace, api: Api) -> int:
    from leveret.server.cli.api import Refused, path

    ends = between(options.vhost, options.source, options.to, options.destination)
    arguments = table(options.argument)
    name = properties_key(api.whole(path(*ends)), options.key, arguments)
    if name is None:
        raise Refused(
            f"'{options.source}' has no binding to {options.to} '{options.destination}' with the key '{options.key}'"
            " and these arguments; `leveret list bindings` shows the bindings"
        )
    fact = f"'{options.source}' will not route to {options.to} '{options.destination}' by the key '{options.key}'."
    if not confirmed(options, fact, "Remove the binding?"):
        return REFUSED
    api.delete(path(*ends, name))
    say(options, _told(options), f"the binding of '{options.source}' is removed")
    return DONE


def between(host: str, source: str, kind: str, destination: str) -> tuple[str, ...]:
    """Return the path segments of the bindings from an exchange to a queue or exchange."""
    return ("bindings", host, "e", source, "q" if kind == "queue" else "e", destination)


def properties_key(bindings: list[Row], key: object, arguments: object) -> str | None:
    """Return the node's name of the binding with this key and these arguments, or None."""
    for each in bindings:
        if each.get("routing_key") == key and each.get("arguments") == arguments:
            return str(each.get("properties_key"))
    return None


def _told(options: argparse.Namespace) -> dict[str, object]:
    return {
        "vhost": options.vhost,
        "source": options.source,
        "destination": options.destination,
        "destination_type": options.to,
        "routing_key": options.key,
        "arguments": table(options.argument),
    }


def close_connection(options: argparse.Namespace, api: Api) -> int:
    from leveret.server.cli.api import path

    headers = {"X-Reason": one_line(options.reason)} if options.reason else {}
    api.delete(path("connections", options.name), headers=headers)
    say(options, {"closed": options.name}, f"connection '{options.name}' is closed")
    return DONE


def forget_of_exchange(options: argparse.Namespace, api: Api) -> int:
    return _forgotten(options, api, "exchanges")


def forget_of_queue(options: argparse.Namespace, api: Api) -> int:
    return _forgotten(options, api, "queues")


def _forgotten(options: argparse.Namespace, api: Api, section: str) -> int:
    from leveret.server.cli.api import SINGULAR, own_path

    fact = f"After this, {SINGULAR[section]} '{options.name}' in vhost '{options.vhost}' takes duplicates once more."
    if not confirmed(options, fact, "Go on?"):
        return REFUSED
    answer = api.delete(own_path(section, options.vhost, options.name, "deduplication"))
    forgotten = answer.get("forgotten") if isinstance(answer, Mapping) else None
    what = counted(forgotten, "id") if isinstance(forgotten, int) else "the ids"
    say(options, answer, f"forgot {what} of {SINGULAR[section]} '{options.name}'")
    return DONE


def one_line(text: str) -> str:
    """Return a text if it can be an HTTP header. Raises ValueError if it cannot."""
    if not (text.isascii() and text.isprintable()):
        raise ValueError("the reason can have only printable ASCII characters")
    return text


ADD: Final[Mapping[str, Add]] = {
    "declare": add_declare,
    "delete": add_delete,
    "bind": add_bind,
    "unbind": add_unbind,
    "close": add_close,
    "forget-ids": add_forget_ids,
}
