"""`leveret export` and `import`: the definitions of a node in RabbitMQ's format, which is everything but messages."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from broker_core.cli.api_commands import Working, say_with_warnings, warnings_in
from broker_core.cli.command_parser import Add, Environ, control
from broker_core.cli.exit_codes import DONE

if TYPE_CHECKING:
    from broker_core.cli.api import Api

EXPORT_EXAMPLES: Final = """\
examples:
  leveret export > definitions.json
  leveret export --vhost /prod --file prod.json

The definitions of a whole node contain the hashes of passwords: with --file, only the owner can read the file.
"""
IMPORT_EXAMPLES: Final = """\
examples:
  leveret import definitions.json
  leveret export --vhost /test | leveret import - --vhost /prod

Existing objects stay; `leveret plan` shows beforehand what would change.
"""
OWNER_ONLY: Final = 0o600


def add_export(parser: argparse.ArgumentParser, environ: Environ) -> None:
    control(parser, environ, Working(export), EXPORT_EXAMPLES)
    parser.add_argument("--vhost", metavar="NAME", help="only this virtual host, without users")
    parser.add_argument("--secrets", action="store_true", help="with the passwords in the URIs of shovels")
    parser.add_argument("--file", metavar="FILE", type=Path, help="target (default: standard output)")


def add_import(parser: argparse.ArgumentParser, environ: Environ) -> None:
    control(parser, environ, Working(load), IMPORT_EXAMPLES)
    parser.add_argument("file", metavar="FILE", help="a file of definitions; - is standard input")
    parser.add_argument("--vhost", metavar="NAME", help="import into this virtual host")


def export(options: argparse.Namespace, api: Api) -> int:
    from broker_core.cli.api import WORK_TIMEOUT_S

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
    from broker_core.cli.api import WORK_TIMEOUT_S

    text = sys.stdin.read() if options.file == "-" else Path(options.file).read_text()
    try:
        content = json.loads(text)
    except ValueError as error:
        raise ValueError(f"{options.file} is not JSON: {error}") from None
    warnings = warnings_in(api.post(_path(options), content, WORK_TIMEOUT_S))
    say_with_warnings(options, {"imported": options.file}, "imported the definitions", warnings)
    return DONE


def _path(options: argparse.Namespace) -> str:
    from broker_core.cli.api import path

    return path("definitions", options.vhost) if options.vhost else path("definitions")


ADD: Final[Mapping[str, Add]] = {"export": add_export, "import": add_import}
