"""`leveret serve` runs a node; `leveret check` checks the files that it would read."""

from __future__ import annotations

import argparse
import errno
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from leveret.server.cli.command_parser import Add, Environ
from leveret.server.cli.exit_codes import DONE, REFUSED, failed

if TYPE_CHECKING:
    from leveret.config.config import Config
    from leveret.config.types import Problem

SERVE_EXAMPLES: Final = """\
examples:
  leveret serve                                 every protocol on 127.0.0.1:5672 and [::1]:5672, in memory
  leveret serve --data /var/lib/leveret         durable objects and messages survive a restart
  leveret serve --config leveret.toml           with the settings of the file
  leveret serve --listen 0.0.0.0:5672 --listen [::]:5672
  LEVERET_LOG__LEVEL=debug leveret serve        every key of the file can be set like this

Flags win over environment variables, these over the file. Where none names a folder for data, a service of systemd
takes the StateDirectory= of its unit. SIGHUP makes the node reread the file.
"""

ELSEWHERE: Final = (
    "choose other addresses, for example: leveret serve --listen 127.0.0.1:5673 --http 127.0.0.1:15673"
)


def add_serve(serving: argparse.ArgumentParser, environ: Environ) -> None:
    serving.set_defaults(command=serve)
    serving.epilog = SERVE_EXAMPLES
    serving.add_argument(
        "--config",
        metavar="FILE",
        type=Path,
        default=environ.get("LEVERET_CONFIG"),
        help="the configuration, in TOML (default: $LEVERET_CONFIG, else the defaults)",
    )
    serving.add_argument(
        "--listen",
        metavar="ADDRESS",
        action="append",
        help="an address to accept connections on, HOST:PORT or unix:/PATH; may be repeated, and replaces the "
        "listeners of the file",
    )
    serving.add_argument(
        "--http",
        metavar="ADDRESS",
        help="the address of HTTP: web page, management API, metrics; HOST:PORT or unix:/PATH",
    )
    where = serving.add_mutually_exclusive_group()
    where.add_argument(
        "--data",
        metavar="DIR",
        type=Path,
        help="the folder for durable data, created if missing (default: that of the file, else everything is in memory "
        "only)",
    )
    where.add_argument("--memory", action="store_true", help="keep everything in memory only")


def add_check(checking: argparse.ArgumentParser, environ: Environ) -> None:
    checking.set_defaults(command=check)
    checking.add_argument("file", metavar="FILE", type=Path)
    checking.add_argument("--json", action="store_true", help="print JSON")


def serve(options: argparse.Namespace, environ: Environ) -> int:
    from leveret.memory_tuning import one_collection

    with (
        one_collection()
    ):  # until the node listens: with the interpreter's thresholds it is a sixth of the start
        return _serve(options, environ)


def _serve(options: argparse.Namespace, environ: Environ) -> int:
    from leveret.config.config import ConfigError, unread_variables
    from leveret.durable.store.contract import StoreError
    from leveret.durable.store.folder import BadFolder
    from leveret.server.plugin_loader import BadPlugin

    try:
        config = configured(options, environ)
        for each in unread_variables(environ):
            print(f"leveret: warning: {each}", file=sys.stderr)
        run_node(config, lambda: configured(options, environ), str(options.config or ""))
    except ConfigError as error:
        return failed(f"the configuration cannot be used\n{error}")
    except BadPlugin as error:
        return failed(error.told())
    except (BadFolder, StoreError) as error:
        return failed(str(error))
    except OSError as error:
        return failed(_advised(error))
    return DONE


def _advised(error: OSError) -> str:
    """Return what the error says, and what to do about an address that is taken."""
    text = error.strerror or str(error)
    if error.errno != errno.EADDRINUSE or "unix:" in text:
        return text
    return f"{text} by another program, such as a broker: stop that one, or {ELSEWHERE}"


def configured(options: argparse.Namespace, environ: Environ) -> Config:
    """Return the configuration from file, environment and flags of `leveret serve`. Raises ConfigError.

    Where none of them names a data folder, and a unit of systemd has a StateDirectory=, data is kept there
    (systemd.exec(5)): a service should not lose what clients call durable because of a line that is missing.
    """
    from leveret.config.config import load

    overrides = _overrides(options)
    config = load(options.config, environ, overrides)
    state = environ.get("STATE_DIRECTORY", "").split(":")[0]
    if not state or options.memory or config.node.data_dir is not None:
        return config
    return load(options.config, environ, {**overrides, "node.data_dir": Path(state)})


def _overrides(options: argparse.Namespace) -> dict[str, object]:
    """Return the flags of `leveret serve` by the paths of the keys that they override."""
    overrides: dict[str, object] = {}
    if options.listen:
        overrides["listeners"] = [{"address": address} for address in options.listen]
    if options.http:
        overrides["http.address"] = options.http
    if options.data:
        overrides["node.data_dir"] = options.data.absolute()
    if options.memory:
        overrides |= {"node.data_dir": None, "store": None}
    return overrides


def run_node(config: Config, reread: Callable[[], Config], source: str) -> None:
    """Run a node until a signal ends it; `reread` returns the configuration anew for a reload."""
    from leveret.server.node.process import run

    run(config, reread, source)


def check(options: argparse.Namespace, environ: Environ) -> int:
    from leveret.arguments.names import counted
    from leveret.server.cli import text

    config, problems, warnings = _checked(options.file, environ)
    if options.json:
        if config is not None and not problems:
            print(text.summary_json(config, warnings))
            return DONE
        print(text.problems_json(problems, warnings))
        return REFUSED
    if config is not None and not problems:
        print(f"{options.file}: OK\n{text.summary(config)}")
    for each in warnings:
        print(f"leveret: warning: {text.plain(each)}", file=sys.stderr)
    if not problems:
        return DONE
    listed = "\n".join(map(str, problems))
    return failed(f"{options.file} has {counted(len(problems), 'problem')}\n{listed}")


def _checked(file: Path, environ: Environ) -> tuple[Config | None, Sequence[Problem], list[str]]:
    """Return the configuration, as far as it can be read, with all that would stop a start, and warnings."""
    from leveret.config.config import ConfigError, load, unread_variables
    from leveret.server.node.start_check import findings

    config: Config | None
    refused: Sequence[Problem] = ()
    try:
        config = load(file, environ)
    except ConfigError as error:
        config, refused = error.rest, error.problems
    problems, warnings = (refused, []) if config is None else findings(config, refused)
    return config, problems, [*unread_variables(environ), *warnings]


ADD: Final[Mapping[str, Add]] = {"serve": add_serve, "check": add_check}
