"""`leveret plan`, `apply`, `lint`: compare a node's topology with a file, and make it match."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Final

from leveret.arguments.names import counted
from leveret.server.cli.api_commands import Working, confirmed, confirming
from leveret.server.cli.command_parser import Add, Environ, control
from leveret.server.cli.exit_codes import DONE, PENDING, REFUSED, UNREACHABLE, failed
from leveret.server.cli.lists import pattern

if TYPE_CHECKING:
    from leveret.server.cli.api import Api
    from leveret.server.topology_file.lint import Finding
    from leveret.server.topology_file.model import Topology
    from leveret.server.topology_file.plan import Change

PLAN_EXAMPLES: Final = """\
examples:
  leveret plan shop.toml
  leveret plan shop.toml --prune --json
  leveret plan definitions.json --prune --manage '^shop\\.'

Exit code 4: there are changes to make; 0: there are none. Nothing is changed.
"""
APPLY_EXAMPLES: Final = """\
examples:
  leveret apply shop.toml
  leveret apply shop.toml --yes --prune

It shows the plan and asks. It stops at the first change that the node refuses, and reports what was done.
"""
LINT_EXAMPLES: Final = """\
examples:
  leveret lint shop.toml
  leveret lint --live --vhost /prod --json
  leveret lint --live --for rabbitmq-4.3

Exit code 4: something was found.
"""
RELEASES: Final = ("rabbitmq-3.13", *(f"rabbitmq-4.{minor}" for minor in range(5)), "rabbitmq-4")
SIGNS: Final = {"create": "+", "change": "~", "replace": "!", "delete": "-"}


def add_plan(parser: argparse.ArgumentParser, environ: Environ) -> None:
    control(parser, environ, Working(plan), PLAN_EXAMPLES)
    _file(parser)


def add_apply(parser: argparse.ArgumentParser, environ: Environ) -> None:
    control(parser, environ, Working(apply), APPLY_EXAMPLES)
    _file(parser)
    confirming(parser)
    parser.add_argument(
        "--replace",
        action="store_true",
        help="delete and redeclare objects that cannot be changed; queues lose their messages",
    )


def add_lint(parser: argparse.ArgumentParser, environ: Environ) -> None:
    control(parser, environ, Working(lint), LINT_EXAMPLES)
    parser.add_argument("file", metavar="FILE", nargs="?", type=Path, help="a topology, in TOML or JSON")
    parser.add_argument("--live", action="store_true", help="check a running node instead of a file")
    parser.add_argument("--vhost", metavar="NAME", help="with --live: only this virtual host")
    parser.add_argument(
        "--for",
        dest="release",
        metavar="RELEASE",
        choices=RELEASES,
        help="what this release of RabbitMQ refuses, too",
    )


def _file(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", type=Path, help="the topology, in TOML or JSON")
    parser.add_argument("--prune", action="store_true", help="delete what the file manages but does not name")
    parser.add_argument(
        "--manage", metavar="PATTERN", type=pattern, help="the names that the file manages, whatever it says"
    )


def plan(options: argparse.Namespace, api: Api) -> int:
    changes = planned(options, api)
    print(json.dumps(told(changes), indent=2) if options.json else described(changes))
    return PENDING if changes else DONE


def apply(options: argparse.Namespace, api: Api) -> int:
    changes = planned(options, api)
    if not options.json:
        print(described(changes))
    if not changes:
        return _applied(options, changes, 0)
    replaced = [each for each in changes if each.action == "replace"]
    if replaced and not options.replace:
        names = "".join(f"\n  {each.thing}" for each in replaced)
        return failed(
            f"these can only be deleted and declared again (a queue loses its messages); --replace does it{names}"
        )
    if not confirmed(options, "The node differs from the file.", f"Make {counted(len(changes), 'change')}?"):
        return REFUSED
    return _performed(options, changes, api)


def _performed(options: argparse.Namespace, changes: Sequence[Change], api: Api) -> int:
    from leveret.server.cli.api import Refused
    from leveret.server.cli.control_client import Unreachable
    from leveret.server.topology_file.requests import perform

    for number, change in enumerate(changes):
        try:
            perform(change, api)
        except (Refused, Unreachable) as error:
            _applied(options, changes[:number], len(changes))
            code = UNREACHABLE if isinstance(error, Unreachable) else REFUSED
            return failed(f"stopped at: {change.action} {change.thing}: {error}", code)
        if not options.json:
            print(f"done: {change.action} {shown(change.thing)}", flush=True)
    return _applied(options, changes, len(changes))


def _applied(options: argparse.Namespace, done: Sequence[Change], of: int) -> int:
    if options.json:
        print(json.dumps({"done": told(done)["changes"], "planned": of}, indent=2))
    elif of:
        print(f"{len(done)} of {of} changes are made")
    return DONE


def planned(options: argparse.Namespace, api: Api) -> list[Change]:
    from leveret.server.topology_file.live import beside
    from leveret.server.topology_file.plan import plan

    wanted = read(options.file)
    if options.manage is not None:
        wanted = managing(wanted, options.manage)
    if options.prune and not wanted.managed:
        raise ValueError(
            f"{options.file} does not say what it manages, so that nothing can be pruned: add `manage` to a virtual"
            " host of the file, or use --manage PATTERN"
        )
    _warn(wanted)
    return plan(wanted, beside(wanted, api), options.prune)


def _warn(topology: Topology) -> None:
    """Print what the file asks for in vain, on standard error."""
    from leveret.server.topology_file.effective import EffectiveTopology
    from leveret.server.topology_file.lint import without_effect

    for _, what, _ in without_effect(EffectiveTopology(topology)):
        print(f"leveret: warning: {shown(what)}", file=sys.stderr)


def managing(topology: Topology, pattern: str) -> Topology:
    import attrs

    return attrs.evolve(topology, managed=dict.fromkeys(topology.hosts, pattern))


def read(file: Path) -> Topology:
    """Read a topology file. Raises ValueError with every problem of the file, or OSError."""
    from leveret.config.config import ConfigError
    from leveret.server.topology_file.reader import read_file

    try:
        return read_file(file)
    except ConfigError as error:
        raise ValueError(f"{file} cannot be used\n{error}") from None


def told(changes: Sequence[Change]) -> dict[str, object]:
    """Return a plan for `--json`."""
    counts = {action: sum(each.action == action for each in changes) for action in SIGNS}
    return {
        "changes": [
            {
                "action": each.action,
                "kind": each.thing.kind,
                "key": list(each.thing.key[1:]),
                "settings": each.thing.shown,
                "before": None if each.before is None else each.before.shown,
            }
            for each in changes
        ],
        **counts,
    }


def described(changes: Sequence[Change]) -> str:
    """Return a plan as text."""
    if not changes:
        return "nothing to change"
    lines = []
    for each in changes:
        lines.append(f"{SIGNS[each.action]} {each.action} {shown(each.thing)}")
        lines += [f"    {shown(difference)}" for difference in each.differences]
    counts = [(sum(each.action == action for each in changes), action) for action in SIGNS]
    lines += ["", ", ".join(f"{count} to {action}" for count, action in counts if count)]
    if any(each.action == "replace" for each in changes):
        lines.append("! deletes and redeclares, with --replace only: messages of such queues are lost")
    return "\n".join(lines)


def shown(what: object) -> str:
    from leveret.server.cli.text import plain

    return plain(str(what)).replace("\n", "\\n")


def lint(options: argparse.Namespace, api: Api) -> int:
    from leveret.server.topology_file.lint import lint

    if (options.file is None) != options.live:
        raise ValueError("lint takes either a FILE or --live")
    if options.live:
        found = lint(_live(options, api), options.release)
    else:
        found = linted(options.file, options.release)
    if options.json:
        names = ("severity", "code", "place", "what", "advice")
        print(json.dumps([{name: getattr(each, name) for name in names} for each in found], indent=2))
    else:
        print(findings_text(found))
    return PENDING if found else DONE


def linted(file: Path, release: str | None) -> list[Finding]:
    """Return the findings in a file; what a node refuses of definitions comes first."""
    from leveret.config.config import ConfigError
    from leveret.server.topology_file.lint import lint, size_of_messages, with_refusals
    from leveret.server.topology_file.reader import from_definitions

    if file.suffix == ".toml":
        return lint(read(file), release)
    from leveret.server.definitions.rehearsal import problems_of

    octets = file.read_bytes()
    try:
        content = json.loads(octets)
    except (ValueError, RecursionError):
        read(file)  # which says what is wrong
        raise
    refused = problems_of(content)
    try:
        found = lint(from_definitions(content), release)
    except ConfigError:  # it is in what is refused
        found = []
    return with_refusals([*found, *size_of_messages(content)], refused)


def findings_text(findings: Sequence[Finding]) -> str:
    """Return findings in groups of one severity and code, and how many of each severity there are."""
    lines = []
    for (severity, code), group in groupby(findings, lambda each: (each.severity, each.code)):
        lines.append(f"{severity}: {code}")
        for each in group:
            what = each.what.removeprefix(f"{each.place}: ").removeprefix(f"{each.place} ")  # once
            lines += [f"  {shown(each.place)}: {shown(what)}", f"      {shown(each.advice)}"]
    counts = Counter(each.severity for each in findings)
    lines.append(", ".join(counted(count, severity) for severity, count in counts.items()) or "nothing found")
    return "\n".join(lines)


def _live(options: argparse.Namespace, api: Api) -> Topology:
    from leveret.server.cli.api import path
    from leveret.server.topology_file.live import whole

    named = [str(row.get("name")) for row in api.whole(path("vhosts"))]
    if options.vhost and options.vhost not in named:
        raise ValueError(f"there is no virtual host '{options.vhost}'; there are {', '.join(named)}")
    return whole([options.vhost] if options.vhost else named, api)


ADD: Final[Mapping[str, Add]] = {"plan": add_plan, "apply": add_apply, "lint": add_lint}
