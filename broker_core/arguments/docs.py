"""Prints docs/arguments.md from the tables: everything that clients and operators can ask for by name.

`python -m leveret.arguments.docs` prints the page. Exchange types and protocols bring rows of their own.
"""

from __future__ import annotations

import json
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

from leveret.arguments.binding_arguments import BINDING_ARGUMENTS
from leveret.arguments.definitions import DEFINITIONS
from leveret.arguments.exchange_arguments import EXCHANGE_ARGUMENTS
from leveret.arguments.parameters import PARAMETERS
from leveret.arguments.policy_keys import POLICY_KEYS
from leveret.arguments.queue_arguments import QUEUE_ARGUMENTS, QueueArgument
from leveret.arguments.row import Effect, Row, Section
from leveret.arguments.server_names import NAME_PREFIX
from leveret.exchanges.exchange_type import ExchangeType
from leveret.exchanges.standard import STANDARD
from leveret.front_end import Protocol
from leveret.limits import QueueType

INTRODUCTION = """\
<!-- Printed by `python -m leveret.arguments.docs` (or `make docs`); edit the tables in broker_core/arguments/, the
classes of exchange types and the tables of the protocols instead. -->

# Arguments, policies, filters: what can be asked for

Everything that has a name of its own and that a client or an operator can ask for. What has *no effect* is accepted
and kept, as in RabbitMQ, and told: once in the log, in `warnings` of the [HTTP API](http-api.md), on the
[web page](web-ui.md), by `leveret declare`, `bind`, `policy set`, `import`, `plan`, `lint` and `check`. Unknown
arguments are accepted, kept and told in the same way, with the name that was probably meant; unknown keys of policies
are refused.
"""
QUEUE_HEAD = ("argument", "classic", "quorum", "stream", "policy key", "example", "")
PLAIN_HEAD = ("name", "")


def documentation(project: Path) -> str:
    """Return the whole page, in Markdown, of the exchange types and protocols that a pyproject.toml declares."""
    types = {**STANDARD, **_declared(project, "leveret.exchanges")}
    return "\n".join([INTRODUCTION, *_core(types), *_protocols(_declared(project, "leveret.protocols"))])


def _declared(project: Path, group: str) -> dict[str, Any]:
    """Return what the entry points of a group lead to: from pyproject.toml, as an installation may be older."""
    declared = tomllib.loads(project.read_text())
    found = declared["project"]["entry-points"][group]
    return {name: EntryPoint(name, value, group).load() for name, value in found.items()}


def _core(types: Mapping[str, type[ExchangeType]]) -> Iterator[str]:
    yield "## Arguments of queues\n"
    yield "Keys that are followed by *(operator)* may be set by operator policies, too.\n"
    yield _table(QUEUE_HEAD, (_queue_cells(row) for row in QUEUE_ARGUMENTS.values()))
    own = [
        Section(f"Arguments of exchanges of the type `{name}`", "", types[name].arguments)
        for name in sorted(types)
    ]
    bound = [
        Section(f"Arguments of bindings from `{name}`", "", types[name].binding_arguments)
        for name in sorted(types)
    ]
    sections = [
        Section(
            "Arguments of a queue's declaration",
            "They are not kept with the queue, or compared.",
            (NAME_PREFIX,),
        ),
        Section("Arguments of exchanges", "Of every type.", tuple(EXCHANGE_ARGUMENTS.values())),
        *own,
        Section(
            "Arguments of bindings",
            "Arguments without `x-` tell bindings apart, and are criteria of headers exchanges.",
            tuple(BINDING_ARGUMENTS.values()),
        ),
        *bound,
        Section(
            "Keys of policies",
            "Besides those that mean the same as an argument of queues, above.",
            tuple(row for row in POLICY_KEYS.values() if row.name not in _keys_of_queues()),
        ),
        Section("Parameters", "Components, set over HTTP or imported.", tuple(PARAMETERS.values())),
        Section("Records of definitions", "Keys of an imported file.", tuple(DEFINITIONS.values())),
    ]
    for section in sections:
        yield from _section(section)


def _keys_of_queues() -> set[str]:
    return {row.key for row in QUEUE_ARGUMENTS.values()}


def _protocols(protocols: Mapping[str, Protocol]) -> Iterator[str]:
    for name in sorted(protocols):
        sections = protocols[name].sections
        for section in () if sections is None else sections():
            yield from _section(section)


def _section(section: Section) -> Iterator[str]:
    if not section.rows:
        return
    yield f"## {section.title}\n"
    if section.about:
        yield f"{section.about}\n"
    yield _table(PLAIN_HEAD, ((f"`{row.name}`", _said(row)) for row in section.rows))


def _queue_cells(row: QueueArgument) -> Iterator[str]:
    yield f"`{row.name}`"
    for kind in QueueType:
        yield "yes" if kind in row.types else "-"
    yield f"`{row.key}`{' *(operator)*' if row.operator else ''}" if row.key else "-"
    yield f"`{json.dumps(row.example)}`"
    yield _said(row)


def _said(row: Row) -> str:
    """Return the sentence of a row, and what it does here if that is not what it says."""
    if row.effect is Effect.IMPLEMENTED:
        return row.about
    return f"{row.about} **{row.effect.value.capitalize()}**{f': {row.instead}' if row.instead else ''}."


def _table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    cells = [list(head), *(list(row) for row in rows)]
    lines = [f"| {' | '.join(each)} |" for each in cells]
    return "\n".join([lines[0], "|---" * len(cells[0]) + "|", *lines[1:], ""])


if __name__ == "__main__":
    sys.stdout.write(documentation(Path(__file__).parents[2] / "pyproject.toml"))
