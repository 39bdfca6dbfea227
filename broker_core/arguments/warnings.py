"""Sentences about what was asked for and has no effect here: by the tables, and for names that no table has.

    queue_warnings({"x-queue-mode": "lazy", "x-max-lenght": 5})
    ── ["x-queue-mode has no effect here: every queue pages waiting messages out when memory is needed",
        "x-max-lenght is not known here and has no effect; did you mean x-max-length?"]

As in RabbitMQ, such arguments are accepted and kept. The sentences come to people in the log (`Notices`), in the HTTP
API, on the command line, on the web page, and as findings of `leveret lint` and `leveret check`.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

from leveret.arguments.binding_arguments import BINDING_ARGUMENTS
from leveret.arguments.exchange_arguments import EXCHANGE_ARGUMENTS
from leveret.arguments.names import meant, shown
from leveret.arguments.parameters import PARAMETERS
from leveret.arguments.policy_keys import POLICY_KEYS
from leveret.arguments.queue_arguments import QUEUE_ARGUMENTS
from leveret.arguments.row import Effect, Row
from leveret.arguments.server_names import NAME_PREFIX
from leveret.values import Table

log: Final = logging.getLogger("leveret.arguments")

WARNINGS_MAX: Final = 100  # of one declaration
NOTICES_MAX: Final = 1000  # different lines in the log of a node
LAST_NUMBER: Final = re.compile(r"\d+$")
TAGS: Final = ("administrator", "monitoring", "policymaker", "management", "impersonator")
NONE: Final[Mapping[str, Row]] = {}
DECLARED: Final[Mapping[str, Row]] = {**QUEUE_ARGUMENTS, NAME_PREFIX.name: NAME_PREFIX}

Rows: TypeAlias = Mapping[str, Row]


def queue_warnings(arguments: Table, others: Rows = NONE) -> list[str]:
    """Return the warnings of a queue's arguments. `others` are the rows of protocols that translate arguments."""
    return bounded(_said(arguments, DECLARED, others)) if arguments else []


def exchange_warnings(arguments: Table, own: Iterable[Row], names: Collection[str] = ()) -> list[str]:
    """Return the warnings of an exchange's arguments; its type has `own` rows, and knows more `names`."""
    given = {name: value for name, value in arguments.items() if name not in names}
    return bounded(_said(given, EXCHANGE_ARGUMENTS, {row.name: row for row in own}))


def binding_warnings(arguments: Table, own: Iterable[Row]) -> list[str]:
    """Return the warnings of a binding's arguments; the source's type has `own` rows.

    Arguments without `x-` tell bindings apart, and are fine anywhere.
    """
    reserved = {name: value for name, value in arguments.items() if name.startswith("x-")}
    return bounded(_said(reserved, BINDING_ARGUMENTS, {row.name: row for row in own}))


def consumer_warnings(arguments: Table, known: Rows) -> list[str]:
    """Return the warnings of a consumer's arguments; the protocol has rows of those that are known."""
    return bounded(_said(arguments, known))


def policy_warnings(definition: Table) -> list[str]:
    """Return the warnings of a policy's definition. Unknown keys are refused elsewhere."""
    return bounded(_said({name: definition[name] for name in definition if name in POLICY_KEYS}, POLICY_KEYS))


def component_warnings(component: str) -> list[str]:
    """Return the warnings of parameters of a component."""
    row = PARAMETERS.get(component)
    if row is None:
        return [f"component {unknown(component, PARAMETERS)}"]
    return [] if row.effect is Effect.IMPLEMENTED else [without_effect(row)]


def tag_warnings(tags: Iterable[str]) -> list[str]:
    """Return the warnings of a user's tags that give no rights and look like one that does.

    Other tags are the operator's own, as in RabbitMQ.
    """
    found = {tag: meant(tag, TAGS) for tag in tags if tag not in TAGS}
    return bounded(f"the tag {shown(tag)} gives no rights{close}" for tag, close in found.items() if close)


def _said(arguments: Table, table: Rows, others: Rows = NONE) -> Iterator[str]:
    for name, value in arguments.items():
        row = table.get(name) or others.get(name) or others.get(LAST_NUMBER.sub("N", name))
        if row is not None:
            if row.effect is not Effect.IMPLEMENTED and value not in row.inert:
                yield without_effect(row)
        else:
            yield unknown(name, [*table, *others])


def without_effect(row: Row) -> str:
    """Return the warning for a name that is known to have no effect."""
    return f"{row.name} has no effect here{f': {row.instead}' if row.instead else ''}"


def unknown(name: str, known: Collection[str]) -> str:
    """Return the warning for an unknown name, with the known one that it resembles."""
    return f"{shown(name)} is not known here and has no effect{meant(name, known)}"


def bounded(warnings: Iterable[str]) -> list[str]:
    found: list[str] = []
    for each in warnings:
        if len(found) == WARNINGS_MAX:
            return [*found, "more arguments have no effect"]
        found.append(each)
    return found


class Notices:
    """Tells each warning once for a kind of object in a virtual host, however many objects have it; in the log."""

    def __init__(self) -> None:
        self.tell: Callable[[str], object] = log.warning
        self._told: set[tuple[str, str, str]] = set()

    def notice(self, virtual_host: str, kind: str, name: str, warnings: Sequence[str]) -> None:
        """Tell the warnings of an object that have not been told of another of its kind."""
        for warning in warnings:
            self._tell_once(
                (virtual_host, kind, warning),
                f"{kind} '{shown(name)}' in vhost '{shown(virtual_host)}': {warning}",
            )

    def notice_user(self, name: str, warnings: Sequence[str]) -> None:
        for warning in warnings:
            self._tell_once(("", "user", warning), f"user '{shown(name)}': {warning}")

    def _tell_once(self, key: tuple[str, str, str], line: str) -> None:
        if len(self._told) > NOTICES_MAX or key in self._told:
            return
        self._told.add(key)
        is_last = len(self._told) > NOTICES_MAX
        self.tell("no more warnings of arguments without effect until a restart" if is_last else line)
