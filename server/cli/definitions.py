"""`leveret export` and `import`: the definitions of a node in RabbitMQ's format, which is everything but messages."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from leveret.arguments.names import counted
from leveret.server.cli.api_commands import Working, json_in, say_with_warnings, warnings_in
from leveret.server.cli.command_parser import Add, Environ, control
from leveret.server.cli.exit_codes import DONE, REFUSED, failed

if TYPE_CHECKING:
    from leveret.server.cli.api import Api, Row

EXPORT_EXAMPLES: Final = """\
examples:
  leveret export > definitions.json
  leveret export --vhost /prod --file prod.json

The definitions of a whole node contain the hashes of passwords: with --file, only the owner can read the file.
"""
IMPORT_EXAMPLES: Final = """\
examples:
  leveret import definitions.json --dry-run
  leveret import definitions.json
  leveret export --vhost /test | leveret import - --vhost /prod

Existing objects stay. One item that the node refuses does not keep the others out, unless --strict is given; the exit
code is then 1. What has no effect here, and what works otherwise than on a RabbitMQ, is named.
"""
OWNER_ONLY: Final = 0o600
NOUNS: Final = {  # of the sections of a file
    "vhosts": "virtual host",
    "users": "user",
    "permissions": "permission",
    "topic_permissions": "topic permission",
    "parameters": "parameter",
    "global_parameters": "global parameter",
    "policies": "policy",
    "queues": "queue",
    "exchanges": "exchange",
    "bindings": "binding",
}


def add_export(parser: argparse.ArgumentParser, environ: Environ) -> None:
    control(parser, environ, Working(export), EXPORT_EXAMPLES)
    parser.add_argument("--vhost", metavar="NAME", help="only this virtual host, without users")
    parser.add_argument("--secrets", action="store_true", help="with the passwords in the URIs of shovels")
    parser.add_argument("--file", metavar="FILE", type=Path, help="target (default: standard output)")


def add_import(parser: argparse.ArgumentParser, environ: Environ) -> None:
    control(parser, environ, Working(load), IMPORT_EXAMPLES)
    parser.add_argument("file", metavar="FILE", help="a file of definitions; - is standard input")
    parser.add_argument("--vhost", metavar="NAME", help="import into this virtual host")
    parser.add_argument("--dry-run", action="store_true", help="say what would happen, and change nothing")
    parser.add_argument("--strict", action="store_true", help="import nothing if a single item is refused")


def export(options: argparse.Namespace, api: Api) -> int:
    from leveret.server.cli.api import WORK_TIMEOUT_S

    query = {"secrets": "true"} if options.secrets else None
    content = json.dumps(api.get(_path(options), query, timeout_s=WORK_TIMEOUT_S), indent=2)
    if options.file is None:
        print(content)
    else:
        with open(os.open(options.file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, OWNER_ONLY), "w") as file:
            file.write(content + "\n")
        print(f"{options.file} is written", file=sys.stderr)
    return DONE


def load(options: argparse.Namespace, api: Api) -> int:
    from leveret.server.cli.api import WORK_TIMEOUT_S, Refused, own_path

    content = json_in(options.file)
    if not isinstance(content, Mapping):
        raise ValueError(
            f"{options.file} holds no definitions: these are a JSON object, as `leveret export` writes it"
        )
    fields = {"dry_run": options.dry_run, "strict": options.strict and not options.dry_run}
    query = "&".join(f"{name}=true" for name, wanted in fields.items() if wanted)
    try:
        found = api.post(f"{_path(options, own_path)}?{query}", content, WORK_TIMEOUT_S)
    except Refused as error:
        if query or error.status not in (404, 405):  # a RabbitMQ has neither a dry run nor a report
            raise
        warnings = warnings_in(api.post(_path(options), content, WORK_TIMEOUT_S))
        say_with_warnings(options, {"imported": options.file}, "imported the definitions", warnings)
        return DONE
    told = found if isinstance(found, Mapping) else {}
    print(json.dumps(told, indent=2) if options.json else reported(told))
    problems = told.get("problems")
    if not (isinstance(problems, list) and problems):
        return DONE
    return REFUSED if options.json else failed(refusals(problems, told.get("problem_count")))


def reported(told: Row) -> str:
    """Return the report of an import as text."""
    from leveret.server.cli.text import plain

    would = "would be " if told.get("dry_run") else ""
    imported = told.get("imported")
    counts = [
        counted(count, NOUNS.get(name) or name)
        for name, count in (imported.items() if isinstance(imported, Mapping) else ())
        if isinstance(count, int)
    ]
    lines = [f"{would}imported: {', '.join(counts) or 'nothing'}"]
    for name, title in (
        ("ignored", f"{would}ignored, because it has no effect here"),
        ("changed", "works otherwise here"),
    ):
        found = told.get(name)
        if isinstance(found, list) and found:
            lines += [f"{title}:", *(f"  {plain(str(each))}".replace("\n", "\n  ") for each in found)]
    return "\n".join(lines)


def refusals(problems: Sequence[object], count: object) -> str:
    """Return the items that were refused as text, each with its reason."""

    total = count if isinstance(count, int) else len(problems)
    more = [f"  and {total - len(problems):,} more"] if total > len(problems) else []
    lines = [f"  {each}".replace("\n", "\n  ") for each in map(str, problems)]
    return "\n".join([f"{counted(total, 'item')} refused:", *lines, *more])


def _path(options: argparse.Namespace, path: Callable[..., str] | None = None) -> str:
    from leveret.server.cli import api

    path = path or api.path
    return path("definitions", options.vhost) if options.vhost else path("definitions")


ADD: Final[Mapping[str, Add]] = {"export": add_export, "import": add_import}
